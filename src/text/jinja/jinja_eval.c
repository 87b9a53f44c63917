/* SPDX-License-Identifier: MIT
 *
 * jinja_eval.c: walks the tree: names and scopes, calls, expressions, statements.
 *
 * A scope is a list of names with a parent. `for` makes a scope for each item; macros, and blocks that capture text,
 * make one for each use; `if` makes none. A scope lives on after it was left, because a macro keeps the scope that it
 * was defined in. So names are found where the template's text says, and what is assigned in a loop is gone after it,
 * as in Jinja2.
 *
 * Unlike Jinja2, a loop takes all its items, and asks its condition for all of them, before the first turn.
 */
#include "text/jinja/jinja_eval.h"

#include <assert.h>
#include <string.h>

#include "text/jinja/jinja_str.h"

enum flow { GO_ON, BREAK, CONTINUE };

static struct jval eval(struct jenv *j, struct jscope *s, const struct jnode *n);
static enum flow exec(struct jenv *j, struct jscope *s, const struct jnode *n, struct jtext *out);

/* ---- scopes ---- */

static struct jscope *inner(struct jenv *j, struct jscope *parent)
{
    struct jscope *s = jenv_get(j, sizeof *s);
    *s = (struct jscope){.parent = parent};
    return s;
}

static bool same_name(struct jenv *j, struct jval a, struct jval b)
{
    jenv_looks(j, 1);
    if (a.s->n != b.s->n) return false;
    jenv_bytes(j, a.s->n);
    return memcmp(a.s->p, b.s->p, a.s->n) == 0;
}

static void assign(struct jenv *j, struct jscope *s, struct jval name, struct jval val)
{
    for (size_t i = 0; i < s->n; i++)
        if (same_name(j, s->v[i].name, name)) {
            s->v[i].val = val;
            return;
        }
    s->v = jenv_grow(j, s->v, s->n, &s->cap, sizeof *s->v);
    s->v[s->n++] = (struct jbinding){.name = name, .val = val};
}

static struct jval lookup(struct jenv *j, const struct jscope *s, struct jval name)
{
    for (; s; s = s->parent)
        for (size_t i = 0; i < s->n; i++)
            if (same_name(j, s->v[i].name, name)) return s->v[i].val;
    const struct jval *v = jdict_find(j, j->vars, name);
    if (v) return *v;
    const struct jfunc *f = jglobal_find(name);
    if (f) return (struct jval){.kind = JFUNC, .fn = f};
    return jval_missing(j, JMISS_NAME, NULL, name);
}

/* A namespace may be older than the turn of the loop in which it is set, so it must say that it points at something
 * new. A number in the place of an old value points at nothing. */
static void set_in_space(struct jenv *j, struct jdict *d, struct jval name, struct jval val)
{
    size_t n = d->n;
    jdict_set(j, d, name, val);
    if (d->n != n || !(jval_is_number(val) || val.kind == JNONE)) jenv_escapes(j, d->born);
}

static void assign_target(struct jenv *j, struct jscope *s, const struct jnode *t, struct jval v)
{
    if (t->kind == JN_NAME) {
        assign(j, s, t->val, v);
    } else if (t->kind == JN_SPACE_SET) {
        struct jval space = lookup(j, s, t->a->val);
        if (space.kind != JSPACE) jenv_fail(j, QN_EDATA, "cannot assign to an attribute of what is no namespace");
        set_in_space(j, space.d, t->val, v);
    } else {
        assert(t->kind == JN_TUPLE);
        if (v.kind == JUNDEF) jval_fail_missing(j, v);
        struct jlist l = jval_items(j, v);
        if (l.n != t->n_list) jenv_fail(j, QN_EDATA, "cannot unpack %zu values into %zu names", l.n, t->n_list);
        for (size_t i = 0; i < l.n; i++) assign_target(j, s, t->list[i], l.v[i]);
    }
}

/* ---- calls ---- */

static void add_kwarg(struct jenv *j, struct jargs *a, size_t *cap, struct jval name, struct jval val)
{
    for (size_t i = 0; i < a->n_kw; i++)
        if (same_name(j, a->kw[i].name, name))
            jenv_fail(j, QN_EDATA, "argument '%.*s' is given twice", (int)name.s->n, name.s->p);
    a->kw = jenv_grow(j, a->kw, a->n_kw, cap, sizeof *a->kw);
    a->kw[a->n_kw++] = (struct jkwarg){.name = name, .val = val};
}

