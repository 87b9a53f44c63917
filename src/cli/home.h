/* SPDX-License-Identifier: MIT
 *
 * home.h: where this user's own files are.
 */
#ifndef QUERN_CLI_HOME_H
#define QUERN_CLI_HOME_H

#include "base/error.h"

/* What may be lost, and what may not but is not worth a copy. */
enum home_kind { HOME_CACHE, HOME_STATE };

/* The path of a file of ours, for mem_free() in *out: $XDG_CACHE_HOME/quern/NAME or ~/.cache/quern/NAME,
 * $XDG_STATE_HOME or
 * ~/.local/state. QN_ENOINPUT: the environment tells neither. Nothing is made. */
int home_path(char **out, enum home_kind kind, const char *name, struct qn_error *e);
/* Makes the folders above a file, for this user only. QN_EIO names the one that cannot be made. */
int home_make_above(const char *path, struct qn_error *e);

#ifndef HOME_SYSTEM_SOCKET /* a test has one of its own */
#define HOME_SYSTEM_SOCKET "/run/quern/quern.sock"
#endif
/* The socket of this user's daemon, in out: of root, the system's. QN_EUSAGE: the environment does not tell. */
int home_socket(char *out, size_t cap, struct qn_error *e);

#endif
