/* SPDX-License-Identifier: MIT
 *
 * sha256.h: SHA-256 (FIPS 180-4), and HMAC with it (RFC 2104), for hashes that nobody may be able to forge.
 */
#ifndef QUERN_BASE_SHA256_H
#define QUERN_BASE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32

struct sha256 {
    uint32_t h[8];
    uint64_t n; /* bytes so far */
    uint8_t rest[64];
    bool plain; /* do not use the CPU's instructions for SHA-256; tests set it */
};

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *p, size_t n); /* p may be NULL when n is 0 */
void sha256_end(struct sha256 *s, uint8_t out[SHA256_BYTES]);
void sha256_hmac(const uint8_t key[SHA256_BYTES], const void *p, size_t n, uint8_t out[SHA256_BYTES]);
void sha256_hex(const uint8_t digest[SHA256_BYTES], char out[2 * SHA256_BYTES + 1]); /* lower case */
/* Reads 64 digits; more text may follow. False: they are not digits. */
bool sha256_from_hex(uint8_t out[SHA256_BYTES], const char *hex);
bool sha256_has_instructions(void); /* this CPU has instructions for it */

#endif
