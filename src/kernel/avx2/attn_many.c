/* SPDX-License-Identifier: MIT
 *
 * attn_many.c: the inner loops of attention with many rows (prefill), AVX2. See attn.c.
 *
 * Both loops are 12 multiply-adds and 8 loads for 6 rows: 12 sums, two operands and a broadcast fill the registers, and
 * with fewer sums each product would wait for the one before it. Keys and values become f32 in scratch once for all
 * rows: a group of 16 keys, and 32 dims of half of a chunk's values, which stay in L1 together with the weights of a
 * block. Queries are copied side by side, so that all addresses are at constant distances from two pointers.
 */
#include "kernel/avx2/attn_work.h"
#include "kernel/avx2/math.h"

#define SUMS 16 /* dims whose sums are in registers: 12 of them for 6 rows */

/* Keeps v where it is: the compiler would rather load an operand again for each of its uses. */
#define IN_REGISTER(v) __asm__("" : "+x"(v))
/* sum += x * y in the register of the sum: the compiler would rather have it in a factor's, and move it back. */
#define ADD_PRODUCT(sum, x, y) __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(x), "x"(y))

/* Whether any of n rows sees one of the slots s .. s + 15 of the chunk. */
static bool is_seen(const struct work *w, int row, int n, int s)
{
    for (int r = row; r < row + n; r++)
        if (w->lo[r] < s + KV_GROUP && w->hi[r] > s) return true;
    return false;
}

void avx2_attn_look(const struct attn *a, struct work *w)
{
    for (int g = 0; g < GROUPS; g++) w->is_seen[g] = is_seen(w, 0, a->n_q, g * KV_GROUP);
    w->is_seen[GROUPS] = false;
}

/* ---- scores ---- */

void avx2_attn_pack(const struct attn *a, struct work *w)
{
    for (int row = 0; row < a->n_q; row += BLOCK) {
        float(*to)[BLOCK] = w->packed[row / BLOCK];
        const float *x[BLOCK];
        int i = 0;
        for (int q = 0; q < BLOCK; q++) x[q] = a->q[int_min(row + q, a->n_q - 1)]; /* the last row fills a block up */
        for (; i + 4 <= a->head_dim; i += 4) {
            __m128 v[4], lo = _mm_loadu_ps(x[4] + i), hi = _mm_loadu_ps(x[5] + i);
            for (int q = 0; q < 4; q++) v[q] = _mm_loadu_ps(x[q] + i);
            _MM_TRANSPOSE4_PS(v[0], v[1], v[2], v[3]);
            for (int d = 0; d < 4; d++) _mm_storeu_ps(to[i + d], v[d]);
            _mm_storel_pi((__m64 *)(to[i] + 4), _mm_unpacklo_ps(lo, hi));
            _mm_storeh_pi((__m64 *)(to[i + 1] + 4), _mm_unpacklo_ps(lo, hi));
            _mm_storel_pi((__m64 *)(to[i + 2] + 4), _mm_unpackhi_ps(lo, hi));
            _mm_storeh_pi((__m64 *)(to[i + 3] + 4), _mm_unpackhi_ps(lo, hi));
        }
        for (; i < a->head_dim; i++)
            for (int q = 0; q < BLOCK; q++) to[i][q] = x[q][i];
    }
}

/* The scores of nq rows and 16 keys k, to p; as many bytes from next on as the keys have are fetched, unless it is
 * NULL. x: the block's queries. */
VEC_INLINE void scores(int nq, const struct attn *a, const float *x, const float *k, const uint8_t *next,
                       size_t next_bytes, float *p)
{
    const __m256 scale = _mm256_set1_ps(a->scale), cap = _mm256_set1_ps(a->softcap);
    const __m256 inv = _mm256_set1_ps(1.0f / a->softcap);
    __m256 s[BLOCK][2];
#pragma GCC unroll 6
    for (int q = 0; q < nq; q++) s[q][0] = s[q][1] = _mm256_setzero_ps();
    for (int i = 0; i < a->head_dim; i += 2, x += 2 * BLOCK, k += 2 * KV_GROUP) {
        if (i % 8 == 0) fetch(next, next_bytes * (size_t)i, 8 * next_bytes);
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            __m256 lo = _mm256_loadu_ps(k + j * KV_GROUP), hi = _mm256_loadu_ps(k + j * KV_GROUP + 8);
#pragma GCC unroll 6
            for (int q = 0; q < nq; q++) {
                __m256 v = _mm256_set1_ps(x[j * BLOCK + q]);
                IN_REGISTER(v);
                ADD_PRODUCT(s[q][0], v, lo);
                ADD_PRODUCT(s[q][1], v, hi);
            }
        }
    }
