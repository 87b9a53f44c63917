/* SPDX-License-Identifier: MIT
 *
 * roff.c: the escapes of groff_char(7), and fonts. See roff.h.
 */
#include "cli/main/roff.h"

#include <ctype.h>
#include <string.h>

static void one(FILE *f, char c)
{
    static const char special[] = "-\\'\"`^~";
    static const char *const names[] = {"\\-", "\\(rs", "\\(aq", "\\(dq", "\\(ga", "\\(ha", "\\(ti"};
    const char *p = c ? strchr(special, c) : NULL;
    if (p)
        fputs(names[p - special], f);
    else
        fputc(c, f);
}

void roff_text(FILE *f, const char *text, size_t n)
{
    if (n && *text == '.') fputs("\\&", f);
    for (size_t i = 0; i < n; i++) one(f, text[i] == '\n' ? ' ' : text[i]);
}

void roff_font(FILE *f, char font, const char *text, size_t n)
{
    fprintf(f, "\\f%c", font);
    roff_text(f, text, n);
    fputs("\\fR", f);
}

static size_t name_length(const char *p, const char *end)
{
    size_t n = 0;
    while (p + n < end && (islower((unsigned char)p[n]) || isdigit((unsigned char)p[n]) || p[n] == '-')) n++;
    return n;
}

static size_t place_length(const char *p, const char *end)
{
    size_t n = 0;
    while (p + n < end && isupper((unsigned char)p[n])) n++;
    return n;
}

void roff_prose(FILE *f, const char *text, size_t n, int places)
{
    const char *end = text + n;
    for (const char *p = text; p < end;) {
        size_t k = 0;
        int begins = p == text || !isalnum((unsigned char)p[-1]);
        if (begins && end - p > 3 && p[0] == '-' && p[1] == '-' && islower((unsigned char)p[2]))
            k = 2 + name_length(p + 2, end);
        if (k) {
            roff_font(f, 'B', p, k);
        } else if (begins && places && (k = place_length(p, end)) > 0) {
            roff_font(f, 'I', p, k);
        } else {
            k = 1;
            if (p == text)
                roff_text(f, p, 1);
            else
                one(f, *p == '\n' ? ' ' : *p);
        }
        p += k;
    }
}

void roff_literal(FILE *f, const char *text, size_t n)
{
    fputs(".PP\n.RS 4\n.EX\n", f);
    while (n) {
        const char *stop = memchr(text, '\n', n);
        size_t len = stop ? (size_t)(stop - text) : n;
        if (len)
            roff_text(f, text, len);
        else
            fputs("\\&", f); /* an empty line of the text */
        fputc('\n', f);
        text += len + (stop != NULL);
        n -= len + (stop != NULL);
    }
    fputs(".EE\n.RE\n", f);
}
