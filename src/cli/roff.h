/* SPDX-License-Identifier: MIT
 *
 * roff.h: texts as roff reads them, for pages in the macros of man(7).
 *
 * A text is ASCII. What roff would act on comes out as the character it is: a minus as a minus and not as a hyphen (so
 * that options can be copied from the page), quotes as typed, a full stop at the beginning of a line as no macro.
 */
#ifndef QUERN_CLI_ROFF_H
#define QUERN_CLI_ROFF_H

#include <stddef.h>
#include <stdio.h>

/* A text that continues the present line; line breaks in it are spaces. Also good inside of a macro's argument. */
void roff_text(FILE *f, const char *text, size_t n);
/* The same in bold ('B') or italics ('I'). */
void roff_font(FILE *f, char font, const char *text, size_t n);
/* The same with options (--name) bold, and placeholders (NAME) in italics when `places` is set. */
void roff_prose(FILE *f, const char *text, size_t n, int places);
/* Lines as they are, in a fixed font. */
void roff_literal(FILE *f, const char *text, size_t n);

#endif
