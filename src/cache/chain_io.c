/* SPDX-License-Identifier: MIT
 *
 * chain_io.c: writes chain files and reads parts of them.
 *
 * The sums of a file's parts come before the parts, so each part is read twice: once for its sum, once to write it.
 *
 * While one reader verifies a part, the disk works for the others. A part that is not in the page cache is read past
 * it (O_DIRECT): that saves a copy, and keeps the weights in memory. Where the file system has no such reads, the
 * system is told which part comes next.
 */
#include "cache/chain_io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/out_file.h"

#define DIRECT_ALIGN 4096 /* bytes; enough for any disk. Pages of the system may be larger: see is_direct() */

static struct timespec time_of(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
}

/* If this fails, the file expires at another time. */
static void set_time(int fd, uint64_t ns)
{
    struct timespec t[2] = {time_of(ns), time_of(ns)};
    futimens(fd, t);
}

/* ---- writing ---- */

struct chain_write *chain_write_new(const struct chain_head *h, struct qn_error *e)
{
    uint64_t n = chain_n_parts(h), index_bytes = chain_index_bytes(h);
    bool is_full = !chain_n_pages(h) || h->n_tokens % (uint32_t)h->shape.page_slots == 0;
    struct chain_write *w = mem_calloc(1, sizeof *w + n * sizeof *w->parts);
    if (w) {
        w->job.run = chain_write_run;
        w->head = *h;
        w->index = mem_calloc(1, index_bytes);
        w->last = is_full ? NULL : mem_alloc(h->page_bytes);
        w->last_window = is_full || !h->n_windows ? NULL : mem_alloc(kv_window_page_bytes(&h->shape));
    }
    if (w && w->index && (is_full || (w->last && (w->last_window || !h->n_windows)))) return w;
    error_nomem(e, "what a file of the cache takes", index_bytes + h->page_bytes);
    chain_write_free(w);
    return NULL;
}

void chain_write_free(struct chain_write *w)
{
    if (!w) return;
    mem_free(w->index);
    mem_free(w->last);
    mem_free(w->last_window);
    mem_free(w);
}

/* Whether part i is the window page of a last page that is not full. */
static bool is_last_window(const struct chain_write *w, uint32_t i)
{
    const struct chain_head *h = &w->head;
    uint32_t n_pages = chain_n_pages(h), k = i - n_pages;
    return w->last_window && i >= n_pages && k + 1 == h->n_windows &&
           chain_index_windows(h, w->index)[k] + 1 == h->first_page + n_pages;
}

static const uint8_t *part_at(const struct chain_write *w, uint32_t i)
{
    if (w->last && i + 1 == chain_n_pages(&w->head)) return w->last;
    return is_last_window(w, i) ? w->last_window : w->parts[i];
}

static int write_parts(const struct chain_write *w, struct out_file *f, struct qn_error *e)
{
    static const uint8_t zeros[4096];
    const struct chain_head *h = &w->head;
    uint8_t head[CHAIN_HEAD_BYTES];
    uint64_t index_bytes = chain_index_bytes(h);
    chain_head_write(h, head);
    int rc = out_file_write(f, head, sizeof head, e);
    if (!rc) rc = out_file_write(f, w->index, index_bytes, e);
    if (!rc) rc = out_file_write(f, zeros, chain_part_offset(h, 0) - sizeof head - index_bytes, e);
    for (uint32_t i = 0; i < chain_n_parts(h) && !rc; i++)
        rc = out_file_write(f, part_at(w, i), chain_part_bytes(h, i), e);
    return rc;
}

static int write_file(const struct chain_write *w, struct qn_error *e)
{
    char path[PATH_MAX];
    struct out_file f = {0};
    if ((size_t)snprintf(path, sizeof path, "%s/%s", w->dir, w->name) >= sizeof path)
        return error_set(e, QN_EIO, "the cache directory's name is too long");
    int rc = out_file_open(&f, path, e);
    if (!rc && fchmod(f.fd, 0600)) rc = error_set(e, QN_EIO, "cannot restrict '%s': %s", path, strerror(errno));
    if (!rc) rc = write_parts(w, &f, e);
    if (!rc) set_time(f.fd, w->time_ns);
    if (!rc) rc = out_file_commit(&f, e);
    out_file_abort(&f);
    return rc;
}

void chain_write_run(struct worker_job *job)
{
    struct chain_write *w = (struct chain_write *)job;
    const struct chain_head *h = &w->head;
    uint64_t *sums = chain_index_sums(h, w->index);
    uint32_t n_pages = chain_n_pages(h), used = h->n_tokens % (uint32_t)h->shape.page_slots;
    if (w->last) {
        memcpy(w->last, w->parts[n_pages - 1], h->page_bytes);
        kv_page_clear(&h->shape, w->last, (int)used);
    }
    if (w->last_window) {
        memcpy(w->last_window, w->parts[n_pages + h->n_windows - 1], kv_window_page_bytes(&h->shape));
        kv_window_page_clear(&h->shape, w->last_window, (int)used);
    }
    for (uint32_t i = 0; i < chain_n_parts(h); i++) sums[i] = chain_part_sum(part_at(w, i), chain_part_bytes(h, i));
    chain_index_seal(h, w->index);
    w->rc = write_file(w, &w->error);
}

