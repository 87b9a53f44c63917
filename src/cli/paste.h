/* SPDX-License-Identifier: MIT
 *
 * paste.h: what a terminal pastes, from its bytes to the text it stands for.
 *
 * In bracketed paste mode a terminal sends ESC [ 200 ~ before the text and ESC [ 201 ~ behind it, and carriage returns
 * where lines end (xterm's control sequences, "Bracketed Paste Mode"). A short text goes into the line as it is. A long
 * one, or one of several lines, is put aside, and a mark such as "[paste 1: 100000 bytes, 1423 lines]" stands for it in
 * the line, until the line is taken.
 *
 * Does not read, and does not know how lines are edited.
 */
#ifndef QUERN_CLI_PASTE_H
#define QUERN_CLI_PASTE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

#define PASTE_ON     "\033[?2004h" /* what asks a terminal for the brackets, and no longer */
#define PASTE_OFF    "\033[?2004l"
#define PASTE_BEGIN  "\033[200~"
#define PASTE_END    "\033[201~"
#define PASTE_INLINE 200 /* bytes of a text without line breaks that goes into the line */

struct paste {
    char mark[80];
    char *text;
    size_t n;
};

struct paste_list {
    struct paste *v;
    size_t n;
}; /* zeroed: empty */

/* The next byte behind PASTE_BEGIN. 1 when the text is complete: raw then has what stood between the brackets. */
int paste_byte(struct buf *raw, unsigned char byte, struct qn_error *e);
/* Carriage returns, with a line feed behind them or without, to line feeds, in place. */
void paste_lines(struct buf *raw);
/* What stands in the line for the text: itself, or a mark, when the text is put aside in the list. Borrowed from raw or
 * from the list. NULL: no memory. Text that is not UTF-8 is the caller's to refuse. */
const char *paste_shown(struct paste_list *l, const struct buf *raw, struct qn_error *e);
/* The mark that ends at line[n], of a text in the list; its length, or 0. */
size_t paste_mark_before(const struct paste_list *l, const char *line, size_t n);
/* Appends the line with its marks replaced by what they stand for. */
int paste_expand(const struct paste_list *l, const char *line, size_t n, struct buf *out, struct qn_error *e);
void paste_clear(struct paste_list *l);

#endif
