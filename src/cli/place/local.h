/* SPDX-License-Identifier: MIT
 *
 * local.h: the server inside this process, with one model, reached over a pair of sockets.
 *
 * The commands talk to it as they talk to a daemon, and get the same bytes. It has no listener, no sandbox and no name
 * in the file system.
 */
#ifndef QUERN_CLI_LOCAL_H
#define QUERN_CLI_LOCAL_H

#include <quern.h>

#include "cli/place/stage_hosts.h"

struct local;

/* Who guesses tokens. model: the path of a draft model; NULL: none. */
struct local_draft {
    enum qn_draft how;
    const char *model;
};

/* Loads the model at `path`, and its draft model, and starts the server. hosts: have the model's layers; NULL, or none
 * named: this process. With hosts, call it while there is one thread. *out is for local_close(). */
int local_open(struct local **out, const char *path, const struct local_draft *d, const struct qn_model_params *file,
               const struct qn_engine_params *p, const struct stage_hosts *hosts, struct qn_error *e);
/* Opens a connection. *fd is the client's end, which the caller closes. */
int local_connect(struct local *l, int *fd, struct qn_error *e);
void local_close(struct local *l); /* ends running requests; NULL is fine */

#endif
