/* SPDX-License-Identifier: MIT
 *
 * kv.c: keys and values into the cache, AVX2.
 *
 * Rounding is vcvtps2ph's nearest-even, and that of the Q32 format (quant.c).
 */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/vec.h"

/* Dims i .. i + 31 of a head as a block, zeros beyond its end; the scale as f16. */
static uint16_t quant_dims(const float *x, int head_dim, int i, int8_t *q)
{
    float v[32] = {0};
    if (head_dim - i >= 32) return _cvtss_sh(avx2_quant32(x + i, q), _MM_FROUND_TO_NEAREST_INT);
    memcpy(v, x + i, (size_t)(head_dim - i) * sizeof *x);
    return _cvtss_sh(avx2_quant32(v, q), _MM_FROUND_TO_NEAREST_INT);
}

/* One slot of a group of 16 that lie side by side: 4-byte pieces (Q8_0) or single numbers at a distance. Only rounding
 * is vectorised; the stores cannot be, and one token writes one slot. */
static void put_key(enum kv_type t, const float *x, int head_dim, uint8_t *area, int s, void *scratch)
{
    uint8_t *group = area + (size_t)(s / KV_GROUP) * kv_key_bytes(t, head_dim);
    const size_t lane = (size_t)(s % KV_GROUP);
    int i = 0;
    (void)scratch;
    if (t == KV_Q8_0) {
        for (; i < head_dim; i += 32, group += 34 * KV_GROUP) {
            int8_t q[32];
            uint16_t d = quant_dims(x, head_dim, i, q);
            memcpy(group + 2 * lane, &d, 2);
            for (size_t g = 0; g < 8; g++) memcpy(group + 2 * KV_GROUP + (g * KV_GROUP + lane) * 4, q + 4 * g, 4);
        }
        return;
    }
    if (t == KV_F32) {
        for (; i < head_dim; i++) memcpy(group + ((size_t)i * KV_GROUP + lane) * 4, x + i, 4);
        return;
    }
    group += 2 * lane;
    for (; i + 8 <= head_dim; i += 8) {
        uint16_t h[8];
        _mm_storeu_si128((void *)h, _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
        for (int j = 0; j < 8; j++) memcpy(group + (size_t)(i + j) * 2 * KV_GROUP, h + j, 2);
    }
    for (; i < head_dim; i++) {
        uint16_t h = _cvtss_sh(x[i], _MM_FROUND_TO_NEAREST_INT);
        memcpy(group + (size_t)i * 2 * KV_GROUP, &h, 2);
    }
}

/* A value is stored in one piece, dims padded to whole blocks for Q8_0 only. */
static void put_value(enum kv_type t, const float *x, int head_dim, uint8_t *area, int s, void *scratch)
{
    uint8_t *slot = area + (size_t)s * kv_value_bytes(t, head_dim);
    int i = 0;
    (void)scratch;
    if (t == KV_F32) {
        memcpy(slot, x, (size_t)head_dim * 4);
    } else if (t == KV_F16) {
        for (; i + 8 <= head_dim; i += 8)
            _mm_storeu_si128((void *)(slot + 2 * i),
                             _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
        for (; i < head_dim; i++) {
            uint16_t h = _cvtss_sh(x[i], _MM_FROUND_TO_NEAREST_INT);
            memcpy(slot + 2 * i, &h, 2);
        }
    } else {
        for (; i < head_dim; i += 32, slot += 34) {
            uint16_t d = quant_dims(x, head_dim, i, (int8_t *)slot + 2);
            memcpy(slot, &d, 2);
        }
    }
}

void avx2_init_kv(struct kernels *k)
{
    k->put_key = put_key;
    k->put_value = put_value;
}
