/* SPDX-License-Identifier: MIT
 *
 * unpack256.h: a stored block of 256 weights as four registers of bytes and a few bytes of scales.
 *
 * The codes come out in natural order, 64 to a register, unsigned: u = code + offset, so that
 * vpdpbusd can take them. Scales and minimums are left as bytes in memory, where the users want them: 8 per block when
 * a scale covers 32 elements, 16 when it covers 16. The codebook types' codes are made in entries.h.
 *
 * All functions switch on a type that is a constant at every call, so each use is compiled for one
 * type. The formats are described in ref/unpack.c, element by element; here is only how their bits
 * are moved. Nothing outside the block is read.
 */
#ifndef QUERN_KERNEL_AVX512_UNPACK256_H
#define QUERN_KERNEL_AVX512_UNPACK256_H

#include <stdbool.h>
#include <string.h>

#include "kernel/avx512/lanes.h"
#include "kernel/codes.h"
#include "tensor/dtype.h"

/* The constants of a type that the generic code needs. */
struct format256 {
    int bytes;         /* of a block */
    int group;         /* elements under one scale: 16 or 32; types with one scale for all have it 8 times */
    int offset;        /* u = code + offset */
    int max_code;      /* the largest |code| */
    int max_u;         /* the largest byte that unpack256 gives */
    int max_scale;     /* the largest |scale| */
    bool min;          /* has minimums; then offset is 0 */
    bool signed_scale; /* the scale bytes are i8 */
    float dw_factor;   /* dw = d * this */
};

ALWAYS_INLINE struct format256 format256_of(enum dtype t)
{
#define FORMAT(ID, name, id, block, size, tail, floats, at0, at1, low, high, has_min, share, slow, shigh, times)       \
    case DT_##ID:                                                                                                      \
        return (struct format256){.bytes = (size),                                                                     \
                                  .group = (share) < 32 ? 16 : 32,                                                     \
                                  .offset = CODE_OFFSET(low),                                                          \
                                  .max_code = CODE_MAGNITUDE(low, high),                                               \
                                  .max_u = CODE_TOP(low, high),                                                        \
                                  .max_scale = CODE_MAGNITUDE(slow, shigh),                                            \
                                  .min = (has_min),                                                                    \
                                  .signed_scale = (slow) < 0,                                                          \
                                  .dw_factor = (times)};
    switch (t) {
        DTYPES_K256(FORMAT)
    default: __builtin_unreachable();
    }
#undef FORMAT
}

/* ---- bit tricks on eight bytes ---- */

ALWAYS_INLINE uint64_t get_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

ALWAYS_INLINE uint32_t get_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

ALWAYS_INLINE uint32_t get_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}

ALWAYS_INLINE void put_u64(uint8_t *p, uint64_t v) { memcpy(p, &v, 8); }

ALWAYS_INLINE uint64_t bytes8(uint8_t b) { return 0x0101010101010101u * b; }

/* Each byte, 0..63, minus 32: no borrow crosses a byte because bit 7 is set meanwhile. */
ALWAYS_INLINE uint64_t minus_32(uint64_t v) { return ((v | bytes8(0x80)) - bytes8(32)) ^ bytes8(0x80); }

/* ---- codes ---- */

struct codes256 {
    __m512i u[4];
};

/* Two 32-byte halves of a register shifted right by different amounts: 32 bytes under two shifts
 * become 64 fields. Bits that cross bytes are for the caller to mask off. */
ALWAYS_INLINE __m512i shift_halves(__m512i v, int low, int high)
{
    const __m512i n = _mm512_inserti64x4(_mm512_set1_epi32(low & 31), _mm256_set1_epi32(high & 31), 1);
    return _mm512_srlv_epi32(v, n);
}

/* The same as a rotation: a negative amount moves fields up. */
ALWAYS_INLINE __m512i rotate_halves(__m512i v, int low, int high)
{
    const __m512i n = _mm512_inserti64x4(_mm512_set1_epi32(low & 31), _mm256_set1_epi32(high & 31), 1);
    return _mm512_rorv_epi32(v, n);
}

