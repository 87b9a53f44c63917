/* SPDX-License-Identifier: MIT
 *
 * wire.c: the turn of a connection. wire_bytes.c moves its bytes.
 *
 *     first byte -> handshake -> head -> (hold) -> body -> handler -> answer -> head of the next request
 *                                                                            |-> linger: nothing is read any more
 *                                                                            \-> websocket (websocket.c) -> linger
 *
 * A turn goes on until the socket has no more bytes, takes no more, or the answer is not there yet. The event that ends
 * such a wait brings another turn. While a request is answered, nothing is read: the next request waits in the socket.
 *
 * After an error in the client's bytes nobody knows where its next request begins, so the answer is the last one of the
 * connection. Then our side is closed, and further bytes are read for a while and thrown away, because closing a socket
 * with unread bytes makes the client lose the answer.
 *
 * Source: RFC 9112 sections 2.2, 6.3, 9.6.
 */
#include "server/http/impl.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define STEPS_A_TURN 16
#define SMALL_BYTES  (8u << 10) /* up to so many bytes of an answer are sent together with its head */
#define LINGER_BYTES DISCARD_BYTES
#define KEEP_OUT     4096 /* a buffer up to this size is kept for the next bytes to send */

/* ---- the head ---- */

/* Goes on to the body. */
static enum turn_end begin_body(struct conn *c)
{
    c->state = c->body_left ? AT_BODY : AT_HANDLER;
    if (c->state == AT_BODY && c->req->expects && c->req->held && c->in.len == 0 &&
        buf_str(&c->out, "HTTP/1.1 100 Continue\r\n\r\n", NULL))
        return CLOSE;
    return GO;
}

/* Whether the request asks whether the program lives. That is answered before the program is ready. */
static bool asks_for_life(const struct http_request *r)
{
    bool reads = strcmp(r->method, "GET") == 0 || strcmp(r->method, "HEAD") == 0;
    return reads && r->route && r->route->flags & HTTP_PUBLIC;
}

/* Before the program is ready all other requests wait, without a deadline. */
static enum turn_end at_hold(struct conn *c)
{
    struct http *h = c->http;
    struct http_request *r = c->req;

    pthread_mutex_lock(&h->lock);
    bool is_ready = h->is_ready, waits = !is_ready && !asks_for_life(r);
    if (!c->is_short && (waits || c->due == DUE_NOTHING)) conn_wait(c, waits ? DUE_NOTHING : DUE_BODY);
    pthread_mutex_unlock(&h->lock);
    if (waits) return WAIT;
    if (is_ready) return begin_body(c);
    http_set_header(r, "Retry-After", "1");
    http_error(r, 503, NULL, "starting", "the server is starting: it loads its model");
    return begin_body(c);
}

static enum turn_end begin(struct conn *c, size_t n, int status, const char *why)
{
    size_t n_unread;
    int r = request_begin(c, wire_unread(c, &n_unread), n, status, why);

    c->in_at += n;
    c->scanned = 0;
    c->skipped = false;
    wire_drop_read(c);
    if (r < 0) return CLOSE;
    c->chunks = (struct chunks){0};
    c->body_left = c->req->n_body;
    if (!c->req->held && !c->req->close) return begin_body(c);
    c->state = c->req->held ? AT_HOLD : AT_ANSWER;
    return GO;
}

static enum turn_end more_head(struct conn *c, size_t n)
{
    size_t room = c->http->c.max_header_bytes - n;
    ssize_t k = wire_receive(c, c->http->scratch, room < SCRATCH_BYTES ? room : SCRATCH_BYTES);

    if (k <= 0) return wire_without_bytes(k);
    wire_drop_read(c);
    return buf_add(&c->in, c->http->scratch, (size_t)k, NULL) ? CLOSE : GO;
}

/* The first byte of a request is there: the deadline of its head begins. */
static void begin_waiting(struct conn *c)
{
    pthread_mutex_lock(&c->http->lock);
    c->begun = true;
    if (c->due == DUE_IDLE) conn_wait(c, DUE_HEADER);
    pthread_mutex_unlock(&c->http->lock);
}

static enum turn_end at_head(struct conn *c)
{
    size_t n;
    const uint8_t *p = wire_unread(c, &n);
    long len;

    if (n == 0) return more_head(c, 0);
    if (!c->skipped && n >= 2 && memcmp(p, "\r\n", 2) == 0) {
        c->in_at += 2;
        c->scanned = 0;
        c->skipped = true;
        return GO;
    }
    if (!c->begun) begin_waiting(c);
    len = head_scan(p, n, &c->scanned);
    if (len > 0 && c->is_misled)
        return begin(c, n, 400, "plain HTTP was sent to a port for TLS: use https:// instead of http://");
    if (len > 0) return begin(c, (size_t)len, 0, NULL);
    if (len < 0)
        return begin(c, n, 400, "the request's head has a control byte, or a line that does not end with CR and LF");
    if (n < c->http->c.max_header_bytes) return more_head(c, n);
    return memchr(p, '\n', n) ? begin(c, n, 431, "the request's head is too large")
                              : begin(c, n, 414, "the request's target is too long");
}

