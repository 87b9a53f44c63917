/* SPDX-License-Identifier: MIT
 *
 * gemm_k256.c: matrix products with the 256-element block types.
 *
 * Everything inside a block is exact integer arithmetic, so only the two float steps per block
 * have an order to keep: t = dw * S (- dmin * M), then acc = fma(d, t, acc) with blocks
 * ascending. Two shapes of loop do the same sums:
 *
 *   rows  for few columns: rows256.c, the same for AVX2 with AVX-VNNI and without.
 *   tile  for more columns: tile256.h. 64 rows (32 when columns are few) of one block meet every column, whose block
 *         is prepared and fetched once for them.
 *
 * Both are written once, over the type's unpack function and a struct kind256 of constants;
 * inlining makes a copy per type. Handles no float weights and no 32-element blocks.
 */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/tile256.h"

#define PANEL_ROWS 64  /* rows whose tiles are unpacked together, at most */
#define FEW_COLS   32  /* below, half as many: their tiles and the weights to come share the first cache */
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
TILE_DOTS(offset_1_16, 1, 16, OFFSET)
TILE_DOTS(offset_2_16, 2, 16, OFFSET)
TILE_DOTS(offset_4_16, 4, 16, OFFSET)
TILE_DOTS(offset_1_32, 1, 32, OFFSET)
TILE_DOTS(offset_4_32, 4, 32, OFFSET)
TILE_DOTS(offset_32_256, 32, 256, OFFSET)
TILE_DOTS(signed_1_32, 1, 32, SIGNED)

VEC_INLINE tile_dot_fn *const *tile_dots(struct kind256 k)
{
    if (k.mode == SIGNED) return dots_signed_1_32;
    if (k.mode == MINIMUM) return k.group == 16 ? dots_minimum_4_16 : k.run == 4 ? dots_minimum_4_32 : dots_minimum_8_32;
    if (k.group == 16) return k.run == 1 ? dots_offset_1_16 : k.run == 2 ? dots_offset_2_16 : dots_offset_4_16;
    return k.group == 256 ? dots_offset_32_256 : k.run == 1 ? dots_offset_1_32 : dots_offset_4_32;
}
#endif

/* n_tiles tiles of block i with n_cols columns from c0 on, in equal groups of at most TILE_COLS. One column of a group
 * whose sums do not fit 16 bits makes the whole group take the wide way. */
static void tile_columns(const struct kind256 *k, tile_dot_fn *const *dots, const struct gemm *g, int c0,
                         int n_cols, int i, const struct tile256 *t, int n_tiles, float *acc)
{
    for (int left = n_cols, n; left > 0; left -= n) {
        struct column256 col[TILE_COLS];
        bool narrow = true;
        n = vec_even_part(left, TILE_COLS);
        for (int c = 0; c < n; c++, c0++) narrow &= column_prepare(*k, act_q256_at(gemm_x(g, c0), g->k), i, col + c);
        for (int c = 0; c < TILE_COLS && c < left - n; c++) /* the next group's: too far apart for the processor to foresee */
            for (size_t p = 0; p < 256; p += 64)
                vec_prefetch_l1(gemm_x(g, c0 + c), 256 * (size_t)i + p);
        for (int j = 0; j < n_tiles; j++)
            dots[n - 1](t + j, col, narrow, PANEL_ROWS, acc + TILE_ROWS * j);
        acc += n * PANEL_ROWS;
    }
}

VEC_INLINE void gemm_tiles(struct kind256 k, const struct kind256 *kind, tile_load_fn *load, unpack256_fn *unpack,
                           const struct gemm *g, void *scratch)
{
    struct tile256 *tiles = scratch;
    float *acc = (float *)(tiles + PANEL_ROWS / TILE_ROWS); /* [PANEL_COLS][PANEL_ROWS] */
    const int panel_rows = g->n_cols < FEW_COLS ? PANEL_ROWS / 2 : PANEL_ROWS;
    for (int c0 = 0; c0 < g->n_cols; c0 += PANEL_COLS) {
        int n_cols = g->n_cols - c0 < PANEL_COLS ? g->n_cols - c0 : PANEL_COLS;
        for (int r0 = 0; r0 < g->n_rows; r0 += panel_rows) {
            int n_rows = g->n_rows - r0 < panel_rows ? g->n_rows - r0 : panel_rows;
            int n_tiles = (n_rows + TILE_ROWS - 1) / TILE_ROWS;
            const uint8_t *row[PANEL_ROWS];
            vec_rows(g->w + (size_t)r0 * g->ld_w, g->ld_w, n_rows, panel_rows, row);
            memset(acc, 0, (size_t)n_cols * PANEL_ROWS * sizeof *acc);
            for (int i = 0; i < g->k / 256; i++) {
                /* the next block, or the next panel's first one */
                vec_prefetch_rows(row, panel_rows,
                                  i + 1 < g->k / 256 ? (size_t)(i + 1) * k.bytes : (size_t)panel_rows * g->ld_w, k.bytes);
                for (int h = 0; h < 2 * n_tiles; h++)
                    load(k, unpack, row + 8 * h, (size_t)i * k.bytes, h % 2, tiles + h / 2);
                tile_columns(kind, tile_dots(k), g, c0, n_cols, i, tiles, n_tiles, acc);
            }
            vec_store_panel(acc, PANEL_ROWS, n_rows, n_cols, g->y + (size_t)c0 * g->ld_y + r0, g->ld_y);
        }
    }
}

