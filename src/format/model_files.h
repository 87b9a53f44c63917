/* SPDX-License-Identifier: MIT
 *
 * model_files.h: the files that a model was opened from, and whether they are still what they were.
 */
#ifndef QUERN_FORMAT_MODEL_FILES_H
#define QUERN_FORMAT_MODEL_FILES_H

#include <stdbool.h>

#include "base/file_hash.h"

struct model_file {
    char *path;
    struct file_mark mark; /* from before it was opened */
};

/* All of a GGUF model's parts; of a folder, the small files and the shards, each in order. Zeroed: none. */
struct model_files {
    struct model_file *file; /* [n] */
    size_t n;
};

int model_files_add(struct model_files *f, const char *path, struct qn_error *e);
/* Of a folder, those of its small files that are there. (It cannot be listed where the sandbox is closed.) */
int model_files_add_small(struct model_files *f, const char *dir, struct qn_error *e);
void model_files_deinit(struct model_files *f);

enum model_files_now {
    MODEL_FILES_SAME,
    MODEL_FILES_REPLACED, /* a name leads to another file: the one that was opened is intact, but has no name any more
                           */
    MODEL_FILES_CHANGED,  /* one that was opened is another now: what is read from it is not the model; *e says which */
};
/* A call of the system for each file. One that has gone is as it was, and so is one whose name leads to another that
 * may not be opened: in the sandbox a new file is another than the one that was allowed. */
enum model_files_now model_files_look(const struct model_files *f, struct qn_error *e);
/* Of all marks: another one when the model's files are others, or changed. */
uint64_t model_files_mark(const struct model_files *f, uint64_t seed);

#endif
