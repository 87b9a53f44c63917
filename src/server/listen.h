/* SPDX-License-Identifier: MIT
 *
 * listen.h: sockets that wait for connections.
 */
#ifndef QUERN_SERVER_LISTEN_H
#define QUERN_SERVER_LISTEN_H

#include <sys/stat.h>

#include "server/http.h"

struct listener {
    int fd; /* -1: closed */
    int tls, is_unix, is_loopback;
    char *path; /* Unix: the path that we made and will remove; else NULL */
    dev_t dev;  /* of that path when it was ours */
    ino_t ino;
};

/* A Unix socket: the directory is made (0700) if missing, a socket at the path is replaced only if nobody answers
 * there, the new one has mode 0600, or 0660 and the group. A TCP address: numeric, or localhost. All non-blocking. */
int listener_open(struct listener *l, const struct http_listen *how, struct qn_error *e);
/* Removes the path if it is still the socket that was made. What kind of listener it was can still be read. */
void listener_close(struct listener *l);
int listener_port(const struct listener *l);

#endif
