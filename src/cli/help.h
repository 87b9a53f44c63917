/* SPDX-License-Identifier: MIT
 *
 * help.h: --help, printed from the table of a command.
 *
 * The short help fits a terminal of 24 lines and 80 columns; what is rare is left to the long one, and to the manual
 * (manual.c), which alone says all.
 */
#ifndef QUERN_CLI_HELP_H
#define QUERN_CLI_HELP_H

#include <stdio.h>

#include "cli/options.h"

enum help_size { HELP_NONE, HELP_SHORT, HELP_LONG };

/* To stdout. */
void help_command(const struct command *c, enum help_size size);
/* How the program is used, and its commands. */
void help_program(FILE *f, enum help_size size);
/* The words of `text`, from the present column on; new lines begin with `indent` spaces, and end before `width` unless
 * a single word is longer. Returns the column after the last word. */
int help_wrap(FILE *f, const char *text, size_t n, int column, int indent, int width);
/* The text up to the first empty line: its length. */
size_t help_paragraph(const char *text);
/* The paragraph after one of this length; NULL: that was the last. */
const char *help_next(const char *text, size_t n);

#endif
