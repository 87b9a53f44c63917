/* SPDX-License-Identifier: MIT
 *
 * http.h: an HTTP/1.1 server for answers that take long: listeners, identities, routes, delayed replies, and streams.
 * It knows nothing of language models or of any API.
 *
 * A handler is called when the whole body is there. It owes the request exactly one answer, now or later, from any
 * thread: http_reply(), http_error(), or http_stream_open() followed in the end by http_stream_end() or
 * http_stream_abort(). Until then the request belongs to the handler's side, even after the client has left. The answer
 * gives the request back; it must not be touched afterwards.
 *
 * docs/THREADS.md says which thread runs what, and what a callback may do.
 */
#ifndef QUERN_SERVER_HTTP_H
#define QUERN_SERVER_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/mem.h"

struct http;
struct http_request;

/* ---- what is served ---- */

enum {
    HTTP_JSON_BODY = 1, /* 415 for types that are not JSON, and from browsers for every type but application/json */
    HTTP_PUBLIC = 2,    /* needs no API key */
    HTTP_STREAM = 4,    /* may be answered by a stream, as may routes with HTTP_JSON_BODY */
    /* GET makes the connection a WebSocket. The handler is then called for each text message, as for a request whose
     * body it is, and several of them may be under way. What it answers is sent as text messages: a whole answer, which
     * has to be a JSON object, as one (none if the status is 204); of a stream, each `data:` line as one. Each gets the
     * members of the label; that of an error also "type": "error" and "status". A `data:` line that is no object, such
     * as [DONE], becomes {"type": "done"}. Comments are not sent, so heartbeats are not asked for. */
    HTTP_WEBSOCKET = 8,
};

/* Runs in the server's thread, which serves all connections: it must not wait for anything. */
typedef void http_handler(struct http_request *r, void *ctx);

struct http_route {
    const char *method; /* "GET" also answers HEAD */
    /* "/v1/requests/{id}/cancel": at most one segment may be {id}, which matches any text but none. {path} is the same
     * with slashes, "/v1/models/{path}"; routes that would match the same text come before it. */
    const char *pattern;
    http_handler *handler;
    unsigned flags;
};

struct http_listen {
    const char *address; /* "/path" (a Unix socket), "host:port", "[::1]:port", port 0 for any; NULL: fd is given */
    int fd;              /* if address is NULL: a listening socket; taken over, also when http_open() fails */
    bool tls;
    const char *group; /* for a Unix socket: a group whose members may connect; NULL: only this user */
};

/* Everything it points to is borrowed until http_close(). */
struct http_config {
    const struct http_listen *listen; /* [n_listen]; may be none: see http_adopt() */
    int n_listen;
    const struct http_route *routes; /* [n_routes] */
    int n_routes;
    const char *cert_path, *key_path; /* PEM; for listeners with tls */
    /* The file of API keys (api_keys.h); without it only loopback addresses may be listened on. */
    const char *keys_path;
    const char *const *limits; /* the names that limits of keys may have (api_keys.h), ended by NULL; NULL: any */
    const char *const *hosts;  /* [n_hosts] names that are allowed in Host, besides localhost and our addresses */
    int n_hosts;
    /* [n_origins] web origins whose pages may call ("https://example.org"); none by default */
    const char *const *origins;
    int n_origins;
    struct ledger *ledger; /* pays for bodies and for bytes that wait to be sent; NULL: no common budget */

    int max_connections;  /* one more is answered 503 and closed; 0: 1024, or as many as open files allow */
    int peer_connections; /* of one address (IPv6: its first 64 bits) or one user; 0: a quarter of all */
    int kept_connections; /* kept back for Unix sockets and for public routes, half each; -1: a 32nd part of all */
    /* [n_proxies] addresses with many clients behind them: peer_connections does not apply */
    const char *const *proxies;
    int n_proxies;
    size_t max_header_bytes; /* of request line and headers; beyond it 414, 431 or 413 */
    size_t max_body_bytes;   /* 413 beyond */
    size_t max_queue_bytes;  /* the most that a stream holds for a slow reader */
    int header_ms, body_ms;  /* for the whole head, from the connection or the request's first byte; for the whole body,
                                from the head */
    int idle_ms;             /* between requests; also the longest time without progress while sending */
    int heartbeat_ms;        /* of silence in a stream, before its heartbeat callback is asked */
};

