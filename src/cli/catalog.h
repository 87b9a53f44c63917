/* SPDX-License-Identifier: MIT
 *
 * catalog.h: the models on disk: what lies in the folders that the user names, as it lies there.
 *
 * A model is a file NAME.gguf, the parts NAME-00001-of-0000N.gguf of a split one, or a folder with a config.json; its
 * name is that of the file or folder less the ending. Nothing is renamed, and there is no index: the folders are read
 * each time. Names may hold any byte: they are cleaned where they are printed.
 */
#ifndef QUERN_CLI_CATALOG_H
#define QUERN_CLI_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "cli/options.h"

/* The folders with models: struct cli_strings. */
extern const struct opt opts_folders[];

struct catalog_entry {
    char *path, *name; /* of the second one of a name, the name is the path */
    uint64_t bytes;    /* of all its files */
};

struct catalog {
    struct catalog_entry *entry; /* [n], by name, then in the order of the folders */
    size_t n;
};

/* folders: none: ~/models, which need not exist; a named one must; "~/" is the home directory. QN_ENOINPUT names the
 * folder and the reason. */
int catalog_open(struct catalog *c, const struct cli_strings *folders, struct qn_error *e);
/* The folder that new models go to and that is shared: the first. Need not exist; owned: mem_free(). */
int catalog_first_folder(char **path, const struct cli_strings *folders, struct qn_error *e);
void catalog_close(struct catalog *c); /* a zeroed catalog may be closed */

/* The path of a model: `name` itself when there is such a file or folder, else the one of that name in the folders;
 * NULL: the only one there is. QN_ENOINPUT says what there is instead, the nearest name, or how to get one. *path
 * returns owned: mem_free(). */
int catalog_find(char **path, const struct cli_strings *folders, const char *name, struct qn_error *e);

/* What the model at this path is called; owned, NULL: no memory. */
char *catalog_name(const char *path);
/* Whether what lies there has the form of a model. */
bool catalog_is_model(const char *path);

/* The files that a model consists of, and their bytes: all parts; of a folder what belongs to a model, and nothing
 * below. */
struct catalog_files {
    char **path; /* [n] */
    size_t n;
    uint64_t bytes;
    bool is_folder;
};
int catalog_files(struct catalog_files *f, const char *path, struct qn_error *e);
void catalog_files_free(struct catalog_files *f); /* a zeroed one is fine */

#endif
