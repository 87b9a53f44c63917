/* SPDX-License-Identifier: MIT
 *
 * quant.c: activations into the formats of the integer products (docs/KERNELS.md section 1).
 *
 * One scale per 32 or 256 values from their largest magnitude, integers to nearest even, and the
 * integer sums that the products need. A row depends on nothing but itself. Blocks with an
 * infinity or NaN get a NaN scale, so that the result says so; blocks of next to nothing become
 * zero, which keeps the reciprocal finite. The gaps between the parts of a row are not written.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/ref/half.h"
#include "kernel/ref/ref.h"

float quant_block(const float *x, size_t n, int8_t *q)
{
    assert(n == 32 || n == 256);
    uint32_t largest = 0; /* of |x|, as bits: NaN is above infinity */
    for (size_t i = 0; i < n; i++) {
        uint32_t mag = f32_bits(x[i]) & 0x7fffffffu;
        if (mag > largest) largest = mag;
    }
    float amax = f32_from_bits(largest);
    memset(q, 0, (size_t)n);
    if (largest >= 0x7f800000u) return f32_from_bits(0x7fc00000u);
    if (amax < 0x1p-100f) return 0;
    float id = 127.0f / amax;
    for (size_t i = 0; i < n; i++)
        q[i] = (int8_t)(x[i] * id + 0x1.8p23f - 0x1.8p23f); /* the nearest integer, ties to even */
    return amax / 127.0f;
}

void quant_f32_ref(const float *x, int from, int n, int k, uint8_t *row, void *scratch)
{
    (void)k, (void)scratch;
    memcpy(row + (size_t)from * sizeof *x, x, (size_t)n * sizeof *x);
}

void quant_q32_ref(const float *x, int from, int n, int k, uint8_t *row, void *scratch)
{
    (void)scratch;
    struct act_q32 a = act_q32_at(row, k);
    int8_t *q = (int8_t *)a.q;
    float *d = (float *)a.d;
    int32_t *sum = (int32_t *)a.sum;
    for (int b = from / 32; b < (from + n) / 32; b++, x += 32) {
        d[b] = quant_block(x, 32, q + 32 * b);
        sum[b] = 0;
        for (int i = 0; i < 32; i++) sum[b] += q[32 * b + i];
    }
}

void quant_q256_ref(const float *x, int from, int n, int k, uint8_t *row, void *scratch)
{
    (void)scratch;
    struct act_q256 a = act_q256_at(row, k);
    int8_t *q = (int8_t *)a.q;
    float *d = (float *)a.d;
    int16_t *bsum = (int16_t *)a.bsum;
    uint16_t *asum = (uint16_t *)a.asum;
    for (int b = from / 256; b < (from + n) / 256; b++, x += 256) {
        d[b] = quant_block(x, 256, q + 256 * b);
        asum[b] = 0;
        for (int g = 16 * b; g < 16 * b + 16; g++) {
            int s = 0, mag = 0;
            for (int i = 16 * g; i < 16 * g + 16; i++) {
                s += q[i];
                mag += abs(q[i]);
            }
            bsum[g] = (int16_t)s;
            if (mag > asum[b]) asum[b] = (uint16_t)mag;
        }
    }
}
