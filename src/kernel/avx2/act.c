/* SPDX-License-Identifier: MIT
 *
 * act.c: gated activation functions and the soft cap (docs/KERNELS.md section 4), 8 elements at a time.
 *
 * The rest at the end goes through a padded copy, so that nothing beyond the arrays is touched.
 */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/math.h"

typedef __m256 activation_fn(__m256 g);

VEC_INLINE __m256 gelu8(__m256 g)
{
    __m256 u = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_set1_ps(MATH_GELU_B), g), _mm256_mul_ps(g, g), g);
    __m256 t = math_tanh8(_mm256_mul_ps(_mm256_set1_ps(MATH_GELU_A), u));
    return _mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(0.5f), g), _mm256_add_ps(_mm256_set1_ps(1.0f), t));
}

VEC_INLINE __m256 relu2_8(__m256 g)
{
    __m256 r = _mm256_max_ps(_mm256_setzero_ps(), g); /* the second operand when that is NaN */
    return _mm256_mul_ps(r, r);
}

/* y may be gate or up: each group of 8 is read before it is written. */
VEC_INLINE void act_mul(activation_fn *f, const float *gate, const float *up, int n, float *y)
{
    int i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_mul_ps(f(_mm256_loadu_ps(gate + i)), _mm256_loadu_ps(up + i)));
    if (i < n) vec_store_n(y + i, _mm256_mul_ps(f(vec_load_n(gate + i, n - i)), vec_load_n(up + i, n - i)), n - i);
}

static void act_mul_silu_avx2(const float *gate, const float *up, int n, float *y, void *scratch)
{
    (void)scratch;
    act_mul(math_silu8, gate, up, n, y);
}

static void act_mul_gelu_avx2(const float *gate, const float *up, int n, float *y, void *scratch)
{
    (void)scratch;
    act_mul(gelu8, gate, up, n, y);
}

static void act_mul_relu2_avx2(const float *gate, const float *up, int n, float *y, void *scratch)
{
    (void)scratch;
    act_mul(relu2_8, gate, up, n, y);
}

static void act_mul_sigmoid_avx2(const float *gate, const float *up, int n, float *y, void *scratch)
{
    (void)scratch;
    act_mul(math_sigmoid8, gate, up, n, y);
}

/* Minima and maxima give their second operand when either is NaN. */
VEC_INLINE __m256 clamped8(__m256 g, __m256 u)
{
    const __m256 limit = _mm256_set1_ps(MATH_CLAMP);
    g = _mm256_min_ps(limit, g);
    u = _mm256_max_ps(_mm256_set1_ps(-MATH_CLAMP), _mm256_min_ps(limit, u));
    g = _mm256_div_ps(g, math_logistic8(_mm256_mul_ps(_mm256_set1_ps(MATH_CLAMPED_SLOPE), g)));
    return _mm256_mul_ps(g, _mm256_add_ps(u, _mm256_set1_ps(1.0f)));
}

static void act_mul_clamped_avx2(const float *gate, const float *up, int n, float *y, void *scratch)
{
    (void)scratch;
    int i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, clamped8(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i)));
    if (i < n) vec_store_n(y + i, clamped8(vec_load_n(gate + i, n - i), vec_load_n(up + i, n - i)), n - i);
}

static void softcap_avx2(float *y, float cap, int n, void *scratch)
{
    (void)scratch;
    const __m256 c = _mm256_set1_ps(cap), inv = _mm256_set1_ps(1.0f / cap);
    for (int i = 0; i < n; i += 8) {
        int m = n - i < 8 ? n - i : 8;
        __m256 v = m < 8 ? vec_load_n(y + i, m) : _mm256_loadu_ps(y + i);
        vec_store_n(y + i, _mm256_mul_ps(c, math_tanh8(_mm256_mul_ps(v, inv))), m);
    }
}

void avx2_init_act(struct kernels *k)
{
    k->act_mul[ACTIV_SILU] = act_mul_silu_avx2;
    k->act_mul[ACTIV_GELU] = act_mul_gelu_avx2;
    k->act_mul[ACTIV_RELU2] = act_mul_relu2_avx2;
    k->act_mul[ACTIV_SIGMOID] = act_mul_sigmoid_avx2;
    k->act_mul[ACTIV_CLAMPED] = act_mul_clamped_avx2;
    k->softcap = softcap_avx2;
}
