/* SPDX-License-Identifier: MIT
 *
 * systemd.h: takes listening sockets from a service manager, and tells it the state of the server. The caller passes
 * the values of the environment variables.
 */
#ifndef QUERN_SERVER_SYSTEMD_H
#define QUERN_SERVER_SYSTEMD_H

#include "base/error.h"

#define SYSTEMD_FIRST_FD 3

/* The number of listening sockets that were passed, from SYSTEMD_FIRST_FD on; they are closed on exec from now on. 0
 * when the variables (each may be NULL) are absent or meant for another process. */
int systemd_listen_fds(const char *listen_pid, const char *listen_fds, struct qn_error *e);
/* Connects to the socket in $NOTIFY_SOCKET now, so that no new socket is needed later. *fd is -1 when address is NULL,
 * and on errors. */
int systemd_notify_open(int *fd, const char *address, struct qn_error *e);
/* Sends a state ("READY=1", "STOPPING=1", "WATCHDOG=1") and never waits. 0 also when fd is -1. */
int systemd_notify(int fd, const char *state, struct qn_error *e);

#endif
