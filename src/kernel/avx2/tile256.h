/* SPDX-License-Identifier: MIT
 *
 * tile256.h: products of 16 rows of 256-element blocks with many columns.
 *
 * One block of 16 rows becomes registers of 8 rows x 4 k (lanes = rows), which every column multiplies with 4 of
 * its bytes broadcast. Two such registers are held against up to TILE_COLS columns: a load of codes serves all
 * columns, a broadcast both halves of the rows, so that the ports for arithmetic are the limit and not those for loads.
 * Eight sums hide the latency of the products; with more the compiler runs out of registers.
 *
 * Codes are unsigned here. Where they carry an offset, sum c * q is sum (c + o) * q - o * sum q, and sums start at
 * -o * sum q: those of a group in 32 bits with AVX-VNNI, those of a run in 16 bits without it. The latter may wrap on
 * the way, because the whole sum fits; counted without the offset, codes give longer runs. Numbers that do not depend
 * on the rows are prepared once for a column and block (struct column256). The functions depend only on a kind's mode,
 * run and group, so types share them.
 */
#ifndef QUERN_KERNEL_AVX2_TILE256_H
#define QUERN_KERNEL_AVX2_TILE256_H

#include "kernel/avx2/dot.h"
#include "kernel/avx2/kind256.h"
#include "kernel/kernel.h"

#define TILE_ROWS 16
#define TILE_COLS 4

struct tile256 {
    __m256i q[64][2];     /* q[i]: codes 4i .. 4i + 3 of rows 0-7 and 8-15 */
    __m256i scale[16][2]; /* per group: each row's scale as i16, twice; with AVX-VNNI once and 0 above */
    __m256i min[8][2];    /* per two groups: each row's two minimums */
    __m256 dw[2], dmin[2];
};

/* One block of a column. */
struct column256 {
    const int8_t *q;
    float d;
    int16_t sums[16];  /* of q, per group */
    int32_t start[32]; /* -offset * sums; without AVX-VNNI two words per run: the sums of either half of each 4 q */
};

/* ---- one block of 16 rows ---- */

