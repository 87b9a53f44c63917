/* SPDX-License-Identifier: MIT
 *
 * term.h: what the other end of a file descriptor can show.
 *
 * Colour and moving text are for terminals only: a pipe, a file or a dumb terminal gets plain lines. NO_COLOR
 * (no-color.org) switches colour off, and nothing forces colour into a pipe. The program's own texts are ASCII in
 * every locale.
 */
#ifndef QUERN_CLI_TERM_H
#define QUERN_CLI_TERM_H

#include <stdbool.h>

bool term_is(int fd); /* whether it is a terminal that can move its cursor */
bool term_colour(int fd);
int term_width(int fd); /* in columns, at least 40; 80 if it is not a terminal or does not give its width */

#endif
