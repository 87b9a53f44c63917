/* SPDX-License-Identifier: MIT
 *
 * relay.c: passes packets on. See relay.h.
 */
#include "cluster/relay.h"

#include "base/mem.h"

int relay_init(struct relay *r, struct link *from, struct link *to, size_t cap, struct qn_error *e)
{
    *r = (struct relay){.from = from, .to = to, .cap = cap, .data = mem_alloc(cap)};
    if (!r->data) return error_nomem(e, "a packet", cap);
    int rc = link_irecv(from, &r->receive, r->data, cap, e);
    if (rc) relay_deinit(r);
    return rc;
}

int relay_enlarge(struct relay *r, size_t cap, struct qn_error *e)
{
    struct relay old = *r;
    relay_deinit(r);
    return relay_init(r, old.from, old.to, cap, e);
}

int relay_tend(void *arg, struct qn_error *e)
{
    struct relay *r = arg;
    bool done = false;
    int rc;
    if (r->receive.is_started) {
        if ((rc = link_test(&r->receive, &done, e)) || !done) return rc;
        if ((rc = link_isend(r->to, &r->send, r->data, r->receive.n, e))) return rc;
    }
    if (!r->send.is_started) return error_set(e, QN_EIO, "cluster: packets are not passed on any more");
    if ((rc = link_test(&r->send, &done, e)) || !done) return rc;
    r->n_passed++;
    return link_irecv(r->from, &r->receive, r->data, r->cap, e);
}

void relay_deinit(struct relay *r)
{
    link_cancel(&r->receive);
    link_cancel(&r->send);
    mem_free(r->data);
    *r = (struct relay){0};
}
