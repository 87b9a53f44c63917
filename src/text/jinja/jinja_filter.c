/* SPDX-License-Identifier: MIT
 *
 * jinja_filter.c: the filters for one value: text, numbers, JSON. The filters for sequences are in jinja_seq.c.
 *
 * They do what jinja2/filters.py (3.1) does without autoescape. Differences from Jinja2: tojson is transformers' own,
 * which is json.dumps() with its order and spaces, and escapes nothing for HTML. These filters do not exist, on
 * purpose: filesizeformat, groupby, pprint, random, striptags, truncate, urlencode, urlize, wordwrap, xmlattr.
 */
#include "text/jinja/jinja_filter.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/jinja_method.h"
#include "text/jinja/jinja_str.h"

static bool given(struct jval v) { return v.kind != JABSENT; }

/* ---- text ---- */

FILTER(f_string) { return jval_to_str(j, v); }
FILTER(f_lower) { return jstr_lower(j, jval_to_str(j, v)); }
FILTER(f_upper) { return jstr_upper(j, jval_to_str(j, v)); }
FILTER(f_capitalize) { return jstr_capitalize(j, jval_to_str(j, v)); }
FILTER(f_title) { return jstr_title(j, jval_to_str(j, v)); }
FILTER(f_trim) { return jstr_strip(j, jval_to_str(j, v), arg[0], true, true); }
FILTER(f_safe) { return jval_flag(jval_to_str(j, v), JMARKUP); }
FILTER(f_escape) { return jstr_escape(j, jval_to_str(j, v)); }

FILTER(f_center)
{
    return jstr_pad(j, jval_to_str(j, v), jarg_int(j, arg[0], 80, "width"), (struct jval){.kind = JABSENT}, 0);
}

FILTER(f_replace)
{
    int64_t max = given(arg[2]) && arg[2].kind != JNONE ? jarg_int(j, arg[2], -1, "count") : -1;
    struct jval s = jval_to_str(j, v);
    s.flags &= (uint8_t)~JMARKUP;
    return jstr_replace(j, s, jval_to_str(j, arg[0]), jval_to_str(j, arg[1]), max);
}

FILTER(f_format)
{
    if (raw->n_pos && raw->n_kw)
        jenv_fail(j, QN_EDATA, "filter 'format' takes positional or named arguments, not both");
    struct jval dict = jval_dict(j, JDICT);
    for (size_t i = 0; i < raw->n_kw; i++) jdict_set(j, dict.d, raw->kw[i].name, raw->kw[i].val);
    return jop_format(j, jval_to_str(j, v), raw->pos, raw->n_pos, raw->n_kw ? dict : jval_none());
}

/* The text of an indent: `width` spaces, or the text that was given as the width. */
static struct jval indention(struct jenv *j, struct jval width, int64_t absent)
{
    if (width.kind == JSTR) return width;
    int64_t n = jarg_int(j, width, absent, "the width of an indent");
    struct jtext t = {.j = j};
    jtext_fill(&t, ' ', n < 0 ? 0 : (size_t)n, 0);
    return jtext_done(&t, 0);
}

FILTER(f_indent)
{
    struct jval in = indention(j, arg[0], 4), s = jval_to_str(j, v);
    bool first = given(arg[1]) && jval_true(arg[1]), blank = given(arg[2]) && jval_true(arg[2]);
    struct jval lines = jstr_lines(j, jstr_join(j, s, jval_cstr(j, "\n")), false); /* one line at least */
    struct jtext t = {.j = j};
    for (size_t i = 0; i < lines.l->n; i++) {
        struct jval line = lines.l->v[i];
        if (i) jtext_bytes(&t, "\n", 1, line.flags);
        if (i ? blank || line.s->n : first) jtext_str(&t, in);
        jtext_str(&t, line);
    }
    return jtext_done(&t, s.flags & JMARKUP);
}

FILTER(f_wordcount)
{
    struct jval s = jval_to_str(j, v);
    int64_t n = 0;
    bool inside = false;
    for (size_t at = 0; at < s.s->n;) {
        uint32_t cp;
        unsigned len = jchar_at(s, at, &cp);
        bool word = cp == '_' || jchar_is_alnum(cp);
        jenv_looks(j, 1);
        n += word && !inside;
        inside = word;
        at += len;
    }
    return jval_int(n);
}

/* ---- numbers ---- */

static double parse_float(struct jval s, bool *ok)
{
    char text[64];
    struct jval t = s;
    size_t n = 0;
    *ok = false;
    if (t.s->n >= sizeof text) return 0;
    for (size_t i = 0; i < t.s->n; i++)
        if (t.s->p[i] != '_') text[n++] = t.s->p[i];
    text[n] = 0;
    if (n == 0 || strpbrk(text, "xX(") || memchr(text, 0, n)) return 0; /* strtod() reads these, Python does not */
    char *end;
    double f = strtod(text, &end);
    *ok = *end == 0;
    return f;
}

