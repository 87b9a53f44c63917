/* SPDX-License-Identifier: MIT
 *
 * lookup.h: what stored blocks of the codebook types say of 64 indices, and the entries at these indices.
 *
 * One function for each type takes two blocks of 32 indices (IQ1, IQ2) or one block of 64 (IQ3) apart: the indices,
 * which have 8 to 11 bits, signs, and the scale of each dword of the products. The formats are described in
 * ref/unpack.c, element by element; here is only how their bits are moved. Nothing outside the blocks is read.
 */
#ifndef QUERN_KERNEL_AVX512VBMI_LOOKUP_H
#define QUERN_KERNEL_AVX512VBMI_LOOKUP_H

#include "kernel/avx512/unpack256.h"
#include "kernel/avx512vbmi/planes.h"

ALWAYS_INLINE __m512i table(const uint64_t *p) { return _mm512_load_si512(p); }

struct lookup {
    __m512i index;     /* the low eight bits of 64 indices */
    __mmask64 high[4]; /* their bits 7 to 10 */
    /* A byte for each. IQ2: bit j negates element j. IQ3: the same, for two indices; both have a copy. IQ1: bit 4 makes
     * the delta negative, other bits are anything. */
    __m512i signs;
    __m512i scale[2]; /* of each dword; [1]: of its second group */
    __m512i run;      /* IQ1: bits 4 to 10 of the indices; bit 7 is anything */
};

/* 2s + 1 */
ALWAYS_INLINE __m512i odd_scale(__m512i s) { return _mm512_add_epi32(_mm512_add_epi32(s, s), _mm512_set1_epi32(1)); }

ALWAYS_INLINE __m512i two_halves(const uint8_t *a, const uint8_t *b)
{
    __m512i v = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)a));
    return _mm512_inserti64x4(v, _mm256_loadu_si256((const void *)b), 1);
}

ALWAYS_INLINE __m256i two_quarters(const uint8_t *a, const uint8_t *b)
{
    __m256i v = _mm256_castsi128_si256(_mm_loadu_si128((const void *)a));
    return _mm256_inserti128_si256(v, _mm_loadu_si128((const void *)b), 1);
}

ALWAYS_INLINE __m128i two_eighths(const uint8_t *a, const uint8_t *b)
{
    return _mm_set_epi64x((long long)get_u64(b), (long long)get_u64(a));
}

/* The same eight bit offsets in each qword: byte i of the result is bits at[i] .. at[i] + 7. */
ALWAYS_INLINE __m512i fields(__m512i v, uint64_t at)
{
    return _mm512_multishift_epi64_epi8(_mm512_set1_epi64((long long)at), v);
}

/* Bytes with a 7-bit sign index in their low bits as sign masks. */
ALWAYS_INLINE __m512i signs_of(__m512i index)
{
    return _mm512_permutex2var_epi8(table(iq_sign_bytes), index, table(iq_sign_bytes + 8));
}

/* { f16 d; per 32: u8 index[4], u32 a } */
ALWAYS_INLINE void lookup_iq2_xxs(const uint8_t *a, const uint8_t *b, struct lookup *l)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    __m512i va = _mm512_loadu_si512(a + 2), vb = _mm512_loadu_si512(b + 2);
    __m512i word = _mm512_permutex2var_epi32(va, odd, vb);
    l->index = _mm512_permutex2var_epi32(va, even, vb);
    l->high[0] = _mm512_movepi8_mask(l->index);
    l->signs = signs_of(fields(word, 0x352e2720150e0700));
    l->scale[0] = odd_scale(_mm512_srli_epi32(word, 28));
}

/* Scales of 16 as nibbles: a byte for each 32, the low one first. */
ALWAYS_INLINE void lookup_nibbles(const uint8_t *a, const uint8_t *b, struct lookup *l)
{
    __m512i v = _mm512_cvtepu8_epi32(two_eighths(a, b));
    l->scale[0] = odd_scale(_mm512_and_si512(v, _mm512_set1_epi32(15)));
    l->scale[1] = odd_scale(_mm512_srli_epi32(v, 4));
}