static struct jargs eval_args(struct jenv *j, struct jscope *s, const struct jnode *call)
{
    struct jargs a = {0};
    size_t cap_pos = 0, cap_kw = 0;
    for (size_t i = 0; i < call->n_list; i++) {
        const struct jnode *n = call->list[i];
        bool named = n->kind == JN_KWARG || n->kind == JN_STAR || n->kind == JN_STAR2;
        struct jval v = eval(j, s, named ? n->a : n);
        struct jlist l = {.v = &v, .n = 1};
        if (n->kind == JN_KWARG) {
            add_kwarg(j, &a, &cap_kw, n->val, v);
            continue;
        }
        if (n->kind == JN_STAR2) {
            if (v.kind != JDICT) jenv_fail(j, QN_EDATA, "the argument after ** must be a dict, not %s", jval_type(v));
            for (size_t k = 0; k < v.d->n; k++) {
                if (v.d->pair[k].key.kind != JSTR) jenv_fail(j, QN_EDATA, "keywords must be strings");
                add_kwarg(j, &a, &cap_kw, v.d->pair[k].key, v.d->pair[k].val);
            }
            continue;
        }
        if (n->kind == JN_STAR) l = jval_items(j, v);
        for (size_t k = 0; k < l.n; k++) {
            a.pos = jenv_grow(j, a.pos, a.n_pos, &cap_pos, sizeof *a.pos);
            a.pos[a.n_pos++] = l.v[k];
        }
    }
    return a;
}

static struct jval *kwarg(struct jenv *j, const struct jargs *a, struct jval name)
{
    for (size_t i = 0; i < a->n_kw; i++)
        if (same_name(j, a->kw[i].name, name)) return &a->kw[i].val;
    return NULL;
}

static bool is_parameter(struct jenv *j, const struct jnode *m, struct jval name)
{
    for (size_t i = 0; i < m->n_list; i++)
        if (same_name(j, m->list[i]->val, name)) return true;
    return false;
}

/* Assigns varargs, kwargs and caller for a macro that uses them. In any other macro such arguments are an error. */
static void assign_rest(struct jenv *j, struct jscope *s, const struct jnode *m, const struct jargs *a)
{
    size_t n = m->n_list < a->n_pos ? m->n_list : a->n_pos;
    if (m->uses_varargs)
        assign(j, s, jval_cstr(j, "varargs"), jval_list(j, JTUPLE, a->n_pos ? a->pos + n : NULL, a->n_pos - n));
    else if (a->n_pos > n)
        jenv_fail(j, QN_EDATA, "macro '%.*s' takes not more than %zu arguments", (int)m->val.s->n, m->val.s->p,
                  m->n_list);
    struct jval rest = jval_dict(j, JDICT), caller = jval_cstr(j, "caller");
    if (m->uses_caller) assign(j, s, caller, jval_missing(j, JMISS_NAME, NULL, caller));
    for (size_t i = 0; i < a->n_kw; i++) {
        struct jval name = a->kw[i].name;
        if (is_parameter(j, m, name)) continue;
        if (m->uses_caller && same_name(j, name, caller))
            assign(j, s, caller, a->kw[i].val);
        else if (m->uses_kwargs)
            jdict_set(j, rest.d, name, a->kw[i].val);
        else
            jenv_fail(j, QN_EDATA, "macro '%.*s' takes no argument '%.*s'", (int)m->val.s->n, m->val.s->p,
                      (int)name.s->n, name.s->p);
    }
    if (m->uses_kwargs) assign(j, s, jval_cstr(j, "kwargs"), rest);
}

static struct jval call_macro(struct jenv *j, const struct jmacro *macro, const struct jargs *a)
{
    const struct jnode *m = macro->node;
    struct jscope *s = inner(j, macro->scope);
    struct jtext out = {.j = j, .born = j->n_marks};
    for (size_t i = 0; i < m->n_list; i++) {
        struct jval name = m->list[i]->val, *named = kwarg(j, a, name), v;
        if (named && i < a->n_pos)
            jenv_fail(j, QN_EDATA, "macro '%.*s' got two values for argument '%.*s'", (int)m->val.s->n, m->val.s->p,
                      (int)name.s->n, name.s->p);
        if (i < a->n_pos)
            v = a->pos[i];
        else if (named)
            v = *named;
        else if (m->defaults[i])
            v = eval(j, s, m->defaults[i]);
        else
            v = jval_missing(j, JMISS_ARG, NULL, name);
        assign(j, s, name, v);
    }
    assign_rest(j, s, m, a);
    exec(j, s, m->body, &out);
    return jtext_done(&out, 0);
}

