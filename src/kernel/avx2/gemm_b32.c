/* SPDX-License-Identifier: MIT
 *
 * gemm_b32.c: matrix products with the types that have a float scale per 32 elements.
 *
 * The two loops of gemm_k256.c, with one float step per 32 instead of per 256: t = dw * S (+ m *
 * sum), acc = fma(d, t, acc), blocks ascending. Eight blocks of a row are taken together, so
 * that their lane sums share one transposed reduction (rows) or a column's share of them is prepared at once (tile32.h).
 * A last group of fewer than 8 is copied to a padded buffer first where it is taken as a whole: nothing beyond the row
 * is read.
 */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/tile32.h"

#define SEGMENT     1024 /* blocks of a row whose t are in scratch at once */
#define STREAMS     4    /* rows read side by side */
#define PANEL_ROWS  64   /* rows whose tiles are unpacked together, at most */
#define FEW_COLS    32   /* below, half as many: as in gemm_k256.c */
#define PANEL_COLS  512  /* columns whose accumulators are in scratch at once */
#define AHEAD_L1    2304 /* bytes; measured */
#define AHEAD_L2    (48 << 10)
#define MAX_COLUMNS 3 /* of the rows shape */

/* The reach of 16 bits is as in gemm_k256.c; 8 is all of a block. */
static const struct kind32 kind_q4_0 = {32, 18, OFFSET, 3, 8, false};
static const struct kind32 kind_q4_1 = {32, 20, MINIMUM, 0, 8, false};
static const struct kind32 kind_q5_0 = {32, 22, OFFSET, 4, 4, false};
static const struct kind32 kind_q5_1 = {32, 24, MINIMUM, 0, 4, false};
static const struct kind32 kind_q8_0 = {32, 34, SIGNED, 7, 1, false};
static const struct kind32 kind_iq4_nl = {32, 18, SIGNED, 7, 1, false};
static const struct kind32 kind_mxfp4 = {32, 17, OFFSET, 4, 4, false};
static const struct kind32 kind_nvfp4 = {64, 36, HALVED, 0, 4, false};
static const struct kind32 kind_q1_0 = {128, 18, OFFSET, 0, 8, false};
static const struct kind32 kind_q2_0 = {64, 18, OFFSET, 0, 8, false};
static const struct kind32 kind_mlx2 = {32, 8, MINIMUM, 0, 8, true};
static const struct kind32 kind_mlx3 = {32, 12, MINIMUM, 0, 8, true};
static const struct kind32 kind_mlx4 = {32, 16, MINIMUM, 0, 8, true};
static const struct kind32 kind_mlx5 = {32, 20, MINIMUM, 0, 4, true};
static const struct kind32 kind_mlx6 = {32, 24, MINIMUM, 0, 2, true};
static const struct kind32 kind_mlx8 = {32, 32, BIASED, 7, 1, true};

/* i16 sums of two neighbouring products. |code| <= 128, so abs() as unsigned bytes is right for -128 too. */
VEC_INLINE __m256i multiply(struct kind32 k, __m256i w, __m256i x)
{
    if (k.mode == SIGNED || k.mode == HALVED || k.mode == BIASED)
        return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_maddubs_epi16(w, x);
}

/* i16 pairs to dwords. */
VEC_INLINE __m256i widen(__m256i v) { return _mm256_madd_epi16(v, _mm256_set1_epi16(1)); }

/* ---- rows ---- */

