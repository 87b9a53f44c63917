/* SPDX-License-Identifier: MIT
 *
 * gemm_k256.c: matrix products with the 256-element block types.
 *
 * Everything inside a block is exact integer arithmetic, so only the two float steps per block
 * have an order to keep: t = dw * S (- dmin * M), then acc = fma(d, t, acc) with blocks
 * ascending. Two shapes of loop do the same sums:
 *
 *   rows  for 1..3 columns: weights are streamed once, from four rows in turn, four blocks of
 *         each so that their sums across lanes share one reduction. The t of 8 rows go
 *         to scratch, and the ordered chain then runs with lanes = rows. Bound by memory, so it
 *         prefetches at two depths, across row ends.
 *   tile  for more columns: tile256.h. 64 rows (32 when columns are few) of one block meet every column, whose block
 *         is prepared and fetched once for them.
 *
 * Both are written once, over the type's unpack function and a struct kind256 of constants;
 * inlining makes a copy per type. Products are summed in 16 bits only as far as the largest
 * code times 127 allows (kind256.run). Handles no float weights and no 32-element blocks.
 */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/tile256.h"

#define SEGMENT     1024 /* blocks of a row whose t are in scratch at once */
#define STREAMS     4    /* rows read side by side: memory delivers more from several pages at once */
#define PANEL_ROWS  64   /* rows whose tiles are unpacked together, at most */
#define FEW_COLS    32   /* below, half as many: their tiles and the weights to come share the first cache */
#define PANEL_COLS  512  /* columns whose accumulators are in scratch at once */
#define AHEAD_L1    2304 /* bytes; measured */
#define AHEAD_L2    (48 << 10)
#define MAX_COLUMNS 3 /* of the rows shape */

/* How far 16 bits reach, per lane, with c the largest code: run products of 2 * c * 127 each.
 *   32  c <= 3: 24384   8  c <= 15: 30480   4  c <= 31: 31496   2  c <= 63: 32004   1  c <= 127: 32258
 * A run ends with the elements that share a scale. The offset codes of IQ2 reach 64 + 43, of IQ3_XXS
 * 64 + 62, of IQ3_S 16 + 15, of IQ1 16 + 9. */
static const struct kind256 kind_q2_k = {84, MINIMUM, 0, 4, 16, 3, 1};
static const struct kind256 kind_q3_k = {110, OFFSET, 2, 4, 16, 4, 1};
static const struct kind256 kind_q4_k = {144, MINIMUM, 0, 8, 32, 15, 1};
static const struct kind256 kind_q5_k = {176, MINIMUM, 0, 4, 32, 31, 1};
static const struct kind256 kind_q6_k = {210, OFFSET, 5, 2, 16, 32, 1};
static const struct kind256 kind_iq1_s = {50, OFFSET, 4, 4, 32, 9, 0.125f};
static const struct kind256 kind_iq1_m = {56, OFFSET, 4, 4, 16, 9, 0.125f};
static const struct kind256 kind_iq2_xxs = {66, OFFSET, 6, 1, 32, 43, 0.125f};
static const struct kind256 kind_iq2_xs = {74, OFFSET, 6, 1, 16, 43, 0.125f};
static const struct kind256 kind_iq2_s = {82, OFFSET, 6, 1, 16, 43, 0.125f};
static const struct kind256 kind_iq3_xxs = {98, OFFSET, 6, 1, 32, 62, 0.25f};
static const struct kind256 kind_iq3_s = {110, OFFSET, 4, 4, 32, 15, 1};
static const struct kind256 kind_iq4_xs = {136, SIGNED, 7, 1, 32, 127, 1};
static const struct kind256 kind_tq1_0 = {54, OFFSET, 0, 32, 256, 1, 1};
static const struct kind256 kind_tq2_0 = {66, OFFSET, 0, 32, 256, 2, 1};
static const struct kind256 kind_i2_s = {64, OFFSET, 0, 32, 256, 2, 1};

/* i16 sums of two neighbouring products: unsigned codes times signed activations, or, for signed codes, |w| times x
 * with the sign of w. */
VEC_INLINE __m256i multiply(struct kind256 k, __m256i w, __m256i x)
{
    if (k.mode == SIGNED) return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_maddubs_epi16(w, x);
}

/* f16 in the low halves of four dwords, as floats. */
VEC_INLINE __m128 low_halves(__m128i v)
{
    v = _mm_and_si128(v, _mm_set1_epi32(0xffff));
    return _mm_cvtph_ps(_mm_packus_epi32(v, v));
}

/* ---- rows ---- */

