/* SPDX-License-Identifier: MIT
 *
 * chain_io.c: writes chain files and reads parts of them.
 *
 * The sums of a file's parts come before the parts, so each part is read twice: once for its sum, once to write it.
 * While reading, the system is told which part comes next, so that the disk works while a page is verified.
 */
#include "cache/chain_io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/out_file.h"

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
    }
    if (w && w->index && (is_full || w->last)) return w;
    error_nomem(e, "what a file of the cache takes", index_bytes + h->page_bytes);
    chain_write_free(w);
    return NULL;
}

void chain_write_free(struct chain_write *w)
{
    if (!w) return;
    mem_free(w->index);
    mem_free(w->last);
    mem_free(w);
}

static const uint8_t *part_at(const struct chain_write *w, uint32_t i)
{
    return w->last && i + 1 == chain_n_pages(&w->head) ? w->last : w->parts[i];
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
    if (w->last) {
        memcpy(w->last, w->parts[chain_n_pages(h) - 1], h->page_bytes);
        kv_page_clear(&h->shape, w->last, (int)(h->n_tokens % (uint32_t)h->shape.page_slots));
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

/* *fd: the file of the previous part, or -1. */
static int read_part(const struct chain_read *r, int i, int *fd, struct qn_error *e)
{
    const struct chain_part *p = &r->parts[i];
    if (*fd < 0 || strcmp(p->name, r->parts[i - 1].name) != 0) {
        if (*fd >= 0) close(*fd);
        *fd = openat(r->dir_fd, p->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (*fd < 0) return error_set(e, QN_EIO, "%s", strerror(errno));
        posix_fadvise(*fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        if (p->time_ns) set_time(*fd, p->time_ns);
    }
    posix_fadvise(*fd, (off_t)p->offset, (off_t)(2 * p->bytes), POSIX_FADV_WILLNEED);
    int rc = chain_read_at(*fd, p->to, p->bytes, p->offset, e);
    if (rc || chain_part_sum(p->to, p->bytes) == p->sum) return rc;
    return error_set(e, QN_EDATA, "the checksum of part %d differs", p->index);
}

void chain_read_run(struct worker_job *job)
{
    struct chain_read *r = (struct chain_read *)job;
    int fd = -1, rc = 0;
    while (r->n_done < r->n_parts && !rc) {
        if (atomic_load_explicit(&r->is_cancelled, memory_order_relaxed))
            rc = error_set(&r->error, QN_ECANCEL, "nobody wants it any more");
        else
            rc = read_part(r, r->n_done, &fd, &r->error);
        r->n_done += rc == 0;
    }
    if (fd >= 0) close(fd);
}
