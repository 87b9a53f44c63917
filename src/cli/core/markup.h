/* SPDX-License-Identifier: MIT
 *
 * markup.h: shows a little Markdown as what it means, while an answer arrives at a terminal.
 *
 * Pairs of ** around text and pairs of backticks become bold text and code, and only these marks go. A mark without
 * its pair in the line stays, and so do all other marks, so nothing that the model writes is hidden: `char **argv`,
 * `2**8`, `__init__`. Headings, fences and code blocks get a style and keep their marks. Lines of code blocks and of
 * tables are never wrapped. Without styles only the wrapping is left.
 *
 * A mark that may begin a pair waits for the other one, for at most MARKUP_WAIT bytes. wrap.h lays the lines out. The
 * characters are those that the terminal may see (render.h).
 *
 * Source: CommonMark 0.31, sections 4.5, 6.1 and 6.2, with stricter rules for what begins a pair.
 */
#ifndef QUERN_CLI_MARKUP_H
#define QUERN_CLI_MARKUP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "cli/core/wrap.h"

#define MARKUP_WAIT 160

enum markup_line {
    LINE_BEGINS,  /* its first word does not yet say what it is */
    LINE_TEXT,    /* wrapped, and pairs of marks become styles */
    LINE_HEADING, /* the same without bold text, because it is bold */
    LINE_FIXED,   /* as it is: code or a table */
    LINE_FENCE,   /* the same: before or after code */
};

struct markup {
    bool styled;           /* marks become styles */
    struct wrap wrap;      /* its width is the terminal's */
    struct buf held;       /* characters that wait */
    enum markup_line line; /* what the line is */
    int indent;            /* spaces before its first word */
    char before;           /* the last byte that was shown in the line; 0: none */
    char fence;            /* the lines are code, and a fence of this character ends it; 0: no code */
    size_t n_fence;        /* least length of that fence */
};                         /* zeroed but for `styled` and the width: at the beginning of an answer */

/* Adds a character, n bytes of UTF-8 or of an escape for people, that is no line break; appends what is complete. */
int markup_add(struct markup *m, struct buf *out, const char *text, size_t n, struct qn_error *e);
/* Ends the line, without a line break, and its styles. */
int markup_end_line(struct markup *m, struct buf *out, struct qn_error *e);
/* Starts another answer. Does not change `styled` and the width. */
void markup_reset(struct markup *m);
void markup_deinit(struct markup *m);

#endif
