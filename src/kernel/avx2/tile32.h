/* SPDX-License-Identifier: MIT
 *
 * tile32.h: products of 16 rows with many columns, for the types that have a float scale per 32 elements.
 *
 * The tile of tile256.h with a float step per 32 elements: eight blocks of 16 rows become registers of 8 rows x 4 k,
 * two of them side by side against up to TILE_COLS columns. What codes have been offset by is taken out of the
 * integer sums with column32.start. Blocks beyond a row's end are neither made nor used.
 */
#ifndef QUERN_KERNEL_AVX2_TILE32_H
#define QUERN_KERNEL_AVX2_TILE32_H

#include "kernel/avx2/dot.h"
#include "kernel/avx2/kind32.h"
#include "kernel/kernel.h"

#define TILE_ROWS 16
#define TILE_COLS 4

/* Where half a tile comes from, for the scales in other tensors: the first of its 8 rows, the last row of the panel,
 * and the first block. */
struct place32 {
    const struct gemm *g;
    int row, last, block;
};

/* 256 elements of 16 rows; halves of the rows as in tile256.h. */
struct tile32 {
    __m256i q[64][2];
    __m256 dw[8][2], dw1[8][2], m[8][2];
};

/* 256 elements of a column. */
struct column32 {
    const int8_t *q;
    const float *d;
    const int32_t *sum;
    int32_t start[8]; /* -offset * sum */
};

typedef void tile_dot_fn(const struct tile32 *t, int n_blocks, const struct column32 *x, size_t ld_acc, float *acc,
                         struct vec_ahead *ahead);

/* ---- 256 elements of 16 rows ---- */

/* 8 rows' floats of 8 blocks, lanes = rows. */
VEC_INLINE void tile_floats(const __m256 *from, int h, __m256 (*to)[2])
{
    __m256i v[8];
    for (int r = 0; r < 8; r++) v[r] = _mm256_castps_si256(from[r]);
    vec_transpose8(v);
    for (int j = 0; j < 8; j++) to[j][h] = _mm256_castsi256_ps(v[j]);
}

/* Any type: unpacked row by row, then transposed. */
static void tile_load_any(const struct kind32 *k, const uint8_t *const *row, struct place32 from, int n_blocks, int h,
                          struct tile32 *t, struct vec_ahead *ahead)
{
    const __m256i flip = _mm256_set1_epi8((k->mode == SIGNED || k->mode == BIASED) && DOT_VNNI ? -128 : 0);
    size_t at = bytes_of(*k, from.block);
    __m256 dw[8], dw1[8], m[8];
    struct blocks32 b[8];
    const uint8_t *bytes[8];
    uint8_t padded[8][MAX_BYTES];
    if (n_blocks < 8) {
        memset(padded, 0, sizeof padded);
        for (int r = 0; r < 8; r++) bytes[r] = memcpy(padded[r], row[r] + at, bytes_of(*k, n_blocks));
        row = bytes;
        at = 0;
    }
    avx2_unpack32[k->type](row, at, 8, b);
    for (int r = 0; r < 8; r++) {
        if (k->has_side) {
            int last = from.row + r < from.last ? from.row + r : from.last;
            struct side side = side_from(from.g->side, from.g->k, last);
            u32_side(&side, from.block, n_blocks, b + r);
        }
        bytes[r] = (const uint8_t *)b[r].q;
        dw[r] = b[r].dw;
        if (k->mode == HALVED) dw1[r] = b[r].dw1;
        if (k->mode == MINIMUM || k->mode == BIASED) m[r] = b[r].m;
    }
    for (int i = 0; i < 64; i += 4) {
        __m256i v[4];
        vec_columns4(bytes, 4 * (size_t)i, v);
        for (int j = 0; j < 4; j++) t->q[i + j][h] = _mm256_xor_si256(v[j], flip);
        if (i % 8 == 0) vec_ahead_step(ahead);
    }
    tile_floats(dw, h, t->dw);
    if (k->mode == HALVED) tile_floats(dw1, h, t->dw1);
    if (k->mode == MINIMUM || k->mode == BIASED) tile_floats(m, h, t->m);
}

/* The f16 at byte `at` of 8 rows. */
VEC_INLINE __m256 tile_f16(const uint8_t *const *row, size_t at)
{
    return _mm256_cvtph_ps(_mm_setr_epi16((short)vec_u16(row[0] + at), (short)vec_u16(row[1] + at),
                                          (short)vec_u16(row[2] + at), (short)vec_u16(row[3] + at),
                                          (short)vec_u16(row[4] + at), (short)vec_u16(row[5] + at),
                                          (short)vec_u16(row[6] + at), (short)vec_u16(row[7] + at)));
}

