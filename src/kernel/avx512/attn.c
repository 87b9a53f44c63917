/* SPDX-License-Identifier: MIT
 *
 * attn.c: attention of the query rows that share a KV head, AVX-512.
 *
 * Chunk by chunk of 256 slots (docs/KERNELS.md section 3), in three steps:
 *
 *   scores   lane = slot: keys lie [dim][16 slots], so an accumulator is 16 scores and the order over
 *            dims is the contract's. Slots that a row does not see are computed and then dropped.
 *   softmax  row by row, in place.
 *   values   lane = dim: o += p[j] * v[j], slots ascending, a few registers of dims at a time, which
 *            are merged into the output before the next. Slots that only some rows of a block see (the
 *            fringes of a causal mask) are added row by row: an unseen slot must not be touched, its
 *            memory may hold anything.
 *
 * Rows go in blocks of 12 (8, 4, 2, 1 where there are no more), a block that is not full repeating its last row. Few
 * rows (decode) read keys and values where they are, in the order in which they lie in memory, and fetch what they
 * will read next. For many (prefill), f16 keys are widened once for all, and attn_many.c does the rest.
 *
 * The outputs themselves hold the merged result so far.
 */
#include <assert.h>
#include <string.h>

#include "kernel/avx512/attn_work.h"
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/math.h"
#include "kernel/avx512/quant.h"

static float exp_scalar(float x) { return _mm512_cvtss_f32(exp_512(_mm512_set1_ps(x))); }

/* ---- scores ---- */

/* One dim of 16 keys as f32. */
ALWAYS_INLINE __m512 load_key(enum kv_type type, const uint8_t *key, int i)
{
    size_t at = (size_t)i * KV_GROUP;
    return type == KV_F32 ? _mm512_loadu_ps(key + 4 * at) : load_f16x16((const uint16_t *)(key + 2 * at));
}

/* s[q][g] += n dims' products with float keys, dim i on; n is constant and small, so that this is one run of
 * multiply-adds and loads: every other instruction would take their place on a port. */
ALWAYS_INLINE void dot_dims(enum kv_type type, int nq, const float *const *x, const uint8_t *const *key, int i, int n,
                            __m512 s[ROWS][2])
{
#pragma GCC unroll 4
    for (int j = 0; j < n; j++) {
        __m512 k[2];
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) k[g] = load_key(type, key[g], i + j);
#pragma GCC unroll 12
        for (int q = 0; q < nq; q++) {
            __m512 v = _mm512_set1_ps(x[q][i + j]);
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++) s[q][g] = _mm512_fmadd_ps(v, k[g], s[q][g]);
        }
    }
}

/* s[q][g] = 16 dot products with float keys. */
ALWAYS_INLINE void dot_float(enum kv_type type, int nq, const struct dots *t, __m512 s[ROWS][2])
{
    const float *x[ROWS];
    const int dim = t->a->head_dim;
    int i = 0;
#pragma GCC unroll 12
    for (int q = 0; q < nq; q++) {
        x[q] = t->a->q[t->row + int_min(q, t->n - 1)];
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) s[q][g] = _mm512_setzero_ps();
    }
    for (; i + 4 <= dim; i += 4) {
        fetch(t->next);
        dot_dims(type, nq, x, t->key, i, 4, s);
    }
    for (; i < dim; i++) dot_dims(type, nq, x, t->key, i, 1, s);
}

/* The same for Q8_0 keys and quantised queries: exact integers per 32 dims, then the contract's t and fma.
 * Key bytes are made unsigned by flipping their top bit (+128), which the start value takes out again. */
