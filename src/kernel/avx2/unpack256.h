/* SPDX-License-Identifier: MIT
 *
 * unpack256.h: stored blocks of 256 elements as AVX2 registers.
 *
 * One always-inlined function per type gives the 256 codes in natural order, the 16 sub-scales
 * and minimums of the 16 groups, and the block's own scale still as bits. ref/unpack.c says which
 * bit is where; here are the same formats with 32 elements at a time. What the caller does not
 * use (a minimum, say) costs nothing after inlining.
 *
 * Multiplying bytes with vpmaddubsw needs one unsigned side. Types whose codes are signed have a power
 * of two added (1 << shift of their struct kind256) to make them unsigned, which the sums of the
 * activations take out again: sum (c + o) * q - o * sum q. Only IQ4_XS, which spans 240 values,
 * stays signed.
 */
#ifndef QUERN_KERNEL_AVX2_UNPACK256_H
#define QUERN_KERNEL_AVX2_UNPACK256_H

#include "kernel/avx2/vec.h"
#include "kernel/iq_grid.h"
#include "tensor/dtype.h"

struct block256 {
    __m256i q[8];    /* codes of elements 32j .. 32j + 31 */
    __m256i sc, mn;  /* i16[16] */
    uint32_t halves; /* f16 d, above it f16 dmin */
};
typedef void unpack256_fn(const uint8_t *w, struct block256 *b);

/* Functions that unpack what n rows have at byte `at`, by type: for loops that types share (unpack.c). NULL for other
 * types. */
typedef void unpack256_rows_fn(const uint8_t *const *row, size_t at, int n, struct block256 *b);
extern unpack256_rows_fn *const avx2_unpack256[DT_N];

/* There are no byte shifts: shift words, then drop what came from the neighbour. */
VEC_INLINE __m256i u256_and8(__m256i v, int mask) { return _mm256_and_si256(v, _mm256_set1_epi8((char)mask)); }

/* ---- K-quants ---- */

/* Two bits of each code: 32 bytes hold elements p, 32 + p, 64 + p, 96 + p of a half. */
VEC_INLINE void u256_two_bits(const uint8_t *qs, __m256i *q)
{
    for (int h = 0; h < 2; h++) {
        __m256i v = vec_load(qs + 32 * h);
        for (int s = 0; s < 4; s++) q[4 * h + s] = u256_and8(_mm256_srli_epi16(v, 2 * s), 3);
    }
}

/* Bit j of each byte of v, moved to bit `to`. */
VEC_INLINE __m256i u256_bit(__m256i v, int j, int to)
{
    __m256i s = j < to ? _mm256_slli_epi16(v, to - j) : _mm256_srli_epi16(v, j - to);
    return u256_and8(s, 1 << to);
}

/* scales and minimums are the nibbles of the first 16 bytes */
VEC_INLINE void unpack256_q2_k(const uint8_t *w, struct block256 *b)
{
    u256_two_bits(w + 16, b->q);
    __m128i s = vec_load128(w), low = _mm_set1_epi8(15);
    b->sc = _mm256_cvtepu8_epi16(_mm_and_si128(s, low));
    b->mn = _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(s, 4), low));
    b->halves = vec_u32(w + 80);
}

VEC_INLINE void unpack256_q3_k(const uint8_t *w, struct block256 *b)
{
    u256_two_bits(w + 32, b->q);
    __m256i hm = vec_load(w);
    for (int j = 0; j < 8; j++) b->q[j] = _mm256_or_si256(b->q[j], u256_bit(hm, j, 2)); /* 0..7: the -4 is the offset */
    uint64_t low = vec_u64(w + 96);
    __m128i l = _mm_set_epi64x((int64_t)(low >> 4), (int64_t)low);
    __m128i h = _mm_srlv_epi32(_mm_set1_epi32((int32_t)vec_u32(w + 104)), _mm_setr_epi32(0, 2, 4, 6));
    h = _mm_slli_epi16(_mm_and_si128(h, _mm_set1_epi8(3)), 4);
    __m128i s = _mm_or_si128(_mm_and_si128(l, _mm_set1_epi8(15)), h);
    b->sc = _mm256_cvtepi8_epi16(_mm_sub_epi8(s, _mm_set1_epi8(32)));
    b->halves = vec_u16(w + 108);
}

/* Both sets of 8 six-bit numbers at once, from the 16 bytes d, dmin, scales[12] of a block in each 128-bit lane: the
 * scales become bytes 0-7 of the lane, the minimums 8-15. */
