/* SPDX-License-Identifier: MIT
 *
 * norm.c: RMS normalisation, softmax and the element-wise sums (docs/KERNELS.md section 4), 16 elements at a time.
 *
 * Row ends are masked: a lane without an element is neither read, added nor written. (Adding a zero would not do: a sum
 * may have underflowed to -0.)
 */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/math.h"

/* The mean of squares by the contract's lanes and tree, the rest in scalar: one root, one division. */
static void rms_norm(const float *x, const float *w, float eps, int n, float *y, void *scratch)
{
    (void)scratch;
    __m512 ss = _mm512_setzero_ps();
    EACH_16(i, m, n)
    {
        __m512 v = _mm512_maskz_loadu_ps((__mmask16)m, x + i);
        ss = _mm512_mask3_fmadd_ps(v, v, ss, (__mmask16)m);
    }
    __m512 r = _mm512_set1_ps(1.0f / __builtin_sqrtf(halving_sum(ss) / (float)n + eps));
    EACH_16(i, m, n)
    {
        __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps((__mmask16)m, x + i), r);
        if (w) v = _mm512_mul_ps(v, _mm512_maskz_loadu_ps((__mmask16)m, w + i));
        _mm512_mask_storeu_ps(y + i, (__mmask16)m, v);
    }
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
    k->add = add;
    k->add_scaled = add_scaled;
    k->scale = scale;
    k->softmax_exp = softmax_exp;
}
