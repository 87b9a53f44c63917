/* SPDX-License-Identifier: MIT
 *
 * keys.h: the file of API keys. A line holds the SHA-256 of a key in hexadecimal digits, a name, and limits:
 *
 *     # printf %s "$KEY" | sha256sum
 *     2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b alice requests=4
 *
 * Empty lines and lines that begin with # are skipped. What the limits mean is the business of those who ask for them;
 * one that nobody asks for would be no limit, so their names are given.
 */
#ifndef QUERN_SERVER_KEYS_H
#define QUERN_SERVER_KEYS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct key {
    uint8_t digest[32];
    char name[64];    /* letters, digits, - _ . @ */
    char limits[128]; /* "name=number name=number", "" when there are none */
};

struct keys {
    struct key *key; /* [n] */
    size_t n;
};

/* limits: the names there are, NULL after the last; NULL: any. A file without a key is an error: nobody could enter. */
int keys_load(struct keys *k, const char *path, const char *const *limits, struct qn_error *e);
void keys_deinit(struct keys *k); /* a zeroed struct keys is empty */
/* The entry of this secret or NULL. The time does not depend on where digests differ, or on which entry it is. */
const struct key *keys_find(const struct keys *k, const char *secret);
/* The number after `name=`, or if_absent. */
int64_t keys_limit(const char *limits, const char *name, int64_t if_absent);

#endif
