/* SPDX-License-Identifier: MIT
 *
 * jinja_print.c: values as text: Python's str() and repr(), and json.dumps().
 *
 * Both write exactly what CPython writes: the shortest digits that read back as the same number, the quote that needs
 * no escape, the same order and spacing. Strings keep their marks. Punctuation, numbers and constants have the origin
 * of the value that they belong to.
 *
 * Difference from Python: functions and generators are printed without an address.
 */
#include "text/jinja/jinja_str.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Writes the fewest digits that read back as f, as "d.ddde-XX". Returns how many there are after the point. Any decimal
 * of 15 digits survives a conversion to double and back, so with 15 digits only zeros at the end can be too many.
 * Subnormal numbers have fewer digits, so there the search begins at one. */
static int shortest(char digits[32], double f)
{
    int prec = fabs(f) < DBL_MIN ? 0 : 14;
    do /* 17 digits tell any two apart */
        snprintf(digits, 32, "%.*e", prec, f);
    while (strtod(digits, NULL) != f && ++prec < 17);
    char *e = strchr(digits, 'e'), *end = e;
    if (prec != 14) return prec;
    for (; end[-1] == '0'; end--) prec--;
    if (end[-1] == '.') end--;
    memmove(end, e, strlen(e) + 1);
    return prec;
}

size_t jfloat_repr(char out[40], double f)
{
    if (isnan(f)) return (size_t)snprintf(out, 40, "nan");
    if (isinf(f)) return (size_t)snprintf(out, 40, f < 0 ? "-inf" : "inf");
    char digits[32];
    int prec = shortest(digits, f);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent < -4 || exponent >= 16) return (size_t)snprintf(out, 40, "%s", digits); /* "1.5e+16" is Python's too */
    int decimals = prec - exponent;
    return (size_t)snprintf(out, 40, "%.*f", decimals < 1 ? 1 : decimals, f);
}

/* ---- repr ---- */

