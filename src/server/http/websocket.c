/* SPDX-License-Identifier: MIT
 *
 * websocket.c: a connection that has become a WebSocket (ws_open.c). Each text message is a request of its own (http.h
 * says what a handler sees of it), and several may be under way.
 *
 * A step of a turn sends before it reads. While the socket is full, messages are still read, because one of them may
 * cancel what fills it. But this ends when one more than may be under way has come, so what a client can cause has a
 * bound even if it takes nothing.
 *
 * The queue of a request holds whole frames, but is sent in smaller pieces. So once a request's bytes are on their way,
 * those of others, pongs and the close frame wait until its queue is empty. Then it is the turn of the next request.
 *
 * A close frame, from either side, is the end: requests under way are ended, ours is sent, and then the connection
 * lingers until the client has closed it too. If nothing comes for the idle time, a ping is sent; if nothing comes for
 * that time again, the connection is closed. A message has the time of a body.
 *
 * Source: RFC 6455 sections 5.5 (control frames), 7 (closing).
 */
#include "server/http/impl.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define MOST_REQUESTS 16 /* of a connection, under way or with an answer to be sent */

/* ---- messages that are sent ---- */

int http_set_label(struct http_request *r, const char *name, const char *value)
{
    char text[1024];
    if (!r->websocket_id) return 0;
    json_t *j = json_pack("{s:s}", name, value);
    size_t n = j ? json_dumpb(j, text, sizeof text, JSON_COMPACT) : 0;

    json_decref(j);
    if (n < 2 || n > sizeof text) return -1;
    return buf_printf(&r->label, NULL, "%.*s,", (int)n - 2, text + 1);
}

uint64_t http_websocket_id(const struct http_request *r) { return r->websocket_id; }

/* Adds a frame with a JSON object, after whose bracket the members `more` and the label are inserted; each ends with a
 * comma. */
static int add_object(struct buf *out, const struct http_request *r, const char *more, const char *json, size_t n)
{
    uint8_t head[FRAME_HEAD_BYTES];
    bool is_empty = n == 2;
    size_t n_label = r->label.len - is_empty;

    size_t n_head = frame_head(head, FRAME_TEXT, n + strlen(more) + n_label);
    return buf_add(out, head, n_head, NULL) || buf_str(out, "{", NULL) || buf_str(out, more, NULL) ||
           buf_add(out, r->label.data, n_label, NULL) || buf_add(out, json + 1, n - 1, NULL);
}

int websocket_frames(struct buf *out, const struct http_request *r, const void *p, size_t n)
{
    const char *at = p, *end = at + n;
    int bad = 0;

    while (at < end && !bad) {
        const char *lf = memchr(at, '\n', (size_t)(end - at));
        size_t len = lf ? (size_t)(lf - at) : (size_t)(end - at);
        if (len > 6 && memcmp(at, "data: ", 6) == 0) {
            if (at[6] == '{')
                bad = add_object(out, r, "", at + 6, len - 6);
            else
                bad = add_object(out, r, "\"type\":\"done\",", "{}", 2);
        }
        at += len + 1;
    }
    return bad;
}

static int add_whole(struct buf *out, const struct http_request *r)
{
    char more[48] = "";

    if (r->answer.len < 2 || r->status == 204) return 0;
    if (r->status >= 400) snprintf(more, sizeof more, "\"type\":\"error\",\"status\":%d,", r->status);
    return add_object(out, r, more, (char *)r->answer.data, r->answer.len);
}

static int add_control(struct buf *out, enum frame_opcode opcode, const uint8_t *p, size_t n)
{
    uint8_t head[FRAME_HEAD_BYTES];

    return buf_add(out, head, frame_head(head, opcode, n), NULL) || buf_add(out, p, n, NULL);
}

/* ---- requests under way ---- */

static void unlink_request(struct websocket *w, struct http_request *r)
{
    struct http_request **at = &w->first;

    while (*at != r) at = &(*at)->next_message;
    *at = r->next_message;
    r->next_message = NULL;
}

static void append_request(struct websocket *w, struct http_request *r)
{
    struct http_request **at = &w->first;

    while (*at) at = &(*at)->next_message;
    *at = r;
}