/* t of 8 blocks from the i0-th on, of which n exist, with one column. */
VEC_INLINE __m256 rows_dot(struct kind32 k, int n, const struct blocks32 *b, const struct act_q32 *x, int i0)
{
    __m256i v[8];
    for (int j = 0; j < 8; j++)
        v[j] = j < n ? multiply(k, b->q[j], vec_load(x->q + 32 * (size_t)(i0 + j))) : _mm256_setzero_si256();
    if (k.run < 8)
        for (int j = 0; j < 8; j++)
            v[j] = widen(v[j]);
    if (k.mode == HALVED) {
        __m256i a = vec_sum4_lanes(v), c = vec_sum4_lanes(v + 4); /* first halves in the low lanes */
        __m256 s0 = _mm256_cvtepi32_ps(_mm256_permute2x128_si256(a, c, 0x20));
        __m256 s1 = _mm256_cvtepi32_ps(_mm256_permute2x128_si256(a, c, 0x31));
        return _mm256_fmadd_ps(b->dw1, s1, _mm256_mul_ps(b->dw, s0));
    }
    __m256i s = k.run < 8 ? vec_sum8(v) : widen(vec_sum8_pairs16(v));
    __m256i sums = vec_load(x->sum + i0); /* of blocks that do not exist too: the array is padded */
    if (k.mode == OFFSET) s = _mm256_sub_epi32(s, _mm256_slli_epi32(sums, k.shift));
    if (k.mode == BIASED) s = _mm256_add_epi32(s, _mm256_slli_epi32(sums, k.shift));
    __m256 t = _mm256_mul_ps(b->dw, _mm256_cvtepi32_ps(s));
    return k.mode == MINIMUM || k.mode == BIASED ? _mm256_fmadd_ps(b->m, _mm256_cvtepi32_ps(sums), t) : t;
}

/* The same for all columns; t of column c to t[c * 8 * SEGMENT]. side: the row's. */
VEC_INLINE void rows_group(struct kind32 k, unpack32_fn *unpack, int n_cols, int n, const uint8_t *w,
                           const struct side *side, const struct act_q32 *x, int i0, float *t)
{
    struct blocks32 b;
    unpack(w, &b);
    if (k.has_side) u32_side(side, i0, n, &b);
    for (int c = 0; c < n_cols; c++)
        _mm256_storeu_ps(t + (size_t)c * 8 * SEGMENT, rows_dot(k, n, &b, x + c, i0));
}

/* n blocks from the i0-th on of n_rows rows, t of each row SEGMENT after that of the row before. */
VEC_INLINE void rows_streams(struct kind32 k, unpack32_fn *unpack, int n_cols, const struct gemm *g, int r0, int n_rows,
                             const struct act_q32 *x, int i0, int n, float *t)
{
    size_t bytes = bytes_of(k, 8);
    for (int i = 0; i < n; i += 8) {
        const uint8_t *w = g->w + (size_t)r0 * g->ld_w + bytes_of(k, i0 + i);
        for (int r = 0; r < n_rows; r++, w += g->ld_w) {
            float *p = t + r * SEGMENT + i;
            const struct side side = k.has_side ? side_from(g->side, g->k, r0 + r) : g->side;
            if (n - i < 8) {
                uint8_t padded[MAX_BYTES] = {0};
                memcpy(padded, w, bytes_of(k, n - i));
                rows_group(k, unpack, n_cols, n - i, padded, &side, x, i0 + i, p);
                continue;
            }
            for (size_t a = 0; a < bytes; a += 64) {
                vec_prefetch_l1(w, a + AHEAD_L1);
                vec_prefetch_l2(w, a + AHEAD_L2);
            }
            rows_group(k, unpack, n_cols, 8, w, &side, x, i0 + i, p);
        }
    }
}

