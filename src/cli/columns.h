/* SPDX-License-Identifier: MIT
 *
 * columns.h: rows of texts for people, printed in columns that line up.
 */
#ifndef QUERN_CLI_COLUMNS_H
#define QUERN_CLI_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

/* align has a letter for each column: 'l' left, 'r' right. Cells come row by row, the first row is the heading. */
struct columns {
    const char *align;
    char **cell; /* [n] */
    size_t n;
};

/* What a terminal would act on is made printable. */
void columns_add(struct columns *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* To stdout; empties it. No line ends in spaces, so that a text of any length may stand in the last column. */
void columns_print(struct columns *c);

/* Cells of a terminal that a line takes: some characters take two, some none. */
size_t columns_width(const char *text);
/* "4.2 GiB". */
void columns_size(uint64_t bytes, char dst[32]);

#endif
