/* SPDX-License-Identifier: MIT
 *
 * kv.c: keys and values into the cache, AVX-512.
 *
 * Rounding is vcvtps2dq's and vcvtps2ph's nearest-even.
 */
#include <string.h>

#include "kernel/avx512/avx512.h"
#include "kernel/avx512/quant.h"

/* Dims i .. i + 32 of a head as a block, zeros beyond its end; the scale as f16. */
static uint16_t quant_dims(const float *x, int head_dim, int i, int8_t *q)
{
    float d = quant_block_32(load_padded(x, i, head_dim), load_padded(x, i + 16, head_dim), q);
    return _cvtss_sh(d, _MM_FROUND_TO_NEAREST_INT);
}

/* One slot of a group of 16 that lie side by side: 4-byte pieces (Q8_0) or single numbers at a distance.
 * Only rounding is vectorised; the stores cannot be, and one token writes one slot. */
static void put_key(enum kv_type t, const float *x, int head_dim, uint8_t *area, int s, void *scratch)
{
    (void)scratch;
    uint8_t *group = area + (size_t)(s / KV_GROUP) * kv_key_bytes(t, head_dim);
    size_t lane = (size_t)(s % KV_GROUP);
    if (t == KV_Q8_0) {
        for (int i = 0; i < head_dim; i += 32, group += 34 * KV_GROUP) {
            int8_t q[32];
            uint16_t d = quant_dims(x, head_dim, i, q);
            memcpy(group + 2 * lane, &d, 2);
            for (size_t g = 0; g < 8; g++) memcpy(group + 2 * KV_GROUP + (g * KV_GROUP + lane) * 4, q + 4 * g, 4);
        }
        return;
    }
    for (int i = 0; i < head_dim; i += 16) {
        __m512 v = load_padded(x, i, head_dim);
        int n = head_dim - i < 16 ? head_dim - i : 16;
        uint16_t h[16];
        _mm256_storeu_si256((void *)h, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
        for (int j = 0; j < n; j++) {
            size_t at = (size_t)(i + j) * KV_GROUP + lane;
            if (t == KV_F32)
                memcpy(group + 4 * at, x + i + j, 4);
            else
                memcpy(group + 2 * at, h + j, 2);
        }
    }
}

/* A value is stored in one piece, dims padded to whole blocks for Q8_0 only. */
static void put_value(enum kv_type t, const float *x, int head_dim, uint8_t *area, int s, void *scratch)
{
    (void)scratch;
    uint8_t *slot = area + (size_t)s * kv_value_bytes(t, head_dim);
    if (t == KV_F32) {
        memcpy(slot, x, (size_t)head_dim * 4);
    } else if (t == KV_F16) {
        int i = 0;
        for (; i + 16 <= head_dim; i += 16)
            _mm256_storeu_si256((void *)(slot + 2 * i),
                                _mm512_cvtps_ph(_mm512_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
        if (i < head_dim) {
            __m256i h = _mm512_cvtps_ph(load_padded(x, i, head_dim), _MM_FROUND_TO_NEAREST_INT);
            _mm256_mask_storeu_epi16(slot + 2 * i, first_lanes(head_dim - i), h);
        }
    } else {
        for (int i = 0; i < head_dim; i += 32, slot += 34) {
            uint16_t d = quant_dims(x, head_dim, i, (int8_t *)slot + 2);
            memcpy(slot, &d, 2);
        }
    }
}

void avx512_init_kv(struct kernels *k)
{
    k->put_key = put_key;
    k->put_value = put_value;
}
