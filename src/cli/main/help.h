/* SPDX-License-Identifier: MIT
 *
 * help.h: prints --help from the table of a command.
 *
 * The short help fits a terminal of 24 lines and 80 columns. Rare options are only in the long help and in the manual
 * (command_manual.c), which is complete.
 */
#ifndef QUERN_CLI_HELP_H
#define QUERN_CLI_HELP_H

#include <stdio.h>

#include "cli/core/options.h"

/* Prints the help of a command to stdout. */
void help_command(const struct command *c, enum help_size size);
/* Prints how the program is used, and its commands. */
void help_program(FILE *f, enum help_size size);
/* Prints the words of `text` from `column` on. New lines begin with `indent` spaces and end before `width`, unless a
 * single word is longer. Returns the column after the last word. */
int help_wrap(FILE *f, const char *text, size_t n, int column, int indent, int width);
/* The length of the text up to the first empty line. */
size_t help_paragraph(const char *text);
/* The paragraph after one of n bytes; NULL: that was the last. */
const char *help_next(const char *text, size_t n);

#endif
