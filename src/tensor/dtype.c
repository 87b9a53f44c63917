/* SPDX-License-Identifier: MIT
 *
 * dtype.c: name, block length and block size of every tensor type.
 *
 * A row of k elements is k / block blocks of `bytes` bytes, one after the other without padding. The ids with no
 * entry were given up by the format (4, 5, 31-33, 37, 38); 36 was too, and is BitNet's now. Source: the tensor type table
 * of the GGUF format (docs/FORMATS.md).
 *
 * Does not know what is inside a block (that is the kernels' business), nor which types can be computed with.
 */
#include "tensor/dtype.h"

#include <assert.h>

#define T(id, elements, size) [DT_##id] = {.name = #id, .block = elements, .bytes = size}

/* clang-format off */
static const struct dtype_info table[DT_N] = {
    T(F32, 1, 4),       T(F16, 1, 2),       T(BF16, 1, 2),       T(F64, 1, 8),
    T(I8, 1, 1),        T(I16, 1, 2),       T(I32, 1, 4),        T(I64, 1, 8),

    T(Q4_0, 32, 18),    T(Q4_1, 32, 20),    T(Q5_0, 32, 22),     T(Q5_1, 32, 24),
    T(Q8_0, 32, 34),    T(Q8_1, 32, 36),    T(Q1_0, 128, 18),    T(Q2_0, 64, 18),

    T(Q2_K, 256, 84),   T(Q3_K, 256, 110),  T(Q4_K, 256, 144),   T(Q5_K, 256, 176),
    T(Q6_K, 256, 210),  T(Q8_K, 256, 292),

    T(IQ1_S, 256, 50),  T(IQ1_M, 256, 56),  T(IQ2_XXS, 256, 66), T(IQ2_XS, 256, 74),
    T(IQ2_S, 256, 82),  T(IQ3_S, 256, 110), T(IQ3_XXS, 256, 98), T(IQ4_NL, 32, 18),
    T(IQ4_XS, 256, 136),

    [DT_I2_S] = {.name = "I2_S", .block = 256, .bytes = 64, .tail = 4},
    T(TQ1_0, 256, 54),  T(TQ2_0, 256, 66),  T(MXFP4, 32, 17),    T(NVFP4, 64, 36),

    T(MLX2, 32, 8),     T(MLX3, 32, 12),    T(MLX4, 32, 16),     T(MLX5, 32, 20),
    T(MLX6, 32, 24),    T(MLX8, 32, 32),
};
/* clang-format on */

const struct dtype_info *dtype_get(int64_t id) { return id >= 0 && id < DT_N && table[id].name ? &table[id] : NULL; }

size_t dtype_row_bytes(enum dtype t, int64_t k)
{
    const struct dtype_info *d = dtype_get(t);
    size_t bytes;

    assert(d && k >= 0 && k % d->block == 0);
    bool over = __builtin_mul_overflow((size_t)(k / d->block), (size_t)d->bytes, &bytes);
    assert(!over);
    return bytes;
}
