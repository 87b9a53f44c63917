/* SPDX-License-Identifier: MIT
 *
 * jinja_str.c: text with its origin.
 *
 * A jtext is text being written, with a mark for every byte. A finished string points into it; when all marks agree it
 * drops them for the value's flag. Adding to a string that is the whole of its jtext continues there, so that a
 * template that builds its output by `ns.text = ns.text + more` takes linear time and memory; older strings see only
 * their own length and do not notice.
 */
#include "text/jinja_str.h"

#include <assert.h>
#include <string.h>

#include "base/utf8.h"
#include "text/unicode.h"

static void make_room(struct jtext *t, size_t extra)
{
    if (t->max && extra > t->max - t->n) jenv_fail(t->j, QN_EDATA, "output exceeds the limit of %zu bytes", t->max);
    if (extra <= t->cap - t->n) return;
    size_t cap = t->cap < 32 ? 64 : t->cap * 2;
    if (cap < t->n + extra) cap = t->n + extra;
    char *p = jenv_get(t->j, cap);
    uint8_t *mark = jenv_get(t->j, cap);
    if (t->n) {
        memcpy(p, t->p, t->n);
        memcpy(mark, t->mark, t->n);
    }
    t->p = p;
    t->mark = mark;
    t->cap = cap;
}

void jtext_bytes(struct jtext *t, const char *p, size_t n, unsigned user)
{
    if (n == 0) return;
    jenv_step(t->j, n / 64);
    make_room(t, n);
    memcpy(t->p + t->n, p, n);
    memset(t->mark + t->n, (user & JUSER) != 0, n);
    t->n += n;
}

void jtext_c(struct jtext *t, const char *s, unsigned user) { jtext_bytes(t, s, strlen(s), user); }

void jtext_fill(struct jtext *t, char c, size_t n, unsigned user)
{
    if (n == 0) return;
    jenv_step(t->j, n / 64);
    make_room(t, n);
    memset(t->p + t->n, c, n);
    memset(t->mark + t->n, (user & JUSER) != 0, n);
    t->n += n;
}

void jtext_part(struct jtext *t, struct jval s, size_t from, size_t to)
{
    assert(from <= to && to <= s.s->n);
    jtext_bytes(t, s.s->p + from, to - from, s.flags);
    if (s.s->mark && to > from) memcpy(t->mark + t->n - (to - from), s.s->mark + from, to - from);
}

void jtext_str(struct jtext *t, struct jval s) { jtext_part(t, s, 0, s.s->n); }

void jtext_char(struct jtext *t, uint32_t cp, unsigned user)
{
    uint8_t c[4];
    jtext_bytes(t, (const char *)c, utf8_put(c, cp), user);
}

/* One value with n bytes at p; of one origin when the marks say so. */
static struct jval with_marks(struct jenv *j, const char *p, const uint8_t *mark, size_t n, unsigned flags)
{
    struct jval v = jval_str(j, n ? p : "", n, flags & ~JUSER);
    if (n == 0) return v;
    jenv_step(j, n / 64);
    const uint8_t *change = memchr(mark, !mark[0], n);
    if (change)
        v.s->mark = mark;
    else if (mark[0])
        v.flags |= JUSER;
    return v;
}

struct jval jtext_done(struct jtext *t, unsigned flags) { return with_marks(t->j, t->p, t->mark, t->n, flags); }

struct jval jstr_part(struct jenv *j, struct jval s, size_t from, size_t to)
{
    assert(from <= to && to <= s.s->n);
    if (to - from == s.s->n) return s;
    if (s.s->mark) return with_marks(j, s.s->p + from, s.s->mark + from, to - from, s.flags);
    return jval_str(j, s.s->p + from, to - from, s.flags);
}

