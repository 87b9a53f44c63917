/* SPDX-License-Identifier: MIT
 *
 * hash.c: the one hash of the tree, XXH3 with 64 bits, from libxxhash.
 *
 * Only this file knows the library. The value may be written to disk, because the specification fixes XXH3's output
 * (xxHash 0.8). It is not cryptographic: where a stranger chooses the bytes and a collision would matter, compare the
 * bytes too.
 */
#include "base/hash.h"

#include <xxhash.h>

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed) { return XXH3_64bits_withSeed(p, n, seed); }
