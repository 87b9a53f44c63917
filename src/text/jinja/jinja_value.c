/* SPDX-License-Identifier: MIT
 *
 * jinja_value.c: equality, order, truth, length and iteration of template values, and dictionaries.
 *
 * The rules are Python's: 1 == 1.0 == True, also as keys; lists compare item by item; comparing values that have no
 * order is an error. A dictionary is an array in the order of insertion; one of more than SMALL_DICT entries has an
 * index too.
 *
 * Difference from Python: integers have 64 bits.
 */
#include "text/jinja/jinja_value.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "text/jinja/jinja_str.h"

#define SMALL_DICT 8

static struct jval nothing; /* what empty lists point to */

struct jval jval_missing(struct jenv *j, int why, const char *type, struct jval name)
{
    struct jmissing *u = jenv_get(j, sizeof *u);
    *u = (struct jmissing){.why = why, .type = type, .name = name};
    return (struct jval){.kind = JUNDEF, .u = u};
}

struct jval jval_str(struct jenv *j, const char *p, size_t n, unsigned flags)
{
    struct jstr *s = jenv_get(j, sizeof *s);
    *s = (struct jstr){.p = p, .n = n, .n_chars = SIZE_MAX};
    return (struct jval){.kind = JSTR, .flags = (uint8_t)flags, .s = s};
}

struct jval jval_cstr(struct jenv *j, const char *p) { return jval_str(j, p, strlen(p), 0); }

struct jval jval_list(struct jenv *j, int kind, struct jval *v, size_t n)
{
    struct jlist *l = jenv_get(j, sizeof *l);
    *l = (struct jlist){.v = v ? v : &nothing, .n = n, .born = j->n_marks};
    return (struct jval){.kind = (uint8_t)kind, .l = l};
}

struct jval jval_pair(struct jenv *j, struct jval a, struct jval b)
{
    struct jval *v = jenv_get_n(j, 2, sizeof *v);
    v[0] = a;
    v[1] = b;
    return jval_list(j, JTUPLE, v, 2);
}

struct jval jval_dict(struct jenv *j, int kind)
{
    struct jdict *d = jenv_get(j, sizeof *d);
    *d = (struct jdict){.born = j->n_marks};
    return (struct jval){.kind = (uint8_t)kind, .d = d};
}

/* ---- dictionaries ---- */

void jdict_reserve(struct jenv *j, struct jdict *d, size_t n)
{
    if (n <= d->cap) return;
    d->pair = jenv_resize(j, d->pair, d->cap * sizeof *d->pair, n * sizeof *d->pair);
    d->cap = n;
}

bool jval_hashable(struct jenv *j, struct jval v)
{
    bool all = true;
    jenv_step(j, 1);
    if (v.kind != JTUPLE) return v.kind == JNONE || v.kind == JSTR || jval_is_number(v);
    jenv_enter(j);
    for (size_t i = 0; i < v.l->n && all; i++) all = jval_hashable(j, v.l->v[i]);
    jenv_leave(j);
    return all;
}

/* A test sets this to 1, so that keys collide. */
#ifndef JINJA_HASH_BITS
#define JINJA_HASH_BITS 64
#endif

static uint64_t seeded_hash(const struct jenv *j, const void *p, size_t n, uint64_t kind)
{
    return hash_bytes(p, n, j->seed ^ kind) >> (64 - JINJA_HASH_BITS);
}

static uint64_t hash_of(struct jenv *j, struct jval v)
{
    jenv_step(j, 1);
    if (v.kind == JSTR) {
        jenv_bytes(j, v.s->n);
        return seeded_hash(j, v.s->p, v.s->n, 0);
    }
    if (jval_is_number(v)) { /* numbers that are equal have the same double */
        double f = jval_as_float(v);
        if (f == 0) f = 0; /* -0.0 too */
        return seeded_hash(j, &f, sizeof f, 1);
    }
    uint64_t h = v.kind;
    if (v.kind != JTUPLE) return h;
    jenv_enter(j);
    for (size_t i = 0; i < v.l->n; i++) {
        uint64_t pair[2] = {h, hash_of(j, v.l->v[i])};
        h = seeded_hash(j, pair, sizeof pair, 2);
    }
    jenv_leave(j);
    return h;
}

/* So many probes happen by chance only once in 10^10 look-ups. They are free, so that the number of steps of a
 * rendering does not depend on the seed. */
#define FREE_PROBES 128

static void count_probe(struct jenv *j, size_t n)
{
    if (n > FREE_PROBES) jenv_looks(j, 4); /* more than 1, because each reads another place in memory */
}

static struct jpair *find(struct jenv *j, const struct jdict *d, struct jval key, uint64_t hash)
{
    if (!d->slot) {
        jenv_looks(j, d->n);
        for (size_t i = 0; i < d->n; i++)
            if (d->pair[i].hash == hash && jval_equal(j, d->pair[i].key, key)) return &d->pair[i];
        return NULL;
    }
    size_t n = 0;
    for (size_t at = hash & (d->n_slots - 1); d->slot[at]; at = (at + 1) & (d->n_slots - 1)) {
        struct jpair *p = &d->pair[d->slot[at] - 1];
        count_probe(j, ++n);
        if (p->hash == hash && jval_equal(j, p->key, key)) return p;
    }
    return NULL;
}

