/* SPDX-License-Identifier: MIT
 *
 * roff_plain.h: shows the manual's own pages on a machine without man.
 */
#ifndef QUERN_CLI_ROFF_PLAIN_H
#define QUERN_CLI_ROFF_PLAIN_H

#include <stdio.h>

/* Reads a page in the macros that roff.h and the manual write, to its end, and writes it as text in lines of at most
 * 78 columns, without fonts. A word that is longer has a line of its own; literal lines stay as they are. Macros that
 * it does not know are left out. */
void roff_plain(FILE *page, FILE *out);

#endif
