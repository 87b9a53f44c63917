/* SPDX-License-Identifier: MIT
 *
 * http.h: an HTTP/1.1 server for answers that take long: listeners, identities, routes, replies that come later, and
 * streams. Knows nothing of language models or of any API.
 *
 * A handler is called once the whole body is there. It owes the request exactly one answer, now or later, from any
 * thread: http_reply(), http_error(), or http_stream_open() followed, in the end, by http_stream_end(). Until then the
 * request is its own, also when the client has left; with the answer it is given back and must not be touched again.
 *
 * Who runs where, and what a callback may do: docs/THREADS.md.
 */
#ifndef QUERN_SERVER_HTTP_H
#define QUERN_SERVER_HTTP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/mem.h"

struct http;
struct http_request;

/* ---- what is served ---- */

enum {
    HTTP_JSON_BODY = 1, /* 415 unless Content-Type is application/json */
    HTTP_PUBLIC = 2,    /* needs no API key */
};

/* Runs in the server's thread, which serves all connections: it must not wait for anything. */
typedef void http_handler(struct http_request *r, void *ctx);

struct http_route {
    const char *method; /* "GET" answers HEAD as well */
    const char
        *pattern; /* "/v1/requests/{id}/cancel": at most one segment may be {id}; it matches any but an empty one */
    http_handler *handler;
    unsigned flags;
};

struct http_listen {
    const char *address; /* "/path" (a Unix socket), "host:port", "[::1]:port", port 0 for any; NULL: fd is given */
    int fd;              /* when address is NULL: a listening socket, taken over (also when http_open fails) */
    int tls;
    const char *group; /* Unix socket: its members may connect too; NULL: only this user */
};

/* What it points to is borrowed until http_close(). */
struct http_config {
    const struct http_listen *listen; /* [n_listen]; may be none: see http_adopt() */
    int n_listen;
    const struct http_route *routes; /* [n_routes] */
    int n_routes;
    const char *cert_path, *key_path; /* PEM; for listeners with tls */
    const char *keys_path;            /* API keys (keys.h); without it only loopback addresses may be listened on */
    const char *const *limits;        /* names that the limits of keys may have (keys.h); NULL: any */
    const char *const *hosts;         /* [n_hosts] names that may stand in Host, besides localhost and our addresses */
    int n_hosts;
    const char *const *origins; /* [n_origins] web origins that may call ("https://example.org"); none by default */
    int n_origins;
    struct ledger *ledger; /* bodies and what waits to be sent are taken from it; NULL: no common budget */

    int max_connections;        /* one more is answered 503 and closed; 0: 1024, or as many as files may be open */
    int peer_connections;       /* of one address (of IPv6 its first 64 bits), or of one user; 0: a quarter of all */
    int kept_connections;       /* for Unix sockets and public routes alone, half each; -1: a 32nd part of all */
    const char *const *proxies; /* [n_proxies] addresses that are many clients': peer_connections is not for them */
    int n_proxies;
    size_t max_header_bytes; /* request line and headers; 414, 431 or 413 beyond */
    size_t max_body_bytes;   /* 413 beyond */
    size_t max_queue_bytes;  /* what a stream holds for a slow reader */
    int header_ms, body_ms;  /* deadlines for all of it, from the connection or the request line, from the headers */
    int idle_ms;             /* between requests; also the longest time without progress while sending */
    int heartbeat_ms;        /* of silence in a stream, before its heartbeat callback is asked for something to say */
};

void http_config_init(struct http_config *c); /* no listeners, no routes, and the default limits */

/* Listens, and reads keys and certificate; accepts nothing yet. Raises the soft limit on open files to what
 * max_connections takes. */
int http_open(struct http **h, const struct http_config *c, struct qn_error *e);
/* Starts the threads, once. ctx is for the handlers. */
int http_start(struct http *h, void *ctx, struct qn_error *e);
/* Serves a connected Unix socket, after http_start(). fd is taken over, also when this fails. A server without
 * listeners is for these alone. */
int http_adopt(struct http *h, int fd, struct qn_error *e);
/* Reads the files of keys and of the certificate again: all of what they say holds for requests and connections from
 * now on, or, on an error, what held before. */
int http_reload(struct http *h, struct qn_error *e);
/* The port of a TCP listener (for port 0), 0 for a Unix socket. */
int http_port(const struct http *h, int listener);
/* A copy of the listening socket for another process to take over; the socket's path is then left to that one.
 * Before http_drain(), which closes them. */
