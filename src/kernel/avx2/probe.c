/* SPDX-License-Identifier: MIT
 *
 * probe.c: ceilings with ymm registers: loads, products of bytes, vfmadd. See kernel/probe.h.
 *
 * Every loop over the accumulators is unrolled, so that they live in registers and not in an array. Without
 * AVX-VNNI a product of bytes costs at least a vpmaddubsw and a vpaddw: kernels add up in 16 bits as far as these
 * reach and widen the sums as seldom as they can, so the ceiling has no widening at all.
 * With it a product costs a vpdpbusd, whose latency takes ten sums to hide.
 */
#include "kernel/probe.h"

#include "kernel/avx2/dot.h"

/* Bytes ahead for the first and the second cache: far enough for the translation of the next pages
 * (docs/SPEED.md). Prefetching beyond the end is harmless. */
#define NEAR 2304
#define FAR  32768

static uint32_t probe_read(const uint8_t *p, size_t n)
{
    __m256i acc[4] = {0};
    for (size_t i = 0; i < n; i += 128) {
        for (int j = 0; j < 2; j++) {
            _mm_prefetch((const char *)p + i + NEAR + 64 * j, _MM_HINT_T0);
            _mm_prefetch((const char *)p + i + FAR + 64 * j, _MM_HINT_T1);
        }
        for (int j = 0; j < 4; j++)
            acc[j] = _mm256_xor_si256(acc[j], _mm256_loadu_si256((const __m256i *)(p + i + 32 * j)));
    }
    acc[0] = _mm256_xor_si256(_mm256_xor_si256(acc[0], acc[1]), _mm256_xor_si256(acc[2], acc[3]));
    return (uint32_t)_mm256_extract_epi32(acc[0], 0) ^ (uint32_t)_mm256_extract_epi32(acc[0], 5);
}

static uint32_t probe_int8_mac(uint64_t n)
{
    __m256i acc[12], a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
#pragma GCC unroll 12
    for (int j = 0; j < 12; j++) acc[j] = _mm256_setzero_si256();
    for (uint64_t i = 0; i < 8 * n / 3; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < 12; j++) {
            __asm__ volatile("" : "+x"(b)); /* otherwise the product may move out of the loop */
            acc[j] = dot_add(acc[j], a, b);
            __asm__ volatile("" : "+x"(acc[j]));
        }
    }
#pragma GCC unroll 12
    for (int j = 1; j < 12; j++) acc[0] = _mm256_add_epi32(acc[0], acc[j]);
    return (uint32_t)_mm256_extract_epi32(acc[0], 0);
}

static float probe_f32_fma(uint64_t n)
{
    __m256 acc[8], a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(1.5f);
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) acc[j] = _mm256_setzero_ps();
    for (uint64_t i = 0; i < 4 * n; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            acc[j] = _mm256_fmadd_ps(acc[j], a, b);
            __asm__ volatile("" : "+x"(acc[j]));
        }
    }
#pragma GCC unroll 8
    for (int j = 1; j < 8; j++) acc[0] = _mm256_add_ps(acc[0], acc[j]);
    return _mm256_cvtss_f32(acc[0]);
}

#if DOT_VNNI
const struct probe probe_avxvnni = {probe_read, probe_int8_mac, probe_f32_fma};
#else
const struct probe probe_avx2 = {probe_read, probe_int8_mac, probe_f32_fma};
#endif
