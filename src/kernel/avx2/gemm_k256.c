/* SPDX-License-Identifier: MIT
 *
 * gemm_k256.c: matrix products with the 256-element block types.
 *
 * Everything inside a block is exact integer arithmetic, so only the two float steps per block
 * have an order to keep: t = dw * S (- dmin * M), then acc = fma(d, t, acc) with blocks
 * ascending. Two shapes of loop do the same sums:
 *
 *   rows  for one column: gemm_k256_one.c, the same for AVX2 with AVX-VNNI and without.
 *   tile  for more columns: tile256.h. One block of 64 rows (32 when columns are few) is multiplied with every
 *         column, whose block is prepared and fetched once for them.
 *
 * Types share both as far as that costs no speed; a struct kind256 says how they differ. Handles no float weights and
 * no 32-element blocks.
 */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/tile256.h"

#define PANEL_ROWS 64  /* rows whose tiles are unpacked together, at most */
#define FEW_COLS   32  /* below, half as many: their tiles and the weights to come share the first cache */
#define AHEAD_COLS 32  /* up to so many wait for memory: what is asked for is the next panel, as it lies there */
#define PANEL_COLS 512 /* columns whose accumulators are in scratch at once */

/* ---- tile ---- */

/* The products of a kind, for 1 .. TILE_COLS columns. With AVX-VNNI a run is a whole group, and signed codes have an
 * offset, too. */
#if DOT_VNNI
TILE_DOTS(minimum_16, 4, 16, MINIMUM)
TILE_DOTS(minimum_32, 8, 32, MINIMUM)
TILE_DOTS(offset_16, 4, 16, OFFSET)
TILE_DOTS(offset_32, 8, 32, OFFSET)
TILE_DOTS(offset_256, 64, 256, OFFSET)

VEC_INLINE tile_dot_fn *const *tile_dots(struct kind256 k)
{
    if (k.mode == MINIMUM) return k.group == 16 ? dots_minimum_16 : dots_minimum_32;
    return k.group == 16 ? dots_offset_16 : k.group == 32 ? dots_offset_32 : dots_offset_256;
}
#else
TILE_DOTS(minimum_4_16, 4, 16, MINIMUM)
TILE_DOTS(minimum_4_32, 4, 32, MINIMUM)
TILE_DOTS(minimum_8_32, 8, 32, MINIMUM)
TILE_DOTS(offset_2_16, 2, 16, OFFSET)
TILE_DOTS(offset_4_16, 4, 16, OFFSET)
TILE_DOTS(offset_2_32, 2, 32, OFFSET)
TILE_DOTS(offset_8_32, 8, 32, OFFSET)
TILE_DOTS(offset_32_256, 32, 256, OFFSET)
TILE_DOTS(signed_1_32, 1, 32, SIGNED)

VEC_INLINE tile_dot_fn *const *tile_dots(struct kind256 k)
{
    if (k.mode == SIGNED) return dots_signed_1_32;
    if (k.mode == MINIMUM)
        return k.group == 16 ? dots_minimum_4_16 : k.run == 4 ? dots_minimum_4_32 : dots_minimum_8_32;
    if (k.group == 16) return k.run == 2 ? dots_offset_2_16 : dots_offset_4_16;
    return k.group == 256 ? dots_offset_32_256 : k.run == 2 ? dots_offset_2_32 : dots_offset_8_32;
}
#endif

/* n_tiles tiles of block i with n_cols columns from c0 on, in equal groups of at most TILE_COLS. One column of a group
 * whose sums do not fit 16 bits makes the whole group take the wide way. */
static void tile_columns(const struct kind256 *k, tile_dot_fn *const *dots, const struct gemm *g, int c0, int n_cols,
                         int i, const struct tile256 *t, int n_tiles, float *acc, struct vec_ahead *ahead)
{
    for (int left = n_cols, n; left > 0; left -= n) {
        struct column256 col[TILE_COLS];
        bool narrow = true;
        n = vec_even_part(left, TILE_COLS);
        for (int c = 0; c < n; c++, c0++) narrow &= column_prepare(*k, act_q256_at(gemm_x(g, c0), g->k), i, col + c);
        for (int c = 0; c < TILE_COLS && c < left - n;
             c++) /* the next group's: too far apart for the processor to foresee */
            for (size_t p = 0; p < 256; p += 64) vec_prefetch_l1(gemm_x(g, c0 + c), 256 * (size_t)i + p);
        for (int j = 0; j < n_tiles; j++) dots[n - 1](t + j, col, narrow, PANEL_ROWS, acc + TILE_ROWS * j, ahead);
        acc += n * PANEL_ROWS;
    }
}

