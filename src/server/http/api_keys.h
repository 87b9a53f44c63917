/* SPDX-License-Identifier: MIT
 *
 * api_keys.h: the file of API keys. A line holds the SHA-256 of a key in hexadecimal digits, a name, and limits:
 *
 *     # printf %s "$KEY" | sha256sum
 *     2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b alice requests=4
 *
 * Empty lines and lines that begin with # are skipped. The caller interprets the limits. It gives their names here, so
 * that a limit that nobody reads is refused.
 */
#ifndef QUERN_SERVER_API_KEYS_H
#define QUERN_SERVER_API_KEYS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct api_key {
    uint8_t digest[32];
    char name[64];    /* letters, digits, - _ . @ */
    char limits[128]; /* "name=number name=number", "" when there are none */
};

struct api_keys {
    struct api_key *key; /* [n] */
    size_t n;
};

/* Fills *k, which is freed with api_keys_deinit(). limits: the names that limits may have, ended by NULL; NULL: any. A
 * file without a key is an error, because nobody could call. */
int api_keys_load(struct api_keys *k, const char *path, const char *const *limits, struct qn_error *e);
void api_keys_deinit(struct api_keys *k); /* a zeroed struct api_keys is empty */
/* The entry of this secret, owned by k; NULL: there is none. The time depends neither on the entry nor on where digests
 * differ. */
const struct api_key *api_keys_find(const struct api_keys *k, const char *secret);
/* The number after `name=` in limits, or if_absent. */
int64_t api_keys_limit(const char *limits, const char *name, int64_t if_absent);

#endif
