/* SPDX-License-Identifier: MIT
 *
 * unpack32.h: the 32-element block types, two blocks of 32 codes to a register.
 *
 * As in unpack256.h: natural order, unsigned u = code + offset; the formats themselves are described
 * in ref/unpack.c. NVFP4, Q1_0 and Q2_0 store 2, 4 and 2 pieces of 32 in a block: a piece is given
 * by its block and its number in it.
 */
#ifndef QUERN_KERNEL_AVX512_UNPACK32_H
#define QUERN_KERNEL_AVX512_UNPACK32_H

#include "kernel/avx512/unpack256.h"

struct format32 {
    int bytes, pieces; /* of a stored block: its size, and how many 32s it holds */
    int offset;        /* u = code + offset */
    bool min;
    bool halves; /* two scales, one per 16 (NVFP4) */
};

ALWAYS_INLINE struct format32 format32_of(enum dtype t)
{
#define FORMAT(ID, size, block, low, has_min, has_halves)                                                              \
    case DT_##ID:                                                                                                      \
        return (struct format32){.bytes = (size),                                                                      \
                                 .pieces = (block) / 32,                                                               \
                                 .offset = CODE_OFFSET(low),                                                           \
                                 .min = (has_min),                                                                     \
                                 .halves = (has_halves)};
#define ONE(ID, name, id, block, bytes, tail, floats, at0, at1, low, high, min)                                        \
    FORMAT(ID, bytes, block, low, min, false)
#define TWO(ID, name, id, block, bytes, tail, floats, at0, at1, low, high, min) FORMAT(ID, bytes, block, low, min, true)
    switch (t) {
        DTYPES_B32(ONE)
        DTYPES_B32_HALVES(TWO)
    default: __builtin_unreachable();
    }
#undef FORMAT
#undef ONE
#undef TWO
}

/* Piece i of a row. */
struct piece {
    const uint8_t *w; /* its block */
    int at;           /* which 32 of the block */
};

ALWAYS_INLINE struct piece piece_at(enum dtype t, const uint8_t *row, int i)
{
    const struct format32 F = format32_of(t);
    return (struct piece){row + (size_t)(i / F.pieces) * (size_t)F.bytes, i % F.pieces};
}

/* Bit e of a and of b onto byte e of the halves. */
ALWAYS_INLINE __m512i add_high_bits(__m512i v, const uint8_t *a, const uint8_t *b, char value)
{
    __mmask64 m = get_u32(a) | (uint64_t)get_u32(b) << 32;
    return _mm512_mask_add_epi8(v, m, v, _mm512_set1_epi8(value));
}

/* The doubled FP4 integers plus 16. */
ALWAYS_INLINE __m512i fp4_lookup(__m512i nibbles)
{
    const __m128i values = _mm_setr_epi8(16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), nibbles);
}

/* NVFP4's 16 bytes: 8 bytes' low nibbles, then their high nibbles, then the other 8. */
ALWAYS_INLINE __m512i nibbles_by_eight(const uint8_t *a, const uint8_t *b)
{
    const __m512i dup = _mm512_setr_epi64(0, 0, 1, 1, 4, 4, 5, 5), shift = _mm512_setr_epi64(0, 4, 0, 4, 0, 4, 0, 4);
    __m512i v = _mm512_zextsi128_si512(_mm_loadu_si128((const void *)a));
    v = _mm512_permutexvar_epi64(dup, _mm512_inserti32x4(v, _mm_loadu_si128((const void *)b), 2));
    return _mm512_and_si512(_mm512_srlv_epi64(v, shift), _mm512_set1_epi8(15));
}

/* Two bits per element, 8 bytes to 32 elements, the lowest two bits of a byte first. */
ALWAYS_INLINE __m512i two_bits_of_bytes(const uint8_t *a, const uint8_t *b)
{
    __m512i v = _mm512_cvtepu8_epi32(_mm_set_epi64x((long long)get_u64(b), (long long)get_u64(a)));
    v = _mm512_or_si512(v, _mm512_slli_epi32(v, 12)); /* the upper nibble's pairs to bytes 2 and 3 */
    v = _mm512_or_si512(v, _mm512_slli_epi32(v, 6));
    return _mm512_and_si512(v, _mm512_set1_epi8(3));
}

