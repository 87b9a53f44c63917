/* SPDX-License-Identifier: MIT
 *
 * jinja_op.c: operators, attributes, subscripts and slices, with Python's meaning.
 *
 * `a.b` looks for a method first and for an item second, `a['b']` the other way round. Methods that would change a list
 * or dictionary are forbidden, as in Jinja2's immutable sandbox.
 *
 * Differences from Python: integers have 64 bits, and a result that does not fit is an error; so is a complex number.
 */
#include "text/jinja/jinja_eval.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja/jinja_str.h"

static const char *const op_text[] = {
    [JO_ADD] = "+",       [JO_SUB] = "-",  [JO_MUL] = "*", [JO_DIV] = "/", [JO_MOD] = "%",
    [JO_FLOORDIV] = "//", [JO_POW] = "**", [JO_EQ] = "==", [JO_NE] = "!=", [JO_LT] = "<",
    [JO_LE] = "<=",       [JO_GT] = ">",   [JO_GE] = ">=", [JO_IN] = "in", [JO_NOT_IN] = "not in"};

/* ---- arithmetic ---- */

static _Noreturn void unsupported(struct jenv *j, enum jop op, struct jval a, struct jval b)
{
    if (a.kind == JUNDEF) jval_fail_missing(j, a);
    if (b.kind == JUNDEF) jval_fail_missing(j, b);
    if (op == JO_ADD && a.kind == JSTR)
        jenv_fail(j, QN_EDATA, "can only concatenate str (not \"%s\") to str", jval_type(b));
    jenv_fail(j, QN_EDATA, "unsupported operands of %s: '%s' and '%s'", op_text[op], jval_type(a), jval_type(b));
}

static int64_t floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static double floor_mod(double a, double b)
{
    double m = fmod(a, b);
    if (m == 0) return copysign(0, b);
    return (m < 0) != (b < 0) ? m + b : m;
}

static bool int_pow(int64_t a, int64_t n, int64_t *out)
{
    *out = 1;
    for (; n > 0; n >>= 1) {
        if ((n & 1) && __builtin_mul_overflow(*out, a, out)) return true;
        if (n > 1 && __builtin_mul_overflow(a, a, &a)) return true;
    }
    return false;
}

static struct jval int_op(struct jenv *j, enum jop op, int64_t a, int64_t b)
{
    int64_t r = 0;
    bool overflow = false;
    switch (op) {
    case JO_ADD: overflow = __builtin_add_overflow(a, b, &r); break;
    case JO_SUB: overflow = __builtin_sub_overflow(a, b, &r); break;
    case JO_MUL: overflow = __builtin_mul_overflow(a, b, &r); break;
    case JO_FLOORDIV: overflow = a == INT64_MIN && b == -1; break;
    case JO_POW: overflow = int_pow(a, b, &r); break;
    default: break;
    }
    if (overflow) jenv_fail(j, QN_EDATA, "%lld %s %lld does not fit 64 bits", (long long)a, op_text[op], (long long)b);
    if (op == JO_FLOORDIV) r = floor_div(a, b);
    if (op == JO_MOD) r = b == -1 ? 0 : a - b * floor_div(a, b);
    return jval_int(r);
}

static double float_floor_div(double a, double b)
{
    double q = (a - floor_mod(a, b)) / b, whole = floor(q); /* q is whole, except for rounding */
    return q - whole > 0.5 ? whole + 1 : whole;
}

static struct jval float_op(struct jenv *j, enum jop op, double a, double b)
{
    switch (op) {
    case JO_ADD: return jval_float(a + b);
    case JO_SUB: return jval_float(a - b);
    case JO_MUL: return jval_float(a * b);
    case JO_DIV: return jval_float(a / b);
    case JO_FLOORDIV: return jval_float(float_floor_div(a, b));
    case JO_MOD: return jval_float(floor_mod(a, b));
    default: break;
    }
    assert(op == JO_POW);
    double r = pow(a, b);
    if (isnan(r) && !isnan(a) && !isnan(b)) jenv_fail(j, QN_EUNSUP, "complex numbers are not supported");
    if (isinf(r) && isfinite(a) && isfinite(b)) jenv_fail(j, QN_EDATA, "the result of ** is too large");
    return jval_float(r);
}

