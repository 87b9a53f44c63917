/* SPDX-License-Identifier: MIT
 *
 * gemm_b32.c: matrix products with the types that have a float scale per 32 elements.
 *
 * The two loops of gemm_k256.c, with one float step per 32 instead of per 256: t = dw * S (+ m *
 * sum), acc = fma(d, t, acc), blocks ascending. Eight blocks of a row are taken together, so
 * that their lane sums share one transposed reduction (rows) or their codes one transpose (tile). A last
 * group of fewer than 8 is copied to a padded buffer first: nothing beyond the row is read.
 */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/unpack32.h"

#define SEGMENT     1024 /* blocks of a row whose t are in scratch at once */
#define STREAMS     4    /* rows read side by side */
#define TILE_ROWS   32   /* rows whose tiles are unpacked together */
#define PANEL_COLS  512  /* columns whose accumulators are in scratch at once */
#define AHEAD_L1    2304 /* bytes; measured */
#define AHEAD_L2    (48 << 10)
#define MAX_COLUMNS 3   /* of the rows shape */
#define MAX_BYTES   272 /* of 256 elements */

enum mode32 {
    SIGNED,  /* codes are signed */
    OFFSET,  /* codes have 1 << shift added */
    MINIMUM, /* codes are unsigned; the type has minimums */
    HALVED   /* signed, and each 16 have a scale */
};

struct kind32 {
    int block; /* elements of a stored block */
    int block_bytes;
    enum mode32 mode;
    int shift;
    int run; /* how many products of vpmaddubsw fit 16 bits together: 1, 4, 8 */
};

/* The reach of 16 bits is as in gemm_k256.c; 8 is all of a block. */
static const struct kind32 kind_q4_0 = {32, 18, OFFSET, 3, 8};
static const struct kind32 kind_q4_1 = {32, 20, MINIMUM, 0, 8};
static const struct kind32 kind_q5_0 = {32, 22, OFFSET, 4, 4};
static const struct kind32 kind_q5_1 = {32, 24, MINIMUM, 0, 4};
static const struct kind32 kind_q8_0 = {32, 34, SIGNED, 0, 1};
static const struct kind32 kind_iq4_nl = {32, 18, SIGNED, 0, 1};
static const struct kind32 kind_mxfp4 = {32, 17, OFFSET, 4, 4};
static const struct kind32 kind_nvfp4 = {64, 36, HALVED, 0, 4};
static const struct kind32 kind_q1_0 = {128, 18, OFFSET, 0, 8};
static const struct kind32 kind_q2_0 = {64, 18, OFFSET, 0, 8};

/* i16 sums of two neighbouring products. |code| <= 128, so abs() as unsigned bytes is right for -128 too. */
VEC_INLINE __m256i multiply(struct kind32 k, __m256i w, __m256i x)
{
    if (k.mode == SIGNED || k.mode == HALVED) return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_maddubs_epi16(w, x);
}

/* i16 pairs to dwords. */
VEC_INLINE __m256i widen(__m256i v) { return _mm256_madd_epi16(v, _mm256_set1_epi16(1)); }

/* Stored bytes of n_blocks * 32 elements. */
VEC_INLINE size_t bytes_of(struct kind32 k, int n_blocks)
{
    return (size_t)(n_blocks * 32 / k.block) * (size_t)k.block_bytes;
}

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
    __m256 t = _mm256_mul_ps(b->dw, _mm256_cvtepi32_ps(s));
    return k.mode == MINIMUM ? _mm256_fmadd_ps(b->m, _mm256_cvtepi32_ps(sums), t) : t;
}

/* The same for all columns; t of column c to t[c * 8 * SEGMENT]. */
VEC_INLINE void rows_group(struct kind32 k, unpack32_fn *unpack, int n_cols, int n, const uint8_t *w,
                           const struct act_q32 *x, int i0, float *t)
{
    struct blocks32 b;
    unpack(w, &b);
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
            if (n - i < 8) {
                uint8_t padded[MAX_BYTES] = {0};
                memcpy(padded, w, bytes_of(k, n - i));
                rows_group(k, unpack, n_cols, n - i, padded, x, i0 + i, p);
                continue;
            }
            for (size_t a = 0; a < bytes; a += 64) {
                vec_prefetch_l1(w, a + AHEAD_L1);
                vec_prefetch_l2(w, a + AHEAD_L2);
            }
            rows_group(k, unpack, n_cols, 8, w, x, i0 + i, p);
        }
    }
}

