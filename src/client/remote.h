/* SPDX-License-Identifier: MIT
 *
 * remote.h: exchanges with a server that is named by a URL, through libcurl. What client.h says of them holds.
 */
#ifndef QUERN_CLIENT_REMOTE_H
#define QUERN_CLIENT_REMOTE_H

#include "client/client.h"

struct remote;

int remote_open(struct remote **out, const char *url, const char *key, const char *authorities, struct qn_error *e);
/* cancel_fd: readable when the exchange shall end. */
int remote_send(struct remote *r, int cancel_fd, const char *method, const char *path, const char *body, size_t n_body,
                client_sink *sink, void *arg, struct client_reply *reply, struct qn_error *e);
void remote_close(struct remote *r);

/* The end of an exchange whose cancel_fd is readable: QN_ECANCEL. (client.c) */
int client_cancelled(int cancel_fd, struct qn_error *e);

#endif
