/* SPDX-License-Identifier: MIT
 *
 * http.c: opens, starts, drains and closes the server.
 *
 * One thread does everything that concerns sockets (door.c). Connections need descriptors, so http_open() raises the
 * limit on them or fails: it would be worse to find out under load.
 *
 * Opening, listening and starting are separate. So a program can bind its sockets, give up the rights that this needs,
 * and only then load what it will serve. Clients that connect meanwhile wait, and can ask whether the program lives.
 */
#include "server/http/http.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/os.h"
#include "server/http/impl.h"

#define LINGER_NS 1000000000u /* while draining */
#define LINGER_MS 1000        /* the time a client has to take the last answer */
#define SHORT_MS  2000        /* the time for the head of a short connection */

void http_config_init(struct http_config *c)
{
    *c = (struct http_config){
        .kept_connections = -1,
        .max_header_bytes = 16 << 10,
        .max_body_bytes = 16 << 20,
        .max_queue_bytes = 64 << 10,
        .header_ms = 10000,
        .body_ms = 60000,
        .idle_ms = 75000,
        .heartbeat_ms = 15000,
    };
}

/* ---- opening ---- */

static int open_listeners(struct http *h, struct qn_error *e)
{
    int r = 0;

    for (int i = 0; i < h->c.n_listen; i++) {
        const struct http_listen *how = &h->c.listen[i];
        struct listener *l = &h->listener[i];
        if (r < 0) { /* the others are closed by http_close() */
            if (!how->address) close(how->fd);
            continue;
        }
        r = listener_open(l, how, e);
        if (r == 0 && !l->is_unix && !l->is_loopback && h->keys.n == 0)
            r = error_set(e, QN_EUSAGE, "listening on '%s', which is not loopback, takes a file of API keys",
                          how->address ? how->address : "a given socket");
        if (r == 0 && l->tls && !(h->c.cert_path && h->c.key_path))
            r = error_set(e, QN_EUSAGE, "TLS on '%s' takes a certificate and its key",
                          how->address ? how->address : "a given socket");
    }
    return r;
}

static bool has_tls(const struct http *h)
{
    for (int i = 0; i < h->c.n_listen; i++)
        if (h->listener[i].tls) return true;
    return false;
}

static int start_thread(struct http *h, struct qn_error *e)
{
    struct epoll_event wake = {.events = EPOLLIN, .data.u64 = DOOR_WAKE};
    sigset_t all, before;
    int r = 0;

    h->scratch = mem_alloc(SCRATCH_BYTES);
    if (!h->scratch) return error_nomem(e, "a buffer for what comes", SCRATCH_BYTES);
    h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    h->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (h->epoll_fd < 0 || h->wake_fd < 0 || epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, h->wake_fd, &wake) < 0)
        return error_set(e, QN_EIO, "epoll: %m");

    sigfillset(&all); /* signals are for the program's own threads */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    errno = pthread_create(&h->door, NULL, door_main, h);
    h->has_door = errno == 0;
    if (!h->has_door) r = error_set(e, QN_EIO, "a thread cannot start: %m");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r;
}

