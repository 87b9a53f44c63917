/* SPDX-License-Identifier: MIT
 *
 * hash.h: fast non-cryptographic hashing (xxHash, XXH3).
 */
#ifndef QUERN_BASE_HASH_H
#define QUERN_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* XXH3-64 of n bytes; p may be NULL when n is 0. It is the same on every machine, so it may be stored. */
uint64_t hash_bytes(const void *p, size_t n, uint64_t seed);

#endif
