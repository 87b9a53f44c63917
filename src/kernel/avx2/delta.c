/* SPDX-License-Identifier: MIT
 *
 * delta.c: the gated delta rule, its convolution, gates and norms (docs/KERNELS.md section 5).
 *
 * A strip of a head's dims goes through all steps before the next strip does, so that its state comes from memory
 * once and stays in the first cache. A step passes over a dim's state twice: the first pass only reads, the second
 * decays, updates, stores and multiplies by the query. Two dims at a time share the loads of keys and queries.
 * Sizes that are no multiple of 16 are the reference's: padded lanes would turn a sum of -0 into 0.
 */
#include <assert.h>

#include "kernel/avx2/avx2.h"
#include "kernel/avx2/math.h"
#include "kernel/ref/ref.h"

enum { STRIP_BYTES = 8 << 10, PAIR = 2 };

/* s[j] = m[j] . x for n dims. */
VEC_INLINE void read_dims(const float *m, int dk, int n, const float *x, float *s)
{
    __m256 sum[PAIR][2];
    for (int j = 0; j < n; j++) sum[j][0] = sum[j][1] = _mm256_setzero_ps();
    for (int i = 0; i < dk; i += 16) {
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + 8);
        for (int j = 0; j < n; j++) {
            sum[j][0] = _mm256_fmadd_ps(_mm256_loadu_ps(m + j * dk + i), a, sum[j][0]);
            sum[j][1] = _mm256_fmadd_ps(_mm256_loadu_ps(m + j * dk + i + 8), b, sum[j][1]);
        }
    }
    for (int j = 0; j < n; j++) s[j] = vec_tree16(sum[j][0], sum[j][1]);
}

/* Brings n dims' states to the next step and multiplies them by the query. */
VEC_INLINE void update_dims(float *m, int dk, int n, const float *k, const float *q, float decay, const float *learn,
                            size_t ahead, float *o)
{
    const __m256 f = _mm256_set1_ps(decay);
    __m256 sum[PAIR][2], e[PAIR];
    for (int j = 0; j < n; j++) {
        sum[j][0] = sum[j][1] = _mm256_setzero_ps();
        e[j] = _mm256_set1_ps(learn[j]);
    }
    for (int i = 0; i < dk; i += 16)
        for (int j = 0; j < n; j++) {
            for (int h = 0; h < 2; h++) {
                float *p = m + j * dk + i + 8 * h;
                __m256 v = _mm256_mul_ps(f, _mm256_loadu_ps(p));
                v = _mm256_fmadd_ps(_mm256_loadu_ps(k + i + 8 * h), e[j], v);
                _mm256_storeu_ps(p, v);
                sum[j][h] = _mm256_fmadd_ps(v, _mm256_loadu_ps(q + i + 8 * h), sum[j][h]);
            }
            if (ahead) vec_prefetch_l1(m + j * dk + i, ahead);
        }
    for (int j = 0; j < n; j++) o[j] = vec_tree16(sum[j][0], sum[j][1]);
}

/* One step of n dims from j on. */
VEC_INLINE void step(const struct delta *d, int t, int j, int n, size_t ahead)
{
    float decay = d->decay[(size_t)t * d->ld_gate], beta = d->beta[(size_t)t * d->ld_gate], s[PAIR];
    const float *q = d->q + (size_t)t * d->ld_qk, *k = d->k + (size_t)t * d->ld_qk, *v = d->v + (size_t)t * d->ld_v;
    float *m = d->m + (size_t)j * (size_t)d->dk;
    read_dims(m, d->dk, n, k, s);
    for (int i = 0; i < n; i++) s[i] = beta * __builtin_fmaf(-decay, s[i], v[j + i]);
    update_dims(m, d->dk, n, k, q, decay, s, ahead, d->o + (size_t)t * d->ld_o + j);
}

static void delta_avx2(const struct delta *d, void *scratch)
{
    if (d->dk % 16 != 0) {
        delta_ref(d, scratch);
        return;
    }
    const size_t dim_bytes = sizeof(float) * (size_t)d->dk;
    int most = (int)(STRIP_BYTES / dim_bytes) & ~(PAIR - 1);
    if (most < PAIR) most = PAIR;
    for (int j0 = 0; j0 < d->n_dims; j0 += most) {
        int n = d->n_dims - j0 < most ? d->n_dims - j0 : most;
        for (int t = 0; t < d->n_rows; t++) {
            int j = 0;
            size_t ahead = t + 1 == d->n_rows && j0 + most < d->n_dims ? dim_bytes * (size_t)most : 0;
            for (; j + PAIR <= n; j += PAIR) step(d, t, j0 + j, PAIR, ahead);
            if (j < n) step(d, t, j0 + j, 1, ahead);
        }
    }
}