VEC_INLINE __m256i u256_six_bits(__m256i head)
{
    const __m256i low_at =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15));
    const __m256i high_at =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(-1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11));
    const __m256i mask = _mm256_broadcastsi128_si256(_mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f));
    __m256i low = _mm256_srlv_epi32(_mm256_shuffle_epi8(head, low_at), _mm256_setr_epi32(0, 0, 0, 4, 0, 0, 0, 4));
    __m256i high = u256_and8(_mm256_srli_epi16(_mm256_shuffle_epi8(head, high_at), 2), 0x30);
    return _mm256_or_si256(_mm256_and_si256(low, mask), high);
}

VEC_INLINE void u256_scales_q4_k(const uint8_t *w, struct block256 *b)
{
    __m128i head = vec_load128(w), s = _mm256_castsi256_si128(u256_six_bits(_mm256_castsi128_si256(head)));
    b->sc = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(s, s));
    b->mn = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(s, s));
    b->halves = (uint32_t)_mm_cvtsi128_si32(head);
}

/* 32 bytes hold 32 elements in their low nibbles and the next 32 in their high ones. */
VEC_INLINE void u256_nibbles_of_64(const uint8_t *qs, __m256i *q)
{
    for (int i = 0; i < 4; i++) {
        __m256i v = vec_load(qs + 32 * i);
        q[2 * i] = u256_and8(v, 15);
        q[2 * i + 1] = u256_and8(_mm256_srli_epi16(v, 4), 15);
    }
}

VEC_INLINE void unpack256_q4_k(const uint8_t *w, struct block256 *b)
{
    u256_nibbles_of_64(w + 16, b->q);
    u256_scales_q4_k(w, b);
}

VEC_INLINE void unpack256_q5_k(const uint8_t *w, struct block256 *b)
{
    u256_nibbles_of_64(w + 48, b->q);
    __m256i qh = vec_load(w + 16);
    for (int j = 0; j < 8; j++) b->q[j] = _mm256_or_si256(b->q[j], u256_bit(qh, j, 4));
    u256_scales_q4_k(w, b);
}

/* Codes 0..63: two bits of qh above a nibble of ql, whose low nibbles come first (q0, q1, then q2, q3). */
VEC_INLINE void u256_codes_q6_k(__m256i a, __m256i c, __m256i qh, __m256i *q0, __m256i *q1, __m256i *q2, __m256i *q3)
{
    *q0 = _mm256_or_si256(u256_and8(a, 15), u256_and8(_mm256_slli_epi16(qh, 4), 48));
    *q1 = _mm256_or_si256(u256_and8(c, 15), u256_and8(_mm256_slli_epi16(qh, 2), 48));
    *q2 = _mm256_or_si256(u256_and8(_mm256_srli_epi16(a, 4), 15), u256_and8(qh, 48));
    *q3 = _mm256_or_si256(u256_and8(_mm256_srli_epi16(c, 4), 15), u256_and8(_mm256_srli_epi16(qh, 2), 48));
}

VEC_INLINE void unpack256_q6_k(const uint8_t *w, struct block256 *b)
{
    for (int h = 0; h < 2; h++) {
        __m256i a = vec_load(w + 64 * h), c = vec_load(w + 64 * h + 32), qh = vec_load(w + 128 + 32 * h);
        __m256i *q = b->q + 4 * h;
        u256_codes_q6_k(a, c, qh, q, q + 1, q + 2, q + 3);
    }
    b->sc = _mm256_cvtepi8_epi16(vec_load128(w + 192));
    b->halves = vec_u16(w + 208);
}

/* ---- codebooks ---- */

/* 8 scales of a byte each, one per 32, as i16 per 16. */
VEC_INLINE __m256i u256_scales_per_32(uint64_t s)
{
    __m128i v = _mm_cvtsi64_si128((int64_t)s);
    return _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(v, v));
}

/* The table look-up is the byte shuffle; its entries span more than 7 bits, so they stay signed. */
VEC_INLINE __m256i u256_iq4_table(void)
{
    return _mm256_broadcastsi128_si256(
        _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113));
}

VEC_INLINE void unpack256_iq4_xs(const uint8_t *w, struct block256 *b)
{
    const __m256i table = u256_iq4_table();
    for (int j = 0; j < 8; j++) {
        __m128i v = vec_load128(w + 8 + 16 * j);
        __m256i n = u256_and8(vec_pair(v, _mm_srli_epi16(v, 4)), 15);
        b->q[j] = _mm256_shuffle_epi8(table, n);
    }
    uint64_t low = _pdep_u64(vec_u32(w + 4), 0x0f0f0f0f0f0f0f0full);
    uint64_t high = _pdep_u64(vec_u16(w + 2), 0x3030303030303030ull);
    /* scale - 32 in each byte; a byte never borrows from the next when its top bit is set first. */
    uint64_t s = ((low | high | 0x8080808080808080ull) - 0x2020202020202020ull) ^ 0x8080808080808080ull;
    b->sc = u256_scales_per_32(s);
    b->halves = vec_u16(w);
}

