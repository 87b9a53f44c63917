/* SPDX-License-Identifier: MIT
 *
 * session_lock.c: makes, takes and removes the file of a lock. See session_lock.h.
 *
 * Who gets the lock of a file that was removed meanwhile has the lock of nothing, and tries again.
 */
#include "cli/ask/session_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/os.h"

#define POLL_MS 50

static int check(const char *file, struct qn_error *e)
{
    struct stat st;
    if (stat(file, &st)) {
        if (errno == ENOENT) return 0;
        return error_set(e, QN_ENOINPUT, "the session '%s' cannot be used: %m", file);
    }
    if (!S_ISREG(st.st_mode))
        return error_set(e, QN_ENOINPUT, "the session '%s' is %s, not a file", file,
                         S_ISDIR(st.st_mode) ? "a folder" : "a pipe or a device");
    if (!(st.st_mode & 0222) || access(file, W_OK)) /* root may write what is marked as read-only */
        return error_set(e, QN_EIO, "the session '%s' is read-only, so no answer can be added to it", file);
    return 0;
}

/* Writes the path of the lock's file. */
static int name_lock(char **out, const char *file, struct qn_error *e)
{
    char real[PATH_MAX];
    struct buf path = {0};
    if (realpath(file, real)) file = real; /* two names of one file have one lock */
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    int rc = buf_printf(&path, e, "%.*s.%s.lock", (int)(name - file), file, name);
    *out = (char *)path.data;
    return rc;
}

/* Whether the descriptor is that of the file which has this path now. */
static bool is_there(int fd, const char *path)
{
    struct stat a, b;
    return !fstat(fd, &a) && !stat(path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Takes the lock if it is free. 1: it is not; otherwise 0 or an error. */
static int try_lock(struct session_lock *l, const char *file, struct qn_error *e)
{
    for (;;) {
        l->fd = open(l->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (l->fd < 0 && errno == ENOENT)
            return error_set(e, QN_ENOINPUT, "the session '%s' cannot be made: there is no such folder", file);
        if (l->fd < 0) return error_set(e, QN_EIO, "the session '%s' cannot be locked: '%s': %m", file, l->path);
        bool has = !flock(l->fd, LOCK_EX | LOCK_NB);
        int why = errno;
        if (has && is_there(l->fd, l->path)) return 0;
        close(l->fd);
        errno = why;
        if (!has && why == EWOULDBLOCK) return 1;
        if (!has) return error_set(e, QN_EIO, "the session '%s' cannot be locked: '%s': %m", file, l->path);
    }
}

int session_lock_take(struct session_lock *l, const char *file, int wait_s, struct qn_error *e)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000};
    uint64_t end = clock_ns() + (uint64_t)wait_s * 1000000000u;
    bool told = false;
    int rc = check(file, e);
    if (!rc) rc = name_lock(&l->path, file, e);
    while (!rc && (rc = try_lock(l, file, e)) > 0 && clock_ns() < end) {
        if (!told) fprintf(stderr, "quern: waiting for another question in '%s' (at most %d s)\n", file, wait_s);
        told = true;
        nanosleep(&pause, NULL);
        rc = 0;
    }
    if (rc > 0) rc = error_set(e, QN_EBUSY, "the session '%s' is used by another question", file);
    if (!rc) return 0;
    mem_free(l->path);
    l->path = NULL;
    return rc;
}

void session_lock_release(struct session_lock *l)
{
    if (!l->path) return;
    unlink(l->path); /* before the lock ends, so that nobody removes the file of another lock */
    close(l->fd);
    mem_free(l->path);
    l->path = NULL;
}
