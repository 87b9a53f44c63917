/* SPDX-License-Identifier: MIT
 *
 * unpack_rows.h: blocks of 16 rows unpacked together, straight into the order of tile.h (lane = row).
 *
 * Transposing while the codes are still packed moves a half or a quarter of the bytes, and shifts and
 * masks do not care in which order the bytes of a register are. Only formats whose bits sit at fixed
 * places can do it; the codebook types, and those with single bits to spread, are unpacked row by
 * row (unpack256.h, unpack32.h) and transposed after that.
 *
 * Everywhere: `piece` is 16 stored bytes, v[i] their dword i in all rows, and k / 4 the index of four
 * elements in the tile.
 */
#ifndef QUERN_KERNEL_AVX512_UNPACK_ROWS_H
#define QUERN_KERNEL_AVX512_UNPACK_ROWS_H

#include "kernel/avx512/entries.h"
#include "kernel/avx512/tile.h"
#include "kernel/avx512/unpack32.h"

/* Takes the codes of the four elements of index k4 in 16 rows: half `half` of the tile. */
typedef void codes_put(void *to, int k4, int half, __m512i codes);

/* Into a tile_codes as they are. */
static inline void put_codes(void *to, int k4, int half, __m512i codes)
{
    _mm512_store_si512((*(tile_codes *)to)[k4][half], codes);
}

ALWAYS_INLINE bool rows_can(enum dtype t)
{
    switch (t) {
    case DT_Q2_K:
    case DT_Q3_K:
    case DT_Q4_K:
    case DT_Q5_K:
    case DT_Q6_K:
    case DT_TQ2_0:
    case DT_I2_S:
    case DT_IQ4_XS:
    case DT_Q4_0:
    case DT_Q4_1:
    case DT_Q8_0:
    case DT_IQ4_NL:
    case DT_MXFP4: return true;
    default: return false;
    }
}

ALWAYS_INLINE __m512i low_nibbles(__m512i v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }

ALWAYS_INLINE __m512i high_nibbles(__m512i v) { return low_nibbles(_mm512_srli_epi32(v, 4)); }

/* Bits of v rotated right by n (left where negative) onto mask. */
ALWAYS_INLINE __m512i or_bits(__m512i codes, __m512i v, int n, int mask)
{
    return or_masked(codes, _mm512_rorv_epi32(v, _mm512_set1_epi32(n & 31)), _mm512_set1_epi8((char)mask));
}

/* Q4_K, Q5_K: 32 bytes are 64 elements, low nibbles first; Q5_K's fifth bits are bit e / 32 of byte
 * e % 32 of 32 more. */
ALWAYS_INLINE void rows_nibbles(bool fifth, const uint8_t *const *row, size_t at, int half, codes_put *put, void *to,
                                struct ahead *ahead)
{
    __m512i high[8];
    for (int i = 0; fifth && i < 2; i++) transpose_rows(row, at + 16 + 16 * (size_t)i, high + 4 * i);
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; odd++)
        for (int pair = 0; pair < 4; pair++) {
            __m512i v[4];
            ahead_step(ahead);
            transpose_rows(row, at + (fifth ? 48 : 16) + 16 * (size_t)(2 * pair + odd), v);
            for (int i = 0; i < 4; i++) {
                __m512i a = low_nibbles(v[i]), b = high_nibbles(v[i]);
                if (fifth) {
                    a = or_bits(a, high[4 * odd + i], 2 * pair - 4, 16);
                    b = or_bits(b, high[4 * odd + i], 2 * pair - 3, 16);
                }
                put(to, 16 * pair + 4 * odd + i, half, a);
                put(to, 16 * pair + 4 * odd + i + 8, half, b);
            }
        }
}

/* Q6_K: of each 128, 64 bytes (low nibbles: elements 0-63, high: 64-127) and 32 with two bits for each
 * quarter. */
ALWAYS_INLINE void rows_q6_k(const uint8_t *const *row, size_t at, int half, codes_put *put, void *to,
                             struct ahead *ahead)
{
    for (int h = 0; h < 2; h++)
#pragma GCC unroll 2
        for (int odd = 0; odd < 2; odd++) {
            __m512i high[4];
            transpose_rows(row, at + 128 + 32 * (size_t)h + 16 * (size_t)odd, high);
#pragma GCC unroll 2
            for (int q = 0; q < 2; q++) {
                __m512i v[4];
                ahead_step(ahead);
                transpose_rows(row, at + 64 * (size_t)h + 32 * (size_t)q + 16 * (size_t)odd, v);
                for (int i = 0; i < 4; i++) {
                    int k4 = 32 * h + 8 * q + 4 * odd + i;
                    put(to, k4, half, or_bits(low_nibbles(v[i]), high[i], 2 * q - 4, 0x30));
                    put(to, k4 + 16, half, or_bits(high_nibbles(v[i]), high[i], 2 * q, 0x30));
                }
            }
        }
}

