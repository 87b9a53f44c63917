/* SPDX-License-Identifier: MIT
 *
 * unpack32.h: the types with a scale per 32 (or 16) elements, 256 elements at a time.
 *
 * The counterpart of unpack256.h: one always-inlined function per type turns 256 elements (2 to 8
 * stored blocks) into codes in natural order and 8 float scales, lanes = blocks of 32. The same offset
 * makes signed codes unsigned; Q8_0, IQ4_NL and NVFP4 stay signed. ref/unpack.c has the formats.
 */
#ifndef QUERN_KERNEL_AVX2_UNPACK32_H
#define QUERN_KERNEL_AVX2_UNPACK32_H

#include "kernel/avx2/vec.h"
#include "tensor/dtype.h"

struct blocks32 {
    __m256i q[8];
    __m256 dw, dw1, m; /* dw1: of the last 16 elements of each 32, NVFP4 only */
};
typedef void unpack32_fn(const uint8_t *w, struct blocks32 *b);

/* Functions that unpack what n rows have at byte `at`, by type: for loops that types share (unpack.c). NULL for other
 * types. */
typedef void unpack32_rows_fn(const uint8_t *const *row, size_t at, int n, struct blocks32 *b);
extern unpack32_rows_fn *const avx2_unpack32[DT_N];

/* 8 floats of a type. */
VEC_INLINE __m256 u32_floats(enum dtype t, const uint8_t *p)
{
    if (t == DT_F32) return _mm256_loadu_ps((const float *)(const void *)p);
    if (t == DT_F16) return _mm256_cvtph_ps(vec_load128(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(vec_load128(p)), 16));
}

/* The scales and biases of n <= 8 blocks from the i0-th on (a multiple of 8); nothing beyond the row is read. */
VEC_INLINE void u32_side(const struct side *row, int i0, int n, struct blocks32 *b)
{
    const int blocks = row->group / 32, shift = blocks == 4 ? 2 : blocks - 1; /* 1, 2, 4: 0, 1, 2 */
    const size_t size = row->type == DT_F32 ? 4 : 2, at = (size_t)(i0 >> shift) * size;
    const size_t bytes = (size_t)((n + blocks - 1) >> shift) * size;
    const __m256i lane = _mm256_srlv_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(shift));
    uint8_t scale[32] = {0}, bias[32] = {0};
    switch (bytes) {
    case 32: memcpy(scale, row->scale + at, 32), memcpy(bias, row->bias + at, 32); break;
    case 16: memcpy(scale, row->scale + at, 16), memcpy(bias, row->bias + at, 16); break;
    case 8: memcpy(scale, row->scale + at, 8), memcpy(bias, row->bias + at, 8); break;
    case 4: memcpy(scale, row->scale + at, 4), memcpy(bias, row->bias + at, 4); break;
    default: memcpy(scale, row->scale + at, bytes), memcpy(bias, row->bias + at, bytes);
    }
    b->dw = _mm256_permutevar8x32_ps(u32_floats(row->type, scale), lane);
    b->m = _mm256_permutevar8x32_ps(u32_floats(row->type, bias), lane);
}

/* The f16 at the start of 8 blocks, `stride` bytes apart. */
VEC_INLINE __m256 u32_halves(const uint8_t *w, size_t stride)
{
    __m128i v = _mm_cvtsi32_si128(vec_u16(w));
    v = _mm_insert_epi16(v, vec_u16(w + stride), 1);
    v = _mm_insert_epi16(v, vec_u16(w + 2 * stride), 2);
    v = _mm_insert_epi16(v, vec_u16(w + 3 * stride), 3);
    v = _mm_insert_epi16(v, vec_u16(w + 4 * stride), 4);
    v = _mm_insert_epi16(v, vec_u16(w + 5 * stride), 5);
    v = _mm_insert_epi16(v, vec_u16(w + 6 * stride), 6);
    v = _mm_insert_epi16(v, vec_u16(w + 7 * stride), 7);
    return _mm256_cvtph_ps(v);
}

/* 16 bytes: the low nibbles, then the high ones. */
VEC_INLINE __m256i u32_nibbles(const uint8_t *qs)
{
    __m128i v = vec_load128(qs);
    return _mm256_and_si256(vec_pair(v, _mm_srli_epi16(v, 4)), _mm256_set1_epi8(15));
}

/* 32 bits as 32 bytes: all ones where the bit is set. */
VEC_INLINE __m256i u32_bits(uint32_t bits)
{
    const __m256i byte_of = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit_of = _mm256_set1_epi64x((int64_t)0x8040201008040201ull);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int32_t)bits), byte_of);
    return _mm256_cmpeq_epi8(_mm256_and_si256(v, bit_of), bit_of);
}