/* The exponents at byte `at` of 8 rows, as half their powers of two. */
VEC_INLINE __m256 tile_e8m0_half(const uint8_t *const *row, size_t at)
{
    return u32_e8m0_half(_mm256_setr_epi32(row[0][at], row[1][at], row[2][at], row[3][at], row[4][at], row[5][at],
                                           row[6][at], row[7][at]));
}

/* Types of nibbles and bytes in the order they are used in, transposed as stored. */

/* 16 bytes after n_floats bytes: the low nibbles, then the high ones. Each stands for a code in the table, if there is
 * one. */
VEC_INLINE void tile_load_nibbles(struct kind32 k, size_t n_floats, bool has_table, __m256i table,
                                  const uint8_t *const *row, struct place32 from, int n_blocks, int h, struct tile32 *t,
                                  struct vec_ahead *ahead)
{
    size_t at = bytes_of(k, from.block);
    for (int b = 0; b < n_blocks; b++, at += (size_t)k.block_bytes) {
        __m256i v[4];
        vec_columns4(row, at + n_floats, v);
        vec_ahead_step(ahead);
        t->dw[b][h] = n_floats == 1 ? tile_e8m0_half(row, at) : tile_f16(row, at);
        if (k.mode == MINIMUM) t->m[b][h] = tile_f16(row, at + 2);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            __m256i low = _mm256_and_si256(v[j], _mm256_set1_epi8(15));
            __m256i high = _mm256_and_si256(_mm256_srli_epi16(v[j], 4), _mm256_set1_epi8(15));
            t->q[8 * b + j][h] = has_table ? _mm256_shuffle_epi8(table, low) : low;
            t->q[8 * b + 4 + j][h] = has_table ? _mm256_shuffle_epi8(table, high) : high;
        }
    }
}

VEC_INLINE void tile_load_q8_0(struct kind32 k, const uint8_t *const *row, struct place32 from, int n_blocks, int h,
                               struct tile32 *t, struct vec_ahead *ahead)
{
    size_t at = bytes_of(k, from.block);
    const __m256i flip = _mm256_set1_epi8(DOT_VNNI ? -128 : 0);
    for (int b = 0; b < n_blocks; b++, at += (size_t)k.block_bytes) {
        t->dw[b][h] = tile_f16(row, at);
        vec_ahead_step(ahead);
#pragma GCC unroll 2
        for (int i = 0; i < 8; i += 4) {
            __m256i v[4];
            vec_columns4(row, at + 2 + 4 * (size_t)i, v);
            for (int j = 0; j < 4; j++) t->q[8 * b + i + j][h] = _mm256_xor_si256(v[j], flip);
        }
    }
}

/* Fills half h of a tile from n_blocks <= 8 blocks of 8 rows, in a step for each block, or 8. */
VEC_INLINE void tile_load(const struct kind32 *k, const uint8_t *const *row, struct place32 from, int n_blocks, int h,
                          struct tile32 *t, struct vec_ahead *ahead)
{
    const __m256i none = _mm256_setzero_si256(), flip = _mm256_set1_epi8(DOT_VNNI ? -128 : 0);
    if (k->type == DT_Q4_0)
        tile_load_nibbles(kind_q4_0, 2, false, none, row, from, n_blocks, h, t, ahead);
    else if (k->type == DT_Q4_1)
        tile_load_nibbles(kind_q4_1, 4, false, none, row, from, n_blocks, h, t, ahead);
    else if (k->type == DT_IQ4_NL)
        tile_load_nibbles(kind_iq4_nl, 2, true, _mm256_xor_si256(u32_iq4_table(), flip), row, from, n_blocks, h, t,
                          ahead);
    else if (k->type == DT_MXFP4)
        tile_load_nibbles(kind_mxfp4, 1, true, u32_mxfp4_table(), row, from, n_blocks, h, t, ahead);
    else if (k->type == DT_Q8_0)
        tile_load_q8_0(kind_q8_0, row, from, n_blocks, h, t, ahead);
    else
        tile_load_any(k, row, from, n_blocks, h, t, ahead);
}

/* ---- 256 elements of a column ---- */

VEC_INLINE void column_prepare(struct kind32 k, struct act_q32 x, int i0, struct column32 *c)
{
    c->q = x.q + 32 * (size_t)i0;
    c->d = x.d + i0;
    c->sum = x.sum + i0;
    /* of blocks that do not exist, too: the array is padded */
    __m256i s = _mm256_slli_epi32(vec_load(c->sum), k.shift);
    vec_store(c->start, _mm256_sub_epi32(_mm256_setzero_si256(), s));
}

/* ---- products ---- */

