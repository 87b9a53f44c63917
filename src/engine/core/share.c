/* SPDX-License-Identifier: MIT
 *
 * share.c: fair shares between identities. See share.h.
 *
 * A table of fixed size, searched from its beginning, because there is one search for each request. Idle identities
 * keep their counters as long as there is room. Otherwise a client that sends one request after the other would start
 * from zero each time.
 */
#include "engine/core/share.h"

#include <assert.h>

#define IDLE_ROOM 64

int shares_init(struct shares *s, int max_requests, struct qn_error *e)
{
    int cap = max_requests + IDLE_ROOM;
    *s = (struct shares){.all = mem_calloc((size_t)cap, sizeof *s->all), .cap = cap};
    return s->all ? 0 : error_nomem(e, "the table of shares", (size_t)cap * sizeof *s->all);
}

void shares_deinit(struct shares *s)
{
    mem_free(s->all);
    *s = (struct shares){0};
}

/* Returns the identity's entry. If it has none, it gets a new one, or that of the identity that has been idle longest.
 */
static struct share *find(struct shares *s, uint64_t identity)
{
    struct share *oldest = NULL;
    for (int i = 0; i < s->n; i++) {
        struct share *h = &s->all[i];
        if (h->identity == identity) return h;
        if (h->n_requests == 0 && (!oldest || h->last_use < oldest->last_use)) oldest = h;
    }
    struct share *h = s->n < s->cap ? &s->all[s->n++] : oldest;
    assert(h); /* the table has more entries than there can be requests */
    *h = (struct share){.identity = identity};
    return h;
}

struct share *share_enter(struct shares *s, uint64_t identity)
{
    struct share *h = find(s, identity);
    if (h->n_requests++ == 0) {
        bool others = false;
        int64_t least = 0;
        for (int i = 0; i < s->n; i++) {
            const struct share *o = &s->all[i];
            if (o == h || o->n_requests == 0) continue;
            if (!others || share_key(o) < least) least = share_key(o);
            others = true;
        }
        if (others && h->served < least) h->served = least;
    }
    h->last_use = ++s->clock;
    return h;
}

void share_leave(struct share *h)
{
    assert(h->n_requests > 0);
    h->n_requests--;
}