/* The bytes b0 .. b3 of every dword; -1 for a zero. */
VEC_INLINE __m256i tile_pick(__m256i v, int b0, int b1, int b2, int b3)
{
    const __m256i lane = _mm256_broadcastsi128_si256(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    uint32_t bytes = (b0 & 255u) | (b1 & 255u) << 8 | (b2 & 255u) << 16 | (b3 & 255u) << 24;
    return _mm256_shuffle_epi8(v, _mm256_or_si256(_mm256_set1_epi32((int32_t)bytes), lane));
}

/* The word at byte `at` of every dword, and byte b, as a scale. */
VEC_INLINE __m256i tile_scale_word(__m256i v, int at)
{
    return DOT_VNNI ? tile_pick(v, at, at + 1, -1, -1) : tile_pick(v, at, at + 1, at, at + 1);
}
VEC_INLINE __m256i tile_scale_u8(__m256i v, int b)
{
    return DOT_VNNI ? tile_pick(v, b, -1, -1, -1) : tile_pick(v, b, -1, b, -1);
}
VEC_INLINE __m256i tile_scale_i8(__m256i v, int b)
{
    return _mm256_srai_epi16(DOT_VNNI ? tile_pick(v, -1, b, -1, -1) : tile_pick(v, -1, b, -1, b), 8);
}

/* 8 f16 in the low halves of dwords, as floats. */
VEC_INLINE __m256 tile_halves(__m256i v)
{
    v = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
    v = _mm256_permute4x64_epi64(_mm256_packus_epi32(v, v), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(v));
}

/* Any type whose codes have an offset: unpacked row by row, then transposed. */

/* The scales of 8 rows' groups, in words. */
VEC_INLINE void tile_scales(int group, int h, __m256i *sc, struct tile256 *t)
{
    vec_transpose8(sc);
    for (int g = 0; g < 256 / group; g++) t->scale[g][h] = tile_scale_word(sc[g * group / 32], g * group % 32 / 8);
}

static void tile_load_any(const struct kind256 *k, const uint8_t *const *row, size_t at, int h, struct tile256 *t,
                          struct vec_ahead *ahead)
{
    struct block256 b[8];
    __m256i sc[8];
    const uint8_t *bytes[8];
    uint32_t halves[8];
    avx2_unpack256[k->type](row, at, 8, b);
    for (int r = 0; r < 8; r++) {
        bytes[r] = (const uint8_t *)b[r].q;
        sc[r] = b[r].sc;
        halves[r] = b[r].halves;
    }
    for (int i = 0; i < 64; i += 4) {
        __m256i v[4];
        vec_columns4(bytes, 4 * (size_t)i, v);
        for (int j = 0; j < 4; j++) t->q[i + j][h] = v[j];
        if (i % 8 == 0) vec_ahead_step(ahead);
    }
    if (k->group == 16)
        tile_scales(16, h, sc, t);
    else if (k->group == 32)
        tile_scales(32, h, sc, t);
    else
        tile_scales(256, h, sc, t);
    __m256i v = vec_load(halves);
    t->dw[h] = _mm256_mul_ps(tile_halves(v), _mm256_set1_ps(k->factor));
    t->dmin[h] = _mm256_setzero_ps();
}

/* Types made of nibbles and planes of bits, where a shift and a mask make codes of whole dwords: the stored bytes
 * are transposed, half as many as there are codes, and rows stay lanes throughout. */

/* d, dmin and the 6-bit numbers of Q4_K and Q5_K. */
VEC_INLINE void tile_load_heads(const uint8_t *const *row, size_t at, int h, struct tile256 *t)
{
    __m256i v[4], sc[2], mn[2];
    vec_columns4(row, at, v);
    sc[0] = u256_and8(v[1], 63);
    mn[0] = u256_and8(v[2], 63);
    sc[1] = _mm256_or_si256(u256_and8(v[3], 15), u256_and8(_mm256_srli_epi16(v[1], 2), 48));
    mn[1] = _mm256_or_si256(u256_and8(_mm256_srli_epi16(v[3], 4), 15), u256_and8(_mm256_srli_epi16(v[2], 2), 48));
    for (int g = 0; g < 8; g++) t->scale[g][h] = tile_scale_u8(sc[g / 4], g % 4);
    for (int j = 0; j < 4; j++)
        t->min[j][h] = j % 2 ? tile_pick(mn[j / 2], 2, -1, 3, -1) : tile_pick(mn[j / 2], 0, -1, 1, -1);
    t->dw[h] = tile_halves(v[0]);
    t->dmin[h] = tile_halves(_mm256_srli_epi32(v[0], 16));
}

VEC_INLINE void tile_load_q4_k(const uint8_t *const *row, size_t at, int h, struct tile256 *t, struct vec_ahead *ahead)
{
    tile_load_heads(row, at, h, t);
    for (size_t i = 0; i < 4; i++)
#pragma GCC unroll 2
        for (size_t p = 0; p < 8; p += 4) {
            __m256i v[4];
            vec_columns4(row, at + 16 + 32 * i + 4 * p, v);
            vec_ahead_step(ahead);
#pragma GCC unroll 4
            for (size_t j = 0; j < 4; j++) {
                __m256i *q = t->q[16 * i + p + j] + h;
                q[0] = u256_and8(v[j], 15);
                q[16] = u256_and8(_mm256_srli_epi16(v[j], 4), 15);
            }
        }
}

VEC_INLINE void tile_load_q5_k(const uint8_t *const *row, size_t at, int h, struct tile256 *t, struct vec_ahead *ahead)
{
    tile_load_heads(row, at, h, t);
    for (int p = 0; p < 8; p += 4) {
        __m256i high[4], v[4];
        vec_columns4(row, at + 16 + 4 * (size_t)p, high);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            vec_columns4(row, at + 48 + 32 * (size_t)i + 4 * (size_t)p, v);
            vec_ahead_step(ahead);
            for (int j = 0; j < 4; j++) {
                __m256i *q = t->q[16 * i + p + j] + h;
                q[0] = _mm256_or_si256(u256_and8(v[j], 15), u256_bit(high[j], 2 * i, 4));
                q[16] = _mm256_or_si256(u256_and8(_mm256_srli_epi16(v[j], 4), 15), u256_bit(high[j], 2 * i + 1, 4));
            }
        }
    }
}

