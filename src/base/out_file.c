/* SPDX-License-Identifier: MIT
 *
 * out_file.c: see out_file.h.
 */
#include "base/out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

static int failed(const struct out_file *f, const char *what, struct qn_error *e)
{
    return error_set(e, QN_EIO, "cannot %s '%s': %s", what, f->path, strerror(errno));
}

int out_file_open(struct out_file *f, const char *path, struct qn_error *e)
{
    size_t n = strlen(path);
    struct out_file o = {.path = mem_dup(path, n), .temp = mem_alloc(n + 8)};
    int rc = QN_ENOMEM;
    if (!o.path || !o.temp) {
        error_nomem(e, "a file name", 2 * n + 8);
        goto fail;
    }
    snprintf(o.temp, n + 8, "%s.XXXXXX", path);
    o.fd = mkstemp(o.temp);
    if (o.fd < 0) {
        rc = failed(&o, "create", e);
        goto fail;
    }
    mode_t mask = umask(0);
    umask(mask);
    fchmod(o.fd, 0666 & ~mask); /* mkstemp made it private; an ordinary output file is not */
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

int out_file_commit(struct out_file *f, struct qn_error *e)
{
    if (fsync(f->fd) && errno != EINVAL) return failed(f, "sync", e);
    if (rename(f->temp, f->path)) return failed(f, "rename the new", e);
    f->temp[0] = 0;
    return 0;
}

void out_file_abort(struct out_file *f)
{
    if (!f->path) return;
    close(f->fd);
    if (f->temp[0]) unlink(f->temp);
    mem_free(f->path);
    mem_free(f->temp);
    *f = (struct out_file){0};
}
