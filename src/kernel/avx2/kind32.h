/* SPDX-License-Identifier: MIT
 *
 * kind32.h: what the loops have to know of a type with a float scale per 32 elements.
 *
 * The counterpart of kind256.h, which says how far 16 bits reach.
 */
#ifndef QUERN_KERNEL_AVX2_KIND32_H
#define QUERN_KERNEL_AVX2_KIND32_H

#include "kernel/avx2/unpack32.h"

#define MAX_BYTES 272 /* of 256 elements */

enum mode32 {
    SIGNED,  /* codes are signed */
    OFFSET,  /* codes have 1 << shift added */
    MINIMUM, /* codes are unsigned; the type has minimums */
    BIASED,  /* codes have 1 << shift taken away; the type has minimums */
    HALVED   /* signed, and each 16 have a scale */
};

struct kind32 {
    int block; /* elements of a stored block */
    int block_bytes;
    enum mode32 mode;
    int shift; /* of SIGNED: what makes them unsigned */
    int run;   /* how many products of vpmaddubsw fit 16 bits together: 1, 2, 4, 8 */
    bool has_side; /* scales and minimums lie beside the rows */
};

/* The reach of 16 bits is as in kind256.h; 8 is all of a block. */
static const struct kind32 kind_q4_0 = {32, 18, OFFSET, 3, 8, false};
static const struct kind32 kind_q4_1 = {32, 20, MINIMUM, 0, 8, false};
static const struct kind32 kind_q5_0 = {32, 22, OFFSET, 4, 4, false};
static const struct kind32 kind_q5_1 = {32, 24, MINIMUM, 0, 4, false};
static const struct kind32 kind_q8_0 = {32, 34, SIGNED, 7, 1, false};
static const struct kind32 kind_iq4_nl = {32, 18, SIGNED, 7, 1, false};
static const struct kind32 kind_mxfp4 = {32, 17, OFFSET, 4, 4, false};
static const struct kind32 kind_nvfp4 = {64, 36, HALVED, 0, 4, false};
static const struct kind32 kind_q1_0 = {128, 18, OFFSET, 0, 8, false};
static const struct kind32 kind_q2_0 = {64, 18, OFFSET, 0, 8, false};
static const struct kind32 kind_mlx2 = {32, 8, MINIMUM, 0, 8, true};
static const struct kind32 kind_mlx3 = {32, 12, MINIMUM, 0, 8, true};
static const struct kind32 kind_mlx4 = {32, 16, MINIMUM, 0, 8, true};
static const struct kind32 kind_mlx5 = {32, 20, MINIMUM, 0, 4, true};
static const struct kind32 kind_mlx6 = {32, 24, MINIMUM, 0, 2, true};
static const struct kind32 kind_mlx8 = {32, 32, BIASED, 7, 1, true};

/* Stored bytes of n_blocks * 32 elements. */
VEC_INLINE size_t bytes_of(struct kind32 k, int n_blocks)
{
    return (size_t)(n_blocks * 32 / k.block) * (size_t)k.block_bytes;
}

#endif
