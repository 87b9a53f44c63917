/* SPDX-License-Identifier: MIT
 *
 * request.c: libmicrohttpd's callbacks: from the first line of a request to its handler, and to its end.
 *
 *     target -> headers: checks -> body, collected or thrown away -> handler -> suspended until answered -> completed
 *
 * The checks are made as soon as the headers are there, in this order: is it well-formed and for us (Host), may this
 * web page ask (Origin), who is it (keys), is there such a thing (route), does the body suit. A refused request's body
 * is still read, up to a limit, and thrown away: closing a socket with unread bytes in it makes the client lose the
 * answer.
 *
 * Two lengths, or a length and chunks, are refused although they could be read: proxies disagree about what they mean,
 * and requests are smuggled through the difference (RFC 9112 section 6.3).
 *
 * What the parser itself refuses (malformed lines, headers beyond the memory of a connection) is answered by
 * libmicrohttpd, not in JSON.
 */
#include "server/impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/os.h"
#include "server/route.h"

enum stage { AT_HEADERS, AT_BODY, AT_HANDLER };

/* ---- life ---- */

void request_unref(struct http_request *r)
{
    struct http *h = r->http;
    int left;

    pthread_mutex_lock(&h->lock);
    left = --r->n_refs;
    pthread_mutex_unlock(&h->lock);
    if (left > 0) return;
    if (r->response) MHD_destroy_response(r->response);
    for (int i = 0; i < r->n_headers; i++) {
        mem_free(r->header[i].name);
        mem_free(r->header[i].value);
    }
    if (h->c.ledger) ledger_give(h->c.ledger, r->answer_taken);
    buf_deinit_from(&r->body, h->c.ledger);
    buf_deinit_from(&r->queue, h->c.ledger);
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
    r->held = 0;
    r->http->n_held--;
    pthread_cond_broadcast(&r->http->changed);
}

/* The handler's side, or a check in its place, owes an answer from now on. */
static void hold(struct http_request *r)
{
    pthread_mutex_lock(&r->http->lock);
    r->n_refs++;
    r->held = 1;
    r->http->n_held++;
    pthread_mutex_unlock(&r->http->lock);
}

static struct http_request *new_request(struct http *h, const char *target)
{
    struct http_request *r = mem_calloc(1, sizeof *r);
    const char *question = strchr(target, '?');
    size_t n = question ? (size_t)(question - target) : strlen(target);

    if (!r) return NULL;
    *r = (struct http_request){.http = h, .n_refs = 1, .t0_ns = clock_ns()};
    pthread_mutex_lock(&h->lock);
    h->n_alive++;
    pthread_mutex_unlock(&h->lock);
    r->path = mem_dup(target, n);
    if (question) r->query = mem_dup(question + 1, strlen(question + 1));
    if (!r->path || (question && !r->query)) {
        request_unref(r);
        return NULL;
    }
    return r;
}

void *request_target(void *cls, const char *target, struct MHD_Connection *mhd)
{
    struct http *h = cls;
    struct conn *c = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    struct http_request *old, *r = new_request(h, target);

    if (!c) {
        if (r) request_unref(r);
        return NULL;
    }
    pthread_mutex_lock(&h->lock);
    old = c->req;
    c->req = r;
    if (r) {
        r->conn = c;
        snprintf(r->id, sizeof r->id, "req-%016" PRIx64, h->id_base + h->n_requests++);
    }
    if (c->due == DUE_IDLE) conn_wait(c, DUE_HEADER);
    pthread_mutex_unlock(&h->lock);
    if (old) request_unref(old);
    return NULL;
}

/* The path comes last: it is the client's, and may look like anything. */
static void log_access(const struct http_request *r, enum MHD_RequestTerminationCode why)
{
    double ms = (double)(clock_ns() - r->t0_ns) / 1e6;
    const char *how = why == MHD_REQUEST_TERMINATED_COMPLETED_OK ? "complete" : "incomplete";

    log_at(LOG_INFO, "%s %d %s %" PRIu64 " bytes %.1f ms %s %s trace %s %s", r->method, r->status, how, r->n_sent, ms,
           r->who.name[0] ? r->who.name : "-", r->id, r->trace[0] ? r->trace : "-", r->path);
}

void request_completed(void *cls, struct MHD_Connection *mhd, void **req_cls, enum MHD_RequestTerminationCode why)
{
    struct http *h = cls;
    struct http_request *r = *req_cls;
    struct MHD_Response *unused;
    struct conn *c;
    int orphan; /* the body never came, so no handler will answer */

    (void)mhd;
    if (!r) return;
    *req_cls = NULL;
    pthread_mutex_lock(&h->lock);
    c = r->conn;
    c->req = NULL;
    r->conn = NULL;
    r->mhd = NULL;
    r->suspended = 0;
    if (h->draining) shutdown(c->fd, SHUT_RDWR);
    conn_wait(c, c->hung_up || h->draining ? DUE_NOTHING : DUE_IDLE);
    if (r->held && !r->gone && r->watch.on_hangup) r->watch.on_hangup(r->watch.arg);
    r->gone = 1;
    orphan = r->held && r->stage != AT_HANDLER;
    if (orphan) request_given_back(r);
    unused = r->response;
    r->response = NULL;
    if (r->running) h->n_running--;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    if (unused) MHD_destroy_response(unused);
    log_access(r, why);
    if (orphan) request_unref(r);
    request_unref(r);
}