static struct jval arithmetic(struct jenv *j, enum jop op, struct jval a, struct jval b)
{
    bool by_zero = jval_as_float(b) == 0 && (op == JO_DIV || op == JO_FLOORDIV || op == JO_MOD);
    if (by_zero || (op == JO_POW && jval_as_float(a) == 0 && jval_as_float(b) < 0))
        jenv_fail(j, QN_EDATA, "division by zero");
    bool ints = jval_is_int(a) && jval_is_int(b) && op != JO_DIV && !(op == JO_POW && jval_as_int(b) < 0);
    struct jval r =
        ints ? int_op(j, op, jval_as_int(a), jval_as_int(b)) : float_op(j, op, jval_as_float(a), jval_as_float(b));
    return jval_flag(r, (a.flags | b.flags) & JUSER);
}

static struct jval repeat(struct jenv *j, struct jval v, int64_t times)
{
    size_t n = times < 0 ? 0 : (size_t)times;
    if (v.kind == JSTR) {
        struct jtext t = {.j = j};
        for (size_t i = 0; i < n && v.s->n; i++) {
            jenv_step(j, 1);
            jtext_str(&t, v);
        }
        return jtext_done(&t, v.flags & JMARKUP);
    }
    if (v.l->n == 0) n = 0;
    size_t total;
    if (__builtin_mul_overflow(n, v.l->n, &total)) total = SIZE_MAX;
    struct jval *p = jenv_get_n(j, total, sizeof *p);
    jenv_looks(j, total);
    for (size_t i = 0; i < n; i++) memcpy(p + i * v.l->n, v.l->v, v.l->n * sizeof *p);
    return jval_list(j, v.kind, p, total);
}

/* A list with b's items after a's. Where possible b's items are written into free room after a's own, so that a
 * template that builds a list by `ns.list = ns.list + [more]` takes linear time and memory. a does not change: it sees
 * only its own n items. */
static struct jval add_lists(struct jenv *j, struct jval a, struct jval b)
{
    size_t n = a.l->n + b.l->n;
    struct jroom *room = a.l->room;
    struct jval *p = a.l->v;
    jenv_looks(j, b.l->n);
    if (!room || room->n != a.l->n || n > room->cap) {
        room = jenv_get(j, sizeof *room);
        *room = (struct jroom){.cap = a.l->room ? n * 2 : n};
        jenv_looks(j, a.l->n);
        p = jenv_get_n(j, room->cap, sizeof *p);
        if (a.l->n) memcpy(p, a.l->v, a.l->n * sizeof *p);
    }
    if (b.l->n) memcpy(p + a.l->n, b.l->v, b.l->n * sizeof *p);
    room->n = n;
    struct jval v = jval_flag(jval_list(j, a.kind, p, n), (a.flags | b.flags) & JUSER);
    v.l->room = room;
    return v;
}

static struct jval add_strings(struct jenv *j, struct jval a, struct jval b)
{
    if (a.flags & JMARKUP) b = jstr_escape(j, b);
    if (b.flags & JMARKUP) a = jstr_escape(j, a);
    return jstr_join(j, a, b);
}

/* text % values */
static struct jval fill_in(struct jenv *j, struct jval text, struct jval values)
{
    if (values.kind == JTUPLE) return jop_format(j, text, values.l->v, values.l->n, jval_none());
    return jop_format(j, text, &values, 1, values);
}

static bool is_list(struct jval v) { return v.kind == JLIST || v.kind == JTUPLE; }

static bool can_repeat(struct jval v) { return v.kind == JSTR || is_list(v); }

