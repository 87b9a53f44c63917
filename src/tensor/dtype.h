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

enum dtype {
    DT_F32 = 0, DT_F16 = 1, DT_Q4_0 = 2, DT_Q4_1 = 3, DT_Q5_0 = 6, DT_Q5_1 = 7, DT_Q8_0 = 8, DT_Q8_1 = 9,
    DT_Q2_K = 10, DT_Q3_K = 11, DT_Q4_K = 12, DT_Q5_K = 13, DT_Q6_K = 14, DT_Q8_K = 15,
    DT_IQ2_XXS = 16, DT_IQ2_XS = 17, DT_IQ3_XXS = 18, DT_IQ1_S = 19, DT_IQ4_NL = 20, DT_IQ3_S = 21,
    DT_IQ2_S = 22, DT_IQ4_XS = 23, DT_I8 = 24, DT_I16 = 25, DT_I32 = 26, DT_I64 = 27, DT_F64 = 28,
    DT_IQ1_M = 29, DT_BF16 = 30, DT_TQ1_0 = 34, DT_TQ2_0 = 35, DT_I2_S = 36, DT_MXFP4 = 39, DT_NVFP4 = 40,
    DT_Q1_0 = 41, DT_Q2_0 = 42,
    DT_GGUF_N = 43, /* ids in GGUF files are below this; several are unused */
    DT_MLX2 = 43, DT_MLX3 = 44, DT_MLX4 = 45, DT_MLX5 = 46, DT_MLX6 = 47, DT_MLX8 = 48, /* codes; see struct side */
    DT_N = 49
};

struct dtype_info {
    const char *name;  /* "Q4_K"; NULL for an id that is not a type */
    uint16_t block;    /* elements in a block */
    uint16_t bytes;    /* bytes in a block */
    uint16_t tail;     /* bytes behind the last row: the scale of the whole tensor (I2_S) */
};

/* NULL for an id that is not a type (negative and huge ones included). */
const struct dtype_info *dtype_get(int64_t id);
/* Bytes of a row of k elements. Asserts that t is a type, that k is a multiple of its block and that the
 * result fits: numbers from a file are checked before they come here. */
size_t dtype_row_bytes(enum dtype t, int64_t k);

/* The MLX types are rows of codes of 2 to 8 bits, nothing between them; what each group of a row is multiplied with and
 * what is added lie in tensors beside: element = scale * code + bias. */
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

/* That of the rows from `row` on. */
static inline struct side side_from(struct side s, int64_t k, int64_t row)
{
    size_t at = side_row_bytes(&s, k) * (size_t)row;
    if (s.scale) s.scale += at, s.bias += at;
    return s;
}

#define TENSOR_MAX_DIMS 4
struct tensor {
    const char *name;   /* NUL-terminated, borrowed from the file's index; never contains NUL bytes */
    enum dtype type;
    int n_dims;
    int64_t ne[TENSOR_MAX_DIMS]; /* ne[0] is the row length (contiguous); missing dims are 1 */
    const uint8_t *data;         /* borrowed: the mapped file */
    size_t bytes;                /* of all rows, without padding and tail */
    size_t row_bytes;
    struct side side;            /* all zero but for MLX types */
};

#endif