static bool printable(uint32_t cp)
{
    if (cp < 0x7F) return cp >= 0x20;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

/* Whether the character needs an escape; esc is that escape. */
static bool repr_escape(char esc[16], uint32_t cp, int quote)
{
    if (cp == (uint32_t)quote || cp == '\\')
        snprintf(esc, 16, "\\%c", (char)cp);
    else if (cp == '\n')
        snprintf(esc, 16, "\\n");
    else if (cp == '\r')
        snprintf(esc, 16, "\\r");
    else if (cp == '\t')
        snprintf(esc, 16, "\\t");
    else if (!printable(cp) && cp < 0x100)
        snprintf(esc, 16, "\\x%02x", cp);
    else if (!printable(cp) && cp < 0x10000)
        snprintf(esc, 16, "\\u%04x", cp);
    else if (!printable(cp))
        snprintf(esc, 16, "\\U%08x", cp);
    else
        return false;
    return true;
}

/* Writes a text. `escape` says which characters need an escape, and which one. */
static void put_escaped(struct jtext *t, struct jval s, bool (*escape)(char esc[16], uint32_t cp, int how), int how)
{
    size_t from = 0; /* what is before it has been written */
    for (size_t at = 0; at < s.s->n;) {
        uint32_t cp;
        char esc[16];
        unsigned n = jchar_at(s, at, &cp);
        jenv_looks(t->j, 1);
        if (escape(esc, cp, how)) {
            jenv_looks(t->j, 16);
            jtext_part(t, s, from, at);
            jtext_c(t, esc, jstr_user(s, at, at + n));
            from = at + n;
        }
        at += n;
    }
    jtext_part(t, s, from, s.s->n);
}

static void repr_str(struct jtext *t, struct jval s)
{
    bool single = memchr(s.s->p, '\'', s.s->n), both = single && memchr(s.s->p, '"', s.s->n);
    char quote = single && !both ? '"' : '\'';
    unsigned user = jstr_user(s, 0, s.s->n);
    if (s.flags & JMARKUP) jtext_c(t, "Markup(", user);
    jtext_bytes(t, &quote, 1, user);
    put_escaped(t, s, repr_escape, quote);
    jtext_bytes(t, &quote, 1, user);
    if (s.flags & JMARKUP) jtext_c(t, ")", user);
}

static void repr_list(struct jtext *t, struct jval v)
{
    static const char *const open[] = {[JLIST] = "[", [JTUPLE] = "(", [JVIEW] = "dict_view(["};
    static const char *const close[] = {[JLIST] = "]", [JTUPLE] = ")", [JVIEW] = "])"};
    jtext_c(t, open[v.kind], v.flags);
    for (size_t i = 0; i < v.l->n; i++) {
        if (i) jtext_c(t, ", ", v.flags);
        jtext_repr(t, v.l->v[i]);
    }
    if (v.kind == JTUPLE && v.l->n == 1) jtext_c(t, ",", v.flags);
    jtext_c(t, close[v.kind], v.flags);
}

static void repr_dict(struct jtext *t, struct jval v)
{
    jtext_c(t, v.kind == JSPACE ? "<Namespace {" : "{", v.flags);
    for (size_t i = 0; i < v.d->n; i++) {
        if (i) jtext_c(t, ", ", v.flags);
        jtext_repr(t, v.d->pair[i].key);
        jtext_c(t, ": ", v.flags);
        jtext_repr(t, v.d->pair[i].val);
    }
    jtext_c(t, v.kind == JSPACE ? "}>" : "}", v.flags);
}

static void number(struct jtext *t, struct jval v)
{
    char s[40];
    if (v.kind == JFLOAT) {
        jenv_step(t->j, 30);
        jfloat_repr(s, v.f);
    } else {
        snprintf(s, sizeof s, "%lld", (long long)v.i);
    }
    jtext_c(t, s, v.flags);
}

void jtext_repr(struct jtext *t, struct jval v)
{
    jenv_step(t->j, 1);
    jenv_enter(t->j);
    switch (v.kind) {
    case JUNDEF: jtext_c(t, "Undefined", v.flags); break;
    case JNONE: jtext_c(t, "None", v.flags); break;
    case JBOOL: jtext_c(t, v.b ? "True" : "False", v.flags); break;
    case JINT:
    case JFLOAT: number(t, v); break;
    case JSTR: repr_str(t, v); break;
    case JLIST:
    case JTUPLE:
    case JVIEW: repr_list(t, v); break;
    case JDICT:
    case JSPACE: repr_dict(t, v); break;
    default:
        jtext_c(t, "<", v.flags);
        jtext_c(t, jval_type(v), v.flags);
        jtext_c(t, ">", v.flags);
    }
    jenv_leave(t->j);
}

void jtext_value(struct jtext *t, struct jval v)
{
    if (v.kind == JSTR)
        jtext_str(t, v);
    else if (v.kind != JUNDEF) /* which prints as nothing */
        jtext_repr(t, v);
}

struct jval jval_to_str(struct jenv *j, struct jval v)
{
    if (v.kind == JSTR) return v;
    struct jtext t = {.j = j};
    jtext_value(&t, v);
    return jtext_done(&t, 0);
}

/* ---- JSON ---- */

static bool json_escape(char esc[16], uint32_t cp, int ascii)
{
    static const char *const named[] = {['\b'] = "\\b", ['\t'] = "\\t", ['\n'] = "\\n", ['\f'] = "\\f",
                                        ['\r'] = "\\r", ['"'] = "\\\"", ['\\'] = "\\\\"};
    if (cp < sizeof named / sizeof named[0] && named[cp])
        snprintf(esc, 16, "%s", named[cp]);
    else if (cp < 0x20 || (ascii && cp >= 0x7F && cp < 0x10000))
        snprintf(esc, 16, "\\u%04x", cp);
    else if (ascii && cp >= 0x10000)
        snprintf(esc, 16, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10), 0xDC00 + (cp & 0x3FF));
    else
        return false;
    return true;
}

static void json_str(struct jtext *t, struct jval s, bool ascii)
{
    unsigned user = jstr_user(s, 0, s.s->n);
    jtext_c(t, "\"", user);
    put_escaped(t, s, json_escape, ascii);
    jtext_c(t, "\"", user);
}

