/* SPDX-License-Identifier: MIT
 *
 * delta.c: the gated delta rule, its convolution, gates and norms (docs/KERNELS.md section 5), AVX-512.
 *
 * 16 dims of a head go through all steps before the next 16 do, so that their state (8 KB of 128 keys) comes from
 * memory once and stays in the first cache. A step passes over it twice, keeping its key and query in registers: the
 * first pass only reads, the second decays, updates, stores and multiplies by the query. Sixteen products are summed at
 * once (halving_sum_16), which also makes one register of what the sixteen dims learn.
 */
#include <assert.h>

#include "kernel/avx512/avx512.h"
#include "kernel/avx512/math.h"
#include "kernel/ref/ref.h"

enum { DIMS = 16, PART = 8 }; /* dims together; registers of a key that are held at once */

/* s[j] += the products of n dims' states with n_parts registers of x, the parts ascending. */
ALWAYS_INLINE void read_dims(const float *m, int dk, int n, int n_parts, const float *x, __m512 *s)
{
    __m512 r[PART];
    for (int p = 0; p < n_parts; p++) r[p] = _mm512_loadu_ps(x + 16 * p);
    for (int j = 0; j < n; j++, m += dk) {
        __m512 sum = s[j];
#pragma GCC unroll 8
        for (int p = 0; p < n_parts; p++) sum = _mm512_fmadd_ps(_mm512_loadu_ps(m + 16 * p), r[p], sum);
        s[j] = sum;
    }
}

/* Brings n dims' states to the next step and multiplies them by the query; learn: one number a dim. */
ALWAYS_INLINE void update_dims(float *m, int dk, int n, int n_parts, const float *k, const float *q, __m512 decay,
                               const float *learn, size_t ahead, __m512 *s)
{
    __m512 rk[PART], rq[PART];
    for (int p = 0; p < n_parts; p++) {
        rk[p] = _mm512_loadu_ps(k + 16 * p);
        rq[p] = _mm512_loadu_ps(q + 16 * p);
    }
    for (int j = 0; j < n; j++, m += dk) {
        __m512 sum = s[j], e = _mm512_set1_ps(learn[j]);
#pragma GCC unroll 8
        for (int p = 0; p < n_parts; p++) {
            __m512 v = _mm512_fmadd_ps(rk[p], e, _mm512_mul_ps(decay, _mm512_loadu_ps(m + 16 * p)));
            _mm512_storeu_ps(m + 16 * p, v);
            sum = _mm512_fmadd_ps(v, rq[p], sum);
            if (ahead) _mm_prefetch((const char *)((uintptr_t)(m + 16 * p) + ahead), _MM_HINT_T0);
        }
        s[j] = sum;
    }
}

/* Lane j = the sum of s[j]; those from n on are nothing. */
ALWAYS_INLINE __m512 sums(const __m512 *s, int n)
{
    if (n == DIMS) return halving_sum_16(s);
    float v[DIMS] = {0};
    for (int j = 0; j < n; j++) v[j] = halving_sum(s[j]);
    return _mm512_loadu_ps(v);
}

/* All steps of n <= DIMS dims from j0 on. full: dk is PART registers. */
ALWAYS_INLINE void strip(const struct delta *d, int j0, int n, bool full)
{
    const int dk = full ? 16 * PART : d->dk;
    const __mmask16 mask = first_lanes(n);
    float *m = d->m + (size_t)j0 * (size_t)dk;
    /* The last step asks for the next strip. */
    const size_t next = j0 + n < d->n_dims ? sizeof(float) * (size_t)n * (size_t)dk : 0;
    for (int t = 0; t < d->n_rows; t++) {
        const float *k = d->k + (size_t)t * d->ld_qk, *q = d->q + (size_t)t * d->ld_qk;
        const __m512 decay = _mm512_set1_ps(d->decay[(size_t)t * d->ld_gate]);
        const __m512 beta = _mm512_set1_ps(d->beta[(size_t)t * d->ld_gate]);
        const size_t ahead = t + 1 == d->n_rows ? next : 0;
        __m512 s[DIMS];
        float learn[DIMS];
        for (int j = 0; j < n; j++) s[j] = _mm512_setzero_ps();
        for (int i = 0; i < dk; i += 16 * PART)
            read_dims(m + i, dk, n, full || dk - i >= 16 * PART ? PART : (dk - i) / 16, k + i, s);
        __m512 v = _mm512_maskz_loadu_ps(mask, d->v + (size_t)t * d->ld_v + j0);
        _mm512_storeu_ps(learn, _mm512_mul_ps(beta, _mm512_fnmadd_ps(decay, sums(s, n), v)));
        for (int j = 0; j < n; j++) s[j] = _mm512_setzero_ps();
        for (int i = 0; i < dk; i += 16 * PART)
            update_dims(m + i, dk, n, full || dk - i >= 16 * PART ? PART : (dk - i) / 16, k + i, q + i, decay, learn,
                        ahead, s);
        _mm512_mask_storeu_ps(d->o + (size_t)t * d->ld_o + j0, mask, sums(s, n));
    }
}