static void run_loop(struct jenv *j, struct jscope *s, const struct jnode *n, struct jval items, int depth0,
                     struct jtext *out);

static struct jval call_loop(struct jenv *j, const struct jloop *loop, const struct jargs *a)
{
    struct jtext out = {.j = j, .born = j->n_marks};
    if (!loop->node->flag) jenv_fail(j, QN_EDATA, "the loop is not marked 'recursive'");
    if (a->n_pos != 1 || a->n_kw) jenv_fail(j, QN_EDATA, "loop() takes one argument, not %zu", a->n_pos + a->n_kw);
    run_loop(j, loop->scope, loop->node, a->pos[0], loop->depth0 + 1, &out);
    return jtext_done(&out, 0);
}

struct jval jeval_call(struct jenv *j, struct jval callee, const struct jargs *a)
{
    struct jval v;
    jenv_enter(j);
    switch (callee.kind) {
    case JMACRO: v = call_macro(j, callee.macro, a); break;
    case JFUNC: v = jfunc_call(j, callee.fn, "function", jval_none(), a); break;
    case JMETHOD: v = jfunc_call(j, callee.m->fn, "method", callee.m->self, a); break;
    case JLOOP: v = call_loop(j, callee.loop, a); break;
    case JUNDEF: jval_fail_missing(j, callee);
    default: jenv_fail(j, QN_EDATA, "'%s' object is not callable", jval_type(callee));
    }
    jenv_leave(j);
    return v;
}

/* ---- expressions ---- */

static struct jval eval_list(struct jenv *j, struct jscope *s, const struct jnode *n, enum jkind kind)
{
    struct jval *v = jenv_get_n(j, n->n_list, sizeof *v);
    for (size_t i = 0; i < n->n_list; i++) v[i] = eval(j, s, n->list[i]);
    return jval_list(j, kind, v, n->n_list);
}

static struct jval eval_dict(struct jenv *j, struct jscope *s, const struct jnode *n)
{
    struct jval d = jval_dict(j, JDICT);
    for (size_t i = 0; i < n->n_list; i += 2) {
        struct jval key = eval(j, s, n->list[i]);
        jdict_set(j, d.d, key, eval(j, s, n->list[i + 1]));
    }
    return d;
}

static struct jval eval_compare(struct jenv *j, struct jscope *s, const struct jnode *n)
{
    struct jval a = eval(j, s, n->a);
    for (size_t i = 0; i < n->n_list; i++) {
        struct jval b = eval(j, s, n->list[i]->a);
        if (!jop_compare(j, n->list[i]->op, a, b)) return jval_bool(false);
        a = b;
    }
    return jval_bool(true);
}

static struct jval eval_concat(struct jenv *j, struct jscope *s, const struct jnode *n)
{
    struct jval v = jval_to_str(j, eval(j, s, n->list[0]));
    for (size_t i = 1; i < n->n_list; i++) v = jstr_join(j, v, jval_to_str(j, eval(j, s, n->list[i])));
    v.flags &= (uint8_t)~JMARKUP;
    return v;
}

static struct jval eval_cond(struct jenv *j, struct jscope *s, const struct jnode *n)
{
    if (jval_true(eval(j, s, n->b))) return eval(j, s, n->a);
    return n->c ? eval(j, s, n->c) : (struct jval){.kind = JUNDEF};
}

static struct jval eval_slice(struct jenv *j, struct jscope *s, const struct jnode *n)
{
    struct jval v = eval(j, s, n->a), part[3];
    const struct jnode *at[3] = {n->b, n->c, n->d};
    for (int i = 0; i < 3; i++) part[i] = at[i] ? eval(j, s, at[i]) : jval_none();
    return jop_slice(j, v, part[0], part[1], part[2]);
}

static struct jval eval_call(struct jenv *j, struct jscope *s, const struct jnode *n)
{
    struct jval callee = eval(j, s, n->a);
    struct jargs a = eval_args(j, s, n);
    j->line = n->line;
    return jeval_call(j, callee, &a);
}

