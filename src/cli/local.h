/* SPDX-License-Identifier: MIT
 *
 * local.h: the server inside of this process: one model, spoken to over a pair of sockets.
 *
 * What asks a daemon asks this in the same words and gets the same bytes. It has no listener, no sandbox and no name in
 * the file system.
 */
#ifndef QUERN_CLI_LOCAL_H
#define QUERN_CLI_LOCAL_H

#include <quern.h>

struct local;

/* Loads the model. */
int local_open(struct local **out, const char *path, const struct qn_model_params *file,
               const struct qn_engine_params *p, struct qn_error *e);
/* A new connection: *fd is the client's end, the caller's. */
int local_connect(struct local *l, int *fd, struct qn_error *e);
void local_close(struct local *l); /* ends what runs. NULL is fine */

#endif
