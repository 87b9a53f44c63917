/* SPDX-License-Identifier: MIT
 *
 * entries.h: stored blocks of the codebook types (IQ1, IQ2, IQ3) as codes, by way of the words of their entries.
 *
 * A gather is slow: it fetches one entry after the other, and where the processor is mended against gather data
 * sampling it takes 30 cycles for eight. Here an entry is a word (words.h), and vpermi2w looks 32 of them up in 64
 * words at once; IQ1's codebook is too large for that, so scalar loads and stores put its words together. Shifts and
 * masks then take four bits of each byte: what the codebook says of an element, and its sign. A byte shuffle makes
 * them a code, unsigned by an offset.
 *
 * So the elements come out by their place in an entry: register j has element j of each half of an entry,
 *
 *   IQ1, IQ2   u[j]           byte i is element 4 i + j of the block
 *   IQ3        u[2 h + j]     byte i is element 2 i + j of half h
 *
 * The formats are described in ref/unpack.c, element by element. Nothing outside the block is read.
 */
#ifndef QUERN_KERNEL_AVX512_ENTRIES_H
#define QUERN_KERNEL_AVX512_ENTRIES_H

#include "kernel/avx512/unpack256.h"
#include "kernel/avx512/words.h"

/* What a block says of 32 entries of eight elements. IQ3: of half of its entries. */
struct entries {
    __m512i word;  /* eight digits of two bits; IQ3: four of three bits, in nibbles */
    __m512i sign;  /* a set bit negates: bit j of a byte element j of half an entry; IQ1: bit 2 the entry's delta;
                      IQ3: bits 3 and 4 the two elements of half an entry */
    __m512i scale; /* of each dword of the sum */
};

ALWAYS_INLINE bool is_iq1(enum dtype t) { return t == DT_IQ1_S || t == DT_IQ1_M; }
ALWAYS_INLINE bool is_iq3(enum dtype t) { return t == DT_IQ3_XXS || t == DT_IQ3_S; }
ALWAYS_INLINE bool is_codebook(enum dtype t)
{
    return is_iq1(t) || is_iq3(t) || t == DT_IQ2_XXS || t == DT_IQ2_XS || t == DT_IQ2_S;
}

/* (a | b) & mask */
ALWAYS_INLINE __m512i either_masked(__m512i a, __m512i b, __m512i mask)
{
    return _mm512_ternarylogic_epi32(a, b, mask, 0xa8);
}

/* 2s + 1 */
ALWAYS_INLINE __m512i odd_scale(__m512i s) { return _mm512_add_epi32(_mm512_add_epi32(s, s), _mm512_set1_epi32(1)); }

/* The words of a codebook of n entries, 256 to 1024, at 32 indices. The index's bit 6 chooses between what the first
 * two pairs of registers give, bit 7 between two such choices, and so on. */
ALWAYS_INLINE __m512i look_up(const uint16_t *words, int n, __m512i index)
{
    __mmask32 high[4];
    __m512i v[5], out = index;
#pragma GCC unroll 4
    for (int bit = 0; 64 << bit < n; bit++)
        high[bit] = _mm512_test_epi16_mask(index, _mm512_set1_epi16((short)(64 << bit)));
#pragma GCC unroll 16
    for (int i = 0; i < n / 64; i++) {
        const int n_bits = __builtin_ctz((unsigned)i + 1); /* so many ones at the end of i */
        out =
            _mm512_permutex2var_epi16(_mm512_load_si512(words + 64 * i), index, _mm512_load_si512(words + 64 * i + 32));
#pragma GCC unroll 4
        for (int bit = 0; bit < n_bits; bit++) out = _mm512_mask_mov_epi16(v[bit], high[bit], out);
        v[n_bits] = out;
    }
    return out;
}

/* Eight signs in each word: four to each of its bytes. */
ALWAYS_INLINE __m512i spread_signs(__m512i eight)
{
    return either_masked(eight, _mm512_slli_epi16(eight, 4), _mm512_set1_epi16(0x0f0f));
}

