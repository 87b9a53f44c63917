/* SPDX-License-Identifier: MIT
 *
 * gemm_k256.c: products of the 256-element block types with several columns, AMX.
 *
 * Of each block the rows of a pass (pass.h) are unpacked once (planes.h), then meet all columns, 16 at a time: tile
 * products into a small buffer, and from there the contract's two float steps (docs/KERNELS.md section 2) in
 * ordinary registers. Fewer than MIN_COLS columns stay with AVX-512: tiles have little to share there.
 */
#include <assert.h>

#include "kernel/amx/init.h"
#include "kernel/amx/pass.h"
#include "kernel/amx/planes.h"
#include "kernel/avx512/init.h"

#define MIN_COLS 6

/* What the float steps need of columns and blocks. Of few columns it is made for all blocks at once and serves every
 * pass; of many it is made again for each block of each pass of PASS_TILES tiles. */
#define MAX_SUMS 2048 /* columns times blocks */
static_assert(MAX_SUMS >= PASS_MAX_COLS, "one block of a pass");
struct sums {
    _Alignas(64) uint32_t pair[MAX_SUMS][8]; /* pairs of 16-bit group sums, as the minimums are paired */
    float d[MAX_SUMS];
};

struct many {
    struct planes tile[PASS_TILES];
    struct unpacking unpacking;
    struct sums sums;
    _Alignas(64) int32_t product[2][4 * TMM_SUMS]; /* of a group of columns and a tile, taking turns */
    _Alignas(64) float acc[PASS_TILES][PASS_MAX_COLS * TILE_ROWS];
};
static_assert(sizeof(struct many) <= KERNEL_SCRATCH_BYTES, "scratch");

ALWAYS_INLINE bool few_columns(const struct gemm *g, int n) { return n * (g->k / 256) <= MAX_SUMS; }

/* Columns c0 .. c0 + n of block b, into the sums from `first` on. */
ALWAYS_INLINE void sums_load(enum dtype type, const struct gemm *g, int b, int c0, int n, struct sums *s, int first)
{
    const struct format256 F = format256_of(type);
    for (int c = 0; c < n; c++) {
        const struct act_q256 x = act_q256_at(g->x + (size_t)(c0 + c) * g->ld_x, g->k);
        s->d[first + c] = x.d[b];
        if (!F.min) continue;
        __m256i pair = _mm256_loadu_si256((const void *)(x.bsum + 16 * (size_t)b));
        if (F.group == 32)
            pair = _mm256_castsi128_si256(_mm256_cvtepi32_epi16(_mm256_madd_epi16(pair, _mm256_set1_epi16(1))));
        _mm256_store_si256((void *)s->pair[first + c], pair);
    }
}

/* Products that wait for their float steps: of one tile and the columns from `first` of the pass on. */
struct waiting {
    const struct planes *tile;
    const struct sums *sums;
    int first, first_sum; /* the same column's place in the sums */
    const int32_t *s;     /* [half][plane][TMM_COLS][16]; with one plane two parts of its sum */
    float *acc;           /* [columns of the pass][TILE_ROWS] */
};

/* The float steps for columns from .. to of them. Both halves of the rows together: the columns' operands are
 * loaded once, and loads are what there are too many of. */
