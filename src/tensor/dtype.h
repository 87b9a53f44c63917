/* SPDX-License-Identifier: MIT
 *
 * dtype.h: the element types a model file may hold and the view of a stored tensor.
 *
 * The numbers are GGUF's tensor type ids, and after them our own for what other formats have. A view never owns its
 * bytes: they stay in the mapped file. Source: the GGUF tensor type table (docs/FORMATS.md).
 */
#ifndef QUERN_TENSOR_DTYPE_H
#define QUERN_TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/dtype_list.h"

/* DT_F32, DT_Q4_K and so on, with GGUF's ids: the rows of dtype_list.h. */
enum dtype {
#define ID_OF(ID, name, id, ...) DT_##ID = (id),
    DTYPES(ID_OF)
#undef ID_OF
        DT_N,      /* ids are below this; several are unused */
    DT_GGUF_N = 43 /* ids in GGUF files are below this; after them come those of MLX's types (struct side) */
};

/* How the floats in a block are written. */
enum dtype_floats {
    FLOATS_NONE, /* there are none, or none that can be infinite or NaN */
    FLOATS_F16,
    FLOATS_BF16,
    FLOATS_F32,
    FLOATS_F64,
    FLOATS_E8M0,    /* an exponent byte alone; 0xff is NaN */
    FLOATS_NIBBLES, /* an f16 made of the top nibbles of four u16, lowest first */
};

struct dtype_info {
    const char *name;    /* "Q4_K"; NULL for an id that is not a type */
    uint16_t block;      /* elements in a block */
    uint16_t bytes;      /* bytes in a block */
    uint16_t tail;       /* bytes after a tensor's last row: the scale of the whole tensor (I2_S) */
    uint8_t floats;      /* enum dtype_floats */
    uint8_t float_at[2]; /* bytes from the block's start; [1] is 0 where there is only one float */
};

/* NULL for an id that is not a type (negative and huge ones included). */
const struct dtype_info *dtype_get(int64_t id);
/* Bytes of a row of k elements. Asserts that t is a type, that k is a multiple of its block and that the
 * result fits: numbers from a file are checked before they come here. */
size_t dtype_row_bytes(enum dtype t, int64_t k);

/* The MLX types are rows of codes of 2 to 8 bits with nothing between them. The scale and the bias of each group of a
 * row lie in two other tensors: element = scale * code + bias. */
struct side {
    const uint8_t *scale, *bias; /* [rows][row length / group], unaligned; NULL: no MLX type */
    enum dtype type;             /* of both: F32, F16, BF16 */
    int group;                   /* 32, 64 or 128 */
};

/* Bytes of the scales of a row of k elements; the biases have as many. */
static inline size_t side_row_bytes(const struct side *s, int64_t k)
{
    return s->scale ? (size_t)(k / s->group) * (s->type == DT_F32 ? 4 : 2) : 0;
}

/* The same for the rows from `row` on of a tensor whose rows have k elements. */
static inline struct side side_from(struct side s, int64_t k, int64_t row)
{
    size_t at = side_row_bytes(&s, k) * (size_t)row;
    if (s.scale) s.scale += at, s.bias += at;
    return s;
}

#define TENSOR_MAX_DIMS 4
struct tensor {
    const char *name; /* NUL-terminated, borrowed from the file's index; never contains NUL bytes */
    enum dtype type;
    int n_dims;
    int64_t ne[TENSOR_MAX_DIMS]; /* ne[0] is the row length (contiguous); missing dims are 1 */
    const uint8_t *data;         /* borrowed: the mapped file */
    size_t bytes;                /* of all rows, without padding and tail */
    size_t row_bytes;
    struct side side; /* all zero except for MLX types */
};

/* Bytes of all scales and biases that lie next to a tensor's rows. */
static inline size_t tensor_side_bytes(const struct tensor *t)
{
    return 2 * side_row_bytes(&t->side, t->ne[0]) * (size_t)(t->ne[1] * t->ne[2] * t->ne[3]);
}

#endif
