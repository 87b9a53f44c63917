/* SPDX-License-Identifier: MIT
 *
 * codes.h: numbers that follow from the smallest and the largest code of a weight type (tensor/dtype_list.h).
 *
 * The instructions that multiply bytes take one side unsigned. Types whose codes can be negative have a power of two
 * added to them, and the sums of the activations take it out again: sum c * q = sum (c + o) * q - o * sum q. All
 * integers are exact, so the offset is no part of the arithmetic. The macros are constant expressions.
 */
#ifndef QUERN_KERNEL_CODES_H
#define QUERN_KERNEL_CODES_H

/* The smallest power of two that leaves no code negative, and its logarithm; 0 and 0 for codes that never are. */
#define CODE_OFFSET(low) ((low) < 0 ? 1 << CODE_SHIFT(low) : 0)
#define CODE_SHIFT(low)  ((low) < -1 ? 32 - __builtin_clz((unsigned)(-(low)-1)) : 0)

/* The largest code with its offset. */
#define CODE_TOP(low, high) ((high) + CODE_OFFSET(low))

/* The largest magnitude of a code. */
#define CODE_MAGNITUDE(low, high) ((high) > -(low) ? (high) : -(low))

#endif
