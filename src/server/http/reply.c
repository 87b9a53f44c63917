/* SPDX-License-Identifier: MIT
 *
 * reply.c: answers, whole or in pieces, from any thread.
 *
 * An answer is put into the request, and the connection gets a turn, in which the server's thread sends it. A stream is
 * a queue between two sides that never wait for each other: the writer adds, or is told that there is no room; the
 * reader removes bytes when the socket takes them. Both work under one lock, and each addition gives the connection a
 * turn, so no wake-up is lost.
 *
 * Source: RFC 9110 sections 6.6.1 (Date), 15 (status); RFC 9112 section 7.1 (chunks); the HTML standard, section 9.2
 * (server-sent events); the error object of the OpenAI API.
 */
#include "server/http/impl.h"

#include <assert.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define CHUNK_BYTES     (16u << 10) /* the most bytes of a stream that are sent at once */
#define SMALL_BYTES     8192 /* a smaller whole answer is not counted: errors are sent even when no memory is left */
#define HEARTBEAT_BYTES 256  /* the longest text of a heartbeat */

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
    char raw[1024], message[1024], text[8192]; /* JSON writes a byte as six bytes at most */
    va_list ap;
    size_t n;

    va_start(ap, fmt);
    if (vsnprintf(raw, sizeof raw, fmt, ap) < 0) raw[0] = '\0';
    va_end(ap);
    error_clean(message, sizeof message, raw);
    http_outcome(r, code);
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

void reply_drop_headers(struct http_request *r)
{
    for (; r->n_headers > 0; r->n_headers--) {
        mem_free(r->header[r->n_headers - 1].name);
        mem_free(r->header[r->n_headers - 1].value);
    }
}

static const struct {
    int status;
    const char *text;
} statuses[] = {{0, ""},
                {101, "Switching Protocols"},
                {200, "OK"},
                {204, "No Content"},
                {400, "Bad Request"},
                {401, "Unauthorized"},
                {403, "Forbidden"},
                {404, "Not Found"},
                {405, "Method Not Allowed"},
                {406, "Not Acceptable"},
                {408, "Request Timeout"},
                {410, "Gone"},
                {413, "Content Too Large"},
                {414, "URI Too Long"},
                {415, "Unsupported Media Type"},
                {417, "Expectation Failed"},
                {421, "Misdirected Request"},
                {426, "Upgrade Required"},
                {429, "Too Many Requests"},
                {431, "Request Header Fields Too Large"},
                {500, "Internal Server Error"},
                {501, "Not Implemented"},
                {503, "Service Unavailable"},
                {504, "Gateway Timeout"},
                {505, "HTTP Version Not Supported"}};
#define N_STATUSES (sizeof statuses / sizeof statuses[0])
_Static_assert(N_STATUSES + 1 == N_STATUS, "a row for each status, and one for all others");

size_t reply_status_index(int status)
{
    size_t i = 0;
    while (i < N_STATUSES && statuses[i].status != status) i++;
    return i;
}

int reply_status_at(size_t i) { return i < N_STATUSES ? statuses[i].status : 999; }

const char *reply_reason(int status)
{
    size_t i = reply_status_index(status);
    return i < N_STATUSES ? statuses[i].text : "";
}

