/* SPDX-License-Identifier: MIT
 *
 * daemon.h: a connection to a daemon on this machine, for commands that ask about the daemon itself.
 */
#ifndef QUERN_CLI_DAEMON_H
#define QUERN_CLI_DAEMON_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "cli/core/options.h"
#include "client/client.h"

/* The option --socket, a const char *, in section "" of the configuration. */
extern const struct opt opts_socket[];

struct daemon {
    char socket[256];
    struct client *client;
    pid_t peer_pid; /* the process that made the socket: the daemon, or the service manager that started it; 0: it
                       cannot be seen from here */
    uid_t peer_uid;
    bool is_starting; /* it said so when it was last asked */
};

/* Connects to the named socket, or else to this user's, or else to the system's. Returns 0 or an exit status, after
 * a message; 69 if nobody listens or accepts the connection, and then there is no message with `quietly`. Always
 * followed by daemon_close(). */
int daemon_open(struct daemon *d, const char *named, bool quietly);
/* Closes the connection; may be called twice. */
void daemon_close(struct daemon *d);
/* Asks with GET and waits for the answer in *out, which the caller owns. QN_EBUSY: there was no answer within 10 s, or
 * the daemon is starting. */
int daemon_ask(struct daemon *d, const char *target, json_t **out, struct qn_error *e);

/* A number or a text of an answer; 0 or "" if the answer does not have it. */
double daemon_number(const json_t *object, const char *key);
/* The process that a daemon's status names; 0: it names none that can exist. */
pid_t daemon_pid(const json_t *status);
const char *daemon_text(const json_t *object, const char *key);

#endif