int http_open(struct http **out, const struct http_config *c, struct qn_error *e)
{
    struct http *h = mem_calloc(1, sizeof *h);
    const int span_ms[N_DUE] = {[DUE_HEADER] = c->header_ms,
                                [DUE_IDLE] = c->idle_ms,
                                [DUE_BODY] = c->body_ms,
                                [DUE_HEARTBEAT] = c->heartbeat_ms,
                                [DUE_SEND] = c->idle_ms,
                                [DUE_LINGER] = LINGER_MS,
                                [DUE_SHORT] = c->header_ms < SHORT_MS ? c->header_ms : SHORT_MS};
    pthread_condattr_t attr;
    int r;

    assert(c->max_connections >= 0 && c->max_header_bytes >= 1024);
    if (!h) return error_nomem(e, "the HTTP server", sizeof *h);
    *h = (struct http){.c = *c, .epoll_fd = -1, .wake_fd = -1};
    h->ready_tail = &h->ready;
    pthread_mutex_init(&h->lock, NULL);
    pthread_rwlock_init(&h->keys_lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&h->changed, &attr);
    pthread_condattr_destroy(&attr);
    for (int k = 0; k < N_DUE; k++) {
        assert(span_ms[k] > 0);
        h->due[k].span_ns = (uint64_t)span_ms[k] * 1000000;
    }
    if (getrandom(&h->id_base, sizeof h->id_base, 0) < 0) h->id_base = clock_ns();

    h->listener = mem_calloc((size_t)c->n_listen + 1, sizeof *h->listener);
    if (!h->listener) {
        r = error_nomem(e, "listeners", (size_t)c->n_listen * sizeof *h->listener);
        goto fail;
    }
    for (int i = 0; i < c->n_listen; i++) h->listener[i].fd = -1;
    h->counts = mem_calloc(((size_t)c->n_routes + 1) * N_STATUS, sizeof *h->counts);
    r = h->counts ? place_init(h, e) : error_nomem(e, "counters", (size_t)c->n_routes * N_STATUS);
    if (r == 0 && c->keys_path) r = api_keys_load(&h->keys, c->keys_path, c->limits, e);
    if (r == 0) r = open_listeners(h, e);
    if (r == 0 && has_tls(h)) r = tls_cert_new(&h->cert, c->cert_path, c->key_path, e);
    if (r < 0) goto fail;
    *out = h;
    return 0;
fail:
    http_close(h);
    return r;
}

int http_listen(struct http *h, struct qn_error *e)
{
    assert(!h->has_door);
    return start_thread(h, e);
}

int http_start(struct http *h, void *ctx, struct qn_error *e)
{
    int r = h->has_door ? 0 : start_thread(h, e);
    if (r < 0) return r;
    pthread_mutex_lock(&h->lock);
    assert(!h->is_ready);
    h->ctx = ctx;
    h->is_ready = true;
    for (size_t i = 0; i < h->n_slots; i++)
        if (h->conn[i]) conn_poke(h->conn[i]);
    pthread_mutex_unlock(&h->lock);
    return 0;
}

/* ---- reloading ---- */

/* The key that a WebSocket came with may not be one any more: its client has to connect again. */
static void finish_websockets(struct http *h)
{
    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < h->n_slots; i++)
        if (h->conn[i] && h->conn[i]->websocket && h->conn[i]->websocket->who.kind == HTTP_KEY)
            websocket_finish(h->conn[i], CLOSE_RESTART);
    pthread_mutex_unlock(&h->lock);
}

int http_reload(struct http *h, struct qn_error *e)
{
    struct api_keys keys = {0}, old;
    struct tls_cert *cert = NULL;
    int r = h->c.keys_path ? api_keys_load(&keys, h->c.keys_path, h->c.limits, e) : 0;

    if (r == 0 && h->cert) r = tls_cert_new(&cert, h->c.cert_path, h->c.key_path, e);
    if (r < 0) {
        api_keys_deinit(&keys);
        return r;
    }
    if (h->c.keys_path) {
        pthread_rwlock_wrlock(&h->keys_lock);
        old = h->keys;
        h->keys = keys;
        pthread_rwlock_unlock(&h->keys_lock);
        api_keys_deinit(&old);
        finish_websockets(h);
    }
    if (cert && cert->hash != h->cert->hash) {
        pthread_mutex_lock(&h->lock);
        cert->older = h->cert;
        h->cert = cert;
        pthread_mutex_unlock(&h->lock);
    } else {
        tls_cert_free(cert);
    }
    return 0;
}

/* ---- listeners, from outside ---- */

int http_port(const struct http *h, int listener) { return listener_port(&h->listener[listener]); }

int http_listen_fd(struct http *h, int listener, struct qn_error *e)
{
    struct listener *l = &h->listener[listener];
    int fd = fcntl(l->fd, F_DUPFD_CLOEXEC, 0);

    if (fd < 0) return error_set(e, QN_EIO, "copying a listening socket: %m");
    mem_free(l->path);
    l->path = NULL;
    return fd;
}

