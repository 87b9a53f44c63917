/* SPDX-License-Identifier: MIT
 *
 * quant.c: activation rows into Q32 and Q256, AVX-512.
 *
 * Rounding is vcvtps2dq's nearest-even; sums of bytes are vpdpbusd against ones. F32 rows are copied, as
 * the reference does.
 */
#include <string.h>

#include "kernel/avx512/avx512.h"
#include "kernel/avx512/quant.h"

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
        for (int i = 0; i < 256; i += 16) largest = max_bits(largest, _mm512_loadu_ps(x + i));
        if (quant_scale(largest, (float *)a.d + b, &id))
            for (int i = 0; i < 256; i += 16)
                _mm_storeu_si128((void *)(q + i), quant_bytes(_mm512_loadu_ps(x + i), id));
        else
            memset(q, 0, 256);
        ((uint16_t *)a.asum)[b] = (uint16_t)group_sums(q, (int16_t *)a.bsum + 16 * b);
    }
}

void avx512_init_quant(struct kernels *k)
{
    k->quant[ACT_Q32] = quant_q32;
    k->quant[ACT_Q256] = quant_q256;
}
