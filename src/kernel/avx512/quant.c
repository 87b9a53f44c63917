/* SPDX-License-Identifier: MIT
 *
 * quant.c: activation rows into Q32 and Q256, AVX-512.
 *
 * Rounding is vcvtps2dq's nearest-even; sums of bytes are vpdpbusd against ones. F32 rows are copied, as
 * the reference does.
 */
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

/* The sums of 256 integers, 64 to a register, over their 16 groups; returns the largest sum of |q| over one. Both are
 * byte products with ones, four to a dword, folded for all groups at once. */
ALWAYS_INLINE int group_sums(const __m512i q[4], int16_t *sums)
{
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i s[4], m[4];
    for (int i = 0; i < 4; i++) {
        s[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, q[i]);
        m[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_abs_epi8(q[i]), ones);
    }
    _mm256_storeu_si256((void *)sums, _mm512_cvtepi32_epi16(reduce_quarters(s)));
    return _mm512_reduce_max_epi32(reduce_quarters(m));
}

/* 64 values to nearest even as bytes. Packing leaves the dwords of 16 values in four 128-bit lanes. */
ALWAYS_INLINE __m512i quant_64(const float *x, float id)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i v[4];
    for (int i = 0; i < 4; i++)
        v[i] = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16 * i), _mm512_set1_ps(id)));
    __m512i words = _mm512_packs_epi32(v[0], v[1]), more = _mm512_packs_epi32(v[2], v[3]);
    return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(words, more));
}

/* Two passes over 256 floats, which stay in L1: the magnitude, then the integers. These stay in registers for their
 * sums, because loads that span several recent stores wait for them. */
static void quant_q256(const float *x, int from, int n, int k, uint8_t *row, void *scratch)
{
    (void)scratch;
    struct act_q256 a = act_q256_at(row, k);
    for (int b = from / 256; b < (from + n) / 256; b++, x += 256) {
        int8_t *q = (int8_t *)a.q + 256 * b;
        float id;
        __m512i largest[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()}, v[4];
        for (int i = 0; i < 256; i += 32)
            for (int j = 0; j < 2; j++) largest[j] = max_bits(largest[j], _mm512_loadu_ps(x + i + 16 * j));
        bool is_zero = !quant_scale(_mm512_max_epi32(largest[0], largest[1]), (float *)a.d + b, &id);
        for (int i = 0; i < 4; i++) {
            v[i] = is_zero ? _mm512_setzero_si512() : quant_64(x + 64 * i, id);
            _mm512_storeu_si512(q + 64 * i, v[i]);
        }
        ((uint16_t *)a.asum)[b] = (uint16_t)group_sums(v, (int16_t *)a.bsum + 16 * b);
    }
}

void avx512_init_quant(struct kernels *k)
{
    k->quant[ACT_Q32] = quant_q32;
    k->quant[ACT_Q256] = quant_q256;
}
