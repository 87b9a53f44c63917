/* SPDX-License-Identifier: MIT
 *
 * reuse.h: the scheduler's use of prefixes that were computed before.
 */
#ifndef QUERN_ENGINE_REUSE_H
#define QUERN_ENGINE_REUSE_H

#include "engine/request.h"

struct reuse;

int reuse_new(struct reuse **out, struct qn_engine *g, const struct qn_scheduler_params *p, struct qn_error *e);
void reuse_free(struct reuse *u); /* NULL is fine */
/* Attaches what is known of r's prompt to its first answer's empty memory, all but the last token at most, and notes
 * in r how much that was and why it was not more. */
void reuse_find(struct reuse *u, struct request *r);
void reuse_count(struct reuse *u, const struct request *r); /* r was admitted with what was found */
/* Keeps the whole pages of the prompt, once it has been read; everything an answer holds, when it ends. */
void reuse_keep_prompt(struct reuse *u, const struct request *r);
void reuse_keep_answer(struct reuse *u, const struct request *r, const struct answer *a);
/* Makes up to n pages of the pool free; returns how many. */
int reuse_evict(struct reuse *u, int n);
/* Writes some of what is not on disk yet, one file. false: there is nothing left to write, or it failed. */
bool reuse_save(struct reuse *u);
void reuse_stats(const struct reuse *u, struct qn_scheduler_stats *out);

#endif
