/* SPDX-License-Identifier: MIT
 *
 * stream.h: what the products with one column share (gemm_b32_one.c, gemm_k256_one.c): sizes and prefetching.
 *
 * Weights are streamed once: blocks of up to STREAMS rows in turn. The t of 8 rows go to scratch, up to SEGMENT blocks
 * of each, and the ordered chain then runs with lanes = rows.
 */
#ifndef QUERN_KERNEL_AVX2_STREAM_H
#define QUERN_KERNEL_AVX2_STREAM_H

#include "kernel/avx2/avx2.h"
#include "kernel/avx2/vec.h"

#define SEGMENT  1024 /* blocks of a row whose t are in scratch at once */
#define STREAMS  4    /* rows read side by side: memory delivers more from several pages at once */
#define AHEAD_L1 2304 /* bytes; measured */
#define AHEAD_L2 (48 << 10)

_Static_assert(sizeof(float) * 8 * SEGMENT <= KERNEL_SCRATCH_BYTES, "the t of 8 rows fit the scratch memory");

/* Asks for the lines that are as far after `bytes` at w as AHEAD_L1 says, into the first level, and those as far as
 * AHEAD_L2 into the second: one depth alone leaves a sixth of the bandwidth. Lines past the matrix are asked for too,
 * which is harmless. */
VEC_INLINE void stream_prefetch(const uint8_t *w, size_t bytes)
{
    for (size_t p = 0; p < bytes; p += 64) {
        vec_prefetch_l1(w, p + AHEAD_L1);
        vec_prefetch_l2(w, p + AHEAD_L2);
    }
}

#endif
