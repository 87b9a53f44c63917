/* SPDX-License-Identifier: MIT
 *
 * gemm_b32.c: matrix products with the types that have a float scale per 32 elements.
 *
 * The two loops of gemm_k256.c, with one float step per 32 instead of per 256: t = dw * S (+ m *
 * sum), acc = fma(d, t, acc), blocks ascending. Eight blocks of a row are taken together: one column by
 * gemm_b32_one.c, more by tile32.h, where a column's share of them is prepared at once.
 */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/tile32.h"

#define PANEL_ROWS 64  /* rows whose tiles are unpacked together, at most */
#define FEW_COLS   32  /* below, half as many: as in gemm_k256.c */
#define AHEAD_COLS 32  /* up to so many wait for memory: as in gemm_k256.c */
#define PANEL_COLS 512 /* columns whose accumulators are in scratch at once */

/* ---- tile ---- */

/* The products of a kind, for 1 .. TILE_COLS columns. With AVX-VNNI a run is a whole block, and signed codes have an
 * offset, too. */
#if DOT_VNNI
TILE_DOTS(offset, OFFSET, 8)
TILE_DOTS(minimum, MINIMUM, 8)
TILE_DOTS(halved, HALVED, 4)

VEC_INLINE tile_dot_fn *const *tile_dots(struct kind32 k)
{
    if (k.mode == MINIMUM || k.mode == BIASED) return dots_minimum;
    return k.mode == HALVED ? dots_halved : dots_offset;
}
#else
TILE_DOTS(offset_4, OFFSET, 4)
TILE_DOTS(offset_8, OFFSET, 8)
TILE_DOTS(minimum_2, MINIMUM, 2)
TILE_DOTS(minimum_4, MINIMUM, 4)
TILE_DOTS(minimum_8, MINIMUM, 8)
TILE_DOTS(biased, BIASED, 1)
TILE_DOTS(signed, SIGNED, 1)
TILE_DOTS(halved, HALVED, 4)

VEC_INLINE tile_dot_fn *const *tile_dots(struct kind32 k)
{
    if (k.mode == MINIMUM) return k.run == 2 ? dots_minimum_2 : k.run == 4 ? dots_minimum_4 : dots_minimum_8;
    if (k.mode == BIASED) return dots_biased;
    if (k.mode == OFFSET) return k.run == 4 ? dots_offset_4 : dots_offset_8;
    return k.mode == SIGNED ? dots_signed : dots_halved;
}
#endif

/* n_tiles tiles of n_blocks blocks from the i0-th on with n_cols columns from c0 on, in equal groups of at most
 * TILE_COLS. */
static void tile_columns(const struct kind32 *k, tile_dot_fn *const *dots, const struct gemm *g, int c0, int n_cols,
                         int i0, int n_blocks, const struct tile32 *t, int n_tiles, float *acc, struct vec_ahead *ahead)
{
    for (int left = n_cols, n; left > 0; left -= n) {
        struct column32 col[TILE_COLS];
        n = vec_even_part(left, TILE_COLS);
        for (int c = 0; c < n; c++, c0++) column_prepare(*k, act_q32_at(gemm_x(g, c0), g->k), i0, col + c);
        for (int j = 0; j < n_tiles; j++) dots[n - 1](t + j, n_blocks, col, PANEL_ROWS, acc + TILE_ROWS * j, ahead);
        acc += n * PANEL_ROWS;
    }
}

/* What is asked for while a panel of n_tiles tiles is computed: as in gemm_k256.c. */
static struct vec_ahead after_panel(const struct gemm *g, const uint8_t *next, int n_tiles, int n_cols)
{
    const int n_groups = (n_cols + TILE_COLS - 1) / TILE_COLS;
    return vec_ahead_of(next, g->n_cols > AHEAD_COLS ? 0 : (size_t)(n_tiles * TILE_ROWS) * g->ld_w,
                        g->k / 32 * n_tiles * (2 + n_groups));
}

