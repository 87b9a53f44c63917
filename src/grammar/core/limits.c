/* SPDX-License-Identifier: MIT
 *
 * limits.c: see limits.h.
 */
#include "grammar/core/limits.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"

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

void *limits_grow(struct limits *l, void *p, uint32_t *cap, uint32_t need, size_t size)
{
    if (need <= *cap) return p;
    if (l->rc) return NULL;
    uint64_t n = *cap < 16 ? 16 : (uint64_t)*cap * 2;
    while (n < need) n *= 2;
    size_t more = (size_t)(n - *cap) * size;
    if (n > UINT32_MAX || more > limits_left(l)) {
        limits_fail(l, QN_EUNSUP, "the grammar needs more than its %zu bytes of memory", l->max_bytes);
        return NULL;
    }
    void *q = mem_realloc(p, (size_t)n * size);
    if (!q) {
        l->rc = error_nomem(&l->error, "a grammar", (size_t)n * size);
        return NULL;
    }
    l->bytes += more;
    *cap = (uint32_t)n;
    return q;
}

void limits_release(struct limits *l, void *p, uint32_t cap, size_t size)
{
    l->bytes -= (size_t)cap * size;
    mem_free(p);
}

int limits_report(const struct limits *l, struct qn_error *e)
{
    if (l->rc && e) *e = l->error;
    return l->rc;
}
