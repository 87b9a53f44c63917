/* SPDX-License-Identifier: MIT
 *
 * term.h: what the other end of a file descriptor can show.
 *
 * Colour and anything that moves is for terminals only: a pipe, a file or a dumb terminal gets plain lines. NO_COLOR
 * (no-color.org) wins, and nothing forces colour into a pipe. The program
 * adds no letters outside of ASCII of itself, whatever the locale.
 */
#ifndef QUERN_CLI_TERM_H
#define QUERN_CLI_TERM_H

#include <stdbool.h>

bool term_is(int fd); /* a terminal that can move its cursor */
bool term_colour(int fd);
int term_width(int fd); /* in columns, at least 40; 80 when it is no terminal or does not say */

#endif