/* The base that 0b, 0o and 0x stand for, by their letter. */
static int base_of(char letter)
{
    switch (letter | 32) {
    case 'b': return 2;
    case 'o': return 8;
    default: return 16;
    }
}

static bool parse_int(struct jenv *j, struct jval s, int64_t base, int64_t *out)
{
    char text[80];
    size_t n = 0;
    if (s.s->n >= sizeof text || base < 0 || base > 36 || base == 1) return false;
    for (size_t i = 0; i < s.s->n; i++)
        if (s.s->p[i] != '_') text[n++] = s.s->p[i];
    text[n] = 0;
    const char *p = text + (text[0] == '-' || text[0] == '+');
    bool has_base = p[0] == '0' && p[1] && strchr("bBoOxX", p[1]);
    int own = has_base ? base_of(p[1]) : 0;
    if (has_base && (base == 0 || base == own)) { /* strtoll() does not know all prefixes */
        base = own;
        memmove(text + (p - text), p + 2, strlen(p + 2) + 1);
    }
    char *end;
    errno = 0;
    *out = strtoll(text, &end, base == 0 ? 10 : (int)base);
    if (end == text || *end || p[0] == ' ') return false;
    if (errno == ERANGE) jenv_fail(j, QN_EDATA, "integer %s does not fit 64 bits", text);
    return true;
}

static bool float_to_int(struct jenv *j, double f, int64_t *out)
{
    if (!isfinite(f)) return false;
    if (fabs(f) >= 9223372036854775808.0) jenv_fail(j, QN_EDATA, "%g does not fit a 64 bit integer", f);
    *out = (int64_t)f;
    return true;
}

FILTER(f_int)
{
    int64_t i = 0;
    bool ok = false;
    if (v.kind == JSTR) {
        struct jval s = jstr_strip(j, v, jval_none(), true, true);
        ok = parse_int(j, s, jarg_int(j, arg[1], 10, "base"), &i);
        if (!ok) {
            jenv_step(j, 4);
            double f = parse_float(s, &ok);
            ok = ok && float_to_int(j, f, &i);
        }
    } else if (v.kind == JFLOAT) {
        ok = float_to_int(j, v.f, &i);
    } else if (jval_is_int(v)) {
        ok = true;
        i = jval_as_int(v);
    } else if (v.kind == JUNDEF) {
        jval_fail_missing(j, v);
    }
    if (!ok) return given(arg[0]) ? arg[0] : jval_int(0);
    return jval_flag(jval_int(i), v.flags & JUSER);
}

FILTER(f_float)
{
    bool ok = jval_is_number(v);
    double f = ok ? jval_as_float(v) : 0;
    if (v.kind == JUNDEF) jval_fail_missing(j, v);
    jenv_step(j, 4);
    if (v.kind == JSTR) f = parse_float(jstr_strip(j, v, jval_none(), true, true), &ok);
    if (!ok) return given(arg[0]) ? arg[0] : jval_float(0);
    return jval_flag(jval_float(f), v.flags & JUSER);
}

FILTER(f_abs)
{
    if (v.kind == JFLOAT) return jval_flag(jval_float(fabs(v.f)), v.flags & JUSER);
    bool negative = jval_is_int(v) && jval_as_int(v) < 0;
    return jop_negate(j, v, negative);
}

/* Python's round(): to the nearest in decimal, ties to even. printf rounds exactly. */
static double round_decimal(struct jenv *j, double f, int64_t digits)
{
    if (!isfinite(f) || digits > 300) return f;
    if (digits < -300) return 0;
    if (digits >= 0) {
        struct jval spec[] = {jval_int(digits), jval_float(f)};
        struct jval s = jop_format(j, jval_cstr(j, digits > 17 ? "%.17g" : "%.*f"), spec + (digits > 17),
                                   digits > 17 ? 1 : 2, jval_none());
        struct jtext t = {.j = j};
        jtext_str(&t, s);
        jtext_bytes(&t, "", 1, 0);
        jenv_step(j, 10);
        return strtod(t.p, NULL);
    }
    double p = pow(10, (double)-digits);
    return nearbyint(f / p) * p;
}