VEC_INLINE void gemm_rows(struct kind32 k, unpack32_fn *unpack, int n_cols, const struct gemm *g, float *t)
{
    int n_blocks = g->k / 32;
    struct act_q32 x[MAX_COLUMNS];
    for (int c = 0; c < n_cols; c++)
        x[c] = act_q32_at(g->x + (size_t)c * g->ld_x, g->k);
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

/* 256 elements of 8 rows; lanes = rows. */
struct tile32 {
    __m256i q[64];
    __m256 dw[8], dw1[8], m[8];
};

/* n_blocks <= 8 blocks of n <= 8 rows; rows that do not exist repeat the last, blocks that do not exist are zero. */
VEC_INLINE void tile_make(struct kind32 k, unpack32_fn *unpack, const uint8_t *w, size_t ld_w, int n, int n_blocks,
                          struct tile32 *t)
{
    __m256i q[8][8], dw[8], dw1[8], m[8];
    const uint8_t *bytes[8];
    for (int r = 0; r < 8; r++) {
        struct blocks32 b;
        const uint8_t *p = w + (size_t)(r < n ? r : n - 1) * ld_w;
        uint8_t padded[MAX_BYTES];
        if (n_blocks < 8) {
            memset(padded, 0, sizeof padded);
            p = memcpy(padded, p, bytes_of(k, n_blocks));
        }
        unpack(p, &b);
        for (int j = 0; j < 8; j++)
            q[r][j] = b.q[j];
        bytes[r] = (const uint8_t *)q[r];
        dw[r] = _mm256_castps_si256(b.dw);
        if (k.mode == HALVED) dw1[r] = _mm256_castps_si256(b.dw1);
        if (k.mode == MINIMUM) m[r] = _mm256_castps_si256(b.m);
    }
    for (int i = 0; i < 64; i += 4)
        vec_columns4(bytes, 4 * (size_t)i, t->q + i);
    vec_transpose8(dw);
    if (k.mode == HALVED) vec_transpose8(dw1);
    if (k.mode == MINIMUM) vec_transpose8(m);
    for (int j = 0; j < 8; j++) {
        t->dw[j] = _mm256_castsi256_ps(dw[j]);
        if (k.mode == HALVED) t->dw1[j] = _mm256_castsi256_ps(dw1[j]);
        if (k.mode == MINIMUM) t->m[j] = _mm256_castsi256_ps(m[j]);
    }
}

/* Dword sums of 4 * n bytes of each row with each column, from byte 4 * i on. */
VEC_INLINE void tile_sums(struct kind32 k, int n_cols, const struct tile32 *t, const int8_t *const *x, int i, int n,
                          __m256i *s)
{
    __m256i a[4];
    for (int c = 0; c < n_cols; c++)
        s[c] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int j = i; j < i + n; j += k.run) {
        for (int c = 0; c < n_cols; c++)
            a[c] = multiply(k, t->q[j], vec_splat32(x[c] + 4 * j));
#pragma GCC unroll 8
        for (int h = j + 1; h < j + k.run; h++)
            for (int c = 0; c < n_cols; c++)
                a[c] = _mm256_add_epi16(a[c], multiply(k, t->q[h], vec_splat32(x[c] + 4 * h)));
        for (int c = 0; c < n_cols; c++)
            s[c] = _mm256_add_epi32(s[c], widen(a[c]));
    }
}

/* One tile with n_cols columns: x[c] their codes from this tile's first block on, likewise sum and d; acc[c *
 * TILE_ROWS] their 8 accumulators. */
VEC_INLINE void tile_dot(struct kind32 k, int n_cols, const struct tile32 *t, int n_blocks, const int8_t *const *x,
                         const int32_t *const *sum, const float *const *d, float *acc)
{
    __m256 y[4];
    for (int c = 0; c < n_cols; c++)
        y[c] = _mm256_loadu_ps(acc + (size_t)c * TILE_ROWS);
    for (int b = 0; b < n_blocks; b++) {
        __m256i s[4], s1[4];
        tile_sums(k, n_cols, t, x, 8 * b, k.mode == HALVED ? 4 : 8, s);
        if (k.mode == HALVED) tile_sums(k, n_cols, t, x, 8 * b + 4, 4, s1);
        for (int c = 0; c < n_cols; c++) {
            __m256i sums = _mm256_set1_epi32(sum[c][b]);
            if (k.mode == OFFSET) s[c] = _mm256_sub_epi32(s[c], _mm256_slli_epi32(sums, k.shift));
            __m256 v = _mm256_mul_ps(t->dw[b], _mm256_cvtepi32_ps(s[c]));
            if (k.mode == HALVED) v = _mm256_fmadd_ps(t->dw1[b], _mm256_cvtepi32_ps(s1[c]), v);
            if (k.mode == MINIMUM) v = _mm256_fmadd_ps(t->m[b], _mm256_cvtepi32_ps(sums), v);
            y[c] = _mm256_fmadd_ps(_mm256_set1_ps(d[c][b]), v, y[c]);
        }
    }
    for (int c = 0; c < n_cols; c++)
        _mm256_storeu_ps(acc + (size_t)c * TILE_ROWS, y[c]);
}

