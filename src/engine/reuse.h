/* SPDX-License-Identifier: MIT
 *
 * reuse.h: the scheduler's use of prefixes that were computed before.
 *
 * A model with a recurrent state can go on only where a copy of it was kept. They are kept at the prompt's boundaries,
 * every so many tokens on the way, where the prompt leaves what is stored (it is the second one to come by), and at the
 * ends of answers: these are a prompt's cuts, at which a piece of it that is computed in one step has to end.
 */
#ifndef QUERN_ENGINE_REUSE_H
#define QUERN_ENGINE_REUSE_H

#include "engine/request.h"

struct reuse;

/* p: settled. wake is called from another thread when reuse_open_disk() is to be called. */
int reuse_new(struct reuse **out, struct qn_engine *g, const struct qn_scheduler_params *p, void (*wake)(void *arg),
              void *arg, struct qn_error *e);
/* Enters what is on disk, if it is known by now which model this is; until then nothing is read or written. */
void reuse_open_disk(struct reuse *u);
/* The model's file has changed: nothing that is computed from now on is kept, and nothing is written any more. */
void reuse_give_up(struct reuse *u);
void reuse_free(struct reuse *u); /* NULL is fine */
/* Looks for the first `most` tokens of r's prompt, which are not all: attaches what is in the pool to its first
 * answer's empty memory, and notes in r how much is known, whether some of it is on disk, and why it is not more. */
void reuse_find(struct reuse *u, struct request *r, int most);
/* Begins to read what is on disk, if that is so, now that r has its pages: r->restore is set. false: it cannot be had,
 * and without it what was attached is of no use: r is to be started again and avoids the disk. */
bool reuse_restore(struct reuse *u, struct request *r);
/* false: it is still being read. true: r->restore is NULL and the memory holds what could be read; or r avoids the disk
 * from now on and has to be started again, as above. */
bool reuse_restored(struct reuse *u, struct request *r);
void reuse_abandon(struct reuse *u, struct request *r);     /* r ends while it is restored */
void reuse_count(struct reuse *u, const struct request *r); /* what was found is there */
/* The prompt's first cut behind `from` tokens; INT_MAX: there is none. */
int reuse_next_cut(const struct reuse *u, const struct request *r, int from);
/* Keeps what has been read of the prompt, if it ends at a cut. */
void reuse_keep_cut(struct reuse *u, const struct request *r);
/* Keeps the whole pages of the prompt, once it has been read; everything an answer holds, when it ends. */
void reuse_keep_prompt(struct reuse *u, const struct request *r);
void reuse_keep_answer(struct reuse *u, const struct request *r, const struct answer *a);
/* Makes up to n pages of the pool free; returns how many. */
int reuse_evict(struct reuse *u, int n);
int reuse_evict_saved(struct reuse *u, int n); /* only those that are on disk */
bool reuse_has_disk(const struct reuse *u);
/* Sees to it that what is not on disk yet is written: takes in a file that is there and begins the next one. false:
 * there is nothing left to write, or it failed. *is_new: a file was taken in. */
bool reuse_save(struct reuse *u, bool *is_new);
/* Some pages cannot be evicted at present, because they are being written, or read for somebody who has gone. */
bool reuse_holds_pages(struct reuse *u);
/* The chains of an identity, as qn_cache_list() and qn_cache_drop() say; returns how many were dropped. */
int reuse_list(struct reuse *u, uint64_t identity, struct qn_cached **list, size_t *n, struct qn_error *e);
size_t reuse_drop(struct reuse *u, uint64_t identity, uint64_t id);
void reuse_stats(const struct reuse *u, struct qn_scheduler_stats *out);

#endif
