/* SPDX-License-Identifier: MIT
 *
 * jinja_func.c: how built-in functions get their arguments; the global functions.
 *
 * A function lists the names of its arguments in a string. The arguments that a template passes by position or by name
 * are sorted into an array in that order before the function is called.
 *
 * Differences from Jinja2: range() makes a list. lipsum, cycler and joiner do not exist.
 */
#include "text/jinja/jinja_eval.h"

#include <string.h>
#include <time.h>

#include "text/jinja/jinja.h"
#include "text/jinja/jinja_str.h"

#define MAX_NAMES    5
#define MAX_RANGE    100000 /* items, as in Jinja2's sandbox */
#define GLOBAL(name) JFUNC(name, self)

const struct jfunc *jfunc_find(const struct jfunc *table, size_t n, struct jval name)
{
    for (size_t i = 0; i < n; i++)
        if (jstr_is(name, table[i].name)) return &table[i];
    return NULL;
}

/* The index of a name in a list of names, -1 when it is not there. *n is the length of the list. */
static int place(const char *names, const char *name, size_t name_bytes, int *n)
{
    int found = -1;
    *n = 0;
    for (const char *p = names; *p; (*n)++) {
        size_t len = strcspn(p, " ");
        if (name && len == name_bytes && memcmp(p, name, len) == 0) found = *n;
        p += len + (p[len] == ' ');
    }
    return found;
}

/* Sorts the arguments of f into the order of their names. */
static void sort_args(struct jenv *j, const struct jfunc *f, const char *what, const struct jargs *a,
                      struct jval arg[MAX_NAMES])
{
    int n;
    for (int i = 0; i < MAX_NAMES; i++) arg[i].kind = JABSENT;
    place(f->names, NULL, 0, &n);
    if (a->n_pos > (size_t)n)
        jenv_fail(j, QN_EDATA, "%s '%s' takes not more than %d arguments, %zu are given", what, f->name, n, a->n_pos);
    for (size_t i = 0; i < a->n_pos; i++) arg[i] = a->pos[i];
    for (size_t i = 0; i < a->n_kw; i++) {
        const struct jstr *name = a->kw[i].name.s;
        int at = place(f->names, name->p, name->n, &n);
        if (at < 0 || arg[at].kind != JABSENT)
            jenv_fail(j, QN_EDATA, "%s '%s' %s argument '%.*s'", what, f->name,
                      at < 0 ? "has no" : "got two values for", (int)name->n, name->p);
        arg[at] = a->kw[i].val;
    }
    for (int i = 0; i < f->n_required; i++)
        if (arg[i].kind == JABSENT) jenv_fail(j, QN_EDATA, "%s '%s' needs %d arguments", what, f->name, f->n_required);
}

/* Counts as a level of nesting, because some functions call others by name (map, select), and even themselves. */
struct jval jfunc_call(struct jenv *j, const struct jfunc *f, const char *what, struct jval self, const struct jargs *a)
{
    struct jval arg[MAX_NAMES];
    jenv_step(j, 1);
    jenv_enter(j);
    if (f->names) sort_args(j, f, what, a, arg);
    struct jval v = f->call(j, self, f->names ? arg : NULL, a);
    jenv_leave(j);
    return v;
}

int64_t jarg_int(struct jenv *j, struct jval v, int64_t absent, const char *what)
{
    if (v.kind == JABSENT) return absent;
    if (v.kind == JUNDEF) jval_fail_missing(j, v);
    if (!jval_is_int(v)) jenv_fail(j, QN_EDATA, "%s must be an integer, not %s", what, jval_type(v));
    return jval_as_int(v);
}

struct jval jarg_str(struct jenv *j, struct jval v, const char *what)
{
    if (v.kind == JUNDEF) jval_fail_missing(j, v);
    if (v.kind != JSTR) jenv_fail(j, QN_EDATA, "%s must be a string, not %s", what, jval_type(v));
    return v;
}

/* ---- globals ---- */

/* How many items range(a, b, step) has. Computed without signs: the distance of two int64_t fits a uint64_t. */
static uint64_t range_items(int64_t a, int64_t b, int64_t step)
{
    if (step > 0 ? a >= b : a <= b) return 0;
    uint64_t distance = step > 0 ? (uint64_t)b - (uint64_t)a : (uint64_t)a - (uint64_t)b;
    uint64_t by = step > 0 ? (uint64_t)step : -(uint64_t)step;
    return (distance - 1) / by + 1;
}

