/* SPDX-License-Identifier: MIT
 *
 * error.c: one line of text about something foreign that went wrong.
 *
 * A message has names from model files and requests in it, and is shown on terminals and in logs. So the finished line
 * goes through one filter. Characters that a terminal would act on (control characters, also C1, and those that reorder
 * a line) and bytes that are not UTF-8 (RFC 3629: no overlong forms, no surrogates) become `\xNN`. A backslash of the
 * input stays as it is, because the line is for people and is never parsed back.
 *
 * A line that is too long loses its middle, because its end, after the long name, says what went wrong.
 */
#include "base/error.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

#define LONGEST 5120 /* bytes of a message before it is shortened: a path (4096) and the words around it */

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
    const uint8_t *s = (const uint8_t *)src;
    size_t n = 0;

    if (cap == 0) return 0;
    while (*s) {
        uint32_t c = 0;
        unsigned len = utf8_get(s, strnlen((const char *)s, 4), &c);
        if (len > 0 && !is_unsafe(c)) {
            if (n + len >= cap) break;
            memcpy(dst + n, s, len);
            n += len;
            s += len;
        } else {
            /* A control character of several bytes comes here once for each byte, because its tail is not UTF-8. */
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
    while (is_inside(line[head])) head--;
    while (is_inside(line[tail])) tail++;
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