ALWAYS_INLINE void finish(enum dtype type, const struct waiting *v, int from, int to)
{
    const struct format256 F = format256_of(type);
    const enum split split = split_of(type);
    const int n_min = F.min ? 128 / F.group : 0;
    __m512 dw[2], dmin[2];
    __m512i min[2][8];
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        dw[half] = _mm512_load_ps(v->tile->dw + 16 * half);
        dmin[half] = _mm512_load_ps(v->tile->dmin + 16 * half);
#pragma GCC unroll 8
        for (int i = 0; i < n_min; i++) min[half][i] = _mm512_load_si512(v->tile->min[i] + 16 * half);
    }
    for (int c = from; c < to; c++) {
        __m512i m[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
        const __m512 d = _mm512_set1_ps(v->sums->d[v->first_sum + c]);
#pragma GCC unroll 8
        for (int i = 0; i < n_min; i++) {
            __m512i bsum = _mm512_set1_epi32((int)v->sums->pair[v->first_sum + c][i]);
            m[0] = _mm512_dpwssd_epi32(m[0], min[0][i], bsum);
            m[1] = _mm512_dpwssd_epi32(m[1], min[1][i], bsum);
        }
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            float *acc = v->acc + (v->first + c) * TILE_ROWS + 16 * half;
            __m512i s = _mm512_load_si512(v->s + 2 * half * TMM_SUMS + 16 * c);
            __m512i high = _mm512_load_si512(v->s + (2 * half + 1) * TMM_SUMS + 16 * c);
            s = _mm512_add_epi32(s, _mm512_slli_epi32(high, (unsigned)split_shift(split)));
            __m512 t = _mm512_mul_ps(dw[half], _mm512_cvtepi32_ps(s));
            if (F.min) t = _mm512_fnmadd_ps(dmin[half], _mm512_cvtepi32_ps(m[half]), t);
            _mm512_store_ps(acc, _mm512_fmadd_ps(d, t, _mm512_load_ps(acc)));
        }
    }
}

/* 16 columns at x (fewer where the tile registers were set up for fewer) times a tile, into s. Meanwhile, between the
 * tile products, which leave the vector units idle, the float steps of the group before, if any. */
ALWAYS_INLINE void group(enum dtype type, const struct planes *p, const int8_t *x, size_t ld_x, int32_t *s,
                         const struct waiting *before)
{
    const enum split split = split_of(type);
    const int part = TMM_COLS / 4;
    tmm_zero();
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const uint8_t *const w[4] = {p->w[0][0][16 * i], p->w[1][0][16 * i], p->w[0][1][16 * i], p->w[1][1][16 * i]};
        if (split == SPLIT_NONE)
            tmm_multiply_one(i % 2, x + 64 * i, ld_x, w[0], w[2]);
        else
            tmm_multiply_two(x + 64 * i, ld_x, w, split == SPLIT_BYTES);
        if (before) finish(type, before, i * part, (i + 1) * part);
    }
    tmm_store(s);
}

/* One tile times the columns c0 .. c0 + n of block b, whose sums are those from first_sum on, into acc. */
ALWAYS_INLINE void tile_columns(enum dtype type, const struct gemm *g, const struct planes *p, struct many *m, int b,
                                int c0, int n, int first_sum, struct ahead *ahead, float *acc)
{
    const int8_t *x = (const int8_t *)g->x + (size_t)c0 * g->ld_x + 256 * (size_t)b;
    struct waiting before = {.tile = NULL};
    int c = 0, turn = 0;
    for (; c + TMM_COLS <= n; c += TMM_COLS, turn ^= 1) {
        ahead_step(ahead);
        if (before.tile)
            group(type, p, x + (size_t)c * g->ld_x, g->ld_x, m->product[turn], &before);
        else
            group(type, p, x + (size_t)c * g->ld_x, g->ld_x, m->product[turn], NULL);
        before = (struct waiting){p, &m->sums, c, first_sum + c, m->product[turn], acc};
    }
    if (before.tile) finish(type, &before, 0, TMM_COLS);
    if (c == n) return;
    /* Fewer columns than the tiles have rows: the group starts earlier, and what it repeats is not used. */
    const int first = n < TMM_COLS ? 0 : n - TMM_COLS;
    const struct waiting rest = {p, &m->sums, first, first_sum + first, m->product[0], acc};
    ahead_step(ahead);
    group(type, p, x + (size_t)first * g->ld_x, g->ld_x, m->product[0], NULL);
    finish(type, &rest, c - first, n - first);
}

