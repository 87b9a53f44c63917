/* SPDX-License-Identifier: MIT
 *
 * location.h: the place of a model as a user writes it:
 *
 *     host:path  user@host:path  host::module/path  rsync://host/module/path     through rsync
 *     https://host/path/file  http://localhost/path/file                         through HTTP
 *     hf:owner/repo/file  hf:owner/repo                                          one file, or one folder, of a hub
 *
 * Each may end with #sha256=HEX. Write a host called "hf" as user@hf:path.
 */
#ifndef QUERN_FETCH_LOCATION_H
#define QUERN_FETCH_LOCATION_H

#include <stdbool.h>

#include "base/error.h"

enum location_kind {
    LOCATION_RSYNC,
    LOCATION_HTTP,
    LOCATION_HF_FILE,
    LOCATION_HF_FOLDER,
};

#define LOCATION_MAX_NAME 200 /* bytes: short enough for any file system, with the endings of unfinished files */

struct location {
    enum location_kind kind;
    char *place;     /* for rsync: its argument; the URL of the file; or the URL of the folder's list */
    char *name;      /* the name of the file or folder here: one that location_is_safe_name() allows */
    char *repo;      /* for a hub: "owner/repo"; otherwise NULL */
    char sha256[65]; /* lower case; "": not known */
};

/* Parses text into *s, which is freed with location_deinit(). hub: the URL of the hub, without a slash at its end.
 * QN_EUSAGE: the message says what is wrong with the text. */
int location_parse(struct location *s, const char *text, const char *hub, bool insecure_http, struct qn_error *e);
void location_deinit(struct location *s);

/* Makes the URL of one file of a hub's repository; *out is freed with mem_free(). */
int location_hub_url(char **out, const char *hub, const char *repo, const char *file, struct qn_error *e);

/* Whether a file may be made under this name, which somebody else chose: one part of a path, printable UTF-8, not
 * hidden, and nothing that a command would take for an option. */
bool location_is_safe_name(const char *name);
/* 0, or QN_EUSAGE if the name is not safe. of: what has that name, for the message. */
int location_check_name(const char *name, const char *of, struct qn_error *e);

#endif
