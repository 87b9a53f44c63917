/* SPDX-License-Identifier: MIT
 *
 * lanes.h: moving numbers between "one register per row" and "one lane per row".
 *
 * Everything here is a permutation or an exact integer sum, so none of it is part of the
 * arithmetic contract. The 4 x 4 transpose works on memory: a masked broadcast load puts 16 bytes
 * of four different rows into the four 128-bit lanes at the price of one blend each. The single
 * shuffle port is left with half of the work of a 16 x 16 transpose.
 */
#ifndef QUERN_KERNEL_AVX512_LANES_H
#define QUERN_KERNEL_AVX512_LANES_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Keeps v where it is: the compiler would rather load an operand again for each of its uses, and move sums about. */
#define IN_REGISTER(v) __asm__("" : "+v"(v))

/* sum += x * y, 16 floats, in the register of the sum: the compiler would rather have it in one of the factors', and
 * move it back. */
#define ADD_PRODUCT(sum, x, y) __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y))

/* 16 bytes of rows r, r + 4, r + 8, r + 12, one in each 128-bit lane. */
ALWAYS_INLINE __m512i load_quad(const uint8_t *const *row, size_t offset, int r)
{
    __m512i v = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)(row[r] + offset)));
    v = _mm512_mask_broadcast_i32x4(v, 0x00f0, _mm_loadu_si128((const void *)(row[r + 4] + offset)));
    v = _mm512_mask_broadcast_i32x4(v, 0x0f00, _mm_loadu_si128((const void *)(row[r + 8] + offset)));
    return _mm512_mask_broadcast_i32x4(v, 0xf000, _mm_loadu_si128((const void *)(row[r + 12] + offset)));
}

/* The 4 x 4 step: out[i] lane r = dword i of row r's 16 bytes. */
ALWAYS_INLINE void transpose_quads(__m512i a, __m512i b, __m512i c, __m512i d, __m512i out[4])
{
    __m512i ab0 = _mm512_unpacklo_epi32(a, b), ab2 = _mm512_unpackhi_epi32(a, b);
    __m512i cd0 = _mm512_unpacklo_epi32(c, d), cd2 = _mm512_unpackhi_epi32(c, d);
    out[0] = _mm512_unpacklo_epi64(ab0, cd0);
    out[1] = _mm512_unpackhi_epi64(ab0, cd0);
    out[2] = _mm512_unpacklo_epi64(ab2, cd2);
    out[3] = _mm512_unpackhi_epi64(ab2, cd2);
}

/* 16 rows given by pointers: out[i] lane r = the dword at row[r] + offset + 4 i. */
ALWAYS_INLINE void transpose_rows(const uint8_t *const *row, size_t offset, __m512i out[4])
{
    transpose_quads(load_quad(row, offset, 0), load_quad(row, offset, 1), load_quad(row, offset, 2),
                    load_quad(row, offset, 3), out);
}

/* The same for 16 rows at a fixed distance. */
ALWAYS_INLINE void transpose_stride(const void *base, size_t ld, __m512i out[4])
{
    const uint8_t *row[16];
    for (int r = 0; r < 16; r++) row[r] = (const uint8_t *)base + (size_t)r * ld;
    transpose_rows(row, 0, out);
}

/* Four registers -> one: out's 128-bit lane l = the sums of the four dwords in lane l of v[0..3]. */
ALWAYS_INLINE __m512i reduce_in_lanes(__m512i v0, __m512i v1, __m512i v2, __m512i v3)
{
    __m512i s0 = _mm512_add_epi32(_mm512_unpacklo_epi32(v0, v1), _mm512_unpackhi_epi32(v0, v1));
    __m512i s1 = _mm512_add_epi32(_mm512_unpacklo_epi32(v2, v3), _mm512_unpackhi_epi32(v2, v3));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(s0, s1), _mm512_unpackhi_epi64(s0, s1));
}

/* Adds neighbouring 128-bit lanes: [a0 + a1, a2 + a3, b0 + b1, b2 + b3]. */
ALWAYS_INLINE __m512i add_lane_pairs(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

/* lane i = the sum of all 16 dwords of v[i]. */
ALWAYS_INLINE __m512i reduce_16(const __m512i v[16])
{
    __m512i u0 = reduce_in_lanes(v[0], v[1], v[2], v[3]), u1 = reduce_in_lanes(v[4], v[5], v[6], v[7]);
    __m512i u2 = reduce_in_lanes(v[8], v[9], v[10], v[11]), u3 = reduce_in_lanes(v[12], v[13], v[14], v[15]);
    return add_lane_pairs(add_lane_pairs(u0, u1), add_lane_pairs(u2, u3));
}

/* v[i] holds 8 dwords of item 2i, then 8 of item 2i + 1: lane i = the sum of item i. */
ALWAYS_INLINE __m512i reduce_halves(const __m512i v[8])
{
    /* lanes of the sum: items 0 2 4 6, 1 3 5 7, 8 10 12 14, 9 11 13 15 */
    const __m512i order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    __m512i u0 = reduce_in_lanes(v[0], v[1], v[2], v[3]), u1 = reduce_in_lanes(v[4], v[5], v[6], v[7]);
    return _mm512_permutexvar_epi32(order, add_lane_pairs(u0, u1));
}

/* v[i] holds 4 dwords of each of the items 4i .. 4i + 3: lane i = the sum of item i. */
ALWAYS_INLINE __m512i reduce_quarters(const __m512i v[4])
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, reduce_in_lanes(v[0], v[1], v[2], v[3]));
}

/* 16 f16 in memory as f32. */
ALWAYS_INLINE __m512 load_f16x16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }

/* The lanes below n, n <= 16. */
ALWAYS_INLINE __mmask16 first_lanes(int n) { return (__mmask16)((1u << n) - 1); }

/* for (i, m) over n floats, 16 at a time: m has the lanes that exist. */
#define EACH_16(i, m, n) for (int i = 0, m; i < (n) && ((m = first_lanes((n)-i < 16 ? (n)-i : 16)), 1); i += 16)

#define PREFETCH_NEAR 2304        /* bytes ahead into L1: 36 lines, what the load buffers can hide */
#define PREFETCH_FAR  (40u << 10) /* bytes ahead into L2: past the reach of the hardware's prefetcher */

/* The lines of `bytes` stored bytes at both distances; an address past the mapping does nothing. */
ALWAYS_INLINE void prefetch_stream(const uint8_t *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) {
        _mm_prefetch((const char *)p + PREFETCH_NEAR + i, _MM_HINT_T0);
        _mm_prefetch((const char *)p + PREFETCH_FAR + i, _MM_HINT_T1);
    }
}

#endif