struct jval jop_binary(struct jenv *j, enum jop op, struct jval a, struct jval b)
{
    if (jval_is_number(a) && jval_is_number(b)) return arithmetic(j, op, a, b);
    switch (op) {
    case JO_MOD:
        if (a.kind == JSTR) return fill_in(j, a, b);
        break;
    case JO_ADD:
        if (a.kind == JSTR && b.kind == JSTR) return add_strings(j, a, b);
        if (is_list(a) && a.kind == b.kind) return add_lists(j, a, b);
        break;
    case JO_MUL:
        if (can_repeat(a) && jval_is_int(b)) return repeat(j, a, jval_as_int(b));
        if (can_repeat(b) && jval_is_int(a)) return repeat(j, b, jval_as_int(a));
        break;
    default: break;
    }
    unsupported(j, op, a, b);
}

struct jval jop_negate(struct jenv *j, struct jval v, bool minus)
{
    if (v.kind == JUNDEF) jval_fail_missing(j, v);
    if (!jval_is_number(v)) jenv_fail(j, QN_EDATA, "bad operand of unary %c: '%s'", minus ? '-' : '+', jval_type(v));
    struct jval r = v.kind == JFLOAT ? jval_float(minus ? -v.f : v.f) : jval_int(jval_as_int(v));
    if (r.kind == JINT && minus) r = int_op(j, JO_SUB, 0, r.i);
    return jval_flag(r, v.flags & JUSER);
}

/* ---- comparison ---- */

static bool contains(struct jenv *j, struct jval a, struct jval b)
{
    switch (b.kind) {
    case JUNDEF: return false;
    case JSTR:
        if (a.kind == JUNDEF) jval_fail_missing(j, a);
        if (a.kind != JSTR)
            jenv_fail(j, QN_EDATA, "'in <string>' requires string as left operand, not %s", jval_type(a));
        return jstr_find(j, b, a, 0) != SIZE_MAX;
    case JDICT: return jdict_find(j, b.d, a) != NULL;
    case JLIST:
    case JTUPLE:
    case JVIEW:
    case JITER: {
        struct jlist l = jval_items(j, b);
        for (size_t i = 0; i < l.n; i++)
            if (jval_equal(j, a, l.v[i])) return true;
        return false;
    }
    default: jenv_fail(j, QN_EDATA, "argument of type '%s' is not iterable", jval_type(b));
    }
}

bool jop_compare(struct jenv *j, enum jop op, struct jval a, struct jval b)
{
    switch (op) {
    case JO_EQ: return jval_equal(j, a, b);
    case JO_NE: return !jval_equal(j, a, b);
    case JO_IN: return contains(j, a, b);
    case JO_NOT_IN: return !contains(j, a, b);
    default: break;
    }
    int c = jval_compare(j, a, b, op_text[op]);
    if (c == 2) return false; /* NaN */
    switch (op) {
    case JO_LT: return c < 0;
    case JO_LE: return c <= 0;
    case JO_GT: return c > 0;
    default: return c >= 0;
    }
}

/* ---- attributes, subscripts, slices ---- */

static struct jval loop_attr(struct jenv *j, struct jloop *l, struct jval name)
{
    int64_t i = (int64_t)l->i, n = (int64_t)l->items.n;
    const struct {
        const char *name;
        struct jval v;
    } attrs[] = {
        {"index", jval_int(i + 1)},      {"index0", jval_int(i)},
        {"revindex", jval_int(n - i)},   {"revindex0", jval_int(n - i - 1)},
        {"first", jval_bool(i == 0)},    {"last", jval_bool(i == n - 1)},
        {"length", jval_int(n)},         {"depth", jval_int(l->depth0 + 1)},
        {"depth0", jval_int(l->depth0)},
    };
    for (size_t k = 0; k < sizeof attrs / sizeof attrs[0]; k++)
        if (jstr_is(name, attrs[k].name)) return attrs[k].v;
    if (jstr_is(name, "previtem") && i > 0) return l->items.v[i - 1];
    if (jstr_is(name, "nextitem") && i + 1 < n) return l->items.v[i + 1];
    return jval_missing(j, JMISS_ATTR, "LoopContext", name);
}