#pragma GCC unroll 6
    for (int q = 0; q < nq; q++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256 v = _mm256_mul_ps(scale, s[q][h]);
            if (a->softcap != 0) v = _mm256_mul_ps(cap, math_tanh8(_mm256_mul_ps(v, inv)));
            _mm256_storeu_ps(p + q * LD_P + 8 * h, v);
        }
}

typedef void scores_fn(const struct attn *a, const float *x, const float *k, const uint8_t *next, size_t next_bytes,
                       float *p);
#define SCORES(N)                                                                                                      \
    static void scores_##N(const struct attn *a, const float *x, const float *k, const uint8_t *next,                  \
                           size_t next_bytes, float *p)                                                                \
    {                                                                                                                  \
        scores(N, a, x, k, next, next_bytes, p);                                                                       \
    }
SCORES(2)
SCORES(4)
SCORES(6)
static scores_fn *const scores_of[] = {scores_2, scores_4, scores_6}; /* for up to 2, 4, 6 rows */

/* A group of keys as f32: in place, or in w->keys. */
static const float *widen_keys(const struct attn *a, struct work *w, const uint8_t *group)
{
    if (a->type == KV_F32) return (const float *)group;
    for (int i = 0; i < a->head_dim; i++) {
        _mm256_storeu_ps(w->keys[i], _mm256_cvtph_ps(vec_load128(group + 32 * (size_t)i)));
        _mm256_storeu_ps(w->keys[i] + 8, _mm256_cvtph_ps(vec_load128(group + 32 * (size_t)i + 16)));
    }
    return w->keys[0];
}

void avx2_attn_scores(const struct attn *a, struct work *w, int c0)
{
    const size_t key_bytes = KV_GROUP * (a->type == KV_F32 ? 4 : 2); /* of a dim */
    for (int s = 0; s < ATTN_CHUNK; s += KV_GROUP) {
        if (!w->is_seen[s / KV_GROUP]) continue;
        const uint8_t *next = w->is_seen[s / KV_GROUP + 1] ? key_at(a, c0 + s + KV_GROUP) : NULL;
        const float *k = widen_keys(a, w, key_at(a, c0 + s));
        for (int row = 0; row < a->n_q; row += BLOCK) {
            const int n = int_min(BLOCK, a->n_q - row);
            if (!is_seen(w, row, n, s)) continue;
            scores_of[(n - 1) / 2](a, w->packed[row / BLOCK][0], k, next, key_bytes, w->p[row] + s);
            next = NULL;
        }
    }
}

/* ---- values ---- */

/* Dims i .. i + STRIP of the values of slots j0 .. j0 + HALF that any row sees, as f32 in w->values; zeros in the place
 * of dims that do not exist. */
VEC_INLINE void widen_type(enum kv_type t, const struct attn *a, struct work *w, int c0, int j0, int i)
{
    const size_t bytes = kv_value_bytes(t, a->head_dim_v);
    const int whole = int_min(a->head_dim_v - i, STRIP) / 8; /* registers */
    for (int s = 0; s < HALF; s += KV_GROUP) {
        if (!w->is_seen[(j0 + s) / KV_GROUP]) continue;
        const uint8_t *v = value_at(a, c0 + j0 + s);
        for (int j = 0; j < KV_GROUP; j++, v += bytes) {
            float *to = w->values[s + j];
            if (whole == STRIP / 8) {
#pragma GCC unroll 4
                for (int z = 0; z < STRIP; z += 8) _mm256_storeu_ps(to + z, load_values(t, v, i + z));
                continue;
            }
            for (int z = 0; z < STRIP; z += 8)
                _mm256_storeu_ps(to + z, z < 8 * whole ? load_values(t, v, i + z) : _mm256_setzero_ps());
            for (int d = 8 * whole; d < STRIP && i + d < a->head_dim_v; d++) to[d] = load_value(t, v, i + d);
        }
    }
}

