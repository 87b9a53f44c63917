/* SPDX-License-Identifier: MIT
 *
 * delta.c: the gated delta rule, its convolution and gates (docs/KERNELS.md section 5), AVX-512.
 *
 * 16 dims of a head, a strip, go through all steps before the next do, so that their state (8 KB of 128 keys) comes
 * from memory once and stays in the first cache. Two strips take turns: a step of one hides how long the sums of the
 * other take. While a step updates the state, it multiplies it by the query and by the next step's key, so the state is
 * read once a step. Sixteen products are summed at once (halving_sum_16), which also makes one register of what the
 * sixteen dims learn. Sizes other than 128 keys and whole strips take the plain way: a pass that reads, a pass that
 * updates.
 */
#include <assert.h>

#include "kernel/avx512/avx512.h"
#include "kernel/avx512/math.h"
#include "kernel/ref/ref.h"

enum { DIMS = 16, PART = 8 }; /* dims together; registers of a key that are held at once */
enum { ROWS_AHEAD = 12 }; /* rows of the convolution that are asked for ahead: they lie too far apart for hardware */

/* Asks for n registers from p + ahead on. */
ALWAYS_INLINE void fetch_later(const float *p, size_t ahead, int n)
{
    for (int i = 0; i < n; i++)
        _mm_prefetch((const char *)((uintptr_t)p + sizeof(float) * (ahead + 16 * (size_t)i)), _MM_HINT_T0);
}

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

/* All steps of n <= DIMS dims from j0 on, the plain way. */
static void strip(const struct delta *d, int j0, int n)
{
    const int dk = d->dk;
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
            read_dims(m + i, dk, n, dk - i >= 16 * PART ? PART : (dk - i) / 16, k + i, s);
        __m512 v = _mm512_maskz_loadu_ps(mask, d->v + (size_t)t * d->ld_v + j0);
        _mm512_storeu_ps(learn, _mm512_mul_ps(beta, _mm512_fnmadd_ps(decay, sums(s, n), v)));
        for (int j = 0; j < n; j++) s[j] = _mm512_setzero_ps();
        for (int i = 0; i < dk; i += 16 * PART)
            update_dims(m + i, dk, n, dk - i >= 16 * PART ? PART : (dk - i) / 16, k + i, q + i, decay, learn, ahead, s);
        _mm512_mask_storeu_ps(d->o + (size_t)t * d->ld_o + j0, mask, sums(s, n));
    }
}

/* Some strips of 128 keys, which take turns. */
struct turn {
    const struct delta *d;
    int j;                /* the first strip's first dim */
    float learn[2][DIMS]; /* what each dim adds to its state, times the key */
};

/* What strip s learns in step t, from its products with that step's key. */
ALWAYS_INLINE void learn_step(struct turn *u, int s, int t, __m512 product)
{
    const struct delta *d = u->d;
    const __m512 decay = _mm512_set1_ps(d->decay[(size_t)t * d->ld_gate]);
    const __m512 beta = _mm512_set1_ps(d->beta[(size_t)t * d->ld_gate]);
    __m512 v = _mm512_loadu_ps(d->v + (size_t)t * d->ld_v + u->j + DIMS * s);
    _mm512_storeu_ps(u->learn[s], _mm512_mul_ps(beta, _mm512_fnmadd_ps(decay, product, v)));
}

/* Step t of n strips. is_last: no next key; instead, the states `ahead` bytes on are asked for. */
ALWAYS_INLINE void turn_step(struct turn *u, int t, int n, bool is_last, size_t ahead)
{
    const struct delta *d = u->d;
    const float *k = d->k + (size_t)t * d->ld_qk, *q = d->q + (size_t)t * d->ld_qk;
    const float *next = is_last ? k : k + d->ld_qk;
    const __m512 decay = _mm512_set1_ps(d->decay[(size_t)t * d->ld_gate]);
    __m512 rk[PART], rq[PART], rn[PART], o[DIMS], p[DIMS];
    if (t + ROWS_AHEAD < d->n_rows) {
        fetch_later(d->v + (size_t)t * d->ld_v + u->j, ROWS_AHEAD * d->ld_v, n * DIMS / 16);
        fetch_later(k, ROWS_AHEAD * d->ld_qk, PART);
        fetch_later(q, ROWS_AHEAD * d->ld_qk, PART);
    }
    for (int i = 0; i < PART; i++) {
        rk[i] = _mm512_loadu_ps(k + 16 * i);
        rq[i] = _mm512_loadu_ps(q + 16 * i);
        rn[i] = _mm512_loadu_ps(next + 16 * i);
    }
    for (int s = 0; s < n; s++) {
        float *m = d->m + (size_t)(u->j + DIMS * s) * (16 * PART);
        for (int j = 0; j < DIMS; j++, m += 16 * PART) {
            const __m512 e = _mm512_set1_ps(u->learn[s][j]);
            __m512 by_query = _mm512_setzero_ps(), by_next = _mm512_setzero_ps();
#pragma GCC unroll 8
            for (int i = 0; i < PART; i++) {
                __m512 v = _mm512_fmadd_ps(rk[i], e, _mm512_mul_ps(decay, _mm512_loadu_ps(m + 16 * i)));
                _mm512_storeu_ps(m + 16 * i, v);
                by_query = _mm512_fmadd_ps(v, rq[i], by_query);
                if (!is_last) by_next = _mm512_fmadd_ps(v, rn[i], by_next);
                if (is_last && ahead) _mm_prefetch((const char *)((uintptr_t)(m + 16 * i) + ahead), _MM_HINT_T0);
            }
            o[j] = by_query;
            p[j] = by_next;
        }
        _mm512_storeu_ps(d->o + (size_t)t * d->ld_o + u->j + DIMS * s, halving_sum_16(o));
        if (!is_last) learn_step(u, s, t + 1, halving_sum_16(p));
    }
}