/* 32 magnitudes plus offset, with the signs that bytes 4j .. 4j + 3 of both halves of `signs` say (bit set: minus). */
VEC_INLINE __m256i u256_signed(__m256i mag, __m256i signs, int j, int offset)
{
    const __m256i byte_of = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit_of = _mm256_set1_epi64x((int64_t)0x8040201008040201ull);
    __m256i s = _mm256_shuffle_epi8(signs, _mm256_add_epi8(byte_of, _mm256_set1_epi8((char)(4 * j))));
    __m256i minus = _mm256_cmpeq_epi8(_mm256_and_si256(s, bit_of), bit_of);
    /* (mag ^ -1) + 1 is -mag */
    return _mm256_add_epi8(_mm256_xor_si256(mag, minus), _mm256_sub_epi8(_mm256_set1_epi8((char)offset), minus));
}

/* Half h of v in both halves. */
VEC_INLINE __m256i u256_half_twice(__m256i v, int h)
{
    return h ? _mm256_permute4x64_epi64(v, 0xee) : _mm256_permute4x64_epi64(v, 0x44);
}

/* 32 sign indices of 7 bits as sign masks: the eighth bit is the parity of the seven. */
VEC_INLINE __m256i u256_signs7(__m256i index)
{
    const __m256i odd = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    __m256i low = _mm256_shuffle_epi8(odd, u256_and8(index, 15));
    __m256i high = _mm256_shuffle_epi8(odd, u256_and8(_mm256_srli_epi16(index, 4), 15));
    return _mm256_or_si256(index, _mm256_xor_si256(low, high));
}

/* The dword of IQ2_XXS and IQ3_XXS, one per 32: four 7-bit sign indices, a 4-bit scale on top. Eight of them. */
VEC_INLINE __m256i u256_xxs(__m256i a, __m256i *sc)
{
    __m256i s = _mm256_srli_epi32(a, 28), one = _mm256_set1_epi32(1);
    s = _mm256_add_epi32(_mm256_add_epi32(s, s), one);
    *sc = _mm256_or_si256(s, _mm256_slli_epi32(s, 16));
    __m256i i = _mm256_and_si256(a, _mm256_set1_epi32(0x7f));
    i = _mm256_or_si256(i, _mm256_and_si256(_mm256_slli_epi32(a, 1), _mm256_set1_epi32(0x7f00)));
    i = _mm256_or_si256(i, _mm256_and_si256(_mm256_slli_epi32(a, 2), _mm256_set1_epi32(0x7f0000)));
    i = _mm256_or_si256(i, _mm256_and_si256(_mm256_slli_epi32(a, 3), _mm256_set1_epi32(0x7f000000)));
    return u256_signs7(i);
}

/* Four entries of 8 elements. Loads, not a gather: that is no faster where it is fast and far slower elsewhere. */
VEC_INLINE __m256i u256_grid8(const uint64_t *grid, uint32_t i0, uint32_t i1, uint32_t i2, uint32_t i3)
{
    return _mm256_setr_epi64x((int64_t)grid[i0], (int64_t)grid[i1], (int64_t)grid[i2], (int64_t)grid[i3]);
}

/* i: eight indices of entries of 4 elements */
VEC_INLINE __m256i u256_grid4(const uint32_t *grid, const uint32_t *i)
{
    return _mm256_setr_epi32((int32_t)grid[i[0]], (int32_t)grid[i[1]], (int32_t)grid[i[2]], (int32_t)grid[i[3]],
                             (int32_t)grid[i[4]], (int32_t)grid[i[5]], (int32_t)grid[i[6]], (int32_t)grid[i[7]]);
}

VEC_INLINE void unpack256_iq2_xxs(const uint8_t *w, struct block256 *b)
{
    /* The second dword of every 8 bytes */
    __m256i lo = _mm256_shuffle_epi32(vec_load(w + 2), 0xd8), hi = _mm256_shuffle_epi32(vec_load(w + 34), 0xd8);
    __m256i a = _mm256_permute4x64_epi64(_mm256_unpackhi_epi64(lo, hi), 0xd8);
    __m256i signs = u256_xxs(a, &b->sc);
    for (int j = 0; j < 8; j++) {
        const uint8_t *p = w + 2 + 8 * j;
        __m256i mag = u256_grid8(iq2xxs_grid, p[0], p[1], p[2], p[3]);
        b->q[j] = u256_signed(mag, u256_half_twice(signs, j / 4), j % 4, 64);
    }
    b->halves = vec_u16(w);
}

