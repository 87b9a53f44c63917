/* SPDX-License-Identifier: MIT
 *
 * jinja_format.c: the two ways to fill values into a text: '%s' % value and '{}'.format(value).
 *
 * Text that is filled in keeps its marks. Digits have the origin of their number.
 *
 * Differences from Python: in fields of format(), attributes, subscripts and conversions are not supported, and after
 * the colon only a number of decimals is ('{:.2f}'). %a is not supported.
 */
#include "text/jinja/jinja_eval.h"

#include <stdio.h>
#include <string.h>

#include "text/jinja/jinja_method.h"
#include "text/jinja/jinja_str.h"

#define MAX_WIDTH 400 /* of a formatted number, in characters */

struct spec {
    bool minus, plus, blank, zero, alt;
    int64_t width, precision; /* -1: not given */
    char conversion;
};

/* Writes a number by snprintf(). Nothing of the template gets into the format but known letters. */
static void put_number(struct jtext *t, struct jval v, const struct spec *s)
{
    char format[32], out[MAX_WIDTH + 400];
    bool real = strchr("eEfFgG", s->conversion) != NULL;
    if (s->width > MAX_WIDTH || s->precision > MAX_WIDTH / 2)
        jenv_fail(t->j, QN_EDATA, "a number of more characters than the limit of %d", MAX_WIDTH);
    if (v.kind == JUNDEF) jval_fail_missing(t->j, v);
    if (!jval_is_number(v))
        jenv_fail(t->j, QN_EDATA, "%%%c format: a number is required, not %s", s->conversion, jval_type(v));
    if (!real && v.kind == JFLOAT) {
        if (strchr("oxX", s->conversion))
            jenv_fail(t->j, QN_EDATA, "%%%c format: an integer is required", s->conversion);
        if (!(v.f > -9.2e18 && v.f < 9.2e18)) jenv_fail(t->j, QN_EDATA, "%g does not fit 64 bits", v.f);
        v = jval_flag(jval_int((int64_t)v.f), v.flags);
    }
    snprintf(format, sizeof format, "%%%s%s%s%s%s*.*%s%c", s->minus ? "-" : "", s->plus ? "+" : "", s->blank ? " " : "",
             s->zero ? "0" : "", s->alt ? "#" : "", real ? "" : "ll", s->conversion);
    int width = s->width < 0 ? 0 : (int)s->width, precision = (int)s->precision;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    jenv_step(t->j, real ? 50 : 4);
    if (real)
        snprintf(out, sizeof out, format, width, precision, jval_as_float(v));
    else
        snprintf(out, sizeof out, format, width, precision, (long long)jval_as_int(v));
#pragma GCC diagnostic pop
    jtext_c(t, out, v.flags);
}

static void put_text(struct jtext *t, struct jval v, const struct spec *s)
{
    if (s->precision >= 0) v = jstr_part(t->j, v, 0, jstr_offset(t->j, v, (size_t)s->precision));
    jtext_str(t, jstr_pad(t->j, v, s->width, (struct jval){.kind = JABSENT}, s->minus ? -1 : 1));
}

static struct jval repr_of(struct jenv *j, struct jval v)
{
    struct jtext t = {.j = j};
    jtext_repr(&t, v);
    return jtext_done(&t, 0);
}

static void put(struct jtext *t, struct jval v, struct spec *s)
{
    switch (s->conversion) {
    case 's': put_text(t, jval_to_str(t->j, v), s); break;
    case 'r': put_text(t, repr_of(t->j, v), s); break;
    case 'c':
        if (v.kind == JSTR && jstr_chars(t->j, v) == 1) {
            put_text(t, v, s);
        } else {
            int64_t cp = jarg_int(t->j, v, 0, "%c");
            if (cp < 0 || cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000))
                jenv_fail(t->j, QN_EDATA, "%%c: %lld is no character", (long long)cp);
            jtext_char(t, (uint32_t)cp, v.flags);
        }
        break;
    case 'i':
    case 'u': s->conversion = 'd'; /* fall through */
    case 'd':
    case 'o':
    case 'x':
    case 'X':
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': put_number(t, v, s); break;
    default: jenv_fail(t->j, QN_EDATA, "unsupported format character '%c'", s->conversion);
    }
}

