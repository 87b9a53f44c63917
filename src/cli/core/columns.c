/* SPDX-License-Identifier: MIT
 *
 * columns.c: measures cells, aligns them and prints them. See columns.h.
 *
 * The width of a character does not depend on the locale: file names are UTF-8 in every locale, and terminals do not
 * look at it either. The ranges are the blocks of Unicode that are wide as a whole, and those of marks that combine
 * with the letter before. A character that is missing here shifts the rest of its line, and nothing more.
 *
 * Source: Unicode Standard Annex 11 (East Asian Width).
 */
#include "cli/core/columns.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "cli/core/cli.h"

#define CELL_BYTES 4096

struct range {
    uint32_t lo, hi;
};

static bool is_in(const struct range *r, size_t n, uint32_t cp)
{
    for (size_t i = 0; i < n; i++)
        if (cp >= r[i].lo && cp <= r[i].hi) return true;
    return false;
}

static size_t char_width(uint32_t cp)
{
    static const struct range wide[] = {{0x1100, 0x115F},  {0x2E80, 0x303E},   {0x3041, 0xA4CF},   {0xA960, 0xA97C},
                                        {0xAC00, 0xD7A3},  {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},
                                        {0xFFE0, 0xFFE6},  {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1FAFF},
                                        {0x20000, 0x3FFFD}};
    static const struct range none[] = {{0x0300, 0x036F}, {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x200B, 0x200D},
                                        {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};
    if (cp < 0x300) return 1;
    if (is_in(none, sizeof none / sizeof *none, cp)) return 0;
    return is_in(wide, sizeof wide / sizeof *wide, cp) ? 2 : 1;
}

size_t columns_width(const char *text)
{
    const uint8_t *p = (const uint8_t *)text;
    size_t width = 0, n = strlen(text);
    while (n) {
        uint32_t cp = '?';
        unsigned len = utf8_get(p, n, &cp);
        width += char_width(cp);
        if (!len) len = 1;
        p += len;
        n -= len;
    }
    return width;
}

void columns_add(struct text_columns *c, const char *fmt, ...)
{
    char text[CELL_BYTES], clean[CELL_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t len = error_clean(clean, sizeof clean, text), n_columns = strlen(c->align);
    if (c->n % n_columns == 0) { /* a row more */
        char **more = cli_alloc(c->n + n_columns, sizeof *more);
        if (c->n) memcpy(more, c->cell, c->n * sizeof *more);
        cli_free(c->cell);
        c->cell = more;
    }
    char *cell = cli_alloc(len + 1, 1);
    memcpy(cell, clean, len);
    c->cell[c->n++] = cell;
}

void columns_print(struct text_columns *c)
{
    size_t n_columns = strlen(c->align), *width = cli_alloc(n_columns, sizeof *width), gap = 0;
    for (size_t i = 0; i < c->n; i++) {
        size_t w = columns_width(c->cell[i]);
        if (w > width[i % n_columns]) width[i % n_columns] = w;
    }
    for (size_t i = 0; i < c->n; i++) {
        size_t k = i % n_columns, rest = width[k] - columns_width(c->cell[i]);
        if (c->align[k] == 'r') gap += rest;
        if (c->cell[i][0]) { /* so that no line ends in spaces */
            printf("%*s%s", (int)gap, "", c->cell[i]);
            gap = 0;
        }
        gap += c->align[k] == 'l' ? rest + 2 : 2;
        if (k == n_columns - 1) {
            putchar('\n');
            gap = 0;
        }
        cli_free(c->cell[i]);
    }
    cli_free(c->cell);
    cli_free(width);
    *c = (struct text_columns){.align = c->align};
}

void columns_size(uint64_t bytes, char dst[32])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    int u = 0;
    for (; v >= 1024 && u < 4; u++) v /= 1024;
    snprintf(dst, 32, u ? "%.1f %s" : "%.0f %s", v, units[u]);
}