static struct jval eval_filter(struct jenv *j, struct jscope *s, const struct jnode *n, struct jval text)
{
    jenv_enter(j);
    struct jval v = text;
    if (n->a) v = n->a->kind == JN_FILTER ? eval_filter(j, s, n->a, text) : eval(j, s, n->a);
    struct jargs a = eval_args(j, s, n);
    j->line = n->line;
    v = jfilter_apply(j, n->val, v, &a);
    jenv_leave(j);
    return v;
}

static struct jval eval_test(struct jenv *j, struct jscope *s, const struct jnode *n)
{
    struct jval v = eval(j, s, n->a);
    struct jargs a = eval_args(j, s, n);
    j->line = n->line;
    return jval_bool(jtest_apply(j, n->val, v, &a));
}

static struct jval eval_two(struct jenv *j, struct jscope *s, const struct jnode *n)
{
    struct jval a = eval(j, s, n->a);
    if (n->kind == JN_AND) return jval_true(a) ? eval(j, s, n->b) : a;
    if (n->kind == JN_OR) return jval_true(a) ? a : eval(j, s, n->b);
    struct jval b = eval(j, s, n->b);
    j->line = n->line;
    return n->kind == JN_ITEM ? jop_item(j, a, b) : jop_binary(j, n->op, a, b);
}

static struct jval eval(struct jenv *j, struct jscope *s, const struct jnode *n)
{
    struct jval v;
    jenv_step(j, 1);
    jenv_enter(j);
    j->line = n->line;
    switch (n->kind) {
    case JN_CONST: v = n->val; break;
    case JN_NAME: v = lookup(j, s, n->val); break;
    case JN_LIST: v = eval_list(j, s, n, JLIST); break;
    case JN_TUPLE: v = eval_list(j, s, n, JTUPLE); break;
    case JN_DICT: v = eval_dict(j, s, n); break;
    case JN_COND: v = eval_cond(j, s, n); break;
    case JN_AND:
    case JN_OR:
    case JN_BINARY:
    case JN_ITEM: v = eval_two(j, s, n); break;
    case JN_NOT: v = jval_bool(!jval_true(eval(j, s, n->a))); break;
    case JN_COMPARE: v = eval_compare(j, s, n); break;
    case JN_NEG:
    case JN_POS: v = jop_negate(j, eval(j, s, n->a), n->kind == JN_NEG); break;
    case JN_CONCAT: v = eval_concat(j, s, n); break;
    case JN_ATTR: v = jop_attr(j, eval(j, s, n->a), n->val); break;
    case JN_SLICE: v = eval_slice(j, s, n); break;
    case JN_CALL: v = eval_call(j, s, n); break;
    case JN_FILTER: v = eval_filter(j, s, n, jval_none()); break;
    case JN_TEST: v = eval_test(j, s, n); break;
    default: assert(!"an expression"); v = jval_none();
    }
    jenv_leave(j);
    return v;
}

/* ---- statements ---- */

static struct jlist matching(struct jenv *j, struct jscope *s, const struct jnode *n, struct jlist all)
{
    struct jlist l = {.v = jenv_get_n(j, all.n, sizeof *l.v)};
    for (size_t i = 0; i < all.n; i++) {
        struct jscope *turn = inner(j, s);
        assign_target(j, turn, n->a, all.v[i]);
        if (jval_true(eval(j, turn, n->c))) l.v[l.n++] = all.v[i];
    }
    return l;
}

static void run_loop(struct jenv *j, struct jscope *s, const struct jnode *n, struct jval items, int depth0,
                     struct jtext *out)
{
    struct jloop *loop = jenv_get(j, sizeof *loop);
    *loop = (struct jloop){.depth0 = depth0, .node = n, .scope = s, .born = j->n_marks, .last_changed.kind = JABSENT};
    loop->items = jval_items(j, items);
    if (n->c) loop->items = matching(j, s, n, loop->items);
    struct jval name = jval_cstr(j, "loop");
    enum flow flow = GO_ON;
    for (; loop->i < loop->items.n && flow != BREAK; loop->i++) {
        struct jmark before = jenv_mark(j);
        const char *p = out->p;
        const uint8_t *mark = out->mark;
        struct jscope *turn = inner(j, s);
        assign(j, turn, name, (struct jval){.kind = JLOOP, .loop = loop});
        assign_target(j, turn, n->a, loop->items.v[loop->i]);
        flow = exec(j, turn, n->body, out);
        if (out->p != p || out->mark != mark) jenv_escapes(j, out->born);
        jenv_release(j, &before);
    }
    if (loop->items.n == 0 && n->other) exec(j, inner(j, s), n->other, out);
}

