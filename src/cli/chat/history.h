/* SPDX-License-Identifier: MIT
 *
 * history.h: the lines that a person has entered, kept in a file between runs.
 *
 * An entry is one line of the file: a line break in it is written `\n`, a backslash `\\`. Each entry is appended with
 * one write, so several runs at a time lose nothing. Only the user can read the file (mode 0600). When it is opened
 * and is large, it is cut to its last HISTORY_ENTRIES entries.
 *
 * This module does not know how lines are edited.
 */
#ifndef QUERN_CLI_HISTORY_H
#define QUERN_CLI_HISTORY_H

#include <stddef.h>

#include "base/buf.h"

#define HISTORY_ENTRIES     1000
#define HISTORY_ENTRY_BYTES 4096      /* longer entries are not kept */
#define HISTORY_FILE_BYTES  (1 << 20) /* a larger file is cut; of a much larger one only the end is read */

struct history {
    int fd;          /* -1: not kept */
    struct buf text; /* the entries of earlier runs, oldest first, with a NUL after each */
};

/* Opens or makes the file and the folders above it, and reads it. QN_EIO names the path and the reason; h then keeps
 * nothing and may be used. */
int history_open(struct history *h, const char *path, struct qn_error *e);
/* Appends an entry. If that fails, h keeps nothing from then on. */
void history_add(struct history *h, const char *text, size_t n);
/* Closes the file and releases the entries. */
void history_close(struct history *h);

#endif
