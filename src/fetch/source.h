/* SPDX-License-Identifier: MIT
 *
 * source.h: what a user names as the place of a model, taken apart:
 *
 *     host:path  user@host:path  host::module/path  rsync://host/module/path     through rsync
 *     https://host/path/file  http://localhost/path/file                         through HTTP
 *     hf:owner/repo/file  hf:owner/repo                                          one file, or one folder, of a hub
 *
 * each with #sha256=HEX behind it, if the user knows. A host called "hf" is user@hf:path.
 */
#ifndef QUERN_FETCH_SOURCE_H
#define QUERN_FETCH_SOURCE_H

#include <stdbool.h>

#include "base/error.h"

enum source_kind {
    SOURCE_RSYNC,
    SOURCE_HTTP,
    SOURCE_HF_FILE,
    SOURCE_HF_FOLDER,
};

#define SOURCE_MAX_NAME 200 /* bytes: with the endings of what is unfinished it fits any file system */

struct source {
    enum source_kind kind;
    char *place;     /* what rsync is given; the file's URL; that of the folder's list */
    char *name;      /* what the file or folder is called here: source_is_safe_name() */
    char *repo;      /* of the hub: "owner/repo"; else NULL */
    char sha256[65]; /* lower case; "": not known */
};

/* hub: the URL of the hub, without a slash at its end. QN_EUSAGE: says what is wrong with the text. */
int source_parse(struct source *s, const char *text, const char *hub, bool insecure_http, struct qn_error *e);
void source_deinit(struct source *s);

/* The URL of one file of a hub's repository; freed with mem_free(). */
int source_hub_url(char **out, const char *hub, const char *repo, const char *file, struct qn_error *e);

/* Whether a file may be made under this name that somebody else chose: one part of a path, printable UTF-8, not hidden,
 * and nothing that a command would take for an option. */
bool source_is_safe_name(const char *name);
/* QN_EUSAGE: it is not safe; `of`: what has that name. */
int source_check_name(const char *name, const char *of, struct qn_error *e);

#endif
