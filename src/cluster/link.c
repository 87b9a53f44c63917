/* SPDX-License-Identifier: MIT
 *
 * link.c: what all back ends of links have in common. See link.h.
 */
#include "cluster/link.h"

#include <assert.h>

static int start(struct link *l, struct link_transfer *t, bool is_receive, void *data, size_t cap, struct qn_error *e)
{
    assert(l->n_started[is_receive] < LINK_WINDOW);
    *t = (struct link_transfer){.link = l, .is_receive = is_receive, .data = data, .cap = cap};
    int rc = is_receive ? l->back_end->irecv(l, t, e) : l->back_end->isend(l, t, e);
    if (rc) return rc;
    t->is_started = true;
    l->n_started[is_receive]++;
    return 0;
}

static void finish(struct link_transfer *t)
{
    t->is_started = false;
    t->link->n_started[t->is_receive]--;
}

int link_isend(struct link *l, struct link_transfer *t, const void *data, size_t n, struct qn_error *e)
{
    return start(l, t, false, (void *)data, n, e);
}

int link_irecv(struct link *l, struct link_transfer *t, void *data, size_t cap, struct qn_error *e)
{
    return start(l, t, true, data, cap, e);
}

int link_test(struct link_transfer *t, bool *done, struct qn_error *e)
{
    *done = false;
    if (!t->is_started) return error_set(e, QN_EIO, "cluster: a packet is asked about that is no longer under way");
    int rc = t->link->back_end->test(t->link, t, done, e);
    if (rc || *done) finish(t);
    return rc;
}

void link_cancel(struct link_transfer *t)
{
    if (!t->is_started) return;
    t->link->back_end->cancel(t->link, t);
    finish(t);
}

void link_close(struct link *l)
{
    if (!l) return;
    assert(!l->n_started[0] && !l->n_started[1]);
    l->back_end->close(l);
}
