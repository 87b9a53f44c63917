/* SPDX-License-Identifier: MIT
 *
 * catalog.h: the models on disk: what lies in the folders that the user names, as it lies there.
 *
 * A model is a file NAME.gguf (of a split one the first part), or a folder with a config.json; its name is that of the file or folder
 * less the ending. Nothing is renamed, and there is no index: the folders are read each time.
 */
#ifndef QUERN_CLI_CATALOG_H
#define QUERN_CLI_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "cli/options.h"

struct catalog_entry {
    char *path, *name;
    uint64_t bytes; /* of all its files */
};

struct catalog {
    struct catalog_entry *entry; /* [n], by name */
    size_t n;
};

/* folders: none: ~/models, which need not exist; a named one must. QN_ENOINPUT names the folder and the reason. */
int catalog_open(struct catalog *c, const struct cli_strings *folders, struct qn_error *e);
void catalog_close(struct catalog *c); /* a zeroed catalog may be closed */

/* The path of a model: `name` itself when there is such a file or folder, else the one of that name in the folders; NULL: the only
 * one there is. QN_ENOINPUT says what there is instead, the nearest name, or how to get one. *path returns owned: mem_free(). */
int catalog_find(char **path, const struct cli_strings *folders, const char *name, struct qn_error *e);

#endif