/* Bit `to` of bytes whose low nibble has an odd number of ones. */
ALWAYS_INLINE __m512i parity(__mmask64 bytes, __m512i v, char to)
{
    const __m128i odd = _mm_setr_epi8(0, to, to, 0, to, 0, 0, to, to, 0, 0, to, 0, to, to, 0);
    return _mm512_maskz_shuffle_epi8(bytes, _mm512_broadcast_i32x4(odd), v);
}

/* The same from words with a 7-bit sign index; the eighth sign makes their number even. */
ALWAYS_INLINE __m512i spread_index(__m512i seven)
{
    __m512i four = _mm512_slli_epi16(seven, 4), x = _mm512_xor_si512(four, _mm512_slli_epi16(seven, 8));
    __m512i sign = either_masked(seven, four, _mm512_set1_epi16(0x070f));
    return _mm512_or_si512(sign, parity(0xaaaaaaaaaaaaaaaa, x, 8));
}

/* { f16 d; per 32: u8 index[4], u32 a }: a has four 7-bit sign indices and, on top, the scale */
ALWAYS_INLINE void entries_iq2_xxs(const uint8_t *w, struct entries *e)
{
    const __m512i index_at =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, -1, 1, -1, 2, -1, 3, -1, 8, -1, 9, -1, 10, -1, 11, -1));
    __m512i v = _mm512_loadu_si512(w + 2), a = _mm512_shuffle_epi32(v, (_MM_PERM_ENUM)0xf5);
    __m512i two = _mm512_srlv_epi32(a, _mm512_set1_epi64(14ll << 32)); /* indices 0, 1 and 2, 3 */
    __m512i seven = or_masked(_mm512_and_si512(two, _mm512_set1_epi32(0x7f)), _mm512_slli_epi32(two, 9),
                              _mm512_set1_epi32(0x7f0000));
    e->word = look_up(iq2xxs_words, 256, _mm512_shuffle_epi8(v, index_at));
    e->sign = spread_index(seven);
    e->scale = odd_scale(_mm512_srli_epi32(a, 28));
}

/* 16 nibbles, the low one of a byte first. */
ALWAYS_INLINE __m512i nibble_scales(const uint8_t *s)
{
    __m512i v = _mm512_shuffle_epi32(widen_index_8(get_u64(s)), (_MM_PERM_ENUM)0xa0);
    return odd_scale(_mm512_and_si512(_mm512_srlv_epi32(v, _mm512_set1_epi64(4ll << 32)), _mm512_set1_epi32(15)));
}

/* { f16 d; u16 qs[32]; scales[8] }: 9 bits of index, 7 of sign index */
ALWAYS_INLINE void entries_iq2_xs(const uint8_t *w, struct entries *e)
{
    __m512i v = _mm512_loadu_si512(w + 2);
    e->word = look_up(iq2xs_words, 512, v);
    e->sign = spread_index(_mm512_srli_epi16(v, 9));
    e->scale = nibble_scales(w + 66);
}

ALWAYS_INLINE __m512i widen_32(const uint8_t *p) { return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)p)); }

/* Each qword's lowest word in all four, shifted right by so many bits. */
ALWAYS_INLINE __m512i four_fields(__m512i v, int s1, int s2, int s3)
{
    const __m512i dup = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 8, 9, 8, 9, 8, 9, 8, 9));
    const uint64_t shift = (uint64_t)s1 << 16 | (uint64_t)s2 << 32 | (uint64_t)s3 << 48;
    return _mm512_srlv_epi16(_mm512_shuffle_epi8(v, dup), _mm512_set1_epi64((long long)shift));
}

