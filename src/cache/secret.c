/* SPDX-License-Identifier: MIT
 *
 * secret.c: makes, reads and replaces the secret of a directory.
 */
#include "cache/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/out_file.h"

int secret_new(uint8_t secret[SECRET_BYTES], struct qn_error *e)
{
    if (getrandom(secret, SECRET_BYTES, 0) == SECRET_BYTES) return 0;
    return error_set(e, QN_EIO, "the system gives no random numbers: %m");
}

/* Reads an open secret. Returns why it cannot be used, or NULL. */
static const char *read_secret(uint8_t secret[SECRET_BYTES], int fd)
{
    uint8_t all[SECRET_BYTES + 1];
    struct stat st;
    if (fstat(fd, &st)) return strerror(errno);
    if (!S_ISREG(st.st_mode)) return "not a regular file";
    if (st.st_uid != geteuid()) return "another user's";
    if (st.st_mode & 077) return "others may read or write it";
    if (read(fd, all, sizeof all) != SECRET_BYTES) return "damaged";
    memcpy(secret, all, SECRET_BYTES);
    explicit_bzero(all, sizeof all);
    return NULL;
}

/* Replaces the file, or anything else but a folder, that has the secret's name. */
static int write_secret(const uint8_t secret[SECRET_BYTES], const char *dir, int dir_fd, struct qn_error *e)
{
    char path[PATH_MAX];
    struct out_file f = {0};
    if ((size_t)snprintf(path, sizeof path, "%s/" SECRET_NAME, dir) >= sizeof path)
        return error_set(e, QN_EIO, "the cache directory's name is too long");
    unlinkat(dir_fd, SECRET_NAME, 0);
    int rc = out_file_open(&f, path, e);
    if (!rc && fchmod(f.fd, 0600)) rc = error_set(e, QN_EIO, "cannot restrict '%s': %m", path);
    if (!rc) rc = out_file_write(&f, secret, SECRET_BYTES, e);
    if (!rc) rc = out_file_commit(&f, e);
    out_file_abort(&f);
    return rc;
}

int secret_of_directory(uint8_t secret[SECRET_BYTES], const char *dir, int dir_fd, struct qn_error *e)
{
    int fd = openat(dir_fd, SECRET_NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const char *why = "";
    if (fd >= 0) {
        why = read_secret(secret, fd);
        close(fd);
    } else if (errno != ENOENT) {
        why = strerror(errno);
    }
    if (!why) return 0;
    if (*why)
        log_at(LOG_WARN, "cache: '%s/" SECRET_NAME "' replaced, so that what is there is not found: %s", dir, why);
    int rc = secret_new(secret, e);
    return rc ? rc : write_secret(secret, dir, dir_fd, e);
}