/* The f16 at byte `at` of 8 rows, as floats. */
VEC_INLINE __m256 tile_f16(const uint8_t *const *row, size_t at)
{
    uint32_t d[8];
    for (int r = 0; r < 8; r++) d[r] = vec_u16(row[r] + at);
    return tile_halves(vec_load(d));
}

/* Codes of two bits, those of 128 elements in 32 bytes (from byte `at` of a row on), and above them a bit of each from
 * `high` on, if any. */
VEC_INLINE void tile_load_two_bits(const uint8_t *const *row, size_t at, bool has_high, size_t high, int h,
                                   struct tile256 *t, struct vec_ahead *ahead)
{
    for (int p = 0; p < 8; p += 4) {
        __m256i m[4], v[4];
        if (has_high) vec_columns4(row, high + 4 * (size_t)p, m);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            vec_columns4(row, at + 32 * (size_t)i + 4 * (size_t)p, v);
            vec_ahead_step(ahead);
            for (int j = 0; j < 4; j++)
                for (int s = 0; s < 4; s++) {
                    __m256i q = u256_and8(_mm256_srli_epi16(v[j], 2 * s), 3);
                    if (has_high) q = _mm256_or_si256(q, u256_bit(m[j], 4 * i + s, 2));
                    t->q[32 * i + 8 * s + p + j][h] = q;
                }
            vec_ahead_step(ahead);
        }
    }
}

VEC_INLINE void tile_load_q2_k(const uint8_t *const *row, size_t at, int h, struct tile256 *t, struct vec_ahead *ahead)
{
    tile_load_two_bits(row, at + 16, false, 0, h, t, ahead);
    __m256i v[4];
    vec_columns4(row, at, v);
    for (int g = 0; g < 16; g++) t->scale[g][h] = tile_scale_u8(u256_and8(v[g / 4], 15), g % 4);
    for (int j = 0; j < 8; j++) {
        __m256i m = u256_and8(_mm256_srli_epi16(v[j / 2], 4), 15);
        t->min[j][h] = j % 2 ? tile_pick(m, 2, -1, 3, -1) : tile_pick(m, 0, -1, 1, -1);
    }
    t->dw[h] = tile_f16(row, at + 80);
    t->dmin[h] = tile_f16(row, at + 82);
}

VEC_INLINE void tile_load_q3_k(const uint8_t *const *row, size_t at, int h, struct tile256 *t, struct vec_ahead *ahead)
{
    tile_load_two_bits(row, at + 32, true, at, h, t, ahead);
    __m256i v[4];
    vec_columns4(row, at + 92, v); /* the scales from v[1] on */
    for (int i = 0; i < 4; i++) {
        __m256i low = u256_and8(i < 2 ? v[1 + i] : _mm256_srli_epi16(v[i - 1], 4), 15);
        __m256i high = u256_and8(i < 2 ? _mm256_slli_epi16(v[3], 4 - 2 * i) : _mm256_srli_epi16(v[3], 2 * i - 4), 48);
        __m256i sc = _mm256_sub_epi8(_mm256_or_si256(low, high), _mm256_set1_epi8(32));
        for (int j = 0; j < 4; j++) t->scale[4 * i + j][h] = tile_scale_i8(sc, j);
    }
    t->dw[h] = tile_f16(row, at + 108);
    t->dmin[h] = _mm256_setzero_ps();
}