/* Nibbles with a fifth bit each. */
VEC_INLINE __m256i u32_fifth(const uint8_t *qs, uint32_t bits)
{
    return _mm256_or_si256(u32_nibbles(qs), _mm256_and_si256(u32_bits(bits), _mm256_set1_epi8(16)));
}

VEC_INLINE void unpack32_q4_0(const uint8_t *w, struct blocks32 *b)
{
    for (int j = 0; j < 8; j++) b->q[j] = u32_nibbles(w + 18 * j + 2);
    b->dw = u32_halves(w, 18);
}

VEC_INLINE void unpack32_q4_1(const uint8_t *w, struct blocks32 *b)
{
    for (int j = 0; j < 8; j++) b->q[j] = u32_nibbles(w + 20 * j + 4);
    b->dw = u32_halves(w, 20);
    b->m = u32_halves(w + 2, 20);
}

VEC_INLINE void unpack32_q5_0(const uint8_t *w, struct blocks32 *b)
{
    for (int j = 0; j < 8; j++) b->q[j] = u32_fifth(w + 22 * j + 6, vec_u32(w + 22 * j + 2));
    b->dw = u32_halves(w, 22);
}

VEC_INLINE void unpack32_q5_1(const uint8_t *w, struct blocks32 *b)
{
    for (int j = 0; j < 8; j++) b->q[j] = u32_fifth(w + 24 * j + 8, vec_u32(w + 24 * j + 4));
    b->dw = u32_halves(w, 24);
    b->m = u32_halves(w + 2, 24);
}

VEC_INLINE void unpack32_q8_0(const uint8_t *w, struct blocks32 *b)
{
    for (int j = 0; j < 8; j++) b->q[j] = vec_load(w + 34 * j + 2);
    b->dw = u32_halves(w, 34);
}

VEC_INLINE __m256i u32_iq4_table(void)
{
    return _mm256_broadcastsi128_si256(
        _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113));
}

VEC_INLINE void unpack32_iq4_nl(const uint8_t *w, struct blocks32 *b)
{
    const __m256i table = u32_iq4_table();
    for (int j = 0; j < 8; j++) b->q[j] = _mm256_shuffle_epi8(table, u32_nibbles(w + 18 * j + 2));
    b->dw = u32_halves(w, 18);
}

/* Doubled FP4 + 16. */
VEC_INLINE __m256i u32_mxfp4_table(void)
{
    return _mm256_broadcastsi128_si256(_mm_setr_epi8(16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4));
}

/* 2^(e - 128); the two lowest are denormal */
VEC_INLINE __m256 u32_e8m0_half(__m256i e)
{
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i denormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(denormal, normal, _mm256_cmpgt_epi32(e, _mm256_set1_epi32(1))));
}

VEC_INLINE void unpack32_mxfp4(const uint8_t *w, struct blocks32 *b)
{
    const __m256i table = u32_mxfp4_table();
    for (int j = 0; j < 8; j++) b->q[j] = _mm256_shuffle_epi8(table, u32_nibbles(w + 17 * j + 1));
    __m256i e = _mm256_setr_epi32(w[0], w[17], w[34], w[51], w[68], w[85], w[102], w[119]);
    b->dw = u32_e8m0_half(e);
}

/* Half of 8 unsigned E4M3 numbers (bytes in dwords; their top bit is ignored, except that only 0x7f is zero). */
VEC_INLINE __m256 u32_ue4m3_half(__m256i x)
{
    __m256i e = _mm256_and_si256(_mm256_srli_epi32(x, 3), _mm256_set1_epi32(15));
    __m256i m = _mm256_and_si256(x, _mm256_set1_epi32(7)), denormal = _mm256_cmpeq_epi32(e, _mm256_setzero_si256());
    /* (8 + m) << e is twice what a denormal of the same m would be at e = 0 */
    __m256i v = _mm256_sllv_epi32(_mm256_add_epi32(m, _mm256_set1_epi32(8)), e);
    v = _mm256_blendv_epi8(v, _mm256_add_epi32(m, m), denormal);
    v = _mm256_andnot_si256(_mm256_cmpeq_epi32(x, _mm256_set1_epi32(0x7f)), v);
    return _mm256_mul_ps(_mm256_cvtepi32_ps(v), _mm256_set1_ps(0x1p-11f));
}

VEC_INLINE void unpack32_nvfp4(const uint8_t *w, struct blocks32 *b)
{
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)); /* doubled FP4 */
    const __m256i low = _mm256_set1_epi8(15);
    uint64_t even = 0, odd = 0;
    for (int i = 0; i < 4; i++) {
        const uint8_t *p = w + 36 * i;
        /* 8 bytes per 16 elements: their low nibbles come first */
        __m256i v = _mm256_permute4x64_epi64(vec_load(p + 4), 0xd8); /* bytes 0-7, 16-23 | 8-15, 24-31 */
        __m256i l = _mm256_and_si256(v, low), h = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
        b->q[2 * i] = _mm256_shuffle_epi8(table, _mm256_unpacklo_epi64(l, h));
        b->q[2 * i + 1] = _mm256_shuffle_epi8(table, _mm256_unpackhi_epi64(l, h));
        even |= (uint64_t)(p[0] | p[2] << 8) << (16 * i);
        odd |= (uint64_t)(p[1] | p[3] << 8) << (16 * i);
    }
    b->dw = u32_ue4m3_half(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)even)));
    b->dw1 = u32_ue4m3_half(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)odd)));
}