GLOBAL(g_range)
{
    int64_t a = jarg_int(j, arg[0], 0, "range"), b = jarg_int(j, arg[1], 0, "range");
    int64_t step = jarg_int(j, arg[2], 1, "range");
    if (arg[1].kind == JABSENT) { /* range(stop) */
        b = a;
        a = 0;
    }
    if (step == 0) jenv_fail(j, QN_EDATA, "range step cannot be zero");
    uint64_t n = range_items(a, b, step);
    if (n > MAX_RANGE) jenv_fail(j, QN_EDATA, "range of more items than the limit of %d", MAX_RANGE);
    jenv_step(j, n);
    struct jval *v = jenv_get_n(j, n, sizeof *v);
    for (uint64_t i = 0; i < n; i++) v[i] = jval_int((int64_t)((uint64_t)a + i * (uint64_t)step));
    return jval_list(j, JLIST, v, n);
}

/* Makes a dictionary or namespace from a mapping or pairs, and from named arguments. */
static struct jval fill(struct jenv *j, enum jkind kind, const struct jargs *a, const char *what)
{
    struct jval d = jval_dict(j, kind);
    if (a->n_pos > 1) jenv_fail(j, QN_EDATA, "%s takes one positional argument, not %zu", what, a->n_pos);
    if (a->n_pos && a->pos[0].kind == JDICT) {
        jdict_reserve(j, d.d, a->pos[0].d->n);
        for (size_t i = 0; i < a->pos[0].d->n; i++)
            jdict_set(j, d.d, a->pos[0].d->pair[i].key, a->pos[0].d->pair[i].val);
    } else if (a->n_pos) {
        struct jlist l = jval_items(j, a->pos[0]);
        for (size_t i = 0; i < l.n; i++) {
            struct jlist pair = jval_items(j, l.v[i]);
            if (pair.n != 2) jenv_fail(j, QN_EDATA, "%s needs pairs, not %zu values", what, pair.n);
            jdict_set(j, d.d, pair.v[0], pair.v[1]);
        }
    }
    for (size_t i = 0; i < a->n_kw; i++) jdict_set(j, d.d, a->kw[i].name, a->kw[i].val);
    return d;
}

GLOBAL(g_dict) { return fill(j, JDICT, raw, "dict()"); }

GLOBAL(g_namespace) { return fill(j, JSPACE, raw, "namespace()"); }

GLOBAL(g_raise)
{
    struct jval s = jval_to_str(j, arg[0]);
    struct jtext t = {.j = j};
    jtext_str(&t, s);
    jtext_bytes(&t, "", 1, 0);
    jenv_raise(j, t.p);
}

GLOBAL(g_strftime_now)
{
    char out[1024], format[256];
    struct jval s = jarg_str(j, arg[0], "the format of strftime_now");
    if (!j->in->now) jenv_fail(j, QN_EDATA, "strftime_now: no time was given");
    if (s.s->n + 2 > sizeof format)
        jenv_fail(j, QN_EDATA, "strftime_now: a format of %zu bytes (limit %zu)", s.s->n, sizeof format - 2);
    for (size_t i = 0; i + 1 < s.s->n; i++)
        if (s.s->p[i] == '%' && strchr("sZz+", s.s->p[i + 1])) /* these ask the environment for the time zone */
            jenv_fail(j, QN_EUNSUP, "strftime_now: '%%%c' is not supported", s.s->p[i + 1]);
    memcpy(format, s.s->p, s.s->n);
    memcpy(format + s.s->n, " ", 2); /* so that an empty result is not taken for a failure */
    size_t n = strftime(out, sizeof out, format, j->in->now);
    if (n == 0) jenv_fail(j, QN_EDATA, "strftime_now: the result has more than %zu bytes", sizeof out - 1);
    struct jtext t = {.j = j};
    jtext_bytes(&t, out, n - 1, jstr_user(s, 0, s.s->n));
    return jtext_done(&t, 0);
}

const struct jfunc *jglobal_find(struct jval name)
{
    static const struct jfunc globals[] = {
        {"range", g_range, 1, "start stop step"},      {"dict", g_dict, 0, NULL},
        {"namespace", g_namespace, 0, NULL},           {"raise_exception", g_raise, 1, "message"},
        {"strftime_now", g_strftime_now, 1, "format"},
    };
    return jfunc_find(globals, sizeof globals / sizeof globals[0], name);
}