VEC_INLINE void tile_load_q6_k(const uint8_t *const *row, size_t at, int h, struct tile256 *t, struct vec_ahead *ahead)
{
    for (size_t i = 0; i < 2; i++)
#pragma GCC unroll 2
        for (size_t p = 0; p < 8; p += 4) {
            __m256i a[4], c[4], b[4];
            vec_columns4(row, at + 64 * i + 4 * p, a);
            vec_columns4(row, at + 64 * i + 4 * p + 32, c);
            vec_ahead_step(ahead);
            vec_columns4(row, at + 128 + 32 * i + 4 * p, b);
#pragma GCC unroll 4
            for (size_t j = 0; j < 4; j++) {
                __m256i *q = t->q[32 * i + p + j] + h;
                u256_codes_q6_k(a[j], c[j], b[j], &q[0], &q[16], &q[32], &q[48]);
            }
            vec_ahead_step(ahead);
        }
    __m256i v[4];
    vec_columns4(row, at + 192, v);
    for (int g = 0; g < 16; g++) t->scale[g][h] = tile_scale_i8(v[g / 4], g % 4);
    t->dw[h] = tile_f16(row, at + 208);
    t->dmin[h] = _mm256_setzero_ps();
}

/* Nibbles that stand for signed codes: 16 bytes hold 16 elements in their low halves and the next 16 in their high
 * ones. */
VEC_INLINE void tile_load_iq4_xs(const uint8_t *const *row, size_t at, int h, struct tile256 *t,
                                 struct vec_ahead *ahead)
{
    const __m256i table = _mm256_xor_si256(u256_iq4_table(), _mm256_set1_epi8(DOT_VNNI ? -128 : 0));
    __m256i v[4];
    for (size_t i = 0; i < 8; i++) {
        vec_columns4(row, at + 8 + 16 * i, v);
        vec_ahead_step(ahead);
#pragma GCC unroll 4
        for (size_t j = 0; j < 4; j++) {
            __m256i *q = t->q[8 * i + j] + h;
            q[0] = _mm256_shuffle_epi8(table, u256_and8(v[j], 15));
            q[8] = _mm256_shuffle_epi8(table, u256_and8(_mm256_srli_epi16(v[j], 4), 15));
        }
    }
    vec_columns4(row, at, v); /* d and the high bits of the scales, then their low nibbles */
    for (int g = 0; g < 8; g++) {
        __m256i low = _mm256_srli_epi32(v[1], 4 * g), high = _mm256_srli_epi32(v[0], 16 + 2 * g);
        low = _mm256_and_si256(low, _mm256_set1_epi32(15));
        high = _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4);
        __m256i sc = _mm256_sub_epi32(_mm256_or_si256(low, high), _mm256_set1_epi32(32));
        t->scale[g][h] = tile_scale_word(sc, 0);
    }
    t->dw[h] = tile_halves(v[0]);
    t->dmin[h] = _mm256_setzero_ps();
}

/* Fills half h of a tile from the blocks at byte `at` of 8 rows, in LOAD_STEPS steps. */
#define LOAD_STEPS 8
static void tile_load(const struct kind256 *k, const uint8_t *const *row, size_t at, int h, struct tile256 *t,
                      struct vec_ahead *ahead)
{
    if (k->type == DT_Q2_K)
        tile_load_q2_k(row, at, h, t, ahead);
    else if (k->type == DT_Q3_K)
        tile_load_q3_k(row, at, h, t, ahead);
    else if (k->type == DT_Q4_K)
        tile_load_q4_k(row, at, h, t, ahead);
    else if (k->type == DT_Q5_K)
        tile_load_q5_k(row, at, h, t, ahead);
    else if (k->type == DT_Q6_K)
        tile_load_q6_k(row, at, h, t, ahead);
    else if (k->type == DT_IQ4_XS)
        tile_load_iq4_xs(row, at, h, t, ahead);
    else
        tile_load_any(k, row, at, h, t, ahead);
}

/* ---- one block of a column ---- */

