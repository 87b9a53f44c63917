/* SPDX-License-Identifier: MIT
 *
 * probe.c: the ceiling of the int8 tiles. See kernel/probe.h. Loads and f32 are AVX-512's.
 */
#include "kernel/probe.h"

#include "kernel/amx/tmm.h"

static uint32_t probe_int8_mac(uint64_t n)
{
    static const _Alignas(64) int8_t one[1024];
    _Alignas(64) uint32_t sum[256];
    tmm_begin(TMM_COLS, 64, 16);
    _tile_loadd(4, one, 64);
    _tile_loadd(5, one, 64);
    _tile_loadd(6, one, 64);
    _tile_loadd(7, one, 64);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (uint64_t i = 0; i < n; i += 64) { /* 4 x 16 x 16 x 64 multiply-adds */
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_stored(0, sum, 64);
    tmm_end();
    return sum[0];
}

static uint32_t read_avx512(const uint8_t *p, size_t n) { return probe_avx512.read(p, n); }

static float f32_fma_avx512(uint64_t n) { return probe_avx512.f32_fma(n); }

const struct probe probe_amx = {read_avx512, probe_int8_mac, f32_fma_avx512};