static void delta(const struct delta *d, void *scratch)
{
    if (d->dk % 16 != 0) {
        delta_ref(d, scratch);
        return;
    }
    int j = 0;
    if (d->dk == 16 * PART)
        for (; j + DIMS <= d->n_dims; j += DIMS) strip(d, j, DIMS, true);
    for (; j + DIMS <= d->n_dims; j += DIMS) strip(d, j, DIMS, false);
    if (j < d->n_dims) strip(d, j, d->n_dims - j, false);
}

/* The taps of 16 channels, stored channel by channel: lane = channel. Those of 4 are moved about in registers. */
ALWAYS_INLINE void load_taps(const struct conv *c, int ch, int n, __m512 *w)
{
    const float *from = c->w + (size_t)ch * (size_t)c->n_taps;
    if (c->n_taps == 4 && n == 16) {
        const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
        __m512 a = _mm512_loadu_ps(from), b = _mm512_loadu_ps(from + 16);
        __m512 e = _mm512_loadu_ps(from + 32), f = _mm512_loadu_ps(from + 48);
        __m512 low = _mm512_permutex2var_ps(a, even, b), high = _mm512_permutex2var_ps(e, even, f); /* taps 0, 2 */
        w[0] = _mm512_permutex2var_ps(low, even, high);
        w[2] = _mm512_permutex2var_ps(low, odd, high);
        low = _mm512_permutex2var_ps(a, odd, b), high = _mm512_permutex2var_ps(e, odd, f); /* taps 1, 3 */
        w[1] = _mm512_permutex2var_ps(low, even, high);
        w[3] = _mm512_permutex2var_ps(low, odd, high);
        return;
    }
    for (int i = 0; i < c->n_taps; i++) {
        float v[16] = {0};
        for (int l = 0; l < n; l++) v[l] = from[l * c->n_taps + i];
        w[i] = _mm512_loadu_ps(v);
    }
}

/* All rows of 16 channels, the window in registers. */
ALWAYS_INLINE void conv_channels(const struct conv *c, int taps, int ch, __mmask16 m, int n)
{
    __m512 w[CONV_MAX_TAPS], x[CONV_MAX_TAPS];
    load_taps(c, ch, n, w);
    for (int i = 0; i < taps - 1; i++) x[i] = _mm512_maskz_loadu_ps(m, c->state + (size_t)i * c->ld_state + ch);
    for (int t = 0; t < c->n_rows; t++) {
        __m512 u = _mm512_setzero_ps();
        x[taps - 1] = _mm512_maskz_loadu_ps(m, c->x + (size_t)t * c->ld_x + ch);
        for (int i = 0; i < taps; i++) u = _mm512_fmadd_ps(w[i], x[i], u);
        _mm512_mask_storeu_ps(c->y + (size_t)t * c->ld_y + ch, m, silu_512(u));
        for (int i = 0; i < taps - 1; i++) x[i] = x[i + 1];
    }
    for (int i = 0; i < taps - 1; i++) _mm512_mask_storeu_ps(c->state + (size_t)i * c->ld_state + ch, m, x[i]);
}

static void conv_silu(const struct conv *c, void *scratch)
{
    (void)scratch;
    assert(c->n_taps >= 2 && c->n_taps <= CONV_MAX_TAPS && c->n_rows >= 1);
    EACH_16(ch, m, c->n_channels)
    {
        int n = c->n_channels - ch < 16 ? c->n_channels - ch : 16;
        if (c->n_taps == 4)
            conv_channels(c, 4, ch, (__mmask16)m, n);
        else
            conv_channels(c, c->n_taps, ch, (__mmask16)m, n);
    }
}

static void delta_gates(const float *a, const float *b, const float *rate, const float *bias, int n, float *decay,
                        float *beta, void *scratch)
{
    (void)scratch;
    EACH_16(i, m, n)
    {
        __m512 x =
            _mm512_add_ps(_mm512_maskz_loadu_ps((__mmask16)m, a + i), _mm512_maskz_loadu_ps((__mmask16)m, bias + i));
        __m512 g = _mm512_mul_ps(_mm512_maskz_loadu_ps((__mmask16)m, rate + i), softplus_512(x));
        __m512 s = sigmoid_512(_mm512_maskz_loadu_ps((__mmask16)m, b + i));
        _mm512_mask_storeu_ps(decay + i, (__mmask16)m, exp_512(g));
        _mm512_mask_storeu_ps(beta + i, (__mmask16)m, s);
    }
}

static void l2_norm(const float *x, float eps, float scale, int n, float *y, void *scratch)
{
    (void)scratch;
    __m512 ss = _mm512_setzero_ps();
    EACH_16(i, m, n)
    {
        __m512 v = _mm512_maskz_loadu_ps((__mmask16)m, x + i);
        ss = _mm512_mask3_fmadd_ps(v, v, ss, (__mmask16)m);
    }
    const __m512 r = _mm512_set1_ps(scale / __builtin_sqrtf(halving_sum(ss) + eps));
    EACH_16(i, m, n)
    {
        _mm512_mask_storeu_ps(y + i, (__mmask16)m, _mm512_mul_ps(_mm512_maskz_loadu_ps((__mmask16)m, x + i), r));
    }
}

void avx512_init_delta(struct kernels *k)
{
    k->conv_silu = conv_silu;
    k->delta = delta;
    k->delta_gates = delta_gates;
    k->l2_norm = l2_norm;
}
