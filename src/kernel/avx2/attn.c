/* SPDX-License-Identifier: MIT
 *
 * attn.c: attention of the query rows of one KV head, 48 at a time (docs/KERNELS.md section 3).
 *
 * A chunk of 256 slots at a time, in three passes: scores (lanes = slots, 16 of which lie side by
 * side in the key area), the softmax of each row, and the weighted sum of values (lanes = dims).
 * Few rows go four together, so that a key or value is loaded and converted once for four; many go
 * through attn_many.c. Chunks are merged into running totals in scratch, in ascending order.
 *
 * Rows may see different slots. Scores are computed for whole groups of 16 and then masked; in
 * the value sums rows that go together share the slots that all of them see, and each does the rest alone,
 * because a slot that a row does not see must not even be multiplied by zero (it may hold NaN).
 */
#include <assert.h>

#include "kernel/avx2/attn_work.h"
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/math.h"

#define VALUE_RUN 32 /* slots whose values are summed before the next dims: they stay in L1 */
#define KEY_BYTES (2 * KV_GROUP + 32 * KV_GROUP) /* 32 dims of a group of Q8_0 keys */

/* ---- scores ---- */

/* Dot products of n rows with 16 keys, F32 or F16; as many bytes from next on are fetched, unless it is NULL. */
VEC_INLINE void dot_float(enum kv_type t, int n, const float *const *q, const uint8_t *group, const uint8_t *next,
                          int dim, __m256 (*s)[2])
{
    const size_t bytes = KV_GROUP * (t == KV_F32 ? 4 : 2);
    for (int r = 0; r < n; r++) s[r][0] = s[r][1] = _mm256_setzero_ps();
    for (int i = 0; i < dim; i++) {
        __m256 lo, hi;
        if (i % 8 == 0) fetch(next, bytes * (size_t)i, 8 * bytes);
        if (t == KV_F32) {
            lo = _mm256_loadu_ps((const float *)(group + 64 * (size_t)i));
            hi = _mm256_loadu_ps((const float *)(group + 64 * (size_t)i + 32));
        } else {
            lo = _mm256_cvtph_ps(vec_load128(group + 32 * (size_t)i));
            hi = _mm256_cvtph_ps(vec_load128(group + 32 * (size_t)i + 16));
        }
        for (int r = 0; r < n; r++) {
            __m256 v = _mm256_set1_ps(q[r][i]);
            s[r][0] = _mm256_fmadd_ps(v, lo, s[r][0]);
            s[r][1] = _mm256_fmadd_ps(v, hi, s[r][1]);
        }
    }
}

/* The same for Q8_0 keys; q and d are the n rows of struct work. */
VEC_INLINE void dot_q8(int n, int8_t (*q)[ATTN_MAX_DIM], float (*d)[MAX_BLOCKS], const uint8_t *group,
                       const uint8_t *next, int dim, __m256 (*s)[2])
{
    for (int r = 0; r < n; r++) s[r][0] = s[r][1] = _mm256_setzero_ps();
    for (int b = 0; 32 * b < dim; b++, group += KEY_BYTES) {
        fetch(next, (size_t)b * KEY_BYTES, KEY_BYTES);
        __m256i sum[ROWS][2];
        for (int r = 0; r < n; r++) sum[r][0] = sum[r][1] = _mm256_setzero_si256();
        for (int g = 0; g < 8; g++) { /* 4 dims of 16 keys */
            __m256i k[2] = {vec_load(group + 32 + 64 * g), vec_load(group + 64 + 64 * g)};
            __m256i mag[2] = {_mm256_abs_epi8(k[0]), _mm256_abs_epi8(k[1])};
            for (int r = 0; r < n; r++) { /* |k| * (q with the sign of k): |products| of two fit 16 bits */
                __m256i v = vec_splat32(q[r] + 32 * b + 4 * g);
                for (int h = 0; h < 2; h++) {
                    __m256i p = _mm256_maddubs_epi16(mag[h], _mm256_sign_epi8(v, k[h]));
                    sum[r][h] = _mm256_add_epi32(sum[r][h], _mm256_madd_epi16(p, _mm256_set1_epi16(1)));
                }
            }
        }
        for (int h = 0; h < 2; h++) {
            __m256 dk = _mm256_cvtph_ps(vec_load128(group + 16 * h));
            for (int r = 0; r < n; r++) {
                __m256 t = _mm256_mul_ps(dk, _mm256_cvtepi32_ps(sum[r][h]));
                s[r][h] = _mm256_fmadd_ps(_mm256_set1_ps(d[r][b]), t, s[r][h]);
            }
        }
    }
}

