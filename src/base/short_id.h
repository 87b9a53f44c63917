/* SPDX-License-Identifier: MIT
 *
 * short_id.h: an id of nine letters and digits, which every chat template and every client accepts.
 */
#ifndef QUERN_BASE_SHORT_ID_H
#define QUERN_BASE_SHORT_ID_H

#include <stdbool.h>
#include <stddef.h>

#define SHORT_ID 9 /* bytes, without the NUL */

/* Makes the id of n bytes. The same bytes always give the same id; different bytes give different ids, except for one
 * pair in 10^16. */
void short_id(char out[SHORT_ID + 1], const void *p, size_t n);

/* Whether n bytes of text have the shape of such an id. */
bool is_short_id(const char *text, size_t n);

#endif
