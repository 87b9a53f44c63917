/* SPDX-License-Identifier: MIT
 *
 * columns.c: measures cells, aligns them and prints them. See columns.h.
 *
 * The width of a character does not depend on the locale: file names are UTF-8 in every locale, and terminals do not
 * look at it either. The parts of an emoji with joiners count one by one, as wcwidth() has them: a terminal that joins
 * them needs less room.
 *
 * Source: Unicode Standard Annex 11 (East Asian Width).
 */
#include "cli/core/columns.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/utf8.h"
#include "cli/core/cli.h"
#include "cli/core/term.h"
#include "text/token/unicode.h"

#define CELL_BYTES 4096

#define EMOJI_STYLE 0xFE0F /* the character before is drawn as an emoji */

size_t columns_of(uint32_t cp, uint32_t before)
{
    if (cp == EMOJI_STYLE) return before && unicode_cells(before) == 1;
    return unicode_cells(cp);
}

size_t columns_fit(const char *text, size_t cells)
{
    const uint8_t *p = (const uint8_t *)text;
    size_t width = 0, at = 0, n = strlen(text);
    for (uint32_t cp, before = 0; at < n; before = cp) {
        cp = '?';
        unsigned len = utf8_get(p + at, n - at, &cp);
        width += columns_of(cp, before);
        if (width > cells) break;
        at += len ? len : 1;
    }
    return at;
}

size_t columns_width(const char *text)
{
    const uint8_t *p = (const uint8_t *)text;
    size_t width = 0, n = strlen(text);
    for (uint32_t cp, before = 0; n; before = cp) {
        cp = '?';
        unsigned len = utf8_get(p, n, &cp);
        width += columns_of(cp, before);
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

#define LEAST_NAME 12 /* cells that a column 'n' keeps */
#define LEAST_TEXT 16 /* cells that are left for the last column before its texts are broken */

/* The places of the columns on a line. */
struct places {
    size_t n, limit;    /* columns; cells of a line */
    size_t *at, *width; /* [n] first cell; cells */
};

/* Makes a column 'n' narrower, so that the others fit into the line. */
static void make_room(const struct text_columns *c, struct places *p)
{
    size_t sum = 0, last = p->n - 1;
    for (size_t k = 0; k < p->n; k++) sum += p->width[k] + (k ? 2 : 0);
    if (c->align[last] == 'l' && p->width[last] > LEAST_TEXT) sum -= p->width[last] - LEAST_TEXT;
    for (size_t k = 0; k < p->n && sum > p->limit; k++) {
        if (c->align[k] != 'n') continue;
        size_t over = sum - p->limit, most = p->width[k] > LEAST_NAME ? p->width[k] - LEAST_NAME : 0;
        p->width[k] -= over < most ? over : most;
        sum -= over < most ? over : most;
    }
}

static void set_places(const struct text_columns *c, struct places *p)
{
    for (size_t i = 0; i < c->n; i++) {
        size_t w = columns_width(c->cell[i]);
        if (w > p->width[i % p->n]) p->width[i % p->n] = w;
    }
    make_room(c, p);
    for (size_t k = 1; k < p->n; k++) p->at[k] = p->at[k - 1] + p->width[k - 1] + 2;
}

/* Prints a text of the last column; if it is too long for the line, its words are put on several lines. */
static void print_words(const char *text, size_t at, size_t limit)
{
    size_t used = at;
    for (const char *p = text; *p;) {
        char word[CELL_BYTES];
        size_t n = strcspn(p, " ");
        memcpy(word, p, n);
        word[n] = 0;
        size_t w = columns_width(word);
        if (p != text && used + 1 + w > limit) {
            printf("\n%*s", (int)at, "");
            used = at;
        } else if (p != text) {
            putchar(' ');
            used++;
        }
        fputs(word, stdout);
        used += w;
        p += n;
        p += strspn(p, " ");
    }
}

static void print_row(const struct text_columns *c, const struct places *p, char **cell)
{
    size_t used = 0;
    for (size_t k = 0; k < p->n; k++) {
        size_t w = columns_width(cell[k]), to = p->at[k];
        if (!*cell[k]) continue; /* so that no line ends in spaces */
        if (c->align[k] == 'r') to += p->width[k] - w;
        printf("%*s", (int)(to - used), "");
        used = to + w;
        if (k == p->n - 1 && c->align[k] == 'l' && used > p->limit)
            print_words(cell[k], to, p->limit);
        else
            fputs(cell[k], stdout);
        if (w <= p->width[k] || k == p->n - 1) continue;
        putchar('\n'); /* a long name has a line of its own */
        used = 0;
    }
    putchar('\n');
}

void columns_print(struct text_columns *c)
{
    struct places p = {.n = strlen(c->align),
                       .limit = isatty(STDOUT_FILENO) ? (size_t)term_width(STDOUT_FILENO) : SIZE_MAX};
    p.at = cli_alloc(p.n, sizeof *p.at);
    p.width = cli_alloc(p.n, sizeof *p.width);
    set_places(c, &p);
    for (size_t i = 0; i < c->n; i += p.n) print_row(c, &p, c->cell + i);
    for (size_t i = 0; i < c->n; i++) cli_free(c->cell[i]);
    cli_free(c->cell);
    cli_free(p.at);
    cli_free(p.width);
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