ALWAYS_INLINE void dot_q8(int nq, const struct dots *t, __m512 s[ROWS][2])
{
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    const struct work *w = t->w;
    const int n = (t->a->head_dim + 31) / 32;
    int row[ROWS];
#pragma GCC unroll 12
    for (int q = 0; q < nq; q++) {
        row[q] = t->row + int_min(q, t->n - 1);
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) s[q][g] = _mm512_setzero_ps();
    }
    for (int b = 0; b < n; b++) {
        const size_t at = (size_t)b * KEY_Q8_BYTES;
        __m512i sum[ROWS][2];
#pragma GCC unroll 12
        for (int q = 0; q < nq; q++)
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++) sum[q][g] = _mm512_set1_epi32(w->q8_start[row[q]][b]);
        for (int i = 0; i < 8; i++) {
            __m512i k[2];
            if (i % 4 == 0) fetch(t->next);
#pragma GCC unroll 2
            for (int g = 0; g < 2; g++)
                k[g] = _mm512_xor_si512(_mm512_loadu_si512(t->key[g] + at + 2 * KV_GROUP + 64 * i), flip);
#pragma GCC unroll 12
            for (int q = 0; q < nq; q++) {
                int32_t v;
                memcpy(&v, w->q8[row[q]] + 32 * b + 4 * i, 4);
#pragma GCC unroll 4
                for (int g = 0; g < 2; g++) sum[q][g] = _mm512_dpbusd_epi32(sum[q][g], k[g], _mm512_set1_epi32(v));
            }
        }
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) {
            __m512 d = load_f16x16((const uint16_t *)(t->key[g] + at));
#pragma GCC unroll 12
            for (int q = 0; q < nq; q++) {
                __m512 u = _mm512_mul_ps(d, _mm512_cvtepi32_ps(sum[q][g]));
                s[q][g] = _mm512_fmadd_ps(_mm512_set1_ps(w->q8_d[row[q]][b]), u, s[q][g]);
            }
        }
    }
}

/* Scores to p; rows that are repeated get theirs too, so that nothing undefined is multiplied later. */
ALWAYS_INLINE void scores(enum kv_type type, int nq, const struct dots *t)
{
    const __m512 scale = _mm512_set1_ps(t->a->scale);
    __m512 s[ROWS][2];
    float *p[2];
    if (type == KV_Q8_0)
        dot_q8(nq, t, s);
    else
        dot_float(type, nq, t, s);
#pragma GCC unroll 2
    for (int g = 0; g < 2; g++) p[g] = t->w->p[t->row] + KV_GROUP * int_min(t->g0 + g, t->g1 - 1);
#pragma GCC unroll 12
    for (int q = 0; q < nq; q++)
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) _mm512_store_ps(p[g] + q * ATTN_CHUNK, _mm512_mul_ps(scale, s[q][g]));
}

/* ---- softmax ---- */

static void softcap(float *p, int lo, int hi, float cap)
{
    const __m512 inv = _mm512_set1_ps(1.0f / cap);
    for (int i = lo / 16 * 16; i < hi; i += 16)
        _mm512_store_ps(p + i, _mm512_mul_ps(_mm512_set1_ps(cap), tanh_512(_mm512_mul_ps(_mm512_load_ps(p + i), inv))));
}

/* Lanes of the slots [lo, hi) in group g of the chunk. A chunk starts at a multiple of 16, so a register's
 * lane is the contract's lane (slot mod 16). */
ALWAYS_INLINE __mmask16 lanes_in(int lo, int hi, int g)
{
    return (__mmask16)(first_lanes(int_min(hi - 16 * g, 16)) & ~first_lanes(int_max(lo - 16 * g, 0)));
}

/* The groups of slots [lo, hi), which are not empty: all lanes of those between the first and the last one are in. */
struct span {
    int first, last;
    __mmask16 in_first, in_last;
};

static struct span span_of(int lo, int hi)
{
    int first = lo / KV_GROUP, last = (hi - 1) / KV_GROUP;
    return (struct span){first, last, lanes_in(lo, hi, first), lanes_in(lo, hi, last)};
}

/* The largest score of slots [lo, hi). max gives its second operand where either is NaN: a NaN is no maximum. */
static float row_max(const float *p, int lo, int hi)
{
    const struct span s = span_of(lo, hi);
    __m512 m = _mm512_set1_ps(-__builtin_inff());
    m = _mm512_mask_max_ps(m, s.in_first, _mm512_load_ps(p + 16 * s.first), m);
    for (int g = s.first + 1; g < s.last; g++) m = _mm512_max_ps(_mm512_load_ps(p + 16 * g), m);
    if (s.first < s.last) m = _mm512_mask_max_ps(m, s.in_last, _mm512_load_ps(p + 16 * s.last), m);
    return _mm512_reduce_max_ps(m);
}