ALWAYS_INLINE __m512i unpack32(enum dtype t, struct piece a, struct piece b)
{
    const __m512i zero = _mm512_setzero_si512();
    switch (t) {
    case DT_Q4_0: return nibbles_of_two(a.w + 2, b.w + 2);
    case DT_Q4_1: return nibbles_of_two(a.w + 4, b.w + 4);
    case DT_Q5_0: return add_high_bits(nibbles_of_two(a.w + 6, b.w + 6), a.w + 2, b.w + 2, 16);
    case DT_Q5_1: return add_high_bits(nibbles_of_two(a.w + 8, b.w + 8), a.w + 4, b.w + 4, 16);
    case DT_Q8_0: {
        __m512i v = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)(a.w + 2)));
        v = _mm512_inserti64x4(v, _mm256_loadu_si256((const void *)(b.w + 2)), 1);
        return _mm512_xor_si512(v, _mm512_set1_epi8((char)0x80));
    }
    case DT_IQ4_NL: return iq4_lookup(nibbles_of_two(a.w + 2, b.w + 2));
    case DT_MXFP4: return fp4_lookup(nibbles_of_two(a.w + 1, b.w + 1));
    case DT_NVFP4: return fp4_lookup(nibbles_by_eight(a.w + 4 + 16 * a.at, b.w + 4 + 16 * b.at));
    case DT_Q1_0: return add_high_bits(zero, a.w + 2 + 4 * a.at, b.w + 2 + 4 * b.at, 2);
    case DT_Q2_0: return two_bits_of_bytes(a.w + 2 + 8 * a.at, b.w + 2 + 8 * b.at);
    default: __builtin_unreachable();
    }
}

/* ---- scales ---- */

/* 2^(e - 128), denormal for the smallest two e. */
ALWAYS_INLINE __m512 half_e8m0(__m512i e)
{
    __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    __m512i denormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    __mmask16 small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, small, denormal));
}

/* Half of an unsigned E4M3: no sign, 0x7f is zero. */
ALWAYS_INLINE __m512 half_ue4m3(__m512i x)
{
    __mmask16 nan = _mm512_cmpeq_epi32_mask(x, _mm512_set1_epi32(0x7f));
    __m512i low = _mm512_and_si512(x, _mm512_set1_epi32(0x7f));
    __mmask16 denormal = _mm512_cmplt_epi32_mask(low, _mm512_set1_epi32(8));
    __m512 v = _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(low, 20), _mm512_set1_epi32((127 - 8) << 23)));
    v = _mm512_mask_mul_ps(v, denormal, _mm512_cvtepi32_ps(low), _mm512_set1_ps(0x1p-10f));
    return _mm512_mask_mov_ps(v, nan, _mm512_setzero_ps());
}

/* Where the scales of a piece are in its block, from its number in it. */
ALWAYS_INLINE size_t scale_at(enum dtype t, int at) { return t == DT_NVFP4 ? 2 * (size_t)at : 0; }

/* The scales of 16 pieces from the first four bytes of each, and in *second the minimums, or NVFP4's second scales
 * (other types do not set it). */
ALWAYS_INLINE void scales32(enum dtype t, __m512i v, __m512 *dw, __m512 *second)
{
    const __m512i byte = _mm512_set1_epi32(255);
    if (t == DT_MXFP4) {
        *dw = half_e8m0(_mm512_and_si512(v, byte));
    } else if (t == DT_NVFP4) {
        *dw = half_ue4m3(_mm512_and_si512(v, byte));
        *second = half_ue4m3(_mm512_and_si512(_mm512_srli_epi32(v, 8), byte));
    } else {
        *dw = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
        if (format32_of(t).min) *second = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(v, 16)));
    }
}

#endif
