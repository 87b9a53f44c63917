/* SPDX-License-Identifier: MIT
 *
 * probe.c: ceilings of plain C. See kernel/probe.h.
 */
#include "kernel/probe.h"

#include <string.h>

static uint32_t probe_read(const uint8_t *p, size_t n)
{
    uint64_t acc[8] = {0}, v[8];
    for (size_t i = 0; i < n; i += sizeof v) {
        memcpy(v, p + i, sizeof v);
        for (int j = 0; j < 8; j++) acc[j] ^= v[j];
    }
    for (int j = 1; j < 8; j++) acc[0] ^= acc[j];
    return (uint32_t)acc[0];
}

static uint32_t probe_int8_mac(uint64_t n)
{
    int8_t a[64];
    int32_t acc[64] = {0};
    memset(a, 3, sizeof a);
    for (uint64_t i = 0; i < n; i++) {
        a[i % 64] ^= 1; /* keeps the loop from being computed at compile time */
        for (int r = 0; r < 16; r++)
            for (int j = 0; j < 64; j++) acc[j] += a[j] * a[(j + r) % 64];
    }
    for (int j = 1; j < 64; j++) acc[0] += acc[j];
    return (uint32_t)acc[0];
}

static float probe_f32_fma(uint64_t n)
{
    float a[64], acc[64] = {0};
    for (int j = 0; j < 64; j++) a[j] = 1 + (float)j;
    for (uint64_t i = 0; i < n; i++) {
        a[i % 64] += 1;
        for (int r = 0; r < 4; r++)
            for (int j = 0; j < 64; j++) acc[j] = acc[j] * 0.5f + a[j];
    }
    for (int j = 1; j < 64; j++) acc[0] += acc[j];
    return acc[0];
}

const struct probe probe_ref = {probe_read, probe_int8_mac, probe_f32_fma};
