/* SPDX-License-Identifier: MIT
 *
 * pass.h: the order in which a product with many columns takes rows and columns.
 *
 * A pass takes up to PASS_TILES tiles of 32 rows and goes through k in parts of 256. Several tiles, because the
 * activations of many columns do not fit the second cache: each part of them is brought in once for 128 rows
 * instead of once for 32. The caller's pass_fn does the work of a pass.
 */
#ifndef QUERN_KERNEL_AMX_PASS_H
#define QUERN_KERNEL_AMX_PASS_H

#include "kernel/amx/tmm.h"

#define PASS_TILES    4
#define PASS_MAX_COLS 512 /* columns per pass over the weights: 256 KiB of accumulators */

/* How many of n columns meet a tile at once: where there are few groups, as even a share as possible, because fewer
 * cost less. */
static inline int group_columns(int n)
{
    if (n >= 4 * TMM_COLS) return TMM_COLS;
    const int n_groups = (n + TMM_COLS - 1) / TMM_COLS;
    return (n + n_groups - 1) / n_groups;
}

/* As many as possible. */
static inline int full_tiles(int n) { return n < TMM_COLS ? n : TMM_COLS; }

/* Activations as the tile load wants them: rows at one distance. */
struct spread {
    const int8_t *x;
    size_t ld;
};

/* `bytes` (64, 128 ... TILE_K) from byte `at` on of n <= TMM_COLS columns from c on: where they lie, or, gathered
 * ones, a copy. */
ALWAYS_INLINE struct spread spread_at(const struct gemm *g, int c, int n, size_t at, size_t bytes,
                                      int8_t copy[TMM_COLS * TILE_K])
{
    if (!g->cols) return (struct spread){(const int8_t *)g->x + (size_t)c * g->ld_x + at, g->ld_x};
    for (int i = 0; i < n; i++) {
        const uint8_t *x = gemm_x(g, c + i) + at;
        for (size_t j = 0; j < bytes; j += 64) _mm512_store_si512(copy + i * TILE_K + j, _mm512_loadu_si512(x + j));
    }
    return (struct spread){copy, TILE_K};
}

/* Rows r0 .. r0 + 32 * n_tiles (those beyond the matrix repeat its last) times columns c0 .. c0 + n. */
typedef void pass_fn(const struct gemm *g, int r0, int n_tiles, int c0, int n, void *scratch);

/* Calls pass() for all rows and columns, the first rows first. k and n_pairs are those of tmm_begin(); group() gives
 * its number of columns. */
ALWAYS_INLINE void passes(const struct gemm *g, int k, int n_pairs, int max_tiles, int (*group)(int n), pass_fn *pass,
                          void *scratch)
{
    for (int c0 = 0, n; c0 < g->n_cols; c0 += n) {
        n = g->n_cols - c0 < PASS_MAX_COLS ? g->n_cols - c0 : PASS_MAX_COLS;
        tmm_begin(group(n), k, n_pairs);
        for (int r0 = 0, n_tiles; r0 < g->n_rows; r0 += n_tiles * TILE_ROWS) {
            n_tiles = (g->n_rows - r0 + TILE_ROWS - 1) / TILE_ROWS;
            if (n_tiles > max_tiles) n_tiles = max_tiles;
            pass(g, r0, n_tiles, c0, n, scratch);
        }
        tmm_end();
    }
}

/* The tile that is unpacked after tile i of part `part` (of n_parts, `bytes` of a row each): the next tile of the pass,
 * the first tile's next part, or the next pass. */
ALWAYS_INLINE struct ahead ahead_in_pass(const struct gemm *g, int r0, const uint8_t *row[][TILE_ROWS], int n_tiles,
                                         int i, int part, int n_parts, int bytes)
{
    if (i + 1 < n_tiles)
        return (struct ahead){.row = row[i + 1],
                              .offset = (size_t)part * (size_t)bytes,
                              .bytes = bytes,
                              .n_rows = TILE_ROWS,
                              .step_rows = 1};
    const bool last = part + 1 == n_parts;
    return (struct ahead){
        .row = row[0],
        .offset = last ? (size_t)n_tiles * TILE_ROWS * g->ld_w : (size_t)(part + 1) * (size_t)bytes,
        .bytes = bytes,
        .n_rows = last && r0 + n_tiles * TILE_ROWS >= g->n_rows ? 0 : TILE_ROWS,
        .step_rows = 1,
    };
}

#endif
