/* SPDX-License-Identifier: MIT
 *
 * door.c: the server's thread. It accepts connections, gives turns (wire.c) to those with a ready socket or a ready
 * answer, sees at once when a client leaves (EPOLLRDHUP, whether or not anything is read from the socket), and ends
 * connections whose deadline has passed.
 *
 * A client that has closed its sending side counts as gone: over TCP, nothing else of a close() can be seen.
 *
 * A connection without a place (conn_limit.c) gets a prepared 503 and is closed. When no descriptor is left, nothing is
 * accepted for a moment.
 *
 * Sockets are watched edge-triggered, so their entry in the set never changes while they are open: a turn goes on until
 * the socket has no more.
 */
#include "server/http/impl.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/os.h"

#define N_EVENTS        64
#define ACCEPTS_AT_ONCE 64
#define TURNS_AT_ONCE   256
#define NO_FD_PAUSE_MS  100

/* Answers a request that was not read. Bytes that do not fit the socket are lost. */
static void refuse(int fd, const char *why)
{
    char body[256], all[640];
    size_t n = error_json(body, sizeof body, 503, NULL, NULL, why);
    int len = snprintf(all, sizeof all,
                       "HTTP/1.1 503 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                       "Retry-After: 1\r\nConnection: close\r\n\r\n%s",
                       reply_reason(503), n, body);

    send(fd, all, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(fd, SHUT_WR);
}

/* ---- accepting ---- */

/* Under the lock. */
static int add(struct http *h, const struct listener *l, int fd, uid_t uid, const struct peer *peer,
               enum conn_place place)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    struct conn *c;

    if (conn_add(h, fd, l, uid)) return -1;
    c = h->conn[fd];
    c->peer = *peer;
    c->is_short = place == PLACE_SHORT;
    h->n_short += c->is_short;
    if (c->is_short) conn_wait(c, DUE_SHORT);
    ev.data.u64 = (uint64_t)c->gen << 32 | (uint32_t)fd;
    if (wire_begin(c) == 0 && epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, fd, &ev) == 0) return 0;
    conn_remove(c);
    return 1;
}

/* Takes fd over. -1: it is closed. */
static int admit(struct http *h, const struct listener *l, int fd, const struct sockaddr *from)
{
    struct ucred cred = {.uid = (uid_t)-1};
    socklen_t n_cred = sizeof cred;
    const char *why = "out of memory";
    struct peer peer;
    enum conn_place place;
    int r = -1;

    if (l->is_unix && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n_cred) < 0) {
        close(fd);
        return -1;
    }
    peer = peer_of(from, cred.uid);
    pthread_mutex_lock(&h->lock);
    place = place_for(h, &peer, l->is_unix, &why);
    if (place != PLACE_NONE) r = add(h, l, fd, cred.uid, &peer, place);
    pthread_mutex_unlock(&h->lock);
    if (place == PLACE_NONE) place_refused(h, why);
    if (r == 0) return 0;
    if (r > 0) return -1; /* closed already */
    if (!l->tls) refuse(fd, why);
    close(fd);
    return -1;
}

int http_adopt(struct http *h, int fd, struct qn_error *e)
{
    static const struct listener nobody = {.fd = -1, .is_unix = true};
    const struct sockaddr_storage peer = {.ss_family = AF_UNIX};

    assert(h->has_door);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    if (admit(h, &nobody, fd, (const struct sockaddr *)&peer))
        return error_set(e, QN_EIO, "http: a connection cannot be served");
    return 0;
}

/* Returns how many ms to wait before accepting again. */
static int accept_some(struct http *h, const struct listener *l)
{
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        struct sockaddr_storage peer = {0};
        socklen_t n = sizeof peer;
        int fd = accept4(l->fd, (struct sockaddr *)&peer, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            if (l->is_unix) peer.ss_family = AF_UNIX;
            admit(h, l, fd, (struct sockaddr *)&peer);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            log_at(LOG_WARN, "accept: %m; waiting %d ms", NO_FD_PAUSE_MS);
            return NO_FD_PAUSE_MS;
        } else if (errno != ECONNABORTED && errno != EINTR) {
            return 0;
        }
    }
    return 0;
}

/* ---- time ---- */

static void too_late(struct conn *c)
{
    if (c->due == DUE_HEARTBEAT) {
        stream_heartbeat(c->req);
        if (!c->hung_up) conn_wait(c, DUE_HEARTBEAT); /* its text may not have found room */
        return;
    }
    c->late = c->due;
    conn_wait(c, DUE_NOTHING);
    conn_poke(c);
}

