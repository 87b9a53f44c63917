/* SPDX-License-Identifier: MIT
 *
 * partial.c: makes, locks, names and rejects unfinished files. The lock is that of flock(2): it ends with its process,
 * however that ends.
 */
#include "fetch/partial.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/mem.h"
#include "fetch/sidecar.h"

static char *with_ending(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);
    char *s = mem_alloc(n + m + 1);

    if (s) {
        memcpy(s, path, n);
        memcpy(s + n, ending, m + 1);
    }
    return s;
}

static int failed(const char *what, const char *path, struct qn_error *e)
{
    return error_set(e, QN_EIO, "cannot %s '%s': %s", what, path, strerror(errno));
}

/* Opens and locks the part. 1: the file was renamed between opening and locking, because another process had finished
 * it. */
static int open_locked(struct partial_file *p, struct qn_error *e)
{
    struct stat mine, there;

    if (p->is_folder && mkdir(p->part, 0777) && errno != EEXIST) return failed("make", p->part, e);
    p->fd =
        open(p->part, (p->is_folder ? O_RDONLY | O_DIRECTORY : O_RDWR | O_CREAT) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
             0666);
    if (p->fd < 0) return failed("open", p->part, e);
    if (fstat(p->fd, &mine)) return failed("look at", p->part, e);
    if (!p->is_folder && !S_ISREG(mine.st_mode)) return error_set(e, QN_EIO, "'%s' is not a regular file", p->part);
    if (flock(p->fd, LOCK_EX | LOCK_NB))
        return errno == EWOULDBLOCK ? error_set(e, QN_EBUSY, "'%s' is being fetched by another process", p->part)
                                    : failed("lock", p->part, e);
    if (stat(p->part, &there) == 0 && there.st_ino == mine.st_ino && there.st_dev == mine.st_dev) return 0;
    close(p->fd);
    p->fd = -1;
    return 1;
}

int partial_open(struct partial_file *p, const char *path, bool is_folder, struct qn_error *e)
{
    struct partial_file out = {
        .fd = -1,
        .is_folder = is_folder,
        .path = with_ending(path, ""),
        .part = with_ending(path, ".part"),
        .bad = with_ending(path, ".bad"),
        .side = with_ending(path, ".part.json"),
    };
    int r = 1;

    if (!out.path || !out.part || !out.bad || !out.side) r = error_nomem(e, "a file's names", 4 * strlen(path));
    while (r == 1) r = open_locked(&out, e);
    if (r)
        partial_close(&out);
    else
        *p = out;
    return r;
}

int partial_check_space(const struct partial_file *p, uint64_t bytes, struct qn_error *e)
{
    struct statvfs fs;
    uint64_t room;

    if (fstatvfs(p->fd, &fs)) return failed("look at the disk of", p->part, e);
    room = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (bytes <= room) return 0;
    return error_set(e, QN_EIO, "'%s' takes %llu more bytes, and its disk has %llu", p->path, (unsigned long long)bytes,
                     (unsigned long long)room);
}

static int sync_dir_of(const char *path)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int n = slash ? (int)(slash - path) : 0, fd, r;

    snprintf(dir, sizeof dir, "%.*s", n, path);
    if (n == 0) strcpy(dir, slash ? "/" : ".");
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    r = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL) ? 0 : -1; /* EINVAL: nothing to sync here */
    if (fd >= 0) close(fd);
    return r;
}

int partial_commit(struct partial_file *p, bool replace, struct qn_error *e)
{
    struct stat st;
    int r;

    if (fsync(p->fd) && errno != EINVAL) return failed("sync", p->part, e);
    r = renameat2(AT_FDCWD, p->part, AT_FDCWD, p->path, replace ? 0 : RENAME_NOREPLACE);
    if (r && errno == EINVAL && !replace) { /* this file system cannot do it in one step */
        if (lstat(p->path, &st) == 0)
            errno = EEXIST;
        else
            r = rename(p->part, p->path);
    }
    if (r && errno == EEXIST) return error_set(e, QN_EUSAGE, "'%s' is there now; what came is '%s'", p->path, p->part);
    if (r) return failed("give its name to", p->part, e);
    if (sync_dir_of(p->path)) return failed("sync the directory of", p->path, e);
    if (!p->is_folder) sidecar_remove(p->side);
    return 0;
}

int partial_reject(struct partial_file *p, struct qn_error *e)
{
    if (rename(p->part, p->bad)) return failed("put aside", p->part, e);
    if (!p->is_folder) sidecar_remove(p->side);
    return 0;
}

void partial_close(struct partial_file *p)
{
    struct stat mine, there;

    if (!p->path) return;
    if (p->fd >= 0 && !p->is_folder && fstat(p->fd, &mine) == 0 && mine.st_size == 0 && stat(p->part, &there) == 0 &&
        there.st_ino == mine.st_ino)
        unlink(p->part);
    if (p->fd >= 0) close(p->fd);
    mem_free(p->path);
    mem_free(p->part);
    mem_free(p->bad);
    mem_free(p->side);
    *p = (struct partial_file){0};
}
