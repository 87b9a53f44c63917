/* SPDX-License-Identifier: MIT
 *
 * wrap.h: puts words on the lines of a terminal while they arrive.
 *
 * A line is broken between words, and before and after wide characters; the spaces at the break go. A word is written
 * when it is complete. Styles are escape sequences that take no cells and belong to the next character.
 */
#ifndef QUERN_CLI_WRAP_H
#define QUERN_CLI_WRAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"

struct wrap {
    int width;       /* columns of the terminal; may change at any time */
    int hang;        /* indentation of the lines that continue this one */
    bool fixed;      /* the line is not broken */
    struct buf word; /* with its styles */
    int word_cells;  /* what the word takes on the screen */
    int column, gap; /* gap: spaces before the word */
    uint32_t before; /* the character before; 0: none, or a space */
    bool after_wide; /* a line may end after it */
};                   /* zeroed but for the width: at the beginning of a line */

/* Adds one character of n bytes, ASCII or UTF-8, that is no line break; appends what is complete. */
int wrap_add(struct wrap *w, struct buf *out, const char *text, size_t n, struct qn_error *e);
/* Adds an escape sequence. */
int wrap_style(struct wrap *w, const char *escape, struct qn_error *e);
/* Ends the line, without a line break. */
int wrap_end_line(struct wrap *w, struct buf *out, struct qn_error *e);
/* Forgets the line. Does not change the width. */
void wrap_reset(struct wrap *w);
void wrap_deinit(struct wrap *w);

/* Prints a line, and wraps it if f is a terminal; lines that continue it are indented by `hang`. */
void wrap_print(FILE *f, const char *line, int hang);

#endif