FILTER(f_round)
{
    int64_t digits = jarg_int(j, arg[0], 0, "precision");
    enum { ROUND_NEAREST, ROUND_UP, ROUND_DOWN } how = ROUND_NEAREST;
    if (v.kind == JUNDEF) jval_fail_missing(j, v);
    if (!jval_is_number(v)) jenv_fail(j, QN_EDATA, "a number is needed to round, not '%s'", jval_type(v));
    if (given(arg[1])) {
        struct jval m = jarg_str(j, arg[1], "method");
        if (jstr_is(m, "ceil"))
            how = ROUND_UP;
        else if (jstr_is(m, "floor"))
            how = ROUND_DOWN;
        else if (!jstr_is(m, "common"))
            jenv_fail(j, QN_EDATA, "method must be common, ceil or floor");
    }
    if (how == ROUND_NEAREST) {
        if (v.kind != JFLOAT && digits >= 0) return v;
        double r = round_decimal(j, jval_as_float(v), digits);
        int64_t i = 0;
        if (v.kind != JFLOAT && float_to_int(j, r, &i)) return jval_flag(jval_int(i), v.flags & JUSER);
        return jval_flag(jval_float(r), v.flags & JUSER);
    }
    double p = pow(10, (double)digits), f = jval_as_float(v) * p;
    return jval_flag(jval_float((how == ROUND_UP ? ceil(f) : floor(f)) / p), v.flags & JUSER);
}

/* ---- any value ---- */

FILTER(f_default)
{
    bool also_false = given(arg[1]) && jval_true(arg[1]);
    if (v.kind != JUNDEF && !(also_false && !jval_true(v))) return v;
    return given(arg[0]) ? arg[0] : jval_cstr(j, "");
}

FILTER(f_attr)
{
    struct jval out = jop_attr(j, v, jarg_str(j, arg[0], "the name of an attribute"));
    /* unlike v.name, this does not look for items */
    if (v.kind == JDICT && out.kind != JMETHOD && out.kind != JUNDEF)
        return jval_missing(j, JMISS_ATTR, jval_type(v), arg[0]);
    return out;
}

FILTER(f_length)
{
    size_t n;
    if (!jval_len(j, v, &n)) jenv_fail(j, QN_EDATA, "object of type '%s' has no len()", jval_type(v));
    return jval_int((int64_t)n);
}

FILTER(f_items)
{
    if (v.kind == JUNDEF) return jval_list(j, JITER, NULL, 0);
    if (v.kind != JDICT) jenv_fail(j, QN_EDATA, "can only get item pairs from a mapping, not '%s'", jval_type(v));
    return jdict_items(j, v, JITER);
}

FILTER(f_tojson)
{
    struct jtext t = {.j = j};
    bool lines = given(arg[1]) && arg[1].kind != JNONE;
    struct jjson how = {
        .indent = lines ? indention(j, arg[1], 0) : jval_none(),
        .ascii = given(arg[0]) && jval_true(arg[0]),
        .sort_keys = given(arg[3]) && jval_true(arg[3]),
        .item_sep = jval_cstr(j, lines ? "," : ", "),
        .key_sep = jval_cstr(j, ": "),
    };
    if (given(arg[2]) && arg[2].kind != JNONE) {
        struct jlist l = jval_items(j, arg[2]);
        if (l.n != 2) jenv_fail(j, QN_EDATA, "tojson: separators must be two strings, not %zu", l.n);
        how.item_sep = jarg_str(j, l.v[0], "a separator");
        how.key_sep = jarg_str(j, l.v[1], "a separator");
    }
    jtext_json(&t, v, &how, 0);
    return jtext_done(&t, 0);
}

static const struct jfunc filters[] = {
    {"string", f_string, 0, ""},
    {"lower", f_lower, 0, ""},
    {"upper", f_upper, 0, ""},
    {"capitalize", f_capitalize, 0, ""},
    {"title", f_title, 0, ""},
    {"trim", f_trim, 0, "chars"},
    {"safe", f_safe, 0, ""},
    {"escape", f_escape, 0, ""},
    {"e", f_escape, 0, ""},
    {"center", f_center, 0, "width"},
    {"replace", f_replace, 2, "old new count"},
    {"format", f_format, 0, NULL},
    {"indent", f_indent, 0, "width first blank"},
    {"wordcount", f_wordcount, 0, ""},
    {"int", f_int, 0, "default base"},
    {"float", f_float, 0, "default"},
    {"abs", f_abs, 0, ""},
    {"round", f_round, 0, "precision method"},
    {"default", f_default, 0, "default_value boolean"},
    {"d", f_default, 0, "default_value boolean"},
    {"attr", f_attr, 1, "name"},
    {"length", f_length, 0, ""},
    {"count", f_length, 0, ""},
    {"items", f_items, 0, ""},
    {"tojson", f_tojson, 0, "ensure_ascii indent separators sort_keys"},
};

const struct jfunc *jfilter_find(struct jval name)
{
    const struct jfunc *f = jfunc_find(filters, sizeof filters / sizeof filters[0], name);
    return f ? f : jfilter_find_seq(name);
}

struct jval jfilter_apply(struct jenv *j, struct jval name, struct jval v, const struct jargs *args)
{
    const struct jfunc *f = jfilter_find(name);
    if (!f) jenv_fail(j, QN_EDATA, "unknown filter '%.*s'", name.s->n > 100 ? 100 : (int)name.s->n, name.s->p);
    return jfunc_call(j, f, "filter", v, args);
}