/* 128 elements to a scale. Twice the bit, so that the offset 1 makes it -1 or 1. */
VEC_INLINE void unpack32_q1_0(const uint8_t *w, struct blocks32 *b)
{
    for (int j = 0; j < 8; j++) /* 0 or 2 */
        b->q[j] = _mm256_and_si256(u32_bits(vec_u32(w + 18 * (j / 4) + 2 + 4 * (j % 4))), _mm256_set1_epi8(2));
    __m128i d = _mm_unpacklo_epi64(_mm_set1_epi16((short)vec_u16(w)), _mm_set1_epi16((short)vec_u16(w + 18)));
    b->dw = _mm256_cvtph_ps(d);
}

/* 64 elements to a scale, four to a byte. */
VEC_INLINE void unpack32_q2_0(const uint8_t *w, struct blocks32 *b)
{
    for (int j = 0; j < 8; j++) { /* 8 bytes: spread each over a dword, then shift */
        __m256i v = _mm256_cvtepu8_epi32(vec_load64(w + 18 * (j / 2) + 2 + 8 * (j % 2)));
        v = _mm256_or_si256(v, _mm256_slli_epi32(v, 6));
        v = _mm256_or_si256(v, _mm256_slli_epi32(v, 12)); /* bits 2n at 8n */
        b->q[j] = _mm256_and_si256(v, _mm256_set1_epi8(3));
    }
    __m128i d =
        _mm_setr_epi16((short)vec_u16(w), (short)vec_u16(w), (short)vec_u16(w + 18), (short)vec_u16(w + 18),
                       (short)vec_u16(w + 36), (short)vec_u16(w + 36), (short)vec_u16(w + 54), (short)vec_u16(w + 54));
    b->dw = _mm256_cvtph_ps(d);
}

/* MLX: codes only; u32_side() has the rest. 8 codes of some bits to 8 bytes. Odd sizes are put together from two loads;
 * a copy to memory would have to be read again before it is whole. */
VEC_INLINE long long u32_spread(const uint8_t *w, int bits)
{
    uint64_t v = vec_u16(w);
    if (bits == 3) v |= (uint64_t)w[2] << 16;
    if (bits == 5) v = vec_u32(w) | (uint64_t)w[4] << 32;
    if (bits == 6) v = vec_u32(w) | (uint64_t)vec_u16(w + 4) << 32;
    return (long long)_pdep_u64(v, 0x0101010101010101u * (uint64_t)((1 << bits) - 1));
}

VEC_INLINE void u32_bit_rows(const uint8_t *w, int bits, struct blocks32 *b)
{
    for (int j = 0; j < 8; j++, w += 4 * bits)
        b->q[j] = _mm256_setr_epi64x(u32_spread(w, bits), u32_spread(w + bits, bits), u32_spread(w + 2 * bits, bits),
                                     u32_spread(w + 3 * bits, bits));
}

VEC_INLINE void unpack32_mlx2(const uint8_t *w, struct blocks32 *b) { u32_bit_rows(w, 2, b); }
VEC_INLINE void unpack32_mlx3(const uint8_t *w, struct blocks32 *b) { u32_bit_rows(w, 3, b); }
VEC_INLINE void unpack32_mlx5(const uint8_t *w, struct blocks32 *b) { u32_bit_rows(w, 5, b); }
VEC_INLINE void unpack32_mlx6(const uint8_t *w, struct blocks32 *b) { u32_bit_rows(w, 6, b); }

VEC_INLINE void unpack32_mlx4(const uint8_t *w, struct blocks32 *b)
{
    for (int j = 0; j < 8; j++) { /* a byte is two codes that follow each other */
        __m128i v = vec_load128(w + 16 * j), low = _mm_and_si128(v, _mm_set1_epi8(15));
        __m128i high = _mm_and_si128(_mm_srli_epi16(v, 4), _mm_set1_epi8(15));
        b->q[j] = vec_pair(_mm_unpacklo_epi8(low, high), _mm_unpackhi_epi8(low, high));
    }
}

/* Signed: 128 less than the codes. */
VEC_INLINE void unpack32_mlx8(const uint8_t *w, struct blocks32 *b)
{
    for (int j = 0; j < 8; j++) b->q[j] = _mm256_xor_si256(vec_load(w + 32 * j), _mm256_set1_epi8(-128));
}

#endif
