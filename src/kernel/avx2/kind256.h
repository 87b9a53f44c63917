/* SPDX-License-Identifier: MIT
 *
 * kind256.h: the constants of a type with blocks of 256 elements that the loops need.
 *
 * Each type has a struct kind256, made of its row in tensor/dtype_list.h; inlining makes the constants part of the
 * code. unpack256.h takes the blocks apart.
 */
#ifndef QUERN_KERNEL_AVX2_KIND256_H
#define QUERN_KERNEL_AVX2_KIND256_H

#include "kernel/avx2/run.h"
#include "kernel/avx2/unpack256.h"
#include "tensor/dtype.h"

enum mode256 {
    SIGNED, /* codes are signed */
    OFFSET, /* codes have 1 << shift added */
    MINIMUM /* codes are unsigned by themselves; the type has minimums */
};

struct kind256 {
    enum dtype type;
    size_t bytes; /* of a block */
    enum mode256 mode;
    int shift;    /* of OFFSET; of SIGNED: 1 << shift would make the codes unsigned */
    int run;      /* how many products of vpmaddubsw fit 16 bits together */
    int group;    /* elements that share a scale */
    int max_code; /* the largest magnitude, without offset */
    float factor; /* dw = d * factor, a power of two */
};

/* How far 16 bits reach in a lane, with c the largest code: `run` sums of at most 2 * c * 127 each.
 *   32  c <= 3: 24384   8  c <= 15: 30480   4  c <= 32: 32512   2  c <= 64: 32512   1  c <= 127: 32258
 * Codes with an offset count without it, because their sums start at its negative share. A run ends with the elements
 * that share a scale. */
#define MODE256(low, high, min) ((min) ? MINIMUM : CODE_TOP(low, high) > 127 ? SIGNED : OFFSET)
#define RUN256(low, high)       (CODE_TOP(low, high) > 127 ? RUN_CODE(low, high) : CODE_MAGNITUDE(low, high))
#define KIND256(ID, name, id, block, size, tail, floats, at0, at1, low, high, min, share, slow, shigh, times)          \
    static const struct kind256 kind_##name = {.type = DT_##ID,                                                        \
                                               .bytes = (size),                                                        \
                                               .mode = MODE256(low, high, min),                                        \
                                               .shift = CODE_SHIFT(low),                                               \
                                               .run = RUN_OF(RUN256(low, high), share),                                \
                                               .group = (share),                                                       \
                                               .max_code = CODE_MAGNITUDE(low, high),                                  \
                                               .factor = (times)};
DTYPES_K256(KIND256)

#endif
