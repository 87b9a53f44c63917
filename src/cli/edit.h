/* SPDX-License-Identifier: MIT
 *
 * edit.h: a text from a person at a terminal, edited as it is typed.
 *
 * A text is one line, or several: a line that ends in a backslash goes on in the next, Alt-Enter breaks it, a paste may
 * have any (see paste.h). Ctrl-C throws away what was typed; on an empty line, twice, it ends the input, as Ctrl-D
 * does. The terminal is in a mode of its own only while edit_read() waits: whatever ends that, a signal too, the
 * terminal is as it was.
 *
 * Texts are UTF-8, whatever the locale: terminals are.
 */
#ifndef QUERN_CLI_EDIT_H
#define QUERN_CLI_EDIT_H

#include "base/buf.h"

struct edit;

/* The i-th completion of a line's first n bytes, whole and NUL-terminated; NULL: there are no more. */
typedef const char *edit_completer(void *arg, const char *line, size_t n, size_t i);

struct edit_setup {
    const char *prompt, *more; /* before the first line, and before those that go on */
    edit_completer *complete;  /* for Tab; NULL: Tab is a character */
    void *arg;
    const char *history; /* the file (history.h); NULL: this user's */
};

enum { EDIT_TEXT = 0, EDIT_END = 1 }; /* what edit_read() has got */

/* Standard input and output must be a terminal. QN_EUNSUP without libedit, QN_EIO without a terminal. The setup's
 * strings are borrowed. When there is an editor but no history file, notice says why; its code is else 0. */
int edit_open(struct edit **out, const struct edit_setup *setup, struct qn_error *notice, struct qn_error *e);
/* Appends one text, without its last line break. EDIT_TEXT, EDIT_END, or an error. A signal that ends programs ends
 * this one, once the terminal is restored. */
int edit_read(struct edit *ed, struct buf *text, struct qn_error *e);
void edit_close(struct edit *ed);

#endif