/* By hand, because strftime() uses the language of the process. */
static int add_date(struct buf *out)
{
    static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t now = time(NULL);
    struct tm t;

    gmtime_r(&now, &t);
    return buf_printf(out, NULL, "Date: %.3s, %02d %.3s %d %02d:%02d:%02d GMT\r\n", days + 3 * t.tm_wday, t.tm_mday,
                      months + 3 * t.tm_mon, t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

int reply_head(struct buf *out, const struct http_request *r, bool close)
{
    int bad = buf_printf(out, NULL, "HTTP/1.1 %d %s\r\n", r->status, reply_reason(r->status)) || add_date(out);

    if (close) bad |= buf_str(out, "Connection: close\r\n", NULL);
    if (r->type[0]) bad |= buf_printf(out, NULL, "Content-Type: %s\r\n", r->type);
    if (r->streaming && r->head_minor > 0) bad |= buf_str(out, "Transfer-Encoding: chunked\r\n", NULL);
    if (!r->streaming && r->status != 204 && r->status != 101)
        bad |= buf_printf(out, NULL, "Content-Length: %zu\r\n", r->answer.len);
    bad |= buf_printf(out, NULL, "x-request-id: %s\r\n", r->id);
    if (r->origin)
        bad |= buf_printf(out, NULL,
                          "Access-Control-Allow-Origin: %s\r\n"
                          "Access-Control-Expose-Headers: x-request-id, retry-after\r\nVary: Origin\r\n",
                          r->origin);
    for (int i = 0; i < r->n_headers; i++)
        bad |= buf_printf(out, NULL, "%s: %s\r\n", r->header[i].name, r->header[i].value);
    return bad | buf_str(out, "\r\n", NULL) ? -1 : 0;
}

/* The request has an answer now. lost: there was no memory for it, and its client is hung up on. HTTP_GONE: the client
 * has left. */
static int answer(struct http_request *r, int status, const char *type, bool lost)
{
    struct http *h = r->http;
    bool gone;

    pthread_mutex_lock(&h->lock);
    assert(r->held && !r->answered);
    if (lost && r->conn) conn_hang_up(r->conn);
    gone = r->gone;
    if (!gone) {
        r->answered = true;
        r->status = status;
        r->n_sent = r->answer.len;
        snprintf(r->type, sizeof r->type, "%s", type ? type : "");
        conn_poke(r->conn);
    }
    pthread_mutex_unlock(&h->lock);
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
            reply_drop_headers(r); /* they belong to the body that is not sent */
            http_set_header(r, "Retry-After", "1");
            http_error(r, 503, NULL, "no_memory", "no memory for an answer of %zu bytes now", n_bytes);
            return;
        }
        r->answer_taken = n_bytes;
    }
    bool lost = buf_add(&r->answer, body, n_bytes, NULL) != 0;
    answer(r, status, type, lost);
    give_back(r);
}

/* ---- hanging up, heartbeats ---- */

/* Not while the socket is full: the stream waits for the client then, and is not silent. */
void stream_silence(struct http_request *r)
{
    if (r->streaming && !r->websocket_id && r->watch.heartbeat && r->conn && !r->conn->blocked && !r->gone && !r->ended)
        conn_wait(r->conn, DUE_HEARTBEAT);
}

int http_watch(struct http_request *r, const struct http_watch *w)
{
    bool gone;

    pthread_mutex_lock(&r->http->lock);
    gone = r->gone;
    if (!gone) {
        r->watch = *w;
        stream_silence(r);
    }
    pthread_mutex_unlock(&r->http->lock);
    return gone ? HTTP_GONE : HTTP_OK;
}

/* ---- streams ---- */

/* n bytes are sent. A queue that has grown gives its memory back, and a writer that waits for room is told. Under the
 * lock. */
static void remove_sent(struct http_request *r, size_t n)
{
    r->queue_at += n;
    r->n_sent += n;
    if (r->queue_at == r->queue.len) {
        r->queue_at = 0;
        if (r->queue.cap > QUEUE_BYTES) { /* a larger one is freed */
            buf_deinit_from(&r->queue, r->http->c.ledger);
            buf_reserve_from(&r->queue, r->http->c.ledger, QUEUE_BYTES - 1, NULL);
        }
        buf_clear(&r->queue);
    }
    if (r->want_room && r->queue.len - r->queue_at <= r->http->c.max_queue_bytes / 2) {
        r->want_room = false;
        if (r->held && r->watch.on_room) r->watch.on_room(r->watch.arg);
    }
}

enum reply_state reply_next(struct buf *out, struct http_request *r)
{
    size_t n = r->queue.len - r->queue_at;
    bool in_chunks = r->head_minor > 0, bad = false;

