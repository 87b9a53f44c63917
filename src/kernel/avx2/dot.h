/* SPDX-License-Identifier: MIT
 *
 * dot.h: products of bytes summed in lanes, with AVX-VNNI and without.
 *
 * The files that multiply integers are compiled twice: plainly for the AVX2 level, and with -mavxvnni for the
 * level of that name. This file is their only difference. vpdpbusd adds four products straight to 32 bits. Without it
 * vpmaddubsw leaves sums of two products in 16 bits, and a run of them (as many as are sure to fit) is added there
 * before one vpmaddwd widens it, multiplying by the scale on the way.
 *
 * Both want one side unsigned, the codes; they wrap or fit, so any order gives the same integers.
 */
#ifndef QUERN_KERNEL_AVX2_DOT_H
#define QUERN_KERNEL_AVX2_DOT_H

#include "kernel/avx2/vec.h"

#ifdef __AVXVNNI__

#define DOT_VNNI 1

/* w * x, a + w * x: four products to a dword */
VEC_INLINE __m256i dot_first(__m256i w, __m256i x) { return _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), w, x); }
VEC_INLINE __m256i dot_add(__m256i a, __m256i w, __m256i x) { return _mm256_dpbusd_avx_epi32(a, w, x); }

/* the sums as dwords */
VEC_INLINE __m256i dot_dwords(__m256i a) { return a; }

/* s + the products of the words of a and b, two to a dword */
VEC_INLINE __m256i dot_words(__m256i s, __m256i a, __m256i b) { return _mm256_dpwssd_avx_epi32(s, a, b); }

#else

#define DOT_VNNI 0

/* w * x, a + w * x: two products to a word. The empty statement keeps the sums in the order they are written in: a
 * compiler that makes a tree of them needs more registers than there are, and stores every other product. */
VEC_INLINE __m256i dot_first(__m256i w, __m256i x) { return _mm256_maddubs_epi16(w, x); }
VEC_INLINE __m256i dot_add(__m256i a, __m256i w, __m256i x)
{
    a = _mm256_add_epi16(a, _mm256_maddubs_epi16(w, x));
    __asm__("" : "+x"(a));
    return a;
}

VEC_INLINE __m256i dot_dwords(__m256i a) { return _mm256_madd_epi16(a, _mm256_set1_epi16(1)); }

VEC_INLINE __m256i dot_words(__m256i s, __m256i a, __m256i b) { return _mm256_add_epi32(s, _mm256_madd_epi16(a, b)); }

#endif

#endif
