/* SPDX-License-Identifier: MIT
 *
 * context_how.c: see context_how.h.
 */
#include "server/models/context_how.h"

#include <stdlib.h>
#include <string.h>

#define MOST_DIGITS 9 /* no context is longer */

bool context_how_parse(const char *text, struct context_how *out)
{
    static const char rotate[] = "rotate:";
    const size_t n = sizeof rotate - 1;
    *out = (struct context_how){0};
    if (!strcmp(text, "plain")) return true;
    if (strncmp(text, rotate, n) != 0) return false;
    size_t digits = strspn(text + n, "0123456789");
    if (!digits || digits > MOST_DIGITS || text[n + digits]) return false;
    *out = (struct context_how){true, (int)strtol(text + n, NULL, 10)};
    return true;
}
