/* SPDX-License-Identifier: MIT
 *
 * math.h: the contract's elementary functions, 8 at a time: base/exact_math.c step by step.
 *
 * Every branch of the scalar functions is computed and the right one picked, NaN included.
 */
#ifndef QUERN_KERNEL_AVX2_MATH_H
#define QUERN_KERNEL_AVX2_MATH_H

#include "kernel/avx2/vec.h"
#include "base/exact_math.h"

VEC_INLINE __m256 math_pow2(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* exp(x) without its exceptions: 2^*n times the result. x in the range of the contract. */
VEC_INLINE __m256 math_exp8_part(__m256 x, __m256 *n)
{
    const __m256 one = _mm256_set1_ps(1.0f), magic = _mm256_set1_ps(0x1.8p23f);
    *n = _mm256_sub_ps(_mm256_add_ps(_mm256_mul_ps(x, _mm256_set1_ps(MATH_EXP_LOG2E)), magic), magic);
    __m256 r = _mm256_fmadd_ps(*n, _mm256_set1_ps(MATH_EXP_C1), x);
    r = _mm256_fmadd_ps(*n, _mm256_set1_ps(MATH_EXP_C2), r);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(MATH_EXP_P0), r, _mm256_set1_ps(MATH_EXP_P1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(MATH_EXP_P2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(MATH_EXP_P3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(MATH_EXP_P4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(MATH_EXP_P5));
    return _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), one);
}

/* y, or what exp(x) is where x is too low or NaN. */
VEC_INLINE __m256 math_exp8_low(__m256 y, __m256 x)
{
    y = _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(MATH_EXP_MIN), _CMP_LT_OQ), y);
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

VEC_INLINE __m256 math_exp8(__m256 x)
{
    /* 2^n in two factors: n reaches 128, one more than an exponent field holds. */
    __m256 n, y = math_exp8_part(x, &n);
    __m256i i = _mm256_cvtps_epi32(n), a = _mm256_srai_epi32(i, 1);
    y = _mm256_mul_ps(_mm256_mul_ps(y, math_pow2(a)), math_pow2(_mm256_sub_epi32(i, a)));
    y = _mm256_blendv_ps(y, _mm256_set1_ps(__builtin_inff()),
                         _mm256_cmp_ps(x, _mm256_set1_ps(MATH_EXP_MAX), _CMP_GT_OQ));
    return math_exp8_low(y, x);
}

/* The same for x <= 0 or NaN: n is -126 at least, so one factor has the same bits. */
VEC_INLINE __m256 math_exp8_negative(__m256 x)
{
    __m256 n, y = math_exp8_part(x, &n);
    return math_exp8_low(_mm256_mul_ps(y, math_pow2(_mm256_cvtps_epi32(n))), x);
}

/* 1 + exp(-x) */
VEC_INLINE __m256 math_logistic8(__m256 x)
{
    return _mm256_add_ps(_mm256_set1_ps(1.0f), math_exp8(_mm256_xor_ps(x, _mm256_set1_ps(-0.0f))));
}

VEC_INLINE __m256 math_silu8(__m256 g) { return _mm256_div_ps(g, math_logistic8(g)); }
VEC_INLINE __m256 math_sigmoid8(__m256 x) { return _mm256_div_ps(_mm256_set1_ps(1.0f), math_logistic8(x)); }

/* log(x) of normal x > 0. */
VEC_INLINE __m256 math_log8(__m256 x)
{
    __m256i u = _mm256_castps_si256(x);
    __m256i e = _mm256_srai_epi32(_mm256_sub_epi32(u, _mm256_set1_epi32(MATH_LOG_SPLIT)), 23);
    __m256 f = _mm256_castsi256_ps(_mm256_sub_epi32(u, _mm256_slli_epi32(e, 23))), n = _mm256_cvtepi32_ps(e);
    f = _mm256_sub_ps(f, _mm256_set1_ps(1.0f));
    __m256 z = _mm256_mul_ps(f, f), p = _mm256_set1_ps(MATH_LOG_P0);
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(MATH_LOG_P1));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(MATH_LOG_P2));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(MATH_LOG_P3));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(MATH_LOG_P4));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(MATH_LOG_P5));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(MATH_LOG_P6));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(MATH_LOG_P7));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(MATH_LOG_P8));
    __m256 y = _mm256_fmadd_ps(n, _mm256_set1_ps(-MATH_EXP_C2), _mm256_mul_ps(_mm256_mul_ps(f, z), p));
    y = _mm256_fmadd_ps(_mm256_set1_ps(-0.5f), z, y);
    return _mm256_fmadd_ps(n, _mm256_set1_ps(-MATH_EXP_C1), _mm256_add_ps(f, y));
}

VEC_INLINE __m256 math_softplus8(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    __m256 u = math_exp8(x), w = _mm256_add_ps(one, u);
    __m256 lost = _mm256_div_ps(_mm256_sub_ps(u, _mm256_sub_ps(w, one)), w);
    __m256 y = _mm256_add_ps(math_log8(w), lost);
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, _mm256_set1_ps(MATH_SOFTPLUS_MAX), _CMP_GT_OQ));
}

VEC_INLINE __m256 math_tanh8(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f), sign = _mm256_set1_ps(-0.0f);
    __m256 a = _mm256_andnot_ps(sign, x), z = _mm256_mul_ps(a, a);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(MATH_TANH_P0), z, _mm256_set1_ps(MATH_TANH_P1));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(MATH_TANH_P2));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(MATH_TANH_P3));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(MATH_TANH_P4));
    __m256 t = _mm256_fmadd_ps(_mm256_mul_ps(a, z), p, a);
    __m256 e = math_exp8(_mm256_mul_ps(_mm256_set1_ps(2.0f), a));
    __m256 u = _mm256_div_ps(_mm256_sub_ps(e, one), _mm256_add_ps(e, one));
    t = _mm256_blendv_ps(t, a, _mm256_cmp_ps(a, _mm256_set1_ps(MATH_TANH_MIN), _CMP_LT_OQ));
    t = _mm256_blendv_ps(t, u, _mm256_cmp_ps(a, _mm256_set1_ps(MATH_TANH_SPLIT), _CMP_GE_OQ));
    t = _mm256_blendv_ps(t, one, _mm256_cmp_ps(a, _mm256_set1_ps(MATH_TANH_MAX), _CMP_GT_OQ));
    return _mm256_or_ps(_mm256_andnot_ps(sign, t), _mm256_and_ps(sign, x));
}

#endif
