/* SPDX-License-Identifier: MIT
 *
 * conn.c: the table of connections and the lists of their deadlines.
 *
 * A connection is in the table from accept() until the server's thread closes it; no other thread closes it. Under the
 * lock its descriptor is valid, and any thread may shut it down. The server's thread then sees that as the connection's
 * end.
 *
 * A connection is in at most one list of deadlines. All members of a list have the same time span and are added at its
 * end, so the head is always the next one that is due.
 */
#include "server/http/impl.h"

#include <assert.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/os.h"

static int make_room(struct http *h, size_t fd)
{
    size_t n = h->n_slots ? h->n_slots : 64;
    struct conn **more;

    while (n <= fd) n *= 2;
    if (n == h->n_slots) return 0;
    more = mem_realloc(h->conn, n * sizeof *more);
    if (!more) return -1;
    memset(more + h->n_slots, 0, (n - h->n_slots) * sizeof *more);
    h->conn = more;
    h->n_slots = n;
    return 0;
}

int conn_add(struct http *h, int fd, const struct listener *l, uid_t uid)
{
    struct conn *c = mem_calloc(1, sizeof *c);

    if (!c || make_room(h, (size_t)fd)) {
        mem_free(c);
        return -1;
    }
    assert(!h->conn[fd]);
    *c = (struct conn){.http = h,
                       .fd = fd,
                       .gen = h->next_gen++ & 0x7FFFFFFF,
                       .listener = l,
                       .uid = uid,
                       .due = DUE_NOTHING,
                       .late = DUE_NOTHING};
    h->conn[fd] = c;
    h->n_conns++;
    conn_wait(c, DUE_HEADER);
    return 0;
}

static void forget_turn(struct conn *c)
{
    struct conn **pp = &c->http->ready;

    if (!c->queued) return;
    while (*pp != c) pp = &(*pp)->next_ready;
    *pp = c->next_ready;
    if (!*pp) c->http->ready_tail = pp;
}

void conn_remove(struct conn *c)
{
    assert(c->http->conn[c->fd] == c && !c->req && !(c->websocket && c->websocket->first));
    conn_wait(c, DUE_NOTHING);
    forget_turn(c);
    c->http->conn[c->fd] = NULL;
    c->http->n_conns--;
    c->http->n_short -= c->is_short;
    if (c->tls) gnutls_deinit(c->tls);
    close(c->fd);
    buf_deinit(&c->in);
    buf_deinit(&c->out);
    if (c->websocket) buf_deinit_from(&c->websocket->message, c->http->c.ledger);
    mem_free(c->websocket);
    mem_free(c);
}

void conn_wait(struct conn *c, enum due_kind kind)
{
    struct http *h = c->http;

    if (c->due != DUE_NOTHING) {
        *(c->due_prev ? &c->due_prev->due_next : &h->due[c->due].head) = c->due_next;
        *(c->due_next ? &c->due_next->due_prev : &h->due[c->due].tail) = c->due_prev;
        h->n_due--;
    }
    c->due = kind;
    if (kind == DUE_NOTHING) return;
    c->due_ns = clock_ns() + h->due[kind].span_ns;
    c->due_next = NULL;
    c->due_prev = h->due[kind].tail;
    *(c->due_prev ? &c->due_prev->due_next : &h->due[kind].head) = c;
    h->due[kind].tail = c;
    h->n_due++;
    /* The door never sleeps longer than the shortest span, except when nothing was due: then it has to be woken. */
    if (h->door_is_idle) door_wake(h);
    h->door_is_idle = false;
}

bool conn_queue(struct conn *c)
{
    struct http *h = c->http;
    bool was_empty = h->ready == NULL;

    if (c->queued) return false;
    c->queued = true;
    c->next_ready = NULL;
    *h->ready_tail = c;
    h->ready_tail = &c->next_ready;
    return was_empty;
}

void conn_poke(struct conn *c)
{
    if (conn_queue(c)) door_wake(c->http);
}

static void leave(struct http_request *r)
{
    if (r->gone) return;
    r->gone = true;
    if (r->held && r->watch.on_hangup) r->watch.on_hangup(r->watch.arg);
}

void conn_hang_up(struct conn *c)
{
    struct http_request *r = c->websocket ? c->websocket->first : NULL;

    if (!c->hung_up) shutdown(c->fd, SHUT_RDWR);
    c->hung_up = true;
    conn_wait(c, DUE_NOTHING);
    conn_poke(c);
    if (c->req) leave(c->req);
    for (; r; r = r->next_message) leave(r);
}