/* { f16 d; qs[32]; signs[32]; qh[8]; scales[8] } */
ALWAYS_INLINE void entries_iq2_s(const uint8_t *w, struct entries *e)
{
    __m512i high = four_fields(_mm512_slli_epi64(widen_index_8(get_u64(w + 66)), 8), 2, 4, 6);
    e->word = look_up(iq2s_words, 1024, or_masked(widen_32(w + 2), high, _mm512_set1_epi16(0x300)));
    e->sign = spread_signs(widen_32(w + 34));
    e->scale = nibble_scales(w + 74);
}

/* IQ1: the indices of an entry, whose words come later. */

/* { f16 d; qs[32]; u16 qh[8] }: four times 3 index bits, 3-bit scale, sign of the delta */
ALWAYS_INLINE __m512i index_iq1_s(const uint8_t *w)
{
    __m512i high = _mm512_cvtepu16_epi64(_mm_loadu_si128((const void *)(w + 34)));
    high = _mm512_slli_epi16(four_fields(high, 3, 6, 9), 8);
    return or_masked(widen_32(w + 2), high, _mm512_set1_epi16(0x700));
}

ALWAYS_INLINE void entries_iq1_s(const uint8_t *w, const uint16_t *words, struct entries *e)
{
    __m512i high = _mm512_cvtepu16_epi64(_mm_loadu_si128((const void *)(w + 34)));
    __m512i minus = _mm512_srai_epi16(four_fields(high, 0, 0, 0), 15);
    e->word = _mm512_load_si512(words);
    e->sign = _mm512_and_si512(minus, _mm512_set1_epi8(4));
    high = _mm512_shuffle_epi32(high, (_MM_PERM_ENUM)0xa0);
    e->scale = odd_scale(_mm512_and_si512(_mm512_srli_epi32(high, 12), _mm512_set1_epi32(7)));
}

/* A word for each nibble at p, in its low bits; others are anything. */
ALWAYS_INLINE __m512i nibble_words(const uint8_t *p)
{
    __m512i v = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p));
    return _mm512_or_si512(v, _mm512_slli_epi32(v, 12));
}

/* { qs[32]; qh[16]; u16 scales[4] }: nibbles of 3 index bits and the delta's sign; four 3-bit scales in each u16 */
ALWAYS_INLINE __m512i index_iq1_m(const uint8_t *w)
{
    return or_masked(widen_32(w), _mm512_slli_epi16(nibble_words(w + 32), 8), _mm512_set1_epi16(0x700));
}

ALWAYS_INLINE void entries_iq1_m(const uint8_t *w, const uint16_t *words, struct entries *e)
{
    const __m512i four_times =
        _mm512_setr_epi64(0x8080010080800100, 0x8080010080800100, 0x8080030280800302, 0x8080030280800302,
                          0x8080050480800504, 0x8080050480800504, 0x8080070680800706, 0x8080070680800706);
    __m512i minus = _mm512_and_si512(nibble_words(w + 32), _mm512_set1_epi16(8));
    __m512i s = _mm512_shuffle_epi8(_mm512_set1_epi64((long long)get_u64(w + 48)), four_times);
    e->word = _mm512_load_si512(words);
    e->sign = _mm512_or_si512(_mm512_srli_epi16(minus, 1), _mm512_slli_epi16(minus, 7));
    s = _mm512_srlv_epi32(s, _mm512_broadcast_i32x4(_mm_setr_epi32(0, 3, 6, 9)));
    e->scale = odd_scale(_mm512_and_si512(s, _mm512_set1_epi32(7)));
}

/* Eight signs in each dword, for two entries of four elements: four to each word, in such a way that bit 3 of a byte
 * is that of the first element of half an entry, and bit 4 that of the second. */
ALWAYS_INLINE __m512i spread_pairs(__m512i eight)
{
    __m512i v = or_masked(_mm512_and_si512(eight, _mm512_set1_epi32(15)), _mm512_slli_epi32(eight, 12),
                          _mm512_set1_epi32(0x0f0000));
    return _mm512_or_si512(_mm512_slli_epi32(v, 3), _mm512_slli_epi32(v, 9));
}