/* Without AVX-VNNI: what the sums of runs start at, modulo 2^16 in each half of a dword. */
VEC_INLINE void column_start(int run, int shift, struct column256 *c)
{
    int n = 8;
    __m256i v[8];
    for (int j = 0; j < n; j++) v[j] = _mm256_maddubs_epi16(_mm256_set1_epi8(1), vec_load(c->q + 32 * j));
    for (int i = 1; i < run; i *= 2) { /* the last register's upper half is free at the end */
        n = (n + 1) / 2;
        for (int j = 0; j < n; j++) v[j] = vec_add_neighbours16(v[2 * j], v[2 * j + 1]);
    }
    for (int j = 0; j < n; j++)
        vec_store(c->start + 8 * j, _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_slli_epi16(v[j], shift)));
}

/* Fills c; returns whether every sum of code * q over a group is sure to fit 16 bits. With codes that are never
 * negative the positive and the negative q bound it separately: (sum |q| +- sum q) / 2. */
VEC_INLINE bool column_prepare(struct kind256 k, struct act_q256 x, int i, struct column256 *c)
{
    __m256i sums = vec_load(x.bsum + 16 * (size_t)i), pairs = _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
    int bound = x.asum[i] * (k.group / 16);
    c->q = x.q + 256 * (size_t)i;
    c->d = x.d[i];
    if (k.group == 32) {
        sums = _mm256_permute4x64_epi64(_mm256_packs_epi32(pairs, pairs), 0x08);
    } else if (k.group == 256) {
        pairs = _mm256_hadd_epi32(pairs, pairs);
        pairs = _mm256_hadd_epi32(pairs, pairs);
        sums = _mm256_set_epi32(0, 0, 0, 0, 0, 0, 0, _mm256_extract_epi32(pairs, 0) + _mm256_extract_epi32(pairs, 4));
    }
    vec_store(c->sums, sums);
    if (!DOT_VNNI) {
        if (k.mode != OFFSET) return true;
        if (k.run == 2) column_start(2, k.shift, c);
        if (k.run == 4) column_start(4, k.shift, c);
        if (k.run == 8) column_start(8, k.shift, c);
        if (k.run == 32) column_start(32, k.shift, c);
        return true;
    }
    if (k.mode != MINIMUM) {
        __m256i o = _mm256_set1_epi32(-(1 << k.shift));
        vec_store(c->start, _mm256_mullo_epi32(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(sums)), o));
        if (k.group == 16)
            vec_store(c->start + 8, _mm256_mullo_epi32(_mm256_cvtepi16_epi32(_mm256_extracti128_si256(sums, 1)), o));
        return bound * k.max_code <= INT16_MAX;
    }
    if (k.group == 32) { /* the largest |sum|: vpminposuw of its complement */
        __m128i a = _mm_abs_epi16(_mm256_castsi256_si128(sums));
        a = _mm_minpos_epu16(_mm_xor_si128(a, _mm_set1_epi16(-1)));
        bound = (bound + (0xffff - _mm_extract_epi16(a, 0)) + 1) / 2;
    }
    return bound * k.max_code <= INT16_MAX;
}

/* ---- products ---- */

typedef void tile_dot_fn(const struct tile256 *t, const struct column256 *x, bool narrow, size_t ld_acc, float *acc,
                         struct vec_ahead *ahead);

/* s + scale * the sums in a. narrow: these fit 16 bits; only AVX-VNNI needs to know. */
VEC_INLINE __m256i tile_scaled(bool narrow, __m256i s, __m256i a, __m256i scale)
{
    if (!DOT_VNNI || narrow) return dot_words(s, a, scale);
    scale = _mm256_srai_epi32(_mm256_slli_epi32(scale, 16), 16);
    return _mm256_add_epi32(s, _mm256_mullo_epi32(a, scale));
}

/* Codes 4j .. 4j + 3 times columns into a; where `first`, from the start of the run's sums on. */
VEC_INLINE void tile_step(int n_cols, enum mode256 mode, bool first, int run, int j, const struct tile256 *t,
                          const struct column256 *x, __m256i a[TILE_COLS][2])
{
#pragma GCC unroll 4
    for (int c = 0; c < n_cols; c++) {
        __m256i v = vec_splat32(x[c].q + 4 * j);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256i w = t->q[j][h], u = v;
            if (mode == SIGNED) {
                u = _mm256_sign_epi8(v, w);
                w = _mm256_abs_epi8(w);
            }
            if (first && mode == OFFSET)
                a[c][h] = dot_add(_mm256_set1_epi32(x[c].start[j / run]), w, u);
            else
                a[c][h] = first ? dot_first(w, u) : dot_add(a[c][h], w, u);
        }
    }
}