/* 16 scores to exponentials; returns l with those of the lanes added. */
ALWAYS_INLINE __m512 group_exp(float *p, __m512 max, __mmask16 lanes, __m512 l)
{
    __m512 e = exp_512_not_above_0(_mm512_sub_ps(_mm512_load_ps(p), max));
    _mm512_store_ps(p, e);
    return lanes == 0xffff ? _mm512_add_ps(l, e) : _mm512_mask_add_ps(l, lanes, l, e);
}

/* Scores of slots [lo, hi) to exponentials; returns their sum. Outside stays rubbish. */
static float row_exp(float *p, int lo, int hi, float max)
{
    const struct span s = span_of(lo, hi);
    const __m512 m = _mm512_set1_ps(max);
    __m512 l = group_exp(p + 16 * s.first, m, s.in_first, _mm512_setzero_ps());
    for (int g = s.first + 1; g < s.last; g++) l = group_exp(p + 16 * g, m, 0xffff, l);
    if (s.first < s.last) l = group_exp(p + 16 * s.last, m, s.in_last, l);
    return halving_sum(l);
}

/* How 16 rows' chunks are to be merged: all but the values. */
static void join_rows(struct work *w, int row, int n)
{
    __mmask16 seen = 0, started = 0;
    for (int q = 0; q < n; q++) {
        seen |= (__mmask16)((w->lo[row + q] < w->hi[row + q]) << q);
        started |= (__mmask16)(w->started[row + q] << q);
    }
    __m512 m = _mm512_load_ps(w->m + row), l = _mm512_load_ps(w->l + row);
    __m512 cm = _mm512_load_ps(w->chunk_m + row), cl = _mm512_load_ps(w->chunk_l + row);
    __mmask16 higher = _mm512_cmp_ps_mask(cm, m, _CMP_GT_OQ) & started, first = (__mmask16)~started;
    __m512 f = exp_512(_mm512_sub_ps(_mm512_mask_mov_ps(cm, higher, m), _mm512_mask_mov_ps(m, higher, cm)));
    _mm512_store_ps(w->factor + row, f);
    __m512 sum = _mm512_fmadd_ps(_mm512_mask_mov_ps(cl, higher, l), f, _mm512_mask_mov_ps(l, higher, cl));
    _mm512_mask_store_ps(w->l + row, seen, _mm512_mask_mov_ps(sum, first, cl));
    _mm512_mask_store_ps(w->m + row, seen & (higher | first), cm);
    for (int q = 0; q < n; q++) {
        w->join[row + q] = first >> q & 1 ? JOIN_FIRST : higher >> q & 1 ? JOIN_HIGHER : JOIN_LOWER;
        w->started[row + q] |= seen >> q & 1;
    }
}

/* All maxima, then all exponentials: what a row waits for, the next row's work hides. */
static void chunk_softmax(const struct attn *a, struct work *w)
{
    for (int q = 0; q < a->n_q; q++) {
        if (w->lo[q] == w->hi[q]) continue;
        if (a->softcap != 0) softcap(w->p[q], w->lo[q], w->hi[q], a->softcap);
        w->chunk_m[q] = row_max(w->p[q], w->lo[q], w->hi[q]);
    }
    for (int q = 0; q < a->n_q; q++)
        if (w->lo[q] < w->hi[q]) w->chunk_l[q] = row_exp(w->p[q], w->lo[q], w->hi[q], w->chunk_m[q]);
    for (int q = 0; q < a->n_q; q += 16) join_rows(w, q, int_min(16, a->n_q - q));
}

/* ---- values ---- */

/* Slots times the dims in hand, which are n registers; beyond n the last is repeated. */
struct row_weights {
    struct work *w;
    const uint8_t *const *value; /* each group's first slot */
    size_t value_bytes;
    int z, n;       /* the first register's place in a value, and in the sums */
    __mmask16 last; /* lanes of the last register */
    struct next *next;
};

