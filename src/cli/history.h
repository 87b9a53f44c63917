/* SPDX-License-Identifier: MIT
 *
 * history.h: the lines a person has entered, kept in a file from one run to the next.
 *
 * One entry is one line of the file: a line break in it is written `\n`, a backslash `\\`. Entries are appended as they
 * come, each by one write, so that several runs at a time lose none of each other's. The file is the user's alone (mode
 * 0600), and is cut to its last HISTORY_ENTRIES entries when it is opened and has become large.
 *
 * Does not know how lines are edited.
 */
#ifndef QUERN_CLI_HISTORY_H
#define QUERN_CLI_HISTORY_H

#include <stddef.h>

#include "base/buf.h"

#define HISTORY_ENTRIES     1000
#define HISTORY_ENTRY_BYTES 4096      /* longer ones are not kept */
#define HISTORY_FILE_BYTES  (1 << 20) /* a file with more is cut; of one with more still only its end is read */

struct history {
    int fd;          /* -1: not kept */
    struct buf text; /* the entries of earlier runs, NUL after each, the oldest first */
};

/* Opens or makes the file and the folders above it, and reads what it has. QN_EIO names the path and the reason; h is
 * then a history that is not kept. */
int history_open(struct history *h, const char *path, struct qn_error *e);
/* Appends an entry. What does not succeed is not tried again. */
void history_add(struct history *h, const char *text, size_t n);
void history_close(struct history *h);

#endif