/* ---- the end ---- */

/* Accepts no new connections, and closes those that wait for another request. A connection that has not had its first
 * request may have been accepted a moment ago, by us and not by our successor, so it gets LINGER_NS to send one. Under
 * the lock. */
static void start_draining(struct http *h)
{
    uint64_t now = clock_ns();

    if (!h->draining) h->linger_ns = now + LINGER_NS;
    h->draining = true;
    for (size_t i = 0; i < h->n_slots; i++) {
        struct conn *c = h->conn[i];
        if (c && c->websocket)
            websocket_finish(c, CLOSE_GOING_AWAY);
        else if (c && !c->begun && (c->due != DUE_HEADER || now >= h->linger_ns))
            conn_hang_up(c);
    }
    if (h->wake_fd >= 0) door_wake(h);
}

/* The number of requests that run, and of connections that may still bring one. Under the lock. */
static int n_left(const struct http *h)
{
    int n = h->n_running + (h->has_door && !h->shut);

    for (size_t i = 0; i < h->n_slots; i++) {
        const struct conn *c = h->conn[i];
        const struct http_request *r = c ? c->req : NULL;
        const struct websocket *w = c ? c->websocket : NULL;
        if (c && !c->hung_up) n += r ? !r->running && !r->gone && !r->answered : c->due == DUE_HEADER;
        if (w && !c->hung_up && !r) n += !w->closed && !c->blocked && w->n_requests == 0; /* is being closed */
    }
    return n;
}

int http_drain(struct http *h, int timeout_ms)
{
    uint64_t until = clock_ns() + (uint64_t)timeout_ms * 1000000, next;
    struct timespec at;
    int left;

    pthread_mutex_lock(&h->lock);
    for (;;) {
        start_draining(h);
        left = n_left(h);
        if (left == 0 || clock_ns() >= until) break;
        next = clock_ns() < h->linger_ns && h->linger_ns < until ? h->linger_ns : until;
        at = (struct timespec){.tv_sec = (time_t)(next / 1000000000), .tv_nsec = (long)(next % 1000000000)};
        pthread_cond_timedwait(&h->changed, &h->lock, &at);
    }
    pthread_mutex_unlock(&h->lock);
    return left;
}

/* Hangs up on all connections and waits until no handler owes an answer. */
static void end_requests(struct http *h)
{
    pthread_mutex_lock(&h->lock);
    start_draining(h);
    for (size_t i = 0; i < h->n_slots; i++)
        if (h->conn[i]) conn_hang_up(h->conn[i]);
    while (h->n_held > 0) pthread_cond_wait(&h->changed, &h->lock);
    h->door_stops = true;
    if (h->wake_fd >= 0) door_wake(h);
    pthread_mutex_unlock(&h->lock);
}

/* After the server's thread has ended. */
static void end_connection(struct conn *c)
{
    if (c->req) request_completed(c, false);
    websocket_end(c);
    conn_remove(c);
}

void http_close(struct http *h)
{
    if (!h) return;
    end_requests(h);
    if (h->has_door) pthread_join(h->door, NULL);
    for (size_t i = 0; i < h->n_slots; i++)
        if (h->conn[i]) end_connection(h->conn[i]);
    pthread_mutex_lock(&h->lock); /* threads that gave the last requests back may still be in our functions */
    while (h->n_alive > 0) pthread_cond_wait(&h->changed, &h->lock);
    pthread_mutex_unlock(&h->lock);
    for (int i = 0; h->listener && i < h->c.n_listen; i++) listener_close(&h->listener[i]);
    if (h->epoll_fd >= 0) close(h->epoll_fd);
    if (h->wake_fd >= 0) close(h->wake_fd);
    mem_free(h->listener);
    mem_free(h->proxy);
    mem_free(h->counts);
    mem_free(h->scratch);
    mem_free(h->conn);
    api_keys_deinit(&h->keys);
    tls_cert_free(h->cert);
    pthread_rwlock_destroy(&h->keys_lock);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    mem_free(h);
}
