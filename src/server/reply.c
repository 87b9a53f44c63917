/* SPDX-License-Identifier: MIT
 *
 * reply.c: answers, whole or in pieces, from any thread.
 *
 * The answer is left in the request, and the connection, if it was suspended, is resumed; libmicrohttpd's thread then
 * picks it up. A stream is a queue between two sides that never wait for each other: the writer adds, or is told that
 * there is no room; the reader, called when the socket takes bytes, removes, and suspends the connection when there is
 * nothing. Checking, suspending and deciding to resume happen under one lock, so no wake-up is lost.
 *
 * Source: libmicrohttpd's manual (suspended connections, content reader callbacks); the HTML standard, section 9.2
 * (server-sent events); the error object of the OpenAI API.
 */
#include "server/impl.h"

#include <assert.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_BYTES     1024 /* of a stream's response for HTTP/1.0; chunks are made in the connection's own memory */
#define SMALL_BYTES     8192 /* a whole answer of so many is not counted: errors go out when nothing is left */
#define HEARTBEAT_BYTES 256  /* what a heartbeat may say */

/* ---- errors ---- */

static const char *error_type(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

size_t error_json(char *text, size_t cap, int status, const char *param, const char *code, const char *message)
{
    json_t *j = json_pack("{s:{s:s,s:s,s:s?,s:s?}}", "error", "message", message, "type", error_type(status), "param",
                          param, "code", code);
    size_t n = j ? json_dumpb(j, text, cap - 1, JSON_COMPACT) : 0;

    json_decref(j);
    if (n == 0 || n >= cap) /* too long, or not UTF-8 */
        n = (size_t)snprintf(text, cap,
                             "{\"error\":{\"message\":\"(lost)\",\"type\":\"%s\",\"param\":null,\"code\":null}}",
                             error_type(status));
    text[n] = '\0';
    return n;
}

void http_error(struct http_request *r, int status, const char *param, const char *code, const char *fmt, ...)
{
    char raw[1024], message[1024], text[8192]; /* JSON writes a byte as six at most */
    va_list ap;
    size_t n;

    va_start(ap, fmt);
    if (vsnprintf(raw, sizeof raw, fmt, ap) < 0) raw[0] = '\0';
    va_end(ap);
    error_clean(message, sizeof message, raw);
    n = error_json(text, sizeof text, status, param, code, message);
    http_reply(r, status, "application/json", text, n);
}

/* ---- whole answers ---- */

void http_set_header(struct http_request *r, const char *name, const char *value)
{
    assert(r->n_headers < N_REPLY_HEADERS);
    char *n = mem_dup(name, strlen(name)), *v = mem_dup(value, strlen(value));

    if (!n || !v) {
        mem_free(n);
        mem_free(v);
        return;
    }
    r->header[r->n_headers].name = n;
    r->header[r->n_headers++].value = v;
}

static void add_headers(const struct http_request *r, struct MHD_Response *response, const char *type)
{
    if (type) MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "x-request-id", r->id);
    if (r->origin) {
        MHD_add_response_header(response, "Access-Control-Allow-Origin", r->origin);
        MHD_add_response_header(response, "Access-Control-Expose-Headers", "x-request-id, retry-after");
        MHD_add_response_header(response, "Vary", "Origin");
    }
    for (int i = 0; i < r->n_headers; i++) MHD_add_response_header(response, r->header[i].name, r->header[i].value);
}

/* Leaves the response (NULL: there was no memory for it) in the request. Takes it. Returns HTTP_GONE if in vain. */
static int answer(struct http_request *r, struct MHD_Response *response, int status, size_t n_bytes)
{
    struct http *h = r->http;
    int gone;

    pthread_mutex_lock(&h->lock);
    assert(r->held && !r->answered);
    if (!response && r->conn) conn_hang_up(r->conn);
    gone = r->gone;
    if (!gone) {
        r->answered = 1;
        r->status = status;
        r->n_sent = n_bytes;
        r->response = response;
        if (h->draining) MHD_add_response_header(response, "Connection", "close");
        conn_resume(r);
    }
    pthread_mutex_unlock(&h->lock);
    if (gone && response) MHD_destroy_response(response);
    return gone ? HTTP_GONE : HTTP_OK;
}

static void give_back(struct http_request *r)
{
    pthread_mutex_lock(&r->http->lock);
    request_given_back(r);
    pthread_mutex_unlock(&r->http->lock);
    request_unref(r);
}