/* Dword lanes whose sum is S of one block with one column, *m lanes that sum to M. */
VEC_INLINE __m256i rows_dot(struct kind256 k, const struct block256 *b, const int8_t *x, const int16_t *bsum,
                            __m256i *m)
{
    /* Group g's scale is word g; register j needs word 2j in its low lane and 2j + 1 in its high lane. */
    const __m256i words =
        _mm256_setr_epi64x(0x0100010001000100, 0x0100010001000100, 0x0302030203020302, 0x0302030203020302);
    __m256i low = _mm256_permute2x128_si256(b->sc, b->sc, 0x00), high = _mm256_permute2x128_si256(b->sc, b->sc, 0x11);
    __m256i s = _mm256_setzero_si256();
    for (int j = 0; j < 8; j++) {
        __m256i at = _mm256_add_epi8(words, _mm256_set1_epi8((char)(j % 4 * 4)));
        __m256i scale = _mm256_shuffle_epi8(j < 4 ? low : high, at);
        s = _mm256_add_epi32(s, _mm256_madd_epi16(multiply(k, b->q[j], vec_load(x + 32 * j)), scale));
    }
    __m256i sums = vec_load(bsum);
    *m = _mm256_setzero_si256();
    if (k.mode == MINIMUM) *m = _mm256_madd_epi16(b->mn, sums);
    if (k.mode == OFFSET) s = _mm256_sub_epi32(s, _mm256_slli_epi32(_mm256_madd_epi16(b->sc, sums), k.shift));
    return s;
}

/* Near lines into the first level, far ones into the second: one depth alone leaves a sixth of the bandwidth. Lines
 * past the matrix are asked for too, which is harmless. */
VEC_INLINE void rows_prefetch(struct kind256 k, const uint8_t *w)
{
    for (size_t p = 0; p < 4 * k.bytes; p += 64) {
        vec_prefetch_l1(w, p + AHEAD_L1);
        vec_prefetch_l2(w, p + AHEAD_L2);
    }
}

/* t of four blocks from their sums: dw * S (- dmin * M), lanes = blocks. */
VEC_INLINE void rows_terms(struct kind256 k, const uint32_t *halves, __m128i s, __m128i m, float *t)
{
    __m128i h = _mm_setr_epi32((int)halves[0], (int)halves[1], (int)halves[2], (int)halves[3]);
    __m128 dw = low_halves(h);
    if (k.factor != 1) dw = _mm_mul_ps(dw, _mm_set1_ps(k.factor));
    __m128 v = _mm_mul_ps(dw, _mm_cvtepi32_ps(s));
    if (k.mode == MINIMUM) v = _mm_fnmadd_ps(low_halves(_mm_srli_epi32(h, 16)), _mm_cvtepi32_ps(m), v);
    _mm_storeu_ps(t, v);
}

/* t of n <= 4 blocks of one row from the i-th on, for each column; t of column c at t[c * 8 * SEGMENT]. */
VEC_INLINE void rows_group(struct kind256 k, unpack256_fn *unpack, int n_cols, int n, const uint8_t *w,
                           const struct act_q256 *x, int i, float *t)
{
    __m256i s[MAX_COLUMNS][4], m[MAX_COLUMNS][4];
    uint32_t halves[4] = {0};
    rows_prefetch(k, w);
    for (int u = 0; u < 4; u++) {
        if (u >= n) {
            for (int c = 0; c < n_cols; c++)
                s[c][u] = m[c][u] = _mm256_setzero_si256();
            continue;
        }
        struct block256 b;
        unpack(w + (size_t)u * k.bytes, &b);
        halves[u] = b.halves;
        for (int c = 0; c < n_cols; c++)
            s[c][u] = rows_dot(k, &b, x[c].q + (size_t)(i + u) * 256, x[c].bsum + (size_t)(i + u) * 16, &m[c][u]);
    }
    for (int c = 0; c < n_cols; c++)
        rows_terms(k, halves, vec_sum4(s[c]), vec_sum4(m[c]), t + (size_t)c * 8 * SEGMENT);
}

/* The same for four blocks of Q4_K or Q5_K: the 6-bit numbers of two blocks are taken apart together, and the scales
 * come back from memory as broadcasts, which cost no arithmetic port. */
VEC_INLINE void rows_group_6bit(struct kind256 k, unpack256_fn *unpack, int n_cols, const uint8_t *w,
                                const struct act_q256 *x, int i, float *t)
{
    uint32_t halves[4], scale[2][2][8]; /* [pair][scales 0-3, 4-7][4 of the first block, 4 of the second] */
    __m256i s[MAX_COLUMNS][4], min[2];
    for (int h = 0; h < 2; h++) {
        const uint8_t *p = w + 2 * (size_t)h * k.bytes;
        __m256i six = u256_six_bits(vec_pair(vec_load128(p), vec_load128(p + k.bytes)));
        __m256i words = _mm256_unpacklo_epi8(six, _mm256_setzero_si256());
        vec_store(scale[h][0], _mm256_unpacklo_epi16(words, words));
        vec_store(scale[h][1], _mm256_unpackhi_epi16(words, words));
        min[h] = _mm256_unpackhi_epi8(six, _mm256_setzero_si256());
    }
    rows_prefetch(k, w);
    for (int u = 0; u < 4; u++) {
        struct block256 b;
        unpack(w + (size_t)u * k.bytes, &b);
        halves[u] = b.halves;
        for (int c = 0; c < n_cols; c++) {
            const int8_t *q = x[c].q + (size_t)(i + u) * 256;
            s[c][u] = _mm256_setzero_si256();
            for (int j = 0; j < 8; j++) {
                __m256i p = _mm256_maddubs_epi16(b.q[j], vec_load(q + 32 * j));
                p = _mm256_madd_epi16(p, vec_splat32(&scale[u / 2][j / 4][u % 2 * 4 + j % 4]));
                s[c][u] = _mm256_add_epi32(s[c][u], p);
            }
        }
    }
    for (int c = 0; c < n_cols; c++) {
        const int16_t *bsum = x[c].bsum + (size_t)i * 16;
        __m256i m[2];
        for (int h = 0; h < 2; h++, bsum += 32) { /* 8 sums of 32 of each of two blocks */
            __m256i sums = _mm256_hadd_epi16(vec_load(bsum), vec_load(bsum + 16));
            m[h] = _mm256_madd_epi16(min[h], _mm256_permute4x64_epi64(sums, 0xd8));
        }
        __m256i v = _mm256_hadd_epi32(m[0], m[1]); /* blocks 0, 0, 2, 2 | 1, 1, 3, 3 */
        v = _mm256_hadd_epi32(v, v);
        __m128i all = _mm_unpacklo_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
        rows_terms(k, halves, vec_sum4(s[c]), all, t + (size_t)c * 8 * SEGMENT);
    }
}

