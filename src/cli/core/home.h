/* SPDX-License-Identifier: MIT
 *
 * home.h: the places of this user's own files.
 */
#ifndef QUERN_CLI_HOME_H
#define QUERN_CLI_HOME_H

#include "base/error.h"

/* HOME_CACHE: files that can be lost. HOME_STATE: files that should stay but need no backup.
 * HOME_CONFIG: files that the user writes. */
enum home_kind { HOME_CACHE, HOME_STATE, HOME_CONFIG };

/* Writes the path of one of Quern's files to *out, for mem_free(): $XDG_CACHE_HOME/quern/NAME or
 * ~/.cache/quern/NAME, or the same with $XDG_STATE_HOME and ~/.local/state, or
 * $XDG_CONFIG_HOME and ~/.config. Makes nothing. QN_ENOINPUT: the environment
 * names neither folder. */
int home_path(char **out, enum home_kind kind, const char *name, struct qn_error *e);
/* The value of an environment variable that names a folder, borrowed. NULL: it is not set, or is not an absolute
 * path. */
const char *home_folder(const char *variable);
/* Makes the folders above a file, with access for this user only. QN_EIO names the folder that cannot be made. */
int home_make_above(const char *path, struct qn_error *e);

#ifndef HOME_SYSTEM_SOCKET /* a test has one of its own */
#define HOME_SYSTEM_SOCKET "/run/quern/quern.sock"
#endif
/* Writes the path of this user's daemon socket to out: below $XDG_RUNTIME_DIR; for root without that variable, the
 * system's; for others below /run/user/UID if that is theirs, or else among the files of HOME_CACHE. QN_EUSAGE: the
 * environment does not name a place, or the path is too long. */
int home_socket(char *out, size_t cap, struct qn_error *e);

#endif