ALWAYS_INLINE __m512i both_halves(const uint8_t *p)
{
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)p));
}

/* a | (b & mask) */
ALWAYS_INLINE __m512i or_masked(__m512i a, __m512i b, __m512i mask)
{
    return _mm512_ternarylogic_epi32(a, b, mask, 0xf8);
}

/* Two bits per element, 32 bytes to 128 elements: Q2_K, Q3_K, TQ2_0. */
ALWAYS_INLINE void unpack_two_bits(const uint8_t *qs, __m512i u[4])
{
    const __m512i three = _mm512_set1_epi8(3);
    for (int h = 0; h < 2; h++) {
        __m512i q = both_halves(qs + 32 * h);
        u[2 * h] = _mm512_and_si512(shift_halves(q, 0, 2), three);
        u[2 * h + 1] = _mm512_and_si512(shift_halves(q, 4, 6), three);
    }
}

/* The same with the first quarter's bits on top: I2_S. */
ALWAYS_INLINE void unpack_two_bits_down(const uint8_t *qs, __m512i u[4])
{
    const __m512i three = _mm512_set1_epi8(3);
    for (int h = 0; h < 2; h++) {
        __m512i q = both_halves(qs + 32 * h);
        u[2 * h] = _mm512_and_si512(shift_halves(q, 6, 4), three);
        u[2 * h + 1] = _mm512_and_si512(shift_halves(q, 2, 0), three);
    }
}

ALWAYS_INLINE void unpack_q3_k(const uint8_t *w, __m512i u[4])
{
    const __m512i four = _mm512_set1_epi8(4);
    __m512i high = both_halves(w);
    unpack_two_bits(w + 32, u);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) u[i] = or_masked(u[i], rotate_halves(high, 2 * i - 2, 2 * i - 1), four);
}

ALWAYS_INLINE void unpack_nibbles(const uint8_t *qs, __m512i u[4])
{
    const __m512i low = _mm512_set1_epi8(15);
    for (int i = 0; i < 4; i++) u[i] = _mm512_and_si512(shift_halves(both_halves(qs + 32 * i), 0, 4), low);
}

ALWAYS_INLINE void unpack_q5_k(const uint8_t *w, __m512i u[4])
{
    const __m512i bit = _mm512_set1_epi8(16);
    __m512i high = both_halves(w + 16);
    unpack_nibbles(w + 48, u);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) u[i] = or_masked(u[i], rotate_halves(high, 2 * i - 4, 2 * i - 3), bit);
}

ALWAYS_INLINE void unpack_q6_k(const uint8_t *w, __m512i u[4])
{
    const __m512i low = _mm512_set1_epi8(15), bits = _mm512_set1_epi8(0x30);
    for (int h = 0; h < 2; h++) {
        __m512i q = _mm512_loadu_si512(w + 64 * h), high = both_halves(w + 128 + 32 * h);
        u[2 * h] = or_masked(_mm512_and_si512(q, low), rotate_halves(high, -4, -2), bits);
        u[2 * h + 1] = or_masked(_mm512_and_si512(_mm512_srli_epi32(q, 4), low), rotate_halves(high, 0, 2), bits);
    }
}

/* 16 bytes of each of two blocks: low nibbles, then high nibbles of the first, then the second. */
ALWAYS_INLINE __m512i nibbles_of_two(const uint8_t *a, const uint8_t *b)
{
    const __m512i shift = _mm512_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4);
    __m512i v = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)a));
    v = _mm512_mask_broadcast_i32x4(v, 0xff00, _mm_loadu_si128((const void *)b));
    return _mm512_and_si512(_mm512_srlv_epi32(v, shift), _mm512_set1_epi8(15));
}

/* The nibble codebook of the IQ4 types plus 128. */
ALWAYS_INLINE __m512i iq4_lookup(__m512i nibbles)
{
    const __m128i values = _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, (char)129, (char)141, (char)153, (char)166,
                                         (char)181, (char)197, (char)217, (char)241);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), nibbles);
}

