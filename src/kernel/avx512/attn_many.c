/* SPDX-License-Identifier: MIT
 *
 * attn_many.c: the inner loops of attention with many rows (prefill), AVX-512. See attn.c.
 *
 * Both loops are 24 multiply-adds and 14 loads for 12 rows. So that nothing else is in them, all addresses are at
 * constant distances from a few pointers: queries are copied side by side, because twelve pointers find no registers,
 * and values are widened to f32 in scratch, two registers of dims at a time. Half of a chunk's are used by all blocks
 * before the other half, because the whole would fill L1.
 */
#include "kernel/avx512/attn_work.h"

#define HALF (ATTN_CHUNK / 2) /* slots */
#define PAIR (2 * 16)         /* dims in hand */

/* ---- scores ---- */

bool avx512_attn_packs(const struct attn *a) { return is_many(a) && a->type != KV_Q8_0 && a->head_dim <= PACKED_DIM; }

/* The queries of a block, which the last one fills up. */
static void pack_block(const struct attn *a, float (*to)[ROWS], int row)
{
    for (int q = 0; q < ROWS; q += 4) {
        const float *x[4];
        int i = 0;
        for (int k = 0; k < 4; k++) x[k] = a->q[int_min(row + q + k, a->n_q - 1)];
        for (; i + 4 <= a->head_dim; i += 4) {
            __m128 v0 = _mm_loadu_ps(x[0] + i), v1 = _mm_loadu_ps(x[1] + i);
            __m128 v2 = _mm_loadu_ps(x[2] + i), v3 = _mm_loadu_ps(x[3] + i);
            _MM_TRANSPOSE4_PS(v0, v1, v2, v3);
            _mm_store_ps(to[i] + q, v0);
            _mm_store_ps(to[i + 1] + q, v1);
            _mm_store_ps(to[i + 2] + q, v2);
            _mm_store_ps(to[i + 3] + q, v3);
        }
        for (; i < a->head_dim; i++)
            for (int k = 0; k < 4; k++) to[i][q + k] = x[k][i];
    }
}

void avx512_attn_pack(const struct attn *a, struct work *w)
{
    for (int row = 0; row < a->n_q; row += ROWS) pack_block(a, w->packed[row / ROWS], row);
}

/* Scores to p; rows that are repeated get theirs too, so that nothing undefined is multiplied later. */
ALWAYS_INLINE void scores(int nq, const struct dots *t)
{
    const __m512 scale = _mm512_set1_ps(t->a->scale);
    float *p[2];
    __m512 s[ROWS][2];
    const float *x = t->packed[0], *k0 = (const float *)t->key[0], *k1 = (const float *)t->key[1];
    const int dim = t->a->head_dim;
#pragma GCC unroll 12
    for (int q = 0; q < nq; q++)
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) s[q][g] = _mm512_setzero_ps();
    for (int i = 0; i < dim; i += 2, x += 2 * ROWS, k0 += 2 * KV_GROUP, k1 += 2 * KV_GROUP) {
        if (i % 4 == 0) fetch(t->next);
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            __m512 a = _mm512_loadu_ps(k0 + j * KV_GROUP), b = _mm512_loadu_ps(k1 + j * KV_GROUP);
#pragma GCC unroll 12
            for (int q = 0; q < nq; q++) {
                __m512 v = _mm512_set1_ps(x[j * ROWS + q]);
                IN_REGISTER(v);
                ADD_PRODUCT(s[q][0], v, a);
                ADD_PRODUCT(s[q][1], v, b);
            }
        }
    }
#pragma GCC unroll 2
    for (int g = 0; g < 2; g++) p[g] = t->w->p[t->row] + KV_GROUP * int_min(t->g0 + g, t->g1 - 1);
#pragma GCC unroll 12
    for (int q = 0; q < nq; q++)
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) _mm512_store_ps(p[g] + q * ATTN_CHUNK, _mm512_mul_ps(scale, s[q][g]));
}

static void scores_12(const struct dots *t) { scores(ROWS, t); }
static void scores_8(const struct dots *t) { scores(8, t); }

void avx512_attn_scores(const struct dots *t) { (t->n > 8 ? scores_12 : scores_8)(t); }

/* ---- values ---- */

/* Registers z .. z + n of all values of the chunk, as f32 in w->wide; zeros in the place of a second one that is not
 * there. */
ALWAYS_INLINE void widen_type(enum kv_type type, const struct chunk *c, struct work *w, int z, int n, __mmask16 last)
{
    for (int g = c->g0; g < c->g1; g++) {
        const uint8_t *v = c->value[g];
#pragma GCC unroll 4
        for (int j = 0; j < KV_GROUP; j++, v += c->value_bytes)
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++)
                _mm512_store_ps(w->wide.values[KV_GROUP * g + j] + 16 * i,
                                i < n ? load_value(type, v, z + i, i == n - 1 ? last : 0xffff) : _mm512_setzero_ps());
    }
}

