/* SPDX-License-Identifier: MIT
 *
 * reuse.h: finds prefixes that were computed before, and keeps new ones, for the scheduler.
 *
 * A model with a recurrent state can continue a stored prefix only where a copy of the state was kept. Copies are kept
 * at the prompt's boundaries, after every snapshot_every tokens, and where the prompt begins to differ from stored
 * sequences, because a third one may differ there, too. These places are the prompt's cuts: a piece of the prompt that
 * is computed in one step has to end at them. Copies are also kept at the ends of answers.
 *
 * A model with windows (cache/kv.h) has the same cuts if the prompt is longer than the window. The whole pages before a
 * cut are kept when the step that ends there has run, because a later step drops window pages that they need.
 */
#ifndef QUERN_ENGINE_REUSE_H
#define QUERN_ENGINE_REUSE_H

#include "engine/request.h"

struct reuse;

/* p: after scheduler_settle(). wake is called from another thread when reuse_open_disk() has to be called. */
int reuse_new(struct reuse **out, struct qn_engine *g, const struct qn_scheduler_params *p, void (*wake)(void *arg),
              void *arg, struct qn_error *e);
/* Enters the files on disk into the tree, if the model's hash is known. Until then nothing is read or written. */
void reuse_open_disk(struct reuse *u);
/* Call it when the model's file has changed: from then on, nothing more is kept or written. */
void reuse_give_up(struct reuse *u);
/* Returns a number for the identity and the salt of a request: those of other requests have another one. */
uint64_t reuse_owner(const struct reuse *u, const struct request *r);
void reuse_free(struct reuse *u); /* NULL is fine */
/* Looks for the first `most` tokens of r's prompt, which must be fewer than all. Attaches the pages that are in the
 * pool to the first answer's empty memory. Notes in r how many tokens are known, whether some are on disk, and why
 * there are no more. */
void reuse_find(struct reuse *u, struct request *r, int most);
/* Finds an answer that gave way again: looks for its first `most` tokens, and attaches the pages that are in the pool
 * to its empty memory. */
void reuse_find_again(struct reuse *u, const struct request *r, struct answer *a, int most);
/* If a part of r's prompt is on disk, begins to read it and sets r->restore. Call it when r has its pages. Returns
 * false if the part cannot be read and the attached pages are useless without it: start r again. It then avoids the
 * disk. */
bool reuse_restore(struct reuse *u, struct request *r);
/* Returns false while the read goes on. Returns true when it has ended: r->restore is NULL, and the memory holds the
 * tokens that could be read. But if r->avoids_disk is set now, start r again, as above. */
bool reuse_restored(struct reuse *u, struct request *r);
void reuse_abandon(struct reuse *u, struct request *r);     /* gives up the read of r, if there is one */
void reuse_count(struct reuse *u, const struct request *r); /* counts the lookup of r, after any read has ended */
/* Returns the prompt's first cut after `from` tokens, or INT_MAX if there is none. */
int reuse_next_cut(const struct reuse *u, const struct request *r, int from);
/* Keeps the part of the prompt that has been evaluated, if it ends at a cut. */
void reuse_keep_cut(struct reuse *u, const struct request *r);
/* Keep the whole pages of the prompt, when it has been evaluated; and everything that an answer holds, when it ends. */
void reuse_keep_prompt(struct reuse *u, const struct request *r);
void reuse_keep_answer(struct reuse *u, const struct request *r, const struct answer *a);
/* Makes the slots [from, to), which are reserved, writable in windowed layers (kv_seq_open). Evicts window pages for
 * that. Returns false if there are not enough at present. */
bool reuse_open(struct reuse *u, struct kv_seq *m, int from, int to);
int reuse_n_evictable_windows(const struct reuse *u, int most); /* window pages that it could evict now */
/* Evicts up to n pages from the pool. Returns how many. */
int reuse_evict(struct reuse *u, int n);
int reuse_evict_saved(struct reuse *u, int n);          /* the same, but only pages that are on disk */
int reuse_n_evictable(const struct reuse *u, int most); /* pages that reuse_evict(u, most) could free now */
bool reuse_has_disk(const struct reuse *u);             /* true: a store on disk is open */
int reuse_n_on_disk(const struct reuse *u);             /* pages that are on disk, in the pool or not */
/* Moves the writing to disk on: completes a file that has been written, and begins the next one. Returns true while a
 * file is being written; false if nothing is left to write, or it failed. *is_new: the writing of a file has ended. */
bool reuse_save(struct reuse *u, bool *is_new);
/* Reads what is only on disk ahead, into memory that nobody uses: takes over what has been read, and begins to read
 * more. Returns false if nothing is being read afterwards. */
bool reuse_read_ahead(struct reuse *u);
void reuse_settle_ahead(struct reuse *u); /* only takes over what has been read */
/* Returns true if some pages cannot be evicted at present, because they are being written, or belong to a read that was
 * given up. */
bool reuse_holds_pages(struct reuse *u);
/* List and drop the chains of an identity, for qn_cache_list() and qn_cache_drop(). reuse_drop() returns how many it
 * has dropped. */
int reuse_list(struct reuse *u, uint64_t identity, struct qn_cached **list, size_t *n, struct qn_error *e);
size_t reuse_drop(struct reuse *u, uint64_t identity, uint64_t id);
void reuse_stats(const struct reuse *u, struct qn_scheduler_stats *out);

#endif