void request_connection(void *cls, struct MHD_Connection *mhd, void **socket_cls,
                        enum MHD_ConnectionNotificationCode what)
{
    struct http *h = cls;
    struct http_request *r = NULL;

    pthread_mutex_lock(&h->lock);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        int fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        *socket_cls = h->conn[fd];
        if (h->conn[fd] && h->conn[fd]->listener->tls)
            tls_cert_use(MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION)->tls_session, h->cert);
    } else if (*socket_cls) {
        struct conn *c = *socket_cls;
        r = c->req; /* one whose headers never came */
        c->req = NULL;
        conn_remove(c);
        if (h->draining) pthread_cond_broadcast(&h->changed);
    }
    pthread_mutex_unlock(&h->lock);
    if (r) request_unref(r);
}

/* ---- the way to the handler ---- */

static enum MHD_Result queue(struct http_request *r, struct MHD_Connection *mhd)
{
    struct MHD_Response *response;
    enum MHD_Result ok;
    int status;

    pthread_mutex_lock(&r->http->lock);
    response = r->response;
    status = r->status;
    r->response = NULL;
    pthread_mutex_unlock(&r->http->lock);
    if (!response) return MHD_NO;
    ok = MHD_queue_response(mhd, (unsigned)status, response);
    MHD_destroy_response(response);
    return ok;
}

/* Queues the answer, if there is one, or waits for it. */
static enum MHD_Result settle(struct http_request *r, struct MHD_Connection *mhd)
{
    int gone, answered;

    pthread_mutex_lock(&r->http->lock);
    gone = r->gone;
    answered = r->answered;
    if (!gone && !answered) {
        r->suspended = 1;
        MHD_suspend_connection(mhd);
    }
    pthread_mutex_unlock(&r->http->lock);
    return gone ? MHD_NO : answered ? queue(r, mhd) : MHD_YES;
}

static enum MHD_Result at_headers(struct http_request *r, struct MHD_Connection *mhd, const char *method)
{
    struct http *h = r->http;

    snprintf(r->method, sizeof r->method, "%s", method);
    pthread_mutex_lock(&h->lock);
    conn_wait(r->conn, DUE_BODY);
    pthread_mutex_unlock(&h->lock);
    r->stage = AT_BODY;
    hold(r);
    return check_headers(r) == CHECK_CLOSE ? queue(r, mhd) : MHD_YES;
}

static enum MHD_Result at_body(struct http_request *r, const char *data, size_t *n_data)
{
    struct http *h = r->http;
    size_t n = *n_data;

    *n_data = 0;
    if (!r->held) { /* it was refused: also where the client had left, so that nothing was answered */
        r->n_discarded += n;
        return r->n_discarded > DISCARD_BYTES ? MHD_NO : MHD_YES;
    }
    if (n > h->c.max_body_bytes - r->body.len) {
        http_error(r, 413, NULL, NULL, "a body of more than %zu bytes", h->c.max_body_bytes);
        return MHD_YES;
    }
    if (buf_add_from(&r->body, h->c.ledger, data, n, NULL)) {
        http_drop_body(r);
        http_set_header(r, "Retry-After", "1");
        http_error(r, 503, NULL, "no_memory", "no memory for the request's body now");
    }
    return MHD_YES;
}

static enum MHD_Result at_handler(struct http_request *r, struct MHD_Connection *mhd)
{
    struct http *h = r->http;
    struct route_match m = {0};

    if (r->stage != AT_HANDLER) {
        pthread_mutex_lock(&h->lock);
        if (r->gone) {
            pthread_mutex_unlock(&h->lock);
            return MHD_NO;
        }
        r->stage = AT_HANDLER;
        conn_wait(r->conn, DUE_NOTHING);
        if (!r->answered) {
            r->running = 1;
            h->n_running++;
            m = route_find(h->c.routes, h->c.n_routes, r->method, r->path);
        }
        pthread_mutex_unlock(&h->lock);
        if (m.route && m.route->flags & HTTP_JSON_BODY && /* others are answered whole */
            buf_reserve_from(&r->queue, h->c.ledger, QUEUE_BYTES - 1, NULL)) {
            http_set_header(r, "Retry-After", "1");
            http_error(r, 503, NULL, "no_memory", "no memory for an answer now");
        } else if (m.route) {
            m.route->handler(r, h->ctx);
        }
    }
    return settle(r, mhd);
}

enum MHD_Result request_handle(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                               const char *version, const char *data, size_t *n_data, void **req_cls)
{
    struct http *h = cls;
    struct http_request *r = *req_cls;
    struct conn *c;

    (void)url;
    (void)version;
    if (r) return *n_data > 0 ? at_body(r, data, n_data) : at_handler(r, mhd);

    c = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    if (!c) return MHD_NO;
    pthread_mutex_lock(&h->lock);
    r = c->hung_up ? NULL : c->req;
    if (r) r->mhd = mhd;
    pthread_mutex_unlock(&h->lock);
    if (!r) return MHD_NO;
    *req_cls = r;
    return at_headers(r, mhd, method);
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
    int ok = found && strlen(found) < cap;

    if (ok) memcpy(value, found, strlen(found) + 1);
    mem_free(copy);
    return ok ? 0 : -1;
}

const char *http_header(const struct http_request *r, const char *name)
{
    return MHD_lookup_connection_value(r->mhd, MHD_HEADER_KIND, name);
}