/* ---- the body ---- */

/* Takes bytes of the body. Returns their number; -1 when the answer has to be the last one. */
static long take_chunks(struct conn *c, const uint8_t *p, size_t n)
{
    size_t used = 0;

    while (used < n && !chunks_done(&c->chunks)) {
        const uint8_t *piece = NULL;
        size_t n_piece;
        long k = chunks_read(&c->chunks, p + used, n - used, &piece, &n_piece);
        if (k < 0) request_spoil(c->req, 400, "a chunk of the request's body is malformed");
        if (k < 0 || (n_piece > 0 && request_body(c->req, piece, n_piece))) return -1;
        used += (size_t)k;
    }
    return (long)used;
}

static long take(struct conn *c, const uint8_t *p, size_t n)
{
    if (c->body_left < 0) return take_chunks(c, p, n);
    if ((int64_t)n > c->body_left) n = (size_t)c->body_left;
    c->body_left -= (int64_t)n;
    return request_body(c->req, p, n) ? -1 : (long)n;
}

/* Reads the bytes in the buffer before those in the socket. If the body's length is known, it takes no more than that
 * from the socket. */
static enum turn_end at_body(struct conn *c)
{
    size_t n, cap = c->http->c.max_header_bytes;
    const uint8_t *p = wire_unread(c, &n);
    enum turn_end t = wire_flush(c);
    long used;

    if (t != GO) return t;
    if (n == 0) {
        if (c->body_left > 0 || cap > SCRATCH_BYTES) cap = SCRATCH_BYTES;
        if (c->body_left > 0 && (int64_t)cap > c->body_left) cap = (size_t)c->body_left;
        ssize_t k = wire_receive(c, c->http->scratch, cap);
        if (k <= 0) return wire_without_bytes(k);
        n = (size_t)k;
        p = c->http->scratch;
    }
    used = take(c, p, n);
    if (used < 0) {
        c->state = AT_ANSWER;
    } else if (p == c->http->scratch) {
        if ((size_t)used < n && buf_add(&c->in, p + used, n - (size_t)used, NULL)) return CLOSE;
    } else {
        c->in_at += (size_t)used;
        wire_drop_read(c);
    }
    if (used >= 0 && (c->body_left == 0 || chunks_done(&c->chunks))) c->state = AT_HANDLER;
    return GO;
}

static enum turn_end at_handler(struct conn *c)
{
    c->state = AT_ANSWER;
    request_run(c->req);
    return GO;
}

/* ---- the answer ---- */

/* While a body is read, its own deadline stays: only "100 Continue" can be on its way then. If that deadline passes,
 * the refusal waits for the same full socket, and needs a deadline. */
static void set_blocked(struct conn *c, bool blocked, bool progress)
{
    if (!blocked && !c->blocked) return;
    pthread_mutex_lock(&c->http->lock);
    if (blocked && (progress || !c->blocked || c->due == DUE_NOTHING) && c->state != AT_BODY) conn_wait(c, DUE_SEND);
    if (!blocked && c->due == DUE_SEND) conn_wait(c, c->state == AT_WEBSOCKET ? websocket_due(c) : DUE_NOTHING);
    c->blocked = blocked;
    if (!blocked && c->req) stream_silence(c->req);
    pthread_mutex_unlock(&c->http->lock);
}

/* The bytes to send next: those of the buffer, then the rest of the whole answer. */
static size_t unsent(const struct conn *c, const uint8_t **p)
{
    const struct http_request *r = c->req;

    if (c->out.len > c->out_at) {
        *p = c->out.data + c->out_at;
        return c->out.len - c->out_at;
    }
    if (!r || !r->head_sent || r->streaming || r->answer.len == c->body_at) return 0;
    *p = r->answer.data + c->body_at;
    return r->answer.len - c->body_at;
}

enum turn_end wire_flush(struct conn *c)
{
    const uint8_t *p;
    size_t n;
    bool progress = false;

    while ((n = unsent(c, &p)) > 0) {
        ssize_t k = wire_transmit(c, p, n);
        if (k < 0) return CLOSE;
        if (k == 0) {
            set_blocked(c, true, progress);
            return WAIT;
        }
        progress = true;
        *(c->out.len > c->out_at ? &c->out_at : &c->body_at) += (size_t)k;
    }
    set_blocked(c, false, progress);
    c->out_at = 0;
    if (c->out.cap > KEEP_OUT) buf_deinit(&c->out);
    buf_clear(&c->out);
    return GO;
}

static enum turn_end start_answer(struct conn *c, struct http_request *r, bool close)
{
    bool is_head = strcmp(r->method, "HEAD") == 0;

