/* SPDX-License-Identifier: MIT
 *
 * small.c: the operations that run over a vector once, AVX-512.
 *
 * Row ends are masked: a lane without an element is neither read, added nor written. (Adding a zero
 * would not do: a sum may have underflowed to -0.)
 */
#include "kernel/avx512/init.h"
#include "kernel/avx512/math512.h"

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

/* f of the gate; the reference's steps in ref/math.c. */
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

/* Pairs (2i, 2i + 1), left where they lie: even lanes x0 c - x1 s, odd lanes x0 s + x1 c. */
static void rope_adjacent(float *x, const float (*cs)[2], int n_pairs)
{
    EACH_16(i, m, 2 * n_pairs)
    {
        __m512 v = _mm512_maskz_loadu_ps((__mmask16)m, x + i), t = _mm512_maskz_loadu_ps((__mmask16)m, &cs[0][0] + i);
        __m512 x0 = _mm512_moveldup_ps(v), x1 = _mm512_movehdup_ps(v);
        __m512 y = _mm512_fmaddsub_ps(x0, t, _mm512_mul_ps(x1, _mm512_permute_ps(t, 0xb1)));
        _mm512_mask_storeu_ps(x + i, (__mmask16)m, y);
    }
}

/* Pairs (i, i + n_pairs): cosines and sines, stored side by side, are taken apart by two permutations. x0 c -
 * x1 s is vfmsub with the second product rounded first, as the contract has it. */
static void rope(float *x, const float (*cs)[2], int n_pairs, bool adjacent, void *scratch)
{
    (void)scratch;
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    if (adjacent) {
        rope_adjacent(x, cs, n_pairs);
        return;
    }
    EACH_16(i, m, n_pairs)
    {
        int n = 2 * (n_pairs - i);
        __m512 a = _mm512_maskz_loadu_ps(first_lanes(n < 16 ? n : 16), &cs[i][0]);
        __m512 b = _mm512_maskz_loadu_ps(n <= 16 ? 0 : first_lanes(n < 32 ? n - 16 : 16), &cs[i][0] + 16);
        __m512 c = _mm512_permutex2var_ps(a, even, b);
        __m512 s = _mm512_permutex2var_ps(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);
        __m512 x0 = _mm512_maskz_loadu_ps((__mmask16)m, x + i);
        __m512 x1 = _mm512_maskz_loadu_ps((__mmask16)m, x + n_pairs + i);
        _mm512_mask_storeu_ps(x + i, (__mmask16)m, _mm512_fmsub_ps(x0, c, _mm512_mul_ps(x1, s)));
        _mm512_mask_storeu_ps(x + n_pairs + i, (__mmask16)m, _mm512_fmadd_ps(x0, s, _mm512_mul_ps(x1, c)));
    }
}

/* The largest value that is not NaN, -inf when there is none: vmaxps takes its second operand when
 * either is NaN. */
static float largest(const float *x, int n)
{
    __m512 best = _mm512_set1_ps(-__builtin_inff());
    EACH_16(i, m, n) best = _mm512_max_ps(_mm512_mask_loadu_ps(best, (__mmask16)m, x + i), best);
    return _mm512_reduce_max_ps(best);
}

/* Two passes: the value, then the first place that has it (+0 and -0 are equal, as in the reference). */
static int argmax(const float *x, int n, void *scratch)
{
    (void)scratch;
    const __m512 best = _mm512_set1_ps(largest(x, n));
    EACH_16(i, m, n)
    {
        __m512 v = _mm512_maskz_loadu_ps((__mmask16)m, x + i);
        __mmask16 hit = _mm512_mask_cmp_ps_mask((__mmask16)m, v, best, _CMP_EQ_OQ);
        if (hit) return i + __builtin_ctz(hit);
    }
    return -1;
}

/* A NaN is no maximum but makes its own exponential, and so the sum, NaN. */
static float softmax_exp(const float *x, int n, float *y, void *scratch)
{
    (void)scratch;
    const __m512 max = _mm512_set1_ps(largest(x, n));
    __m512 sum = _mm512_setzero_ps();
    EACH_16(i, m, n)
    {
        __m512 e = exp_512(_mm512_sub_ps(_mm512_maskz_loadu_ps((__mmask16)m, x + i), max));
        sum = _mm512_mask_add_ps(sum, (__mmask16)m, sum, e);
        _mm512_mask_storeu_ps(y + i, (__mmask16)m, e);
    }
    return halving_sum(sum);
}

void avx512_init_small(struct kernels *k)
{
    k->rms_norm = rms_norm;
    k->add = add;
    k->add_scaled = add_scaled;
    k->scale = scale;
    k->act_mul[ACTIV_SILU] = act_mul_silu;
    k->act_mul[ACTIV_GELU] = act_mul_gelu;
    k->act_mul[ACTIV_RELU2] = act_mul_relu2;
    k->act_mul[ACTIV_SIGMOID] = act_mul_sigmoid;
    k->act_mul[ACTIV_CLAMPED] = act_mul_clamped;
    k->softcap = softcap;
    k->rope = rope;
    k->argmax = argmax;
    k->softmax_exp = softmax_exp;
}
