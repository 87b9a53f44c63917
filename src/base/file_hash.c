/* SPDX-License-Identifier: MIT
 *
 * file_hash.c: computes the SHA-256 of files, and remembers it by their marks.
 *
 * A gentle hash leaves the page cache as it was: a block that is in the cache stays there, and a block that is not is
 * given back after it was read. RWF_NOWAIT tells the two apart, and reads a block that is there at once. mincore()
 * would need a call before each read, and answers only for files that are our own. Nothing is read ahead, because such
 * blocks would look as if they had been in the cache.
 *
 * A hash is remembered in a file "hash-DEV-INO" of one line: the format, the mark, the hash, and XXH3 of all this
 * against accidents. Two states of a file can have the same mark only if it changes within one tick of the system's
 * clock. So the mark of a file that changed just now is taken a moment later.
 */
#include "base/file_hash.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/out_file.h"

#define BLOCK     ((size_t)1 << 20)
#define TICK_NS   20000000 /* twice the longest that Linux's file times stand still */
#define MAX_PATH  4096
#define LINE_FORM "quern-sha256 1 %" PRIx64 " %" PRIx64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " "

/* ---- marks ---- */

static uint64_t ns_of(struct timespec t) { return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec; }

void file_mark_of(struct file_mark *m, const struct stat *st)
{
    *m = (struct file_mark){(uint64_t)st->st_dev, (uint64_t)st->st_ino, (uint64_t)st->st_size, ns_of(st->st_mtim),
                            ns_of(st->st_ctim)};
}

bool file_mark_get(struct file_mark *m, const char *path)
{
    struct stat st;
    if (stat(path, &st)) return false;
    file_mark_of(m, &st);
    return true;
}

bool file_mark_is_same(const struct file_mark *a, const struct file_mark *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->bytes == b->bytes && a->mtime_ns == b->mtime_ns;
}

/* ---- hashing ---- */

/* Up to a block at `at`; *was_there: bytes of it that were in memory. */
static ssize_t read_block(int fd, uint8_t *block, uint64_t at, bool is_gentle, size_t *was_there)
{
    struct iovec v = {block, BLOCK};
    ssize_t n = is_gentle ? preadv2(fd, &v, 1, (off_t)at, RWF_NOWAIT) : -1;
    *was_there = BLOCK;
    if (n > 0) return n;
    if (is_gentle && errno == EAGAIN) *was_there = 0; /* other errors: the file system cannot tell */
    return pread(fd, block, BLOCK, (off_t)at);
}

static int feed(struct sha256 *s, uint8_t *block, int fd, const char *path, bool is_gentle, file_hash_watch *watch,
                void *arg, struct qn_error *e)
{
    struct stat st;
    size_t was_there;
    uint64_t at = 0;
    if (fstat(fd, &st)) return error_set(e, QN_EIO, "cannot look at '%s': %m", path);
    posix_fadvise(fd, 0, 0, is_gentle ? POSIX_FADV_RANDOM : POSIX_FADV_SEQUENTIAL);
    for (;;) {
        ssize_t n = read_block(fd, block, at, is_gentle, &was_there);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error_set(e, QN_EIO, "cannot read '%s': %m", path);
        if (n == 0) return 0;
        sha256_add(s, block, (size_t)n);
        if (!was_there) posix_fadvise(fd, (off_t)at, n, POSIX_FADV_DONTNEED);
        at += (uint64_t)n;
        if (watch && !watch(arg, at, (uint64_t)st.st_size))
            return error_set(e, QN_ECANCEL, "stopped while '%s' was being checked", path);
    }
}

int file_hash(uint8_t out[SHA256_BYTES], int fd, const char *path, bool is_gentle, file_hash_watch *watch, void *arg,
              struct qn_error *e)
{
    struct sha256 s;
    uint8_t *block = mem_alloc(BLOCK);
    if (!block) return error_nomem(e, "reading a file", BLOCK);
    sha256_init(&s);
    int rc = feed(&s, block, fd, path, is_gentle, watch, arg, e);
    sha256_end(&s, out);
    mem_free(block);
    return rc;
}

