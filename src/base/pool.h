/* SPDX-License-Identifier: MIT
 *
 * pool.h: a fixed team of threads that runs one function together.
 *
 * pool_run() starts `fn(arg, ith, nth)` on every member, the caller being member 0, and
 * returns when all have. Inside, pool_barrier() lines the team up. Waiting spins for at
 * most 20 microseconds and then sleeps on a futex, so an oversubscribed machine loses a
 * wake-up, never a scheduling quantum of spinning. One run at a time per pool.
 */
#ifndef QUERN_BASE_POOL_H
#define QUERN_BASE_POOL_H

#include "base/error.h"

struct pool;
typedef void pool_fn(void *arg, int ith, int nth);

/* n_threads >= 1, the caller included. With pin, and if the process has that many CPUs, members 1.. are pinned to
 * one CPU of the affinity mask each; the mask of the caller stays as it is, for every thread that it starts later
 * would inherit it. QN_ENOMEM when a thread cannot be had. */
int pool_new(struct pool **out, int n_threads, int pin, struct qn_error *e);
void pool_free(struct pool *p); /* NULL is fine; not during a run */
int pool_n_threads(const struct pool *p);
/* What the caller wrote before it is visible to all members, what they wrote is visible to the caller after it. */
void pool_run(struct pool *p, pool_fn *fn, void *arg);
/* Every member of the running team must call it. Writes before it are visible after it. */
void pool_barrier(struct pool *p);
/* [*lo, *hi) = member ith's contiguous share of n items, cut at multiples of `unit`;
 * empty when there are fewer units than members. Shares differ by at most one unit. */
void pool_share(int n, int unit, int ith, int nth, int *lo, int *hi);

#endif
