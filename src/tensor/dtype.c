/* SPDX-License-Identifier: MIT
 *
 * dtype.c: the table of tensor types, to be asked by id.
 *
 * A row of k elements is k / block blocks of `bytes` bytes, one after the other without padding. The numbers are those
 * of dtype_list.h. Does not know how codes lie in a block (that is the kernels' business).
 */
#include "tensor/dtype.h"

#include <assert.h>

#define ROW(ID, name_, id, block_, bytes_, tail_, kind, first, second, ...)                                            \
    [DT_##ID] = {.name = #ID,                                                                                          \
                 .block = (block_),                                                                                    \
                 .bytes = (bytes_),                                                                                    \
                 .tail = (tail_),                                                                                      \
                 .floats = FLOATS_##kind,                                                                              \
                 .float_at = {(first), (second)}},
static const struct dtype_info table[DT_N] = {DTYPES(ROW)};

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