/* Eight bytes, one in each qword. */
ALWAYS_INLINE __m512i widen_index_8(uint64_t bytes)
{
    return _mm512_cvtepu8_epi64(_mm_cvtsi64_si128((long long)bytes));
}

/* Digit n of bytes in 16-bit lanes, as bytes: (byte * 3^n mod 256) * 3 / 256. */
ALWAYS_INLINE __m512i trits(__m512i bytes, __m512i pow3)
{
    __m512i rest = _mm512_and_si512(_mm512_mullo_epi16(bytes, pow3), _mm512_set1_epi16(255));
    return _mm512_srli_epi16(_mm512_mullo_epi16(rest, _mm512_set1_epi16(3)), 8);
}

ALWAYS_INLINE void unpack_tq1_0(const uint8_t *w, __m512i u[4])
{
    static const int16_t pow3[5] = {1, 3, 9, 27, 81};
    uint8_t out[256] __attribute__((aligned(64)));
    __m512i a = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)w));
    __m512i b = _mm512_zextsi256_si512(_mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)(w + 32))));
    for (int n = 0; n < 5; n++) {
        __m512i p = _mm512_set1_epi16(pow3[n]);
        _mm256_store_si256((void *)(out + 32 * n), _mm512_cvtepi16_epi8(trits(a, p)));
        _mm_store_si128((void *)(out + 160 + 16 * n), _mm256_castsi256_si128(_mm512_cvtepi16_epi8(trits(b, p))));
    }
    __m512i c = _mm512_zextsi256_si512(_mm256_cvtepu8_epi16(_mm_set1_epi32((int)get_u32(w + 48))));
    __m512i p = _mm512_zextsi256_si512(_mm256_setr_epi16(1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27));
    _mm_store_si128((void *)(out + 240), _mm256_castsi256_si128(_mm512_cvtepi16_epi8(trits(c, p))));
    for (int i = 0; i < 4; i++) u[i] = _mm512_load_si512(out + 64 * i);
}

ALWAYS_INLINE void unpack256(enum dtype t, const uint8_t *w, struct codes256 *o)
{
    switch (t) {
    case DT_Q2_K: unpack_two_bits(w + 16, o->u); break;
    case DT_Q3_K: unpack_q3_k(w, o->u); break;
    case DT_Q4_K: unpack_nibbles(w + 16, o->u); break;
    case DT_Q5_K: unpack_q5_k(w, o->u); break;
    case DT_Q6_K: unpack_q6_k(w, o->u); break;
    case DT_TQ1_0: unpack_tq1_0(w, o->u); break;
    case DT_TQ2_0: unpack_two_bits(w, o->u); break;
    case DT_I2_S: unpack_two_bits_down(w, o->u); break;
    case DT_IQ4_XS:
        for (int i = 0; i < 4; i++) o->u[i] = iq4_lookup(nibbles_of_two(w + 8 + 32 * i, w + 24 + 32 * i));
        break;
    default: __builtin_unreachable();
    }
}

/* ---- scales ---- */

/* Scales, minimums and floats of 16 blocks (of one row, or one of each of 16 rows). Block i's scales
 * start at scale[i * n], n = 8 or 16 as the type's group is. */
struct heads256 {
    uint8_t scale[16 * 16], min[16 * 16];
    uint16_t d[16], dmin[16]; /* f16 */
};

/* Eight six-bit scales and minimums of Q4_K and Q5_K. */
ALWAYS_INLINE void head_6bit(const uint8_t *s, uint8_t *scale, uint8_t *min)
{
    uint32_t a = get_u32(s), b = get_u32(s + 4), c = get_u32(s + 8);
    uint32_t scale_high = (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030),
             min_high = (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030);
    put_u64(scale, (a & 0x3f3f3f3f) | (uint64_t)scale_high << 32);
    put_u64(min, (b & 0x3f3f3f3f) | (uint64_t)min_high << 32);
}