/* Q2_K, Q3_K, TQ2_0, I2_S: of each 128, 32 bytes with two bits for each quarter, the first on top where `down`; Q3_K's
 * third bit is bit e / 32 of byte e % 32 of 32 more, at the start of the block. */
ALWAYS_INLINE void rows_two_bits(bool third, bool down, size_t codes, const uint8_t *const *row, size_t at, int half,
                                 codes_put *put, void *to, struct ahead *ahead)
{
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; odd++) {
        __m512i high[4];
        if (third) transpose_rows(row, at + 16 * (size_t)odd, high);
        for (int h = 0; h < 2; h++) {
            __m512i v[4];
            ahead_step(ahead);
            transpose_rows(row, at + codes + 32 * (size_t)h + 16 * (size_t)odd, v);
#pragma GCC unroll 4
            for (int q = 0; q < 4; q++)
                for (int i = 0; i < 4; i++) {
                    __m512i a = _mm512_and_si512(_mm512_srli_epi32(v[i], (unsigned)(2 * q)), _mm512_set1_epi8(3));
                    if (third) a = or_bits(a, high[i], 4 * h + q - 2, 4);
                    put(to, 32 * h + 8 * (down ? 3 - q : q) + 4 * odd + i, half, a);
                }
        }
    }
}

/* 32 elements of 16 bytes, low nibbles first: all the 4-bit types of 32, and IQ4_XS. k4: where they go. */
ALWAYS_INLINE void rows_piece(enum dtype t, const uint8_t *const *row, size_t at, int half, int k4, codes_put *put,
                              void *to, struct ahead *ahead)
{
    __m512i v[4];
    ahead_step(ahead);
    transpose_rows(row, at, v);
    for (int i = 0; i < 4; i++) {
        __m512i a = low_nibbles(v[i]), b = high_nibbles(v[i]);
        if (t == DT_IQ4_XS || t == DT_IQ4_NL) {
            a = iq4_lookup(a);
            b = iq4_lookup(b);
        } else if (t == DT_MXFP4) {
            a = fp4_lookup(a);
            b = fp4_lookup(b);
        }
        put(to, k4 + i, half, a);
        put(to, k4 + i + 4, half, b);
    }
}

/* The block of 256 at byte `at` of 16 rows, into half `half` of u. */
ALWAYS_INLINE void rows_block256(enum dtype t, const uint8_t *const *row, size_t at, int half, codes_put *put, void *to,
                                 struct ahead *ahead)
{
    switch (t) {
    case DT_Q2_K: rows_two_bits(false, false, 16, row, at, half, put, to, ahead); break;
    case DT_Q3_K: rows_two_bits(true, false, 32, row, at, half, put, to, ahead); break;
    case DT_TQ2_0: rows_two_bits(false, false, 0, row, at, half, put, to, ahead); break;
    case DT_I2_S: rows_two_bits(false, true, 0, row, at, half, put, to, ahead); break;
    case DT_Q4_K: rows_nibbles(false, row, at, half, put, to, ahead); break;
    case DT_Q5_K: rows_nibbles(true, row, at, half, put, to, ahead); break;
    case DT_Q6_K: rows_q6_k(row, at, half, put, to, ahead); break;
    case DT_IQ4_XS:
        for (int i = 0; i < 8; i++) rows_piece(t, row, at + 8 + 16 * (size_t)i, half, 8 * i, put, to, ahead);
        break;
    default: __builtin_unreachable();
    }
}

/* The block of 32 at byte `at` of 16 rows, as piece i of the tile. */
ALWAYS_INLINE void rows_block32(enum dtype t, const uint8_t *const *row, size_t at, int half, int i, codes_put *put,
                                void *to, struct ahead *ahead)
{
    const size_t head = t == DT_MXFP4 ? 1 : t == DT_Q4_1 ? 4 : 2;
    if (t != DT_Q8_0) {
        rows_piece(t, row, at + head, half, 8 * i, put, to, ahead);
        return;
    }
    for (int j = 0; j < 2; j++) {
        __m512i v[4];
        ahead_step(ahead);
        transpose_rows(row, at + head + 16 * (size_t)j, v);
        for (int k = 0; k < 4; k++)
            put(to, 8 * i + 4 * j + k, half, _mm512_xor_si512(v[k], _mm512_set1_epi8((char)0x80)));
    }
}

/* ---- scales ---- */

/* Byte scales (and minimums) of a block of 256, by row: byte g % 4 of v[g / 4] belongs to group g. */
struct row_scales {
    __m512i scale[4], min[4];
};