/* ---- % ---- */

struct args {
    const struct jval *v;
    size_t n, at;
};

static struct jval next_arg(struct jenv *j, struct args *a)
{
    if (a->at == a->n) jenv_fail(j, QN_EDATA, "not enough arguments for the format string");
    return a->v[a->at++];
}

/* A width or a precision: digits or *; -1 when there is neither. */
static int64_t count(struct jenv *j, const struct jstr *s, size_t *at, struct args *a)
{
    int64_t n = -1;
    if (*at < s->n && s->p[*at] == '*') {
        ++*at;
        return jarg_int(j, next_arg(j, a), 0, "*");
    }
    for (; *at < s->n && s->p[*at] >= '0' && s->p[*at] <= '9'; ++*at) {
        n = (n < 0 ? 0 : n) * 10 + (s->p[*at] - '0');
        if (n > INT32_MAX) jenv_fail(j, QN_EDATA, "a width larger than the limit of %d", INT32_MAX);
    }
    return n;
}

static struct spec parse_spec(struct jenv *j, const struct jstr *s, size_t *at, struct args *a)
{
    struct spec f = {.precision = -1};
    for (; *at < s->n; ++*at) {
        char c = s->p[*at];
        if (c == '-')
            f.minus = true;
        else if (c == '+')
            f.plus = true;
        else if (c == ' ')
            f.blank = true;
        else if (c == '0')
            f.zero = true;
        else if (c == '#')
            f.alt = true;
        else
            break;
    }
    f.width = count(j, s, at, a);
    if (*at < s->n && s->p[*at] == '.') {
        ++*at;
        f.precision = count(j, s, at, a);
        if (f.precision < 0) f.precision = 0;
    }
    while (*at < s->n && strchr("hlL", s->p[*at]) && s->p[*at]) ++*at;
    if (*at == s->n) jenv_fail(j, QN_EDATA, "incomplete format");
    f.conversion = s->p[(*at)++];
    return f;
}

/* The value that (name) stands for; JABSENT: there is no (name) here. */
static struct jval by_name(struct jenv *j, struct jval s, size_t *at, struct jval dict)
{
    if (*at == s.s->n || s.s->p[*at] != '(') return (struct jval){.kind = JABSENT};
    const char *end = memchr(s.s->p + *at, ')', s.s->n - *at);
    if (!end) jenv_fail(j, QN_EDATA, "incomplete format key");
    if (dict.kind != JDICT) jenv_fail(j, QN_EDATA, "format requires a mapping");
    size_t from = *at + 1, to = (size_t)(end - s.s->p);
    *at = to + 1;
    const struct jval *v = jdict_find(j, dict.d, jstr_part(j, s, from, to));
    if (!v) jenv_fail(j, QN_EDATA, "the mapping has no key '%.*s'", (int)(to - from), s.s->p + from);
    return *v;
}

struct jval jop_format(struct jenv *j, struct jval s, const struct jval *arg, size_t n, struct jval dict)
{
    struct jtext t = {.j = j};
    struct args a = {.v = arg, .n = n};
    bool named = false;
    jenv_looks(j, s.s->n / 4);
    for (size_t at = 0; at < s.s->n;) {
        jenv_looks(j, 1);
        const char *p = memchr(s.s->p + at, '%', s.s->n - at);
        size_t to = p ? (size_t)(p - s.s->p) : s.s->n;
        jtext_part(&t, s, at, to);
        if (!p) break;
        at = to + 1;
        struct jval v = by_name(j, s, &at, dict);
        named |= v.kind != JABSENT;
        struct spec f = parse_spec(j, s.s, &at, &a);
        if (f.conversion == '%') {
            jtext_part(&t, s, to, to + 1);
            continue;
        }
        put(&t, v.kind == JABSENT ? next_arg(j, &a) : v, &f);
    }
    if (a.at < a.n && !named && dict.kind != JDICT && dict.kind != JLIST)
        jenv_fail(j, QN_EDATA, "not all arguments converted during string formatting");
    return jtext_done(&t, s.flags & JMARKUP);
}