VEC_INLINE void gemm_rows(struct kind32 k, unpack32_fn *unpack, int n_cols, const struct gemm *g, float *t)
{
    int n_blocks = g->k / 32;
    struct act_q32 x[MAX_COLUMNS];
    for (int c = 0; c < n_cols; c++)
        x[c] = act_q32_at(gemm_x(g, c), g->k);
    for (int r0 = 0; r0 < g->n_rows; r0 += 8) {
        int n_rows = g->n_rows - r0 < 8 ? g->n_rows - r0 : 8;
        __m256 acc[MAX_COLUMNS];
        for (int c = 0; c < n_cols; c++)
            acc[c] = _mm256_setzero_ps();
        for (int i0 = 0; i0 < n_blocks; i0 += SEGMENT) {
            int n = n_blocks - i0 < SEGMENT ? n_blocks - i0 : SEGMENT;
            for (int r = 0; r < n_rows; r += STREAMS)
                rows_streams(k, unpack, n_cols, g, r0 + r, n_rows - r < STREAMS ? n_rows - r : STREAMS, x, i0, n,
                             t + r * SEGMENT);
            for (int c = 0; c < n_cols; c++)
                acc[c] = vec_chain8(t + (size_t)c * 8 * SEGMENT, SEGMENT, x[c].d + i0, n, acc[c]);
        }
        for (int c = 0; c < n_cols; c++)
            vec_store_n(g->y + (size_t)c * g->ld_y + r0, acc[c], n_rows);
    }
}

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
static void tile_columns(const struct kind32 *k, tile_dot_fn *const *dots, const struct gemm *g, int c0,
                         int n_cols, int i0, int n_blocks, const struct tile32 *t, int n_tiles, float *acc)
{
    for (int left = n_cols, n; left > 0; left -= n) {
        struct column32 col[TILE_COLS];
        n = vec_even_part(left, TILE_COLS);
        for (int c = 0; c < n; c++, c0++) column_prepare(*k, act_q32_at(gemm_x(g, c0), g->k), i0, col + c);
        for (int j = 0; j < n_tiles; j++)
            dots[n - 1](t + j, n_blocks, col, PANEL_ROWS, acc + TILE_ROWS * j);
        acc += n * PANEL_ROWS;
    }
}

/* n_rows of up to PANEL_ROWS rows from r0 on with a panel of columns: 256 elements of all rows are unpacked, then every column
 * passes over them while they are in the first-level cache. */
VEC_INLINE void tile_panel(struct kind32 k, const struct kind32 *kind, tile_load_fn *load, unpack32_fn *unpack,
                           const struct gemm *g, int r0, int n_rows, int c0, int n_cols, struct tile32 *tiles,
                           float *acc)
{
    const int n_blocks = g->k / 32, n_tiles = (n_rows + TILE_ROWS - 1) / TILE_ROWS, most = TILE_ROWS * n_tiles;
    const uint8_t *row[PANEL_ROWS];
    vec_rows(g->w + (size_t)r0 * g->ld_w, g->ld_w, n_rows, most, row);
    memset(acc, 0, (size_t)n_cols * PANEL_ROWS * sizeof *acc);
    for (int i = 0; i < n_blocks; i += 8) {
        int n = n_blocks - i < 8 ? n_blocks - i : 8;
        size_t ahead = i + 8 < n_blocks ? bytes_of(k, i + 8) : (size_t)most * g->ld_w;
        vec_prefetch_rows(row, most, ahead, bytes_of(k, 8));
        for (int h = 0; h < 2 * n_tiles; h++)
            load(k, unpack, row + 8 * h, (struct place32){g, r0 + 8 * h, r0 + n_rows - 1, i}, n, h % 2, tiles + h / 2);
        tile_columns(kind, tile_dots(k), g, c0, n_cols, i, n, tiles, n_tiles, acc);
    }
}

VEC_INLINE void gemm_tiles(struct kind32 k, const struct kind32 *kind, tile_load_fn *load, unpack32_fn *unpack,
                           const struct gemm *g, void *scratch)
{
    struct tile32 *tiles = scratch;
    float *acc = (float *)(tiles + PANEL_ROWS / TILE_ROWS); /* [PANEL_COLS][PANEL_ROWS] */
    const int panel_rows = g->n_cols < FEW_COLS ? PANEL_ROWS / 2 : PANEL_ROWS;
    for (int c0 = 0; c0 < g->n_cols; c0 += PANEL_COLS) {
        int n_cols = g->n_cols - c0 < PANEL_COLS ? g->n_cols - c0 : PANEL_COLS;
        for (int r0 = 0; r0 < g->n_rows; r0 += panel_rows) {
            int n_rows = g->n_rows - r0 < panel_rows ? g->n_rows - r0 : panel_rows;
            tile_panel(k, kind, load, unpack, g, r0, n_rows, c0, n_cols, tiles, acc);
            vec_store_panel(acc, PANEL_ROWS, n_rows, n_cols, g->y + (size_t)c0 * g->ld_y + r0, g->ld_y);
        }
    }
}