    r->close = close;
    if (reply_head(&c->out, r, close)) return CLOSE;
    r->head_sent = true;
    c->body_at = 0;
    if (is_head || r->streaming) {
        c->body_at = r->answer.len;
    } else if (r->answer.len <= SMALL_BYTES) {
        if (r->answer.len > 0 && buf_add(&c->out, r->answer.data, r->answer.len, NULL)) return CLOSE;
        c->body_at = r->answer.len;
    }
    r->ended_sent = is_head;
    return GO;
}

void wire_end(struct conn *c)
{
    if (c->tls) gnutls_bye(c->tls, GNUTLS_SHUT_WR);
    shutdown(c->fd, SHUT_WR);
}

enum turn_end wire_linger(struct conn *c)
{
    pthread_mutex_lock(&c->http->lock);
    conn_wait(c, DUE_LINGER);
    pthread_mutex_unlock(&c->http->lock);
    buf_deinit(&c->in);
    c->in_at = 0;
    c->state = AT_LINGER;
    return GO;
}

static enum turn_end end_answer(struct conn *c)
{
    bool close;

    pthread_mutex_lock(&c->http->lock);
    close = c->req->close || c->http->draining;
    pthread_mutex_unlock(&c->http->lock);
    if (close) wire_end(c); /* before it is completed, because a drain hangs up then */
    request_completed(c, true);
    if (close) return wire_linger(c);
    c->state = c->websocket ? AT_WEBSOCKET : AT_HEAD;
    return GO;
}

/* Sends everything that was made, and then makes more. */
static enum turn_end at_answer(struct conn *c)
{
    struct http_request *r = c->req;
    struct http *h = c->http;
    enum reply_state more = REPLY_DONE;
    bool answered, broken, close;
    enum turn_end t;

    pthread_mutex_lock(&h->lock);
    answered = r->answered;
    broken = r->broken;
    close = r->close || h->draining;
    pthread_mutex_unlock(&h->lock);
    if (broken && c->blocked) return CLOSE;
    t = wire_flush(c);
    if (t != GO) return t;
    if (!answered) return WAIT;
    if (!r->head_sent) return start_answer(c, r, close);
    if (r->ended_sent || !r->streaming) return end_answer(c);
    pthread_mutex_lock(&h->lock);
    more = reply_next(&c->out, r);
    pthread_mutex_unlock(&h->lock);
    r->ended_sent = more == REPLY_DONE;
    if (more == REPLY_BROKEN &&
        r->head_minor == 0) /* without chunks only a reset tells a broken stream from a complete one */
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    if (more == REPLY_BROKEN) return CLOSE;
    return more == REPLY_WAIT ? WAIT : GO;
}

static enum turn_end at_linger(struct conn *c)
{
    ssize_t k = recv(c->fd, c->http->scratch, SCRATCH_BYTES, 0);

    if (k < 0 && errno == EAGAIN) return WAIT;
    if (k <= 0) return CLOSE;
    c->n_lingered += (size_t)k;
    return c->n_lingered > LINGER_BYTES ? CLOSE : GO;
}

/* ---- the turn ---- */

static enum turn_end too_late(struct conn *c)
{
    enum due_kind late = c->late;

    c->late = DUE_NOTHING;
    if ((late == DUE_HEADER || late == DUE_SHORT) && c->state == AT_HEAD)
        return begin(c, c->in.len - c->in_at, 408, "the request's header took too long");
    if (c->state == AT_WEBSOCKET) return websocket_late(c, late);
    if (late != DUE_BODY) return CLOSE;
    request_spoil(c->req, 408, "the request's body took too long");
    c->state = AT_ANSWER;
    return GO;
}

static void end(struct conn *c)
{
    struct http *h = c->http;

    if (c->req) request_completed(c, false);
    websocket_end(c);
    pthread_mutex_lock(&h->lock);
    conn_remove(c);
    if (h->draining) pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

void wire_turn(struct conn *c)
{
    static enum turn_end (*const step[])(struct conn *) = {
        [AT_FIRST] = wire_first_byte, [AT_HANDSHAKE] = wire_handshake,
        [AT_HEAD] = at_head,          [AT_HOLD] = at_hold,
        [AT_BODY] = at_body,          [AT_HANDLER] = at_handler,
        [AT_ANSWER] = at_answer,      [AT_WEBSOCKET] = websocket_turn,
        [AT_LINGER] = at_linger,
    };
    enum turn_end t = GO;

    pthread_mutex_lock(&c->http->lock);
    if (c->hung_up) t = CLOSE;
    pthread_mutex_unlock(&c->http->lock);
    if (t == GO && c->late != DUE_NOTHING) t = too_late(c);
    for (int i = 0; i < STEPS_A_TURN && t == GO; i++) t = step[c->state](c);
    if (t == CLOSE) {
        end(c);
    } else if (t == GO) {
        pthread_mutex_lock(&c->http->lock);
        conn_poke(c);
        pthread_mutex_unlock(&c->http->lock);
    }
}