void http_config_init(struct http_config *c); /* no listeners, no routes, and the default limits */

/* Opens the listeners and reads keys and certificate; accepts nothing yet. Raises the soft limit on open files to the
 * number that max_connections needs. *h is freed with http_close(). */
int http_open(struct http **h, const struct http_config *c, struct qn_error *e);
/* Starts the server's thread while the program is not ready: GET on a public route is answered 503 `starting`, and
 * other requests wait for http_start() with their bodies unread. It may be left out. */
int http_listen(struct http *h, struct qn_error *e);
/* Hands requests to the handlers, with ctx, from now on. Call it once. */
int http_start(struct http *h, void *ctx, struct qn_error *e);
/* Serves a connected Unix socket; call it after http_start(). fd is taken over, also when this fails. A server without
 * listeners serves only such sockets. */
int http_adopt(struct http *h, int fd, struct qn_error *e);
/* Reads the files of keys and of the certificate again. Either all of them apply to requests and connections from now
 * on or, on an error, nothing changes. */
int http_reload(struct http *h, struct qn_error *e);
/* The port of a TCP listener, which is of interest if port 0 was asked for; 0 for a Unix socket. */
int http_port(const struct http *h, int listener);
/* A copy of the listening socket for another process, which from then on owns the socket's path. Call it before
 * http_drain(), which closes the listeners. Returns a descriptor or an error. */
int http_listen_fd(struct http *h, int listener, struct qn_error *e);
/* Stops accepting, and lets accepted requests finish: those that run, those on their way, and the first one of a new
 * connection if it comes within a second. Returns the number that are left after timeout_ms, or 0 as soon as there are
 * none. */
int http_drain(struct http *h, int timeout_ms);
/* Hangs up on all requests, waits until each was answered by its handler's side (whose on_hangup was called), and frees
 * everything. NULL is allowed. */
void http_close(struct http *h);

/* ---- a request ---- */

enum http_identity_kind { HTTP_NOBODY, HTTP_LOCAL, HTTP_UID, HTTP_KEY };

struct http_identity {
    enum http_identity_kind kind; /* in this order: no key, at an HTTP_PUBLIC route; loopback without a file of keys;
                                     the peer of a Unix socket; an API key */
    uid_t uid;                    /* HTTP_UID */
    char name[64];                /* "", "local", "uid:1000", or the key's name */
    char limits[128];             /* HTTP_KEY: see api_keys_limit() */
};

/* Valid until the request is answered. */
const char *http_method(const struct http_request *r);
const char *http_path(const struct http_request *r); /* decoded, without the query */
/* The text that {id} or {path} matched; NULL if the pattern has neither. */
const char *http_param(const struct http_request *r);
/* The decoded value of a name in the query ("" for a bare name). HTTP_NO_VALUE: it is absent or malformed; HTTP_LONG:
 * not shorter than cap. */
