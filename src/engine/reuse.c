/* SPDX-License-Identifier: MIT
 *
 * reuse.c: the scheduler's use of prefixes that were computed before. See reuse.h.
 *
 * Nothing is kept: every prompt is computed.
 */
#include "engine/reuse.h"

int reuse_new(struct reuse **out, struct qn_engine *g, const struct qn_scheduler_params *p, struct qn_error *e)
{
    (void)g;
    if (p->cache_dir || p->cache_bytes) return error_set(e, QN_EUNSUP, "scheduler: there is no cache yet");
    *out = NULL;
    return 0;
}

void reuse_free(struct reuse *u) { (void)u; }

void reuse_find(struct reuse *u, struct request *r)
{
    (void)u;
    r->n_cached = 0;
    r->miss = "nothing is kept";
    r->miss_position = 0;
}

void reuse_keep_prompt(struct reuse *u, const struct request *r) { (void)u, (void)r; }
void reuse_keep_answer(struct reuse *u, const struct request *r, const struct answer *a) { (void)u, (void)r, (void)a; }

int reuse_evict(struct reuse *u, int n)
{
    (void)u, (void)n;
    return 0;
}

void reuse_stats(const struct reuse *u, struct qn_scheduler_stats *out) { (void)u, (void)out; }
