/* SPDX-License-Identifier: MIT
 *
 * catalog.h: the models on disk, in the folders that the user names.
 *
 * A model is a file NAME.gguf, all parts NAME-00001-of-0000N.gguf of a split model, or a folder with a config.json.
 * Its name is that of the file or folder without the ending. Nothing is renamed and there is no index: the folders are
 * read each time. A name may have any byte, and is cleaned where it is printed.
 */
#ifndef QUERN_CLI_CATALOG_H
#define QUERN_CLI_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "cli/core/options.h"

/* The option --models; its value is a struct cli_strings. */
extern const struct opt opts_folders[];

struct catalog_entry {
    char *path, *name; /* the second model of a name is named by its path */
    uint64_t bytes;    /* size of all its files */
};

struct catalog {
    struct catalog_entry *entry; /* [n], sorted by name, then in the order of the folders */
    size_t n;
};

/* Reads the folders. Without any the folder is ~/models, which need not exist; a named folder must exist. "~/" is
 * the home directory. QN_ENOINPUT names the folder and the reason. */
int catalog_open(struct catalog *c, const struct cli_strings *folders, struct qn_error *e);
/* Writes the path of the first folder to *path, for mem_free(). New models go to it, and it is the one that is
 * shared. It need not exist. */
int catalog_first_folder(char **path, const struct cli_strings *folders, struct qn_error *e);
void catalog_close(struct catalog *c); /* a zeroed catalog may be closed */

/* Writes the path of a model to *path, for mem_free(). `name` is a file or folder that exists, or else the name of a
 * model in the folders; NULL: the only model there is. QN_ENOINPUT says which models there are, the nearest name, or
 * how to get one. */
int catalog_find(char **path, const struct cli_strings *folders, const char *name, struct qn_error *e);

/* Whether the folders have no model. */
bool catalog_is_empty(const struct cli_strings *folders);

/* The name of the model at a path, for mem_free(); NULL: no memory. */
char *catalog_name(const char *path);
/* The part of a path after its last slash, borrowed from it. */
const char *catalog_last_name(const char *path);
/* Whether the file or folder has the form of a model. */
bool catalog_is_model(const char *path);

/* The files of a model and their size: all parts of a split model; for a folder its own files that belong to a
 * model, not those in folders below it. */
struct catalog_files {
    char **path; /* [n] */
    size_t n;
    uint64_t bytes;
    bool is_folder;
};
/* Lists the files of the model at a path. *f is for catalog_files_free(). QN_ENOINPUT: the folder cannot be read. */
int catalog_files(struct catalog_files *f, const char *path, struct qn_error *e);
void catalog_files_free(struct catalog_files *f); /* a zeroed one is fine */

#endif