/* 2s + 1 of 16 nibbles, low ones first. */
VEC_INLINE __m256i u256_odd_scales(const uint8_t *s)
{
    uint64_t v = vec_u64(s);
    __m128i low = _mm_cvtsi64_si128((int64_t)(v & 0x0f0f0f0f0f0f0f0full));
    __m128i high = _mm_cvtsi64_si128((int64_t)(v >> 4 & 0x0f0f0f0f0f0f0f0full));
    __m256i n = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(low, high));
    return _mm256_add_epi16(_mm256_add_epi16(n, n), _mm256_set1_epi16(1));
}

VEC_INLINE void unpack256_iq2_xs(const uint8_t *w, struct block256 *b)
{
    __m256i s = _mm256_packus_epi16(_mm256_srli_epi16(vec_load(w + 2), 9), _mm256_srli_epi16(vec_load(w + 34), 9));
    s = u256_signs7(_mm256_permute4x64_epi64(s, 0xd8));
    for (int j = 0; j < 8; j++) {
        uint64_t v = vec_u64(w + 2 + 8 * j);
        __m256i mag = u256_grid8(iq2xs_grid, v & 511, v >> 16 & 511, v >> 32 & 511, v >> 48 & 511);
        b->q[j] = u256_signed(mag, u256_half_twice(s, j / 4), j % 4, 64);
    }
    b->sc = u256_odd_scales(w + 66);
    b->halves = vec_u16(w);
}

VEC_INLINE void unpack256_iq2_s(const uint8_t *w, struct block256 *b)
{
    for (int j = 0; j < 8; j++) {
        const uint8_t *p = w + 2 + 4 * j;
        uint32_t h = w[66 + j];
        __m256i mag = u256_grid8(iq2s_grid, p[0] | (h & 3) << 8, p[1] | (h & 12) << 6, p[2] | (h & 48) << 4,
                                 p[3] | (h & 192) << 2);
        b->q[j] = u256_signed(mag, vec_splat32(w + 34 + 4 * j), 0, 64);
    }
    b->sc = u256_odd_scales(w + 74);
    b->halves = vec_u16(w);
}

VEC_INLINE void unpack256_iq3_xxs(const uint8_t *w, struct block256 *b)
{
    __m256i signs = u256_xxs(vec_load(w + 66), &b->sc);
    for (int j = 0; j < 8; j++) {
        uint32_t i[8];
        for (int n = 0; n < 8; n++) i[n] = w[2 + 8 * j + n];
        b->q[j] = u256_signed(u256_grid4(iq3xxs_grid, i), u256_half_twice(signs, j / 4), j % 4, 64);
    }
    b->halves = vec_u16(w);
}

VEC_INLINE void unpack256_iq3_s(const uint8_t *w, struct block256 *b)
{
    for (int j = 0; j < 8; j++) {
        uint32_t h = w[66 + j], i[8];
        for (int n = 0; n < 8; n++) i[n] = w[2 + 8 * j + n] | (h << (8 - n) & 256);
        b->q[j] = u256_signed(u256_grid4(iq3s_grid, i), vec_splat32(w + 74 + 4 * j), 0, 16);
    }
    uint64_t s = _pdep_u64(vec_u32(w + 106), 0x0f0f0f0f0f0f0f0full);
    b->sc = u256_scales_per_32(2 * s + 0x0101010101010101ull);
    b->halves = vec_u16(w);
}

/* 8 * grid + delta + 16; delta holds +-1 for each 8 elements. */
VEC_INLINE __m256i u256_iq1(__m256i grid, __m256i delta)
{
    __m256i v = u256_and8(_mm256_slli_epi16(grid, 3), 0xf8);
    return _mm256_add_epi8(v, _mm256_add_epi8(delta, _mm256_set1_epi8(16)));
}

VEC_INLINE void unpack256_iq1_s(const uint8_t *w, struct block256 *b)
{
    uint64_t s = 0;
    for (int j = 0; j < 8; j++) {
        const uint8_t *p = w + 2 + 4 * j;
        uint32_t h = vec_u16(w + 34 + 2 * j);
        s |= (uint64_t)(2 * (h >> 12 & 7) + 1) << (8 * j);
        __m256i grid = u256_grid8(iq1s_grid, p[0] | (h & 7) << 8, p[1] | (h & 0x38) << 5, p[2] | (h & 0x1c0) << 2,
                                  p[3] | (h >> 1 & 0x700));
        b->q[j] = u256_iq1(grid, _mm256_set1_epi8((char)(1 - 2 * (int)(h >> 15)))); /* a branch would be mispredicted */
    }
    b->sc = u256_scales_per_32(s);
    b->halves = vec_u16(w);
}

