/* SPDX-License-Identifier: MIT
 *
 * link_pair.c: two ends of a link in one process.
 *
 * A receiver that asks copies the bytes of the oldest packet that the other end has started to send. That packet is
 * then sent.
 */
#include "cluster/link.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"

struct link_end {
    struct link base;
    struct link_both *both;
    int own; /* 0 or 1 */
};

struct link_both {
    pthread_mutex_t mutex;            /* guards what follows, and the members `next` and `is_taken` of transfers */
    struct link_transfer *waiting[2]; /* what each end has started to send, the oldest first */
    bool is_closed[2];
    struct link_end end[2];
};

static struct link_end *end_of(struct link *l) { return (struct link_end *)l; }

static int gone(struct qn_error *e) { return error_set(e, QN_EIO, "cluster: the other end of a link is closed"); }

static int pair_isend(struct link *l, struct link_transfer *t, struct qn_error *e)
{
    struct link_end *x = end_of(l);
    pthread_mutex_lock(&x->both->mutex);
    bool is_gone = x->both->is_closed[!x->own];
    struct link_transfer **end = &x->both->waiting[x->own];
    while (*end) end = &(*end)->next;
    if (!is_gone) *end = t;
    pthread_mutex_unlock(&x->both->mutex);
    return is_gone ? gone(e) : 0;
}

static int pair_irecv(struct link *l, struct link_transfer *t, struct qn_error *e)
{
    (void)l, (void)t, (void)e;
    return 0;
}

static void stop_waiting(struct link_end *x, struct link_transfer *t)
{
    struct link_transfer **at = &x->both->waiting[x->own];
    while (*at && *at != t) at = &(*at)->next;
    if (*at) *at = t->next;
}

static int test_send(struct link_end *x, struct link_transfer *t, bool *done, struct qn_error *e)
{
    *done = t->is_taken;
    t->n = t->cap;
    if (*done || !x->both->is_closed[!x->own]) return 0;
    stop_waiting(x, t);
    return gone(e);
}

static int test_receive(struct link_end *x, struct link_transfer *t, bool *done, struct qn_error *e)
{
    struct link_transfer *sent = x->both->waiting[!x->own];
    if (!sent) return x->both->is_closed[!x->own] ? gone(e) : 0;
    x->both->waiting[!x->own] = sent->next;
    sent->is_taken = true;
    if (sent->cap > t->cap)
        return error_set(e, QN_EDATA, "cluster: a packet of %zu bytes, there is room for %zu", sent->cap, t->cap);
    memcpy(t->data, sent->data, sent->cap);
    t->n = sent->cap;
    *done = true;
    return 0;
}

static int pair_test(struct link *l, struct link_transfer *t, bool *done, struct qn_error *e)
{
    struct link_end *x = end_of(l);
    pthread_mutex_lock(&x->both->mutex);
    int rc = t->is_receive ? test_receive(x, t, done, e) : test_send(x, t, done, e);
    pthread_mutex_unlock(&x->both->mutex);
    return rc;
}

static void pair_cancel(struct link *l, struct link_transfer *t)
{
    struct link_end *x = end_of(l);
    pthread_mutex_lock(&x->both->mutex);
    if (!t->is_receive) stop_waiting(x, t);
    pthread_mutex_unlock(&x->both->mutex);
}

/* The second end that is closed frees both. */
static void pair_close(struct link *l)
{
    struct link_end *x = end_of(l);
    struct link_both *both = x->both;
    pthread_mutex_lock(&both->mutex);
    both->is_closed[x->own] = true;
    bool is_last = both->is_closed[!x->own];
    pthread_mutex_unlock(&both->mutex);
    if (!is_last) return;
    pthread_mutex_destroy(&both->mutex);
    mem_free(both);
}

static const struct link_back_end pair_back_end = {pair_isend, pair_irecv, pair_test, pair_cancel, pair_close};

int link_open_pair(struct link **a, struct link **b, struct qn_error *e)
{
    struct link_both *both = mem_calloc(1, sizeof *both);
    if (!both) return error_nomem(e, "a link", sizeof *both);
    pthread_mutex_init(&both->mutex, NULL);
    for (int i = 0; i < 2; i++) both->end[i] = (struct link_end){{&pair_back_end, {0, 0}}, both, i};
    *a = &both->end[0].base;
    *b = &both->end[1].base;
    return 0;
}
