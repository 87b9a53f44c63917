/* SPDX-License-Identifier: MIT
 *
 * pool.h: a fixed team of threads that runs one function together.
 *
 * pool_run() calls `fn(arg, ith, nth)` on every member, where the caller is member 0, and returns when all have
 * returned. In between, pool_barrier() lines the team up. A member that waits spins for at most 20 microseconds and
 * then sleeps on a futex, so a machine with too few CPUs loses the time of a wake-up, and never a time slice to
 * spinning. A pool does one run at a time.
 */
#ifndef QUERN_BASE_POOL_H
#define QUERN_BASE_POOL_H

#include "base/error.h"

struct pool;
typedef void pool_fn(void *arg, int ith, int nth);

/* n_threads >= 1, with the caller. pin: if the process has that many CPUs, each member is pinned to one CPU of the
 * affinity mask. The caller is pinned during a run only, because threads that it starts later would inherit its mask.
 * *out is the caller's, to pool_free(). QN_ENOMEM: a thread cannot be started. */
int pool_new(struct pool **out, int n_threads, int pin, struct qn_error *e);
/* The same in two steps, for a caller that has something to do before there are threads: a team that has none yet, and
 * cannot run, and then its threads. */
int pool_prepare(struct pool **out, int n_threads, int pin, struct qn_error *e);
int pool_start(struct pool *p, struct qn_error *e);
void pool_free(struct pool *p); /* NULL is fine; not during a run */
int pool_n_threads(const struct pool *p);
/* All members see what the caller wrote before; afterwards the caller sees what they wrote. */
void pool_run(struct pool *p, pool_fn *fn, void *arg);
/* Every member of the running team must call it. After it, all members see what any member wrote before it. */
void pool_barrier(struct pool *p);
/* Sets [*lo, *hi) to member ith's contiguous share of n items, cut at multiples of `unit`. Shares differ by at most one
 * unit; some are empty when there are fewer units than members. */
void pool_share(int n, int unit, int ith, int nth, int *lo, int *hi);

#endif