/* Methods that Python has and Jinja2's immutable sandbox forbids; all of them but fromkeys() change the object. A list
 * of the template's own has append() and pop() all the same (jinja_method.c). */
static bool is_unsafe(struct jval v, struct jval name)
{
    static const char *const none[] = {NULL};
    static const char *const of_list[] = {"append", "clear",   "extend", "insert", "pop",
                                          "remove", "reverse", "sort",   NULL};
    static const char *const of_dict[] = {"clear", "fromkeys", "pop", "popitem", "setdefault", "update", NULL};
    const char *const *unsafe = none;
    if (v.kind == JLIST) unsafe = of_list;
    if (v.kind == JDICT) unsafe = of_dict;
    for (; *unsafe; unsafe++)
        if (jstr_is(name, *unsafe)) return true;
    return name.s->n > 4 && memcmp(name.s->p, "__", 2) == 0 && memcmp(name.s->p + name.s->n - 2, "__", 2) == 0;
}

/* Finds what Python's getattr() finds: a method, or an attribute of a namespace, loop or macro. False: nothing. */
static bool own_attr(struct jenv *j, struct jval v, struct jval name, struct jval *out)
{
    const struct jval *item;
    const struct jfunc *f = jmethod_find(v.kind, name);
    if (f && !((v.flags & JUSER) && is_unsafe(v, name))) {
        struct jmethod *m = jenv_get(j, sizeof *m);
        *m = (struct jmethod){.fn = f, .self = v};
        *out = (struct jval){.kind = JMETHOD, .m = m};
        return true;
    }
    if (v.kind == JUNDEF) jval_fail_missing(j, v);
    if (is_unsafe(v, name)) {
        *out = jval_missing(j, JMISS_UNSAFE, jval_type(v), name);
        return true;
    }
    if (v.kind == JSPACE && (item = jdict_find(j, v.d, name))) {
        *out = *item;
        return true;
    }
    if (v.kind == JLOOP) {
        *out = loop_attr(j, v.loop, name);
        return true;
    }
    if (v.kind == JMACRO && jstr_is(name, "name")) {
        *out = v.macro->node->val;
        return true;
    }
    return false;
}

static struct jval missing_of(struct jenv *j, struct jval v, struct jval key)
{
    if (key.kind == JSTR) return jval_missing(j, JMISS_ATTR, v.kind == JNONE ? "None" : jval_type(v), key);
    return jval_missing(j, JMISS_ITEM, jval_type(v), key);
}

struct jval jop_attr(struct jenv *j, struct jval v, struct jval name)
{
    struct jval out;
    if (own_attr(j, v, name, &out)) return out;
    if (v.kind == JDICT) {
        const struct jval *item = jdict_find(j, v.d, name);
        if (item) return *item;
    }
    return missing_of(j, v, name);
}

struct jval jop_item(struct jenv *j, struct jval v, struct jval key)
{
    struct jval out;
    if (v.kind == JUNDEF) jval_fail_missing(j, v);
    if (v.kind == JDICT && jval_hashable(j, key)) {
        const struct jval *item = jdict_find(j, v.d, key);
        if (item) return *item;
    }
    if (jval_is_int(key) && (v.kind == JSTR || v.kind == JLIST || v.kind == JTUPLE)) {
        size_t n = 0;
        jval_len(j, v, &n);
        int64_t i = jval_as_int(key) < 0 ? jval_as_int(key) + (int64_t)n : jval_as_int(key);
        if (i >= 0 && i < (int64_t)n) {
            if (v.kind != JSTR) return v.l->v[i];
            size_t at = jstr_offset(j, v, (size_t)i);
            return jstr_part(j, v, at, jstr_offset(j, v, (size_t)i + 1));
        }
    }
    if (key.kind == JSTR && own_attr(j, v, key, &out)) return out;
    return missing_of(j, v, key);
}

