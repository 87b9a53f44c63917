/* SPDX-License-Identifier: MIT
 *
 * finite.c: finds NaN and infinity in float tensors and in the scales of quantised blocks.
 *
 * The integers of a quantised block cannot go wrong; what can is its float scale and minimum.
 * So a type is described by where in the block those floats lie and how they are written, and
 * one loop serves all types. Plain float tensors are blocks of one element.
 * Source: the block layouts in docs/FORMATS.md.
 *
 * Not looked at: integer tensors, and NVFP4, whose unsigned E4M3 block scales are finite for
 * every byte under the decoding rule (0x7F reads as 0).
 */
#include "format/finite.h"

#include <inttypes.h>
#include <string.h>

#include "format/weights.h"

enum scale_kind {
    NONE = 0,
    FLOAT16,  /* exponent of 5 bits */
    FLOATB16, /* the upper half of an f32 */
    FLOAT32,
    FLOAT64,
    E8M0,      /* a bare exponent byte, 0xFF = NaN */
    NIBBLES16, /* an f16 made of the top nibbles of four u16, lowest first */
};

/* Byte offsets of the first scale and of the second, 0 where there is none: the second never comes first. */
static const struct {
    uint8_t kind, first, second;
} layout[DT_N] = {
    [DT_F32] = {FLOAT32, 0, 0},    [DT_F16] = {FLOAT16, 0, 0},      [DT_BF16] = {FLOATB16, 0, 0},
    [DT_F64] = {FLOAT64, 0, 0},    [DT_Q4_0] = {FLOAT16, 0, 0},     [DT_Q4_1] = {FLOAT16, 0, 2},
    [DT_Q5_0] = {FLOAT16, 0, 0},   [DT_Q5_1] = {FLOAT16, 0, 2},     [DT_Q8_0] = {FLOAT16, 0, 0},
    [DT_Q8_1] = {FLOAT16, 0, 2},   [DT_Q1_0] = {FLOAT16, 0, 0},     [DT_Q2_0] = {FLOAT16, 0, 0},
    [DT_Q2_K] = {FLOAT16, 80, 82}, [DT_Q3_K] = {FLOAT16, 108, 0},   [DT_Q4_K] = {FLOAT16, 0, 2},
    [DT_Q5_K] = {FLOAT16, 0, 2},   [DT_Q6_K] = {FLOAT16, 208, 0},   [DT_Q8_K] = {FLOAT32, 0, 0},
    [DT_IQ1_S] = {FLOAT16, 0, 0},  [DT_IQ1_M] = {NIBBLES16, 48, 0}, [DT_IQ2_XXS] = {FLOAT16, 0, 0},
    [DT_IQ2_XS] = {FLOAT16, 0, 0}, [DT_IQ2_S] = {FLOAT16, 0, 0},    [DT_IQ3_XXS] = {FLOAT16, 0, 0},
    [DT_IQ3_S] = {FLOAT16, 0, 0},  [DT_IQ4_NL] = {FLOAT16, 0, 0},   [DT_IQ4_XS] = {FLOAT16, 0, 0},
    [DT_TQ1_0] = {FLOAT16, 52, 0}, [DT_TQ2_0] = {FLOAT16, 64, 0},   [DT_MXFP4] = {E8M0, 0, 0},
};

/* A float is finite unless its exponent bits are all ones. */
static bool is_finite(enum scale_kind kind, const uint8_t *p)
{
    uint64_t bits = 0;
    switch (kind) {
    case NONE:
        return true;
    case FLOAT16:
        memcpy(&bits, p, 2);
        return (bits & 0x7c00) != 0x7c00;
    case FLOATB16:
        memcpy(&bits, p, 2);
        return (bits & 0x7f80) != 0x7f80;
    case FLOAT32:
        memcpy(&bits, p, 4);
        return (bits & 0x7f800000) != 0x7f800000;
    case FLOAT64:
        memcpy(&bits, p, 8);
        return (~bits & UINT64_C(0x7ff0000000000000)) != 0;
    case E8M0:
        return p[0] != 0xff;
    case NIBBLES16: /* the exponent: bits 14-12 from the fourth u16, 11 and 10 from the third */
        return (p[7] & 0x70) != 0x70 || (p[5] & 0xc0) != 0xc0;
    }
    return true;
}

/* What lies beside the rows of an MLX type. */
static int check_side(const struct tensor *t, struct qn_error *e)
{
    enum scale_kind kind = layout[t->side.type].kind;
    size_t size = dtype_get(t->side.type)->bytes, n = weights_side_bytes(t) / 2 / size;
    for (size_t i = 0; i < n; i++) {
        if (is_finite(kind, t->side.scale + i * size) && is_finite(kind, t->side.bias + i * size)) continue;
        return error_set(e, QN_EDATA, "gguf: tensor '%s' (%s): a group's scale is not finite at element %" PRIu64,
                         t->name, dtype_get(t->type)->name, (uint64_t)i * (uint64_t)t->side.group);
    }
    return 0;
}

int finite_check(const struct tensor *t, struct qn_error *e)
{
    if (t->side.scale) return check_side(t, e);
    const struct dtype_info *info = dtype_get(t->type);
    enum scale_kind kind = layout[t->type].kind;
    unsigned first = layout[t->type].first, second = layout[t->type].second;
    if (kind == NONE) return 0;
    size_t n = t->bytes / info->bytes;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *block = t->data + i * info->bytes;
        if (is_finite(kind, block + first) && (!second || is_finite(kind, block + second))) continue;
        return error_set(e, QN_EDATA, "gguf: tensor '%s' (%s): %s is not finite at element %" PRIu64, t->name,
                         info->name, info->block == 1 ? "a value" : "a block scale", (uint64_t)i * info->block);
    }
    return 0;
}