/* { f16 d; qs[64]; per 32: u32 a } */
ALWAYS_INLINE void entries_iq3_xxs(const uint8_t *w, int half, struct entries *e)
{
    const __m512i lane_of = _mm512_setr_epi32(0x03020100, 0x03020100, 0x03020100, 0x03020100, 0x07060504, 0x07060504,
                                              0x07060504, 0x07060504, 0x0b0a0908, 0x0b0a0908, 0x0b0a0908, 0x0b0a0908,
                                              0x0f0e0d0c, 0x0f0e0d0c, 0x0f0e0d0c, 0x0f0e0d0c);
    __m512i a = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)(w + 66 + 16 * half)));
    a = _mm512_shuffle_epi8(a, lane_of);
    __m512i seven = _mm512_srlv_epi32(a, _mm512_broadcast_i32x4(_mm_setr_epi32(0, 7, 14, 21)));
    seven = _mm512_and_si512(seven, _mm512_set1_epi32(0x7f));
    __m512i x = _mm512_xor_si512(seven, _mm512_srli_epi32(seven, 4));
    e->word = look_up(iq3xxs_words, 256, widen_32(w + 2 + 32 * half));
    e->sign = spread_pairs(_mm512_or_si512(seven, parity(0x1111111111111111, x, (char)0x80)));
    e->scale = odd_scale(_mm512_srli_epi32(a, 28));
}

/* { f16 d; qs[64]; qh[8]; signs[32]; scales[4] } */
ALWAYS_INLINE void entries_iq3_s(const uint8_t *w, int half, struct entries *e)
{
    const __m512i nibble = _mm512_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
    __m512i index = widen_32(w + 2 + 32 * half);
    __m512i scales = _mm512_srlv_epi32(_mm512_set1_epi32((int)get_u16(w + 106 + 2 * half)), nibble);
    index = _mm512_mask_add_epi16(index, get_u32(w + 66 + 4 * half), index, _mm512_set1_epi16(256));
    e->word = look_up(iq3s_words, 512, index);
    e->sign = spread_pairs(_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(w + 74 + 16 * half))));
    e->scale = odd_scale(_mm512_and_si512(scales, _mm512_set1_epi32(15)));
}

/* ---- codes ---- */

/* The bits of a where mask is set, those of b elsewhere. */
ALWAYS_INLINE __m512i choose(__m512i mask, __m512i a, __m512i b) { return _mm512_ternarylogic_epi32(mask, a, b, 0xca); }

ALWAYS_INLINE __m512i codes_at(__m128i codes, __m512i v)
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(codes), v);
}

/* Registers of codes. The sign of the last element of half an entry is a bit higher than the others', so that no shift
 * moves a bit from one byte to the next. */
ALWAYS_INLINE void octet_codes(enum dtype t, const struct entries *e, __m512i u[4])
{
    const __m128i iq1 = _mm_setr_epi8(17, 25, 17, 9, 15, 23, 15, 7, 17, 25, 17, 9, 15, 23, 15, 7);
    const __m128i bit2 = _mm_setr_epi8(72, 89, 107, 64, 56, 39, 21, 64, 72, 89, 107, 64, 56, 39, 21, 64);
    const __m128i bit3 = _mm_setr_epi8(72, 89, 107, 64, 72, 89, 107, 64, 56, 39, 21, 64, 56, 39, 21, 64);
    const __m512i digit = _mm512_set1_epi8(3);
#pragma GCC unroll 4
    for (unsigned j = 0; j < 4; j++) {
        __m512i sign = is_iq1(t) || j > 1 ? e->sign : _mm512_slli_epi16(e->sign, 2 - j);
        __m512i v = choose(digit, _mm512_srli_epi16(e->word, 2 * j), sign);
        u[j] = codes_at(is_iq1(t) ? iq1 : j < 3 ? bit2 : bit3, v);
    }
}

