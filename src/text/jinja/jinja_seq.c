/* SPDX-License-Identifier: MIT
 *
 * jinja_seq.c: the filters for sequences.
 *
 * Where Jinja2 returns a generator (map, select, reverse, ...), so does this: it can be walked once, has no length and
 * is always true. Sorting is stable and, as in Jinja2, ignores case unless it is told not to.
 */
#include <string.h>

#include "text/jinja/jinja_filter.h"
#include "text/jinja/jinja_method.h"
#include "text/jinja/jinja_str.h"

static bool flag_of(struct jval v, bool absent) { return v.kind == JABSENT ? absent : jval_true(v); }

/* ---- attributes by path: 'a.b.0' ---- */

static bool is_number_text(struct jval s)
{
    if (s.s->n == 0 || s.s->n > 9) return false;
    for (size_t i = 0; i < s.s->n; i++)
        if (s.s->p[i] < '0' || s.s->p[i] > '9') return false;
    return true;
}

static int64_t number_of(struct jval s)
{
    int64_t n = 0;
    for (size_t i = 0; i < s.s->n; i++) n = n * 10 + (s.s->p[i] - '0');
    return n;
}

/* The attribute of v that path names; v itself when path is absent. otherwise (may be NULL): the value to take where an
 * attribute is undefined. */
static struct jval attribute(struct jenv *j, struct jval v, struct jval path, const struct jval *otherwise)
{
    if (path.kind == JABSENT || path.kind == JNONE) return v;
    if (jval_is_int(path)) {
        v = jop_item(j, v, path);
        return v.kind == JUNDEF && otherwise ? *otherwise : v;
    }
    path = jarg_str(j, path, "an attribute");
    struct jval dot = jval_cstr(j, ".");
    for (size_t from = 0; from <= path.s->n;) {
        jenv_step(j, 1);
        size_t to = jstr_find(j, path, dot, from);
        if (to == SIZE_MAX) to = path.s->n;
        struct jval key = jstr_part(j, path, from, to);
        v = jop_item(j, v, is_number_text(key) ? jval_int(number_of(key)) : key);
        if (v.kind == JUNDEF && otherwise) v = *otherwise;
        from = to + 1;
    }
    return v;
}

/* ---- order ---- */

struct keyed {
    struct jval key, val;
};

static struct jval fold(struct jenv *j, struct jval v, bool keep_case)
{
    return v.kind == JSTR && !keep_case ? jstr_lower(j, v) : v;
}

static void sort(struct jenv *j, struct keyed *p, struct keyed *other, size_t n, bool down)
{
    if (n < 2) return;
    size_t half = n / 2, a = 0, b = half;
    sort(j, p, other, half, down);
    sort(j, p + half, other, n - half, down);
    for (size_t i = 0; i < n; i++) {
        bool second = a == half;
        if (a < half && b < n) {
            struct jval x = down ? p[a].key : p[b].key, y = down ? p[b].key : p[a].key;
            second = !jval_equal(j, x, y) && jval_compare(j, x, y, "<") < 0; /* equal keys need no order */
        }
        other[i] = second ? p[b++] : p[a++];
    }
    jenv_looks(j, n);
    memcpy(p, other, n * sizeof *p);
}

/* A list of the items in the order of their keys, k[0 .. n). k has room for 2 n elements. */
static struct jval sorted(struct jenv *j, struct keyed *k, size_t n, bool down)
{
    sort(j, k, k + n, n, down);
    struct jval *v = jenv_get_n(j, n, sizeof *v);
    for (size_t i = 0; i < n; i++) v[i] = k[i].val;
    return jval_list(j, JLIST, v, n);
}

/* The key of one item. path may name several attributes, separated by commas. */
static struct jval sort_key(struct jenv *j, struct jval v, struct jval path, bool keep_case)
{
    if (path.kind != JSTR || !memchr(path.s->p, ',', path.s->n)) return fold(j, attribute(j, v, path, NULL), keep_case);
    struct jargs comma = {.pos = (struct jval[]){jval_cstr(j, ",")}, .n_pos = 1};
    struct jval parts = jfunc_call(j, jmethod_find(JSTR, jval_cstr(j, "split")), "method", path, &comma);
    struct jval *key = jenv_get_n(j, parts.l->n, sizeof *key);
    for (size_t i = 0; i < parts.l->n; i++) key[i] = fold(j, attribute(j, v, parts.l->v[i], NULL), keep_case);
    return jval_list(j, JLIST, key, parts.l->n);
}

