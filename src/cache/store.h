/* SPDX-License-Identifier: MIT
 *
 * store.h: the prefix cache's copy on disk, which outlives the process.
 *
 * A directory of plain files, each a run of pages of one sequence that were new when it was written, with all of the
 * sequence's tokens (docs/SESSIONS.md). Opening reads the token lists into the tree, as nodes whose pages are on disk.
 * Everything in the directory is untrusted: a file that is torn, damaged or foreign is dropped with one line in the
 * log, and costs no more than computing its tokens again.
 *
 * A store belongs to the tree's thread, which never waits for pages: they are written and read by two threads of the
 * store's. These touch neither the tree nor the pool's counts, only the bytes of pages that are held for them.
 */
#ifndef QUERN_CACHE_STORE_H
#define QUERN_CACHE_STORE_H

#include "cache/chain_file.h"

struct store;

struct store_stats {
    int n_files;
    uint64_t bytes, budget_bytes;
    uint64_t n_dropped, n_expired; /* files, since it was opened: damaged; deleted to stay within the budget */
};

/* Makes the directory (0700) when there is none, and its secret. QN_EIO: it cannot be made or read, or another process
 * has it. Nothing else is called before store_enter(), but for store_secret() and store_close(). */
int store_open(struct store **out, const char *dir, uint64_t budget_bytes, struct prefix *tree, struct qn_error *e);
/* 32 bytes that nobody else knows, the same as long as the directory is there: for keys. */
const uint8_t *store_secret(const struct store *s);
/* Enters what the directory has of this model into the tree and becomes its backing. Files of other models and versions
 * are kept and count, until the budget needs their room. On failure: store_close(). */
int store_enter(struct store *s, const uint8_t model[CHAIN_MODEL_BYTES], struct qn_error *e);
/* Before the tree. Finishes the file that is being written, gives up what is being read. NULL is fine */
void store_close(struct store *s);

/* ---- writing: one file at a time ---- */

/* Begins to write a file: pages that are in the pool and not yet on disk, or else a state, of the most recently used
 * chain that has some. Files less recently used than the chain are deleted for it. 1: it has begun; 0: nothing is left
 * that fits; QN_ENOMEM: the directory and the tree are as they were, but for those deleted. Not while one is being
 * written. */
int store_save(struct store *s, struct qn_error *e);
bool store_is_saving(const struct store *s); /* since store_save returned 1, until store_settle */
/* Takes in the file that was being written, with `wait` once it is. 0: it is still being written, or there is none; 1:
 * it is there; QN_EIO (the disk is full, say), QN_ENOMEM: as if it had never been begun. */
int store_settle(struct store *s, bool wait, struct qn_error *e);
/* Deletes the files that prefix_drop() took pages from, with all that is in them. */
void store_sweep(struct store *s);

/* ---- reading ---- */

struct store_read;

/* Begins to read what prefix_find() found of the n tokens beyond m's slots: into m's own pages, which are reserved; and
 * the state behind them, of a snapshot that is on disk alone (NULL: it is at hand). NULL: nothing is there to be read,
 * or there is no memory for it, or, where sequences have states, not all is there. */
struct store_read *store_read(struct store *s, const struct prefix_key *key, const qn_token *tokens, int n,
                              const struct memory *m, const struct prefix_snapshot *snapshot);
/* With `wait` when it is done. False: it is still being read. True: the first *n_pages were read and are what was
 * written; where that is not all that was asked for, *miss is why. *state: the state that was asked for, if all was
 * read, for prefix_snapshot_take() or prefix_state_put(); else NULL. The read is gone then. */
bool store_read_end(struct store *s, struct store_read *r, bool wait, int *n_pages, uint8_t **state,
                    enum prefix_miss *miss);
/* Nobody wants it any more. Its pages are held until the thread has seen that. */
void store_read_cancel(struct store *s, struct store_read *r);
/* Lets go of the pages of reads that were given up; true: there are some still, or a file is being written. */
bool store_holds_pages(struct store *s);

void store_stats(const struct store *s, struct store_stats *out);

#endif