/* n_rows of up to PANEL_ROWS rows from r0 on with a panel of columns: 256 elements of all rows are unpacked, then every
 * column passes over them while they are in the first-level cache. */
static void tile_panel(const struct kind32 *k, const struct gemm *g, int r0, int n_rows, int c0, int n_cols,
                       struct tile32 *tiles, float *acc)
{
    const int n_blocks = g->k / 32, n_tiles = (n_rows + TILE_ROWS - 1) / TILE_ROWS, most = TILE_ROWS * n_tiles;
    tile_dot_fn *const *dots = tile_dots(*k);
    const uint8_t *row[PANEL_ROWS];
    struct vec_ahead ahead = after_panel(g, g->w + (size_t)(r0 + n_rows) * g->ld_w, n_tiles, n_cols);
    vec_rows(g->w + (size_t)r0 * g->ld_w, g->ld_w, n_rows, most, row);
    memset(acc, 0, (size_t)n_cols * PANEL_ROWS * sizeof *acc);
    for (int i = 0; i < n_blocks; i += 8) {
        int n = n_blocks - i < 8 ? n_blocks - i : 8;
        if (g->n_cols > AHEAD_COLS) /* the next blocks, or the next panel's first ones */
            vec_prefetch_rows(row, most, i + 8 < n_blocks ? bytes_of(*k, i + 8) : (size_t)most * g->ld_w,
                              bytes_of(*k, 8));
        for (int h = 0; h < 2 * n_tiles; h++)
            tile_load(k, row + 8 * h, (struct place32){g, r0 + 8 * h, r0 + n_rows - 1, i}, n, h % 2, tiles + h / 2,
                      &ahead);
        tile_columns(k, dots, g, c0, n_cols, i, n, tiles, n_tiles, acc, &ahead);
    }
}

static void gemm_tiles(const struct kind32 *k, const struct gemm *g, void *scratch)
{
    struct tile32 *tiles = scratch;
    float *acc = (float *)(tiles + PANEL_ROWS / TILE_ROWS); /* [PANEL_COLS][PANEL_ROWS] */
    const int panel_rows = g->n_cols < FEW_COLS ? PANEL_ROWS / 2 : PANEL_ROWS;
    for (int c0 = 0; c0 < g->n_cols; c0 += PANEL_COLS) {
        int n_cols = g->n_cols - c0 < PANEL_COLS ? g->n_cols - c0 : PANEL_COLS;
        for (int r0 = 0; r0 < g->n_rows; r0 += panel_rows) {
            int n_rows = g->n_rows - r0 < panel_rows ? g->n_rows - r0 : panel_rows;
            tile_panel(k, g, r0, n_rows, c0, n_cols, tiles, acc);
            vec_store_panel(acc, PANEL_ROWS, n_rows, n_cols, g->y + (size_t)c0 * g->ld_y + r0, g->ld_y);
        }
    }
}

_Static_assert(sizeof(struct tile32) * (PANEL_ROWS / TILE_ROWS) + sizeof(float) * PANEL_COLS * PANEL_ROWS <=
                   KERNEL_SCRATCH_BYTES,
               "the tiles and the accumulators of a panel fit the scratch memory");

/* ---- one function per type ---- */

#define GEMM(ID, name, ...)                                                                                            \
    static void gemm_##name(const struct gemm *g, void *scratch)                                                       \
    {                                                                                                                  \
        if (g->n_cols == 1)                                                                                            \
            avx2_rows32[DT_##ID](g, scratch);                                                                          \
        else                                                                                                           \
            gemm_tiles(&kind_##name, g, scratch);                                                                      \
    }
#define ENTRY(ID, name, ...) k->gemm[DT_##ID] = gemm_##name;

DTYPES_Q32(GEMM)

void AVX2_LEVEL(init_gemm_b32)(struct kernels *k) { DTYPES_Q32(ENTRY) }