static uint64_t key_hash(struct jenv *j, struct jval key)
{
    if (!jval_hashable(j, key)) jenv_fail(j, QN_EDATA, "unhashable type: '%s'", jval_type(key));
    return hash_of(j, key);
}

struct jval *jdict_find(struct jenv *j, const struct jdict *d, struct jval key)
{
    struct jpair *p = find(j, d, key, key_hash(j, key));
    return p ? &p->val : NULL;
}

static void add_to_index(struct jenv *j, struct jdict *d, size_t i)
{
    size_t at = d->pair[i].hash & (d->n_slots - 1), n = 0;
    for (; d->slot[at]; at = (at + 1) & (d->n_slots - 1)) count_probe(j, ++n);
    d->slot[at] = (uint32_t)i + 1;
}

static void grow_index(struct jenv *j, struct jdict *d)
{
    size_t old = d->n_slots;
    d->n_slots = old ? old * 2 : SMALL_DICT * 4;
    d->slot = jenv_resize(j, d->slot, old * sizeof *d->slot, d->n_slots * sizeof *d->slot);
    memset(d->slot, 0, d->n_slots * sizeof *d->slot);
    jenv_looks(j, d->n);
    for (size_t i = 0; i < d->n; i++) add_to_index(j, d, i);
}

void jdict_set(struct jenv *j, struct jdict *d, struct jval key, struct jval val)
{
    uint64_t hash = key_hash(j, key);
    struct jpair *p = find(j, d, key, hash);
    if (p) {
        p->val = val;
        return;
    }
    if (d->n >= UINT32_MAX - 1) jenv_fail(j, QN_EDATA, "a dictionary of more than %zu keys", d->n);
    d->pair = jenv_grow(j, d->pair, d->n, &d->cap, sizeof *d->pair);
    d->pair[d->n++] = (struct jpair){.key = key, .val = val, .hash = hash};
    if (d->n <= SMALL_DICT) return;
    if (d->n * 2 <= d->n_slots)
        add_to_index(j, d, d->n - 1);
    else
        grow_index(j, d);
}

/* ---- asking ---- */

const char *jval_type(struct jval v)
{
    static const char *const names[] = {
        [JUNDEF] = "Undefined",  [JNONE] = "NoneType",  [JBOOL] = "bool",      [JINT] = "int",
        [JFLOAT] = "float",      [JSTR] = "str",        [JLIST] = "list",      [JTUPLE] = "tuple",
        [JDICT] = "dict",        [JVIEW] = "dict_view", [JITER] = "generator", [JSPACE] = "Namespace",
        [JLOOP] = "LoopContext", [JMACRO] = "Macro",    [JFUNC] = "function",  [JMETHOD] = "method",
    };
    return names[v.kind];
}

bool jval_true(struct jval v)
{
    switch (v.kind) {
    case JUNDEF:
    case JNONE: return false;
    case JBOOL: return v.b;
    case JINT: return v.i != 0;
    case JFLOAT: return v.f != 0;
    case JSTR: return v.s->n > 0;
    case JLIST:
    case JTUPLE:
    case JVIEW: return v.l->n > 0;
    case JDICT: return v.d->n > 0;
    default: return true;
    }
}

static bool lists_equal(struct jenv *j, const struct jlist *a, const struct jlist *b)
{
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (!jval_equal(j, a->v[i], b->v[i])) return false;
    return true;
}

static bool dicts_equal(struct jenv *j, const struct jdict *a, const struct jdict *b)
{
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        const struct jpair *p = find(j, b, a->pair[i].key, a->pair[i].hash);
        if (!p || !jval_equal(j, a->pair[i].val, p->val)) return false;
    }
    return true;
}

bool jval_equal(struct jenv *j, struct jval a, struct jval b)
{
    jenv_step(j, 1);
    if (jval_is_int(a) && jval_is_int(b)) return jval_as_int(a) == jval_as_int(b);
    if (jval_is_number(a) && jval_is_number(b)) return jval_as_float(a) == jval_as_float(b);
    if (a.kind != b.kind) return false;
    bool same;
    switch (a.kind) {
    case JUNDEF:
    case JNONE: return true;
    case JSTR:
        if (a.s->n != b.s->n) return false;
        jenv_bytes(j, a.s->n);
        return memcmp(a.s->p, b.s->p, a.s->n) == 0;
    case JLIST:
    case JTUPLE:
        jenv_enter(j);
        same = lists_equal(j, a.l, b.l);
        jenv_leave(j);
        return same;
    case JDICT:
        jenv_enter(j);
        same = dicts_equal(j, a.d, b.d);
        jenv_leave(j);
        return same;
    default: return a.l == b.l; /* the same thing */
    }
}

