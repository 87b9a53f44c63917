/* SPDX-License-Identifier: MIT
 *
 * share.h: fair shares between identities, by the rows that were computed for each.
 *
 * Each identity has a counter of the rows that were computed for it. The one with the lowest counter is served next
 * (virtual token counters: Sheng et al., "Fairness in serving large language models", OSDI 2024). Rows that its running
 * requests will probably still need count as computed already, so that one identity does not take all places at once.
 * An identity that returns after an idle time starts no lower than the lowest busy one, so idle time gives no credit.
 */
#ifndef QUERN_ENGINE_SHARE_H
#define QUERN_ENGINE_SHARE_H

#include <stdbool.h>

#include "base/mem.h"

struct share {
    uint64_t identity;
    int64_t served;    /* rows computed, raised after an idle time */
    int64_t expected;  /* rows that its running requests will probably still need */
    int n_requests;    /* waiting or running; 0: idle */
    uint64_t last_use; /* the idle identity with the lowest one loses its entry first */
};

struct shares {
    struct share *all; /* [n] of [cap], owned */
    int n, cap;
    uint64_t clock;
};

/* Makes room for max_requests at once, each of another identity, and for a few idle identities. QN_ENOMEM. */
int shares_init(struct shares *s, int max_requests, struct qn_error *e);
void shares_deinit(struct shares *s);
/* Call it when a request of this identity begins to wait. The pointer stays valid until the share_leave() of that
 * request. */
struct share *share_enter(struct shares *s, uint64_t identity);
void share_leave(struct share *h);
/* The identity with the lowest key is served next. */
static inline int64_t share_key(const struct share *h) { return h->served + h->expected; }

#endif
