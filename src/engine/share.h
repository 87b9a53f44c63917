/* SPDX-License-Identifier: MIT
 *
 * share.h: who has been computed how much: fair shares between identities.
 *
 * Each identity has a counter of the rows computed for it; the one with the least is served next (virtual token
 * counters: Sheng et al., "Fairness in serving large language models", OSDI 2024). What its running requests will
 * probably still need counts as computed already, so that one identity does not take all places at once. Who comes
 * back after having had nothing to do starts no lower than those that are busy: idleness is not saved up.
 */
#ifndef QUERN_ENGINE_SHARE_H
#define QUERN_ENGINE_SHARE_H

#include <stdbool.h>

#include "base/mem.h"

struct share {
    uint64_t identity;
    int64_t served;    /* rows, in the virtual time of the table */
    int64_t expected;  /* rows that its running requests will probably still need */
    int n_requests;    /* waiting or running; 0: idle */
    uint64_t last_use; /* the lowest idle one gives way */
};

struct shares {
    struct share *all; /* [n] of [cap] */
    int n, cap;
    uint64_t clock;
};

/* Room for max_requests at once, each of another identity, and for a few that are idle. */
int shares_init(struct shares *s, int max_requests, struct qn_error *e);
void shares_deinit(struct shares *s);
/* A request of this identity begins to wait; pointers stay valid until its share_leave(). */
struct share *share_enter(struct shares *s, uint64_t identity);
void share_leave(struct share *h);
static inline int64_t share_key(const struct share *h) { return h->served + h->expected; }

#endif
