/* SPDX-License-Identifier: MIT
 *
 * dtype_list.h: the one table of tensor types, a row a type.
 *
 * The rows are lists for macros: DTYPES(X) is X(row) for every type. Everything that differs between types by a
 * number comes from here: enum dtype, the sizes (dtype.c), the places of floats (format/file/finite.c), the
 * activations that weights are multiplied with, the constants of the kernels of each instruction set and their
 * dispatch tables (kernel/). A new type is a row here, a function for each instruction set that unpacks its blocks
 * (ref/unpack.c, avx2/unpack*.h, avx512/unpack*.h; for a codebook also gemm_iq.c of avx512/ and avx512vbmi/), a test
 * and a line in the documents. Source: the tensor type table of the GGUF format (docs/FORMATS.md).
 *
 * Every row begins with
 *
 *   ID, name       as in DT_Q4_K; as in the names of functions
 *   id             GGUF's; MLX's types have our own, after them
 *   block, bytes   elements in a block, and its stored bytes
 *   tail           bytes after the last row of a tensor: the scale of the whole tensor
 *   floats, at, at the kind of the floats in a block (enum dtype_floats) and the bytes where the first and the second
 *                  one lie; 0 for the second: there is only one
 *
 * Lists of quantised weights go on with
 *
 *   low, high      the smallest and the largest code. Codes are the integers that the contract multiplies
 *                  (docs/KERNELS.md section 2), with fractions of the format folded in
 *   min            whether the type has minimums
 *
 * and those of DTYPES_K256, whose codes have integer scales, with
 *
 *   group          elements that share a scale
 *   slow, shigh    the smallest and the largest scale
 *   factor         dw = d * factor, a power of two
 *
 * Ids without a row were given up by the format (4, 5, 31-33, 37, 38); 36 was too, and is BitNet's now.
 */
#ifndef QUERN_TENSOR_DTYPE_LIST_H
#define QUERN_TENSOR_DTYPE_LIST_H

/* clang-format off */

/* Float weights; multiplied with activations in F32. */
#define DTYPES_FLOAT(X) \
    /* ID    name  id block bytes tail floats at at */ \
    X(F32,   f32,   0,  1,    4,  0,   F32,   0, 0) \
    X(F16,   f16,   1,  1,    2,  0,   F16,   0, 0) \
    X(BF16,  bf16, 30,  1,    2,  0,   BF16,  0, 0)

/* The other types that a file may hold; they are no weights. */
#define DTYPES_OTHER(X) \
    /* ID    name  id block bytes tail floats at at */ \
    X(F64,   f64,  28,   1,   8,  0,   F64,   0, 0) \
    X(I8,    i8,   24,   1,   1,  0,   NONE,  0, 0) \
    X(I16,   i16,  25,   1,   2,  0,   NONE,  0, 0) \
    X(I32,   i32,  26,   1,   4,  0,   NONE,  0, 0) \
    X(I64,   i64,  27,   1,   8,  0,   NONE,  0, 0) \
    X(Q8_1,  q8_1,  9,  32,  36,  0,   F16,   0, 2) \
    X(Q8_K,  q8_k, 15, 256, 292,  0,   F32,   0, 0)

/* A float scale for every 32 elements at least; multiplied with activations in Q32. */
#define DTYPES_B32(X) \
    /* ID    name   id block bytes tail floats at at  low  high  min */ \
    X(Q4_0,   q4_0,    2,  32, 18, 0,   F16,   0, 0,   -8,    7, false) \
    X(Q4_1,   q4_1,    3,  32, 20, 0,   F16,   0, 2,    0,   15, true)  \
    X(Q5_0,   q5_0,    6,  32, 22, 0,   F16,   0, 0,  -16,   15, false) \
    X(Q5_1,   q5_1,    7,  32, 24, 0,   F16,   0, 2,    0,   31, true)  \
    X(Q8_0,   q8_0,    8,  32, 34, 0,   F16,   0, 0, -128,  127, false) \
    X(IQ4_NL, iq4_nl, 20,  32, 18, 0,   F16,   0, 0, -127,  113, false) \
    X(MXFP4,  mxfp4,  39,  32, 17, 0,   E8M0,  0, 0,  -12,   12, false) \
    X(Q1_0,   q1_0,   41, 128, 18, 0,   F16,   0, 0,   -1,    1, false) \
    X(Q2_0,   q2_0,   42,  64, 18, 0,   F16,   0, 0,   -1,    2, false)

/* The same with a scale for every 16. NVFP4's are unsigned E4M3, which are finite for every byte: 0x7f reads as 0. */
#define DTYPES_B32_HALVES(X) \
    /* ID    name   id block bytes tail floats at at  low  high  min */ \
    X(NVFP4,  nvfp4,  40,  64, 36, 0,   NONE,  0, 0,  -12,   12, false)

