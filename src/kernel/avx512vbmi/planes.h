/* SPDX-License-Identifier: MIT
 *
 * planes.h: the codebooks of the IQ1, IQ2 and IQ3 types, cut into planes of bytes for vpermi2b.
 *
 * A plane has one byte for each entry of the codebook, in their order, and so 64 entries in each register. What the
 * byte holds:
 *
 *   IQ1, IQ2   plane p: the elements 4p .. 4p + 3 as digits of two bits, the first one lowest. The digits count the
 *              codebook's values from the lowest up. IQ1 has only plane 0 in this form
 *   IQ3_XXS    plane p: element p
 *   IQ3_S      plane p: element 2p in the low nibble, 2p + 1 in the high one
 *
 * iq_grid.h has the same codebooks entry by entry; a unit test compares them.
 */
#ifndef QUERN_KERNEL_AVX512VBMI_PLANES_H
#define QUERN_KERNEL_AVX512VBMI_PLANES_H

#include <stdint.h>

/* Bytes in words from the lowest up: [planes][entries]. */
extern const _Alignas(64) uint64_t iq2xxs_planes[2 * 256 / 8];
extern const _Alignas(64) uint64_t iq2xs_planes[2 * 512 / 8];
extern const _Alignas(64) uint64_t iq2s_planes[2 * 1024 / 8];
extern const _Alignas(64) uint64_t iq3xxs_planes[4 * 256 / 8];
extern const _Alignas(64) uint64_t iq3s_planes[2 * 512 / 8];
extern const _Alignas(64) uint64_t iq1s_planes[2048 / 8];

/* Plane 1 of IQ1's codebook, whose entries are in the order of their last elements: among 16 entries the byte changes
 * once at most. [..][128 times 16 entries]: the first byte, the last byte, and the entry of the 16 where that begins.
 */
extern const _Alignas(64) uint64_t iq1s_steps[3 * 128 / 8];

/* [element][six bits]: the code, with its offset, of each of two elements whose digits are the bits 0-1 and 2-3. IQ2:
 * bits 4 and 5 negate them. IQ1: bit 4 makes the delta of both negative; bit 5 does nothing. */
extern const _Alignas(64) uint64_t iq2_pair_codes[2 * 64 / 8];
extern const _Alignas(64) uint64_t iq1_pair_codes[2 * 64 / 8];

/* The sign mask of each 7-bit index: iq_signs() of iq_grid.h. */
extern const _Alignas(64) uint64_t iq_sign_bytes[128 / 8];

#endif
