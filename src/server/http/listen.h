/* SPDX-License-Identifier: MIT
 *
 * listen.h: listening sockets: Unix sockets and TCP addresses, made here or passed by a service manager.
 */
#ifndef QUERN_SERVER_LISTEN_H
#define QUERN_SERVER_LISTEN_H

#include <sys/stat.h>

#include "server/http/http.h"

struct listener {
    int fd; /* -1: closed */
    bool tls, is_unix, is_loopback;
    char *path; /* the path of a Unix socket that we made and will remove; NULL for others */
    dev_t dev;  /* device and inode of that path when it was made */
    ino_t ino;
};

/* Opens a listener, closed with listener_close(). Unix socket: its directory is made (0700) if it is missing; a socket
 * at the path is replaced only if nobody answers there; the new one has mode 0600, or 0660 with a group. TCP address:
 * numeric, or localhost. All sockets are non-blocking. */
int listener_open(struct listener *l, const struct http_listen *how, struct qn_error *e);
/* Closes the socket, and removes the path if it is still the socket that was made. The flags of *l stay readable. */
void listener_close(struct listener *l);
int listener_port(const struct listener *l); /* 0 for a Unix socket */

#endif