ALWAYS_INLINE void quad_codes(enum dtype t, const struct entries *e, __m512i u[2])
{
    const __m128i xxs = _mm_setr_epi8(68, 76, 84, 92, 100, 108, 116, 126, 60, 52, 44, 36, 28, 20, 12, 2);
    const __m128i iq3s = _mm_setr_epi8(17, 19, 21, 23, 25, 27, 29, 31, 15, 13, 11, 9, 7, 5, 3, 1);
    const __m512i digit = _mm512_set1_epi8(7);
#pragma GCC unroll 2
    for (unsigned j = 0; j < 2; j++) {
        __m512i v = choose(digit, _mm512_srli_epi16(e->word, 4 * j), _mm512_srli_epi16(e->sign, j));
        u[j] = codes_at(t == DT_IQ3_XXS ? xxs : iq3s, v);
    }
}

/* The codes of the block at w and the scales of each dword of a register of products. words: IQ1. */
ALWAYS_INLINE void codebook_codes(enum dtype t, const uint8_t *w, const uint16_t *words, __m512i u[4], __m512i scale[2])
{
    struct entries e, second;
    switch (t) {
    case DT_IQ1_S: entries_iq1_s(w, words, &e); break;
    case DT_IQ1_M: entries_iq1_m(w, words, &e); break;
    case DT_IQ2_XXS: entries_iq2_xxs(w, &e); break;
    case DT_IQ2_XS: entries_iq2_xs(w, &e); break;
    case DT_IQ2_S: entries_iq2_s(w, &e); break;
    case DT_IQ3_XXS:
        entries_iq3_xxs(w, 0, &e);
        entries_iq3_xxs(w, 1, &second);
        break;
    case DT_IQ3_S:
        entries_iq3_s(w, 0, &e);
        entries_iq3_s(w, 1, &second);
        break;
    default: __builtin_unreachable();
    }
    scale[0] = e.scale;
    if (!is_iq3(t)) {
        octet_codes(t, &e, u);
        return;
    }
    scale[1] = second.scale;
    quad_codes(t, &e, u);
    quad_codes(t, &second, u + 2);
}

/* IQ1's words are put together some blocks ahead, and their indices one block more: a load of what was just stored in
 * other pieces waits until it is in the cache. */
#define RING 4

struct ring {
    _Alignas(64) uint16_t index[2][32];
    _Alignas(64) uint16_t words[RING][32];
};

/* The indices of block i, which lies at w. */
ALWAYS_INLINE void ring_index(enum dtype t, const uint8_t *w, int i, struct ring *r)
{
    _mm512_store_si512(r->index[i % 2], t == DT_IQ1_S ? index_iq1_s(w) : index_iq1_m(w));
}

/* The words of block i, whose indices are known. Only loads and stores: the compiler would rather take the indices out
 * of their register and put the words together in one, by the unit that shuffles, which is busy. */
ALWAYS_INLINE void ring_words(int i, struct ring *r)
{
    const uint16_t *index = r->index[i % 2];
    uint16_t *words = r->words[i % RING];
#pragma GCC unroll 32
    for (int j = 0; j < 32; j++) {
        words[j] = iq1s_words[index[j]];
        __asm__("" : "+m"(words[j]));
    }
}

/* To be called before block i of n is used, i ascending from 0. Block j lies at w[j], or at w[0] + j * ld. */
ALWAYS_INLINE void ring_step(enum dtype t, const uint8_t *const *w, size_t ld, int i, int n, struct ring *r)
{
#define RING_AT(j) (ld ? w[0] + (size_t)(j)*ld : w[j])
    if (i == 0) {
        ring_index(t, RING_AT(0), 0, r);
        for (int j = 0; j + 1 < RING; j++) {
            ring_index(t, RING_AT(j + 1), j + 1, r);
            ring_words(j, r);
        }
    }
    const int j = i + RING - 1;
    if (j + 1 < n) ring_index(t, RING_AT(j + 1), j + 1, r);
    if (j < n) ring_words(j, r);
#undef RING_AT
}

#endif