static void end_request(struct conn *c, struct http_request *r, bool whole)
{
    struct websocket *w = c->websocket;

    pthread_mutex_lock(&c->http->lock);
    unlink_request(w, r);
    w->n_requests--;
    pthread_mutex_unlock(&c->http->lock);
    if (w->sending == r) w->sending = NULL;
    request_ended(r, whole);
}

void websocket_end(struct conn *c)
{
    while (c->websocket && c->websocket->first) end_request(c, c->websocket->first, false);
}

void websocket_finish(struct conn *c, int code)
{
    if (!c->websocket->end_code) c->websocket->end_code = code;
    conn_poke(c);
}

/* ---- closing ---- */

static enum turn_end start_close(struct conn *c, int code)
{
    struct websocket *w = c->websocket;

    w->close_code = code;
    pthread_mutex_lock(&c->http->lock);
    for (struct http_request *r = w->first; r; r = r->next_message) {
        if (!r->gone && r->held && r->watch.on_hangup) r->watch.on_hangup(r->watch.arg);
        r->gone = true;
    }
    pthread_mutex_unlock(&c->http->lock);
    return GO;
}

/* Sends the close frame, and then nothing more. */
static enum turn_end send_close(struct conn *c)
{
    struct websocket *w = c->websocket;
    const uint8_t code[2] = {(uint8_t)(w->close_code >> 8), (uint8_t)w->close_code};

    websocket_end(c);
    if (add_control(&c->out, FRAME_CLOSE, code, 2)) return CLOSE;
    if (wire_flush(c) != GO) return CLOSE; /* a client that takes nothing is not waited for */
    wire_end(c);
    pthread_mutex_lock(&c->http->lock);
    w->closed = true;
    if (c->http->draining) pthread_cond_broadcast(&c->http->changed);
    pthread_mutex_unlock(&c->http->lock);
    return wire_linger(c);
}

/* ---- sending ---- */

/* NEXT_AGAIN: something is to be sent, or others are next. */
enum next { NEXT_NONE, NEXT_AGAIN, NEXT_ENDED, NEXT_FAILED };

/* Makes the next bytes of a request's answer. Under the lock. */
static enum next make_next(struct conn *c, struct http_request *r)
{
    if (r->broken) return NEXT_FAILED;
    if (!r->answered) return NEXT_NONE;
    if (!r->streaming) return add_whole(&c->out, r) ? NEXT_FAILED : NEXT_ENDED;
    switch (reply_next_frames(&c->out, r)) {
    case REPLY_MORE: return NEXT_AGAIN;
    case REPLY_WAIT: return NEXT_NONE;
    case REPLY_DONE: return NEXT_ENDED;
    default: return NEXT_FAILED;
    }
}

/* Makes the next bytes of the request whose turn it is. Under the lock. */
static enum next go_on(struct conn *c)
{
    struct websocket *w = c->websocket;
    struct http_request *r = w->sending;
    enum next n = make_next(c, r);

    if (n != NEXT_NONE) return n;
    unlink_request(w, r);
    append_request(w, r);
    w->sending = NULL;
    return NEXT_AGAIN;
}

/* Finds a request with something to send, and makes its first bytes. Under the lock. */
static enum next begin_next(struct conn *c)
{
    struct websocket *w = c->websocket;
    enum next n = NEXT_NONE;

    for (struct http_request *r = w->first; r && n == NEXT_NONE; r = r->next_message) {
        n = make_next(c, r);
        if (n != NEXT_NONE) w->sending = r;
    }
    return n;
}

/* Makes the next bytes to send. WAIT: there are none. */
static enum turn_end send_some(struct conn *c)
{
    struct websocket *w = c->websocket;
    bool began = w->sending == NULL;

    if (began && w->close_code) return send_close(c);
    if (began && w->owes_pong) {
        w->owes_pong = false;
        return add_control(&c->out, FRAME_PONG, w->pong, w->n_pong) ? CLOSE : GO;
    }
    if (began && w->owes_ping) {
        w->owes_ping = false;
        return add_control(&c->out, FRAME_PING, w->pong, 0) ? CLOSE : GO;
    }
    pthread_mutex_lock(&c->http->lock);
    enum next n = began ? begin_next(c) : go_on(c);
    bool all_done = w->end_code && w->n_requests == 0;
    pthread_mutex_unlock(&c->http->lock);
    if (n == NEXT_ENDED) end_request(c, w->sending, true);
    if (n == NEXT_FAILED && !began) return CLOSE; /* in the middle of a frame */
    if (n == NEXT_FAILED) w->sending = NULL;
    if (n == NEXT_FAILED) return start_close(c, CLOSE_FAILED);
    if (n == NEXT_NONE && all_done) return start_close(c, w->end_code);
    return n == NEXT_NONE ? WAIT : GO;
}

