/* SPDX-License-Identifier: MIT
 *
 * jinja_str.c: text with its origin.
 *
 * A jtext is text that is being written, with a mark for every byte. A finished string points into it. When all its
 * marks agree, it has the value's flag instead of marks. When something is added to a string that is the whole of its
 * jtext, the text grows in place, so that a template that builds its output by `ns.text = ns.text + more` takes linear
 * time and memory. Older strings do not change: they see only their own length.
 */
#include "text/jinja/jinja_str.h"

#include <assert.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "text/token/unicode.h"

#define DOUBLED ((size_t)1 << 20) /* bytes; longer texts grow by half */

/* Makes room for n bytes at *p, of which t->n are in use. */
static void resize(struct jtext *t, void **p, size_t n)
{
    void *old = *p;
    if (!t->shared) {
        *p = jenv_resize(t->j, old, t->cap, n);
        return;
    }
    *p = jenv_get(t->j, n);
    if (t->n) memcpy(*p, old, t->n);
}

static void make_room(struct jtext *t, size_t extra)
{
    if (t->max && extra > t->max - t->n) jenv_fail(t->j, QN_EDATA, "output exceeds the limit of %zu bytes", t->max);
    if (extra <= t->cap - t->n) return;
    size_t cap = t->cap < DOUBLED ? t->cap * 2 : t->cap + t->cap / 2;
    if (t->cap < 32) cap = 64;
    if (cap - t->n < extra) cap = extra > SIZE_MAX / 2 ? SIZE_MAX / 2 : t->n + extra;
    jenv_bytes(t->j, t->n);
    void *p = t->p, *mark = t->mark;
    resize(t, &p, cap);
    t->p = p;
    if (mark) resize(t, &mark, cap);
    t->mark = mark;
    t->cap = cap;
    t->shared = false;
}

/* From now on every byte has a mark of its own. */
static void need_marks(struct jtext *t)
{
    if (t->mark || t->cap == 0) return;
    t->mark = jenv_get(t->j, t->cap);
    jenv_bytes(t->j, t->n);
    memset(t->mark, (int)t->user, t->n);
}

/* Adds n bytes, still to be written, whose marks are all `user`. */
static void extend(struct jtext *t, size_t n, unsigned user)
{
    user = (user & JUSER) != 0;
    jenv_bytes(t->j, n);
    make_room(t, n);
    if (t->n == 0 && !t->mark) t->user = user;
    if (user != t->user) need_marks(t);
    if (t->mark) memset(t->mark + t->n, (int)user, n);
    t->n += n;
}

void jtext_bytes(struct jtext *t, const char *p, size_t n, unsigned user)
{
    if (n == 0) return;
    extend(t, n, user);
    memcpy(t->p + t->n - n, p, n);
}

void jtext_c(struct jtext *t, const char *s, unsigned user) { jtext_bytes(t, s, strlen(s), user); }

void jtext_fill(struct jtext *t, char c, size_t n, unsigned user)
{
    if (n == 0) return;
    make_room(t, n); /* fails for an n so large that counting it would overflow */
    extend(t, n, user);
    memset(t->p + t->n - n, c, n);
}

void jtext_part(struct jtext *t, struct jval s, size_t from, size_t to)
{
    assert(from <= to && to <= s.s->n);
    if (from == to) return;
    jtext_bytes(t, s.s->p + from, to - from, s.flags);
    if (!s.s->mark) return;
    need_marks(t);
    memcpy(t->mark + t->n - (to - from), s.s->mark + from, to - from);
}

void jtext_str(struct jtext *t, struct jval s) { jtext_part(t, s, 0, s.s->n); }

void jtext_char(struct jtext *t, uint32_t cp, unsigned user)
{
    uint8_t c[4];
    jtext_bytes(t, (const char *)c, utf8_put(c, cp), user);
}

/* A string of the n bytes at p with their marks; without marks when all of them agree. */
static struct jval with_marks(struct jenv *j, const char *p, const uint8_t *mark, size_t n, unsigned flags)
{
    struct jval v = jval_str(j, n ? p : "", n, flags & ~JUSER);
    if (n == 0) return v;
    jenv_bytes(j, n);
    const uint8_t *change = memchr(mark, !mark[0], n);
    if (change)
        v.s->mark = mark;
    else if (mark[0])
        v.flags |= JUSER;
    return v;
}

