/* SPDX-License-Identifier: MIT
 *
 * math.h: the contract's float functions on 16 lanes (docs/KERNELS.md section 4).
 *
 * The same steps as base/exact_math.c in every lane: where the reference branches, all branches are computed
 * and the lanes chosen. vscalefps is the reference's multiplication by 2^n, exact because exp's results
 * are never denormal. Every reduction here is the contract's halving tree.
 */
#ifndef QUERN_KERNEL_AVX512_MATH_H
#define QUERN_KERNEL_AVX512_MATH_H

#include "kernel/avx512/lanes.h"
#include "base/exact_math.h"

ALWAYS_INLINE __m512 abs_512(__m512 x)
{
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)));
}

/* exp before the multiplication by 2^n. */
ALWAYS_INLINE __m512 exp_512_mantissa(__m512 x, __m512 *n)
{
    *n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(MATH_EXP_LOG2E)), _MM_FROUND_TO_NEAREST_INT);
    __m512 r = _mm512_fmadd_ps(*n, _mm512_set1_ps(MATH_EXP_C1), x);
    r = _mm512_fmadd_ps(*n, _mm512_set1_ps(MATH_EXP_C2), r);
    __m512 p = _mm512_set1_ps(MATH_EXP_P0);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(MATH_EXP_P1));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(MATH_EXP_P2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(MATH_EXP_P3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(MATH_EXP_P4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(MATH_EXP_P5));
    return _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0f));
}

ALWAYS_INLINE __m512 exp_512(__m512 x)
{
    __m512 n, y = exp_512_mantissa(x, &n);
    y = _mm512_scalef_ps(y, n);
    __mmask16 over = _mm512_cmp_ps_mask(x, _mm512_set1_ps(MATH_EXP_MAX), _CMP_GT_OQ);
    __mmask16 under = _mm512_cmp_ps_mask(x, _mm512_set1_ps(MATH_EXP_MIN), _CMP_LT_OQ);
    y = _mm512_mask_mov_ps(y, over, _mm512_set1_ps(__builtin_inff()));
    y = _mm512_mask_mov_ps(y, under, _mm512_setzero_ps());
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x);
}

/* The same for x <= 0 or NaN, as in a softmax: a NaN goes through the steps unchanged. */
ALWAYS_INLINE __m512 exp_512_not_above_0(__m512 x)
{
    __m512 n, y = exp_512_mantissa(x, &n);
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(MATH_EXP_MIN), _CMP_NLT_UQ), y, n);
}

/* 1 + exp(-x) */
ALWAYS_INLINE __m512 logistic_512(__m512 x)
{
    return _mm512_add_ps(_mm512_set1_ps(1.0f), exp_512(_mm512_xor_ps(x, _mm512_set1_ps(-0.0f))));
}

ALWAYS_INLINE __m512 silu_512(__m512 g) { return _mm512_div_ps(g, logistic_512(g)); }
ALWAYS_INLINE __m512 sigmoid_512(__m512 x) { return _mm512_div_ps(_mm512_set1_ps(1.0f), logistic_512(x)); }

/* log(x) of normal x > 0. */
ALWAYS_INLINE __m512 log_512(__m512 x)
{
    __m512i u = _mm512_castps_si512(x);
    __m512i e = _mm512_srai_epi32(_mm512_sub_epi32(u, _mm512_set1_epi32(MATH_LOG_SPLIT)), 23);
    __m512 f = _mm512_castsi512_ps(_mm512_sub_epi32(u, _mm512_slli_epi32(e, 23))), n = _mm512_cvtepi32_ps(e);
    f = _mm512_sub_ps(f, _mm512_set1_ps(1.0f));
    __m512 z = _mm512_mul_ps(f, f), p = _mm512_set1_ps(MATH_LOG_P0);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(MATH_LOG_P1));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(MATH_LOG_P2));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(MATH_LOG_P3));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(MATH_LOG_P4));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(MATH_LOG_P5));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(MATH_LOG_P6));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(MATH_LOG_P7));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(MATH_LOG_P8));
    __m512 y = _mm512_fmadd_ps(n, _mm512_set1_ps(-MATH_EXP_C2), _mm512_mul_ps(_mm512_mul_ps(f, z), p));
    y = _mm512_fmadd_ps(_mm512_set1_ps(-0.5f), z, y);
    return _mm512_fmadd_ps(n, _mm512_set1_ps(-MATH_EXP_C1), _mm512_add_ps(f, y));
}