_Static_assert(sizeof(struct tile256) * (PANEL_ROWS / TILE_ROWS) + sizeof(float) * PANEL_COLS * PANEL_ROWS <=
                   KERNEL_SCRATCH_BYTES,
               "the tiles and the accumulators of a panel fit the scratch memory");

/* ---- one function per type ---- */

#define GEMM_K256(type, TYPE, load)                                                                                    \
    static void tiles_##type(const struct gemm *g, void *scratch)                                                      \
    {                                                                                                                  \
        gemm_tiles(kind_##type, &kind_##type, load, unpack256_##type, g, scratch);                                     \
    }                                                                                                                  \
    static void gemm_##type##_q256_avx2(const struct gemm *g, void *scratch)                                           \
    {                                                                                                                  \
        gemm_fn *fn = g->n_cols <= AVX2_ROWS_COLUMNS ? avx2_rows256[DT_##TYPE][g->n_cols - 1] : tiles_##type;          \
        fn(g, scratch);                                                                                                \
    }

GEMM_K256(q2_k, Q2_K, tile_load_any)
GEMM_K256(q3_k, Q3_K, tile_load_any)
GEMM_K256(q4_k, Q4_K, tile_load_q4_k)
GEMM_K256(q5_k, Q5_K, tile_load_q5_k)
GEMM_K256(q6_k, Q6_K, tile_load_q6_k)
GEMM_K256(iq1_s, IQ1_S, tile_load_any)
GEMM_K256(iq1_m, IQ1_M, tile_load_any)
GEMM_K256(iq2_xxs, IQ2_XXS, tile_load_any)
GEMM_K256(iq2_xs, IQ2_XS, tile_load_any)
GEMM_K256(iq2_s, IQ2_S, tile_load_any)
GEMM_K256(iq3_xxs, IQ3_XXS, tile_load_any)
GEMM_K256(iq3_s, IQ3_S, tile_load_any)
GEMM_K256(iq4_xs, IQ4_XS, tile_load_any)
GEMM_K256(tq1_0, TQ1_0, tile_load_any)
GEMM_K256(tq2_0, TQ2_0, tile_load_any)
GEMM_K256(i2_s, I2_S, tile_load_any)

void AVX2_LEVEL(init_gemm_k256)(struct kernels *k)
{
    k->gemm[DT_Q2_K] = gemm_q2_k_q256_avx2;
    k->gemm[DT_Q3_K] = gemm_q3_k_q256_avx2;
    k->gemm[DT_Q4_K] = gemm_q4_k_q256_avx2;
    k->gemm[DT_Q5_K] = gemm_q5_k_q256_avx2;
    k->gemm[DT_Q6_K] = gemm_q6_k_q256_avx2;
    k->gemm[DT_IQ1_S] = gemm_iq1_s_q256_avx2;
    k->gemm[DT_IQ1_M] = gemm_iq1_m_q256_avx2;
    k->gemm[DT_IQ2_XXS] = gemm_iq2_xxs_q256_avx2;
    k->gemm[DT_IQ2_XS] = gemm_iq2_xs_q256_avx2;
    k->gemm[DT_IQ2_S] = gemm_iq2_s_q256_avx2;
    k->gemm[DT_IQ3_XXS] = gemm_iq3_xxs_q256_avx2;
    k->gemm[DT_IQ3_S] = gemm_iq3_s_q256_avx2;
    k->gemm[DT_IQ4_XS] = gemm_iq4_xs_q256_avx2;
    k->gemm[DT_TQ1_0] = gemm_tq1_0_q256_avx2;
    k->gemm[DT_TQ2_0] = gemm_tq2_0_q256_avx2;
    k->gemm[DT_I2_S] = gemm_i2_s_q256_avx2;
}
