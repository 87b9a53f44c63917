/* SPDX-License-Identifier: MIT
 *
 * run.h: how many products of vpmaddubsw can be added in 16 bits.
 *
 * vpmaddubsw leaves sums of two products of at most c * 127 each, where c is the largest code that goes in. Signed
 * codes go in as magnitudes, so c is 128 at most. If a sum starts at what the offset of its codes adds to it, it may
 * wrap on the way, and c is the largest magnitude without the offset. The macros are constant expressions.
 */
#ifndef QUERN_KERNEL_AVX2_RUN_H
#define QUERN_KERNEL_AVX2_RUN_H

#include <stdint.h>

#include "kernel/codes.h"

/* The largest c of a type: with the offset where a byte holds that, else the largest magnitude of signed codes. */
#define RUN_CODE(low, high) (CODE_TOP(low, high) > 127 ? RUN_SIGNED(CODE_MAGNITUDE(low, high)) : CODE_TOP(low, high))
#define RUN_SIGNED(c)       ((c) > 128 ? 128 : (c))

/* A power of two: at most 32 and at most the registers (of 4 codes for each row) that share a scale. */
#define RUN_OF(c, group) RUN_LEAST(RUN_LEAST(32, (group) / 4), 1 << (31 - __builtin_clz(INT16_MAX / (2 * 127 * (c)))))
#define RUN_LEAST(a, b)  ((a) < (b) ? (a) : (b))

#endif
