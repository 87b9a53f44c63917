/* SPDX-License-Identifier: MIT
 *
 * partial.h: a file or folder that is not complete yet. It is called NAME.part and gets NAME only when it is complete.
 * A bad one is called NAME.bad. It is locked while a process works on it.
 */
#ifndef QUERN_FETCH_PARTIAL_H
#define QUERN_FETCH_PARTIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct partial_file {
    int fd; /* descriptor of the file, open for reading and writing, or of the folder; locked */
    bool is_folder;
    char *path, *part, *bad, *side; /* NAME, NAME.part, NAME.bad, NAME.part.json; owned */
};

/* Makes or opens NAME.part, and locks it; *p is freed with partial_close(). QN_EBUSY: another process works on it.
 * QN_EIO: it cannot be made. */
int partial_open(struct partial_file *p, const char *path, bool is_folder, struct qn_error *e);
/* Checks that the disk has room for `bytes` more. QN_EIO: it has not; the message has the numbers. */
int partial_check_space(const struct partial_file *p, uint64_t bytes, struct qn_error *e);
/* Gives the part its name, and waits until the disk has it. replace: a file of that name is replaced; otherwise that is
 * QN_EUSAGE. */
int partial_commit(struct partial_file *p, bool replace, struct qn_error *e);
/* Renames it to NAME.bad, and replaces an older file of that name. */
int partial_reject(struct partial_file *p, struct qn_error *e);
/* Unlocks the part and keeps it, unless it is an empty file: that is removed. A zeroed struct may be closed. */
void partial_close(struct partial_file *p);

#endif
