/* SPDX-License-Identifier: MIT
 *
 * dequant.c: stored rows as floats.
 *
 * The value of an element as the format's own reader gives it, to the bit: for the 256-element
 * types (dw * scale) * code, less the rounded product dmin * min where the type has minimums; for
 * the others dw * code, plus m. Used for embedding rows and by tests, so there is one version.
 */
#include <assert.h>
#include <string.h>

#include "kernel/ref/half.h"
#include "kernel/ref/ref.h"
#include "kernel/ref/unpack.h"

static void dequant256(enum dtype t, const uint8_t *w, float *y)
{
    struct block256 b;
    unpack256_of(t)(w, &b);
    bool has_min = unpack_has_min(t); /* x - 0 would be x, but -0 - 0 is not what the formats give */
    for (int e = 0; e < 256; e++) {
        float v = (b.dw * (float)b.scale[e / 16]) * (float)b.code[e];
        y[e] = has_min ? v - b.dmin * (float)b.min[e / 16] : v;
    }
}

static void dequant32(enum dtype t, const uint8_t *row, const struct side *side, int64_t i, float *y)
{
    struct block32 b;
    unpack32_of(t)(row, (int)i, &b);
    if (side && side->scale) unpack_side(side, (int)i, &b);
    bool has_min = unpack_has_min(t);
    for (int e = 0; e < 32; e++) {
        float v = (e < 16 ? b.dw : b.dw1) * (float)b.code[e];
        y[e] = has_min ? v + b.m : v;
    }
}

void dequant_row(enum dtype t, const uint8_t *w, const struct side *side, int64_t k, float *y)
{
    const struct dtype_info *info = dtype_get(t);
    assert(info && kernel_act_of(t) != ACT_N && k % info->block == 0);
    if (unpack256_of(t)) {
        for (int64_t b = 0; b < k / 256; b++) dequant256(t, w + b * info->bytes, y + 256 * b);
    } else if (unpack32_of(t)) {
        for (int64_t b = 0; b < k / 32; b++) dequant32(t, w, side, b, y + 32 * b);
    } else {
        for (int64_t i = 0; i < k; i++)
            y[i] = t == DT_F32   ? load_f32(w + 4 * i)
                   : t == DT_F16 ? load_f16(w + 2 * i)
                                 : bf16_to_f32(load_u16(w + 2 * i));
    }
}