/* ---- reading ---- */

/* A whole message has come. */
static enum turn_end take_message(struct conn *c)
{
    struct websocket *w = c->websocket;
    struct http *h = c->http;
    struct http_request *r = request_of_message(c, &w->message);
    bool ends, full;

    if (!r) return start_close(c, CLOSE_BUSY);
    pthread_mutex_lock(&h->lock);
    append_request(w, r);
    full = w->n_requests++ >= MOST_REQUESTS;
    ends = w->end_code != 0;
    pthread_mutex_unlock(&h->lock);
    if (ends)
        http_error(r, 503, NULL, "stopping", "this connection is about to be closed");
    else if (full)
        http_error(r, 429, NULL, "too_many_requests", "a WebSocket may have %d requests at a time", MOST_REQUESTS);
    else
        w->route->handler(r, h->ctx);
    return GO;
}

static enum turn_end take_piece(struct conn *c, const struct frame_piece *piece)
{
    struct websocket *w = c->websocket;

    switch (piece->opcode) {
    case FRAME_TEXT:
        if (buf_add_from(&w->message, c->http->c.ledger, piece->p, piece->n, NULL)) return start_close(c, CLOSE_BUSY);
        return piece->is_end ? take_message(c) : GO;
    case FRAME_PING:
        w->owes_pong = true; /* for the last of several pings */
        w->n_pong = (uint8_t)piece->n;
        memcpy(w->pong, piece->p, piece->n);
        return GO;
    case FRAME_CLOSE: return start_close(c, frame_close_code(piece->p, piece->n));
    default: return GO; /* a pong */
    }
}

enum due_kind websocket_due(const struct conn *c) { return c->websocket->frames.in_message ? DUE_BODY : DUE_IDLE; }

/* Starts the deadline that it has now. While the socket is full, that of sending goes on. */
static void await(struct conn *c)
{
    pthread_mutex_lock(&c->http->lock);
    if (!c->blocked) conn_wait(c, websocket_due(c));
    pthread_mutex_unlock(&c->http->lock);
}

static enum turn_end read_some(struct conn *c)
{
    struct websocket *w = c->websocket;
    struct frame_piece piece;
    uint8_t *p;
    size_t n, most = c->http->c.max_header_bytes; /* of what follows a payload, so much is kept at most */
    bool had_begun = w->frames.in_message;
    enum turn_end t;

    if (w->frames.left > most) most = w->frames.left < SCRATCH_BYTES ? (size_t)w->frames.left : SCRATCH_BYTES;
    t = wire_read(c, most, &p, &n);

    if (t != GO) return t;
    w->is_silent = false;
    long used = frames_read(&w->frames, p, n, &piece);
    if (used < 0) return start_close(c, (int)-used);
    if (w->frames.in_message != had_begun) await(c);
    t = piece.is_there ? take_piece(c, &piece) : GO;
    return wire_used(c, p, n, (size_t)used) == GO ? t : CLOSE;
}

enum turn_end websocket_turn(struct conn *c)
{
    struct websocket *w = c->websocket;
    bool broken = false, full;

    pthread_mutex_lock(&c->http->lock);
    full = w->n_requests > MOST_REQUESTS;
    for (struct http_request *r = w->first; r && c->blocked; r = r->next_message) broken |= r->broken;
    pthread_mutex_unlock(&c->http->lock);
    if (broken) return CLOSE;
    enum turn_end t = wire_flush(c);
    if (t == GO) t = send_some(c);
    if (t != WAIT || w->close_code || (full && c->out.len > c->out_at)) return t;
    return read_some(c);
}

enum turn_end websocket_late(struct conn *c, enum due_kind kind)
{
    struct websocket *w = c->websocket;

    if (kind == DUE_BODY) return start_close(c, CLOSE_TOO_SLOW);
    if (kind != DUE_IDLE || w->is_silent) return CLOSE;
    w->is_silent = w->owes_ping = true;
    await(c);
    return GO;
}
