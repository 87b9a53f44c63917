/* SPDX-License-Identifier: MIT
 *
 * gemm_b32.c: products of the 32-element block types with many columns, AMX.
 *
 * Every 32 elements have a float step, so every tile product has half the k it could have, and its result is stored.
 * Still that is half the cycles of the float steps, which it overlaps: of 16 columns, a step's products (4
 * pieces of 32 rows) run while the sums of the step before are converted, scaled and added. Accumulators are in
 * registers for the 4 pieces of 8 columns. Fewer columns than a tile has rows stay with AVX-512, which is
 * faster there.
 *
 * Deliberately without NVFP4: with a scale for every 16 elements there would be twice the products and float steps.
 */
#include <assert.h>

#include "kernel/amx/amx.h"
#include "kernel/amx/pass.h"
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/tile32.h"

#define STEP_PIECES 4
#define STEP_SUMS   (2 * STEP_PIECES * TMM_SUMS) /* [piece][half][TMM_COLS][16] */
#define STEP_COLS   (TMM_COLS / 2)               /* columns with accumulators in registers at once */

/* The numbers of a pass's columns that the float steps need, for one part of k. */
struct columns {
    _Alignas(64) float d[PASS_MAX_COLS][TILE_PIECES];
    _Alignas(64) float sum[PASS_MAX_COLS][TILE_PIECES];
};

struct many {
    struct tile32 tile;
    struct columns cols;
    _Alignas(64) uint8_t bytes[TILE_ROWS * TILE_K];
    _Alignas(64) int8_t gathered[TMM_COLS * TILE_K];
    _Alignas(64) int32_t sum[2][STEP_SUMS]; /* taking turns */
    _Alignas(64) float acc[PASS_TILES][PASS_MAX_COLS * TILE_ROWS];
};
static_assert(sizeof(struct many) <= KERNEL_SCRATCH_BYTES, "scratch");

/* Pieces b .. b + nb of a column; what a step needs beyond them is zero. */
ALWAYS_INLINE void column_prepare(enum dtype type, struct act_q32 x, int b, int nb, struct columns *cols, int c)
{
    const __mmask8 mask = (__mmask8)first_lanes(nb);
    _mm256_store_ps(cols->d[c], _mm256_maskz_loadu_ps(mask, x.d + b));
    if (!format32_of(type).min) return;
    _mm256_store_ps(cols->sum[c], _mm256_cvtepi32_ps(_mm256_maskz_loadu_epi32(mask, x.sum + b)));
}

/* Pieces nb .. to that do not exist: they add -0 (dw times the sum 0, times d 0), which changes no accumulator. Their
 * activations are whatever follows in the row, at least as many bytes of scales and sums; times 0. */
static void tile_pad(struct tile32 *t, int nb, int to)
{
    memset(t->u[8 * nb], 0, (size_t)(to - nb) * 8 * sizeof t->u[0]);
    for (int i = nb; i < to; i++)
        for (int r = 0; r < TILE_ROWS; r++) t->dw[i][r] = t->second[i][r] = -0.0F;
}

/* Sums that wait for their float steps: of the columns from `first` of the pass on, pieces p and following. */
struct sums {
    const struct tile32 *tile;
    const struct columns *cols;
    int first, p;
    const int32_t *s;
    float *acc; /* [columns of the pass][TILE_ROWS] */
};

/* The float steps for nc columns, the first of which is number `from` of them. */
ALWAYS_INLINE void finish(enum dtype type, int nc, const struct sums *v, int from)
{
    const bool min = format32_of(type).min;
    float *const a = v->acc + (v->first + from) * TILE_ROWS;
    __m512 acc[2][STEP_COLS];
#pragma GCC unroll 8
    for (int c = 0; c < nc; c++)
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) acc[half][c] = _mm512_load_ps(a + c * TILE_ROWS + 16 * half);
    for (int i = 0; i < STEP_PIECES; i++) {
        const int32_t *const s = v->s + 2 * i * TMM_SUMS + 16 * from;
        const float *const d = &v->cols->d[v->first + from][v->p + i], *const sum =
                                                                           &v->cols->sum[v->first + from][v->p + i];
        __m512 dw[2], m[2];
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            dw[half] = _mm512_load_ps(v->tile->dw[v->p + i] + 16 * half);
            if (min) m[half] = _mm512_load_ps(v->tile->second[v->p + i] + 16 * half);
        }
#pragma GCC unroll 8
        for (int c = 0; c < nc; c++) {
            const __m512 dc = _mm512_set1_ps(d[c * TILE_PIECES]);
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                __m512 t = _mm512_cvtepi32_ps(_mm512_load_si512(s + half * TMM_SUMS + 16 * c));
                t = _mm512_mul_ps(dw[half], t);
                if (min) t = _mm512_fmadd_ps(m[half], _mm512_set1_ps(sum[c * TILE_PIECES]), t);
                acc[half][c] = _mm512_fmadd_ps(dc, t, acc[half][c]);
            }
        }
    }
#pragma GCC unroll 8
    for (int c = 0; c < nc; c++)
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) _mm512_store_ps(a + c * TILE_ROWS + 16 * half, acc[half][c]);
}

/* 16 columns at x (fewer where the tile registers were set up for fewer) times the pieces from p on, into s. Meanwhile
 * the float steps of the 16 columns before, if any. */