struct jval jtext_done(struct jtext *t, unsigned flags)
{
    t->shared = true;
    if (t->mark) return with_marks(t->j, t->p, t->mark, t->n, flags);
    return jval_str(t->j, t->n ? t->p : "", t->n, (flags & ~JUSER) | (t->n && t->user ? JUSER : 0));
}

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
        *t = (struct jtext){.j = j, .born = j->n_marks};
        make_room(t, a.s->n + b.s->n);
        jtext_str(t, a);
    }
    const char *p = t->p;
    const uint8_t *mark = t->mark;
    jtext_str(t, b);
    t->shared = true;
    struct jval v = jval_str(j, t->n ? t->p : "", t->n, (a.flags | b.flags) & JMARKUP);
    bool a_pure = !a.s->mark || a.s->n == 0, b_pure = !b.s->mark || b.s->n == 0;
    bool same = a.s->n == 0 || b.s->n == 0 || !((a.flags ^ b.flags) & JUSER);
    if (a_pure && b_pure && same) /* looking at the marks instead would make joining quadratic */
        v.flags |= (a.s->n ? a.flags : b.flags) & JUSER;
    else {
        need_marks(t);
        v.s->mark = t->mark;
    }
    v.s->tail = t;
    if (p != t->p || mark != t->mark) jenv_escapes(j, t->born);
    return v;
}

size_t jstr_chars(struct jenv *j, struct jval s)
{
    if (s.s->n_chars == SIZE_MAX) {
        jenv_bytes(j, s.s->n);
        size_t n = 0;
        for (size_t i = 0; i < s.s->n; i++) n += ((uint8_t)s.s->p[i] & 0xC0) != 0x80;
        s.s->n_chars = n;
    }
    return s.s->n_chars;
}

size_t jstr_offset(struct jenv *j, struct jval s, size_t i)
{
    if (i >= jstr_chars(j, s)) return s.s->n;
    if (s.s->n_chars == s.s->n) return i;
    jenv_looks(j, i / 4);
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

#define WINDOW ((size_t)64 << 10) /* bytes that are searched between two counts of steps */

size_t jstr_find(struct jenv *j, struct jval s, struct jval needle, size_t from)
{
    size_t n = s.s->n, k = needle.s->n;
    if (from > n || k > n - from) return SIZE_MAX;
    if (k == 0) return from;
    size_t window = k > WINDOW / 4 ? 4 * k : WINDOW;
    for (;;) {
        size_t left = n - from, len = left < window ? left : window;
        jenv_bytes(j, k);
        const char *p = memmem(s.s->p + from, len, needle.s->p, k);
        size_t at = p ? (size_t)(p - s.s->p) : SIZE_MAX;
        jenv_bytes(j, p ? at - from : len);
        if (p || len == left) return at;
        from += len - k + 1;
    }
}

size_t jstr_rfind(struct jenv *j, struct jval s, struct jval needle, size_t end)
{
    size_t k = needle.s->n;
    if (k > end) return SIZE_MAX;
    if (k == 0) return end;
    for (size_t to = end - k + 1; to > 0;) { /* needle begins before `to` */
        size_t len = to < WINDOW ? to : WINDOW;
        const char *p = memrchr(s.s->p + to - len, needle.s->p[0], len);
        size_t at = p ? (size_t)(p - s.s->p) : to - len;
        jenv_bytes(j, to - at);
        to = at;
        if (!p) continue;
        jenv_looks(j, 1);
        jenv_bytes(j, k);
        if (memcmp(p, needle.s->p, k) == 0) return at;
    }
    return SIZE_MAX;
}

/* How HTML writes the character; NULL: as itself. */
static const char *html_of(char c)
{
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&#34;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

struct jval jstr_escape(struct jenv *j, struct jval s)
{
    if (s.flags & JMARKUP) return s;
    struct jtext t = {.j = j};
    size_t from = 0;
    for (size_t i = 0; i < s.s->n; i++) {
        jenv_looks(j, 1);
        const char *as = html_of(s.s->p[i]);
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

bool jchar_is_alnum(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO) ||
           (c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO);
}

bool jchar_is_space(uint32_t cp)
{
    if (cp < 0x80) return cp == ' ' || (cp >= 0x09 && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1F);
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202F || cp == 0x205F || cp == 0x3000;
}