/* acc += n slots' values times their weights; n is constant, as in dot_dims(). */
ALWAYS_INLINE void weigh_slots(enum kv_type type, int nq, int nz, const float *p, const uint8_t *slot, size_t ld, int n,
                               const int *reg, const __mmask16 *mask, const float *const *d, __m512 acc[ROWS][4])
{
#pragma GCC unroll 4
    for (int j = 0; j < n; j++) {
        __m512 v[4];
#pragma GCC unroll 4
        for (int z = 0; z < nz; z++) {
            const uint8_t *at = slot + (size_t)j * ld;
            v[z] = type == KV_Q8_0 ? _mm512_mul_ps(_mm512_set1_ps(d[z][j]), load_quants(at, reg[z]))
                                   : load_value(type, at, reg[z], mask[z]);
        }
#pragma GCC unroll 12
        for (int q = 0; q < nq; q++) {
            __m512 x = _mm512_set1_ps(p[q * ATTN_CHUNK + j]);
#pragma GCC unroll 4
            for (int z = 0; z < nz; z++) acc[q][z] = _mm512_fmadd_ps(x, v[z], acc[q][z]);
        }
    }
}

/* w->o[at + q] += p[row + q][j] * v[j] for the slots j0 <= j < j1 of the chunk. */
ALWAYS_INLINE void weigh(enum kv_type type, int nq, int nz, const struct row_weights *t, int row, int at, int j0,
                         int j1)
{
    float(*o)[ATTN_MAX_DIM] = t->w->o + at;
    const int o0 = 16 * t->z;
    __m512 acc[ROWS][4];
    __mmask16 mask[4];
    int reg[4];
#pragma GCC unroll 4
    for (int z = 0; z < nz; z++) {
        reg[z] = t->z + int_min(z, t->n - 1);
        mask[z] = z < t->n - 1 ? 0xffff : t->last;
#pragma GCC unroll 12
        for (int q = 0; q < nq; q++) acc[q][z] = _mm512_load_ps(o[q] + o0 + 16 * z);
    }
    for (int j = j0, end; j < j1; j = end) {
        const uint8_t *slot = t->value[j / KV_GROUP] + (size_t)(j % KV_GROUP) * t->value_bytes;
        const float *p = t->w->p[row] + j;
        const float *d[4];
#pragma GCC unroll 4
        for (int z = 0; z < nz; z++) d[z] = t->w->wide.scales[int_min(z, t->n - 1) / 2] + j;
        end = int_min(j1, (j / KV_GROUP + 1) * KV_GROUP);
        if (end - j == KV_GROUP) {
            for (int i = 0; i < KV_GROUP; i += 4, slot += 4 * t->value_bytes) {
                fetch(t->next);
                weigh_slots(type, nq, nz, p + i, slot, t->value_bytes, 4, reg, mask, d, acc);
#pragma GCC unroll 4
                for (int z = 0; z < nz; z++) d[z] += 4;
            }
        } else {
            for (int i = 0; i < end - j; i++, slot += t->value_bytes) {
                weigh_slots(type, nq, nz, p + i, slot, t->value_bytes, 1, reg, mask, d, acc);
#pragma GCC unroll 4
                for (int z = 0; z < nz; z++) d[z]++;
            }
        }
    }
#pragma GCC unroll 12
    for (int q = 0; q < nq; q++)
#pragma GCC unroll 4
        for (int z = 0; z < nz; z++)
            if (z < t->n) _mm512_store_ps(o[q] + o0 + 16 * z, acc[q][z]);
}

/* ---- shapes ---- */

/* How many rows go with how many groups of keys or registers of a value: 16 chains or more if there are enough rows. */
struct shape {
    int n; /* registers */
    void (*scores)(const struct dots *t);
    void (*weigh)(const struct row_weights *t, int row, int at, int j0, int j1);
};

#define SCORES(NAME, TYPE, ROWS_, REGS_)                                                                               \
    static void scores_##NAME(const struct dots *t) { scores(TYPE, ROWS_, t); }
#define WEIGH(NAME, TYPE, ROWS_, REGS_)                                                                                \
    static void weigh_##NAME(const struct row_weights *t, int row, int at, int j0, int j1)                             \
    {                                                                                                                  \
        weigh(TYPE, ROWS_, REGS_, t, row, at, j0, j1);                                                                 \
    }