FILTER(f_sort)
{
    struct jlist l = jval_items(j, v);
    struct keyed *k = jenv_get_n(j, l.n * 2, sizeof *k);
    for (size_t i = 0; i < l.n; i++)
        k[i] = (struct keyed){.key = sort_key(j, l.v[i], arg[2], flag_of(arg[1], false)), .val = l.v[i]};
    return jval_flag(sorted(j, k, l.n, flag_of(arg[0], false)), v.flags & JUSER);
}

FILTER(f_dictsort)
{
    size_t by = 0;
    if (v.kind == JUNDEF) jval_fail_missing(j, v);
    if (v.kind != JDICT) jenv_fail(j, QN_EDATA, "dictsort needs a mapping, not '%s'", jval_type(v));
    if (arg[1].kind != JABSENT) {
        struct jval s = jarg_str(j, arg[1], "by");
        by = jstr_is(s, "value");
        if (!by && !jstr_is(s, "key")) jenv_fail(j, QN_EDATA, "dictsort: by must be 'key' or 'value'");
    }
    struct jval items = jdict_items(j, v, JLIST);
    struct keyed *k = jenv_get_n(j, items.l->n * 2, sizeof *k);
    for (size_t i = 0; i < items.l->n; i++) {
        struct jval pair = items.l->v[i];
        k[i] = (struct keyed){.key = fold(j, pair.l->v[by], flag_of(arg[0], false)), .val = pair};
    }
    return jval_flag(sorted(j, k, items.l->n, flag_of(arg[2], false)), v.flags & JUSER);
}

static struct jval extreme(struct jenv *j, struct jval v, const struct jval *arg, int sign, const char *what)
{
    struct jlist l = jval_items(j, v);
    struct jval best = jval_missing(j, JMISS_EMPTY, NULL, jval_cstr(j, what)), best_key = {0};
    for (size_t i = 0; i < l.n; i++) {
        struct jval key = fold(j, attribute(j, l.v[i], arg[1], NULL), flag_of(arg[0], false));
        if (i == 0 || (sign < 0 ? jval_compare(j, key, best_key, "<") < 0 : jval_compare(j, best_key, key, "<") < 0)) {
            best = l.v[i];
            best_key = key;
        }
    }
    return best;
}

FILTER(f_min) { return extreme(j, v, arg, -1, "smallest"); }
FILTER(f_max) { return extreme(j, v, arg, 1, "largest"); }

FILTER(f_unique)
{
    struct jlist l = jval_items(j, v);
    struct jval seen = jval_dict(j, JDICT), *out = jenv_get_n(j, l.n, sizeof *out);
    size_t n = 0;
    for (size_t i = 0; i < l.n; i++) {
        struct jval key = fold(j, attribute(j, l.v[i], arg[1], NULL), flag_of(arg[0], false));
        if (jdict_find(j, seen.d, key)) continue;
        jdict_set(j, seen.d, key, jval_none());
        out[n++] = l.v[i];
    }
    return jval_list(j, JITER, out, n);
}

/* ---- choosing ---- */

static struct jargs without_first(const struct jargs *a, size_t n)
{
    struct jargs rest = *a;
    rest.pos += n;
    rest.n_pos -= n;
    return rest;
}

static struct jval choose(struct jenv *j, struct jval v, const struct jargs *raw, bool by_attribute, bool keep,
                          const char *what)
{
    size_t skip = by_attribute;
    if (!jval_true(v)) return jval_list(j, JITER, NULL, 0); /* also for none and 0 */
    if (raw->n_pos < skip) jenv_fail(j, QN_EDATA, "filter '%s' needs the name of an attribute", what);
    struct jlist l = jval_items(j, v);
    struct jval *out = jenv_get_n(j, l.n, sizeof *out), path = {.kind = JABSENT};
    if (by_attribute) path = raw->pos[0];
    struct jargs rest = raw->n_pos > skip ? without_first(raw, skip + 1) : (struct jargs){0};
    size_t n = 0;
    for (size_t i = 0; i < l.n; i++) {
        struct jval x = attribute(j, l.v[i], path, NULL);
        bool yes = raw->n_pos > skip ? jtest_apply(j, jarg_str(j, raw->pos[skip], "the name of a test"), x, &rest)
                                     : jval_true(x);
        if (yes == keep) out[n++] = l.v[i];
    }
    return jval_list(j, JITER, out, n);
}