_Static_assert(sizeof(struct tile32) * (PANEL_ROWS / TILE_ROWS) + sizeof(float) * PANEL_COLS * PANEL_ROWS <=
                   KERNEL_SCRATCH_BYTES,
               "the tiles and the accumulators of a panel fit the scratch memory");
_Static_assert(sizeof(float) * MAX_COLUMNS * 8 * SEGMENT <= KERNEL_SCRATCH_BYTES,
               "the t of 8 rows fit the scratch memory");

/* ---- one function per type ---- */

#define GEMM_B32(type, load)                                                                                           \
    static void rows1_##type(const struct gemm *g, void *scratch)                                                      \
    {                                                                                                                  \
        gemm_rows(kind_##type, unpack32_##type, 1, g, scratch);                                                        \
    }                                                                                                                  \
    static void rows2_##type(const struct gemm *g, void *scratch)                                                      \
    {                                                                                                                  \
        gemm_rows(kind_##type, unpack32_##type, 2, g, scratch);                                                        \
    }                                                                                                                  \
    static void rows3_##type(const struct gemm *g, void *scratch)                                                      \
    {                                                                                                                  \
        gemm_rows(kind_##type, unpack32_##type, 3, g, scratch);                                                        \
    }                                                                                                                  \
    static void tiles_##type(const struct gemm *g, void *scratch)                                                      \
    {                                                                                                                  \
        gemm_tiles(kind_##type, &kind_##type, load, unpack32_##type, g, scratch);                                      \
    }                                                                                                                  \
    static void gemm_##type##_q32_avx2(const struct gemm *g, void *scratch)                                            \
    {                                                                                                                  \
        static gemm_fn *const fn[] = {rows1_##type, rows2_##type, rows3_##type, tiles_##type};                         \
        fn[g->n_cols <= MAX_COLUMNS ? g->n_cols - 1 : MAX_COLUMNS](g, scratch);                                        \
    }

GEMM_B32(q4_0, tile_load_q4_0)
GEMM_B32(q4_1, tile_load_any)
GEMM_B32(q5_0, tile_load_any)
GEMM_B32(q5_1, tile_load_any)
GEMM_B32(q8_0, tile_load_q8_0)
GEMM_B32(iq4_nl, tile_load_any)
GEMM_B32(mxfp4, tile_load_any)
GEMM_B32(nvfp4, tile_load_any)
GEMM_B32(q1_0, tile_load_any)
GEMM_B32(q2_0, tile_load_any)
GEMM_B32(mlx2, tile_load_any)
GEMM_B32(mlx3, tile_load_any)
GEMM_B32(mlx4, tile_load_any)
GEMM_B32(mlx5, tile_load_any)
GEMM_B32(mlx6, tile_load_any)
GEMM_B32(mlx8, tile_load_any)

void AVX2_LEVEL(init_gemm_b32)(struct kernels *k)
{
    k->gemm[DT_Q4_0] = gemm_q4_0_q32_avx2;
    k->gemm[DT_Q4_1] = gemm_q4_1_q32_avx2;
    k->gemm[DT_Q5_0] = gemm_q5_0_q32_avx2;
    k->gemm[DT_Q5_1] = gemm_q5_1_q32_avx2;
    k->gemm[DT_Q8_0] = gemm_q8_0_q32_avx2;
    k->gemm[DT_IQ4_NL] = gemm_iq4_nl_q32_avx2;
    k->gemm[DT_MXFP4] = gemm_mxfp4_q32_avx2;
    k->gemm[DT_NVFP4] = gemm_nvfp4_q32_avx2;
    k->gemm[DT_Q1_0] = gemm_q1_0_q32_avx2;
    k->gemm[DT_Q2_0] = gemm_q2_0_q32_avx2;
    k->gemm[DT_MLX2] = gemm_mlx2_q32_avx2;
    k->gemm[DT_MLX3] = gemm_mlx3_q32_avx2;
    k->gemm[DT_MLX4] = gemm_mlx4_q32_avx2;
    k->gemm[DT_MLX5] = gemm_mlx5_q32_avx2;
    k->gemm[DT_MLX6] = gemm_mlx6_q32_avx2;
    k->gemm[DT_MLX8] = gemm_mlx8_q32_avx2;
}