#define SHAPES(X)                                                                                                      \
    X(f32_1, KV_F32, 1, 4)                                                                                             \
    X(f32_2, KV_F32, 2, 4)                                                                                             \
    X(f32_4, KV_F32, 4, 4)                                                                                             \
    X(f32_8, KV_F32, 8, 2)                                                                                             \
    X(f32_12, KV_F32, 12, 2)                                                                                           \
    X(f16_1, KV_F16, 1, 4)                                                                                             \
    X(f16_2, KV_F16, 2, 4)                                                                                             \
    X(f16_4, KV_F16, 4, 4)                                                                                             \
    X(f16_8, KV_F16, 8, 2)                                                                                             \
    X(f16_12, KV_F16, 12, 2)                                                                                           \
    X(q8_1, KV_Q8_0, 1, 4)                                                                                             \
    X(q8_2, KV_Q8_0, 2, 4)                                                                                             \
    X(q8_4, KV_Q8_0, 4, 4)                                                                                             \
    X(q8_8, KV_Q8_0, 8, 2)
SHAPES(SCORES)
SHAPES(WEIGH)
WEIGH(q8_12, KV_Q8_0, 12, 2)

/* Integer sums next to scores take twice the registers: twelve rows are eight, then four. */
static void scores_q8_12(const struct dots *t)
{
    struct dots rest = *t;
    scores_q8_8(t);
    rest.row += 8;
    rest.n -= 8;
    scores_q8_4(&rest);
}

#define SHAPE(NAME, N)                                                                                                 \
    {                                                                                                                  \
        N, scores_##NAME, weigh_##NAME                                                                                 \
    }

/* The shape that takes n of n_q rows: the smallest, but shapes of one call have the same groups and registers. */
static const struct shape *shape_for(enum kv_type type, int n, int n_q)
{
    static const struct shape of[KV_N][5] = {
        {SHAPE(f32_1, 4), SHAPE(f32_2, 4), SHAPE(f32_4, 4), SHAPE(f32_8, 2), SHAPE(f32_12, 2)},
        {SHAPE(f16_1, 4), SHAPE(f16_2, 4), SHAPE(f16_4, 4), SHAPE(f16_8, 2), SHAPE(f16_12, 2)},
        {SHAPE(q8_1, 4), SHAPE(q8_2, 4), SHAPE(q8_4, 4), SHAPE(q8_8, 2), SHAPE(q8_12, 2)},
    };
    return &of[type][n > 8 ? 4 : n_q > 4 ? 3 : n > 2 ? 2 : n - 1];
}

/* ---- one chunk ---- */

/* Two groups of f16 keys, as f32 in w->wide. */
static void widen_keys(const struct attn *a, struct work *w, const uint8_t *const *key)
{
    for (int i = 0; i < a->head_dim; i += 2)
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++)
            _mm512_store_ps(w->wide.keys[k / 2][i + k % 2], load_key(KV_F16, key[k / 2], i + k % 2));
}

/* The scales of registers z .. z + n of all Q8_0 values, in w->wide: one conversion for 16 slots, not one for each. */
static void widen_scales(const struct chunk *c, struct work *w, int z, int n, int g0, int g1)
{
    for (int b = 0; 2 * b < n; b++)
        for (int g = g0; g < g1; g++) {
            const uint8_t *v = c->value[g] + 34 * (z / 2 + b);
            uint16_t h[KV_GROUP];
            for (int j = 0; j < KV_GROUP; j++, v += c->value_bytes) memcpy(h + j, v, 2);
            _mm512_store_ps(w->wide.scales[b] + KV_GROUP * g, load_f16x16(h));
        }
}

/* The scores of all rows, two groups of keys after the other. Few rows fetch the next two meanwhile, many the values
 * of the same slots. */