ALWAYS_INLINE void head_q3_k(const uint8_t *s, uint8_t *scale)
{
    uint64_t low = get_u64(s), h = get_u32(s + 8);
    uint64_t high0 = (h & 0x03030303) | (h >> 2 & 0x03030303) << 32;
    uint64_t high1 = (h >> 4 & 0x03030303) | (h >> 6 & 0x03030303) << 32;
    put_u64(scale, minus_32((low & bytes8(15)) | high0 << 4));
    put_u64(scale + 8, minus_32((low >> 4 & bytes8(15)) | high1 << 4));
}

/* 16 nibbles s, the low one of a byte first, as 2s + 1. */
ALWAYS_INLINE void head_iq2(const uint8_t *s, uint8_t *scale)
{
    for (int i = 0; i < 2; i++) put_u64(scale + 8 * i, _pdep_u64(get_u32(s + 4 * i), bytes8(15)) << 1 | bytes8(1));
}

/* The top four bits of eight words at distance ld as 2s + 1. */
ALWAYS_INLINE void head_top_bits(const uint8_t *p, int ld, uint8_t *scale)
{
    for (int k = 0; k < 8; k++) scale[k] = (uint8_t)((p[ld * k + 3] >> 4) * 2 + 1);
}

ALWAYS_INLINE void head_iq1_m(const uint8_t *s, uint8_t *scale, uint16_t *d)
{
    uint64_t v = get_u64(s);
    for (int i = 0; i < 4; i++) {
        uint32_t x = _pdep_u32((uint32_t)(v >> (16 * i)) & 0xfff, 0x07070707) << 1 | 0x01010101;
        memcpy(scale + 4 * i, &x, 4);
    }
    *d = (uint16_t)_pext_u64(v, 0xf000f000f000f000u);
}

/* Block w into place i of h. */
ALWAYS_INLINE void head256(enum dtype t, const uint8_t *w, int i, struct heads256 *h)
{
    const int n = 256 / format256_of(t).group;
    uint8_t *scale = h->scale + n * i, *min = h->min + n * i;
    int d = 0; /* where the f16 is */
    switch (t) {
    case DT_Q2_K:
        for (int half = 0; half < 2; half++) {
            uint64_t v = get_u64(w + 8 * half);
            put_u64(scale + 8 * half, v & bytes8(15));
            put_u64(min + 8 * half, v >> 4 & bytes8(15));
        }
        memcpy(&h->dmin[i], w + 82, 2);
        d = 80;
        break;
    case DT_Q3_K:
        head_q3_k(w + 96, scale);
        d = 108;
        break;
    case DT_Q4_K:
    case DT_Q5_K:
        head_6bit(w + 4, scale, min);
        memcpy(&h->dmin[i], w + 2, 2);
        break;
    case DT_Q6_K:
        memcpy(scale, w + 192, 16);
        d = 208;
        break;
    case DT_IQ4_XS:
        put_u64(scale, minus_32(_pdep_u64(get_u32(w + 4), bytes8(15)) | _pdep_u64(get_u16(w + 2), bytes8(0x30))));
        break;
    case DT_IQ2_XXS: head_top_bits(w + 2 + 4, 8, scale); break;
    case DT_IQ2_XS: head_iq2(w + 66, scale); break;
    case DT_IQ2_S: head_iq2(w + 74, scale); break;
    case DT_IQ3_XXS: head_top_bits(w + 66, 4, scale); break;
    case DT_IQ3_S: put_u64(scale, _pdep_u64(get_u32(w + 106), bytes8(15)) << 1 | bytes8(1)); break;
    case DT_IQ1_S:
        for (int k = 0; k < 8; k++) scale[k] = (uint8_t)((w[35 + 2 * k] >> 4 & 7) * 2 + 1);
        break;
    case DT_IQ1_M: head_iq1_m(w + 48, scale, &h->d[i]); return;
    case DT_TQ1_0:
        put_u64(scale, bytes8(1));
        d = 52;
        break;
    case DT_TQ2_0:
        put_u64(scale, bytes8(1));
        d = 64;
        break;
    case DT_I2_S:
        put_u64(scale, bytes8(1));
        h->d[i] = 0x3c00; /* 1 */
        return;
    default: __builtin_unreachable();
    }
    memcpy(&h->d[i], w + d, 2);
}

#endif