/* sum of scale * (sum of codes * q) of a block, in runs of `run` registers. */
VEC_INLINE void tile_sums(int n_cols, int run, int group, enum mode256 mode, bool narrow, const struct tile256 *t,
                          const struct column256 *x, __m256i s[TILE_COLS][2], struct vec_ahead *ahead)
{
    for (int c = 0; c < n_cols; c++) s[c][0] = s[c][1] = _mm256_setzero_si256();
#pragma GCC unroll 1
    for (int i = 0; i < 64; i += run) {
        __m256i a[TILE_COLS][2];
        vec_ahead_step(ahead);
        tile_step(n_cols, mode, true, run, i, t, x, a);
#pragma GCC unroll 8
        for (int j = i + 1; j < i + run; j++) tile_step(n_cols, mode, false, run, j, t, x, a);
        for (int c = 0; c < n_cols; c++)
            for (int h = 0; h < 2; h++) s[c][h] = tile_scaled(narrow, s[c][h], a[c][h], t->scale[i * 4 / group][h]);
    }
}

/* One tile with n_cols columns; acc[c * ld_acc] the 16 accumulators of column c. */
VEC_INLINE void tile_dot(int n_cols, int run, int group, enum mode256 mode, bool narrow, const struct tile256 *t,
                         const struct column256 *x, size_t ld_acc, float *acc, struct vec_ahead *ahead)
{
    __m256i s[TILE_COLS][2];
    tile_sums(n_cols, run, group, mode, narrow, t, x, s, ahead);
    for (int c = 0; c < n_cols; c++)
        for (int h = 0; h < 2; h++) {
            __m256i m = _mm256_setzero_si256();
            for (int j = 0; mode == MINIMUM && j < (256 / group + 1) / 2; j++)
                m = dot_words(m, t->min[j][h], vec_splat32(x[c].sums + 2 * j));
            __m256 v = _mm256_mul_ps(t->dw[h], _mm256_cvtepi32_ps(s[c][h]));
            if (mode == MINIMUM) v = _mm256_fnmadd_ps(t->dmin[h], _mm256_cvtepi32_ps(m), v);
            float *y = acc + (size_t)c * ld_acc + 8 * h;
            _mm256_storeu_ps(y, _mm256_fmadd_ps(_mm256_set1_ps(x[c].d), v, _mm256_loadu_ps(y)));
        }
}

#define TILE_DOT(n, name, run, group, mode)                                                                            \
    static void tile_dot_##name##_##n(const struct tile256 *t, const struct column256 *x, bool narrow, size_t ld_acc,  \
                                      float *acc, struct vec_ahead *ahead)                                             \
    {                                                                                                                  \
        struct vec_ahead a = *ahead;                                                                                   \
        if (DOT_VNNI && !narrow)                                                                                       \
            tile_dot(n, run, group, mode, false, t, x, ld_acc, acc, &a);                                               \
        else                                                                                                           \
            tile_dot(n, run, group, mode, true, t, x, ld_acc, acc, &a);                                                \
        *ahead = a;                                                                                                    \
    }

#define TILE_DOTS(name, run, group, mode)                                                                              \
    TILE_DOT(1, name, run, group, mode)                                                                                \
    TILE_DOT(2, name, run, group, mode)                                                                                \
    TILE_DOT(3, name, run, group, mode)                                                                                \
    TILE_DOT(4, name, run, group, mode)                                                                                \
    static tile_dot_fn *const dots_##name[TILE_COLS] = {tile_dot_##name##_1, tile_dot_##name##_2, tile_dot_##name##_3, \
                                                        tile_dot_##name##_4};

#endif