FILTER(f_select) { return choose(j, v, raw, false, true, "select"); }
FILTER(f_reject) { return choose(j, v, raw, false, false, "reject"); }
FILTER(f_selectattr) { return choose(j, v, raw, true, true, "selectattr"); }
FILTER(f_rejectattr) { return choose(j, v, raw, true, false, "rejectattr"); }

FILTER(f_map)
{
    struct jval path = {.kind = JABSENT}, otherwise = path;
    if (!jval_true(v)) return jval_list(j, JITER, NULL, 0);
    for (size_t i = 0; raw->n_pos == 0 && i < raw->n_kw; i++) {
        bool is_path = jstr_is(raw->kw[i].name, "attribute");
        if (!is_path && !jstr_is(raw->kw[i].name, "default"))
            jenv_fail(j, QN_EDATA, "filter 'map' has no argument '%.*s'", (int)raw->kw[i].name.s->n,
                      raw->kw[i].name.s->p);
        *(is_path ? &path : &otherwise) = raw->kw[i].val;
    }
    if (raw->n_pos == 0 && path.kind == JABSENT) jenv_fail(j, QN_EDATA, "filter 'map' needs a filter or an attribute");
    struct jlist l = jval_items(j, v);
    struct jval *out = jenv_get_n(j, l.n, sizeof *out);
    struct jargs rest = raw->n_pos ? without_first(raw, 1) : (struct jargs){0};
    for (size_t i = 0; i < l.n; i++)
        out[i] = raw->n_pos ? jfilter_apply(j, jarg_str(j, raw->pos[0], "the name of a filter"), l.v[i], &rest)
                            : attribute(j, l.v[i], path,
                                        otherwise.kind == JABSENT || otherwise.kind == JNONE ? NULL : &otherwise);
    return jval_list(j, JITER, out, l.n);
}

static struct jval empty(struct jenv *j, const char *which)
{
    return jval_missing(j, JMISS_EMPTY, NULL, jval_cstr(j, which));
}

/* The first or the last item of anything but a generator. */
static struct jval at_end(struct jenv *j, struct jval v, bool last)
{
    size_t n = 0;
    if (v.kind == JSTR) {
        n = v.s->n;
        if (n == 0) return empty(j, last ? "last" : "first");
        size_t from = last ? n - 1 : 0, to = last ? n : 1;
        while (from > 0 && ((uint8_t)v.s->p[from] & 0xC0) == 0x80) from--;
        while (to < n && ((uint8_t)v.s->p[to] & 0xC0) == 0x80) to++;
        return jstr_part(j, v, from, to);
    }
    if (v.kind == JLIST || v.kind == JTUPLE || v.kind == JVIEW)
        return v.l->n ? v.l->v[last ? v.l->n - 1 : 0] : empty(j, last ? "last" : "first");
    if (v.kind == JDICT && v.d->n) return v.d->pair[last ? v.d->n - 1 : 0].key;
    jval_items(j, v); /* fails unless v can be walked; then it is empty */
    return empty(j, last ? "last" : "first");
}

FILTER(f_first)
{
    if (v.kind == JITER) return v.l->at < v.l->n ? v.l->v[v.l->at++] : empty(j, "first");
    return at_end(j, v, false);
}

FILTER(f_last)
{
    if (v.kind == JITER) jenv_fail(j, QN_EDATA, "'%s' object is not reversible", jval_type(v));
    return at_end(j, v, true);
}

/* ---- rearranging ---- */

FILTER(f_list)
{
    struct jlist l = jval_items(j, v);
    return jval_flag(jval_list(j, JLIST, l.v, l.n), v.flags & JUSER);
}

FILTER(f_reverse)
{
    if (v.kind == JSTR) return jop_slice(j, v, jval_none(), jval_none(), jval_int(-1));
    struct jlist l = jval_items(j, v);
    struct jval *out = jenv_get_n(j, l.n, sizeof *out);
    for (size_t i = 0; i < l.n; i++) out[i] = l.v[l.n - 1 - i];
    return jval_list(j, JITER, out, l.n);
}

