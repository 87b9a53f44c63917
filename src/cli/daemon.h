/* SPDX-License-Identifier: MIT
 *
 * daemon.h: a daemon that runs on this machine, for those that ask about it instead of asking it.
 */
#ifndef QUERN_CLI_DAEMON_H
#define QUERN_CLI_DAEMON_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "cli/options.h"
#include "client/client.h"

/* "socket", a const char *: which one; section "" of the configuration. */
extern const struct opt opts_socket[];

struct daemon {
    char socket[256];
    struct client *client;
    pid_t peer_pid; /* who made the socket: the daemon, or the service manager that started it. 0: not to be seen from
                       here */
    uid_t peer_uid;
};

/* Connects to the socket that was named, else to this user's, else to the system's. 0 or an exit status, after a line
 * on stderr unless `quietly` and nobody listens: 69. Always followed by daemon_close(). */
int daemon_open(struct daemon *d, const char *named, bool quietly);
void daemon_close(struct daemon *d);
/* GET. QN_EBUSY: no answer within 10 s. *out returns owned. */
int daemon_ask(struct daemon *d, const char *target, json_t **out, struct qn_error *e);

/* Numbers and texts of an answer: 0 and "" where it does not have them. */
double daemon_number(const json_t *object, const char *key);
/* The process that a daemon's status says it is; 0 when that can be none. */
pid_t daemon_pid(const json_t *status);
const char *daemon_text(const json_t *object, const char *key);

#endif
