/* SPDX-License-Identifier: MIT
 *
 * client.h: a connection to something that answers like the OpenAI API: requests go out, the bytes of answers come in.
 *
 * There are two ways to the other side: a stream socket and a URL. The first is spoken to in plain HTTP/1.1 by this
 * layer itself, because it must be quick: a filter beside a running daemon has its request on the wire before a library
 * for HTTP would be loaded. The second goes through libcurl, which is loaded when it is needed (curl.h). Knows nothing
 * of what is asked: chat.h does.
 *
 * A client belongs to one thread; client_cancel() alone may be called from any, and from a signal handler.
 */
#ifndef QUERN_CLIENT_CLIENT_H
#define QUERN_CLIENT_CLIENT_H

#include <stddef.h>

#include "base/error.h"

struct client;

/* Makes a connected stream socket. */
typedef int client_dial(void *arg, int *fd, struct qn_error *e);

/* Dials at once, and again before a later exchange when the other side has closed the connection meanwhile, as servers
 * do with those that were idle. arg must live as long as the client. */
int client_open_dial(struct client **out, client_dial *dial, void *arg, struct qn_error *e);
/* A connected stream socket, taken over, also when this fails. It cannot be dialled again. */
int client_open_fd(struct client **out, int fd, struct qn_error *e);
/* Connects to a Unix socket. QN_ENOINPUT: nobody listens there; QN_EIO: another reason, named; QN_EUSAGE: no path of a
 * socket. */
int client_open_socket(struct client **out, const char *path, struct qn_error *e);
/* url: "https://host[:port][/prefix]", or http:// with a loopback host; "/v1/..." is put behind the prefix, whose own
 * "/v1" at the end is taken off. key: sent as a bearer token to this host alone, NULL: none. authorities: a file of
 * certificates (PEM) to trust instead of the system's, NULL: those. Connects with the first request. */
int client_open_url(struct client **out, const char *url, const char *key, const char *authorities, struct qn_error *e);
void client_close(struct client *c); /* NULL is fine; what runs at the other side is ended by it */

struct client_reply {
    int status;        /* of HTTP */
    char type[64];     /* Content-Type without parameters */
    int retry_after_s; /* -1: not said */
};

/* Bytes of the body as they come; non-zero ends the exchange, which then returns QN_ECANCEL. */
typedef int client_sink(void *arg, const struct client_reply *r, const char *bytes, size_t n);

/* One exchange. method "GET", "POST" or "DELETE"; body (JSON, n_body bytes) may be NULL. *reply is filled before the
 * sink is first called. An answer of any status is success; redirections are not followed. QN_EIO: the connection
 * broke, names where; QN_ECANCEL; QN_EDATA: what comes is not HTTP; QN_EUSAGE: no such path can be. After a failure,
 * and after a sink that ended it, the client can only be closed. */
int client_send(struct client *c, const char *method, const char *path, const char *body, size_t n_body,
                client_sink *sink, void *arg, struct client_reply *reply, struct qn_error *e);
/* Ends the exchange that runs, or the next one. Async-signal-safe. */
void client_cancel(struct client *c);

#endif