FILTER(f_join)
{
    struct jtext t = {.j = j};
    struct jval sep = arg[0].kind == JABSENT ? jval_cstr(j, "") : jval_to_str(j, arg[0]);
    struct jlist l = jval_items(j, v);
    for (size_t i = 0; i < l.n; i++) {
        if (i) jtext_str(&t, sep);
        jtext_value(&t, attribute(j, l.v[i], arg[1], NULL));
    }
    return jtext_done(&t, 0);
}

FILTER(f_sum)
{
    struct jval total = arg[1].kind == JABSENT ? jval_int(0) : arg[1];
    struct jlist l = jval_items(j, v);
    if (total.kind == JSTR) jenv_fail(j, QN_EDATA, "sum() cannot add strings");
    for (size_t i = 0; i < l.n; i++) total = jop_binary(j, JO_ADD, total, attribute(j, l.v[i], arg[0], NULL));
    return total;
}

FILTER(f_batch)
{
    int64_t size = jarg_int(j, arg[0], 1, "the size of a batch");
    if (size < 1) jenv_fail(j, QN_EDATA, "the size of a batch must be positive, not %lld", (long long)size);
    struct jlist l = jval_items(j, v);
    size_t per = size > (int64_t)l.n ? l.n : (size_t)size, n = l.n ? (l.n + per - 1) / per : 0;
    struct jval *out = jenv_get_n(j, n, sizeof *out);
    for (size_t i = 0; i < n; i++) {
        size_t from = i * per, k = l.n - from < per ? l.n - from : per;
        jenv_step(j, 1);
        out[i] = jval_list(j, JLIST, l.v + from, k);
        if (arg[1].kind == JABSENT || arg[1].kind == JNONE || k == (size_t)size) continue;
        struct jval fill = jval_list(j, JLIST, (struct jval *)&arg[1], 1);
        out[i] = jop_binary(j, JO_ADD, out[i], jop_binary(j, JO_MUL, fill, jval_int(size - (int64_t)k)));
    }
    return jval_list(j, JITER, out, n);
}

FILTER(f_slice)
{
    int64_t count = jarg_int(j, arg[0], 1, "the number of slices");
    if (count < 1) jenv_fail(j, QN_EDATA, "the number of slices must be positive, not %lld", (long long)count);
    struct jlist l = jval_items(j, v);
    size_t n = (size_t)count, per = l.n / n, longer = l.n % n, at = 0;
    jenv_step(j, n);
    struct jval *out = jenv_get_n(j, n, sizeof *out);
    for (size_t i = 0; i < n; i++) {
        size_t k = per + (i < longer);
        out[i] = jval_list(j, JLIST, l.v + at, k);
        at += k;
        if (arg[1].kind == JABSENT || arg[1].kind == JNONE || i < longer) continue;
        out[i] = jop_binary(j, JO_ADD, out[i], jval_list(j, JLIST, (struct jval *)&arg[1], 1));
    }
    return jval_list(j, JITER, out, n);
}

const struct jfunc *jfilter_find_seq(struct jval name)
{
    static const struct jfunc filters[] = {
        {"first", f_first, 0, ""},
        {"last", f_last, 0, ""},
        {"list", f_list, 0, ""},
        {"join", f_join, 0, "d attribute"},
        {"map", f_map, 0, NULL},
        {"select", f_select, 0, NULL},
        {"reject", f_reject, 0, NULL},
        {"selectattr", f_selectattr, 0, NULL},
        {"rejectattr", f_rejectattr, 0, NULL},
        {"sort", f_sort, 0, "reverse case_sensitive attribute"},
        {"dictsort", f_dictsort, 0, "case_sensitive by reverse"},
        {"reverse", f_reverse, 0, ""},
        {"unique", f_unique, 0, "case_sensitive attribute"},
        {"min", f_min, 0, "case_sensitive attribute"},
        {"max", f_max, 0, "case_sensitive attribute"},
        {"sum", f_sum, 0, "attribute start"},
        {"batch", f_batch, 1, "linecount fill_with"},
        {"slice", f_slice, 1, "slices fill_with"},
    };
    return jfunc_find(filters, sizeof filters / sizeof filters[0], name);
}
