/* SPDX-License-Identifier: MIT
 *
 * probe.h: loops that measure how fast the machine reads, multiplies bytes and multiplies floats.
 *
 * They do nothing else, so they are the ceilings for kernels. Each instruction set has its own, written with the
 * instructions that its kernels use.
 */
#ifndef QUERN_KERNEL_PROBE_H
#define QUERN_KERNEL_PROBE_H

#include <stddef.h>
#include <stdint.h>

struct probe {
    uint32_t (*read)(const uint8_t *p, size_t n); /* reads n bytes, a multiple of 1024, p 64-byte aligned */
    uint32_t (*int8_mac)(uint64_t n);             /* n * 1024 multiply-adds of bytes */
    float (*f32_fma)(uint64_t n);                 /* n * 256 fused multiply-adds */
};

extern const struct probe probe_ref, probe_avx2, probe_avxvnni, probe_avx512, probe_amx;

#endif