/* Rows r0 .. r0 + 32 * n_tiles (those beyond the matrix repeat its last) times columns c0 .. c0 + n. */
ALWAYS_INLINE void pass(enum dtype type, const struct gemm *g, int r0, int n_tiles, int c0, int n, struct many *m)
{
    const struct format256 F = format256_of(type);
    const int n_blocks = g->k / 256;
    const uint8_t *row[PASS_TILES][TILE_ROWS];
    for (int i = 0; i < n_tiles; i++) {
        tile_rows(g, r0 + i * TILE_ROWS, row[i]);
        memset(m->acc[i], 0, sizeof(float) * TILE_ROWS * (size_t)n);
    }
    const bool few = few_columns(g, n);
    for (int b = 0; few && r0 == 0 && b < n_blocks; b++) sums_load(type, g, b, c0, n, &m->sums, b * n);
    for (int b = 0; b < n_blocks; b++) {
        if (!few) sums_load(type, g, b, c0, n, &m->sums, 0);
        for (int i = 0; i < n_tiles; i++) {
            struct ahead ahead = ahead_in_pass(g, r0, row, n_tiles, i, b, n_blocks, F.bytes);
            planes_load(type, row[i], b, &ahead, &m->unpacking, &m->tile[i]);
            ahead_rest(&ahead, (n + TMM_COLS - 1) / TMM_COLS);
            tile_columns(type, g, &m->tile[i], m, b, c0, n, few ? b * n : 0, &ahead, m->acc[i]);
        }
    }
    for (int i = 0; i < n_tiles; i++) tile_store(g, r0 + i * TILE_ROWS, c0, n, m->acc[i]);
}

/* ---- one function a type ---- */

#define GEMM(name, type)                                                                                               \
    static void name##_pass(const struct gemm *g, int r0, int n_tiles, int c0, int n, void *scratch)                   \
    {                                                                                                                  \
        pass(type, g, r0, n_tiles, c0, n, scratch);                                                                    \
    }                                                                                                                  \
    static void name(const struct gemm *g, void *scratch)                                                              \
    {                                                                                                                  \
        if (g->n_cols < MIN_COLS)                                                                                      \
            avx512_gemm_k256(type)(g, scratch);                                                                        \
        else                                                                                                           \
            passes(g, 64, few_columns(g, g->n_cols) ? 1 : PASS_TILES, name##_pass, scratch);                           \
    }
GEMM(gemm_q2_k, DT_Q2_K)
GEMM(gemm_q3_k, DT_Q3_K)
GEMM(gemm_q4_k, DT_Q4_K)
GEMM(gemm_q5_k, DT_Q5_K)
GEMM(gemm_q6_k, DT_Q6_K)
GEMM(gemm_iq4_xs, DT_IQ4_XS)
GEMM(gemm_iq2_xxs, DT_IQ2_XXS)
GEMM(gemm_iq2_xs, DT_IQ2_XS)
GEMM(gemm_iq2_s, DT_IQ2_S)
GEMM(gemm_iq3_xxs, DT_IQ3_XXS)
GEMM(gemm_iq3_s, DT_IQ3_S)
GEMM(gemm_iq1_s, DT_IQ1_S)
GEMM(gemm_iq1_m, DT_IQ1_M)
GEMM(gemm_tq1_0, DT_TQ1_0)
GEMM(gemm_tq2_0, DT_TQ2_0)

void amx_init_gemm_k256(struct kernels *k)
{
    k->gemm[DT_Q2_K] = gemm_q2_k;
    k->gemm[DT_Q3_K] = gemm_q3_k;
    k->gemm[DT_Q4_K] = gemm_q4_k;
    k->gemm[DT_Q5_K] = gemm_q5_k;
    k->gemm[DT_Q6_K] = gemm_q6_k;
    k->gemm[DT_IQ4_XS] = gemm_iq4_xs;
    k->gemm[DT_IQ2_XXS] = gemm_iq2_xxs;
    k->gemm[DT_IQ2_XS] = gemm_iq2_xs;
    k->gemm[DT_IQ2_S] = gemm_iq2_s;
    k->gemm[DT_IQ3_XXS] = gemm_iq3_xxs;
    k->gemm[DT_IQ3_S] = gemm_iq3_s;
    k->gemm[DT_IQ1_S] = gemm_iq1_s;
    k->gemm[DT_IQ1_M] = gemm_iq1_m;
    k->gemm[DT_TQ1_0] = gemm_tq1_0;
    k->gemm[DT_TQ2_0] = gemm_tq2_0;
}
