/* SPDX-License-Identifier: MIT
 *
 * remote.h: exchanges with a server that a URL names, through libcurl. The rules of client.h apply.
 */
#ifndef QUERN_CLIENT_REMOTE_H
#define QUERN_CLIENT_REMOTE_H

#include "client/client.h"

struct remote;

int remote_open(struct remote **out, const char *url, const char *key, const char *authorities, struct qn_error *e);
/* As client_send(). cancel_fd becomes readable when the exchange has to end. */
int remote_send(struct remote *r, int cancel_fd, const char *method, const char *path, const char *body, size_t n_body,
                client_sink *sink, void *arg, struct client_reply *reply, struct qn_error *e);
void remote_close(struct remote *r);

/* Ends an exchange whose cancel_fd is readable: empties it and returns QN_ECANCEL. (client.c) */
int client_cancelled(int cancel_fd, struct qn_error *e);

#endif