/* The same with scales and minimums in other tensors (struct side). */
#define DTYPES_B32_SIDE(X) \
    /* ID    name   id block bytes tail floats at at  low  high  min */ \
    X(MLX2,   mlx2,   43,  32,  8, 0,   NONE,  0, 0,    0,    3, true)  \
    X(MLX3,   mlx3,   44,  32, 12, 0,   NONE,  0, 0,    0,    7, true)  \
    X(MLX4,   mlx4,   45,  32, 16, 0,   NONE,  0, 0,    0,   15, true)  \
    X(MLX5,   mlx5,   46,  32, 20, 0,   NONE,  0, 0,    0,   31, true)  \
    X(MLX6,   mlx6,   47,  32, 24, 0,   NONE,  0, 0,    0,   63, true)  \
    X(MLX8,   mlx8,   48,  32, 32, 0,   NONE,  0, 0,    0,  255, true)

/* A float scale for 256 elements and integer scales for groups of them; multiplied with activations in Q256. The codes
 * of some are made of bits at fixed places, those of the others of entries of a codebook (kernel/iq_grid.h). */
#define DTYPES_K256_BITS(X) \
    /* ID      name    id block bytes tail floats    at  at  low high   min  group slow shigh factor */ \
    X(Q2_K,    q2_k,    10, 256,  84, 0,   F16,      80, 82,    0,   3, true,   16,    0,  15, 1.0f)   \
    X(Q3_K,    q3_k,    11, 256, 110, 0,   F16,     108,  0,   -4,   3, false,  16,  -32,  31, 1.0f)   \
    X(Q4_K,    q4_k,    12, 256, 144, 0,   F16,       0,  2,    0,  15, true,   32,    0,  63, 1.0f)   \
    X(Q5_K,    q5_k,    13, 256, 176, 0,   F16,       0,  2,    0,  31, true,   32,    0,  63, 1.0f)   \
    X(Q6_K,    q6_k,    14, 256, 210, 0,   F16,     208,  0,  -32,  31, false,  16, -128, 127, 1.0f)   \
    X(IQ4_XS,  iq4_xs,  23, 256, 136, 0,   F16,       0,  0, -127, 113, false,  32,  -32,  31, 1.0f)   \
    X(TQ1_0,   tq1_0,   34, 256,  54, 0,   F16,      52,  0,   -1,   1, false, 256,    1,   1, 1.0f)   \
    X(TQ2_0,   tq2_0,   35, 256,  66, 0,   F16,      64,  0,   -1,   2, false, 256,    1,   1, 1.0f)   \
    X(I2_S,    i2_s,    36, 256,  64, 4,   NONE,      0,  0,   -1,   2, false, 256,    1,   1, 1.0f)

#define DTYPES_K256_CODEBOOK(X) \
    /* ID      name    id block bytes tail floats    at  at  low high   min  group slow shigh factor */ \
    X(IQ1_S,   iq1_s,   19, 256,  50, 0,   F16,       0,  0,   -9,   9, false,  32,    1,  15, 0.125f) \
    X(IQ1_M,   iq1_m,   29, 256,  56, 0,   NIBBLES,  48,  0,   -9,   9, false,  16,    1,  15, 0.125f) \
    X(IQ2_XXS, iq2_xxs, 16, 256,  66, 0,   F16,       0,  0,  -43,  43, false,  32,    1,  31, 0.125f) \
    X(IQ2_XS,  iq2_xs,  17, 256,  74, 0,   F16,       0,  0,  -43,  43, false,  16,    1,  31, 0.125f) \
    X(IQ2_S,   iq2_s,   22, 256,  82, 0,   F16,       0,  0,  -43,  43, false,  16,    1,  31, 0.125f) \
    X(IQ3_XXS, iq3_xxs, 18, 256,  98, 0,   F16,       0,  0,  -62,  62, false,  32,    1,  31, 0.25f)  \
    X(IQ3_S,   iq3_s,   21, 256, 110, 0,   F16,       0,  0,  -15,  15, false,  32,    1,  31, 1.0f)

/* clang-format on */

/* All types that are multiplied with activations in Q256. */
#define DTYPES_K256(X) DTYPES_K256_BITS(X) DTYPES_K256_CODEBOOK(X)

/* All types that are multiplied with activations in Q32. */
#define DTYPES_Q32(X) DTYPES_B32(X) DTYPES_B32_HALVES(X) DTYPES_B32_SIDE(X)

/* All types; the one with the highest id comes last. */
#define DTYPES(X) DTYPES_FLOAT(X) DTYPES_OTHER(X) DTYPES_K256(X) DTYPES_Q32(X)

#endif