/* The byte indices first, first + 2 .. first + 126. */
ALWAYS_INLINE __m512i every_second(int first)
{
    uint8_t at[64];
    for (int i = 0; i < 64; i++) at[i] = (uint8_t)(first + 2 * i);
    return _mm512_loadu_si512(at);
}

/* { f16 d; u16 qs[32]; scales[8] }: 9 bits of index, 7 of sign index */
ALWAYS_INLINE void lookup_iq2_xs(const uint8_t *a, const uint8_t *b, struct lookup *l)
{
    __m512i va = _mm512_loadu_si512(a + 2), vb = _mm512_loadu_si512(b + 2);
    __m512i high = _mm512_permutex2var_epi8(va, every_second(1), vb);
    l->index = _mm512_permutex2var_epi8(va, every_second(0), vb);
    l->high[0] = _mm512_movepi8_mask(l->index);
    l->high[1] = _mm512_test_epi8_mask(high, _mm512_set1_epi8(1));
    l->signs = signs_of(_mm512_srli_epi16(high, 1));
    lookup_nibbles(a + 66, b + 66, l);
}

/* { f16 d; qs[32]; signs[32]; qh[8]; scales[8] } */
ALWAYS_INLINE void lookup_iq2_s(const uint8_t *a, const uint8_t *b, struct lookup *l)
{
    const __m512i four_times =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
    __m512i high = _mm512_shuffle_epi8(_mm512_cvtepu8_epi32(two_eighths(a + 66, b + 66)), four_times);
    l->index = two_halves(a + 2, b + 2);
    l->high[0] = _mm512_movepi8_mask(l->index);
    l->high[1] = _mm512_test_epi8_mask(high, _mm512_set1_epi32(0x40100401));
    l->high[2] = _mm512_test_epi8_mask(high, _mm512_set1_epi32((int)0x80200802));
    l->signs = two_halves(a + 34, b + 34);
    lookup_nibbles(a + 74, b + 74, l);
}

/* Bits 7 to 10 of indices, the upper three from the low bits of the bytes of high. */
ALWAYS_INLINE void lookup_11_bits(__m512i high, struct lookup *l)
{
    __m512i low = _mm512_srli_epi16(l->index, 4);
    l->run = _mm512_ternarylogic_epi32(_mm512_set1_epi8(15), low, _mm512_slli_epi16(high, 4), 0xca);
    l->high[0] = _mm512_movepi8_mask(l->index);
    for (int i = 0; i < 3; i++) l->high[1 + i] = _mm512_test_epi8_mask(high, _mm512_set1_epi8((char)(1 << i)));
}

/* { f16 d; qs[32]; u16 qh[8] }: four times 3 index bits, 3-bit scale, sign of the delta */
ALWAYS_INLINE void lookup_iq1_s(const uint8_t *a, const uint8_t *b, struct lookup *l)
{
    __m512i high = _mm512_cvtepu16_epi32(two_quarters(a + 34, b + 34));
    l->index = two_halves(a + 2, b + 2);
    lookup_11_bits(fields(high, 0x2926232009060300), l);
    l->signs = fields(high, 0x2b2b2b2b0b0b0b0b);
    l->scale[0] = odd_scale(_mm512_and_si512(_mm512_srli_epi32(high, 12), _mm512_set1_epi32(7)));
}

