/* SPDX-License-Identifier: MIT
 *
 * http_request.c: a request from its head to its handler and to its end. The server's thread calls these functions
 * (wire.c).
 *
 *     head: checks -> body, collected or thrown away -> handler -> answered -> completed
 *
 * The checks are made as soon as the head is there (check_head.c). If a request is refused, its body is still read, up
 * to a limit, and thrown away, so that the connection can go on. This is not done when the end of the body is not
 * known.
 *
 * A request gets its line in the log when both sides have let go of it, because a handler may find out what it has cost
 * after the client has left.
 *
 * Bytes that are not HTTP become an empty request, so that they are answered and logged like all others.
 */
#include "server/http/impl.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/os.h"
#include "server/http/route.h"

/* ---- life ---- */

/* The path comes last, because a client may write anything there. */
static void log_access(const struct http_request *r)
{
    char status[16] = "-";
    const char *outcome = r->outcome[0] ? r->outcome : "complete";

    if (!r->is_whole && !r->outcome[0]) outcome = "gone";
    if (r->status) snprintf(status, sizeof status, "%d", r->status);
    log_at(LOG_INFO, "%s %s %s %" PRIu64 " bytes %.3f s %s %s trace %s%s%s %s", r->method[0] ? r->method : "-", status,
           outcome, r->n_sent, 1e-9 * (double)(r->t1_ns - r->t0_ns), r->who.name[0] ? r->who.name : "-", r->id,
           r->trace[0] ? r->trace : "-", r->note[0] ? " " : "", r->note, r->path ? r->path : "-");
}

