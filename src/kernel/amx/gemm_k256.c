/* SPDX-License-Identifier: MIT
 *
 * gemm_k256.c: products of the 256-element block types with two or more columns, AMX.
 *
 * A pass takes up to PASS_TILES tiles of 32 rows. Of each block they are unpacked once (planes.h), then meet all
 * columns, 16 at a time: tile products into a small buffer, and from there the contract's two float steps
 * (docs/KERNELS.md section 2) in ordinary registers. Several tiles a pass, because the activations of many
 * columns do not fit the second cache: each part of them is brought in once for 128 rows instead of once for 32.
 */
#include <assert.h>

#include "kernel/amx/init.h"
#include "kernel/amx/planes.h"
#include "kernel/amx/tmm.h"
#include "kernel/avx512/init.h"

#define PASS_TILES    4
#define PASS_MAX_COLS 512 /* columns per pass over the weights: 256 KiB of accumulators */

/* What the float steps need of the columns of a pass, for one block. */
struct columns {
    _Alignas(64) uint32_t bsum[PASS_MAX_COLS][8]; /* pairs of 16-bit group sums, as the minimums are paired */
    float d[PASS_MAX_COLS];
};

struct many {
    struct planes tile[PASS_TILES];
    struct unpacking unpacking;
    struct columns cols;
    _Alignas(64) int32_t sum[2][4 * TMM_SUMS]; /* of a group of columns and a tile, taking turns */
    _Alignas(64) float acc[PASS_TILES][PASS_MAX_COLS * TILE_ROWS];
};
static_assert(sizeof(struct many) <= KERNEL_SCRATCH_BYTES, "scratch");

ALWAYS_INLINE void column_prepare(enum dtype type, struct act_q256 x, int b, struct columns *cols, int c)
{
    const struct format256 F = format256_of(type);
    cols->d[c] = x.d[b];
    if (!F.min) return;
    __m256i bsum = _mm256_loadu_si256((const void *)(x.bsum + 16 * (size_t)b));
    if (F.group == 32)
        bsum = _mm256_castsi128_si256(_mm256_cvtepi32_epi16(_mm256_madd_epi16(bsum, _mm256_set1_epi16(1))));
    _mm256_store_si256((void *)cols->bsum[c], bsum);
}

/* Sums that wait for their float steps: of one tile and the columns from `first` of the pass on. */
struct sums {
    const struct planes *tile;
    const struct columns *cols;
    int first;
    const int32_t *s; /* [half][plane][TMM_COLS][16]; with one plane two parts of its sum */
    float *acc;       /* [columns of the pass][TILE_ROWS] */
};

/* The float steps for columns from .. to of them. Both halves of the rows together: the columns' operands are
 * loaded once, and loads are what there are too many of. */
ALWAYS_INLINE void finish(enum dtype type, const struct sums *v, int from, int to)
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
        const __m512 d = _mm512_set1_ps(v->cols->d[v->first + c]);
#pragma GCC unroll 8
        for (int i = 0; i < n_min; i++) {
            __m512i bsum = _mm512_set1_epi32((int)v->cols->bsum[v->first + c][i]);
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
                         const struct sums *before)
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

/* One tile times the columns c0 .. c0 + n of block b, into acc. */
ALWAYS_INLINE void tile_columns(enum dtype type, const struct gemm *g, const struct planes *p, struct many *m, int b,
                                int c0, int n, struct ahead *ahead, float *acc)
{
    const int8_t *x = (const int8_t *)g->x + (size_t)c0 * g->ld_x + 256 * (size_t)b;
    struct sums before = {.tile = NULL};
    int c = 0, turn = 0;
    for (; c + TMM_COLS <= n; c += TMM_COLS, turn ^= 1) {
        ahead_step(ahead);
        if (before.tile)
            group(type, p, x + (size_t)c * g->ld_x, g->ld_x, m->sum[turn], &before);
        else
            group(type, p, x + (size_t)c * g->ld_x, g->ld_x, m->sum[turn], NULL);
        before = (struct sums){p, &m->cols, c, m->sum[turn], acc};
    }
    if (before.tile) finish(type, &before, 0, TMM_COLS);
    if (c == n) return;
    /* Fewer columns than the tiles have rows: the group starts earlier, and what it repeats is not used. */
    const int first = n < TMM_COLS ? 0 : n - TMM_COLS;
    const struct sums rest = {p, &m->cols, first, m->sum[0], acc};
    ahead_step(ahead);
    group(type, p, x + (size_t)first * g->ld_x, g->ld_x, m->sum[0], NULL);
    finish(type, &rest, c - first, n - first);
}

/* What is unpacked after tile i of block b: the next tile of the pass, the first tile's next block, or the next pass.
 */
ALWAYS_INLINE struct ahead ahead_in_pass(const struct gemm *g, int r0, const uint8_t *row[][TILE_ROWS], int n_tiles,
                                         int i, int b, int bytes)
{
    if (i + 1 < n_tiles) return (struct ahead){row[i + 1], (size_t)b * (size_t)bytes, bytes, TILE_ROWS, 1};
    const bool last = b + 1 == g->k / 256;
    return (struct ahead){
        .row = row[0],
        .offset = last ? (size_t)n_tiles * TILE_ROWS * g->ld_w : (size_t)(b + 1) * (size_t)bytes,
        .bytes = bytes,
        .n_rows = last && r0 + n_tiles * TILE_ROWS >= g->n_rows ? 0 : TILE_ROWS,
        .step_rows = 1,
    };
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
    for (int b = 0; b < n_blocks; b++) {
        for (int c = 0; c < n; c++)
            column_prepare(type, act_q256_at(g->x + (size_t)(c0 + c) * g->ld_x, g->k), b, &m->cols, c);
        for (int i = 0; i < n_tiles; i++) {
            struct ahead ahead = ahead_in_pass(g, r0, row, n_tiles, i, b, F.bytes);
            planes_load(type, row[i], b, &ahead, &m->unpacking, &m->tile[i]);
            ahead_rest(&ahead, (n + TMM_COLS - 1) / TMM_COLS);
            tile_columns(type, g, &m->tile[i], m, b, c0, n, &ahead, m->acc[i]);
        }
    }
    for (int i = 0; i < n_tiles; i++) tile_store(g, r0 + i * TILE_ROWS, c0, n, m->acc[i]);
}

ALWAYS_INLINE void many_columns(enum dtype type, const struct gemm *g, struct many *m)
{
    const int max_tiles = g->n_cols < 64 ? 1 : PASS_TILES;
    for (int c0 = 0, n; c0 < g->n_cols; c0 += n) {
        n = g->n_cols - c0 < PASS_MAX_COLS ? g->n_cols - c0 : PASS_MAX_COLS;
        tmm_begin(n < TMM_COLS ? n : TMM_COLS, 64);
        for (int r0 = 0, n_tiles; r0 < g->n_rows; r0 += n_tiles * TILE_ROWS) {
            n_tiles = (g->n_rows - r0 + TILE_ROWS - 1) / TILE_ROWS;
            if (n_tiles > max_tiles) n_tiles = max_tiles;
            pass(type, g, r0, n_tiles, c0, n, m);
        }
        tmm_end();
    }
}

/* ---- one function a type ---- */

#define GEMM(name, type)                                                                                               \
    static void name(const struct gemm *g, void *scratch)                                                              \
    {                                                                                                                  \
        if (g->n_cols == 1)                                                                                            \
            avx512_gemm_k256(type)(g, scratch);                                                                        \
        else                                                                                                           \
            many_columns(type, g, scratch);                                                                            \
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
