/* SPDX-License-Identifier: MIT
 *
 * probe.c: ceilings with zmm registers: loads, vpdpbusd, vfmadd. See kernel/probe.h.
 *
 * Every loop over the accumulators is unrolled, so that they live in registers and not in an array.
 */
#include "kernel/probe.h"

#include <immintrin.h>

/* Bytes ahead for the first and the second cache: far enough for the translation of the next pages
 * (docs/SPEED.md). Prefetching beyond the end is harmless. */
#define NEAR 2304
#define FAR  32768

static uint32_t probe_read(const uint8_t *p, size_t n)
{
    __m512i acc[4] = {0};
    for (size_t i = 0; i < n; i += 256) {
        for (int j = 0; j < 4; j++) {
            _mm_prefetch((const char *)p + i + NEAR + 64 * j, _MM_HINT_T0);
            _mm_prefetch((const char *)p + i + FAR + 64 * j, _MM_HINT_T1);
        }
        for (int j = 0; j < 4; j++) acc[j] = _mm512_xor_si512(acc[j], _mm512_loadu_si512(p + i + 64 * j));
    }
    acc[0] = _mm512_xor_si512(_mm512_xor_si512(acc[0], acc[1]), _mm512_xor_si512(acc[2], acc[3]));
    return (uint32_t)_mm512_reduce_add_epi32(acc[0]);
}

static uint32_t probe_int8_mac(uint64_t n)
{
    __m512i acc[16], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
#pragma GCC unroll 16
    for (int j = 0; j < 16; j++) acc[j] = _mm512_setzero_si512();
    for (uint64_t i = 0; i < n; i++) {
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++) {
            acc[j] = _mm512_dpbusd_epi32(acc[j], a, b);
            __asm__("" : "+v"(acc[j])); /* every one of them is computed */
        }
    }
#pragma GCC unroll 16
    for (int j = 1; j < 16; j++) acc[0] = _mm512_add_epi32(acc[0], acc[j]);
    return (uint32_t)_mm512_reduce_add_epi32(acc[0]);
}

static float probe_f32_fma(uint64_t n)
{
    __m512 acc[16], a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(1.5f);
#pragma GCC unroll 16
    for (int j = 0; j < 16; j++) acc[j] = _mm512_setzero_ps();
    for (uint64_t i = 0; i < n; i++) {
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++) {
            acc[j] = _mm512_fmadd_ps(acc[j], a, b);
            __asm__("" : "+v"(acc[j]));
        }
    }
#pragma GCC unroll 16
    for (int j = 1; j < 16; j++) acc[0] = _mm512_add_ps(acc[0], acc[j]);
    return _mm512_reduce_add_ps(acc[0]);
}

const struct probe probe_avx512 = {probe_read, probe_int8_mac, probe_f32_fma};
