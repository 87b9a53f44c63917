/* SPDX-License-Identifier: MIT
 *
 * iq_grid.h: the codebooks of the IQ1, IQ2 and IQ3 types, and their sign masks.
 *
 * An entry is a vector of small integers, kept as bytes from the lowest up, so that storing the
 * word on a little-endian machine lays the elements out in order. Magnitudes are unsigned and
 * get their signs from elsewhere in the block; iq1s_grid alone holds signed bytes (-1, 0, 1).
 */
#ifndef QUERN_KERNEL_IQ_GRID_H
#define QUERN_KERNEL_IQ_GRID_H

#include <stdint.h>

extern const uint64_t iq2xxs_grid[256]; /* 8 of 8, 25, 43 */
extern const uint64_t iq2xs_grid[512];
extern const uint64_t iq2s_grid[1024];
extern const uint32_t iq3xxs_grid[256]; /* 4 of 4, 12, 20, 28, 36, 44, 52, 62 */
extern const uint32_t iq3s_grid[512];   /* 4 of 1, 3 .. 15 */
extern const uint64_t iq1s_grid[2048];  /* 8 of -1, 0, 1 */

/* The sign mask of a 7-bit index: bit j set negates element j, and bit 7 makes the number of
 * negated elements even. */
static inline uint8_t iq_signs(uint32_t index7) { return (uint8_t)(index7 | (uint32_t)__builtin_parity(index7) << 7); }

#endif
