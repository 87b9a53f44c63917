/* SPDX-License-Identifier: MIT
 *
 * model_files.h: the files that a model was opened from, and whether they have changed since.
 */
#ifndef QUERN_FORMAT_MODEL_FILES_H
#define QUERN_FORMAT_MODEL_FILES_H

#include <stdbool.h>

#include "base/file_hash.h"

struct model_file {
    char *path;
    struct file_mark mark; /* from before it was opened */
};

/* The parts of a GGUF model; or the small files of a folder and then its shards. Zeroed: none. */
struct model_files {
    struct model_file *file; /* [n], owned */
    size_t n;
};

/* Adds a file with its present mark. A file that does not exist is added too; opening it will report that. QN_ENOMEM.
 */
int model_files_add(struct model_files *f, const char *path, struct qn_error *e);
/* Adds the small files of a folder (config.json and so on), as far as they exist. They are looked for by name, because
 * a sandbox does not let a folder be listed. QN_ENOMEM. */
int model_files_add_small(struct model_files *f, const char *dir, struct qn_error *e);
void model_files_deinit(struct model_files *f);

enum model_files_now {
    MODEL_FILES_SAME,
    MODEL_FILES_REPLACED, /* a name leads to a new file; the file that was opened is intact, but has lost its name */
    MODEL_FILES_CHANGED,  /* a file that was opened has changed, so it is no longer the model; *e names it */
};
/* Makes a system call for each file. A file whose name is gone counts as unchanged. So does one whose name leads to a
 * new file that cannot be opened: the sandbox allows only the old one. */
enum model_files_now model_files_look(const struct model_files *f, struct qn_error *e);
/* A hash of all marks. It differs when the model's files are other ones, or have changed. */
uint64_t model_files_mark(const struct model_files *f, uint64_t seed);

#endif
