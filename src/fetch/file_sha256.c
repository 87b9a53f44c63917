/* SPDX-License-Identifier: MIT
 *
 * file_sha256.c: the SHA-256 of a file, with progress.
 */
#include "fetch/file_sha256.h"

#include "base/file_hash.h"

static bool watch(void *arg, uint64_t done, uint64_t total)
{
    const struct fetch_options *o = arg;
    return !o || o->watch(o->arg, "checking", done, total);
}

int file_sha256(char hex[65], int fd, const char *path, const struct fetch_options *o, struct qn_error *e)
{
    uint8_t digest[SHA256_BYTES];
    int rc = file_hash(digest, fd, path, false, watch, (void *)(uintptr_t)o, e);
    if (!rc) sha256_hex(digest, hex);
    return rc;
}
