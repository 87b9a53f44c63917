/* SPDX-License-Identifier: MIT
 *
 * sha256.c: see sha256.h. The hash itself is GnuTLS's.
 */
#include "fetch/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#include "base/mem.h"

#define BLOCK ((size_t)1 << 20)

static int feed(gnutls_hash_hd_t hash, uint8_t *block, int fd, const char *path, const struct fetch_options *o,
                struct qn_error *e)
{
    struct stat st;
    uint64_t at = 0;

    if (fstat(fd, &st)) return error_set(e, QN_EIO, "cannot look at '%s': %s", path, strerror(errno));
    for (;;) {
        ssize_t n = pread(fd, block, BLOCK, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_set(e, QN_EIO, "cannot read '%s': %s", path, strerror(errno));
        if (n == 0) return 0;
        if (gnutls_hash(hash, block, (size_t)n)) return error_set(e, QN_EIO, "SHA-256 of '%s' failed", path);
        at += (uint64_t)n;
        if (o && !o->watch(o->arg, "checking", at, (uint64_t)st.st_size))
            return error_set(e, QN_ECANCEL, "stopped while '%s' was being checked", path);
    }
}

int sha256_file(char hex[65], int fd, const char *path, const struct fetch_options *o, struct qn_error *e)
{
    static const char digits[] = "0123456789abcdef";
    gnutls_hash_hd_t hash;
    uint8_t digest[32], *block = mem_alloc(BLOCK);
    int r;

    if (!block) return error_nomem(e, "reading a file", BLOCK);
    if (gnutls_hash_init(&hash, GNUTLS_DIG_SHA256)) {
        mem_free(block);
        return error_nomem(e, "SHA-256", 0);
    }
    r = feed(hash, block, fd, path, o, e);
    gnutls_hash_deinit(hash, digest);
    mem_free(block);
    for (int i = 0; i < 32 && r == 0; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    if (r == 0) hex[64] = 0;
    return r;
}
