/* SPDX-License-Identifier: MIT
 *
 * store.h: the prefix cache's copy on disk, which outlives the process.
 *
 * It is a directory of plain files. Each file has a run of pages of one sequence that were new when it was written, and
 * all of the sequence's tokens (docs/SESSIONS.md). Opening reads the token lists into the tree, as nodes whose pages
 * are on disk. Everything in the directory is untrusted: a file that is incomplete, damaged or foreign is dropped with
 * one line in the log, and costs no more than computing its tokens again.
 *
 * A store belongs to the tree's thread, which never waits for pages. Threads of the store write and read them. These
 * use neither the tree nor the pool's counts, only the bytes of pages that are held for them.
 */
#ifndef QUERN_CACHE_STORE_H
#define QUERN_CACHE_STORE_H

#include "cache/chain_file.h"
#include "cache/store_far.h"

#define STORE_LOCK_NAME "lock" /* the file in the directory that a store keeps locked while it is open */

struct store;

struct store_stats {
    int n_files;
    uint64_t bytes, budget_bytes;
    uint64_t n_dropped,
        n_expired; /* files since it was opened: damaged ones; those deleted to stay within the budget */
};

/* Makes the directory (0700) and its secret if they do not exist. far: where the tree's pages are, borrowed; NULL: in
 * this process. QN_EIO: it cannot be made or read, or another process uses it. Until store_enter() only store_secret()
 * and store_close() may be called. */
int store_open(struct store **out, const char *dir, uint64_t budget_bytes, struct prefix *tree,
               const struct store_far *far, struct qn_error *e);
/* The directory's 32 secret bytes, for keys; the same as long as the directory exists. */
const uint8_t *store_secret(const struct store *s);
/* Enters the directory's files of this model into the tree and becomes its backing. Files of other models and versions
 * are kept and counted until the budget needs their room. On failure call store_close(). */
int store_enter(struct store *s, const uint8_t model[CHAIN_MODEL_BYTES], struct qn_error *e);
/* Call it before the tree is freed. Finishes the file that is being written, and gives up reads. NULL is fine. */
void store_close(struct store *s);

/* ---- writing: one file at a time ---- */

/* Begins to write a file of the most recently used chain that is not yet completely on disk: pages that are in the pool
 * only, or else a state. Files that were used less recently than the chain are deleted to make room. 1: it has begun.
 * 0: nothing is left that fits. QN_ENOMEM: except for deleted files, the directory and the tree are as they were. Must
 * not be called while a file is being written. */
int store_save(struct store *s, struct qn_error *e);
bool store_is_saving(const struct store *s); /* from store_save() == 1 until store_settle() */
/* Completes the file that was being written; with `wait`, it waits for that. 0: it is still being written, or there is
 * none. 1: it is on disk. QN_EIO (the disk is full, for example), QN_ENOMEM: as if it had never been begun. */
int store_settle(struct store *s, bool wait, struct qn_error *e);
/* Deletes the files from which prefix_drop() took pages, with everything in them. */
void store_sweep(struct store *s);

/* ---- reading ---- */

struct store_read;

/* Begins to read the pages that prefix_find() found for the n tokens after m's slots, into m's own pages, which are
 * reserved; the window pages that are needed after them, into m's, which are opened; and the state after them, if
 * `snapshot` is only on disk (NULL: no state is read). Returns NULL if there is nothing to read or no memory, or if
 * sequences have states or windows and not everything is on disk. */
struct store_read *store_read(struct store *s, const struct prefix_key *key, const qn_token *tokens, int n,
                              const struct kv_seq *m, const struct prefix_snapshot *snapshot);
/* False: it is still being read; with `wait`, it waits until it is done. True: the read is done and freed. The first
 * *n_pages pages were read and verified; if not everything was, which includes window pages, *miss is the reason.
 * *state is the state, if everything was read, for prefix_snapshot_take() or prefix_state_put(); otherwise NULL. */
bool store_read_end(struct store *s, struct store_read *r, bool wait, int *n_pages, uint8_t **state,
                    enum prefix_miss *miss);
/* Gives up the read. Its pages are held until the thread has noticed. */
void store_read_cancel(struct store *s, struct store_read *r);
/* Releases the pages of reads that were given up. True: some are still held, or a file is being written. */
bool store_holds_pages(struct store *s);

/* ---- reading ahead ---- */

/* Reads what is only on disk back into memory that nobody uses, a piece of about 64 MB at a time: pages, then states,
 * or the window pages at the end, of the most recently used chains, each only if all of its pages fit. Nothing is
 * evicted for it, and no order of use changes. Takes over the piece that has been read, and begins the next one.
 * Returns false if none is under way afterwards: nothing is left that fits, or no memory. True, too, if those who have
 * the data are not there at present. */
bool store_read_ahead(struct store *s);
/* Takes over the piece that has been read, and begins none. Returns false if none is under way. */
bool store_settle_ahead(struct store *s);

void store_stats(const struct store *s, struct store_stats *out);

/* ---- a directory that no store has open (store_drop.c) ---- */

/* Deletes the files of an owner (prefix_key.owner), of any model and settings. *n: how many sequences they were, also
 * if not all could be deleted. QN_EBUSY: a store has the directory open. QN_EIO; QN_ENOMEM. */
int store_drop_files(const char *dir, uint64_t owner, size_t *n, struct qn_error *e);

#endif