/* Q4_K and Q5_K: the 16 bytes d, dmin, scales[12] of 16 rows; also gives d and dmin. */
ALWAYS_INLINE struct row_scales rows_scales_6bit(const uint8_t *const *row, size_t at, __m512 *d, __m512 *dmin)
{
    const __m512i six = _mm512_set1_epi8(0x3f), four = _mm512_set1_epi8(0x0f), top = _mm512_set1_epi8(0x30);
    struct row_scales s;
    __m512i v[4]; /* d | dmin << 16; scales 0-3; minimums 0-3; low nibbles of both 4-7 */
    transpose_rows(row, at, v);
    *d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v[0]));
    *dmin = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(v[0], 16)));
    s.scale[0] = _mm512_and_si512(v[1], six);
    s.min[0] = _mm512_and_si512(v[2], six);
    s.scale[1] = or_masked(_mm512_and_si512(v[3], four), _mm512_srli_epi32(v[1], 2), top);
    s.min[1] = or_masked(_mm512_and_si512(_mm512_srli_epi32(v[3], 4), four), _mm512_srli_epi32(v[2], 2), top);
    return s;
}

/* The f16 at byte `at` of 16 rows. */
ALWAYS_INLINE __m512 rows_f16(const uint8_t *const *row, size_t at)
{
    uint16_t h[16];
    for (int r = 0; r < 16; r++) memcpy(&h[r], row[r] + at, 2);
    return load_f16x16(h);
}

/* All but the codes of the blocks of 256 at byte `at` of 16 rows: the scales and minimums, *d (without the type's
 * factor) and *dmin (0 for types without minimums). The common types have a way that keeps lane = row throughout; the
 * others go through bytes in `heads`. */
ALWAYS_INLINE struct row_scales rows_heads(enum dtype type, const uint8_t *const *row, size_t at,
                                           struct heads256 *heads, __m512 *d, __m512 *dmin)
{
    const struct format256 F = format256_of(type);
    const size_t n = (size_t)(256 / F.group);
    struct row_scales v;
    *dmin = _mm512_setzero_ps();
    if (type == DT_Q4_K || type == DT_Q5_K) return rows_scales_6bit(row, at, d, dmin);
    if (type == DT_Q6_K) {
        transpose_rows(row, at + 192, v.scale);
        *d = rows_f16(row, at + 208);
        return v;
    }
    for (int r = 0; r < 16; r++) head256(type, row[r] + at, r, heads);
    transpose_stride(heads->scale, n, v.scale);
    *d = load_f16x16(heads->d);
    if (F.min) {
        transpose_stride(heads->min, n, v.min);
        *dmin = load_f16x16(heads->dmin);
    }
    return v;
}

/* ---- types that rows_can() refuses ---- */

/* The codes of a block of a codebook type to bytes[256], in chunks of 16 that codebook_chunk() names. words: IQ1. */
ALWAYS_INLINE void codebook_unpack(enum dtype t, const uint8_t *w, const uint16_t *words, uint8_t *bytes)
{
    __m512i u[4], scale[2], v[4];
    codebook_codes(t, w, words, u, scale);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        v[2 * i] = _mm512_unpacklo_epi8(u[2 * i], u[2 * i + 1]);
        v[2 * i + 1] = _mm512_unpackhi_epi8(u[2 * i], u[2 * i + 1]);
    }
    if (!is_iq3(t)) {
        u[0] = _mm512_unpacklo_epi16(v[0], v[2]), u[1] = _mm512_unpackhi_epi16(v[0], v[2]);
        u[2] = _mm512_unpacklo_epi16(v[1], v[3]), u[3] = _mm512_unpackhi_epi16(v[1], v[3]);
    }
    for (int i = 0; i < 4; i++) _mm512_store_si512(bytes + 64 * i, is_iq3(t) ? v[i] : u[i]);
}

/* Which 16 elements of a block the i-th chunk of its codes is. */
ALWAYS_INLINE int codebook_chunk(enum dtype t, int i)
{
    return is_iq3(t) ? 8 * (i / 8) + 2 * (i % 4) + i / 4 % 2 : 4 * (i % 4) + i / 4;
}

/* The codes of the blocks of 256 at byte `at` of 32 rows into u, by way of bytes[TILE_ROWS * TILE_K]. */
ALWAYS_INLINE void rows_unpack(enum dtype type, const uint8_t *const row[TILE_ROWS], size_t at, struct ahead *ahead,
                               uint8_t *bytes, tile_codes u)
{
    const bool codebook = is_codebook(type);
    struct ring ring;
    const uint8_t *place[TILE_ROWS];
    for (int r = 0; r < TILE_ROWS; r++) place[r] = row[r] + at;
#pragma GCC unroll 1
    for (int r = 0; r < TILE_ROWS; r++) {
        struct codes256 c;
        ahead_step(ahead);
        if (is_iq1(type)) ring_step(type, place, 0, r, TILE_ROWS, &ring);
        if (codebook) {
            codebook_unpack(type, place[r], ring.words[r % RING], bytes + r * TILE_K);
            continue;
        }
        unpack256(type, place[r], &c);
        for (int i = 0; i < 4; i++) _mm512_store_si512(bytes + r * TILE_K + 64 * i, c.u[i]);
    }
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < TILE_K / 16; i++) {
            const int chunk = codebook ? codebook_chunk(type, i) : i;
            tile_chunk(bytes + half * 16 * TILE_K + 16 * i, chunk, half, u);
        }
}

#endif
