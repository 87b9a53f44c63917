/* SPDX-License-Identifier: MIT
 *
 * quant.h: the contract's rule for a block of activations (docs/KERNELS.md section 1) in registers.
 */
#ifndef QUERN_KERNEL_AVX512_QUANT_H
#define QUERN_KERNEL_AVX512_QUANT_H

#include <stdbool.h>

#include "kernel/avx512/lanes.h"

/* The larger of |v| lane by lane as bit patterns, so that a NaN wins over everything. */
ALWAYS_INLINE __m512i max_bits(__m512i largest, __m512 v)
{
    return _mm512_max_epi32(largest, _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff)));
}

/* From a block's largest magnitude: its scale, and what its values are to be multiplied with.
 * Returns false when all q are 0. */
ALWAYS_INLINE bool quant_scale(__m512i largest, float *d, float *id)
{
    int bits = _mm512_reduce_max_epi32(largest);
    float amax;
    __builtin_memcpy(&amax, &bits, 4);
    *id = 0;
    *d = 0;
    if (bits >= 0x7f800000) *d = __builtin_nanf("");
    if (bits >= 0x7f800000 || amax < 0x1p-100f) return false;
    *d = amax / 127.0f;
    *id = 127.0f / amax;
    return true;
}

/* 16 values to nearest even as bytes. */
ALWAYS_INLINE __m128i quant_bytes(__m512 v, float id)
{
    return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(v, _mm512_set1_ps(id))));
}

/* 32 values to q[32]; returns the scale. */
ALWAYS_INLINE float quant_block_32(__m512 v0, __m512 v1, int8_t *q)
{
    float d, id;
    __m256i bytes = _mm256_setzero_si256();
    if (quant_scale(max_bits(max_bits(_mm512_setzero_si512(), v0), v1), &d, &id))
        bytes = _mm256_set_m128i(quant_bytes(v1, id), quant_bytes(v0, id));
    _mm256_storeu_si256((void *)q, bytes);
    return d;
}

/* The sum of 32 bytes. */
ALWAYS_INLINE int quant_sum_32(const int8_t *q)
{
    __m256i v = _mm256_loadu_si256((const void *)q);
    v = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), v);
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_unpackhi_epi64(s, s));
    return _mm_cvtsi128_si32(s) + _mm_extract_epi32(s, 1);
}

/* Floats i .. i + 16 of n, zeros beyond the end. */
ALWAYS_INLINE __m512 load_padded(const float *x, int i, int n)
{
    return _mm512_maskz_loadu_ps(i >= n ? 0 : first_lanes(n - i < 16 ? n - i : 16), x + i);
}

#endif
