/* SPDX-License-Identifier: MIT
 *
 * store.h: the prefix cache's copy on disk, which outlives the process.
 *
 * A directory of plain files, each a run of pages of one sequence that were new when it was written, with all of the
 * sequence's tokens (docs/SESSIONS.md). Opening reads the token lists into the tree, as nodes whose pages are on disk;
 * prefix_find then reads the pages it needs. Everything in the directory is untrusted: a file that is torn, damaged or
 * foreign is dropped with one line in the log, and costs no more than computing its tokens again.
 *
 * A store belongs to the tree's thread. It writes and reads in the call: a caller that must not wait saves while it is
 * idle, a file at a time.
 */
#ifndef QUERN_CACHE_STORE_H
#define QUERN_CACHE_STORE_H

#include "cache/prefix.h"

struct store;

struct store_stats {
    int n_files;
    uint64_t bytes, budget_bytes;
    uint64_t n_dropped, n_expired; /* files, since it was opened: damaged; deleted to stay within the budget */
};

/* Makes the directory (0700) when there is none and becomes the tree's backing. QN_EIO: it cannot be made or read, or
 * another process has it. Files of other models and versions are kept and count, until the budget needs their room. */
int store_open(struct store **out, const char *dir, uint64_t budget_bytes, struct prefix *tree, struct qn_error *e);
void store_close(struct store *s); /* before the tree; writes nothing. NULL is fine */

/* Writes one file: pages that are in the pool and not yet on disk, of the most recently used chain that has some. Files
 * less recently used than the chain are deleted for it. 1: written, there may be more; 0: nothing is left that fits;
 * QN_EIO (the disk is full, say), QN_ENOMEM: the directory and the tree are as they were, but for those deleted. */
int store_save(struct store *s, struct qn_error *e);

void store_stats(const struct store *s, struct store_stats *out);

#endif
