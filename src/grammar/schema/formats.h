/* SPDX-License-Identifier: MIT
 *
 * formats.h: the values of the keyword `format`, as patterns.
 */
#ifndef QUERN_GRAMMAR_FORMATS_H
#define QUERN_GRAMMAR_FORMATS_H

#include <stdbool.h>

#include "base/buf.h"

#define FORMAT_MOST 20 /* numbers of formats are below this */

/* The number of a format of strings; -1: it is not known. docs/GRAMMARS.md says where each one comes from. */
int format_number(const char *name);
/* Appends the pattern of a format, which matches the whole string. QN_ENOMEM. */
int format_pattern(int number, struct buf *out, struct qn_error *e);

#endif