/* Scores of n rows from `row` on for the groups of 16 that hold slots lo .. hi - 1 of the chunk at c0. */
VEC_INLINE void scores(enum kv_type t, int n, const struct attn *a, struct work *w, int row, int c0, int lo, int hi)
{
    const __m256 scale = _mm256_set1_ps(a->scale), cap = _mm256_set1_ps(a->softcap);
    const __m256 inv = _mm256_set1_ps(1.0f / a->softcap);
    for (int slot = lo & ~(KV_GROUP - 1); slot < hi; slot += KV_GROUP) {
        const uint8_t *group = key_at(a, slot);
        const uint8_t *next = NULL;
        if (row == 0) next = slot + KV_GROUP < hi ? key_at(a, slot + KV_GROUP) : value_at(a, lo);
        __m256 s[ROWS][2];
        if (t == KV_Q8_0)
            dot_q8(n, w->q + row, w->d + row, group, next, a->head_dim, s);
        else
            dot_float(t, n, a->q + row, group, next, a->head_dim, s);
        for (int r = 0; r < n; r++)
            for (int h = 0; h < 2; h++) {
                __m256 v = _mm256_mul_ps(scale, s[r][h]);
                if (a->softcap != 0) v = _mm256_mul_ps(cap, math_tanh8(_mm256_mul_ps(v, inv)));
                _mm256_storeu_ps(w->p[row + r] + (slot - c0) + 8 * h, v);
            }
    }
}

/* ---- softmax ---- */

/* All ones in the lanes whose index from `first` on is in [lo, hi). */
VEC_INLINE __m256 lanes_between(int first, int lo, int hi)
{
    __m256i i = _mm256_add_epi32(_mm256_set1_epi32(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i in =
        _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(lo), i), _mm256_cmpgt_epi32(_mm256_set1_epi32(hi), i));
    return _mm256_castsi256_ps(in);
}

/* The lanes of v whose index from `first` on is in [lo, hi), and those of `rest` in the others' place. */
VEC_INLINE __m256 only_between(__m256 v, __m256 rest, int first, int lo, int hi)
{
    return first >= lo && first + 8 <= hi ? v : _mm256_blendv_ps(rest, v, lanes_between(first, lo, hi));
}

/* p[lo..hi) -> exp(p - m) in place; m their maximum, l the sum. Whole groups of 16 are rewritten, with zeros outside.
 */
static void softmax(float *p, int lo, int hi, float *m, float *l)
{
    const __m256 none = _mm256_set1_ps(-__builtin_inff()), zero = _mm256_setzero_ps();
    __m256 max[2] = {none, none}, lane[2] = {zero, zero};
    int first = lo & ~15, last = (hi + 15) & ~15;
    float v[8];
    for (int i = first; i < last; i += 16) /* max gives its second operand when either is NaN */
        for (int h = 0; h < 2; h++)
            max[h] = _mm256_max_ps(only_between(_mm256_loadu_ps(p + i + 8 * h), none, i + 8 * h, lo, hi), max[h]);
    _mm256_storeu_ps(v, _mm256_max_ps(max[0], max[1]));
    *m = v[0];
    for (int i = 1; i < 8; i++)
        if (v[i] > *m) *m = v[i];
    for (int i = first; i < last; i += 16)
        for (int h = 0; h < 2; h++) {
            __m256 e = math_exp8_negative(_mm256_sub_ps(_mm256_loadu_ps(p + i + 8 * h), _mm256_set1_ps(*m)));
            e = only_between(e, zero, i + 8 * h, lo, hi);
            _mm256_storeu_ps(p + i + 8 * h, e);
            lane[h] = _mm256_add_ps(lane[h], e); /* + 0 changes no sum of exponentials */
        }
    *l = vec_tree16(lane[0], lane[1]);
}

/* ---- values ---- */

/* One accumulator per dim and row, slots ascending, kept in registers over the run of slots:
 * o[r][i ... i + 8 * width) += sum over n slots of p[r][slot] * value. */
