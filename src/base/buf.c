/* SPDX-License-Identifier: MIT
 *
 * buf.c: a growing byte buffer that owns its memory.
 *
 * The capacity doubles, so adding a byte at a time costs O(1) each. One byte after the contents is always a NUL, so
 * that a buffer of text is a C string at any time. The capacity never shrinks.
 */
#include "base/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BUF_MIN_CAP ((size_t)64)

void buf_deinit(struct buf *b)
{
    mem_free(b->data);
    *b = (struct buf){0};
}

int buf_reserve_from(struct buf *b, struct ledger *l, size_t extra, struct qn_error *e)
{
    if (extra > SIZE_MAX - 1 - b->len) return error_nomem(e, "a buffer", extra);
    size_t need = b->len + extra + 1; /* the NUL */
    if (need <= b->cap) return 0;

    size_t cap = b->cap <= SIZE_MAX / 2 ? b->cap * 2 : SIZE_MAX;
    if (cap < need) cap = need;
    if (cap < BUF_MIN_CAP) cap = BUF_MIN_CAP;
    int rc = l ? ledger_take(l, cap - b->cap, "a buffer", e) : 0;
    if (rc) return rc;
    uint8_t *p = mem_realloc(b->data, cap);
    if (!p) {
        if (l) ledger_give(l, cap - b->cap);
        return error_nomem(e, "a buffer", cap);
    }
    b->data = p;
    b->cap = cap;
    b->data[b->len] = 0;
    return 0;
}

int buf_add_from(struct buf *b, struct ledger *l, const void *p, size_t n, struct qn_error *e)
{
    int rc = buf_reserve_from(b, l, n, e);
    if (rc) return rc;
    if (n) memcpy(b->data + b->len, p, n);
    b->len += n;
    b->data[b->len] = 0;
    return 0;
}

void buf_deinit_from(struct buf *b, struct ledger *l)
{
    if (l) ledger_give(l, b->cap);
    buf_deinit(b);
}

int buf_reserve(struct buf *b, size_t extra, struct qn_error *e) { return buf_reserve_from(b, NULL, extra, e); }

int buf_add(struct buf *b, const void *p, size_t n, struct qn_error *e) { return buf_add_from(b, NULL, p, n, e); }

int buf_str(struct buf *b, const char *s, struct qn_error *e) { return buf_add(b, s, strlen(s), e); }

int buf_printf(struct buf *b, struct qn_error *e, const char *fmt, ...)
{
    va_list ap, again;

    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    assert(n >= 0); /* negative only for a broken format, which is our own */
    int r = buf_reserve(b, (size_t)n, e);
    if (!r) {
        vsnprintf((char *)b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return r;
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    if (b->data) b->data[0] = 0;
}