void request_unref(struct http_request *r)
{
    struct http *h = r->http;
    int left;

    pthread_mutex_lock(&h->lock);
    left = --r->n_refs;
    pthread_mutex_unlock(&h->lock);
    if (left > 0) return;
    log_access(r);
    reply_drop_headers(r);
    if (h->c.ledger) ledger_give(h->c.ledger, r->answer_taken);
    buf_deinit_from(&r->body, h->c.ledger);
    buf_deinit_from(&r->queue, h->c.ledger);
    buf_deinit(&r->answer);
    buf_deinit(&r->label);
    mem_free(r->text);
    mem_free(r->path);
    mem_free(r->query);
    mem_free(r->param);
    mem_free(r->origin);
    mem_free(r);
    pthread_mutex_lock(&h->lock);
    h->n_alive--;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

void request_given_back(struct http_request *r)
{
    r->held = false;
    r->http->n_held--;
    pthread_cond_broadcast(&r->http->changed);
}

/* From now on the handler's side, or a check in its place, owes an answer. */
static void hold(struct http_request *r)
{
    pthread_mutex_lock(&r->http->lock);
    r->n_refs++;
    r->held = true;
    r->http->n_held++;
    pthread_mutex_unlock(&r->http->lock);
}

/* Under the lock. */
static void count(struct http *h, const struct http_request *r)
{
    size_t row = r->route ? (size_t)(r->route - h->c.routes) : (size_t)h->c.n_routes;
    h->counts[row * N_STATUS + reply_status_index(r->status)]++;
}

void request_completed(struct conn *c, bool whole)
{
    struct http_request *r = c->req;

    pthread_mutex_lock(&c->http->lock);
    c->req = NULL;
    c->begun = false;
    conn_wait(c, c->hung_up || c->http->draining ? DUE_NOTHING : DUE_IDLE);
    pthread_mutex_unlock(&c->http->lock);
    request_ended(r, whole);
}

void request_ended(struct http_request *r, bool whole)
{
    struct http *h = r->http;
    bool orphan; /* the body never came, so no handler will answer */

    pthread_mutex_lock(&h->lock);
    r->conn = NULL;
    if (r->held && !r->gone && r->watch.on_hangup) r->watch.on_hangup(r->watch.arg);
    r->gone = true;
    orphan = r->held && !r->in_handler;
    if (orphan) request_given_back(r);
    if (r->running) h->n_running--;
    r->is_whole = whole;
    r->t1_ns = clock_ns();
    count(h, r);
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    if (orphan) request_unref(r);
    request_unref(r);
}

/* ---- from the head to the handler ---- */

static struct http_request *new_request(struct conn *c)
{
    struct http *h = c->http;
    struct http_request *r = mem_calloc(1, sizeof *r);

    if (!r) return NULL;
    *r = (struct http_request){.http = h, .conn = c, .n_refs = 1, .t0_ns = clock_ns()};
    pthread_mutex_lock(&h->lock);
    h->n_alive++;
    snprintf(r->id, sizeof r->id, "req-%016" PRIx64, h->id_base + h->n_requests++);
    pthread_mutex_unlock(&h->lock);
    r->head_minor = 1;
    hold(r);
    return r;
}

struct http_request *request_of_message(struct conn *c, struct buf *message)
{
    struct websocket *w = c->websocket;
    struct http *h = c->http;
    const char *path = w->route->pattern;
    struct http_request *r = new_request(c);

    if (!r) return NULL;
    r->websocket_id = w->id;
    r->path = mem_dup(path, strlen(path));
    r->body = *message;
    *message = (struct buf){0};
    r->who = w->who;
    snprintf(r->method, sizeof r->method, "MESSAGE");
    bool bad = !r->path || buf_printf(&r->label, NULL, "\"request\":\"%s\",", r->id) ||
               buf_reserve_from(&r->queue, h->c.ledger, QUEUE_BYTES - 1, NULL);
    pthread_mutex_lock(&h->lock);
    r->in_handler = r->running = !bad;
    h->n_running += !bad;
    pthread_mutex_unlock(&h->lock);
    if (!bad) return r;
    request_ended(r, false);
    return NULL;
}

static int split_target(struct http_request *r)
{
    const char *target = r->head.target, *question = strchr(target, '?');
    size_t n = question ? (size_t)(question - target) : strlen(target);

    r->path = mem_dup(target, n);
    if (question) r->query = mem_dup(question + 1, strlen(question + 1));
    return r->path && (!question || r->query) ? 0 : -1;
}

int request_begin(struct conn *c, const uint8_t *head, size_t n, int status, const char *why)
{
    struct http_request *r = new_request(c);

    if (!r) return -1;
    pthread_mutex_lock(&c->http->lock);
    c->req = r;
    c->begun = true;
    if (!c->is_short) conn_wait(c, DUE_BODY); /* a short connection has one deadline for everything */
    pthread_mutex_unlock(&c->http->lock);
    if (status == 0) {
        r->text = mem_dup(head, n);
        if (!r->text) return -1;
        status = head_parse(&r->head, r->text, n, &why);
    }
    if (status) {
        request_spoil(r, status, why);
        return 0;
    }
    r->head_minor = r->head.minor;
    snprintf(r->method, sizeof r->method, "%s", r->head.method);
    if (split_target(r)) return -1;
    if (check_headers(r) == CHECK_CLOSE) r->close = true;
    return 0;
}

void request_spoil(struct http_request *r, int status, const char *why)
{
    r->close = true;
    if (r->held) http_error(r, status, NULL, NULL, "%s", why);
    pthread_mutex_lock(&r->http->lock);
    if (r->conn) conn_wait(r->conn, DUE_NOTHING);
    pthread_mutex_unlock(&r->http->lock);
}

int request_body(struct http_request *r, const uint8_t *p, size_t n)
{
    struct http *h = r->http;

    if (!r->held) { /* it was refused, even if the client had left and saw no answer */
        r->n_discarded += n;
        if (r->n_discarded <= DISCARD_BYTES) return 0;
        request_spoil(r, 413, "");
        return -1;
    }
    if (n > h->c.max_body_bytes - r->body.len) {
        http_error(r, 413, NULL, NULL, "a body of more than %zu bytes", h->c.max_body_bytes);
    } else if (buf_add_from(&r->body, h->c.ledger, p, n, NULL)) {
        http_drop_body(r);
        http_set_header(r, "Retry-After", "1");
        http_error(r, 503, NULL, "no_memory", "no memory for the request's body now");
    }
    return 0;
}

/* The head is not needed after the handler. */
static void drop_head(struct http_request *r)
{
    mem_free(r->text);
    r->text = NULL;
    r->head.n = 0;
}

static void call_handler(struct http_request *r)
{
    struct http *h = r->http;
    struct route_match m = route_find(h->c.routes, h->c.n_routes, r->method, r->path);

    if (!m.route) return;
    if (m.route->flags & (HTTP_JSON_BODY | HTTP_STREAM) && /* only these may be answered by streams */
        buf_reserve_from(&r->queue, h->c.ledger, QUEUE_BYTES - 1, NULL)) {
        http_set_header(r, "Retry-After", "1");
        http_error(r, 503, NULL, "no_memory", "no memory for an answer now");
    } else if (m.route->flags & HTTP_WEBSOCKET) {
        websocket_accept(r);
    } else {
        m.route->handler(r, h->ctx);
    }
}

void request_run(struct http_request *r)
{
    struct http *h = r->http;
    bool runs;

    pthread_mutex_lock(&h->lock);
    conn_wait(r->conn, DUE_NOTHING);
    runs = r->held && !r->gone;
    r->in_handler = runs;
    r->running = runs;
    h->n_running += runs;
    pthread_mutex_unlock(&h->lock);
    if (runs) call_handler(r);
    drop_head(r);
}

/* ---- what a handler may ask ---- */

const char *http_method(const struct http_request *r) { return r->method; }
const char *http_path(const struct http_request *r) { return r->path; }
const char *http_param(const struct http_request *r) { return r->param; }
const struct http_identity *http_identity(const struct http_request *r) { return &r->who; }
const char *http_request_id(const struct http_request *r) { return r->id; }

size_t http_connection_bytes(const struct http_request *r)
{
    struct http *h = r->http;
    size_t each = sizeof(struct conn) + sizeof *r + h->c.max_header_bytes + ANSWER_BYTES;

    pthread_mutex_lock(&h->lock);
    each *= (size_t)h->n_conns;
    pthread_mutex_unlock(&h->lock);
    return each;
}

struct http_refused http_refused(const struct http_request *r)
{
    struct http_refused n;

    pthread_mutex_lock(&r->http->lock);
    n = r->http->refused;
    pthread_mutex_unlock(&r->http->lock);
    return n;
}

bool http_count(const struct http_request *r, size_t i, struct http_count *out)
{
    struct http *h = r->http;
    size_t row = i / N_STATUS, n_routes = (size_t)h->c.n_routes;

    if (row > n_routes) return false;
    pthread_mutex_lock(&h->lock);
    *out = (struct http_count){row < n_routes ? &h->c.routes[row] : NULL, reply_status_at(i % N_STATUS), h->counts[i]};
    pthread_mutex_unlock(&h->lock);
    return true;
}

void http_note(struct http_request *r, const char *fmt, ...)
{
    char text[sizeof r->note];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&r->http->lock);
    memcpy(r->note, text, sizeof text);
    pthread_mutex_unlock(&r->http->lock);
}

void http_outcome(struct http_request *r, const char *code)
{
    pthread_mutex_lock(&r->http->lock);
    snprintf(r->outcome, sizeof r->outcome, "%s", code ? code : "refused");
    pthread_mutex_unlock(&r->http->lock);
}

const uint8_t *http_body(const struct http_request *r, size_t *n_bytes)
{
    *n_bytes = r->body.len;
    return r->body.data ? r->body.data : (const uint8_t *)"";
}

void http_drop_body(struct http_request *r) { buf_deinit_from(&r->body, r->http->c.ledger); }

int http_query(const struct http_request *r, const char *name, char *value, size_t cap)
{
    char *copy = r->query ? mem_dup(r->query, strlen(r->query)) : NULL;
    const char *found = copy ? route_query(copy, name) : NULL;
    bool ok = found && strlen(found) < cap;

    if (ok) memcpy(value, found, strlen(found) + 1);
    int rc = found ? HTTP_LONG : HTTP_NO_VALUE;
    if (ok) rc = 0;
    mem_free(copy);
    return rc;
}

const char *http_header(const struct http_request *r, const char *name) { return head_value(&r->head, name); }