/* n blocks from the i0-th on of n_rows rows, t of each row SEGMENT after that of the row before. */
VEC_INLINE void rows_streams(struct kind256 k, unpack256_fn *unpack, int n_cols, const struct gemm *g, int r0,
                             int n_rows, const struct act_q256 *x, int i0, int n, float *t)
{
    for (int i = 0; i < n; i += 4) {
        const uint8_t *w = g->w + (size_t)r0 * g->ld_w + (size_t)(i0 + i) * k.bytes;
        for (int r = 0; r < n_rows; r++, w += g->ld_w) {
            float *p = t + r * SEGMENT + i;
            if (n - i < 4)
                rows_group(k, unpack, n_cols, n - i, w, x, i0 + i, p);
            else if (k.mode == MINIMUM && k.group == 32)
                rows_group_6bit(k, unpack, n_cols, w, x, i0 + i, p);
            else
                rows_group(k, unpack, n_cols, 4, w, x, i0 + i, p);
        }
    }
}

VEC_INLINE void gemm_rows(struct kind256 k, unpack256_fn *unpack, int n_cols, const struct gemm *g, float *t)
{
    int n_blocks = g->k / 256;
    struct act_q256 x[MAX_COLUMNS];
    for (int c = 0; c < n_cols; c++)
        x[c] = act_q256_at(gemm_x(g, c), g->k);
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
_Static_assert(sizeof(float) * MAX_COLUMNS * 8 * SEGMENT <= KERNEL_SCRATCH_BYTES,
               "the t of 8 rows fit the scratch memory");

/* ---- one function per type ---- */

#define GEMM_K256(type, load)                                                                                          \
    static void rows1_##type(const struct gemm *g, void *scratch)                                                      \
    {                                                                                                                  \
        gemm_rows(kind_##type, unpack256_##type, 1, g, scratch);                                                       \
    }                                                                                                                  \
    static void rows2_##type(const struct gemm *g, void *scratch)                                                      \
    {                                                                                                                  \
        gemm_rows(kind_##type, unpack256_##type, 2, g, scratch);                                                       \
    }                                                                                                                  \
    static void rows3_##type(const struct gemm *g, void *scratch)                                                      \
    {                                                                                                                  \
        gemm_rows(kind_##type, unpack256_##type, 3, g, scratch);                                                       \
    }                                                                                                                  \
    static void tiles_##type(const struct gemm *g, void *scratch)                                                      \
    {                                                                                                                  \
        gemm_tiles(kind_##type, &kind_##type, load, unpack256_##type, g, scratch);                                     \
    }                                                                                                                  \
    static void gemm_##type##_q256_avx2(const struct gemm *g, void *scratch)                                           \
    {                                                                                                                  \
        static gemm_fn *const fn[] = {rows1_##type, rows2_##type, rows3_##type, tiles_##type};                         \
        fn[g->n_cols <= MAX_COLUMNS ? g->n_cols - 1 : MAX_COLUMNS](g, scratch);                                        \
    }

GEMM_K256(q2_k, tile_load_any)
GEMM_K256(q3_k, tile_load_any)
GEMM_K256(q4_k, tile_load_q4_k)
GEMM_K256(q5_k, tile_load_q5_k)
GEMM_K256(q6_k, tile_load_q6_k)
GEMM_K256(iq1_s, tile_load_any)
GEMM_K256(iq1_m, tile_load_any)
GEMM_K256(iq2_xxs, tile_load_any)
GEMM_K256(iq2_xs, tile_load_any)
GEMM_K256(iq2_s, tile_load_any)
GEMM_K256(iq3_xxs, tile_load_any)
GEMM_K256(iq3_s, tile_load_any)
GEMM_K256(iq4_xs, tile_load_any)
GEMM_K256(tq1_0, tile_load_any)
GEMM_K256(tq2_0, tile_load_any)
GEMM_K256(i2_s, tile_load_any)

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