static void chunk_scores(const struct attn *a, struct work *w, const struct chunk *c)
{
    const bool widen = a->type == KV_F16 && is_many(a);
    const enum kv_type type = widen ? KV_F32 : a->type;
    const bool is_packed = avx512_attn_packs(a);
    const int n_steps = type == KV_Q8_0 ? (a->head_dim + 31) / 32 * 2 : int_max(a->head_dim / 4, 1);
    for (int g = c->g0; g < c->g1; g += 2) {
        const int last = int_min(g + 2, c->g1) - 1, n_more = int_min(c->g1 - g - 2, 2);
        struct next next;
        if (a->n_q > ROWS)
            next = next_of(c->value + g, last + 1 - g, KV_GROUP * c->value_bytes, n_steps);
        else if (n_more > 0)
            next = next_of(c->key + g + 2, n_more, c->key_bytes, n_steps);
        else
            next = next_of(c->value + c->g0, int_min(c->g1 - c->g0, 2), KV_GROUP * c->value_bytes, n_steps);
        struct dots t = {.a = a, .w = w, .g0 = g, .g1 = last + 1, .key = {c->key[g], c->key[last]}, .next = &next};
        if (widen) {
            widen_keys(a, w, t.key);
            for (int i = 0; i < 2; i++) t.key[i] = (const uint8_t *)w->wide.keys[i];
        }
        for (int b = 0; b < c->n_blocks; b++) {
            const struct block *k = &c->block[b];
            if (k->lo >= KV_GROUP * (last + 1) || k->hi <= KV_GROUP * g) continue;
            t.row = k->row;
            t.n = k->n;
            t.packed = w->packed[b];
            if (is_packed)
                avx512_attn_scores(&t);
            else
                shape_for(type, k->n, a->n_q)->scores(&t);
        }
    }
}

/* The dims in hand of one block, slots j0 .. j1 of the chunk: what all of its rows see together, the slots before and
 * after row by row, so that each row's ascend. */
static void weigh_block(const struct attn *a, enum kv_type type, const struct row_weights *t, const struct block *k,
                        int j0, int j1)
{
    const struct shape *s = shape_for(type, k->n, a->n_q), *one = shape_for(type, 1, 1);
    const struct work *w = t->w;
    const int all_lo = int_max(k->all_lo, j0), all_hi = int_min(k->all_hi, j1);
    const bool alike = k->lo == k->all_lo && k->hi == k->all_hi;
    for (int q = 0; q < k->n && !alike; q++) {
        int lo = int_max(w->lo[k->row + q], j0), hi = int_min(int_min(w->hi[k->row + q], k->all_lo), j1);
        if (lo < hi) one->weigh(t, k->row + q, q, lo, hi);
    }
    if (all_lo < all_hi) s->weigh(t, k->row, 0, all_lo, all_hi);
    for (int q = 0; q < k->n && !alike; q++) {
        int lo = int_max(int_max(w->lo[k->row + q], k->all_hi), j0), hi = int_min(w->hi[k->row + q], j1);
        if (lo < hi) one->weigh(t, k->row + q, q, lo, hi);
    }
}

void avx512_attn_join(const struct attn *a, const struct work *w, const struct block *k, const float *sums, size_t ld,
                      int z, int n)
{
    const __mmask16 last = first_lanes(int_min(a->head_dim_v - 16 * (z + n - 1), 16));
    for (int q = 0; q < k->n; q++, sums += ld) {
        const int row = k->row + q;
        const __m512 f = _mm512_set1_ps(w->factor[row]);
        float *to = a->out[row] + w->out_at + 16 * z;
        if (w->lo[row] == w->hi[row]) continue;
        for (int i = 0; i < n; i++) {
            const __mmask16 m = i < n - 1 ? 0xffff : last;
            __m512 v = _mm512_load_ps(sums + 16 * i);
            if (w->join[row] == JOIN_HIGHER)
                v = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(m, to + 16 * i), f, v);
            else if (w->join[row] == JOIN_LOWER)
                v = _mm512_fmadd_ps(v, f, _mm512_maskz_loadu_ps(m, to + 16 * i));
            _mm512_mask_storeu_ps(to + 16 * i, m, v);
        }
    }
}

/* Zeros for n registers of all sums: those of repeated rows, too. */
static void clear_sums(struct work *w, int n)
{
    for (int q = 0; q < ROWS; q++)
        for (int i = 0; i < n; i++) _mm512_store_ps(w->o[q] + 16 * i, _mm512_setzero_ps());
}

