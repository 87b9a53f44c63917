/* SPDX-License-Identifier: MIT
 *
 * error.c: one line of text about something foreign that went wrong.
 *
 * A message carries names out of model files and requests, and it is shown on terminals and in logs. So the
 * finished line goes through one filter: what a terminal would act on (control characters, C1 included, and the
 * characters that reorder a line) and what is not UTF-8 (RFC 3629: no overlong forms, no surrogates) is shown as
 * `\xNN`. A backslash of the input stays as it is: the line is for people, not for parsing back.
 *
 * A line that is too long loses its middle: what went wrong stands at its end, behind the long name.
 *
 * Does not translate, print or count errors.
 */
#include "base/error.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define LONGEST 5120 /* bytes of a message before it is shortened: a path (4096) and the words around it */

/* Length of the UTF-8 character at s (a NUL-terminated string), its code point in *cp; 0 when it is none. */
static int utf8_char(const unsigned char *s, uint32_t *cp)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    int n = s[0] < 0x80 ? 1 : s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : s[0] < 0xF5 ? 4 : 0;
    uint32_t c = n == 1 ? s[0] : s[0] & (0x7Fu >> n);

    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
        c = c << 6 | (s[i] & 0x3F);
    }
    if (c < least[n] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return 0;
    *cp = c;
    return n;
}

static int is_unsafe(uint32_t c)
{
    return c < 0x20 || (c >= 0x7F && c < 0xA0) ||    /* C0, DEL, C1 */
           (c >= 0x202A && c <= 0x202E) ||           /* embeddings and overrides of direction */
           (c >= 0x2066 && c <= 0x2069) ||           /* isolates */
           c == 0x2028 || c == 0x2029 ||             /* line and paragraph separator */
           c == 0x200E || c == 0x200F || c == 0x61C; /* direction marks */
}

size_t error_clean(char *dst, size_t cap, const char *src)
{
    static const char hex[] = "0123456789ABCDEF";
    const unsigned char *s = (const unsigned char *)src;
    size_t n = 0;

    if (cap == 0) return 0;
    while (*s) {
        uint32_t c = 0;
        int len = utf8_char(s, &c);
        if (len > 0 && !is_unsafe(c)) {
            if (n + (size_t)len >= cap) break;
            memcpy(dst + n, s, (size_t)len);
            n += (size_t)len;
            s += len;
        } else {
            /* A control character of several bytes comes by here once for each: its tail is not UTF-8. */
            if (n + 4 >= cap) break;
            dst[n++] = '\\';
            dst[n++] = 'x';
            dst[n++] = hex[*s >> 4];
            dst[n++] = hex[*s & 15];
            s++;
        }
    }
    dst[n] = '\0';
    return n;
}

/* True inside a character of a cleaned line. */
static int is_inside(char c) { return ((unsigned char)c & 0xC0) == 0x80; }

/* Copies a cleaned line of n bytes, leaving out its middle when it does not fit. */
static void fit(char *dst, size_t cap, const char *line, size_t n)
{
    static const char gap[] = " ... ";
    size_t head = cap / 3, tail = n < cap ? 0 : n - (cap - 1 - head - (sizeof gap - 1));

    if (n < cap) {
        memcpy(dst, line, n + 1);
        return;
    }
    while (is_inside(line[head]))
        head--;
    while (is_inside(line[tail]))
        tail++;
    memcpy(dst, line, head);
    memcpy(dst + head, gap, sizeof gap - 1);
    memcpy(dst + head + sizeof gap - 1, line + tail, n - tail + 1);
}

int error_set(struct qn_error *e, int code, const char *fmt, ...)
{
    char text[LONGEST], line[2 * LONGEST];
    va_list ap;

    if (!e) return code;
    va_start(ap, fmt);
    if (vsnprintf(text, sizeof text, fmt, ap) < 0) text[0] = '\0';
    va_end(ap);
    fit(e->msg, sizeof e->msg, line, error_clean(line, sizeof line, text));
    e->code = code;
    return code;
}

int error_nomem(struct qn_error *e, const char *what, size_t bytes)
{
    return error_set(e, QN_ENOMEM, "out of memory: %zu bytes for %s", bytes, what);
}