/* ---- format() ---- */

/* The value of the field whose name is s[from .. to). *next: the index of the next field without a name. */
static struct jval field(struct jenv *j, struct jval s, size_t from, size_t to, const struct jargs *args, size_t *next)
{
    const char *p = s.s->p + from;
    size_t n = to - from, index = 0;
    if (memchr(p, '.', n) || memchr(p, '[', n) || memchr(p, '!', n))
        jenv_fail(j, QN_EUNSUP, "format(): field '%.*s' is not supported", n > 60 ? 60 : (int)n, p);
    if (n && (p[0] < '0' || p[0] > '9')) {
        for (size_t i = 0; i < args->n_kw; i++) {
            jenv_looks(j, 1);
            if (args->kw[i].name.s->n != n) continue;
            jenv_bytes(j, n);
            if (memcmp(args->kw[i].name.s->p, p, n) == 0) return args->kw[i].val;
        }
        jenv_fail(j, QN_EDATA, "format(): no argument '%.*s'", n > 60 ? 60 : (int)n, p);
    }
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9' || i > 8)
            jenv_fail(j, QN_EDATA, "format(): malformed field '%.*s'", n > 60 ? 60 : (int)n, p);
        index = index * 10 + (size_t)(p[i] - '0');
    }
    if (n == 0) index = (*next)++;
    if (index >= args->n_pos) jenv_fail(j, QN_EDATA, "format(): no argument %zu", index);
    return args->pos[index];
}

static void put_field(struct jtext *t, struct jval s, size_t from, size_t to, const struct jargs *args, size_t *next)
{
    const char *colon = memchr(s.s->p + from, ':', to - from);
    size_t name_end = colon ? (size_t)(colon - s.s->p) : to, at = name_end + 1;
    struct jval v = field(t->j, s, from, name_end, args, next);
    if (at >= to) {
        jtext_value(t, v);
        return;
    }
    struct jstr spec = {.p = s.s->p, .n = to};
    struct args none = {0};
    if (s.s->p[at] != '.')
        jenv_fail(t->j, QN_EUNSUP, "format(): '%.*s' is not supported", to - at > 60 ? 60 : (int)(to - at),
                  spec.p + at);
    struct spec f = parse_spec(t->j, &spec, &at, &none);
    if (at != to || !strchr("eEfFgG", f.conversion)) jenv_fail(t->j, QN_EUNSUP, "format(): only '.Nf' is supported");
    put(t, v, &f);
}

struct jval jstr_format(struct jenv *j, struct jval s, const struct jargs *args)
{
    struct jtext t = {.j = j};
    size_t next = 0, from = 0, at = 0;
    while (at < s.s->n) {
        char c = s.s->p[at];
        jenv_looks(j, 1);
        if (c != '{' && c != '}') {
            at++;
            continue;
        }
        jtext_part(&t, s, from, at);
        if (at + 1 < s.s->n && s.s->p[at + 1] == c) { /* doubled: itself */
            jtext_part(&t, s, at, at + 1);
            from = at += 2;
            continue;
        }
        const char *end = c == '{' ? memchr(s.s->p + at, '}', s.s->n - at) : NULL;
        if (!end) jenv_fail(j, QN_EDATA, "format(): single '%c' in the string", c);
        jenv_step(j, 1);
        jenv_looks(j, (size_t)(end - s.s->p) - at);
        put_field(&t, s, at + 1, (size_t)(end - s.s->p), args, &next);
        from = at = (size_t)(end - s.s->p) + 1;
    }
    jtext_part(&t, s, from, s.s->n);
    return jtext_done(&t, s.flags & JMARKUP);
}
