/* SPDX-License-Identifier: MIT
 *
 * spans.c: a sorted list of spans. Such a list has about as many spans as there are connections, so it is searched from
 * the front.
 */
#include "fetch/spans.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

void spans_deinit(struct spans *s)
{
    mem_free(s->v);
    *s = (struct spans){0};
}

void spans_clear(struct spans *s) { s->n = 0; }

static int reserve(struct spans *s, size_t n, struct qn_error *e)
{
    size_t cap = s->cap ? s->cap : 8;
    struct byte_span *v;

    if (n <= s->cap) return 0;
    while (cap < n) cap *= 2;
    v = mem_realloc(s->v, cap * sizeof *v);
    if (!v) return error_nomem(e, "spans of a file", cap * sizeof *v);
    s->v = v;
    s->cap = cap;
    return 0;
}

int spans_add(struct spans *s, uint64_t from, uint64_t to, struct qn_error *e)
{
    size_t first = 0, last;

    assert(from < to);
    while (first < s->n && s->v[first].to < from) first++;
    for (last = first; last < s->n && s->v[last].from <= to; last++) {
        if (s->v[last].from < from) from = s->v[last].from;
        if (s->v[last].to > to) to = s->v[last].to;
    }
    if (first == last && reserve(s, s->n + 1, e)) return QN_ENOMEM;
    memmove(s->v + first + 1, s->v + last, (s->n - last) * sizeof *s->v); /* the spans [first, last) become one */
    s->n = s->n - (last - first) + 1;
    s->v[first] = (struct byte_span){from, to};
    return 0;
}

int spans_copy(struct spans *to, const struct spans *from, struct qn_error *e)
{
    if (reserve(to, from->n, e)) return QN_ENOMEM;
    if (from->n) memcpy(to->v, from->v, from->n * sizeof *from->v);
    to->n = from->n;
    return 0;
}

uint64_t spans_bytes(const struct spans *s)
{
    uint64_t n = 0;

    for (size_t i = 0; i < s->n; i++) n += s->v[i].to - s->v[i].from;
    return n;
}

uint64_t spans_gap(const struct spans *s, uint64_t at, uint64_t *end)
{
    size_t i = 0;

    while (i < s->n && s->v[i].to <= at) i++;
    if (i < s->n && s->v[i].from <= at) at = s->v[i++].to;
    *end = i < s->n ? s->v[i].from : UINT64_MAX;
    return at;
}