static const char *non_finite(double f)
{
    if (isnan(f)) return "NaN";
    return f < 0 ? "-Infinity" : "Infinity";
}

static void json_number(struct jtext *t, struct jval v)
{
    if (v.kind == JFLOAT && !isfinite(v.f))
        jtext_c(t, non_finite(v.f), v.flags);
    else
        number(t, v);
}

static void json_key(struct jtext *t, struct jval key, bool ascii)
{
    if (key.kind == JSTR) {
        json_str(t, key, ascii);
        return;
    }
    if (key.kind == JTUPLE) jenv_fail(t->j, QN_EDATA, "keys must be str, int, float, bool or None, not tuple");
    jtext_c(t, "\"", key.flags);
    jtext_json(t, key, NULL, 0);
    jtext_c(t, "\"", key.flags);
}

static void new_line(struct jtext *t, const struct jjson *how, int level, unsigned user)
{
    if (how->indent.kind != JSTR) return;
    jtext_c(t, "\n", user);
    jenv_looks(t->j, (size_t)level);
    for (int i = 0; i < level; i++) jtext_str(t, how->indent);
}

static void separator(struct jtext *t, struct jval sep, unsigned user) { jtext_bytes(t, sep.s->p, sep.s->n, user); }

static void json_list(struct jtext *t, struct jval v, const struct jjson *how, int level)
{
    jtext_c(t, "[", v.flags);
    for (size_t i = 0; i < v.l->n; i++) {
        if (i) separator(t, how->item_sep, v.flags);
        new_line(t, how, level + 1, v.flags);
        jtext_json(t, v.l->v[i], how, level + 1);
    }
    if (v.l->n) new_line(t, how, level, v.flags);
    jtext_c(t, "]", v.flags);
}

/* Sorts the pairs by their keys (merge sort). other: room for n pairs. */
static void sort_pairs(struct jenv *j, struct jpair *p, struct jpair *other, size_t n)
{
    if (n < 2) return;
    size_t half = n / 2, a = 0, b = half;
    sort_pairs(j, p, other, half);
    sort_pairs(j, p + half, other, n - half);
    for (size_t i = 0; i < n; i++)
        other[i] = b == n || (a < half && jval_compare(j, p[b].key, p[a].key, "<") >= 0) ? p[a++] : p[b++];
    jenv_looks(j, n);
    memcpy(p, other, n * sizeof *p);
}

static void json_dict(struct jtext *t, struct jval v, const struct jjson *how, int level)
{
    const struct jpair *pair = v.d->pair;
    if (how->sort_keys && v.d->n) {
        struct jpair *p = jenv_get_n(t->j, v.d->n * 2, sizeof *p);
        memcpy(p, pair, v.d->n * sizeof *p);
        sort_pairs(t->j, p, p + v.d->n, v.d->n);
        pair = p;
    }
    jtext_c(t, "{", v.flags);
    for (size_t i = 0; i < v.d->n; i++) {
        if (i) separator(t, how->item_sep, v.flags);
        new_line(t, how, level + 1, v.flags);
        json_key(t, pair[i].key, how->ascii);
        separator(t, how->key_sep, v.flags);
        jtext_json(t, pair[i].val, how, level + 1);
    }
    if (v.d->n) new_line(t, how, level, v.flags);
    jtext_c(t, "}", v.flags);
}

void jtext_json(struct jtext *t, struct jval v, const struct jjson *how, int level)
{
    jenv_step(t->j, 1);
    jenv_enter(t->j);
    switch (v.kind) {
    case JNONE: jtext_c(t, "null", v.flags); break;
    case JBOOL: jtext_c(t, v.b ? "true" : "false", v.flags); break;
    case JINT:
    case JFLOAT: json_number(t, v); break;
    case JSTR: json_str(t, v, how->ascii); break;
    case JLIST:
    case JTUPLE: json_list(t, v, how, level); break;
    case JDICT: json_dict(t, v, how, level); break;
    default: jenv_fail(t->j, QN_EDATA, "Object of type %s is not JSON serializable", jval_type(v));
    }
    jenv_leave(t->j);
}
