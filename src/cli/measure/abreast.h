/* SPDX-License-Identifier: MIT
 *
 * abreast.h: two schedulers that take turns, a step each, so that what disturbs the machine disturbs both alike.
 *
 * Each has a clock that runs only during its own steps. A scheduler that has nothing to compute lets the other one go
 * on alone. The schedulers' threads call what is not an initialiser; the rest is the caller's.
 */
#ifndef QUERN_CLI_ABREAST_H
#define QUERN_CLI_ABREAST_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/scheduler.h"

struct abreast;

/* One of the two. */
struct abreast_side {
    struct abreast *of;
    bool waits;                /* for its turn */
    uint64_t ran_ns, since_ns; /* in earlier steps; when this one began */
};

struct abreast {
    pthread_mutex_t mutex; /* guards all that follows, but the clocks, which are those of the scheduler's thread */
    pthread_cond_t turn;
    const struct abreast_side *runs, *last; /* NULL: none */
    struct abreast_side side[2];
    bool counts_cpu; /* the time of the process's threads, instead of the clock's */
};

void abreast_init(struct abreast *a, bool counts_cpu);
void abreast_deinit(struct abreast *a); /* after the schedulers */
/* Before the scheduler's first request. side: 0 or 1. */
void abreast_join(struct abreast *a, int side, qn_scheduler *s);
/* The side's clock, in ns; to be called from callbacks of its scheduler. */
uint64_t abreast_ns(const struct abreast *a, int side);

#endif