/* Handles the deadlines that have passed. Returns the ms until the next one, -1 if there is none. Under the lock. */
static int run_due(struct http *h)
{
    uint64_t now = clock_ns(), next = UINT64_MAX;

    h->door_is_idle = h->n_due == 0;
    if (h->door_is_idle) return -1;
    for (int k = 0; k < N_DUE; k++) {
        /* This ends: a heartbeat goes to the end of its list with a new time. */
        while (h->due[k].head && h->due[k].head->due_ns <= now) too_late(h->due[k].head);
        if (h->due[k].head && h->due[k].head->due_ns < next) next = h->due[k].head->due_ns;
        if (now + h->due[k].span_ns < next) next = now + h->due[k].span_ns;
    }
    return (int)((next - now) / 1000000) + 1;
}

/* ---- the loop ---- */

void door_wake(struct http *h)
{
    eventfd_t one = 1;
    eventfd_write(h->wake_fd, one);
}

/* Puts all listeners into the epoll set or takes them out. for_good: also closes them, so that nobody waits for a
 * connection in vain. */
static void watch_listeners(struct http *h, bool on, bool for_good)
{
    for (int i = 0; i < h->c.n_listen; i++) {
        struct epoll_event ev = {.events = EPOLLIN, .data.u64 = DOOR_OTHER | (unsigned)i};
        epoll_ctl(h->epoll_fd, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, h->listener[i].fd, &ev);
        if (for_good) /* closing alone would not take it out of the set: another process may have it open */
            listener_close(&h->listener[i]);
    }
}

/* ---- turns ---- */

static void at_event(struct http *h, const struct epoll_event *ev)
{
    size_t fd = ev->data.u64 & 0xFFFFFFFF;
    struct conn *c;

    pthread_mutex_lock(&h->lock);
    c = fd < h->n_slots ? h->conn[fd] : NULL;
    if (c && c->gen != ev->data.u64 >> 32) c = NULL;
    if (c && ev->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) conn_hang_up(c);
    pthread_mutex_unlock(&h->lock);
    if (c) wire_turn(c);
}

static struct conn *next_ready(struct http *h)
{
    struct conn *c;

    pthread_mutex_lock(&h->lock);
    c = h->ready;
    if (c) {
        h->ready = c->next_ready;
        if (!h->ready) h->ready_tail = &h->ready;
        c->queued = false;
    }
    pthread_mutex_unlock(&h->lock);
    return c;
}

/* Gives turns to ready connections. Returns true if some are left. */
static bool run_ready(struct http *h)
{
    struct conn *c;

    for (int i = 0; i < TURNS_AT_ONCE; i++) {
        if (!(c = next_ready(h))) return false;
        wire_turn(c);
    }
    return true;
}

/* Returns how many ms to wait before accepting again. */
static int at_events(struct http *h, const struct epoll_event *ev, int n)
{
    eventfd_t ignored;
    int pause_ms = 0;

    for (int i = 0; i < n; i++) {
        if (ev[i].data.u64 == DOOR_WAKE) {
            eventfd_read(h->wake_fd, &ignored);
        } else if (ev[i].data.u64 & DOOR_OTHER) {
            int ms = accept_some(h, &h->listener[ev[i].data.u64 & 0xFFFFFFFF]);
            if (ms) pause_ms = ms;
        } else {
            at_event(h, &ev[i]);
        }
    }
    return pause_ms;
}

static int ms_until(uint64_t ns)
{
    uint64_t now = clock_ns();

    return ns > now ? (int)((ns - now) / 1000000) + 1 : 0;
}

void *door_main(void *http)
{
    struct http *h = http;
    struct epoll_event ev[N_EVENTS];
    bool open = false, closed = false, busy = false;
    uint64_t pause_until_ns = 0; /* nothing is accepted before this time */

    pthread_setname_np(pthread_self(), "door");
    for (;;) {
        int timeout, left_ms = ms_until(pause_until_ns);
        bool want, for_good;

        pthread_mutex_lock(&h->lock);
        if (h->door_stops) break;
        timeout = run_due(h);
        for_good = h->draining;
        want = !for_good && left_ms == 0;
        pthread_mutex_unlock(&h->lock);
        if (want != open || (for_good && !closed)) watch_listeners(h, want, for_good);
        if (for_good && !closed) {
            pthread_mutex_lock(&h->lock);
            h->shut = true;
            pthread_cond_broadcast(&h->changed);
            pthread_mutex_unlock(&h->lock);
        }
        open = want;
        closed = for_good;
        if (left_ms && (timeout < 0 || timeout > left_ms)) timeout = left_ms;
        int pause_ms = at_events(h, ev, epoll_wait(h->epoll_fd, ev, N_EVENTS, busy ? 0 : timeout));
        if (pause_ms) pause_until_ns = clock_ns() + (uint64_t)pause_ms * 1000000;
        busy = run_ready(h);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}
