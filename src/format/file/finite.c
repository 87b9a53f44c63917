/* SPDX-License-Identifier: MIT
 *
 * finite.c: finds NaN and infinity in float tensors and in the scales of quantised blocks.
 *
 * The integers of a quantised block cannot go wrong; its float scale and minimum can. The table of types says where in
 * a block those floats lie and how they are written (tensor/dtype_list.h), and one loop serves all types. Plain float
 * tensors are blocks of one element. Integer tensors are not looked at, nor NVFP4, whose scales are always finite.
 */
#include "format/file/finite.h"

#include <inttypes.h>
#include <string.h>

/* A float is finite unless its exponent bits are all ones. */
static bool is_finite(enum dtype_floats kind, const uint8_t *p)
{
    uint64_t bits = 0;
    switch (kind) {
    case FLOATS_NONE: return true;
    case FLOATS_F16: memcpy(&bits, p, 2); return (bits & 0x7c00) != 0x7c00;
    case FLOATS_BF16: memcpy(&bits, p, 2); return (bits & 0x7f80) != 0x7f80;
    case FLOATS_F32: memcpy(&bits, p, 4); return (bits & 0x7f800000) != 0x7f800000;
    case FLOATS_F64: memcpy(&bits, p, 8); return (~bits & UINT64_C(0x7ff0000000000000)) != 0;
    case FLOATS_E8M0: return p[0] != 0xff;
    case FLOATS_NIBBLES: /* the exponent: bits 14-12 from the fourth u16, 11 and 10 from the third */
        return (p[7] & 0x70) != 0x70 || (p[5] & 0xc0) != 0xc0;
    }
    return true;
}

/* The scales and biases next to the rows of an MLX type. */
static int check_side(const struct tensor *t, struct qn_error *e)
{
    enum dtype_floats kind = dtype_get(t->side.type)->floats;
    size_t size = dtype_get(t->side.type)->bytes, n = tensor_side_bytes(t) / 2 / size;
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
    enum dtype_floats kind = info->floats;
    unsigned first = info->float_at[0], second = info->float_at[1];
    if (kind == FLOATS_NONE) return 0;
    size_t n = t->bytes / info->bytes;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *block = t->data + i * info->bytes;
        if (is_finite(kind, block + first) && (!second || is_finite(kind, block + second))) continue;
        return error_set(e, QN_EDATA, "gguf: tensor '%s' (%s): %s is not finite at element %" PRIu64, t->name,
                         info->name, info->block == 1 ? "a value" : "a block scale", (uint64_t)i * info->block);
    }
    return 0;
}