VEC_INLINE void unpack256_iq1_m(const uint8_t *w, struct block256 *b)
{
    for (int j = 0; j < 8; j++) {
        const uint8_t *p = w + 4 * j;
        uint32_t h = vec_u16(w + 32 + 2 * j); /* a nibble per 8: 3 index bits, the sign of the delta */
        __m256i grid = u256_grid8(iq1s_grid, p[0] | (h & 7) << 8, p[1] | (h & 0x70) << 4, p[2] | (h & 0x700),
                                  p[3] | (h >> 4 & 0x700));
        __m256i bit = _mm256_and_si256(_mm256_set1_epi64x((int64_t)h), _mm256_setr_epi64x(8, 0x80, 0x800, 0x8000));
        __m256i plus = _mm256_cmpeq_epi64(bit, _mm256_setzero_si256());
        __m256i minus_one = _mm256_set1_epi8(-1);
        b->q[j] = u256_iq1(grid, _mm256_sub_epi8(minus_one, _mm256_add_epi8(plus, plus)));
    }
    uint64_t s = vec_u64(w + 48), n = _pext_u64(s, 0x0fff0fff0fff0fffull); /* 16 scales of 3 bits */
    uint64_t low = _pdep_u64(n, 0x0707070707070707ull), high = _pdep_u64(n >> 24, 0x0707070707070707ull);
    __m256i v = _mm256_cvtepu8_epi16(_mm_set_epi64x((int64_t)high, (int64_t)low));
    b->sc = _mm256_add_epi16(_mm256_add_epi16(v, v), _mm256_set1_epi16(1));
    b->halves = (uint32_t)_pext_u64(s, 0xf000f000f000f000ull);
}

/* ---- ternary ---- */

/* The first digit of bytes that are fractions to base 3: floor(3v / 256). */
VEC_INLINE __m256i u256_trit(__m256i v)
{
    __m256i one = _mm256_cmpeq_epi8(_mm256_max_epu8(v, _mm256_set1_epi8(86)), v);
    __m256i two = _mm256_cmpeq_epi8(_mm256_max_epu8(v, _mm256_set1_epi8((char)171)), v);
    return _mm256_abs_epi8(_mm256_add_epi8(one, two));
}

/* Modulo 256: drops the digit that has been read. */
VEC_INLINE __m256i u256_times3(__m256i v) { return _mm256_add_epi8(v, _mm256_add_epi8(v, v)); }

VEC_INLINE void unpack256_tq1_0(const uint8_t *w, struct block256 *b)
{
    __m256i v = vec_load(w), d[5];
    for (int n = 0; n < 5; n++, v = u256_times3(v)) b->q[n] = u256_trit(v);
    /* Bytes 32-47 in the low half; in the high half qh, whose digit n belongs at dword n. */
    v = vec_pair(vec_load128(w + 32), _mm_set1_epi32((int32_t)vec_u32(w + 48)));
    for (int n = 0; n < 5; n++, v = u256_times3(v)) d[n] = u256_trit(v);
    b->q[5] = _mm256_permute2x128_si256(d[0], d[1], 0x20);
    b->q[6] = _mm256_permute2x128_si256(d[2], d[3], 0x20);
    __m256i qh = _mm256_blend_epi32(_mm256_blend_epi32(d[0], d[1], 0x20), _mm256_blend_epi32(d[2], d[3], 0x80), 0xc0);
    b->q[7] = _mm256_blend_epi32(d[4], qh, 0xf0);
    b->sc = _mm256_set1_epi16(1);
    b->halves = vec_u16(w + 52);
}

VEC_INLINE void unpack256_tq2_0(const uint8_t *w, struct block256 *b)
{
    u256_two_bits(w, b->q);
    b->sc = _mm256_set1_epi16(1);
    b->halves = vec_u16(w + 64);
}

VEC_INLINE void unpack256_i2_s(const uint8_t *w, struct block256 *b)
{
    __m256i q[8];
    u256_two_bits(w, q);
    for (int j = 0; j < 8; j++) b->q[j] = q[j ^ 3]; /* the first quarter is on top */
    b->sc = _mm256_set1_epi16(1);
    b->halves = 0x3c00; /* 1 */
}

#endif
