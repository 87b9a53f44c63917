/* SPDX-License-Identifier: MIT
 *
 * edit.h: reads a text from a person at a terminal, with editing.
 *
 * A text has one line or several: a line that ends in a backslash continues in the next, Alt-Enter breaks a line, and
 * a paste may have any number of lines (see paste.h). Ctrl-C discards what was typed; twice on an empty line it ends
 * the input, as Ctrl-D does. The terminal is in a special mode only while edit_read() waits. Whatever ends that, a
 * signal too, the terminal's mode is restored.
 *
 * Texts are UTF-8 in every locale, because terminals use it.
 */
#ifndef QUERN_CLI_EDIT_H
#define QUERN_CLI_EDIT_H

#include "base/buf.h"

struct edit;

/* The i-th completion of a line's first n bytes, complete and NUL-terminated; NULL: there are no more. */
typedef const char *edit_completer(void *arg, const char *line, size_t n, size_t i);

struct edit_setup {
    const char *prompt, *more; /* before the first line, and before the lines that continue it */
    edit_completer *complete;  /* for Tab; NULL: Tab is a character */
    void *arg;
    const char *history; /* the history file (history.h); NULL: this user's */
};

enum { EDIT_TEXT = 0, EDIT_END = 1 }; /* the result of edit_read() */

/* Opens the editor; standard input and output must be a terminal. The strings of setup are borrowed. If the editor
 * works but the history file does not, notice says why; otherwise its code is 0. QN_EUNSUP: libedit is missing; QN_EIO:
 * there is no terminal. */
int edit_open(struct edit **out, const struct edit_setup *setup, struct qn_error *notice, struct qn_error *e);
/* Appends one text without its last line break. Returns EDIT_TEXT, EDIT_END or an error. A signal that ends programs
 * ends this one after the terminal is restored. */
int edit_read(struct edit *ed, struct buf *text, struct qn_error *e);
/* Restores the terminal and releases the editor; NULL is fine. */
void edit_close(struct edit *ed);

#endif