static int sign(size_t a, size_t b) { return a < b ? -1 : a > b; }

int jval_compare(struct jenv *j, struct jval a, struct jval b, const char *op)
{
    jenv_step(j, 1);
    if (a.kind == JUNDEF) jval_fail_missing(j, a);
    if (b.kind == JUNDEF) jval_fail_missing(j, b);
    if (jval_is_int(a) && jval_is_int(b)) {
        int64_t x = jval_as_int(a), y = jval_as_int(b);
        return x < y ? -1 : x > y;
    }
    if (jval_is_number(a) && jval_is_number(b)) {
        double x = jval_as_float(a), y = jval_as_float(b);
        if (isnan(x) || isnan(y)) return 2;
        return x < y ? -1 : x > y;
    }
    if (a.kind == JSTR && b.kind == JSTR) { /* the order of UTF-8 is that of code points */
        size_t n = a.s->n < b.s->n ? a.s->n : b.s->n;
        jenv_bytes(j, n);
        int c = memcmp(a.s->p, b.s->p, n);
        return c ? c : sign(a.s->n, b.s->n);
    }
    if (a.kind != b.kind || (a.kind != JLIST && a.kind != JTUPLE))
        jenv_fail(j, QN_EDATA, "'%s' is not supported between '%s' and '%s'", op, jval_type(a), jval_type(b));
    jenv_enter(j);
    int c = 0;
    size_t i = 0;
    while (i < a.l->n && i < b.l->n && jval_equal(j, a.l->v[i], b.l->v[i])) i++;
    if (i < a.l->n && i < b.l->n)
        c = jval_compare(j, a.l->v[i], b.l->v[i], op);
    else
        c = sign(a.l->n, b.l->n);
    jenv_leave(j);
    return c;
}

bool jval_len(struct jenv *j, struct jval v, size_t *n)
{
    switch (v.kind) {
    case JUNDEF: *n = 0; return true;
    case JSTR: *n = jstr_chars(j, v); return true;
    case JLIST:
    case JTUPLE:
    case JVIEW: *n = v.l->n; return true;
    case JDICT: *n = v.d->n; return true;
    default: return false;
    }
}

bool jval_iterable(struct jval v)
{
    return v.kind == JUNDEF || v.kind == JSTR || v.kind == JLIST || v.kind == JTUPLE || v.kind == JDICT ||
           v.kind == JVIEW || v.kind == JITER;
}

static struct jlist characters(struct jenv *j, struct jval s)
{
    struct jlist l = {.n = jstr_chars(j, s)};
    l.v = jenv_get_n(j, l.n, sizeof *l.v);
    size_t at = 0;
    for (size_t i = 0; i < l.n; i++) {
        uint32_t cp;
        unsigned n = jchar_at(s, at, &cp);
        l.v[i] = jstr_part(j, s, at, at + n);
        at += n;
    }
    return l;
}

struct jlist jval_items(struct jenv *j, struct jval v)
{
    struct jlist l = {.v = &nothing};
    switch (v.kind) {
    case JUNDEF: break;
    case JSTR: l = characters(j, v); break;
    case JLIST:
    case JTUPLE:
    case JVIEW: l = *v.l; break;
    case JITER:
        l = (struct jlist){.v = v.l->v + v.l->at, .n = v.l->n - v.l->at};
        v.l->at = v.l->n;
        break;
    case JDICT:
        l.n = v.d->n;
        l.v = jenv_get_n(j, l.n, sizeof *l.v);
        for (size_t i = 0; i < l.n; i++) l.v[i] = v.d->pair[i].key;
        break;
    default: jenv_fail(j, QN_EDATA, "'%s' object is not iterable", jval_type(v));
    }
    jenv_step(j, l.n);
    return l;
}

_Noreturn void jval_fail_missing(struct jenv *j, struct jval v)
{
    const struct jmissing *u = v.u;
    if (!u) jenv_fail(j, QN_EDATA, "an undefined value is used");
    struct jval s = jval_to_str(j, u->name);
    int n = s.s->n > 200 ? 200 : (int)s.s->n;
    switch (u->why) {
    case JMISS_NAME: jenv_fail(j, QN_EDATA, "'%.*s' is undefined", n, s.s->p);
    case JMISS_ATTR: jenv_fail(j, QN_EDATA, "'%s object' has no attribute '%.*s'", u->type, n, s.s->p);
    case JMISS_ITEM: jenv_fail(j, QN_EDATA, "%s object has no element %.*s", u->type, n, s.s->p);
    case JMISS_ARG: jenv_fail(j, QN_EDATA, "parameter '%.*s' was not provided", n, s.s->p);
    case JMISS_UNSAFE:
        jenv_fail(j, QN_EDATA, "access to attribute '%.*s' of '%s' object is unsafe", n, s.s->p, u->type);
    default: jenv_fail(j, QN_EDATA, "no %.*s item, the sequence was empty", n, s.s->p);
    }
}
