/* SPDX-License-Identifier: MIT
 *
 * quant.c: activation rows into Q32 and Q256, and keys and values into the cache, AVX-512.
 *
 * Rounding is vcvtps2dq's nearest-even; sums of bytes are vpdpbusd against ones. F32 rows are a copy
 * already in the table below.
 */
#include <string.h>

#include "kernel/avx512/init.h"
#include "kernel/avx512/quant512.h"

static void quant_q32(const float *x, int from, int n, int k, uint8_t *row, void *scratch)
{
    (void)scratch;
    struct act_q32 a = act_q32_at(row, k);
    int8_t *q = (int8_t *)a.q;
    float *d = (float *)a.d;
    int32_t *sum = (int32_t *)a.sum;
    for (int b = from / 32; b < (from + n) / 32; b++, x += 32) {
        d[b] = quant_block_32(_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16), q + 32 * b);
        sum[b] = quant_sum_32(q + 32 * b);
    }
}

/* The sums of q[256] over its 16 groups; returns the largest sum of |q| over one. Both are byte products
 * with ones, four to a dword, folded for all groups at once. */
static int group_sums(const int8_t *q, int16_t *sums)
{
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i s[4], m[4];
    for (int i = 0; i < 4; i++) {
        __m512i v = _mm512_loadu_si512(q + 64 * i);
        s[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, v);
        m[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_abs_epi8(v), ones);
    }
    _mm256_storeu_si256((void *)sums, _mm512_cvtepi32_epi16(reduce_quarters(s)));
    return _mm512_reduce_max_epi32(reduce_quarters(m));
}

/* Two passes over 256 floats, which stay in L1: the magnitude, then the integers. */
static void quant_q256(const float *x, int from, int n, int k, uint8_t *row, void *scratch)
{
    (void)scratch;
    struct act_q256 a = act_q256_at(row, k);
    for (int b = from / 256; b < (from + n) / 256; b++, x += 256) {
        int8_t *q = (int8_t *)a.q + 256 * b;
        float id;
        __m512i largest = _mm512_setzero_si512();
        for (int i = 0; i < 256; i += 16)
            largest = max_bits(largest, _mm512_loadu_ps(x + i));
        if (quant_scale(largest, (float *)a.d + b, &id))
            for (int i = 0; i < 256; i += 16)
                _mm_storeu_si128((void *)(q + i), quant_bytes(_mm512_loadu_ps(x + i), id));
        else
            memset(q, 0, 256);
        ((uint16_t *)a.asum)[b] = (uint16_t)group_sums(q, (int16_t *)a.bsum + 16 * b);
    }
}

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
            for (size_t g = 0; g < 8; g++)
                memcpy(group + 2 * KV_GROUP + (g * KV_GROUP + lane) * 4, q + 4 * g, 4);
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
        for (int i = 0; i < head_dim; i += 16) {
            int n = head_dim - i < 16 ? head_dim - i : 16;
            __m256i h = _mm512_cvtps_ph(load_padded(x, i, head_dim), _MM_FROUND_TO_NEAREST_INT);
            _mm256_mask_storeu_epi16(slot + 2 * i, first_lanes(n), h);
        }
    } else {
        for (int i = 0; i < head_dim; i += 32, slot += 34) {
            uint16_t d = quant_dims(x, head_dim, i, (int8_t *)slot + 2);
            memcpy(slot, &d, 2);
        }
    }
}

void avx512_init_quant(struct kernels *k)
{
    k->quant[ACT_Q32] = quant_q32;
    k->quant[ACT_Q256] = quant_q256;
    k->put_key = put_key;
    k->put_value = put_value;
}
