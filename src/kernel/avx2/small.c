/* SPDX-License-Identifier: MIT
 *
 * small.c: norms, activation functions, rotation, argmax, softmax (docs/KERNELS.md section 4).
 *
 * Element-wise functions run 8 at a time; what is left at the end goes through a padded copy, so
 * that nothing beyond the arrays is touched. In the two sums (of squares and of exponentials)
 * padding with zeros is exact: no partial sum can be -0 there. Top-k has no vector form worth
 * having: the reference passes over the values once.
 */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/math.h"

/* The last n % 16 elements belong to lanes 0 ... as every other group of 16 does. */
static void rms_norm_avx2(const float *x, const float *w, float eps, int n, float *y, void *scratch)
{
    (void)scratch;
    __m256 lane[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + 8);
        lane[0] = _mm256_fmadd_ps(a, a, lane[0]);
        lane[1] = _mm256_fmadd_ps(b, b, lane[1]);
    }
    for (int l = 0; i < n; i += 8, l++) {
        __m256 a = n - i < 8 ? vec_load_n(x + i, n - i) : _mm256_loadu_ps(x + i);
        lane[l] = _mm256_fmadd_ps(a, a, lane[l]);
    }
    float r = 1.0f / __builtin_sqrtf(vec_tree16(lane[0], lane[1]) / (float)n + eps);
    for (i = 0; i + 8 <= n; i += 8) {
        __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(r));
        _mm256_storeu_ps(y + i, w ? _mm256_mul_ps(v, _mm256_loadu_ps(w + i)) : v);
    }
    for (; i < n; i++)
        y[i] = w ? (x[i] * r) * w[i] : x[i] * r;
}

static void add_avx2(float *y, const float *x, int n, void *scratch)
{
    (void)scratch;
    int i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(y + i), _mm256_loadu_ps(x + i)));
    for (; i < n; i++)
        y[i] += x[i];
}

static void add_scaled_avx2(float *y, const float *x, float s, int n, void *scratch)
{
    (void)scratch;
    int i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_fmadd_ps(_mm256_set1_ps(s), _mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
    for (; i < n; i++)
        y[i] = __builtin_fmaf(s, x[i], y[i]);
}

static void scale_avx2(float *y, float s, int n, void *scratch)
{
    (void)scratch;
    int i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_loadu_ps(y + i), _mm256_set1_ps(s)));
    for (; i < n; i++)
        y[i] *= s;
}

/* ---- activation functions ---- */

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

/* ---- rotation ---- */

/* Pairs (2i, 2i + 1): four of them in a register, beside their four {cos, sin}. */
static int rope_adjacent(float *x, const float (*cs)[2], int n_pairs)
{
    int i = 0;
    for (; i + 4 <= n_pairs; i += 4) {
        __m256 v = _mm256_loadu_ps(x + 2 * i), t = _mm256_loadu_ps(cs[i]);
        __m256 x1 = _mm256_mul_ps(_mm256_movehdup_ps(v), _mm256_permute_ps(t, 0xb1)); /* x1 * sin, x1 * cos */
        _mm256_storeu_ps(x + 2 * i, _mm256_fmaddsub_ps(_mm256_moveldup_ps(v), t, x1));
    }
    return i;
}

/* Pairs (i, i + n_pairs) */
static int rope_halves(float *x, const float (*cs)[2], int n_pairs)
{
    int i = 0;
    for (; i + 8 <= n_pairs; i += 8) {
        __m256 a = _mm256_loadu_ps(cs[i]), b = _mm256_loadu_ps(cs[i + 4]);
        __m256 c = _mm256_shuffle_ps(a, b, 0x88), s = _mm256_shuffle_ps(a, b, 0xdd); /* pairs 0 1 4 5 2 3 6 7 */
        c = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(c), 0xd8));
        s = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(s), 0xd8));
        __m256 x0 = _mm256_loadu_ps(x + i), x1 = _mm256_loadu_ps(x + n_pairs + i);
        _mm256_storeu_ps(x + i, _mm256_fmsub_ps(x0, c, _mm256_mul_ps(x1, s)));
        _mm256_storeu_ps(x + n_pairs + i, _mm256_fmadd_ps(x0, s, _mm256_mul_ps(x1, c)));
    }
    return i;
}