struct jval jstr_join(struct jenv *j, struct jval a, struct jval b)
{
    struct jtext *t = a.s->tail;
    if (!t || t->p != a.s->p || t->n != a.s->n) {
        t = jenv_get(j, sizeof *t);
        *t = (struct jtext){.j = j};
        make_room(t, a.s->n + b.s->n);
        jtext_str(t, a);
    }
    jtext_str(t, b);
    struct jval v = jval_str(j, t->n ? t->p : "", t->n, (a.flags | b.flags) & JMARKUP);
    bool a_pure = !a.s->mark || a.s->n == 0, b_pure = !b.s->mark || b.s->n == 0;
    bool same = a.s->n == 0 || b.s->n == 0 || !((a.flags ^ b.flags) & JUSER);
    if (a_pure && b_pure && same) /* decided without looking at the marks, which would make joining quadratic */
        v.flags |= (a.s->n ? a.flags : b.flags) & JUSER;
    else
        v.s->mark = t->mark;
    v.s->tail = t;
    return v;
}

size_t jstr_chars(struct jval s)
{
    if (s.s->n_chars == SIZE_MAX) {
        size_t n = 0;
        for (size_t i = 0; i < s.s->n; i++) n += ((uint8_t)s.s->p[i] & 0xC0) != 0x80;
        s.s->n_chars = n;
    }
    return s.s->n_chars;
}

size_t jstr_offset(struct jenv *j, struct jval s, size_t i)
{
    if (i >= jstr_chars(s)) return s.s->n;
    if (s.s->n_chars == s.s->n) return i;
    jenv_step(j, i / 64);
    size_t at = 0;
    while (i > 0)
        if (((uint8_t)s.s->p[++at] & 0xC0) != 0x80) i--;
    return at;
}

unsigned jstr_user(struct jval s, size_t from, size_t to)
{
    if (!s.s->mark || from == to) return s.flags & JUSER;
    return memchr(s.s->mark + from, 1, to - from) ? JUSER : 0;
}

bool jstr_is(struct jval s, const char *c) { return s.s->n == strlen(c) && memcmp(s.s->p, c, s.s->n) == 0; }

size_t jstr_find(struct jenv *j, struct jval s, struct jval needle, size_t from)
{
    if (from > s.s->n) return SIZE_MAX;
    jenv_step(j, (s.s->n - from + needle.s->n) / 64);
    if (needle.s->n == 0) return from;
    const char *p = memmem(s.s->p + from, s.s->n - from, needle.s->p, needle.s->n);
    return p ? (size_t)(p - s.s->p) : SIZE_MAX;
}

size_t jstr_rfind(struct jenv *j, struct jval s, struct jval needle, size_t end)
{
    if (needle.s->n > end) return SIZE_MAX;
    for (size_t at = end - needle.s->n + 1; at-- > 0;) {
        if (at % 64 == 0 || needle.s->n >= 64) jenv_step(j, 1 + needle.s->n / 64);
        if (memcmp(s.s->p + at, needle.s->p, needle.s->n) == 0) return at;
    }
    return SIZE_MAX;
}

struct jval jstr_escape(struct jenv *j, struct jval s)
{
    if (s.flags & JMARKUP) return s;
    struct jtext t = {.j = j};
    size_t from = 0;
    for (size_t i = 0; i < s.s->n; i++) {
        char c = s.s->p[i];
        const char *as = c == '&'    ? "&amp;"
                         : c == '<'  ? "&lt;"
                         : c == '>'  ? "&gt;"
                         : c == '"'  ? "&#34;"
                         : c == '\'' ? "&#39;"
                                     : NULL;
        if (!as) continue;
        jtext_part(&t, s, from, i);
        jtext_c(&t, as, jstr_user(s, i, i + 1));
        from = i + 1;
    }
    jtext_part(&t, s, from, s.s->n);
    return jtext_done(&t, JMARKUP);
}

unsigned jchar_at(struct jval s, size_t at, uint32_t *cp)
{
    bool cut;
    return unicode_next((const uint8_t *)s.s->p + at, s.s->n - at, cp, &cut);
}

bool jchar_is_space(uint32_t cp)
{
    if (cp < 0x80) return cp == ' ' || (cp >= 0x09 && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1F);
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202F || cp == 0x205F || cp == 0x3000;
}