VEC_INLINE void values_dims(enum kv_type t, int n_rows, int width, const uint8_t *v, size_t ld_v, int n, int i,
                            const float *const *p, float *const *o)
{
    __m256 acc[ROWS][4];
    for (int r = 0; r < n_rows; r++)
        for (int h = 0; h < width; h++) acc[r][h] = _mm256_loadu_ps(o[r] + i + 8 * h);
    for (int j = 0; j < n; j++, v += ld_v) {
        __m256 x[4];
        for (int h = 0; h < width; h++) x[h] = load_values(t, v, i + 8 * h);
        for (int r = 0; r < n_rows; r++) {
            __m256 w = _mm256_set1_ps(p[r][j]);
            for (int h = 0; h < width; h++) acc[r][h] = _mm256_fmadd_ps(w, x[h], acc[r][h]);
        }
    }
    for (int r = 0; r < n_rows; r++)
        for (int h = 0; h < width; h++) _mm256_storeu_ps(o[r] + i + 8 * h, acc[r][h]);
}

/* All dims, n slots that lie in one page; as many bytes from next on are fetched. */
VEC_INLINE void values_run(enum kv_type t, int n_rows, const uint8_t *v, const uint8_t *next, size_t ld_v, int n,
                           int dim, const float *const *p, float *const *o)
{
    int width = n_rows <= 2 ? 4 : 2, i = 0; /* up to 8 sums in flight */
    size_t part = (size_t)n * ld_v * 8 * (size_t)width / (size_t)dim;
    for (; i + 8 * width <= dim; i += 8 * width) {
        fetch(next, part * (size_t)(i / (8 * width)), part);
        values_dims(t, n_rows, width, v, ld_v, n, i, p, o);
    }
    for (; i + 8 <= dim; i += 8) values_dims(t, n_rows, 1, v, ld_v, n, i, p, o);
    for (; i < dim; i++)
        for (int r = 0; r < n_rows; r++)
            for (int j = 0; j < n; j++)
                o[r][i] = __builtin_fmaf(p[r][j], load_value(t, v + (size_t)j * ld_v, i), o[r][i]);
}

/* n_rows rows from `row` on with slots lo .. hi - 1 of the chunk at c0, all of which they see. */
VEC_INLINE void values(enum kv_type t, int n_rows, const struct attn *a, struct work *w, int row, int c0, int lo,
                       int hi)
{
    size_t ld_v = kv_value_bytes(t, a->head_dim_v);
    if (lo >= hi) return;
    for (int slot = lo, n; slot < hi; slot += n) {
        int in_page = slot % a->page_slots;
        const float *p[ROWS];
        float *o[ROWS];
        n = int_min(int_min(hi - slot, VALUE_RUN), a->page_slots - in_page);
        for (int r = 0; r < n_rows; r++) {
            p[r] = w->p[row + r] + (slot - c0);
            o[r] = w->chunk.o[row + r];
        }
        const uint8_t *next = NULL;
        if (row == 0 && slot + n < hi) next = value_at(a, slot + n);
        if (row == 0 && slot + n >= hi && c0 + ATTN_CHUNK < a->hi[row]) next = key_at(a, c0 + ATTN_CHUNK);
        values_run(t, n_rows, value_at(a, slot), next, ld_v, n, a->head_dim_v, p, o);
    }
}

/* ---- chunks ---- */

typedef void part_fn(const struct attn *a, struct work *w, int row, int c0, int lo, int hi);

