/* SPDX-License-Identifier: MIT
 *
 * half.h: the 16-bit floats, as bit patterns.
 *
 * The same bits as the F16C instructions give, NaN included (payload cut, made quiet), so that
 * what is stored in a cache does not depend on the machine. Source: IEEE 754-2019 section 3.4;
 * bf16 is the upper half of an f32.
 */
#ifndef QUERN_KERNEL_REF_HALF_H
#define QUERN_KERNEL_REF_HALF_H

#include <stdint.h>

#include "base/exact_math.h"

static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, mag = h & 0x7fffu;
    if (mag >= 0x7c00u) /* infinity; NaN becomes quiet */
        return f32_from_bits(sign | 0x7f800000u | mag << 13 | (mag > 0x7c00u ? 0x00400000u : 0));
    if (mag >= 0x0400u) return f32_from_bits(sign | ((mag << 13) + ((127u - 15u) << 23)));
    float x = (float)mag * 0x1p-24f; /* zero or denormal: exact */
    return sign ? -x : x;
}

static inline uint16_t f32_to_f16(float x) /* to nearest even */
{
    uint32_t u = f32_bits(x), sign = u >> 16 & 0x8000u, mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (mag >> 13 & 0x03ffu));
    if (mag >= 0x477ff000u) /* 65520, half-way past the largest finite: infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (mag < 0x38800000u) { /* below 2^-14: a multiple of 2^-24, which adding 0.5 rounds to */
        uint32_t r = f32_bits(f32_from_bits(mag) + 0.5f);
        return (uint16_t)(sign | (r - 0x3f000000u));
    }
    mag += 0x0fffu + (mag >> 13 & 1u);
    return (uint16_t)(sign | (mag - ((127u - 15u) << 23)) >> 13);
}

static inline float bf16_to_f32(uint16_t h) { return f32_from_bits((uint32_t)h << 16); }

static inline uint16_t f32_to_bf16(float x) /* to nearest even; a NaN stays one */
{
    uint32_t u = f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x0040u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

/* Little-endian fields of a stored block, which is aligned to nothing. */
static inline uint16_t load_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

static inline uint32_t load_u32(const uint8_t *p) { return load_u16(p) | (uint32_t)load_u16(p + 2) << 16; }

static inline float load_f16(const uint8_t *p) { return f16_to_f32(load_u16(p)); }

static inline float load_f32(const uint8_t *p) { return f32_from_bits(load_u32(p)); }

#endif
