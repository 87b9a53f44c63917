/* SPDX-License-Identifier: MIT
 *
 * columns.h: a table for people: rows of texts, printed in columns that line up.
 */
#ifndef QUERN_CLI_COLUMNS_H
#define QUERN_CLI_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

/* A table to print. `align` has a letter for each column: 'l' left, 'r' right, 'n' left, for names. The cells are in
 * the order of the rows; the first row is the heading. */
struct text_columns {
    const char *align;
    char **cell; /* [n] */
    size_t n;
};

/* Adds the next cell, formatted. Control characters are made printable. */
void columns_add(struct text_columns *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints the table to stdout and empties it. No line ends in spaces, so a text of any length may be in the last
 * column. Where a terminal is too narrow, a long name gets a line of its own, and a text in a last column 'l' several
 * lines; in a pipe each row is one line. */
void columns_print(struct text_columns *c);

/* The width of a line of UTF-8 on a terminal, in cells: some characters take two, some none. */
size_t columns_width(const char *text);
/* The cells that a character adds after the character `before` (0: none). */
size_t columns_of(uint32_t cp, uint32_t before);
/* The number of bytes of the longest beginning that takes at most so many cells. */
size_t columns_fit(const char *text, size_t cells);
/* Writes a number of bytes with a unit, such as "4.2 GiB". */
void columns_size(uint64_t bytes, char dst[32]);

#endif