/* The scores and values of 1 to ROWS rows. */
#define PART(F, T, N)                                                                                                  \
    static void F##_##T##_##N(const struct attn *a, struct work *w, int row, int c0, int lo, int hi)                   \
    {                                                                                                                  \
        F(KV_##T, N, a, w, row, c0, lo, hi);                                                                           \
    }
#define PARTS(F, T) PART(F, T, 1) PART(F, T, 2) PART(F, T, 3) PART(F, T, 4)
PARTS(scores, F32)
PARTS(scores, F16)
PARTS(scores, Q8_0)
PARTS(values, F32)
PARTS(values, F16)
PARTS(values, Q8_0)
#define LIST(F, T)                                                                                                     \
    {                                                                                                                  \
        F##_##T##_1, F##_##T##_2, F##_##T##_3, F##_##T##_4                                                             \
    }
static part_fn *const scores_of[KV_N][ROWS] = {LIST(scores, F32), LIST(scores, F16), LIST(scores, Q8_0)};
static part_fn *const values_of[KV_N][ROWS] = {LIST(values, F32), LIST(values, F16), LIST(values, Q8_0)};

/* What n rows see of the chunk: any of them, and all of them. */
struct seen {
    int any_lo, any_hi, all_lo, all_hi;
};

static struct seen seen_of(const struct work *w, int row, int n)
{
    struct seen s = {ATTN_CHUNK, 0, 0, ATTN_CHUNK};
    for (int r = row; r < row + n; r++) {
        s.all_lo = int_max(s.all_lo, w->lo[r]);
        s.all_hi = int_min(s.all_hi, w->hi[r]);
        s.any_lo = int_min(s.any_lo, w->lo[r]);
        s.any_hi = int_max(s.any_hi, w->hi[r]);
    }
    return s;
}

/* Rows that all overlap have no gap between them: a page that no row sees is not touched. */
static bool are_together(struct seen s, int n) { return n > 1 && s.all_lo < s.all_hi; }

/* The scores of the chunk at c0 for n <= ROWS rows from `row` on. */
static void few_scores(const struct attn *a, struct work *w, int row, int n, int c0)
{
    part_fn *const *const score = scores_of[a->type];
    const struct seen s = seen_of(w, row, n);
    if (are_together(s, n)) score[n - 1](a, w, row, c0, c0 + s.any_lo, c0 + s.any_hi);
    for (int r = row; r < row + n && !are_together(s, n); r++)
        if (w->lo[r] < w->hi[r]) score[0](a, w, r, c0, c0 + w->lo[r], c0 + w->hi[r]);
}

/* Their weighted values, into w->chunk. */
static void few_values(const struct attn *a, struct work *w, int row, int n, int c0)
{
    part_fn *const *const weigh = values_of[a->type];
    const struct seen s = seen_of(w, row, n);
    const bool together = are_together(s, n);
    for (int r = row; r < row + n; r++) {
        memset(w->chunk.o[r], 0, (size_t)a->head_dim_v * sizeof(float));
        weigh[0](a, w, r, c0, c0 + w->lo[r], c0 + (together ? s.all_lo : w->hi[r]));
    }
    if (!together) return;
    weigh[n - 1](a, w, row, c0, c0 + s.all_lo, c0 + s.all_hi);
    for (int r = row; r < row + n; r++) weigh[0](a, w, r, c0, c0 + s.all_hi, c0 + w->hi[r]);
}

/* The chunk at c0 of all rows, into w->chunk; rows that see none of it are left out. */
static void chunk(const struct attn *a, struct work *w, int c0)
{
    const bool many = are_many(a);
    for (int r = 0; r < a->n_q; r++) {
        w->lo[r] = int_max(a->lo[r] - c0, 0);
        w->hi[r] = int_min(a->hi[r] - c0, ATTN_CHUNK);
        if (w->lo[r] >= w->hi[r]) w->lo[r] = w->hi[r] = 0;
    }
    if (many) avx2_attn_look(a, w);
    if (many && a->type != KV_Q8_0)
        avx2_attn_scores(a, w, c0);
    else
        for (int r = 0; r < a->n_q; r += ROWS) few_scores(a, w, r, int_min(ROWS, a->n_q - r), c0);
    for (int r = 0; r < a->n_q; r++)
        if (w->lo[r] < w->hi[r]) softmax(w->p[r], w->lo[r], w->hi[r], &w->chunk.m[r], &w->chunk.l[r]);
    if (many)
        avx2_attn_values(a, w, c0);
    else
        for (int r = 0; r < a->n_q; r += ROWS) few_values(a, w, r, int_min(ROWS, a->n_q - r), c0);
}

static float exp1(float x) { return _mm256_cvtss_f32(math_exp8(_mm256_set1_ps(x))); }

/* Scales the old sums, o = fma(o, f, c), or the chunk's, o = fma(c, f, o). */
static void merge_values(float *o, const float *c, float f, bool scale_old, int n)
{
    const __m256 v = _mm256_set1_ps(f);
    for (int i = 0; i < n; i += 8) { /* rows have room for a multiple of 8 */
        __m256 a = _mm256_loadu_ps(o + i), b = _mm256_loadu_ps(c + i);
        _mm256_storeu_ps(o + i, scale_old ? _mm256_fmadd_ps(a, v, b) : _mm256_fmadd_ps(b, v, a));
    }
}

/* A chunk's result (cm, cl, co) into the result (m, l, o). */
static void merge(float *m, float *l, float *o, float cm, float cl, const float *co, int n)
{
    const bool is_higher = cm > *m;
    float f = exp1(is_higher ? *m - cm : cm - *m);
    *l = is_higher ? __builtin_fmaf(*l, f, cl) : __builtin_fmaf(cl, f, *l);
    merge_values(o, co, f, is_higher, n);
    if (is_higher) *m = cm;
}

/* The chunk's result of one row into its total, or to where chunk i's result is wanted. */
static void keep(const struct attn *a, struct work *w, int row, int i, bool is_first)
{
    struct partials *t = &w->total, *c = &w->chunk;
    const size_t bytes = (size_t)a->head_dim_v * sizeof(float);
    if (a->ld_partial) {
        float *to = a->out[row] + (size_t)i * a->ld_partial;
        to[ATTN_PARTIAL_M] = c->m[row];
        to[ATTN_PARTIAL_L] = c->l[row];
        memcpy(to + ATTN_PARTIAL_O, c->o[row], bytes);
    } else if (is_first) {
        t->m[row] = c->m[row];
        t->l[row] = c->l[row];
        memcpy(t->o[row], c->o[row], bytes);
    } else {
        merge(&t->m[row], &t->l[row], t->o[row], c->m[row], c->l[row], c->o[row], a->head_dim_v);
    }
}

/* The sink (NULL: none), and the division. */
static void finish(float m, float l, float *o, const float *sink, float *out, int n)
{
    if (sink && *sink > m) {
        float f = exp1(m - *sink);
        l = __builtin_fmaf(l, f, 1.0f);
        for (int i = 0; i < n; i++) o[i] *= f;
    } else if (sink) {
        l = __builtin_fmaf(1.0f, exp1(*sink - m), l);
    }
    float r = 1.0f / l;
    for (int i = 0; i < n; i++) out[i] = o[i] * r;
}

static void attn_merge_avx2(const struct attn_merge *m, void *scratch)
{
    float *t = m->partial, *c = t;
    (void)scratch;
    for (int i = 1; i < m->n; i++) {
        c += m->ld_partial;
        merge(&t[ATTN_PARTIAL_M], &t[ATTN_PARTIAL_L], t + ATTN_PARTIAL_O, c[ATTN_PARTIAL_M], c[ATTN_PARTIAL_L],
              c + ATTN_PARTIAL_O, m->head_dim_v);
    }
    if (m->out) finish(t[ATTN_PARTIAL_M], t[ATTN_PARTIAL_L], t + ATTN_PARTIAL_O, m->sink, m->out, m->head_dim_v);
}

/* At most MAX_Q rows. */
static void attn_rows(const struct attn *a, struct work *w)
{
    int lo = a->lo[0], hi = a->hi[0];
    for (int r = 0; r < a->n_q; r++) {
        assert(a->lo[r] >= 0 && a->lo[r] < a->hi[r]);
        lo = int_min(lo, a->lo[r]);
        hi = int_max(hi, a->hi[r]);
        for (int b = 0; a->type == KV_Q8_0 && 32 * b < a->head_dim; b++) {
            float x[32] = {0};
            memcpy(x, a->q[r] + 32 * b, (size_t)int_min(32, a->head_dim - 32 * b) * sizeof *x);
            w->d[r][b] = avx2_quant32(x, w->q[r] + 32 * b);
        }
    }
    if (are_many(a) && a->type != KV_Q8_0) avx2_attn_pack(a, w);
    const int first = lo / ATTN_CHUNK * ATTN_CHUNK;
    for (int c0 = first; c0 < hi; c0 += ATTN_CHUNK) {
        chunk(a, w, c0);
        for (int r = 0; r < a->n_q; r++)
            if (w->lo[r] < w->hi[r]) keep(a, w, r, (c0 - first) / ATTN_CHUNK, a->lo[r] >= c0);
    }
    for (int r = 0; r < a->n_q && !a->ld_partial; r++)
        finish(w->total.m[r], w->total.l[r], w->total.o[r], a->sink ? &a->sink[r] : NULL, a->out[r], a->head_dim_v);
}

static void attn_avx2(const struct attn *a, void *scratch)
{
    assert(a->n_q >= 1 && a->n_q <= ATTN_MAX_Q && a->head_dim <= ATTN_MAX_DIM && a->head_dim_v <= ATTN_MAX_DIM);
    for (int q = 0; q < a->n_q; q += MAX_Q) {
        struct attn b = *a;
        b.n_q = int_min(MAX_Q, a->n_q - q);
        b.q += q;
        b.out += q;
        b.lo += q;
        b.hi += q;
        if (a->sink) b.sink += q;
        attn_rows(&b, scratch);
    }
}

void avx2_init_attn(struct kernels *k)
{
    k->attn = attn_avx2;
    k->attn_merge = attn_merge_avx2;
}
