/* SPDX-License-Identifier: MIT
 *
 * code_block.c: finds a fenced code block. See code_block.h.
 */
#include "cli/core/code_block.h"

#include <stdbool.h>
#include <string.h>

/* The number of fence characters that a line begins with, after at most three spaces. 0: it is no fence. *c: which;
 * *at: where they end. */
static size_t fence_of(const char *line, size_t n, char *c, size_t *at)
{
    size_t indent = 0, run = 0;
    while (indent < n && indent < 4 && line[indent] == ' ') indent++;
    if (indent == 4 || indent == n || (line[indent] != '`' && line[indent] != '~')) return 0;
    *c = line[indent];
    while (indent + run < n && line[indent + run] == *c) run++;
    *at = indent + run;
    return run >= 3 ? run : 0;
}

static bool is_blank(const char *p, size_t n)
{
    while (n && (p[n - 1] == ' ' || p[n - 1] == '\t' || p[n - 1] == '\r')) n--;
    return n == 0;
}

const char *code_block_find(const char *text, size_t n, size_t *len)
{
    const char *begin = NULL, *end = text + n;
    size_t open = 0;
    char with = 0;
    for (const char *line = text, *next; line < end; line = next) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t at = 0, n_line = (size_t)((stop ? stop : end) - line), run;
        char c = 0;
        next = stop ? stop + 1 : end;
        run = fence_of(line, n_line, &c, &at);
        if (!begin && run && (c == '~' || !memchr(line + at, '`', n_line - at))) {
            begin = next;
            open = run;
            with = c;
        } else if (begin && c == with && run >= open && is_blank(line + at, n_line - at)) {
            *len = (size_t)(line - begin);
            return begin;
        }
    }
    if (begin) *len = (size_t)(end - begin);
    return begin;
}