/* ---- reading ---- */

bool chain_is_name(const char *name) { return strspn(name, "0123456789abcdef") == 16 && !strcmp(name + 16, ".kv"); }

int chain_read_at(int fd, void *p, uint64_t n, uint64_t offset, struct qn_error *e)
{
    uint8_t *to = p;
    while (n > 0) {
        ssize_t done = pread(fd, to, n, (off_t)offset);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return error_set(e, QN_EIO, "%s", strerror(errno));
        if (done == 0) return error_set(e, QN_EDATA, "it ends %llu bytes early", (unsigned long long)n);
        to += done;
        offset += (uint64_t)done;
        n -= (uint64_t)done;
    }
    return 0;
}

/* The file that a reader has open. */
struct open_file {
    const char *name; /* NULL: none */
    int fd;
};

static void close_file(struct open_file *f)
{
    if (f->name) close(f->fd);
    f->name = NULL;
}

static int open_for(struct open_file *f, int dir_fd, const struct chain_part *p, struct qn_error *e)
{
    if (f->name && !strcmp(p->name, f->name)) return 0;
    close_file(f);
    f->fd = openat(dir_fd, p->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (f->fd < 0) return error_set(e, QN_EIO, "%s", strerror(errno));
    f->name = p->name;
    posix_fadvise(f->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return 0;
}

/* Whether the part can be read from the disk directly: it is aligned, and its end is not in the page cache. */
static bool is_direct(int fd, const struct chain_part *p)
{
    uint8_t is_cached = 1;
    uint64_t last = p->offset + p->bytes - DIRECT_ALIGN;
    if ((p->bytes | p->offset | (uintptr_t)p->to) % DIRECT_ALIGN) return false;
    void *page = mmap(NULL, DIRECT_ALIGN, PROT_READ, MAP_SHARED, fd, (off_t)last);
    if (page == MAP_FAILED) return false;
    mincore(page, DIRECT_ALIGN, &is_cached);
    munmap(page, DIRECT_ALIGN);
    return !(is_cached & 1);
}

static int read_part(int fd, const struct chain_part *p, struct qn_error *e)
{
    int rc = QN_EIO;
    if (is_direct(fd, p) && !fcntl(fd, F_SETFL, O_DIRECT)) {
        rc = chain_read_at(fd, p->to, p->bytes, p->offset, e);
        fcntl(fd, F_SETFL, 0);
    }
    if (rc) { /* through the page cache, also if it was tried directly: then this gives the true reason */
        posix_fadvise(fd, (off_t)p->offset, (off_t)(2 * p->bytes), POSIX_FADV_WILLNEED);
        rc = chain_read_at(fd, p->to, p->bytes, p->offset, e);
    }
    if (rc || chain_part_sum(p->to, p->bytes) == p->sum) return rc;
    return error_set(e, QN_EDATA, "the checksum of part %d differs", p->index);
}

void chain_read_init(struct chain_read *r, int dir_fd, struct chain_part *parts, int n_parts, int n_readers)
{
    *r = (struct chain_read){.dir_fd = dir_fd, .parts = parts, .n_parts = n_parts, .n_readers = n_readers};
    for (int i = 0; i < n_readers; i++)
        r->readers[i] = (struct chain_reader){.job.run = chain_reader_run, .read = r, .n_good = n_parts};
}

void chain_reader_run(struct worker_job *job)
{
    struct chain_reader *me = (struct chain_reader *)job;
    struct chain_read *r = me->read;
    struct open_file f = {0};
    int i, rc = 0;
    while (!rc && (i = atomic_fetch_add(&r->n_taken, 1)) < r->n_parts) {
        const struct chain_part *p = &r->parts[i];
        if (atomic_load_explicit(&r->is_cancelled, memory_order_relaxed))
            rc = error_set(&me->error, QN_ECANCEL, "nobody wants it any more");
        else
            rc = open_for(&f, r->dir_fd, p, &me->error);
        if (!rc && p->time_ns) set_time(f.fd, p->time_ns);
        if (!rc) rc = read_part(f.fd, p, &me->error);
        if (rc) me->n_good = i;
    }
    if (rc) atomic_store(&r->n_taken, r->n_parts);
    close_file(&f);
}

int chain_read_n_good(const struct chain_read *r, const struct qn_error **why)
{
    int n = r->n_parts;
    for (const struct chain_reader *x = r->readers; x < r->readers + r->n_readers; x++) {
        if (x->n_good >= n) continue;
        n = x->n_good;
        *why = &x->error;
    }
    return n;
}
