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

static int take_left(struct limits_source *s, size_t bytes, const char *what, struct qn_error *e)
{
    int rc = ledger_take(s->ledger, bytes, what, e);
    if (!rc) atomic_fetch_add(&s->used, bytes);
    return rc;
}

int limits_source_take(struct limits_source *s, size_t bytes, const char *what, struct qn_error *e)
{
    int rc;
    bool may_fit = bytes <= s->ledger->budget;
    while ((rc = take_left(s, bytes, what, e)) && may_fit && s->drop && s->drop(s->arg)) {
    }
    return rc;
}

void limits_source_give(struct limits_source *s, size_t bytes)
{
    atomic_fetch_sub(&s->used, bytes);
    ledger_give(s->ledger, bytes);
}

/* 0, or why the grammar may not have so many bytes more. */
static int check(const struct limits *l, size_t bytes, struct qn_error *e)
{
    if (bytes <= limits_left(l)) return 0;
    return error_set(e, QN_EUNSUP, "the grammar needs more than its %zu bytes of memory", l->max_bytes);
}

bool limits_try_take(struct limits *l, size_t bytes)
{
    if (check(l, bytes, NULL) || (l->source && take_left(l->source, bytes, "a grammar", NULL))) return false;
    l->bytes += bytes;
    return true;
}

bool limits_take(struct limits *l, size_t bytes)
{
    if (!l->rc) l->rc = check(l, bytes, &l->error);
    if (!l->rc && l->source) l->rc = limits_source_take(l->source, bytes, "a grammar", &l->error);
    if (!l->rc) l->bytes += bytes;
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

void *limits_shrink(struct limits *l, void *p, uint32_t *cap, uint32_t need, size_t size)
{
    uint32_t n = *cap;
    while (n > 16 && n / 2 >= need) n /= 2;
    void *q = n < *cap ? mem_realloc(p, n * size) : NULL;
    if (!q) return p;
    limits_give(l, (*cap - n) * size);
    *cap = n;
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
