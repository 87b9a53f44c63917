/* SPDX-License-Identifier: MIT
 *
 * kind32.h: the constants of a type with a float scale for every 32 elements that the loops need.
 *
 * The counterpart of kind256.h, which says how far 16 bits reach.
 */
#ifndef QUERN_KERNEL_AVX2_KIND32_H
#define QUERN_KERNEL_AVX2_KIND32_H

#include "kernel/avx2/run.h"
#include "kernel/avx2/unpack32.h"
#include "tensor/dtype.h"

#define MAX_BYTES 272 /* of 256 elements */

enum mode32 {
    SIGNED,  /* codes are signed */
    OFFSET,  /* codes have 1 << shift added */
    MINIMUM, /* codes are unsigned; the type has minimums */
    BIASED,  /* codes have 1 << shift taken away; the type has minimums */
    HALVED   /* signed, and each 16 have a scale */
};

struct kind32 {
    enum dtype type;
    int block; /* elements of a stored block */
    int block_bytes;
    enum mode32 mode;
    int shift;     /* of OFFSET and BIASED; of SIGNED: 1 << shift would make the codes unsigned */
    int run;       /* how many products of vpmaddubsw fit 16 bits together: 1, 2, 4, 8 */
    bool has_side; /* scales and minimums lie in other tensors: struct side */
};

/* The reach of 16 bits is as in kind256.h; 8 is all of a block. */
#define MODE32_MIN(high)       ((high) > 127 ? BIASED : MINIMUM)
#define MODE32_ONE(low, high)  (CODE_TOP(low, high) > 127 ? SIGNED : OFFSET)
#define MODE32(low, high, min) ((min) ? MODE32_MIN(high) : MODE32_ONE(low, high))
#define SHIFT32(low, high)     (CODE_TOP(low, high) > 127 ? 7 : CODE_SHIFT(low))
#define KIND32(ID, name, elements, size, low, high, mode_, group, side)                                                \
    static const struct kind32 kind_##name = {.type = DT_##ID,                                                         \
                                              .block = (elements),                                                     \
                                              .block_bytes = (size),                                                   \
                                              .mode = (mode_),                                                         \
                                              .shift = SHIFT32(low, high),                                             \
                                              .run = RUN_OF(RUN_CODE(low, high), group),                               \
                                              .has_side = (side)};
#define KIND32_ONE(ID, name, id, block, bytes, tail, floats, at0, at1, low, high, min)                                 \
    KIND32(ID, name, block, bytes, low, high, MODE32(low, high, min), 32, false)
#define KIND32_HALVES(ID, name, id, block, bytes, tail, floats, at0, at1, low, high, min)                              \
    KIND32(ID, name, block, bytes, low, high, HALVED, 16, false)
#define KIND32_SIDE(ID, name, id, block, bytes, tail, floats, at0, at1, low, high, min)                                \
    KIND32(ID, name, block, bytes, low, high, MODE32(low, high, min), 32, true)
DTYPES_B32(KIND32_ONE)
DTYPES_B32_HALVES(KIND32_HALVES)
DTYPES_B32_SIDE(KIND32_SIDE)

#define FITS(ID, name, id, block, bytes, ...) _Static_assert(256 / (block) * (bytes) <= MAX_BYTES, "it fits: " #ID);
DTYPES_Q32(FITS)
#undef FITS

/* Stored bytes of n_blocks * 32 elements. */
VEC_INLINE size_t bytes_of(struct kind32 k, int n_blocks)
{
    return (size_t)(n_blocks * 32 / k.block) * (size_t)k.block_bytes;
}

#endif
