/* SPDX-License-Identifier: MIT
 *
 * limits.c: see limits.h.
 */
#include "grammar/core/limits.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

void limits_fail(struct limits *l, int code, const char *fmt, ...)
{
    char line[sizeof l->error.msg];
    va_list args;
    if (l->rc) return;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    l->rc = error_set(&l->error, code, "%s", line);
}

bool limits_spend(struct limits *l, uint64_t steps)
{
    if (l->rc) return false;
    if (steps > l->work) {
        l->work = 0;
        limits_fail(l, QN_EUNSUP, "the grammar is too complex: it takes too many steps");
        return false;
    }
    l->work -= steps;
    return true;
}

size_t limits_left(const struct limits *l) { return l->bytes < l->max_bytes ? l->max_bytes - l->bytes : 0; }

/* ---- memory ---- */

int limits_source_take(struct limits_source *s, size_t bytes, const char *what, struct qn_error *e)
{
    int rc;
    while ((rc = ledger_take(s->ledger, bytes, what, e)) && s->drop && s->drop(s->arg)) {
    }
    if (!rc) atomic_fetch_add(&s->used, bytes);
    return rc;
}

void limits_source_give(struct limits_source *s, size_t bytes)
{
    atomic_fetch_sub(&s->used, bytes);
    ledger_give(s->ledger, bytes);
}

/* 0, or why there are not so many bytes. */
static int take(struct limits *l, size_t bytes, struct qn_error *e)
{
    if (bytes > limits_left(l))
        return error_set(e, QN_EUNSUP, "the grammar needs more than its %zu bytes of memory", l->max_bytes);
    int rc = l->source ? limits_source_take(l->source, bytes, "a grammar", e) : 0;
    if (!rc) l->bytes += bytes;
    return rc;
}

bool limits_try_take(struct limits *l, size_t bytes) { return !take(l, bytes, NULL); }

bool limits_take(struct limits *l, size_t bytes)
{
    if (!l->rc) l->rc = take(l, bytes, &l->error);
    return !l->rc;
}

void limits_give(struct limits *l, size_t bytes)
{
    l->bytes -= bytes;
    if (l->source) limits_source_give(l->source, bytes);
}

void *limits_grow(struct limits *l, void *p, uint32_t *cap, uint32_t need, size_t size)
{
    if (need <= *cap) return p;
    if (l->rc) return NULL;
    uint64_t n = *cap < 16 ? 16 : (uint64_t)*cap * 2;
    while (n < need) n *= 2;
    size_t more = n > UINT32_MAX ? SIZE_MAX : (size_t)(n - *cap) * size;
    if (!limits_take(l, more)) return NULL;
    void *q = mem_realloc(p, (size_t)n * size);
    if (!q) {
        limits_give(l, more);
        l->rc = error_nomem(&l->error, "a grammar", (size_t)n * size);
        return NULL;
    }
    *cap = (uint32_t)n;
    return q;
}

void limits_release(struct limits *l, void *p, uint32_t cap, size_t size)
{
    limits_give(l, (size_t)cap * size);
    mem_free(p);
}

int limits_report(const struct limits *l, struct qn_error *e)
{
    if (l->rc && e) *e = l->error;
    return l->rc;
}
