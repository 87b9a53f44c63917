/* SPDX-License-Identifier: MIT
 *
 * emulate_avxvnni.h: included before the first line of the AVX-VNNI kernels (-include), which then need AVX2 only.
 *
 * Source: Intel SDM volume 2 (VPDPBUSD, VPDPWSSD: sums that wrap).
 */
#ifndef QUERN_TESTS_KERNEL_EMULATE_EMULATE_AVXVNNI_H
#define QUERN_TESTS_KERNEL_EMULATE_EMULATE_AVXVNNI_H

#include <immintrin.h>

/* The even (0) or odd (1) bytes as words. */
static inline __m256i emulated_unsigned_bytes(__m256i v, int odd)
{
    return _mm256_srli_epi16(odd ? v : _mm256_slli_epi16(v, 8), 8);
}
static inline __m256i emulated_signed_bytes(__m256i v, int odd)
{
    return _mm256_srai_epi16(odd ? v : _mm256_slli_epi16(v, 8), 8);
}

/* Of every dword: sum + the two products of its words. */
static inline __m256i emulated_dpwssd(__m256i sum, __m256i a, __m256i b)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

/* Of every dword: sum + the four products of its bytes, those of a unsigned, those of b signed. Not by vpmaddubsw,
 * which saturates at 16 bits. */
static inline __m256i emulated_dpbusd(__m256i sum, __m256i a, __m256i b)
{
    sum = emulated_dpwssd(sum, emulated_unsigned_bytes(a, 0), emulated_signed_bytes(b, 0));
    return emulated_dpwssd(sum, emulated_unsigned_bytes(a, 1), emulated_signed_bytes(b, 1));
}

#undef _mm256_dpbusd_avx_epi32
#undef _mm256_dpwssd_avx_epi32
#define _mm256_dpbusd_avx_epi32 emulated_dpbusd
#define _mm256_dpwssd_avx_epi32 emulated_dpwssd
#define __AVXVNNI__             1

#endif