/* All steps of n whole strips of 128 keys from dim j on. */
static void strips(const struct delta *d, int j, int n)
{
    struct turn u = {.d = d, .j = j};
    /* The last step asks for the next strips. */
    const size_t ahead = j + DIMS * n < d->n_dims ? sizeof(float) * (size_t)(n * DIMS * 16 * PART) : 0;
    for (int s = 0; s < n; s++) {
        __m512 p[DIMS];
        for (int i = 0; i < DIMS; i++) p[i] = _mm512_setzero_ps();
        read_dims(d->m + (size_t)(j + DIMS * s) * (16 * PART), 16 * PART, DIMS, PART, d->k, p);
        learn_step(&u, s, 0, halving_sum_16(p));
    }
    for (int t = 0; t + 1 < d->n_rows; t++) turn_step(&u, t, n, false, 0);
    turn_step(&u, d->n_rows - 1, n, true, ahead);
}

static void delta(const struct delta *d, void *scratch)
{
    if (d->dk % 16 != 0) {
        delta_ref(d, scratch);
        return;
    }
    int j = 0;
    for (int n; d->dk == 16 * PART && j + DIMS <= d->n_dims; j += DIMS * n) {
        n = j + 2 * DIMS <= d->n_dims ? 2 : 1;
        strips(d, j, n);
    }
    for (int n; j < d->n_dims; j += n) {
        n = d->n_dims - j < DIMS ? d->n_dims - j : DIMS;
        strip(d, j, n);
    }
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

/* All rows of n_regs registers of channels, the window in registers; m: the last one's channels. */
ALWAYS_INLINE void conv_channels(const struct conv *c, int taps, int n_regs, int ch, __mmask16 m, int n)
{
    __m512 w[2][CONV_MAX_TAPS], x[2][CONV_MAX_TAPS];
    for (int r = 0; r < n_regs; r++) {
        load_taps(c, ch + 16 * r, n, w[r]);
        for (int i = 0; i < taps - 1; i++)
            x[r][i] = _mm512_maskz_loadu_ps(m, c->state + (size_t)i * c->ld_state + ch + 16 * r);
    }
    for (int t = 0; t < c->n_rows; t++) {
        const float *from = c->x + (size_t)t * c->ld_x + ch;
        float *to = c->y + (size_t)t * c->ld_y + ch;
        if (t + ROWS_AHEAD < c->n_rows) fetch_later(from, ROWS_AHEAD * c->ld_x, n_regs);
        for (int r = 0; r < n_regs; r++) {
            __m512 u = _mm512_setzero_ps();
            _mm_prefetch((const char *)((uintptr_t)(from + 16 * r) + ROWS_AHEAD * sizeof(float) * c->ld_x),
                         _MM_HINT_T0);
            x[r][taps - 1] = _mm512_maskz_loadu_ps(m, from + 16 * r);
            for (int i = 0; i < taps; i++) u = _mm512_fmadd_ps(w[r][i], x[r][i], u);
            _mm512_mask_storeu_ps(to + 16 * r, m, silu_512(u));
            for (int i = 0; i < taps - 1; i++) x[r][i] = x[r][i + 1];
        }
    }
    for (int r = 0; r < n_regs; r++)
        for (int i = 0; i < taps - 1; i++)
            _mm512_mask_storeu_ps(c->state + (size_t)i * c->ld_state + ch + 16 * r, m, x[r][i]);
}

static void conv_silu(const struct conv *c, void *scratch)
{
    (void)scratch;
    int ch = 0;
    assert(c->n_taps >= 2 && c->n_taps <= CONV_MAX_TAPS && c->n_rows >= 1);
    for (; c->n_taps == 4 && ch + 32 <= c->n_channels; ch += 32) conv_channels(c, 4, 2, ch, 0xffff, 16);
    for (int n; ch < c->n_channels; ch += n) {
        n = c->n_channels - ch < 16 ? c->n_channels - ch : 16;
        conv_channels(c, c->n_taps, 1, ch, first_lanes(n), n);
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

void avx512_init_delta(struct kernels *k)
{
    k->conv_silu = conv_silu;
    k->delta = delta;
    k->delta_gates = delta_gates;
}
