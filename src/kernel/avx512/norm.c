/* SPDX-License-Identifier: MIT
 *
 * norm.c: normalisation, softmax and the element-wise sums (docs/KERNELS.md section 4), 16 elements at a time.
 *
 * Row ends are masked: a lane without an element is neither read, added nor written. (Adding a zero would not do: a sum
 * may have underflowed to -0.)
 */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/math.h"

/* By the contract's lanes and tree. Whole registers come without a mask here and below, because what was stored with
 * one cannot be loaded before it is in the cache. */
static float sum_of_squares(const float *x, int n)
{
    __m512 ss = _mm512_setzero_ps();
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512 v = _mm512_loadu_ps(x + i);
        ss = _mm512_fmadd_ps(v, v, ss);
    }
    if (i < n) {
        __m512 v = _mm512_maskz_loadu_ps(first_lanes(n - i), x + i);
        ss = _mm512_mask3_fmadd_ps(v, v, ss, first_lanes(n - i));
    }
    return halving_sum(ss);
}

/* y = (x * r) * w of the lanes m; w NULL: 1. */
ALWAYS_INLINE void scale_16(const float *x, const float *w, __m512 r, __mmask16 m, float *y)
{
    __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x), r);
    if (w) v = _mm512_mul_ps(v, _mm512_maskz_loadu_ps(m, w));
    _mm512_mask_storeu_ps(y, m, v);
}

static void scale_row(const float *x, const float *w, float r, int n, float *y)
{
    int i = 0;
    for (; i + 16 <= n; i += 16) scale_16(x + i, w ? w + i : NULL, _mm512_set1_ps(r), 0xffff, y + i);
    if (i < n) scale_16(x + i, w ? w + i : NULL, _mm512_set1_ps(r), first_lanes(n - i), y + i);
}

static void rms_norm(const float *x, const float *w, float eps, int n, float *y, void *scratch)
{
    (void)scratch;
    scale_row(x, w, 1.0f / __builtin_sqrtf(sum_of_squares(x, n) / (float)n + eps), n, y);
}

static void l2_norm(const float *x, float eps, float scale, int n, float *y, void *scratch)
{
    (void)scratch;
    scale_row(x, NULL, scale / __builtin_sqrtf(sum_of_squares(x, n) + eps), n, y);
}

static void add(float *y, const float *x, int n, void *scratch)
{
    (void)scratch;
    EACH_16(i, m, n)
    {
        __m512 a = _mm512_maskz_loadu_ps((__mmask16)m, y + i), b = _mm512_maskz_loadu_ps((__mmask16)m, x + i);
        _mm512_mask_storeu_ps(y + i, (__mmask16)m, _mm512_add_ps(a, b));
    }
}

static void add_scaled(float *y, const float *x, float s, int n, void *scratch)
{
    (void)scratch;
    EACH_16(i, m, n)
    {
        __m512 a = _mm512_maskz_loadu_ps((__mmask16)m, y + i), b = _mm512_maskz_loadu_ps((__mmask16)m, x + i);
        _mm512_mask_storeu_ps(y + i, (__mmask16)m, _mm512_fmadd_ps(_mm512_set1_ps(s), b, a));
    }
}

static void scale(float *y, float s, int n, void *scratch)
{
    (void)scratch;
    EACH_16(i, m, n)
    {
        __m512 v = _mm512_maskz_loadu_ps((__mmask16)m, y + i);
        _mm512_mask_storeu_ps(y + i, (__mmask16)m, _mm512_mul_ps(v, _mm512_set1_ps(s)));
    }
}

/* A NaN is no maximum but makes its own exponential, and so the sum, NaN. */
static float softmax_exp(const float *x, int n, float *y, void *scratch)
{
    (void)scratch;
    const __m512 max = _mm512_set1_ps(largest_512(x, n));
    __m512 sum = _mm512_setzero_ps();
    EACH_16(i, m, n)
    {
        __m512 e = exp_512(_mm512_sub_ps(_mm512_maskz_loadu_ps((__mmask16)m, x + i), max));
        sum = _mm512_mask_add_ps(sum, (__mmask16)m, sum, e);
        _mm512_mask_storeu_ps(y + i, (__mmask16)m, e);
    }
    return halving_sum(sum);
}

void avx512_init_norm(struct kernels *k)
{
    k->rms_norm = rms_norm;
    k->l2_norm = l2_norm;
    k->add = add;
    k->add_scaled = add_scaled;
    k->scale = scale;
    k->softmax_exp = softmax_exp;
}
