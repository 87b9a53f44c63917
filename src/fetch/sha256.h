/* SPDX-License-Identifier: MIT
 *
 * sha256.h: the SHA-256 of a file, from its first byte to its last.
 */
#ifndef QUERN_FETCH_SHA256_H
#define QUERN_FETCH_SHA256_H

#include "base/error.h"
#include "fetch/fetch.h"

/* path: for messages, QN_EIO and QN_ECANCEL (o->watch said so; o may be NULL). hex: lower case. */
int sha256_file(char hex[65], int fd, const char *path, const struct fetch_options *o, struct qn_error *e);

#endif