static void rope_avx2(float *x, const float (*cs)[2], int n_pairs, bool adjacent, void *scratch)
{
    (void)scratch;
    int i = adjacent ? rope_adjacent(x, cs, n_pairs) : rope_halves(x, cs, n_pairs);
    for (; i < n_pairs; i++) {
        float *p0 = adjacent ? &x[2 * i] : &x[i], *p1 = adjacent ? p0 + 1 : p0 + n_pairs;
        float x0 = *p0, x1 = *p1, c = cs[i][0], s = cs[i][1];
        *p0 = __builtin_fmaf(x0, c, -(x1 * s));
        *p1 = __builtin_fmaf(x0, s, x1 * c);
    }
}

/* ---- largest, softmax ---- */

/* The largest value that is not NaN; -inf when there is none. */
static float largest(const float *x, int n)
{
    float v[8], m = -__builtin_inff();
    __m256 a = _mm256_set1_ps(m), b = a;
    int i = 0;
    for (; i + 16 <= n; i += 16) { /* max gives its second operand when either is NaN */
        a = _mm256_max_ps(_mm256_loadu_ps(x + i), a);
        b = _mm256_max_ps(_mm256_loadu_ps(x + i + 8), b);
    }
    _mm256_storeu_ps(v, _mm256_max_ps(a, b));
    for (int l = 0; l < 8; l++)
        if (v[l] > m) m = v[l];
    for (; i < n; i++)
        if (x[i] > m) m = x[i];
    return m;
}

/* Two passes, the second one until the value is found: cheaper than carrying indices along. */
static int argmax_avx2(const float *x, int n, void *scratch)
{
    (void)scratch;
    float m = largest(x, n);
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        int hit = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(m), _CMP_EQ_OQ));
        if (hit) return i + __builtin_ctz((unsigned)hit);
    }
    for (; i < n; i++)
        if (x[i] == m) return i;
    return -1;
}

static float softmax_exp_avx2(const float *x, int n, float *y, void *scratch)
{
    (void)scratch;
    const __m256 max = _mm256_set1_ps(largest(x, n));
    __m256 lane[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = math_exp8(_mm256_sub_ps(_mm256_loadu_ps(x + i), max));
        _mm256_storeu_ps(y + i, v);
        lane[i / 8 % 2] = _mm256_add_ps(lane[i / 8 % 2], v);
    }
    if (i < n) {
        vec_store_n(y + i, math_exp8(_mm256_sub_ps(vec_load_n(x + i, n - i), max)), n - i);
        lane[i / 8 % 2] = _mm256_add_ps(lane[i / 8 % 2], vec_load_n(y + i, n - i));
    }
    return vec_tree16(lane[0], lane[1]);
}

void avx2_init_small(struct kernels *k)
{
    k->rms_norm = rms_norm_avx2;
    k->add = add_avx2;
    k->add_scaled = add_scaled_avx2;
    k->scale = scale_avx2;
    k->act_mul[ACTIV_SILU] = act_mul_silu_avx2;
    k->act_mul[ACTIV_GELU] = act_mul_gelu_avx2;
    k->act_mul[ACTIV_RELU2] = act_mul_relu2_avx2;
    k->act_mul[ACTIV_SIGMOID] = act_mul_sigmoid_avx2;
    k->act_mul[ACTIV_CLAMPED] = act_mul_clamped_avx2;
    k->softcap = softcap_avx2;
    k->rope = rope_avx2;
    k->argmax = argmax_avx2;
    k->softmax_exp = softmax_exp_avx2;
}