    if (r->gone || r->broken) return REPLY_BROKEN;
    if (n == 0 && !r->ended) return REPLY_WAIT;
    if (n == 0) return in_chunks && buf_str(out, "0\r\n\r\n", NULL) ? REPLY_BROKEN : REPLY_DONE;
    if (n > CHUNK_BYTES) n = CHUNK_BYTES;
    if (in_chunks) bad |= buf_printf(out, NULL, "%zx\r\n", n);
    bad |= buf_add(out, r->queue.data + r->queue_at, n, NULL);
    if (in_chunks) bad |= buf_str(out, "\r\n", NULL);
    if (bad) return REPLY_BROKEN;
    remove_sent(r, n);
    return REPLY_MORE;
}

enum reply_state reply_next_frames(struct buf *out, struct http_request *r)
{
    size_t n = r->queue.len - r->queue_at;

    if (n == 0) return r->ended ? REPLY_DONE : REPLY_WAIT;
    if (n > CHUNK_BYTES) n = CHUNK_BYTES;
    if (buf_add(out, r->queue.data + r->queue_at, n, NULL)) return REPLY_BROKEN;
    remove_sent(r, n);
    return REPLY_MORE;
}

int http_stream_open(struct http_request *r, int status, const char *type)
{
    pthread_mutex_lock(&r->http->lock);
    r->streaming = true;
    stream_silence(r);
    pthread_mutex_unlock(&r->http->lock);
    return answer(r, status, type, false);
}

/* Adds to the queue. HTTP_OK: the reader has something to send. Under the lock. */
static int push(struct http_request *r, const void *p, size_t n_bytes)
{
    size_t n = r->queue.len - r->queue_at;

    if (r->gone) return HTTP_GONE;
    if (n > 0 && (n > r->http->c.max_queue_bytes || n_bytes > r->http->c.max_queue_bytes - n)) {
        r->want_room = true;
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

static int write_queue(struct http_request *r, const void *p, size_t n_bytes)
{
    int result;
    bool wake = false;

    pthread_mutex_lock(&r->http->lock);
    assert(r->held && r->streaming && !r->ended);
    result = push(r, p, n_bytes);
    if (result == HTTP_OK) {
        stream_silence(r);
        wake = !r->conn->blocked && conn_queue(r->conn);
    }
    pthread_mutex_unlock(&r->http->lock);
    if (wake) door_wake(r->http); /* after the lock is released, because the server's thread takes it first */
    return result;
}

static int lose(struct http_request *r)
{
    pthread_mutex_lock(&r->http->lock);
    if (r->conn) conn_hang_up(r->conn);
    pthread_mutex_unlock(&r->http->lock);
    return HTTP_GONE;
}

int http_stream_write(struct http_request *r, const void *p, size_t n_bytes)
{
    struct buf frames = {0};
    int result;

    if (!r->websocket_id) return write_queue(r, p, n_bytes);
    if (websocket_frames(&frames, r, p, n_bytes))
        result = lose(r);
    else
        result = frames.len ? write_queue(r, frames.data, frames.len) : HTTP_OK;
    buf_deinit(&frames);
    return result;
}

void stream_heartbeat(struct http_request *r)
{
    char text[HEARTBEAT_BYTES];
    size_t n;

    if (r->ended || r->gone || r->queue.len > r->queue_at) return;
    n = r->watch.heartbeat(r->watch.arg, text, sizeof text);
    assert(n <= sizeof text);
    if (n > 0 && push(r, text, n) == HTTP_OK) conn_poke(r->conn);
}

static void end(struct http_request *r, bool broken)
{
    pthread_mutex_lock(&r->http->lock);
    assert(r->held && r->streaming && !r->ended);
    r->ended = true;
    r->broken = broken;
    if (r->conn) {
        if (r->conn->due == DUE_HEARTBEAT) conn_wait(r->conn, DUE_NOTHING);
        conn_poke(r->conn);
    }
    pthread_mutex_unlock(&r->http->lock);
    give_back(r);
}

void http_stream_end(struct http_request *r) { end(r, false); }
void http_stream_abort(struct http_request *r) { end(r, true); }

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
    if (bad) /* no memory: a client must not take half an event for a whole one */
        result = lose(r);
    else
        result = http_stream_write(r, b.data, b.len);
    buf_deinit(&b);
    return result;
}