void http_reply(struct http_request *r, int status, const char *type, const void *body, size_t n_bytes)
{
    struct ledger *l = r->http->c.ledger;

    if (l && n_bytes > SMALL_BYTES) {
        if (ledger_take(l, n_bytes, "an answer", NULL)) {
            http_set_header(r, "Retry-After", "1");
            http_error(r, 503, NULL, "no_memory", "no memory for an answer of %zu bytes now", n_bytes);
            return;
        }
        r->answer_taken = n_bytes;
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(n_bytes, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);

    if (response) add_headers(r, response, type);
    answer(r, response, status, n_bytes);
    give_back(r);
}

/* ---- hanging up, heartbeats ---- */

/* Silence is measured from now on. Under the lock. */
static void listen_for_silence(struct http_request *r)
{
    if (r->streaming && r->watch.heartbeat && r->conn && !r->gone && !r->ended) conn_wait(r->conn, DUE_HEARTBEAT);
}

int http_watch(struct http_request *r, const struct http_watch *w)
{
    int gone;

    pthread_mutex_lock(&r->http->lock);
    gone = r->gone;
    if (!gone) {
        r->watch = *w;
        listen_for_silence(r);
    }
    pthread_mutex_unlock(&r->http->lock);
    return gone ? HTTP_GONE : HTTP_OK;
}

/* ---- streams ---- */

/* libmicrohttpd wants up to max bytes. */
static ssize_t stream_read(void *cls, uint64_t pos, char *out, size_t max)
{
    struct http_request *r = cls;
    size_t n;
    ssize_t result;

    (void)pos;
    pthread_mutex_lock(&r->http->lock);
    n = r->queue.len - r->queue_at;
    if (r->gone) {
        result = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (n > 0) {
        if (n > max) n = max;
        memcpy(out, r->queue.data + r->queue_at, n);
        r->queue_at += n;
        r->n_sent += n;
        result = (ssize_t)n;
        if (r->queue_at == r->queue.len) {
            r->queue_at = 0;
            if (r->queue.cap > QUEUE_BYTES) { /* a larger one is freed */
                buf_deinit_from(&r->queue, r->http->c.ledger);
                buf_reserve_from(&r->queue, r->http->c.ledger, QUEUE_BYTES - 1, NULL);
            }
            buf_clear(&r->queue);
        }
        if (r->want_room && r->queue.len - r->queue_at <= r->http->c.max_queue_bytes / 2) {
            r->want_room = 0;
            if (r->held && r->watch.on_room) r->watch.on_room(r->watch.arg);
        }
    } else if (r->ended) {
        result = r->broken ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        r->suspended = 1;
        MHD_suspend_connection(r->mhd);
        result = 0;
    }
    pthread_mutex_unlock(&r->http->lock);
    return result;
}

static void stream_freed(void *cls) { request_unref(cls); }

int http_stream_open(struct http_request *r, int status, const char *type)
{
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, stream_read, r, stream_freed);

    pthread_mutex_lock(&r->http->lock);
    r->n_refs += response != NULL;
    r->streaming = 1;
    listen_for_silence(r);
    pthread_mutex_unlock(&r->http->lock);
    if (response) add_headers(r, response, type);
    return answer(r, response, status, 0);
}

/* Under the lock. Adds to the queue. HTTP_OK: the reader is to be resumed. */
static int push(struct http_request *r, const void *p, size_t n_bytes)
{
    size_t n = r->queue.len - r->queue_at;

    if (r->gone) return HTTP_GONE;
    if (n > 0 && (n > r->http->c.max_queue_bytes || n_bytes > r->http->c.max_queue_bytes - n)) {
        r->want_room = 1;
        return HTTP_FULL;
    }
    if (r->queue_at > n) {
        memcpy(r->queue.data, r->queue.data + r->queue_at, n);
        r->queue.len = n;
        r->queue_at = 0;
    }
    if (buf_add_from(&r->queue, r->http->c.ledger, p, n_bytes, NULL)) {
        conn_hang_up(r->conn);
        return HTTP_GONE;
    }
    return HTTP_OK;
}

int http_stream_write(struct http_request *r, const void *p, size_t n_bytes)
{
    struct MHD_Connection *sleeper = NULL;
    int result;

    pthread_mutex_lock(&r->http->lock);
    assert(r->held && r->streaming && !r->ended);
    result = push(r, p, n_bytes);
    if (result == HTTP_OK) {
        listen_for_silence(r);
        if (r->suspended) sleeper = r->mhd;
        r->suspended = 0;
    }
    pthread_mutex_unlock(&r->http->lock);
    /* Not under the lock, which the reader takes first of all. Until it is resumed nobody frees or suspends it. */
    if (sleeper) MHD_resume_connection(sleeper);
    return result;
}

void stream_heartbeat(struct http_request *r)
{
    char text[HEARTBEAT_BYTES];
    size_t n;

    if (r->ended || r->gone || r->queue.len > r->queue_at) return;
    n = r->watch.heartbeat(r->watch.arg, text, sizeof text);
    assert(n <= sizeof text);
    if (n > 0 && push(r, text, n) == HTTP_OK) conn_resume(r);
}

static void end(struct http_request *r, int broken)
{
    pthread_mutex_lock(&r->http->lock);
    assert(r->held && r->streaming && !r->ended);
    r->ended = 1;
    r->broken = broken;
    if (r->conn) conn_wait(r->conn, DUE_NOTHING);
    conn_resume(r);
    pthread_mutex_unlock(&r->http->lock);
    give_back(r);
}

void http_stream_end(struct http_request *r) { end(r, 0); }
void http_stream_abort(struct http_request *r) { end(r, 1); }

int http_sse_event(struct http_request *r, const char *event, const char *data)
{
    struct buf b = {0};
    int result, bad = event ? buf_printf(&b, NULL, "event: %s\n", event) : 0;

    for (const char *p = data;; p++) {
        size_t n = strcspn(p, "\r\n");
        bad |= buf_printf(&b, NULL, "data: %.*s\n", (int)n, p);
        p += n;
        if (*p == '\0') break;
        if (p[0] == '\r' && p[1] == '\n') p++;
    }
    bad |= buf_str(&b, "\n", NULL);
    if (bad) { /* half an event would be a lie */
        pthread_mutex_lock(&r->http->lock);
        if (r->conn) conn_hang_up(r->conn);
        pthread_mutex_unlock(&r->http->lock);
        result = HTTP_GONE;
    } else {
        result = http_stream_write(r, b.data, b.len);
    }
    buf_deinit(&b);
    return result;
}
