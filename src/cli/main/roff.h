/* SPDX-License-Identifier: MIT
 *
 * roff.h: writes texts for roff, for pages in the macros of man(7).
 *
 * A text is ASCII. Characters that have a meaning for roff come out as themselves: a minus as a minus and not as a
 * hyphen (so that options can be copied from the page), quotes as typed, a full stop at the beginning of a line not as
 * a macro.
 */
#ifndef QUERN_CLI_ROFF_H
#define QUERN_CLI_ROFF_H

#include <stddef.h>
#include <stdio.h>

/* Writes a text that continues the current line; line breaks in it become spaces. May be used in the argument of a
 * macro. */
void roff_text(FILE *f, const char *text, size_t n);
/* The same in bold ('B') or italics ('I'). */
void roff_font(FILE *f, char font, const char *text, size_t n);
/* The same with options (--name) in bold, and with placeholders (NAME) in italics if `places` is set. */
void roff_prose(FILE *f, const char *text, size_t n, int places);
/* Writes lines as they are, in a fixed font. */
void roff_literal(FILE *f, const char *text, size_t n);

#endif