int http_listen_fd(struct http *h, int listener, struct qn_error *e);
/* Stops accepting and lets what was accepted finish: running requests, those on their way, and the first one of a new
 * connection, if it comes within a second. Returns how many are left after timeout_ms; 0 as soon as there are none. */
int http_drain(struct http *h, int timeout_ms);
/* Hangs up on what still runs, waits until every request has been answered by its handler's side (whose on_hangup has
 * run), and frees everything. NULL is allowed. */
void http_close(struct http *h);

/* ---- a request ---- */

enum http_identity_kind { HTTP_NOBODY, HTTP_LOCAL, HTTP_UID, HTTP_KEY };

struct http_identity {
    enum http_identity_kind kind; /* no key given, at an HTTP_PUBLIC route; loopback without keys;
                                   the peer of a Unix socket; an API key */
    uid_t uid;                    /* HTTP_UID */
    char name[64];                /* "", "local", "uid:1000", or the key's name */
    char limits[128];             /* HTTP_KEY: see keys_limit() */
};

/* Valid until the request is answered. */
const char *http_method(const struct http_request *r);
const char *http_path(const struct http_request *r);  /* decoded, without the query */
const char *http_param(const struct http_request *r); /* what {id} matched, NULL without one */
/* The decoded value of a name in the query ("" for a bare name); -1 if absent, malformed or not shorter than cap. */
int http_query(const struct http_request *r, const char *name, char *value, size_t cap);
const uint8_t *http_body(const struct http_request *r, size_t *n_bytes); /* a NUL byte follows it */
void http_drop_body(struct http_request *r); /* it was read and is not needed any more: its memory is given back */
const struct http_identity *http_identity(const struct http_request *r);
const char *http_request_id(const struct http_request *r);
/* What all open connections of its server take at most; not from the ledger. */
size_t http_connection_bytes(const struct http_request *r);
/* Connections that were closed at once: no place was left at all, or none for their peer. */
struct http_refused {
    uint64_t full, peer;
};
struct http_refused http_refused(const struct http_request *r);
/* Only in the handler. Any case; NULL if absent. */
const char *http_header(const struct http_request *r, const char *name);

/* ---- answers ---- */

enum { HTTP_OK = 0, HTTP_FULL = 1, HTTP_GONE = 2 };

/* Callbacks on the way to the answer. They run in one of the server's threads, under its lock: they set flags and wake
 * threads, and call nothing of this header. None of them runs once http_reply(), http_error() or http_stream_end() has
 * returned. Each may be NULL. */
struct http_watch {
    /* Once: the client has left (closing its sending side counts: for TCP nothing else of a close can be seen), or
     * http_close() was called. The answer is still owed. */
    void (*on_hangup)(void *arg);
    void (*on_room)(void *arg);                             /* after HTTP_FULL: half of the queue is free again */
    size_t (*heartbeat)(void *arg, char *text, size_t cap); /* what to send into the silence; 0 for nothing */
    void *arg;
};

/* HTTP_GONE, and nothing will be called, when the client has left already. */
int http_watch(struct http_request *r, const struct http_watch *w);

/* A header of the answer, before it is opened or sent; both are copied. */
void http_set_header(struct http_request *r, const char *name, const char *value);
/* The whole answer; copies the body. A NULL type sends none. */
void http_reply(struct http_request *r, int status, const char *type, const void *body, size_t n_bytes);
/* {"error":{"message","type","param","code"}}, type by status; param and code may be NULL. */
void http_error(struct http_request *r, int status, const char *param, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* Sends the headers. HTTP_OK or HTTP_GONE; http_stream_end() is owed in either case. */
int http_stream_open(struct http_request *r, int status, const char *type);
/* HTTP_OK: taken as a whole; HTTP_FULL: not at all, and on_room will say when to try again; HTTP_GONE: nobody listens.
 * Never waits. Into an empty queue goes a piece of any size. */
int http_stream_write(struct http_request *r, const void *p, size_t n_bytes);
/* One server-sent event: `event: NAME` unless NULL, a `data:` line for each line of data. Results as above. */
int http_sse_event(struct http_request *r, const char *event, const char *data);
void http_stream_end(struct http_request *r);
/* Ends it so that the client can tell that something is missing: the connection breaks. */
void http_stream_abort(struct http_request *r);

#endif