/* n_tiles tiles with n_cols columns, blocks i0 ... i0 + n_blocks. */
VEC_INLINE void tile_columns(struct kind32 k, int n_cols, const struct gemm *g, const uint8_t *x0, int i0, int n_blocks,
                             const struct tile32 *t, int n_tiles, float *acc)
{
    const int8_t *x[4];
    const int32_t *sum[4];
    const float *d[4];
    for (int c = 0; c < n_cols; c++) {
        struct act_q32 a = act_q32_at(x0 + (size_t)c * g->ld_x, g->k);
        x[c] = a.q + (size_t)i0 * 32;
        sum[c] = a.sum + i0;
        d[c] = a.d + i0;
    }
    for (int j = 0; j < n_tiles; j++)
        tile_dot(k, n_cols, t + j, n_blocks, x, sum, d, acc + 8 * j);
}

/* Up to TILE_ROWS rows with a panel of columns: 256 elements of all rows are unpacked, then every column passes over
 * them, four columns at a time, while they are in the first-level cache. */
VEC_INLINE void tile_panel(struct kind32 k, unpack32_fn *unpack, const struct gemm *g, const uint8_t *w, int n_rows,
                           const uint8_t *x, int n_cols, struct tile32 *tiles, float *acc)
{
    int n_blocks = g->k / 32, n_tiles = (n_rows + 7) / 8;
    memset(acc, 0, (size_t)n_cols * TILE_ROWS * sizeof *acc);
    for (int i = 0; i < n_blocks; i += 8) {
        int n = n_blocks - i < 8 ? n_blocks - i : 8, c = 0;
        for (int j = 0; j < n_tiles; j++)
            tile_make(k, unpack, w + (size_t)(8 * j) * g->ld_w + bytes_of(k, i), g->ld_w,
                      n_rows - 8 * j < 8 ? n_rows - 8 * j : 8, n, tiles + j);
        for (; c + 4 <= n_cols; c += 4)
            tile_columns(k, 4, g, x + (size_t)c * g->ld_x, i, n, tiles, n_tiles, acc + (size_t)c * TILE_ROWS);
        for (; c < n_cols; c++)
            tile_columns(k, 1, g, x + (size_t)c * g->ld_x, i, n, tiles, n_tiles, acc + (size_t)c * TILE_ROWS);
    }
}

VEC_INLINE void gemm_tiles(struct kind32 k, unpack32_fn *unpack, const struct gemm *g, void *scratch)
{
    struct tile32 *tiles = scratch;
    float *acc = (float *)(tiles + TILE_ROWS / 8); /* [PANEL_COLS][TILE_ROWS] */
    for (int c0 = 0; c0 < g->n_cols; c0 += PANEL_COLS) {
        int n_cols = g->n_cols - c0 < PANEL_COLS ? g->n_cols - c0 : PANEL_COLS;
        for (int r0 = 0; r0 < g->n_rows; r0 += TILE_ROWS) {
            int n_rows = g->n_rows - r0 < TILE_ROWS ? g->n_rows - r0 : TILE_ROWS;
            tile_panel(k, unpack, g, g->w + (size_t)r0 * g->ld_w, n_rows, g->x + (size_t)c0 * g->ld_x, n_cols, tiles,
                       acc);
            vec_store_panel(acc, TILE_ROWS, n_rows, n_cols, g->y + (size_t)c0 * g->ld_y + r0, g->ld_y);
        }
    }
}

_Static_assert(sizeof(struct tile32) * (TILE_ROWS / 8) + sizeof(float) * PANEL_COLS * TILE_ROWS <= KERNEL_SCRATCH_BYTES,
               "the tiles and the accumulators of a panel fit the scratch memory");
_Static_assert(sizeof(float) * MAX_COLUMNS * 8 * SEGMENT <= KERNEL_SCRATCH_BYTES,
               "the t of 8 rows fit the scratch memory");

/* ---- one function per type ---- */

#define GEMM_B32(type)                                                                                                 \
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
        gemm_tiles(kind_##type, unpack32_##type, g, scratch);                                                          \
    }                                                                                                                  \
    static void gemm_##type##_q32_avx2(const struct gemm *g, void *scratch)                                            \
    {                                                                                                                  \
        static gemm_fn *const fn[] = {rows1_##type, rows2_##type, rows3_##type, tiles_##type};                         \
        fn[g->n_cols <= MAX_COLUMNS ? g->n_cols - 1 : MAX_COLUMNS](g, scratch);                                        \
    }

GEMM_B32(q4_0)
GEMM_B32(q4_1)
GEMM_B32(q5_0)
GEMM_B32(q5_1)
GEMM_B32(q8_0)
GEMM_B32(iq4_nl)
GEMM_B32(mxfp4)
GEMM_B32(nvfp4)
GEMM_B32(q1_0)
GEMM_B32(q2_0)

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
}
