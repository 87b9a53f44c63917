/* SPDX-License-Identifier: MIT
 *
 * unpack.h: stored weight blocks as the canonical integers of the contract.
 *
 * Two shapes cover every quantised type: 256 codes with 16 sub-scales, and 32 codes with one
 * scale (NVFP4, Q1_0 and Q2_0 store 2, 4 and 2 of those in one block).
 */
#ifndef QUERN_KERNEL_REF_UNPACK_H
#define QUERN_KERNEL_REF_UNPACK_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/dtype.h"

/* element e = dw * scale[e / 16] * code[e] - dmin * min[e / 16] */
struct block256 {
    int8_t code[256];
    int16_t scale[16], min[16];
    float dw, dmin;
};

/* element e = dw * code[e] + m, with dw1 instead of dw for e >= 16 (the same but in NVFP4) */
struct block32 {
    int16_t code[32];
    float dw, dw1, m;
};

/* block: the stored bytes, not aligned. */
typedef void unpack256_fn(const uint8_t *block, struct block256 *b);
/* row: the start of the weight row; i: which 32 elements of it. */
typedef void unpack32_fn(const uint8_t *row, int i, struct block32 *b);
/* The scale and bias of block i of a row. Only MLX types have them; their unpack32_fn makes the codes only. */
void unpack_side(const struct side *row, int i, struct block32 *b);

/* NULL when the type does not have that shape. */
unpack256_fn *unpack256_of(enum dtype t);
unpack32_fn *unpack32_of(enum dtype t);
/* Whether the type has minimums (min and dmin; m). */
bool unpack_has_min(enum dtype t);
/* Whether each half of 32 elements has a scale of its own (dw, dw1). */
bool unpack_has_halves(enum dtype t);

#endif