/* Registers z .. z + n of the values of chunk c, or as many of them as there are. */
static struct row_weights weights_at(const struct attn *a, struct work *w, const struct chunk *c, int z, int n)
{
    const int n_regs = (a->head_dim_v + 15) / 16, dims = a->head_dim_v - 16 * z;
    const __mmask16 last = z + n < n_regs ? 0xffff : first_lanes(a->head_dim_v - 16 * (n_regs - 1));
    return (struct row_weights){.w = w,
                                .value = c->value,
                                .value_bytes = c->value_bytes,
                                .z = z,
                                .n = int_min(n, (dims + 15) / 16),
                                .last = last};
}

/* The same for one block of rows, two groups of slots after the other, so that memory is read in its order; the next
 * two are fetched meanwhile. */
static void chunk_values_few(const struct attn *a, struct work *w, const struct chunk *c)
{
    const struct block *k = &c->block[0];
    const int n_regs = (a->head_dim_v + 15) / 16;
    const struct shape *s = shape_for(a->type, k->n, a->n_q);
    const int n_steps = (n_regs + s->n - 1) / s->n * (2 * KV_GROUP / 4);
    clear_sums(w, n_regs);
    for (int g = c->g0; g < c->g1; g += 2) {
        struct next next;
        if (g + 2 < c->g1)
            next = next_of(c->value + g + 2, int_min(c->g1 - g - 2, 2), KV_GROUP * c->value_bytes, n_steps);
        else
            next = next_of(c->next_key, int_min(c->n_next, 2), c->key_bytes, n_steps);
        for (int z = 0; z < n_regs; z += s->n) {
            struct row_weights t = weights_at(a, w, c, z, s->n);
            t.next = &next;
            if (a->type == KV_Q8_0) widen_scales(c, w, z, t.n, g, int_min(g + 2, c->g1));
            weigh_block(a, a->type, &t, k, KV_GROUP * g, KV_GROUP * (g + 2));
        }
    }
    avx512_attn_join(a, w, k, w->o[0], ATTN_MAX_DIM, 0, n_regs);
}

/* Which slots of the chunk at `start` the rows see, and those that the rows of a block see together. */
static void survey(const struct attn *a, struct work *w, struct chunk *c, int start)
{
    int lo = ATTN_CHUNK, hi = 0;
    c->n_blocks = 0;
    for (int row = 0; row < a->n_q; row += ROWS) {
        struct block k = {row, int_min(ROWS, a->n_q - row), ATTN_CHUNK, 0, 0, ATTN_CHUNK};
        for (int q = row; q < row + k.n; q++) {
            w->lo[q] = int_max(a->lo[q] - start, 0);
            w->hi[q] = int_min(a->hi[q] - start, ATTN_CHUNK);
            if (w->lo[q] >= w->hi[q]) {
                w->lo[q] = w->hi[q] = k.all_hi = 0;
                continue;
            }
            k.lo = int_min(k.lo, w->lo[q]);
            k.hi = int_max(k.hi, w->hi[q]);
            k.all_lo = int_max(k.all_lo, w->lo[q]);
            k.all_hi = int_min(k.all_hi, w->hi[q]);
        }
        if (k.lo >= k.hi) k.lo = k.hi = 0;
        k.all_hi = int_max(k.all_hi, k.all_lo);
        if (k.lo < k.hi) lo = int_min(lo, k.lo);
        hi = int_max(hi, k.hi);
        c->block[c->n_blocks++] = k;
    }
    c->g0 = lo / KV_GROUP;
    c->g1 = (hi + KV_GROUP - 1) / KV_GROUP;
}

/* Where groups g0 .. g1 of the chunk at `start` are, a page holding whole groups; value may be NULL. */
static void locate(const struct attn *a, const struct chunk *c, int start, int g0, int g1, const uint8_t **key,
                   const uint8_t **value)
{
    int page = (start + KV_GROUP * g0) / a->page_slots, slot = (start + KV_GROUP * g0) % a->page_slots;
    for (int g = g0; g < g1; g++, slot += KV_GROUP) {
        if (slot == a->page_slots) {
            slot = 0;
            page++;
        }
        key[g] = a->pages[page] + a->k_offset + (size_t)(slot / KV_GROUP) * c->key_bytes;
        if (value) value[g] = a->pages[page] + a->v_offset + (size_t)slot * c->value_bytes;
    }
}

