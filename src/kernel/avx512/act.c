/* SPDX-License-Identifier: MIT
 *
 * act.c: gated activation functions and the soft cap (docs/KERNELS.md section 4), 16 elements at a time.
 *
 * Row ends are masked: a lane without an element is neither read nor written.
 */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/math.h"

/* f of the gate; the reference's steps in base/exact_math.c. */
ALWAYS_INLINE __m512 activation(enum act_kind kind, __m512 g)
{
    if (kind == ACTIV_SILU) return silu_512(g);
    if (kind == ACTIV_SIGMOID) return sigmoid_512(g);
    if (kind == ACTIV_GELU) {
        __m512 u = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_set1_ps(MATH_GELU_B), g), _mm512_mul_ps(g, g), g);
        __m512 t = tanh_512(_mm512_mul_ps(_mm512_set1_ps(MATH_GELU_A), u));
        return _mm512_mul_ps(_mm512_mul_ps(_mm512_set1_ps(0.5f), g), _mm512_add_ps(_mm512_set1_ps(1.0f), t));
    }
    __m512 r = _mm512_max_ps(_mm512_setzero_ps(), g); /* a NaN or -0 in the second operand stays */
    return _mm512_mul_ps(r, r);
}

ALWAYS_INLINE void act_mul(enum act_kind kind, const float *gate, const float *up, int n, float *y)
{
    EACH_16(i, m, n)
    {
        __m512 g = _mm512_maskz_loadu_ps((__mmask16)m, gate + i), u = _mm512_maskz_loadu_ps((__mmask16)m, up + i);
        _mm512_mask_storeu_ps(y + i, (__mmask16)m, _mm512_mul_ps(activation(kind, g), u));
    }
}

static void act_mul_silu(const float *gate, const float *up, int n, float *y, void *scratch)
{
    (void)scratch;
    act_mul(ACTIV_SILU, gate, up, n, y);
}

static void act_mul_gelu(const float *gate, const float *up, int n, float *y, void *scratch)
{
    (void)scratch;
    act_mul(ACTIV_GELU, gate, up, n, y);
}

static void act_mul_relu2(const float *gate, const float *up, int n, float *y, void *scratch)
{
    (void)scratch;
    act_mul(ACTIV_RELU2, gate, up, n, y);
}

static void act_mul_sigmoid(const float *gate, const float *up, int n, float *y, void *scratch)
{
    (void)scratch;
    act_mul(ACTIV_SIGMOID, gate, up, n, y);
}

static void act_mul_clamped(const float *gate, const float *up, int n, float *y, void *scratch)
{
    (void)scratch;
    const __m512 limit = _mm512_set1_ps(MATH_CLAMP), minus = _mm512_set1_ps(-MATH_CLAMP);
    EACH_16(i, m, n) /* minima and maxima give their second operand when either is NaN */
    {
        __m512 g = _mm512_min_ps(limit, _mm512_maskz_loadu_ps((__mmask16)m, gate + i));
        __m512 u = _mm512_min_ps(limit, _mm512_maskz_loadu_ps((__mmask16)m, up + i));
        u = _mm512_add_ps(_mm512_max_ps(minus, u), _mm512_set1_ps(1.0f));
        g = _mm512_div_ps(g, logistic_512(_mm512_mul_ps(_mm512_set1_ps(MATH_CLAMPED_SLOPE), g)));
        _mm512_mask_storeu_ps(y + i, (__mmask16)m, _mm512_mul_ps(g, u));
    }
}

static void softcap(float *y, float cap, int n, void *scratch)
{
    (void)scratch;
    const __m512 inv = _mm512_set1_ps(1.0f / cap);
    EACH_16(i, m, n)
    {
        __m512 v = tanh_512(_mm512_mul_ps(_mm512_maskz_loadu_ps((__mmask16)m, y + i), inv));
        _mm512_mask_storeu_ps(y + i, (__mmask16)m, _mm512_mul_ps(_mm512_set1_ps(cap), v));
    }
}

void avx512_init_act(struct kernels *k)
{
    k->act_mul[ACTIV_SILU] = act_mul_silu;
    k->act_mul[ACTIV_GELU] = act_mul_gelu;
    k->act_mul[ACTIV_RELU2] = act_mul_relu2;
    k->act_mul[ACTIV_SIGMOID] = act_mul_sigmoid;
    k->act_mul[ACTIV_CLAMPED] = act_mul_clamped;
    k->softcap = softcap;
}