/* What is asked for while a panel of n_tiles tiles is computed: the rows after it, if columns are few. */
static struct vec_ahead after_panel(const struct kind256 *k, const struct gemm *g, const uint8_t *next, int n_tiles,
                                    int n_cols)
{
    const int n_groups = (n_cols + TILE_COLS - 1) / TILE_COLS, run = DOT_VNNI ? k->group / 4 : k->run;
    const int n_steps = g->k / 256 * n_tiles * (2 * LOAD_STEPS + n_groups * 64 / run);
    return vec_ahead_of(next, g->n_cols > AHEAD_COLS ? 0 : (size_t)(n_tiles * TILE_ROWS) * g->ld_w, n_steps);
}

/* n_rows of up to panel_rows rows from r0 on with a panel of columns. */
static void tile_panel(const struct kind256 *k, const struct gemm *g, int r0, int n_rows, int panel_rows, int c0,
                       int n_cols, struct tile256 *tiles, float *acc)
{
    const int n_blocks = g->k / 256, n_tiles = (n_rows + TILE_ROWS - 1) / TILE_ROWS;
    const uint8_t *row[PANEL_ROWS];
    tile_dot_fn *const *dots = tile_dots(*k);
    struct vec_ahead ahead = after_panel(k, g, g->w + (size_t)(r0 + n_rows) * g->ld_w, n_tiles, n_cols);
    vec_rows(g->w + (size_t)r0 * g->ld_w, g->ld_w, n_rows, panel_rows, row);
    memset(acc, 0, (size_t)n_cols * PANEL_ROWS * sizeof *acc);
    for (int i = 0; i < n_blocks; i++) {
        if (g->n_cols > AHEAD_COLS) /* the next block, or the next panel's first one */
            vec_prefetch_rows(row, panel_rows,
                              i + 1 < n_blocks ? (size_t)(i + 1) * k->bytes : (size_t)panel_rows * g->ld_w, k->bytes);
        for (int h = 0; h < 2 * n_tiles; h++)
            tile_load(k, row + 8 * h, (size_t)i * k->bytes, h % 2, tiles + h / 2, &ahead);
        tile_columns(k, dots, g, c0, n_cols, i, tiles, n_tiles, acc, &ahead);
    }
}

static void gemm_tiles(const struct kind256 *k, const struct gemm *g, void *scratch)
{
    struct tile256 *tiles = scratch;
    float *acc = (float *)(tiles + PANEL_ROWS / TILE_ROWS); /* [PANEL_COLS][PANEL_ROWS] */
    const int panel_rows = g->n_cols < FEW_COLS ? PANEL_ROWS / 2 : PANEL_ROWS;
    for (int c0 = 0; c0 < g->n_cols; c0 += PANEL_COLS) {
        int n_cols = g->n_cols - c0 < PANEL_COLS ? g->n_cols - c0 : PANEL_COLS;
        for (int r0 = 0; r0 < g->n_rows; r0 += panel_rows) {
            int n_rows = g->n_rows - r0 < panel_rows ? g->n_rows - r0 : panel_rows;
            tile_panel(k, g, r0, n_rows, panel_rows, c0, n_cols, tiles, acc);
            vec_store_panel(acc, PANEL_ROWS, n_rows, n_cols, g->y + (size_t)c0 * g->ld_y + r0, g->ld_y);
        }
    }
}

_Static_assert(sizeof(struct tile256) * (PANEL_ROWS / TILE_ROWS) + sizeof(float) * PANEL_COLS * PANEL_ROWS <=
                   KERNEL_SCRATCH_BYTES,
               "the tiles and the accumulators of a panel fit the scratch memory");

/* ---- one function per type ---- */

#define GEMM(ID, name, ...)                                                                                            \
    static void gemm_##name(const struct gemm *g, void *scratch)                                                       \
    {                                                                                                                  \
        if (g->n_cols == 1)                                                                                            \
            avx2_rows256[DT_##ID](g, scratch);                                                                         \
        else                                                                                                           \
            gemm_tiles(&kind_##name, g, scratch);                                                                      \
    }
#define ENTRY(ID, name, ...) k->gemm[DT_##ID] = gemm_##name;

DTYPES_K256(GEMM)

void AVX2_LEVEL(init_gemm_k256)(struct kernels *k) { DTYPES_K256(ENTRY) }
