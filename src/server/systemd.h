/* SPDX-License-Identifier: MIT
 *
 * systemd.h: the two conversations with a service manager that a server needs. The values of the environment variables
 * are given by the caller.
 */
#ifndef QUERN_SERVER_SYSTEMD_H
#define QUERN_SERVER_SYSTEMD_H

#include "base/error.h"

#define SYSTEMD_FIRST_FD 3

/* How many listening sockets were passed, from SYSTEMD_FIRST_FD on: 0 when the variables (each may be NULL) are absent
 * or meant for another process. They are closed on exec from now on. */
int systemd_listen_fds(const char *listen_pid, const char *listen_fds, struct qn_error *e);
/* Connects to $NOTIFY_SOCKET, so that no other socket is needed later; *fd is -1 when address is NULL, and on errors.
 */
int systemd_notify_open(int *fd, const char *address, struct qn_error *e);
/* Sends a state ("READY=1", "STOPPING=1", "WATCHDOG=1"); 0 too when fd is -1. Never waits. */
int systemd_notify(int fd, const char *state, struct qn_error *e);

#endif