ALWAYS_INLINE void step(enum dtype type, const struct tile32 *t, int p, const int8_t *x, size_t ld_x, int32_t *s,
                        const struct sums *before)
{
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        tmm_zero();
        tmm_multiply_pieces(x + 64 * i, ld_x, t->u + 8 * (p + 2 * i));
        if (before) finish(type, STEP_COLS, before, i * STEP_COLS);
        tmm_store(s + 4 * i * TMM_SUMS);
    }
}

/* The tile, n_steps of it, times the columns c0 .. c0 + n with activations from piece b on, into acc. */
ALWAYS_INLINE void tile_columns(enum dtype type, const struct gemm *g, struct many *m, int b, int n_steps, int c0,
                                int n, struct ahead *ahead, float *acc)
{
    const size_t at = 32 * (size_t)b, bytes = 32 * STEP_PIECES * (size_t)n_steps;
    struct sums before = {.tile = NULL};
    int c = 0, turn = 0;
    for (; c + TMM_COLS <= n; c += TMM_COLS) {
        const struct spread x = spread_at(g, c0 + c, TMM_COLS, at, bytes, m->gathered);
        ahead_step(ahead);
        for (int p = 0; p < n_steps * STEP_PIECES; p += STEP_PIECES, turn ^= 1) {
            step(type, &m->tile, p, x.x + 32 * p, x.ld, m->sum[turn], before.tile ? &before : NULL);
            before = (struct sums){&m->tile, &m->cols, c, p, m->sum[turn], acc};
        }
    }
    for (int i = 0; before.tile && i < TMM_COLS; i += STEP_COLS) finish(type, STEP_COLS, &before, i);
    if (c == n) return;
    /* Fewer columns than the tiles have rows: the group starts earlier, and what it repeats is not used. */
    const int first = n < TMM_COLS ? 0 : n - TMM_COLS;
    const struct spread x = spread_at(g, c0 + first, n - first, at, bytes, m->gathered);
    ahead_step(ahead);
    for (int p = 0; p < n_steps * STEP_PIECES; p += STEP_PIECES, turn ^= 1) {
        const struct sums rest = {&m->tile, &m->cols, first, p, m->sum[turn], acc};
        int i = c - first;
        step(type, &m->tile, p, x.x + 32 * p, x.ld, m->sum[turn], NULL);
        for (; i + STEP_COLS <= n - first; i += STEP_COLS) finish(type, STEP_COLS, &rest, i);
        for (; i < n - first; i++) finish(type, 1, &rest, i);
    }
}

ALWAYS_INLINE void pass(enum dtype type, const struct gemm *g, int r0, int n_tiles, int c0, int n, struct many *m)
{
    const struct format32 F = format32_of(type);
    const int n_pieces = g->k / 32, n_parts = (n_pieces + TILE_PIECES - 1) / TILE_PIECES;
    const int part_bytes = TILE_PIECES / F.pieces * F.bytes;
    const uint8_t *row[PASS_TILES][TILE_ROWS];
    for (int i = 0; i < n_tiles; i++) {
        tile_rows(g, r0 + i * TILE_ROWS, row[i]);
        memset(m->acc[i], 0, sizeof(float) * TILE_ROWS * (size_t)n);
    }
    for (int part = 0; part < n_parts; part++) {
        const int b = part * TILE_PIECES, nb = n_pieces - b < TILE_PIECES ? n_pieces - b : TILE_PIECES;
        const int n_steps = (nb + STEP_PIECES - 1) / STEP_PIECES;
        for (int c = 0; c < n; c++) column_prepare(type, act_q32_at(gemm_x(g, c0 + c), g->k), b, nb, &m->cols, c);
        for (int i = 0; i < n_tiles; i++) {
            struct ahead ahead = ahead_in_pass(g, r0, row, n_tiles, i, part, n_parts, part_bytes);
            tile32_load(type, true, row[i], b, nb, &ahead, m->bytes, &m->tile);
            if (nb % STEP_PIECES) tile_pad(&m->tile, nb, n_steps * STEP_PIECES);
            ahead_rest(&ahead, (n + TMM_COLS - 1) / TMM_COLS);
            tile_columns(type, g, m, b, n_steps, c0, n, &ahead, m->acc[i]);
        }
    }
    for (int i = 0; i < n_tiles; i++) tile_store(g, r0 + i * TILE_ROWS, c0, n, m->acc[i]);
}

/* ---- one function a type ---- */

#define GEMM(ID, name, ...)                                                                                            \
    static void pass_##name(const struct gemm *g, int r0, int n_tiles, int c0, int n, void *scratch)                   \
    {                                                                                                                  \
        pass(DT_##ID, g, r0, n_tiles, c0, n, scratch);                                                                 \
    }                                                                                                                  \
    static void gemm_##name(const struct gemm *g, void *scratch)                                                       \
    {                                                                                                                  \
        if (g->n_cols < TMM_COLS)                                                                                      \
            avx512_gemm_b32(DT_##ID)(g, scratch);                                                                      \
        else                                                                                                           \
            passes(g, 32, 0, g->n_cols < 64 ? 1 : PASS_TILES, full_tiles, pass_##name, scratch);                       \
    }
#define ENTRY(ID, name, ...) k->gemm[DT_##ID] = gemm_##name;

DTYPES_B32(GEMM)

void amx_init_gemm_b32(struct kernels *k) { DTYPES_B32(ENTRY) }