/* The text that a block writes. *flow: whether the block left a loop around it, or went on to its next turn. */
static struct jval capture(struct jenv *j, struct jscope *s, const struct jnode *n, enum flow *flow)
{
    struct jtext t = {.j = j, .born = j->n_marks};
    *flow = exec(j, inner(j, s), n->body, &t);
    return jtext_done(&t, 0);
}

static enum flow exec_set_block(struct jenv *j, struct jscope *s, const struct jnode *n)
{
    enum flow flow;
    struct jval v = capture(j, s, n, &flow);
    if (flow != GO_ON) return flow;
    assign_target(j, s, n->a, n->b ? eval_filter(j, s, n->b, v) : v);
    return GO_ON;
}

static enum flow exec_filter_block(struct jenv *j, struct jscope *s, const struct jnode *n, struct jtext *out)
{
    enum flow flow;
    struct jval v = capture(j, s, n, &flow);
    if (flow == GO_ON) jtext_value(out, eval_filter(j, s, n->a, v));
    return flow;
}

static struct jval make_macro(struct jenv *j, struct jscope *s, const struct jnode *n)
{
    struct jmacro *m = jenv_get(j, sizeof *m);
    *m = (struct jmacro){.node = n, .scope = s};
    return (struct jval){.kind = JMACRO, .macro = m};
}

static void exec_call_block(struct jenv *j, struct jscope *s, const struct jnode *n, struct jtext *out)
{
    struct jval callee = eval(j, s, n->a->a);
    struct jargs a = eval_args(j, s, n->a);
    size_t cap = a.n_kw;
    add_kwarg(j, &a, &cap, jval_cstr(j, "caller"), make_macro(j, s, n->b));
    j->line = n->line;
    jtext_value(out, jeval_call(j, callee, &a));
}

static enum flow exec_with(struct jenv *j, struct jscope *s, const struct jnode *n, struct jtext *out)
{
    struct jscope *in = inner(j, s);
    for (size_t i = 0; i < n->n_list; i += 2) assign_target(j, in, n->list[i], eval(j, s, n->list[i + 1]));
    return exec(j, in, n->body, out);
}

static enum flow exec_block(struct jenv *j, struct jscope *s, const struct jnode *n, struct jtext *out)
{
    enum flow flow = GO_ON;
    for (size_t i = 0; i < n->n_list && flow == GO_ON; i++) flow = exec(j, s, n->list[i], out);
    return flow;
}

static enum flow exec_if(struct jenv *j, struct jscope *s, const struct jnode *n, struct jtext *out)
{
    for (; n && n->kind == JN_IF; n = n->other) {
        jenv_step(j, 1);
        if (jval_true(eval(j, s, n->a))) return exec(j, s, n->body, out);
    }
    return n ? exec(j, s, n, out) : GO_ON;
}

static enum flow exec(struct jenv *j, struct jscope *s, const struct jnode *n, struct jtext *out)
{
    enum flow flow = GO_ON;
    jenv_step(j, 1);
    jenv_enter(j);
    j->line = n->line;
    switch (n->kind) {
    case JN_BLOCK: flow = exec_block(j, s, n, out); break;
    case JN_TEXT: jtext_str(out, n->val); break;
    case JN_PRINT: jtext_value(out, eval(j, s, n->a)); break;
    case JN_FOR: run_loop(j, s, n, eval(j, s, n->b), 0, out); break;
    case JN_IF: flow = exec_if(j, s, n, out); break;
    case JN_SET: assign_target(j, s, n->a, eval(j, s, n->b)); break;
    case JN_SET_BLOCK: flow = exec_set_block(j, s, n); break;
    case JN_MACRO: assign(j, s, n->val, make_macro(j, s, n)); break;
    case JN_CALL_BLOCK: exec_call_block(j, s, n, out); break;
    case JN_FILTER_BLOCK: flow = exec_filter_block(j, s, n, out); break;
    case JN_WITH: flow = exec_with(j, s, n, out); break;
    case JN_SCOPE: flow = exec(j, inner(j, s), n->body, out); break;
    case JN_BREAK: flow = BREAK; break;
    case JN_CONTINUE: flow = CONTINUE; break;
    default: assert(!"a statement");
    }
    jenv_leave(j);
    return flow;
}

void jeval_run(struct jenv *j, const struct jnode *root, struct jtext *out) { exec(j, inner(j, NULL), root, out); }