static void widen_values(enum kv_type type, const struct chunk *c, struct work *w, int z, int n, __mmask16 last)
{
    if (type == KV_F16 && n == 2 && last == 0xffff)
        widen_type(KV_F16, c, w, z, 2, 0xffff);
    else if (type == KV_F16)
        widen_type(KV_F16, c, w, z, n, last);
    else if (type == KV_F32)
        widen_type(KV_F32, c, w, z, n, last);
    else
        widen_type(KV_Q8_0, c, w, z, n, last);
}

/* sums[q] += p[row + q][j] * v[j] for the slots j0 <= j < j1 of the chunk, v in w->wide. */
ALWAYS_INLINE void weigh_tile(int nq, const struct work *w, int row, int j0, int j1, float (*sums)[PAIR],
                              struct next *next)
{
    const float *p = w->p[row] + j0, *v = w->wide.values[j0];
    __m512 acc[ROWS][2];
#pragma GCC unroll 12
    for (int q = 0; q < nq; q++)
#pragma GCC unroll 2
        for (int z = 0; z < 2; z++) acc[q][z] = _mm512_load_ps(sums[q] + 16 * z);
    for (int j = j0; j < j1; j += 4, p += 4, v += 4 * PAIR) {
        const int n = int_min(4, j1 - j);
        if (next) fetch(next);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            if (i >= n) break;
            __m512 a = _mm512_load_ps(v + PAIR * i), b = _mm512_load_ps(v + PAIR * i + 16);
#pragma GCC unroll 12
            for (int q = 0; q < nq; q++) {
                __m512 x = _mm512_set1_ps(p[q * ATTN_CHUNK + i]);
                IN_REGISTER(x);
                ADD_PRODUCT(acc[q][0], x, a);
                ADD_PRODUCT(acc[q][1], x, b);
            }
        }
    }
#pragma GCC unroll 12
    for (int q = 0; q < nq; q++)
#pragma GCC unroll 2
        for (int z = 0; z < 2; z++) _mm512_store_ps(sums[q] + 16 * z, acc[q][z]);
}

static void weigh_tile_8(const struct work *w, int row, int j0, int j1, float (*sums)[PAIR], struct next *next)
{
    weigh_tile(8, w, row, j0, j1, sums, next);
}

static void weigh_tile_12(const struct work *w, int row, int j0, int j1, float (*sums)[PAIR], struct next *next)
{
    weigh_tile(ROWS, w, row, j0, j1, sums, next);
}

/* The same for slots that not all of n rows see: one that a row does not see leaves its sums alone. */
static void weigh_fringe(const struct work *w, int row, int n, int j0, int j1, float (*sums)[PAIR])
{
    for (int j = j0; j < j1; j++) {
        const __m512 a = _mm512_load_ps(w->wide.values[j]), b = _mm512_load_ps(w->wide.values[j] + 16);
        for (int q = 0; q < n; q++) {
            if (j < w->lo[row + q] || j >= w->hi[row + q]) continue;
            const __m512 x = _mm512_set1_ps(w->p[row + q][j]);
            _mm512_store_ps(sums[q], _mm512_fmadd_ps(x, a, _mm512_load_ps(sums[q])));
            _mm512_store_ps(sums[q] + 16, _mm512_fmadd_ps(x, b, _mm512_load_ps(sums[q] + 16)));
        }
    }
}

/* The slots j0 .. j1 of one block: those that all of its rows see, and the fringes before and after, so that each
 * row's ascend. */
static void weigh_tile_block(struct work *w, const struct block *k, int j0, int j1, float (*sums)[PAIR],
                             struct next *next)
{
    const int lo = int_max(k->lo, j0), hi = int_min(k->hi, j1);
    const int all_lo = int_min(int_max(k->all_lo, lo), hi), all_hi = int_max(int_min(k->all_hi, hi), all_lo);
    if (lo < all_lo) weigh_fringe(w, k->row, k->n, lo, all_lo, sums);
    if (all_lo < all_hi) (k->n > 8 ? weigh_tile_12 : weigh_tile_8)(w, k->row, all_lo, all_hi, sums, next);
    if (all_hi < hi) weigh_fringe(w, k->row, k->n, all_hi, hi, sums);
}

/* The weighted values of all rows, two registers of dims after the other, merged into the output. Half of a chunk's
 * values stay in L1. */
void avx512_attn_values(const struct attn *a, struct work *w, const struct chunk *c)
{
    const int n_regs = (a->head_dim_v + 15) / 16;
    struct next next = next_of(c->next_key, c->n_next, c->key_bytes, (n_regs + 1) / 2 * (ATTN_CHUNK / 4));
    for (int z = 0; z < n_regs; z += 2) {
        const int n = int_min(2, n_regs - z);
        widen_values(a->type, c, w, z, n, z + n < n_regs ? 0xffff : first_lanes(a->head_dim_v - 16 * (n_regs - 1)));
        memset(w->sums, 0, (size_t)c->n_blocks * sizeof w->sums[0]);
        for (int j = 0; j < ATTN_CHUNK; j += HALF)
            for (int b = 0; b < c->n_blocks; b++)
                weigh_tile_block(w, &c->block[b], j, j + HALF, w->sums[b], b == 0 ? &next : NULL);
        for (int b = 0; b < c->n_blocks; b++) avx512_attn_join(a, w, &c->block[b], w->sums[b][0], PAIR, z, n);
    }
}