/* { qs[32]; qh[16]; u16 scales[4] }: nibbles of 3 index bits and the delta's sign; four 3-bit scales in each u16 */
ALWAYS_INLINE void lookup_iq1_m(const uint8_t *a, const uint8_t *b, struct lookup *l)
{
    const __m512i seven = _mm512_set1_epi32(7);
    const __m512i bit = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 6, 0, 6));
    __m512i high = _mm512_cvtepu8_epi16(two_quarters(a + 32, b + 32));
    high = _mm512_or_si512(high, _mm512_slli_epi16(high, 4)); /* the high nibble comes to the second byte */
    l->index = two_halves(a, b);
    lookup_11_bits(high, l);
    l->signs = _mm512_slli_epi16(high, 1);
    /* each u16 for two dwords, the second one's scales six bits up */
    __m512i v = _mm512_cvtepu16_epi64(two_eighths(a + 48, b + 48));
    v = _mm512_srlv_epi32(_mm512_shuffle_epi32(v, (_MM_PERM_ENUM)0xa0), bit);
    l->scale[0] = odd_scale(_mm512_and_si512(v, seven));
    l->scale[1] = odd_scale(_mm512_and_si512(_mm512_srli_epi32(v, 3), seven));
}

/* { f16 d; qs[64]; per 32: u32 a } */
ALWAYS_INLINE void lookup_iq3_xxs(const uint8_t *w, struct lookup *l)
{
    __m512i word = _mm512_cvtepu32_epi64(_mm256_loadu_si256((const void *)(w + 66)));
    l->index = _mm512_loadu_si512(w + 2);
    l->high[0] = _mm512_movepi8_mask(l->index);
    l->signs = signs_of(fields(word, 0x15150e0e07070000));
    l->scale[0] = odd_scale(_mm512_srli_epi32(_mm512_shuffle_epi32(word, (_MM_PERM_ENUM)0xa0), 28));
}

/* { f16 d; qs[64]; qh[8]; signs[32]; scales[4] } */
ALWAYS_INLINE void lookup_iq3_s(const uint8_t *w, struct lookup *l)
{
    const __m512i nibble = _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
    __m512i signs = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)(w + 74)));
    __m512i scales = _mm512_srlv_epi32(_mm512_set1_epi32((int)get_u32(w + 106)), nibble);
    l->index = _mm512_loadu_si512(w + 2);
    l->high[0] = _mm512_movepi8_mask(l->index);
    l->high[1] = get_u64(w + 66);
    l->signs = _mm512_or_si512(signs, _mm512_slli_epi16(signs, 8));
    l->scale[0] = odd_scale(_mm512_and_si512(scales, _mm512_set1_epi32(15)));
}

/* The bytes of a plane with n entries, 128 to 2048, at two times 64 indices, which share the loads of the plane. The
 * index's bit 7 chooses between what the first two pairs of registers of the plane give, bit 8 between two such
 * choices, and so on. A choice is made as soon as both sides are there, so that few registers are needed. */
ALWAYS_INLINE void look_up(const uint64_t *plane, int n, const struct lookup l[2], __m512i out[2])
{
    __m512i v[2][5]; /* [..][b]: chosen by b bits */
#pragma GCC unroll 16
    for (int i = 0; i < n / 128; i++) {
        __m512i low = table(plane + 16 * i), high = table(plane + 16 * i + 8);
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            const int n_bits = __builtin_ctz((unsigned)i + 1); /* so many ones at the end of i */
            out[j] = _mm512_permutex2var_epi8(low, l[j].index, high);
#pragma GCC unroll 4
            for (int bit = 0; bit < n_bits; bit++) out[j] = _mm512_mask_mov_epi8(v[j][bit], l[j].high[bit], out[j]);
            v[j][n_bits] = out[j];
        }
    }
}

/* The bytes of IQ1's plane 1 at 64 indices. */
ALWAYS_INLINE __m512i look_up_steps(const struct lookup *l)
{
    __m512i v[3];
#pragma GCC unroll 3
    for (int i = 0; i < 3; i++)
        v[i] = _mm512_permutex2var_epi8(table(iq1s_steps + 16 * i), l->run, table(iq1s_steps + 16 * i + 8));
    __m512i entry = _mm512_and_si512(l->index, _mm512_set1_epi8(15));
    return _mm512_mask_mov_epi8(v[0], _mm512_cmpge_epu8_mask(entry, v[2]), v[1]);
}

#endif
