/* SPDX-License-Identifier: MIT
 *
 * chain_io.h: chain files written and read by jobs for workers (base/worker.h).
 *
 * A job holds everything that it needs: names, sums, addresses of pages and states. It uses neither the tree nor the
 * store's list of files, so these can change meanwhile. The pages and states must not change until it is done.
 */
#ifndef QUERN_CACHE_CHAIN_IO_H
#define QUERN_CACHE_CHAIN_IO_H

#include <stdatomic.h>

#include "base/worker.h"
#include "cache/chain_file.h"

#define CHAIN_NAME_BYTES 20 /* 16 digits, ".kv" and NUL */
bool chain_is_name(const char *name);

/* Writes a whole file, which appears by rename when it is complete and synced. */
struct chain_write {
    struct worker_job job;
    const char *dir; /* borrowed */
    char name[CHAIN_NAME_BYTES];
    uint64_t time_ns; /* the file's modification time, since 1970 */
    struct chain_head head;
    void *index;          /* the tokens and the numbers of window pages; the sums are filled in */
    uint8_t *last;        /* room for a page, if the last one is not full: it is written with zeros after its slots */
    uint8_t *last_window; /* the same for its window page, if that is in the file */
    int rc;               /* once it is done */
    struct qn_error error;
    uint8_t *parts[]; /* [chain_n_parts(&head)] */
};
/* Allocates index, last and last_window, too. NULL: no memory. */
struct chain_write *chain_write_new(const struct chain_head *h, struct qn_error *e);
void chain_write_free(struct chain_write *w);
void chain_write_run(struct worker_job *job);

/* One page, or the state, that is read from a file into memory. */
struct chain_part {
    char name[CHAIN_NAME_BYTES];
    uint64_t time_ns; /* the file gets this modification time; 0: it keeps its own */
    int index;        /* of the part in the file */
    uint64_t offset, bytes, sum;
    uint8_t *to;
};

#define CHAIN_MAX_READERS 4

/* The share of one thread in a chain_read. */
struct chain_reader {
    struct worker_job job; /* run: chain_reader_run */
    struct chain_read *read;
    int n_good;            /* once it is done: the part that it could not read; n_parts if it could read all it took */
    struct qn_error error; /* the reason: QN_EIO, QN_EDATA, QN_ECANCEL */
};

/* Reads parts of any files. The readers take the parts in order, so when one cannot be read or is damaged, all parts
 * before it are read, and some of those after it. */
struct chain_read {
    int dir_fd;               /* borrowed */
    atomic_bool is_cancelled; /* each reader ends after its current part */
    atomic_int n_taken;       /* parts that a reader has taken */
    int n_parts, n_readers;
    struct chain_part *parts; /* [n_parts], borrowed */
    struct chain_reader readers[CHAIN_MAX_READERS];
};
/* dir_fd and the parts are borrowed. Post the job of each of the n_readers (at most CHAIN_MAX_READERS) afterwards. */
void chain_read_init(struct chain_read *r, int dir_fd, struct chain_part *parts, int n_parts, int n_readers);
void chain_reader_run(struct worker_job *job);
/* When all readers are done: the number of parts that were read before the first one that was not. If this is less
 * than n_parts, *why is the reason. */
int chain_read_n_good(const struct chain_read *r, const struct qn_error **why);

int chain_read_at(int fd, void *p, uint64_t n, uint64_t offset,
                  struct qn_error *e); /* QN_EIO; QN_EDATA: it ends early */

#endif