static int64_t slice_bound(struct jenv *j, struct jval v, int64_t n, int64_t absent, bool backwards)
{
    if (v.kind == JNONE) return absent;
    if (v.kind == JUNDEF) jval_fail_missing(j, v);
    if (!jval_is_int(v)) jenv_fail(j, QN_EDATA, "slice indices must be integers or None, not %s", jval_type(v));
    int64_t i = jval_as_int(v);
    if (i < 0) i = i < -n ? -1 : i + n;
    if (i < 0) return backwards ? -1 : 0;
    return i >= n ? (backwards ? n - 1 : n) : i;
}

/* The byte k characters after (before, when it is negative) the one at byte `at`, within the text. */
static size_t skip_chars(struct jenv *j, struct jval s, size_t at, int64_t k)
{
    size_t from = at;
    for (; k > 0 && at < s.s->n; k--) {
        at++;
        while (at < s.s->n && ((uint8_t)s.s->p[at] & 0xC0) == 0x80) at++;
    }
    for (; k < 0 && at > 0; k++) {
        at--;
        while (at > 0 && ((uint8_t)s.s->p[at] & 0xC0) == 0x80) at--;
    }
    jenv_looks(j, at > from ? at - from : from - at);
    return at;
}

/* n characters of s: the one at index a, and then every by-th. */
static struct jval every_char(struct jenv *j, struct jval s, int64_t a, int64_t by, size_t n)
{
    struct jtext t = {.j = j};
    size_t at = n ? jstr_offset(j, s, (size_t)a) : 0;
    for (size_t i = 0; i < n; i++) {
        size_t end;
        if (i) at = skip_chars(j, s, at, by);
        for (end = at + 1; end < s.s->n && ((uint8_t)s.s->p[end] & 0xC0) == 0x80;) end++;
        jtext_part(&t, s, at, end);
    }
    return jtext_done(&t, s.flags & JMARKUP);
}

struct jval jop_slice(struct jenv *j, struct jval v, struct jval from, struct jval to, struct jval step)
{
    size_t len = 0;
    if (v.kind == JUNDEF) jval_fail_missing(j, v);
    if (v.kind != JSTR && v.kind != JLIST && v.kind != JTUPLE)
        jenv_fail(j, QN_EDATA, "'%s' object cannot be sliced", jval_type(v));
    jval_len(j, v, &len);
    int64_t by = 1, n = (int64_t)len;
    if (step.kind != JNONE) by = jarg_int(j, step, 1, "slice step");
    if (by == 0) jenv_fail(j, QN_EDATA, "slice step cannot be zero");
    int64_t a = slice_bound(j, from, n, by > 0 ? 0 : n - 1, by < 0);
    int64_t b = slice_bound(j, to, n, by > 0 ? n : -1, by < 0);
    if (by > n + 1) by = n + 1; /* a larger step gives the same, and the sums below must not overflow */
    if (by < -n - 1) by = -n - 1;
    if (v.kind == JSTR && by == 1) {
        if (a >= b) return jval_str(j, "", 0, v.flags & JMARKUP);
        return jstr_part(j, v, jstr_offset(j, v, (size_t)a), jstr_offset(j, v, (size_t)b));
    }
    if (by > 0 ? a >= b : a <= b) b = a;
    size_t k = (size_t)(by > 0 ? (b - a + by - 1) / by : (a - b - by - 1) / -by), i = 0;
    if (v.kind == JSTR) return every_char(j, v, a, by, k);
    jenv_looks(j, k);
    struct jval *p = jenv_get_n(j, k, sizeof *p);
    for (; i < k; i++, a += by) p[i] = v.l->v[a];
    return jval_flag(jval_list(j, v.kind, p, k), v.flags);
}