/* ---- the whole ---- */

static void quant_queries(const struct attn *a, struct work *w)
{
    for (int row = 0; row < a->n_q; row++)
        for (int i = 0; i < a->head_dim; i += 32) {
            __m512 v0 = load_padded(a->q[row], i, a->head_dim), v1 = load_padded(a->q[row], i + 16, a->head_dim);
            w->q8_d[row][i / 32] = quant_block_32(v0, v1, w->q8[row] + i);
            w->q8_start[row][i / 32] = -128 * quant_sum_32(w->q8[row] + i);
        }
}

/* The sink, and the division by the sum. */
static void finish(const struct attn *a, struct work *w, int row)
{
    float l = w->l[row], f = 1.0f;
    bool scaled = false;
    if (a->sink) {
        float z = a->sink[row];
        scaled = z > w->m[row];
        f = exp_scalar(scaled ? w->m[row] - z : z - w->m[row]);
        l = scaled ? __builtin_fmaf(l, f, 1.0f) : __builtin_fmaf(1.0f, f, l);
    }
    const __m512 r = _mm512_set1_ps(1.0f / l);
    for (int i = 0; i < a->head_dim_v; i += 16) {
        __mmask16 mask = first_lanes(int_min(a->head_dim_v - i, 16));
        __m512 o = _mm512_maskz_loadu_ps(mask, a->out[row] + i);
        if (scaled) o = _mm512_mul_ps(o, _mm512_set1_ps(f));
        _mm512_mask_storeu_ps(a->out[row] + i, mask, _mm512_mul_ps(o, r));
    }
}

static void attn(const struct attn *a, void *scratch)
{
    struct work *w = scratch;
    struct chunk c = {.key_bytes = kv_key_bytes(a->type, a->head_dim),
                      .value_bytes = kv_value_bytes(a->type, a->head_dim_v)};
    int first = a->lo[0], end = a->hi[0];
    assert(a->n_q >= 1 && a->n_q <= ATTN_MAX_Q && a->head_dim <= ATTN_MAX_DIM && a->head_dim_v <= ATTN_MAX_DIM);
    for (int q = 0; q < a->n_q; q++) {
        assert(a->lo[q] >= 0 && a->lo[q] < a->hi[q]);
        first = int_min(first, a->lo[q]);
        end = int_max(end, a->hi[q]);
        w->started[q] = false;
    }
    if (a->type == KV_Q8_0) quant_queries(a, w);
    if (avx512_attn_packs(a)) avx512_attn_pack(a, w);
    w->out_at = 0;
    first = first / ATTN_CHUNK * ATTN_CHUNK;
    for (int start = first; start < end; start += ATTN_CHUNK) {
        int next = int_min(end - start - ATTN_CHUNK, ATTN_CHUNK);
        survey(a, w, &c, start);
        if (c.g0 >= c.g1) continue;
        locate(a, &c, start, c.g0, c.g1, c.key, c.value);
        if (a->ld_partial) {
            memset(w->started, 0, sizeof w->started);
            w->out_at = (size_t)((start - first) / ATTN_CHUNK) * a->ld_partial + ATTN_PARTIAL_O;
        }
        c.n_next = int_max(next + KV_GROUP - 1, 0) / KV_GROUP;
        locate(a, &c, start + ATTN_CHUNK, 0, c.n_next, c.next_key, NULL);
        chunk_scores(a, w, &c);
        chunk_softmax(a, w);
        if (a->n_q <= ROWS)
            chunk_values_few(a, w, &c);
        else
            avx512_attn_values(a, w, &c);
        for (int q = 0; q < a->n_q && a->ld_partial; q++) {
            float *to = a->out[q] + w->out_at - ATTN_PARTIAL_O;
            to[ATTN_PARTIAL_M] = w->m[q];
            to[ATTN_PARTIAL_L] = w->l[q];
        }
    }
    for (int q = 0; q < a->n_q && !a->ld_partial; q++) finish(a, w, q);
}

void avx512_init_attn(struct kernels *k) { k->attn = attn; }
