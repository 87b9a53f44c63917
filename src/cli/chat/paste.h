/* SPDX-License-Identifier: MIT
 *
 * paste.h: turns the bytes of a paste into text.
 *
 * In bracketed paste mode a terminal sends ESC [ 200 ~ before the text and ESC [ 201 ~ after it, and carriage returns
 * at the ends of lines (xterm's control sequences, "Bracketed Paste Mode"). A short text goes into the line as it is.
 * A long text, or one of several lines, is put aside. A mark such as "[paste 1: 100000 bytes, 1423 lines]" takes its
 * place in the line until the line is complete.
 *
 * This module does not read, and it does not know how lines are edited.
 */
#ifndef QUERN_CLI_PASTE_H
#define QUERN_CLI_PASTE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

#define PASTE_ON     "\033[?2004h" /* switch the brackets on and off */
#define PASTE_OFF    "\033[?2004l"
#define PASTE_BEGIN  "\033[200~"
#define PASTE_END    "\033[201~"
#define PASTE_INLINE 200 /* most bytes of a text without line breaks that goes into the line */

struct paste {
    char mark[80];
    char *text;
    size_t n;
};

struct paste_list {
    struct paste *v;
    size_t n;
}; /* zeroed: empty */

/* Adds the next byte after PASTE_BEGIN. Returns 1 when the text is complete: raw then has the text between the
 * brackets. */
int paste_byte(struct buf *raw, unsigned char byte, struct qn_error *e);
/* Replaces carriage returns, with or without a line feed after them, by line feeds, in place. */
void paste_lines(struct buf *raw);
/* The text to show in the line: the paste itself, or a mark if it was put aside in the list. Borrowed from raw or
 * from the list. NULL: no memory. The caller refuses text that is not UTF-8. */
const char *paste_shown(struct paste_list *l, const struct buf *raw, struct qn_error *e);
/* The length of the mark that ends at line[n], for a text in the list; 0: there is none. */
size_t paste_mark_before(const struct paste_list *l, const char *line, size_t n);
/* Appends the line, with the texts in place of their marks. */
int paste_expand(const struct paste_list *l, const char *line, size_t n, struct buf *out, struct qn_error *e);
/* Releases the texts and empties the list. */
void paste_clear(struct paste_list *l);

#endif