enum { HTTP_NO_VALUE = -1, HTTP_LONG = -2 };
int http_query(const struct http_request *r, const char *name, char *value, size_t cap);
const uint8_t *http_body(const struct http_request *r, size_t *n_bytes); /* a NUL byte follows it */
void http_drop_body(struct http_request *r); /* gives the body's memory back before the answer */
const struct http_identity *http_identity(const struct http_request *r);
const char *http_request_id(const struct http_request *r);
/* The most memory that all open connections of its server take, in bytes; it is not from the ledger. */
size_t http_connection_bytes(const struct http_request *r);
/* Connections that were refused because no place was left at all, or none for their peer. */
struct http_refused {
    uint64_t full, peer;
};
struct http_refused http_refused(const struct http_request *r);
/* The requests that have ended, by route and status. */
struct http_count {
    const struct http_route
        *route; /* NULL: requests that were refused before their route was known, or that have none */
    int status; /* 0: the client had left before there was an answer */
    uint64_t n;
};
/* Writes the i-th of them, which may count none, to *out. false: there are no more. */
bool http_count(const struct http_request *r, size_t i, struct http_count *out);
/* Of a WebSocket's message: adds a member, a text, to the label of all messages that answer it, which begins with
 * "request": the request's id. Before the answer begins. The value has 128 bytes at most. Not 0: no memory. Other
 * requests have no label. */
int http_set_label(struct http_request *r, const char *name, const char *value);
/* A number that a WebSocket's messages have in common; 0 for other requests. */
uint64_t http_websocket_id(const struct http_request *r);
/* For use in the handler only. The name is compared without case; NULL if the header is absent. */
const char *http_header(const struct http_request *r, const char *name);

/* ---- the log ---- */

/* The log has a line for each request, written when the request is freed. http_note() adds a text to it, in place of
 * the one before. http_outcome() says, as one word, why an answer is not what was asked for; http_error() says it too,
 * with its code; NULL is "refused". The texts are cut and copied. Before the answer is given. */
void http_note(struct http_request *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void http_outcome(struct http_request *r, const char *code);

/* ---- answers ---- */

enum { HTTP_OK = 0, HTTP_FULL = 1, HTTP_GONE = 2 };

/* Callbacks until the answer. They run under the server's lock, in the server's thread, in that of a writer or in that
 * of http_close(): they set flags and wake threads, and call no function of this header. None of them runs after
 * http_reply(), http_error(), http_stream_end() or http_stream_abort() has returned. Each may be NULL. */
struct http_watch {
    /* Called once, when the client has left or http_close() was called. A client that closes its sending side counts as
     * gone, because over TCP a close() looks the same. The answer is still owed. */
    void (*on_hangup)(void *arg);
    void (*on_room)(void *arg);                             /* after HTTP_FULL: half of the queue is free again */
    size_t (*heartbeat)(void *arg, char *text, size_t cap); /* writes bytes to send after a silence; 0: none */
    void *arg;
};

/* Sets the callbacks, which are copied. HTTP_GONE if the client has left already: none will be called. */
int http_watch(struct http_request *r, const struct http_watch *w);

/* Adds a header to an answer that has not begun; both texts are copied. At most eight. If there is no memory for a
 * whole answer, the refusal that is sent in its place does not have them. */
void http_set_header(struct http_request *r, const char *name, const char *value);
/* Sends a whole answer; the body is copied. type NULL: no Content-Type. */
void http_reply(struct http_request *r, int status, const char *type, const void *body, size_t n_bytes);
/* Sends {"error":{"message","type","param","code"}}; the type follows from the status; param and code may be NULL. */
void http_error(struct http_request *r, int status, const char *param, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* Sends the headers. HTTP_OK or HTTP_GONE; http_stream_end() or http_stream_abort() is owed in either case. */
int http_stream_open(struct http_request *r, int status, const char *type);
/* HTTP_OK: taken completely. HTTP_FULL: nothing was taken; on_room will say when to try again. HTTP_GONE: nobody
 * listens. It never waits. An empty queue takes a piece of any size. */
int http_stream_write(struct http_request *r, const void *p, size_t n_bytes);
/* One server-sent event: `event: NAME` unless NULL, a `data:` line for each line of data. Results as above. */
int http_sse_event(struct http_request *r, const char *event, const char *data);
void http_stream_end(struct http_request *r);
/* Ends the stream by breaking the connection, so that the client notices that something is missing. */
void http_stream_abort(struct http_request *r);

#endif