static void widen_values(const struct attn *a, struct work *w, int c0, int j0, int i)
{
    if (a->type == KV_F32) widen_type(KV_F32, a, w, c0, j0, i);
    if (a->type == KV_F16) widen_type(KV_F16, a, w, c0, j0, i);
    if (a->type == KV_Q8_0) widen_type(KV_Q8_0, a, w, c0, j0, i);
}

/* o[q] += p[q][j] * v[j] for n slots and nq rows, SUMS dims of each. */
VEC_INLINE void weigh(int nq, const float *p, const float *v, int n, float *o)
{
    __m256 acc[BLOCK][2];
#pragma GCC unroll 6
    for (int q = 0; q < nq; q++) {
        acc[q][0] = _mm256_loadu_ps(o + q * ATTN_MAX_DIM);
        acc[q][1] = _mm256_loadu_ps(o + q * ATTN_MAX_DIM + 8);
    }
    for (int j = 0; j < n; j++, p++, v += STRIP) {
        __m256 lo = _mm256_loadu_ps(v), hi = _mm256_loadu_ps(v + 8);
#pragma GCC unroll 6
        for (int q = 0; q < nq; q++) {
            __m256 x = _mm256_set1_ps(p[q * LD_P]);
            IN_REGISTER(x);
            ADD_PRODUCT(acc[q][0], x, lo);
            ADD_PRODUCT(acc[q][1], x, hi);
        }
    }
#pragma GCC unroll 6
    for (int q = 0; q < nq; q++) {
        _mm256_storeu_ps(o + q * ATTN_MAX_DIM, acc[q][0]);
        _mm256_storeu_ps(o + q * ATTN_MAX_DIM + 8, acc[q][1]);
    }
}

typedef void weigh_fn(const float *p, const float *v, int n, float *o);
#define WEIGH(N)                                                                                                       \
    static void weigh_##N(const float *p, const float *v, int n, float *o) { weigh(N, p, v, n, o); }
WEIGH(1)
WEIGH(2)
WEIGH(4)
WEIGH(6)
static weigh_fn *const weigh_of[] = {weigh_2, weigh_4, weigh_6}; /* for up to 2, 4, 6 rows */

/* n slots from slot j on, the n_dims dims from i on that w->values has. */
static void weigh_dims(weigh_fn *f, struct work *w, int row, int j, int n, int i, int n_dims)
{
    for (int d = 0; d < n_dims && n > 0; d += SUMS)
        f(w->p[row] + j, w->values[j % HALF] + d, n, w->chunk.o[row] + i + d);
}

/* The slots j0 .. j1 of n rows that not all of them see: one that a row does not see leaves its sums alone. */
static void weigh_fringe(struct work *w, int row, int n, int j0, int j1, int i, int n_dims)
{
    for (int r = row; r < row + n; r++) {
        const int lo = int_max(w->lo[r], j0);
        weigh_dims(weigh_1, w, r, lo, int_min(w->hi[r], j1) - lo, i, n_dims);
    }
}

/* The slots j0 .. j1 of n rows: those that all of them see, and the fringes before and after, so that each row's slots
 * ascend. */
static void weigh_block(struct work *w, int row, int n, int j0, int j1, int i, int n_dims)
{
    int lo = j0, hi = j1;
    for (int r = row; r < row + n; r++) {
        lo = int_max(lo, w->lo[r]);
        hi = int_min(hi, w->hi[r]);
    }
    if (lo >= hi) lo = hi = j1; /* no slot that all see */
    weigh_fringe(w, row, n, j0, lo, i, n_dims);
    weigh_dims(weigh_of[(n - 1) / 2], w, row, lo, hi - lo, i, n_dims);
    weigh_fringe(w, row, n, hi, j1, i, n_dims);
}

void avx2_attn_values(const struct attn *a, struct work *w, int c0)
{
    const int n_rows = (a->n_q + BLOCK - 1) / BLOCK * BLOCK; /* repeated ones included */
    for (int r = 0; r < n_rows; r++) memset(w->chunk.o[r], 0, (size_t)a->head_dim_v * sizeof(float));
    for (int j = 0; j < ATTN_CHUNK; j += HALF)
        for (int i = 0; i < a->head_dim_v; i += STRIP) {
            widen_values(a, w, c0, j, i);
            for (int row = 0; row < a->n_q; row += BLOCK)
                weigh_block(w, row, int_min(BLOCK, a->n_q - row), j, j + HALF, i, int_min(STRIP, a->head_dim_v - i));
        }
}
