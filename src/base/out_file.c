/* SPDX-License-Identifier: MIT
 *
 * out_file.c: writes a file under a temporary name, and renames it when it is complete.
 */
#include "base/out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"

static int failed(const struct out_file *f, const char *what, struct qn_error *e)
{
    return error_set(e, QN_EIO, "cannot %s '%s': %s", what, f->path, strerror(errno));
}

/* Creates a new file in the folder of path, under a name that no other file has. -1 and errno on failure. */
static int create_beside(const char *path, char *temp, size_t size)
{
    for (uint64_t i = 0; i < 100; i++) {
        snprintf(temp, size, "%s.%08x", path, (uint32_t)(rng_seed_from_os() >> 32));
        int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

int out_file_open(struct out_file *f, const char *path, struct qn_error *e)
{
    char real[PATH_MAX];
    struct stat st;
    int rc = QN_ENOMEM;
    if (realpath(path, real)) path = real; /* replace what a link points to, not the link */
    size_t n = strlen(path);
    struct out_file o = {.path = mem_dup(path, n), .temp = mem_alloc(n + 10)};
    if (!o.path || !o.temp) {
        error_nomem(e, "a file name", 2 * n + 10);
        goto fail;
    }
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) { /* renaming over a device or a pipe would replace it */
        rc = error_set(e, QN_EIO, "cannot write '%s': not a regular file", path);
        goto fail;
    }
    o.fd = create_beside(path, o.temp, n + 10);
    if (o.fd < 0) {
        rc = failed(&o, "create", e);
        goto fail;
    }
    *f = o;
    return 0;
fail:
    mem_free(o.path);
    mem_free(o.temp);
    return rc;
}

int out_file_write(struct out_file *f, const void *p, size_t n, struct qn_error *e)
{
    const char *s = p;
    while (n > 0) {
        ssize_t done = write(f->fd, s, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return failed(f, "write", e);
        s += done;
        n -= (size_t)done;
    }
    return 0;
}

/* Makes a rename in the directory of path durable. Returns 0, or -1 and errno. */
static int sync_dir_of(const char *path)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n)
        snprintf(dir, sizeof dir, "%.*s", (int)n, path);
    else
        snprintf(dir, sizeof dir, "%s", slash ? "/" : ".");
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL) ? 0 : -1; /* EINVAL: nothing to sync here */
    if (fd >= 0) close(fd);
    return r;
}

int out_file_commit(struct out_file *f, struct qn_error *e)
{
    if (fsync(f->fd) && errno != EINVAL) return failed(f, "sync", e);
    int r = close(f->fd); /* some file systems report a full disk only here */
    f->fd = -1;
    if (r) return failed(f, "write", e);
    if (rename(f->temp, f->path)) return failed(f, "rename the new", e);
    f->temp[0] = 0;
    return sync_dir_of(f->path) ? failed(f, "sync the directory of", e) : 0;
}

void out_file_abort(struct out_file *f)
{
    if (!f->path) return;
    if (f->fd >= 0) close(f->fd);
    if (f->temp[0]) unlink(f->temp);
    mem_free(f->path);
    mem_free(f->temp);
    *f = (struct out_file){0};
}