/* Codes 4j .. 4j + 3 times columns into a. */
VEC_INLINE void tile_step(int n_cols, enum mode32 mode, bool first, int j, const struct tile32 *t,
                          const struct column32 *x, __m256i a[TILE_COLS][2])
{
#pragma GCC unroll 4
    for (int c = 0; c < n_cols; c++) {
        __m256i v = vec_splat32(x[c].q + 4 * j);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256i w = t->q[j][h], u = v;
            if (mode == SIGNED || mode == HALVED ||
                mode == BIASED) { /* |code| <= 128: right as an unsigned byte for -128 too */
                u = _mm256_sign_epi8(v, w);
                w = _mm256_abs_epi8(w);
            }
            a[c][h] = first ? dot_first(w, u) : dot_add(a[c][h], w, u);
        }
    }
}

/* Dword sums of n registers of codes, from the i-th on, with each column. */
VEC_INLINE void tile_sums(int n_cols, enum mode32 mode, int run, const struct tile32 *t, const struct column32 *x,
                          int i, int n, __m256i s[TILE_COLS][2])
{
#pragma GCC unroll 8
    for (int j = 0; j < n; j += run) {
        __m256i a[TILE_COLS][2];
        tile_step(n_cols, mode, true, i + j, t, x, a);
#pragma GCC unroll 8
        for (int l = 1; l < run; l++) tile_step(n_cols, mode, false, i + j + l, t, x, a);
        for (int c = 0; c < n_cols; c++)
            for (int h = 0; h < 2; h++)
                s[c][h] = j > 0 ? _mm256_add_epi32(s[c][h], dot_dwords(a[c][h])) : dot_dwords(a[c][h]);
    }
}

/* One tile with n_cols columns; acc[c * ld_acc] the 16 accumulators of column c. */
VEC_INLINE void tile_dot(int n_cols, enum mode32 mode, int run, const struct tile32 *t, int n_blocks,
                         const struct column32 *x, size_t ld_acc, float *acc, struct vec_ahead *ahead)
{
#pragma GCC unroll 1
    for (int b = 0; b < n_blocks; b++) {
        vec_ahead_step(ahead);
        __m256i s[TILE_COLS][2], s1[TILE_COLS][2];
        tile_sums(n_cols, mode, run, t, x, 8 * b, mode == HALVED ? 4 : 8, s);
        if (mode == HALVED) tile_sums(n_cols, mode, run, t, x, 8 * b + 4, 4, s1);
        for (int c = 0; c < n_cols; c++)
            for (int h = 0; h < 2; h++) {
                float *y = acc + (size_t)c * ld_acc + 8 * h;
                if (mode == OFFSET) s[c][h] = _mm256_add_epi32(s[c][h], _mm256_set1_epi32(x[c].start[b]));
                if (mode == BIASED) s[c][h] = _mm256_sub_epi32(s[c][h], _mm256_set1_epi32(x[c].start[b]));
                __m256 v = _mm256_mul_ps(t->dw[b][h], _mm256_cvtepi32_ps(s[c][h]));
                if (mode == HALVED) v = _mm256_fmadd_ps(t->dw1[b][h], _mm256_cvtepi32_ps(s1[c][h]), v);
                if (mode == MINIMUM || mode == BIASED)
                    v = _mm256_fmadd_ps(t->m[b][h], _mm256_cvtepi32_ps(_mm256_set1_epi32(x[c].sum[b])), v);
                _mm256_storeu_ps(y, _mm256_fmadd_ps(_mm256_set1_ps(x[c].d[b]), v, _mm256_loadu_ps(y)));
            }
    }
}

#define TILE_DOT(n, name, mode, run)                                                                                   \
    static void tile_dot_##name##_##n(const struct tile32 *t, int n_blocks, const struct column32 *x, size_t ld_acc,   \
                                      float *acc, struct vec_ahead *ahead)                                             \
    {                                                                                                                  \
        struct vec_ahead a = *ahead;                                                                                   \
        tile_dot(n, mode, run, t, n_blocks, x, ld_acc, acc, &a);                                                       \
        *ahead = a;                                                                                                    \
    }
#define TILE_DOTS(name, mode, run)                                                                                     \
    TILE_DOT(1, name, mode, run)                                                                                       \
    TILE_DOT(2, name, mode, run)                                                                                       \
    TILE_DOT(3, name, mode, run)                                                                                       \
    TILE_DOT(4, name, mode, run)                                                                                       \
    static tile_dot_fn *const dots_##name[TILE_COLS] = {tile_dot_##name##_1, tile_dot_##name##_2, tile_dot_##name##_3, \
                                                        tile_dot_##name##_4};

#endif
