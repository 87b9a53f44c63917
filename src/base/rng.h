/* SPDX-License-Identifier: MIT
 *
 * rng.h: a counter-based random generator. A number depends on (seed, stream, position) alone, so the draw of a token
 * is the same, whatever was computed before or at the same time. Not for secrets. Thread-safe.
 *
 * Source: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
 */
#ifndef QUERN_BASE_RNG_H
#define QUERN_BASE_RNG_H

#include <stdint.h>

/* Philox with key = seed and counter = (position, stream), low words first. */
void rng_block(uint64_t seed, uint64_t stream, uint64_t position, uint32_t out[4]);
/* The first 64 bits of the block, low word first. */
uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t position);
/* Uniform in [0, 1), a multiple of 2^-53. */
double rng_uniform(uint64_t seed, uint64_t stream, uint64_t position);
/* A seed from the operating system, for callers that were given none. */
uint64_t rng_seed_from_os(void);

#endif
