/* SPDX-License-Identifier: MIT
 *
 * hash.c: the one hash of the tree, XXH3 with 64 bits, from libxxhash.
 *
 * It is behind a function of ours so that one file knows the library and the value can be written to disk: XXH3's
 * output is fixed by its specification (xxHash 0.8). It is not cryptographic: where a stranger chooses the bytes and
 * a collision would matter, compare the bytes too.
 */
#include "base/hash.h"

#include <xxhash.h>

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed) { return XXH3_64bits_withSeed(p, n, seed); }
