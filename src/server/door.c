/* SPDX-License-Identifier: MIT
 *
 * door.c: the thread at the door. It accepts connections and hands them to libmicrohttpd, sees at once when a client
 * leaves (EPOLLRDHUP, whether or not anybody reads from the socket), and closes what takes too long.
 *
 * A client that has closed its sending side counts as gone: for TCP that is all that can be seen of a close().
 *
 * A connection beyond max_connections gets a finished 503 and is closed; when no descriptor is left, nothing is
 * accepted for a moment. Late header or body: 408, where the connection is not encrypted.
 *
 * Does no reading, and no writing but for these last words.
 */
#include "server/impl.h"

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
#define NO_FD_PAUSE_MS  100

/* An answer outside of libmicrohttpd, which sends nothing at that moment. What does not fit the socket is lost. */
static void last_words(int fd, const char *status, const char *more, int code, const char *text)
{
    char body[256], all[640];
    size_t n = error_json(body, sizeof body, code, NULL, NULL, text);
    int len = snprintf(
        all, sizeof all,
        "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%sConnection: close\r\n\r\n%s", status,
        n, more, body);

    send(fd, all, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(fd, SHUT_WR);
}

/* ---- accepting ---- */

/* Takes fd. libmicrohttpd closes it, also when it does not want it. -1: it is closed. */
static int admit(struct http *h, const struct listener *l, int fd, const struct sockaddr *peer, socklen_t n_peer)
{
    struct ucred cred = {.uid = (uid_t)-1};
    socklen_t n_cred = sizeof cred;
    struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLET};
    int full, r = -1;

    if (l->is_unix && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n_cred) < 0) {
        close(fd);
        return -1;
    }
    pthread_mutex_lock(&h->lock);
    full = h->n_conns >= h->c.max_connections;
    if (!full) r = conn_add(h, fd, l, cred.uid);
    if (r == 0) {
        ev.data.u64 = (uint64_t)h->conn[fd]->gen << 32 | (uint32_t)fd;
        r = epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
        if (r < 0) conn_remove(h->conn[fd]);
    }
    pthread_mutex_unlock(&h->lock);
    if (r < 0) {
        if (!l->tls) last_words(fd, "503 Service Unavailable", "Retry-After: 1\r\n", 503, "too many connections");
        close(fd);
        return -1;
    }
    if (MHD_add_connection(l->tls ? h->tls : h->plain, fd, peer, n_peer) == MHD_YES) return 0;
    pthread_mutex_lock(&h->lock);
    if (h->conn[fd]) conn_remove(h->conn[fd]);
    pthread_mutex_unlock(&h->lock);
    return -1;
}

int http_adopt(struct http *h, int fd, struct qn_error *e)
{
    static const struct listener nobody = {.fd = -1, .is_unix = 1};
    const struct sockaddr_storage peer = {.ss_family = AF_UNIX};

    assert(h->has_door && h->plain);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    if (admit(h, &nobody, fd, (const struct sockaddr *)&peer, sizeof(struct sockaddr)))
        return error_set(e, QN_EIO, "http: a connection cannot be served: %m");
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
            admit(h, l, fd, (struct sockaddr *)&peer, n > sizeof peer ? sizeof peer : n);
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
    const char *what = c->due == DUE_HEADER ? "the request's header took too long" : "the request's body took too long";

    if (c->due == DUE_HEARTBEAT) {
        stream_heartbeat(c->req);
        if (!c->hung_up) conn_wait(c, DUE_HEARTBEAT); /* what it says may not have found room */
        return;
    }
    if (c->due != DUE_IDLE && !c->listener->tls) last_words(c->fd, "408 Request Timeout", "", 408, what);
    conn_hang_up(c);
}

/* Handles what is due; returns the ms until the next. Under the lock. */
static int run_due(struct http *h)
{
    uint64_t now = clock_ns(), next = UINT64_MAX;

    h->door_is_idle = h->n_due == 0;
    if (h->door_is_idle) return -1;
    for (int k = 0; k < N_DUE; k++) {
        /* Once around at most: a heartbeat goes back to the end of its list. */
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

/* All listeners in or out of the epoll set. For good: closed, so that nobody waits for a connection in vain. */
static void watch_listeners(struct http *h, int on, int for_good)
{
    for (int i = 0; for_good && i < h->c.n_listen; i++) listener_close(&h->listener[i]);
    if (for_good) return;
    for (int i = 0; i < h->c.n_listen; i++) {
        struct epoll_event ev = {.events = EPOLLIN, .data.u64 = DOOR_OTHER | (unsigned)i};
        epoll_ctl(h->epoll_fd, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, h->listener[i].fd, &ev);
    }
}

static void gone(struct http *h, uint64_t data)
{
    size_t fd = data & 0xFFFFFFFF;

    pthread_mutex_lock(&h->lock);
    if (fd < h->n_slots && h->conn[fd] && h->conn[fd]->gen == data >> 32) conn_hang_up(h->conn[fd]);
    pthread_mutex_unlock(&h->lock);
}

void *door_main(void *http)
{
    struct http *h = http;
    struct epoll_event ev[N_EVENTS];
    int open = 0, closed = 0, pause_ms = 0;

    pthread_setname_np(pthread_self(), "door");
    for (;;) {
        int timeout, n, want, for_good;
        eventfd_t ignored;

        pthread_mutex_lock(&h->lock);
        if (h->door_stops) break;
        timeout = run_due(h);
        for_good = h->draining;
        want = !for_good && pause_ms == 0;
        pthread_mutex_unlock(&h->lock);
        if (want != open || for_good > closed) watch_listeners(h, want, for_good);
        if (for_good > closed) {
            pthread_mutex_lock(&h->lock);
            h->shut = 1;
            pthread_cond_broadcast(&h->changed);
            pthread_mutex_unlock(&h->lock);
        }
        open = want;
        closed = for_good;
        if (pause_ms && (timeout < 0 || timeout > pause_ms)) timeout = pause_ms;
        pause_ms = 0;

        n = epoll_wait(h->epoll_fd, ev, N_EVENTS, timeout);
        for (int i = 0; i < n; i++) {
            if (ev[i].data.u64 == DOOR_WAKE)
                eventfd_read(h->wake_fd, &ignored);
            else if (ev[i].data.u64 & DOOR_OTHER) {
                int ms = accept_some(h, &h->listener[ev[i].data.u64 & 0xFFFFFFFF]);
                if (ms) pause_ms = ms;
            } else
                gone(h, ev[i].data.u64);
        }
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}
