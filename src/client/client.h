/* SPDX-License-Identifier: MIT
 *
 * client.h: a connection to a server with an API like OpenAI's: requests are sent, and the bytes of answers are
 * received.
 *
 * There are two ways to a server: a stream socket and a URL. Over a socket this layer speaks plain HTTP/1.1 itself,
 * because it has to be quick: a filter next to a running daemon has sent its request before an HTTP library would be
 * loaded. A URL is asked through libcurl, which is loaded when it is needed (curl.h). This layer knows nothing of the
 * contents of requests; client_chat.h does.
 *
 * A client belongs to one thread. Only client_cancel() may be called from any thread, and from a signal handler.
 */
#ifndef QUERN_CLIENT_CLIENT_H
#define QUERN_CLIENT_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct client;

/* Makes a connected stream socket; *fd is owned by the client. 0 or an error. */
typedef int client_dial(void *arg, int *fd, struct qn_error *e);

/* Dials at once. It dials again before a later exchange if the other side has closed the connection meanwhile, as
 * servers do with idle ones. arg must live as long as the client. *out is freed with client_close(), here and below. */
int client_open_dial(struct client **out, client_dial *dial, void *arg, struct qn_error *e);
/* Uses a connected stream socket, which is taken over, also when this fails. It cannot be dialled again. */
int client_open_fd(struct client **out, int fd, struct qn_error *e);
/* Connects to a Unix socket. QN_ENOINPUT: nobody listens there; QN_EBUSY: the server is silent, see below; QN_EIO: it
 * fails for another reason, which *e names; QN_EUSAGE: the path cannot be that of a socket.
 *
 * silence_ms: how long the server may be silent; 0: without end. It is silent while it accepts no connection, and
 * while no byte of an exchange goes in either direction. After half of that time it is asked on a connection of its own
 * whether it lives (GET /health), because a server that loads a model has nothing to say. An answer of any kind begins
 * the time anew. Without one the exchange ends with QN_EIO, and client_is_silent() is true. */
int client_open_socket(struct client **out, const char *path, int silence_ms, struct qn_error *e);
/* Connects a new descriptor to a Unix socket, and waits at most wait_ms (0: without end) for a server that accepts no
 * connection. Returns the descriptor, or a negative errno: -EAGAIN if the time is over. */
int client_connect(const char *path, int wait_ms);
/* url: "https://host[:port][/prefix]", or http:// with a loopback host. "/v1/..." is added to the prefix, without a
 * "/v1" at the prefix's own end. key: sent as a bearer token to this host alone; NULL: none. authorities: a file of
 * certificates (PEM) to trust instead of the system's; NULL: the system's. Connects with the first request. */
int client_open_url(struct client **out, const char *url, const char *key, const char *authorities, struct qn_error *e);
void client_close(struct client *c); /* ends a request that runs at the other side; NULL is fine */

struct client_reply {
    int status;        /* of HTTP */
    char type[64];     /* Content-Type without parameters */
    int retry_after_s; /* -1: not said */
};

/* Receives bytes of the body as they come. Non-zero ends the exchange, which then returns QN_ECANCEL. */
typedef int client_sink(void *arg, const struct client_reply *r, const char *bytes, size_t n);

/* One exchange. method: "GET", "POST" or "DELETE". body: JSON of n_body bytes; may be NULL. *reply is filled before the
 * first call of sink. An answer of any status is success; redirections are not followed. QN_EIO: the connection broke,
 * and *e says where; QN_ECANCEL; QN_EDATA: the answer is not HTTP; QN_EUSAGE: the path is impossible. After a failure,
 * and after a sink that ended the exchange, the client can only be closed. */
int client_send(struct client *c, const char *method, const char *path, const char *body, size_t n_body,
                client_sink *sink, void *arg, struct client_reply *reply, struct qn_error *e);
/* Whether the last exchange failed because the server was silent. */
bool client_is_silent(const struct client *c);
/* Ends the running exchange, or the next one. Async-signal-safe. */
void client_cancel(struct client *c);

#endif
