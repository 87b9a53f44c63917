/* SPDX-License-Identifier: MIT
 *
 * out_file.h: writes a file that appears whole or not at all. It is written under a temporary name in the same folder,
 * then synced and renamed, and the folder is synced too.
 */
#ifndef QUERN_BASE_OUT_FILE_H
#define QUERN_BASE_OUT_FILE_H

#include <stddef.h>

#include "base/error.h"

struct out_file {
    int fd;            /* while path is set; -1 once it was committed */
    char *path, *temp; /* owned */
};

/* All of these: QN_EIO names the path and the reason; QN_ENOMEM. If the path exists, it must be a regular file. */
int out_file_open(struct out_file *f, const char *path, struct qn_error *e);
int out_file_write(struct out_file *f, const void *p, size_t n, struct qn_error *e);
int out_file_commit(struct out_file *f, struct qn_error *e);
/* Removes the file unless it was committed, and frees the memory: call it in either case. A zeroed struct is fine. */
void out_file_abort(struct out_file *f);

#endif
