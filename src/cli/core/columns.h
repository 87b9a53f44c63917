/* SPDX-License-Identifier: MIT
 *
 * columns.h: a table for people: rows of texts, printed in columns that line up.
 */
#ifndef QUERN_CLI_COLUMNS_H
#define QUERN_CLI_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

/* A table to print. `align` has a letter for each column: 'l' left, 'r' right. The cells are in the order of the
 * rows; the first row is the heading. */
struct text_columns {
    const char *align;
    char **cell; /* [n] */
    size_t n;
};

/* Adds the next cell, formatted. Control characters are made printable. */
void columns_add(struct text_columns *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints the table to stdout and empties it. No line ends in spaces, so a text of any length may be in the last
 * column. */
void columns_print(struct text_columns *c);

/* The width of a line of UTF-8 on a terminal, in cells: some characters take two, some none. */
size_t columns_width(const char *text);
/* Writes a number of bytes with a unit, such as "4.2 GiB". */
void columns_size(uint64_t bytes, char dst[32]);

#endif