/* Takes the file's mark, so late that any change from now on gives it another one. */
static int settled_mark(struct file_mark *m, int fd, const char *path, struct qn_error *e)
{
    struct stat st;
    struct timespec now;
    for (int tries = 0; tries < 2; tries++) {
        if (fstat(fd, &st)) return error_set(e, QN_EIO, "cannot look at '%s': %m", path);
        if (!S_ISREG(st.st_mode)) return error_set(e, QN_ENOINPUT, "'%s' is not a regular file", path);
        file_mark_of(m, &st);
        clock_gettime(CLOCK_REALTIME, &now);
        uint64_t age = ns_of(now) - m->ctime_ns;
        if (age > TICK_NS) break; /* or the clock was set back */
        nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
    }
    return 0;
}

int file_hash_path(uint8_t out[SHA256_BYTES], struct file_mark *m, const char *path, bool is_gentle,
                   file_hash_watch *watch, void *arg, struct qn_error *e)
{
    struct stat st;
    struct file_mark after;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return error_set(e, QN_ENOINPUT, "cannot open '%s': %m", path);
    int rc = settled_mark(m, fd, path, e);
    if (!rc) rc = file_hash(out, fd, path, is_gentle, watch, arg, e);
    if (!rc && fstat(fd, &st)) rc = error_set(e, QN_EIO, "cannot look at '%s': %m", path);
    close(fd);
    if (rc) return rc;
    file_mark_of(&after, &st);
    return file_mark_is_same(m, &after) ? 0 : error_set(e, QN_EIO, "'%s' changed while it was being read", path);
}

/* ---- memory ---- */

static int path_of(char path[MAX_PATH], const char *dir, const struct file_mark *m)
{
    int n = snprintf(path, MAX_PATH, "%s/hash-%" PRIx64 "-%" PRIx64, dir, m->dev, m->ino);
    return n < 0 || n >= MAX_PATH ? -1 : 0;
}

bool file_hash_is_name(const char *name)
{
    static const char hex[] = "0123456789abcdef";
    if (strncmp(name, "hash-", 5)) return false;
    size_t dev = strspn(name + 5, hex);
    if (!dev || name[5 + dev] != '-') return false;
    size_t ino = strspn(name + 6 + dev, hex);
    const char *end = name + 6 + dev + ino;
    return ino && (!*end || (*end == '.' && strspn(end + 1, hex) == 8 && !end[9])); /* one that was being written */
}

/* The whole line. */
static void make_line(char line[512], const struct file_mark *m, const char hex[2 * SHA256_BYTES + 1])
{
    int n = snprintf(line, 512, LINE_FORM "%s ", m->dev, m->ino, m->bytes, m->mtime_ns, m->ctime_ns, hex);
    snprintf(line + n, 512 - (size_t)n, "%016" PRIx64 "\n", hash_bytes(line, (size_t)n, 0));
}

bool file_hash_recall(uint8_t out[SHA256_BYTES], const char *dir, const struct file_mark *m)
{
    char path[MAX_PATH], line[512], hex[2 * SHA256_BYTES + 1], wanted[512];
    struct buf b = {0};
    bool found = !path_of(path, dir, m) && !os_read_file(&b, path, sizeof line - 1, NULL) && !buf_add(&b, "", 1, NULL);
    if (found) {
        int n = snprintf(line, sizeof line, LINE_FORM, m->dev, m->ino, m->bytes, m->mtime_ns, m->ctime_ns);
        found = b.len > (size_t)n + sizeof hex;
        if (found) snprintf(hex, sizeof hex, "%s", (const char *)b.data + n);
        if (found) make_line(wanted, m, hex);
        found = found && !strcmp((const char *)b.data, wanted) && sha256_from_hex(out, hex);
    }
    buf_deinit(&b);
    return found;
}

int file_hash_remember(const char *dir, const struct file_mark *m, const uint8_t hash[SHA256_BYTES], struct qn_error *e)
{
    char path[MAX_PATH], line[512], hex[2 * SHA256_BYTES + 1];
    struct out_file f = {0};
    if (path_of(path, dir, m)) return error_set(e, QN_EIO, "'%s' is too long a name", dir);
    sha256_hex(hash, hex);
    make_line(line, m, hex);
    int rc = out_file_open(&f, path, e);
    if (!rc) rc = out_file_write(&f, line, strlen(line), e);
    if (!rc) rc = out_file_commit(&f, e);
    out_file_abort(&f);
    return rc;
}
