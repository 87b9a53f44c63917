/* SPDX-License-Identifier: MIT
 *
 * chain_io.h: chain files written and read by jobs for a worker (base/worker.h).
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
    void *index;   /* the tokens; the sums are filled in */
    uint8_t *last; /* room for a page, if the last one is not full: it is written with zeros after its slots */
    int rc;        /* once it is done */
    struct qn_error error;
    uint8_t *parts[]; /* [chain_n_parts(&head)] */
};
/* Allocates index and last, too. NULL: no memory. */
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

/* Reads parts of any files, in order, up to the first part that cannot be read or is damaged. */
struct chain_read {
    struct worker_job job;
    int dir_fd;               /* borrowed */
    atomic_bool is_cancelled; /* it ends after the current part */
    int n_parts, n_done;
    struct qn_error error;    /* the reason if not all were read: QN_EIO, QN_EDATA, QN_ECANCEL */
    struct chain_part *parts; /* [n_parts], borrowed */
};
void chain_read_run(struct worker_job *job);

int chain_read_at(int fd, void *p, uint64_t n, uint64_t offset,
                  struct qn_error *e); /* QN_EIO; QN_EDATA: it ends early */

#endif
