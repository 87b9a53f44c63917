/* SPDX-License-Identifier: MIT
 *
 * out_file.h: a file that appears whole or not at all: written under a temporary name beside
 * its place, synced and renamed when complete, the directory synced too.
 */
#ifndef QUERN_BASE_OUT_FILE_H
#define QUERN_BASE_OUT_FILE_H

#include <stddef.h>

#include "base/error.h"

struct out_file {
    int fd; /* meaningful while path is set; -1 once committed */
    char *path, *temp;
};

/* All of these: QN_EIO names the path and the reason. What is there already must be a regular file. */
int out_file_open(struct out_file *f, const char *path, struct qn_error *e);
int out_file_write(struct out_file *f, const void *p, size_t n, struct qn_error *e);
int out_file_commit(struct out_file *f, struct qn_error *e);
/* Removes what was written, unless it was committed. A zeroed struct may be aborted. */
void out_file_abort(struct out_file *f);

#endif