/* The taps of 8 channels, which are stored channel by channel, with lane = channel. */
VEC_INLINE void load_taps(const struct conv *c, int ch, int n, __m256 *w)
{
    const float *from = c->w + (size_t)ch * (size_t)c->n_taps;
    if (c->n_taps == 4 && n == 8) {
        __m256 a[4], b[4];
        for (int i = 0; i < 4; i++) /* channels i and i + 4 */
            a[i] = _mm256_set_m128(_mm_loadu_ps(from + 4 * (i + 4)), _mm_loadu_ps(from + 4 * i));
        b[0] = _mm256_unpacklo_ps(a[0], a[1]);
        b[1] = _mm256_unpackhi_ps(a[0], a[1]);
        b[2] = _mm256_unpacklo_ps(a[2], a[3]);
        b[3] = _mm256_unpackhi_ps(a[2], a[3]);
        w[0] = _mm256_shuffle_ps(b[0], b[2], 0x44);
        w[1] = _mm256_shuffle_ps(b[0], b[2], 0xee);
        w[2] = _mm256_shuffle_ps(b[1], b[3], 0x44);
        w[3] = _mm256_shuffle_ps(b[1], b[3], 0xee);
        return;
    }
    for (int i = 0; i < c->n_taps; i++) {
        float v[8] = {0};
        for (int l = 0; l < n; l++) v[l] = from[l * c->n_taps + i];
        w[i] = _mm256_loadu_ps(v);
    }
}

/* All rows of n <= 8 channels, the window in registers. */
VEC_INLINE void conv_channels(const struct conv *c, int taps, int ch, int n)
{
    __m256 w[CONV_MAX_TAPS], x[CONV_MAX_TAPS];
    load_taps(c, ch, n, w);
    for (int i = 0; i < taps - 1; i++) x[i] = vec_load_n(c->state + (size_t)i * c->ld_state + ch, n);
    for (int t = 0; t < c->n_rows; t++) {
        __m256 u = _mm256_setzero_ps();
        x[taps - 1] = vec_load_n(c->x + (size_t)t * c->ld_x + ch, n);
        for (int i = 0; i < taps; i++) u = _mm256_fmadd_ps(w[i], x[i], u);
        vec_store_n(c->y + (size_t)t * c->ld_y + ch, math_silu8(u), n);
        for (int i = 0; i < taps - 1; i++) x[i] = x[i + 1];
    }
    for (int i = 0; i < taps - 1; i++) vec_store_n(c->state + (size_t)i * c->ld_state + ch, x[i], n);
}

static void conv_silu_avx2(const struct conv *c, void *scratch)
{
    (void)scratch;
    assert(c->n_taps >= 2 && c->n_taps <= CONV_MAX_TAPS && c->n_rows >= 1);
    int ch = 0;
    for (; c->n_taps == 4 && ch + 8 <= c->n_channels; ch += 8) conv_channels(c, 4, ch, 8);
    for (; ch < c->n_channels; ch += 8)
        conv_channels(c, c->n_taps, ch, c->n_channels - ch < 8 ? c->n_channels - ch : 8);
}

static void delta_gates_avx2(const float *a, const float *b, const float *rate, const float *bias, int n, float *decay,
                             float *beta, void *scratch)
{
    (void)scratch;
    for (int i = 0; i < n; i += 8) {
        int m = n - i < 8 ? n - i : 8;
        __m256 x = math_softplus8(_mm256_add_ps(vec_load_n(a + i, m), vec_load_n(bias + i, m)));
        __m256 s = math_sigmoid8(vec_load_n(b + i, m));
        vec_store_n(decay + i, math_exp8(_mm256_mul_ps(vec_load_n(rate + i, m), x)), m);
        vec_store_n(beta + i, s, m);
    }
}

/* Padding the sum of squares with zeros is exact: no partial sum is -0. */
static void l2_norm_avx2(const float *x, float eps, float scale, int n, float *y, void *scratch)
{
    (void)scratch;
    __m256 lane[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int i = 0; i < n; i += 8) {
        __m256 v = vec_load_n(x + i, n - i < 8 ? n - i : 8);
        lane[i / 8 % 2] = _mm256_fmadd_ps(v, v, lane[i / 8 % 2]);
    }
    const __m256 r = _mm256_set1_ps(scale / __builtin_sqrtf(vec_tree16(lane[0], lane[1]) + eps));
    for (int i = 0; i < n; i += 8) {
        int m = n - i < 8 ? n - i : 8;
        vec_store_n(y + i, _mm256_mul_ps(vec_load_n(x + i, m), r), m);
    }
}

void avx2_init_delta(struct kernels *k)
{
    k->conv_silu = conv_silu_avx2;
    k->delta = delta_avx2;
    k->delta_gates = delta_gates_avx2;
    k->l2_norm = l2_norm_avx2;
}