ALWAYS_INLINE __m512 softplus_512(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    __m512 u = exp_512(x), w = _mm512_add_ps(one, u);
    __m512 lost = _mm512_div_ps(_mm512_sub_ps(u, _mm512_sub_ps(w, one)), w);
    __mmask16 large = _mm512_cmp_ps_mask(x, _mm512_set1_ps(MATH_SOFTPLUS_MAX), _CMP_GT_OQ);
    return _mm512_mask_mov_ps(_mm512_add_ps(log_512(w), lost), large, x);
}

ALWAYS_INLINE __m512 tanh_512(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    __m512 a = abs_512(x), z = _mm512_mul_ps(a, a);
    __m512 p = _mm512_set1_ps(MATH_TANH_P0);
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(MATH_TANH_P1));
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(MATH_TANH_P2));
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(MATH_TANH_P3));
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(MATH_TANH_P4));
    __m512 t = _mm512_fmadd_ps(_mm512_mul_ps(a, z), p, a);
    __m512 e = exp_512(_mm512_mul_ps(_mm512_set1_ps(2.0f), a));
    __m512 q = _mm512_div_ps(_mm512_sub_ps(e, one), _mm512_add_ps(e, one));
    t = _mm512_mask_mov_ps(t, _mm512_cmp_ps_mask(a, _mm512_set1_ps(MATH_TANH_SPLIT), _CMP_GE_OQ), q);
    t = _mm512_mask_mov_ps(t, _mm512_cmp_ps_mask(a, _mm512_set1_ps(MATH_TANH_MAX), _CMP_GT_OQ), one);
    t = _mm512_mask_mov_ps(t, _mm512_cmp_ps_mask(a, _mm512_set1_ps(MATH_TANH_MIN), _CMP_LT_OQ), a);
    /* the sign bit of x, the rest of t */
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_set1_epi32((int)0x80000000), _mm512_castps_si512(x),
                                                         _mm512_castps_si512(t), 0xca));
}

/* The halving tree of one register. */
ALWAYS_INLINE float halving_sum(__m512 v)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

/* The halving trees of 16 registers at once, lane i = that of v[i]: each step folds two registers into
 * one, so that the lanes halve while the outputs double. */
ALWAYS_INLINE __m512 halving_sum_16(const __m512 v[16])
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512 q[4], h[2];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512 a = v[4 * i], b = v[4 * i + 1], c = v[4 * i + 2], d = v[4 * i + 3];
        __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
        __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
        q[i] = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        __m512d a = _mm512_castps_pd(q[2 * i]), b = _mm512_castps_pd(q[2 * i + 1]);
        h[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    __m512 sum = _mm512_add_ps(_mm512_shuffle_ps(h[0], h[1], 0x88), _mm512_shuffle_ps(h[0], h[1], 0xdd));
    return _mm512_permutexvar_ps(order, sum);
}

/* The largest value that is not NaN, -inf when there is none: vmaxps takes its second operand when
 * either is NaN. */
static inline float largest_512(const float *x, int n)
{
    __m512 best = _mm512_set1_ps(-__builtin_inff());
    EACH_16(i, m, n) best = _mm512_max_ps(_mm512_mask_loadu_ps(best, (__mmask16)m, x + i), best);
    return _mm512_reduce_max_ps(best);
}

#endif
