/* SPDX-License-Identifier: MIT
 *
 * link_socket.c: a link over a connected stream socket, between the head and the first stage, which are on one machine.
 *
 * On the wire, a packet is its size as a u64 and its bytes. A size whose upper half is all ones is a beat, and the
 * lower half what it asks for, in milliseconds (pulse.h). Transfers of one direction are done one after another.
 */
#include "cluster/link_socket.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"
#include "cluster/pulse.h"

/* One direction: the transfers that are under way, and how far the first of them is. */
struct socket_way {
    struct link_transfer *first;
    uint64_t size;  /* of the packet, as it is on the wire */
    size_t n_moved; /* bytes, those of the size included */
};

struct link_socket {
    struct link base;
    int fd;
    struct socket_way way[2]; /* sent, received */
    uint64_t beat, beat_ns;   /* the last beat, and when it was sent */
    size_t n_beat_left;       /* bytes of it that are not sent yet */
    struct pulse pulse;
};

static struct link_socket *socket_of(struct link *l) { return (struct link_socket *)l; }

static int append(struct link *l, struct link_transfer *t)
{
    struct link_transfer **end = &socket_of(l)->way[t->is_receive].first;
    while (*end) end = &(*end)->next;
    *end = t;
    return 0;
}

static int socket_isend(struct link *l, struct link_transfer *t, struct qn_error *e)
{
    (void)e;
    return append(l, t);
}

static int socket_irecv(struct link *l, struct link_transfer *t, struct qn_error *e)
{
    (void)e;
    return append(l, t);
}

static void unlink_transfer(struct socket_way *w, struct link_transfer *t)
{
    struct link_transfer **at = &w->first;
    while (*at && *at != t) at = &(*at)->next;
    if (*at) *at = t->next;
}

/* Moves as many bytes as can be moved now. 0: none at present. */
static ssize_t move(const struct link_socket *s, bool is_receive, void *p, size_t n, struct qn_error *e)
{
    ssize_t k;
    do k = is_receive ? recv(s->fd, p, n, MSG_DONTWAIT) : send(s->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (k < 0 && errno == EINTR);
    if (k > 0) return k;
    if (k < 0 && errno == EAGAIN) return 0;
    return error_set(e, QN_EIO, "cluster: the connection has ended: %s", k ? strerror(errno) : "it was closed");
}

#define BEAT ((uint64_t)UINT32_MAX << 32)
#define MS   1000000u

/* The rest of a beat. */
static ssize_t send_beat(struct link_socket *s, struct qn_error *e)
{
    ssize_t k = move(s, false, (uint8_t *)&s->beat + sizeof s->beat - s->n_beat_left, s->n_beat_left, e);
    if (k > 0) s->n_beat_left -= (size_t)k;
    return k;
}

static int check_silence(struct link_socket *s, struct qn_error *e)
{
    uint64_t ns = pulse_missing(&s->pulse, clock_ns());
    if (!ns) return 0;
    return error_set(e, QN_EIO, "cluster: nothing came from the first stage for %llu ms",
                     (unsigned long long)(ns / MS));
}

/* Moves the way's first packet on. *done: all of it. */
static int advance(struct link_socket *s, bool is_receive, bool *done, struct qn_error *e)
{
    struct socket_way *w = &s->way[is_receive];
    struct link_transfer *t = w->first;
    if (!is_receive) w->size = t->cap;
    while (!is_receive && s->n_beat_left) {
        ssize_t k = send_beat(s, e);
        if (k <= 0) return (int)k;
    }
    for (;;) {
        bool is_size = w->n_moved < sizeof w->size;
        size_t at = is_size ? w->n_moved : w->n_moved - sizeof w->size;
        if (!is_size && is_receive && w->size >= BEAT) {
            pulse_heard(&s->pulse, clock_ns(), (w->size - BEAT) * MS);
            w->n_moved = 0;
            continue;
        }
        if (!is_size && w->size > t->cap)
            return error_set(e, QN_EDATA, "cluster: a packet of %llu bytes, there is room for %zu",
                             (unsigned long long)w->size, t->cap);
        size_t left = is_size ? sizeof w->size - at : (size_t)w->size - at;
        if (left == 0) break;
        ssize_t k = move(s, is_receive, (is_size ? (uint8_t *)&w->size : (uint8_t *)t->data) + at, left, e);
        if (k <= 0) return (int)k;
        if (is_receive && !is_size) pulse_alive(&s->pulse, clock_ns());
        w->n_moved += (size_t)k;
    }
    t->n = (size_t)w->size;
    t->is_taken = *done = true;
    w->first = t->next;
    w->n_moved = 0;
    return 0;
}

static int socket_test(struct link *l, struct link_transfer *t, bool *done, struct qn_error *e)
{
    struct link_socket *s = socket_of(l);
    struct socket_way *w = &s->way[t->is_receive];
    int rc = 0;
    for (bool is_moved = true; !t->is_taken && is_moved && !rc;) {
        is_moved = false;
        rc = advance(s, t->is_receive, &is_moved, e);
    }
    if (!rc && !t->is_taken && t->is_receive) rc = check_silence(s, e);
    if (rc) unlink_transfer(w, t);
    *done = t->is_taken;
    return rc;
}

static void socket_cancel(struct link *l, struct link_transfer *t)
{
    struct socket_way *w = &socket_of(l)->way[t->is_receive];
    /* The rest of a packet that was begun would be taken for the next one's. */
    if (w->first == t && w->n_moved) shutdown(socket_of(l)->fd, t->is_receive ? SHUT_RD : SHUT_WR);
    unlink_transfer(w, t);
}

static void socket_close(struct link *l)
{
    close(socket_of(l)->fd);
    mem_free(socket_of(l));
}

int link_socket_beat(struct link *l, uint64_t now, uint64_t need_ns, struct qn_error *e)
{
    struct link_socket *s = socket_of(l);
    uint64_t beat = BEAT + need_ns / MS;
    if (!s->n_beat_left && now - s->beat_ns < PULSE_EVERY_NS && beat == s->beat) return 0;
    if (s->way[0].first) return 0; /* a packet is a sign, too */
    if (!s->n_beat_left) {
        s->n_beat_left = sizeof s->beat;
        s->beat = beat;
    }
    s->beat_ns = now;
    ssize_t k = send_beat(s, e);
    return k < 0 ? (int)k : 0;
}

int link_open_socket(struct link **out, int fd, struct qn_error *e)
{
    static const struct link_back_end back_end = {socket_isend, socket_irecv, socket_test, socket_cancel, socket_close};
    struct link_socket *s = mem_calloc(1, sizeof *s);
    if (!s) return error_nomem(e, "a link", sizeof *s);
    *s = (struct link_socket){.base = {&back_end, {0, 0}}, .fd = fd};
    *out = &s->base;
    return 0;
}
