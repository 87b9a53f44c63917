/* SPDX-License-Identifier: MIT
 *
 * kind256.h: what the loops have to know of a type with blocks of 256 elements.
 *
 * A struct of constants for each type; inlining makes them part of the code. How a block is taken apart is unpack256.h's.
 */
#ifndef QUERN_KERNEL_AVX2_KIND256_H
#define QUERN_KERNEL_AVX2_KIND256_H

#include "kernel/avx2/unpack256.h"

enum mode256 {
    SIGNED, /* codes are signed */
    OFFSET, /* codes have 1 << shift added */
    MINIMUM /* codes are unsigned by themselves; the type has minimums */
};

struct kind256 {
    size_t bytes; /* of a block */
    enum mode256 mode;
    int shift;    /* of SIGNED: what makes them unsigned */
    int run;      /* how many products of vpmaddubsw fit 16 bits together */
    int group;    /* elements that share a scale */
    int max_code; /* the largest magnitude, without offset */
    float factor; /* dw = d * factor, a power of two */
};

/* How far 16 bits reach, per lane, with c the largest code: run products of 2 * c * 127 each.
 *   32  c <= 3: 24384   8  c <= 15: 30480   4  c <= 31: 31496   2  c <= 63: 32004   1  c <= 127: 32258
 * A run ends with the elements that share a scale. The offset codes of IQ2 reach 64 + 43, of IQ3_XXS
 * 64 + 62, of IQ3_S 16 + 15, of IQ1 16 + 9. */
static const struct kind256 kind_q2_k = {84, MINIMUM, 0, 4, 16, 3, 1};
static const struct kind256 kind_q3_k = {110, OFFSET, 2, 4, 16, 4, 1};
static const struct kind256 kind_q4_k = {144, MINIMUM, 0, 8, 32, 15, 1};
static const struct kind256 kind_q5_k = {176, MINIMUM, 0, 4, 32, 31, 1};
static const struct kind256 kind_q6_k = {210, OFFSET, 5, 2, 16, 32, 1};
static const struct kind256 kind_iq1_s = {50, OFFSET, 4, 4, 32, 9, 0.125f};
static const struct kind256 kind_iq1_m = {56, OFFSET, 4, 4, 16, 9, 0.125f};
static const struct kind256 kind_iq2_xxs = {66, OFFSET, 6, 1, 32, 43, 0.125f};
static const struct kind256 kind_iq2_xs = {74, OFFSET, 6, 1, 16, 43, 0.125f};
static const struct kind256 kind_iq2_s = {82, OFFSET, 6, 1, 16, 43, 0.125f};
static const struct kind256 kind_iq3_xxs = {98, OFFSET, 6, 1, 32, 62, 0.25f};
static const struct kind256 kind_iq3_s = {110, OFFSET, 4, 4, 32, 15, 1};
static const struct kind256 kind_iq4_xs = {136, SIGNED, 7, 1, 32, 127, 1};
static const struct kind256 kind_tq1_0 = {54, OFFSET, 0, 32, 256, 1, 1};
static const struct kind256 kind_tq2_0 = {66, OFFSET, 0, 32, 256, 2, 1};
static const struct kind256 kind_i2_s = {64, OFFSET, 0, 32, 256, 2, 1};

#endif
