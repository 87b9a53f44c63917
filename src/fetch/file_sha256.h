/* SPDX-License-Identifier: MIT
 *
 * file_sha256.h: the SHA-256 of a file, from its first byte to its last.
 */
#ifndef QUERN_FETCH_FILE_SHA256_H
#define QUERN_FETCH_FILE_SHA256_H

#include "base/error.h"
#include "fetch/fetch.h"

/* Reads the file of descriptor fd. hex: lower case. path: for messages. QN_EIO, or QN_ECANCEL when o->watch said so; o
 * may be NULL. */
int file_sha256(char hex[65], int fd, const char *path, const struct fetch_options *o, struct qn_error *e);

#endif
