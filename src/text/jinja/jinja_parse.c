/* SPDX-License-Identifier: MIT
 *
 * jinja_parse.c: tokens to a tree, by recursive descent along Jinja2's grammar (jinja2/parser.py, 3.1).
 *
 * There is one function for each level of precedence, from `a if b else c` down to names. A statement is recognised by
 * its first name. Nesting is bounded, so that no template can exhaust the stack here or in the evaluator.
 *
 * Differences from Jinja2: statements that need other templates do not exist (extends, include, import, block), nor do
 * autoescape, `do`, debug and i18n.
 */
#include "text/jinja/jinja_parse.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja/jinja_str.h"

struct jparser {
    struct jenv *j;
    const struct jtoken *t; /* the current token; JT_END is never passed */
    struct jnode *macro;    /* the innermost macro, or NULL */
    int n_loops;            /* `for` around the current statement, within the macro */
};

static struct jnode *expression(struct jparser *p, bool with_cond);
static struct jnode *unary(struct jparser *p, bool with_filter);
static struct jnode *primary(struct jparser *p);
static struct jnode *postfix(struct jparser *p, struct jnode *n);
static struct jnode *tuple(struct jparser *p, bool with_cond);
static struct jnode *statements(struct jparser *p, const char *const *ends);

/* ---- tokens ---- */

static struct jnode *node(struct jparser *p, enum jnode_kind kind)
{
    struct jnode *n = jenv_get(p->j, sizeof *n);
    *n = (struct jnode){.kind = kind, .line = p->t->line};
    return n;
}

static void push(struct jparser *p, struct jnode *list, struct jnode *n)
{
    list->list = jenv_grow(p->j, list->list, list->n_list, &list->cap_list, sizeof *list->list);
    list->list[list->n_list++] = n;
}

static void next(struct jparser *p)
{
    if (p->t->kind != JT_END) p->t++;
    p->j->line = p->t->line;
}

static bool is_op(const struct jparser *p, const char *op) { return p->t->kind == JT_OP && strcmp(p->t->op, op) == 0; }

static bool is_name(const struct jparser *p, const char *name)
{
    return p->t->kind == JT_NAME && jstr_is(p->t->val, name);
}

static bool skip_op(struct jparser *p, const char *op)
{
    if (!is_op(p, op)) return false;
    next(p);
    return true;
}

static bool skip_name(struct jparser *p, const char *name)
{
    if (!is_name(p, name)) return false;
    next(p);
    return true;
}

static _Noreturn void unexpected(struct jparser *p, const char *wanted)
{
    char what[80];
    const struct jtoken *t = p->t;
    switch (t->kind) {
    case JT_NAME:
    case JT_STR: snprintf(what, sizeof what, "'%.*s'", t->val.s->n > 60 ? 60 : (int)t->val.s->n, t->val.s->p); break;
    case JT_OP: snprintf(what, sizeof what, "'%s'", t->op); break;
    case JT_INT:
    case JT_FLOAT: snprintf(what, sizeof what, "a number"); break;
    case JT_VAR_END:
    case JT_BLOCK_END: snprintf(what, sizeof what, "the end of the tag"); break;
    default: snprintf(what, sizeof what, "the end of the template"); break;
    }
    jenv_fail(p->j, QN_EDATA, "unexpected %s, expected %s", what, wanted);
}

static void expect_op(struct jparser *p, const char *op)
{
    char wanted[8];
    snprintf(wanted, sizeof wanted, "'%s'", op);
    if (!skip_op(p, op)) unexpected(p, wanted);
}

static struct jval expect_name(struct jparser *p, const char *wanted)
{
    if (p->t->kind != JT_NAME) unexpected(p, wanted);
    struct jval v = p->t->val;
    next(p);
    return v;
}

static void expect_block_end(struct jparser *p)
{
    if (p->t->kind != JT_BLOCK_END) unexpected(p, "the end of the tag");
    next(p);
}

/* ---- expressions ---- */

static struct jnode *binary(struct jparser *p, enum jnode_kind kind, enum jop op, struct jnode *a, struct jnode *b)
{
    struct jnode *n = node(p, kind);
    n->op = (uint8_t)op;
    n->line = a->line;
    n->a = a;
    n->b = b;
    return n;
}

static struct jnode *constant(struct jparser *p, struct jval v)
{
    struct jnode *n = node(p, JN_CONST);
    n->val = v;
    next(p);
    return n;
}

static struct jnode *pow_expr(struct jparser *p)
{
    struct jnode *n = unary(p, true);
    while (skip_op(p, "**")) n = binary(p, JN_BINARY, JO_POW, n, unary(p, true));
    return n;
}

static struct jnode *product(struct jparser *p)
{
    struct jnode *n = pow_expr(p);
    for (;;) {
        enum jop op;
        if (is_op(p, "*"))
            op = JO_MUL;
        else if (is_op(p, "/"))
            op = JO_DIV;
        else if (is_op(p, "//"))
            op = JO_FLOORDIV;
        else if (is_op(p, "%"))
            op = JO_MOD;
        else
            return n;
        next(p);
        n = binary(p, JN_BINARY, op, n, pow_expr(p));
    }
}

static struct jnode *concat(struct jparser *p)
{
    struct jnode *first = product(p);
    if (!is_op(p, "~")) return first;
    struct jnode *n = node(p, JN_CONCAT);
    push(p, n, first);
    while (skip_op(p, "~")) push(p, n, product(p));
    return n;
}

static struct jnode *sum(struct jparser *p)
{
    struct jnode *n = concat(p);
    while (is_op(p, "+") || is_op(p, "-")) {
        enum jop op = is_op(p, "+") ? JO_ADD : JO_SUB;
        next(p);
        n = binary(p, JN_BINARY, op, n, concat(p));
    }
    return n;
}

static bool comparison(struct jparser *p, enum jop *op)
{
    static const struct {
        const char *text;
        enum jop op;
    } ops[] = {{"==", JO_EQ}, {"!=", JO_NE}, {"<", JO_LT}, {"<=", JO_LE}, {">", JO_GT}, {">=", JO_GE}};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (skip_op(p, ops[i].text)) {
            *op = ops[i].op;
            return true;
        }
    if (skip_name(p, "in")) {
        *op = JO_IN;
        return true;
    }
    if (!is_name(p, "not") || p->t[1].kind != JT_NAME || !jstr_is(p->t[1].val, "in")) return false;
    next(p);
    next(p);
    *op = JO_NOT_IN;
    return true;
}

static struct jnode *compare(struct jparser *p)
{
    struct jnode *first = sum(p), *n = NULL;
    enum jop op;
    while (comparison(p, &op)) {
        if (!n) {
            n = node(p, JN_COMPARE);
            n->a = first;
        }
        struct jnode *o = node(p, JN_OPERAND);
        o->op = (uint8_t)op;
        o->a = sum(p);
        push(p, n, o);
    }
    return n ? n : first;
}

static struct jnode *not_expr(struct jparser *p)
{
    if (!is_name(p, "not")) return compare(p);
    struct jnode *n = node(p, JN_NOT);
    next(p);
    jenv_enter(p->j);
    n->a = not_expr(p);
    jenv_leave(p->j);
    return n;
}

static struct jnode *and_expr(struct jparser *p)
{
    struct jnode *n = not_expr(p);
    while (skip_name(p, "and")) n = binary(p, JN_AND, 0, n, not_expr(p));
    return n;
}

static struct jnode *or_expr(struct jparser *p)
{
    struct jnode *n = and_expr(p);
    while (skip_name(p, "or")) n = binary(p, JN_OR, 0, n, and_expr(p));
    return n;
}

static struct jnode *expression(struct jparser *p, bool with_cond)
{
    jenv_enter(p->j);
    struct jnode *n = or_expr(p);
    while (with_cond && skip_name(p, "if")) {
        struct jnode *cond = binary(p, JN_COND, 0, n, or_expr(p));
        if (skip_name(p, "else")) cond->c = expression(p, true);
        n = cond;
    }
    jenv_leave(p->j);
    return n;
}

static bool tuple_ends(const struct jparser *p)
{
    return p->t->kind == JT_VAR_END || p->t->kind == JT_BLOCK_END || is_op(p, ")") || is_name(p, "recursive");
}

/* a, b, ...: a tuple when there is a comma. */
static struct jnode *tuple(struct jparser *p, bool with_cond)
{
    struct jnode *n = node(p, JN_TUPLE);
    bool comma = false;
    while (!tuple_ends(p)) {
        push(p, n, expression(p, with_cond));
        if (!(comma = skip_op(p, ","))) break;
    }
    if (n->n_list == 0) unexpected(p, "an expression");
    return n->n_list == 1 && !comma ? n->list[0] : n;
}

static struct jnode *list_expr(struct jparser *p)
{
    struct jnode *n = node(p, JN_LIST);
    next(p);
    while (!is_op(p, "]")) {
        if (n->n_list) {
            expect_op(p, ",");
            if (is_op(p, "]")) break;
        }
        push(p, n, expression(p, true));
    }
    next(p);
    return n;
}

static struct jnode *dict_expr(struct jparser *p)
{
    struct jnode *n = node(p, JN_DICT);
    next(p);
    while (!is_op(p, "}")) {
        if (n->n_list) {
            expect_op(p, ",");
            if (is_op(p, "}")) break;
        }
        push(p, n, expression(p, true));
        expect_op(p, ":");
        push(p, n, expression(p, true));
    }
    next(p);
    return n;
}

static struct jnode *parenthesis(struct jparser *p)
{
    struct jnode *n;
    next(p);
    if (is_op(p, ")"))
        n = node(p, JN_TUPLE);
    else
        n = tuple(p, true);
    expect_op(p, ")");
    return n;
}

static struct jnode *name_expr(struct jparser *p)
{
    static const struct {
        const char *name;
        struct jval v;
    } constants[] = {
        {"true", {.kind = JBOOL, .b = true}},
        {"True", {.kind = JBOOL, .b = true}},
        {"false", {.kind = JBOOL, .b = false}},
        {"False", {.kind = JBOOL, .b = false}},
        {"none", {.kind = JNONE}},
        {"None", {.kind = JNONE}},
    };
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++)
        if (is_name(p, constants[i].name)) return constant(p, constants[i].v);
    struct jnode *n = node(p, JN_NAME);
    n->val = expect_name(p, "a name");
    if (p->macro) {
        p->macro->uses_varargs |= jstr_is(n->val, "varargs");
        p->macro->uses_kwargs |= jstr_is(n->val, "kwargs");
        p->macro->uses_caller |= jstr_is(n->val, "caller");
    }
    return n;
}

static struct jnode *primary(struct jparser *p)
{
    switch (p->t->kind) {
    case JT_NAME: return name_expr(p);
    case JT_INT:
    case JT_FLOAT: return constant(p, p->t->val);
    case JT_STR: {
        struct jnode *n = constant(p, p->t->val);
        for (; p->t->kind == JT_STR; next(p)) n->val = jstr_join(p->j, n->val, p->t->val);
        n->val.s->tail = NULL; /* from now on threads share it, so it must not grow */
        jstr_chars(p->j, n->val);
        return n;
    }
    case JT_OP:
        if (is_op(p, "(")) return parenthesis(p);
        if (is_op(p, "[")) return list_expr(p);
        if (is_op(p, "{")) return dict_expr(p);
        break;
    default: break;
    }
    unexpected(p, "an expression");
}

/* Reads arguments in parentheses into n->list. */
static void call_args(struct jparser *p, struct jnode *n)
{
    expect_op(p, "(");
    bool named = false, first = true;
    for (; !is_op(p, ")"); first = false) {
        if (!first) {
            expect_op(p, ",");
            if (is_op(p, ")")) break;
        }
        struct jnode *arg;
        if (is_op(p, "*") || is_op(p, "**")) {
            arg = node(p, is_op(p, "*") ? JN_STAR : JN_STAR2);
            named |= arg->kind == JN_STAR2;
            next(p);
            arg->a = expression(p, true);
        } else if (p->t->kind == JT_NAME && p->t[1].kind == JT_OP && strcmp(p->t[1].op, "=") == 0) {
            arg = node(p, JN_KWARG);
            arg->val = expect_name(p, "a name");
            next(p);
            arg->a = expression(p, true);
            named = true;
        } else {
            if (named) jenv_fail(p->j, QN_EDATA, "a positional argument after a named one");
            arg = expression(p, true);
        }
        push(p, n, arg);
    }
    next(p);
}

static struct jnode *subscript(struct jparser *p, struct jnode *object)
{
    struct jnode *n = node(p, JN_ITEM);
    n->a = object;
    next(p);
    if (!is_op(p, ":")) n->b = expression(p, true);
    if (is_op(p, ":")) {
        n->kind = JN_SLICE;
        next(p);
        if (!is_op(p, ":") && !is_op(p, "]")) n->c = expression(p, true);
        if (skip_op(p, ":") && !is_op(p, "]")) n->d = expression(p, true);
    } else if (is_op(p, ",")) {
        struct jnode *key = node(p, JN_TUPLE);
        push(p, key, n->b);
        while (skip_op(p, ",") && !is_op(p, "]")) push(p, key, expression(p, true));
        n->b = key;
    }
    expect_op(p, "]");
    return n;
}

static struct jnode *attribute(struct jparser *p, struct jnode *object)
{
    next(p);
    struct jnode *n = node(p, JN_ATTR);
    n->a = object;
    if (p->t->kind == JT_INT) {
        n->kind = JN_ITEM;
        n->b = constant(p, p->t->val);
    } else {
        n->val = expect_name(p, "a name or a number");
    }
    return n;
}

static struct jnode *call(struct jparser *p, struct jnode *callee)
{
    struct jnode *n = node(p, JN_CALL);
    n->a = callee;
    call_args(p, n);
    return n;
}

static struct jnode *postfix(struct jparser *p, struct jnode *n)
{
    for (;;) {
        if (is_op(p, "."))
            n = attribute(p, n);
        else if (is_op(p, "["))
            n = subscript(p, n);
        else if (is_op(p, "("))
            n = call(p, n);
        else
            return n;
    }
}

/* name or dotted.name */
static struct jval dotted_name(struct jparser *p, const char *wanted)
{
    struct jval v = expect_name(p, wanted);
    while (skip_op(p, ".")) {
        v = jstr_join(p->j, v, jval_cstr(p->j, "."));
        v = jstr_join(p->j, v, expect_name(p, wanted));
    }
    return v;
}

static struct jnode *filter(struct jparser *p, struct jnode *n)
{
    struct jnode *f = node(p, JN_FILTER);
    f->a = n;
    f->val = dotted_name(p, "the name of a filter");
    if (is_op(p, "(")) call_args(p, f);
    return f;
}

static bool begins_test_argument(const struct jparser *p)
{
    switch (p->t->kind) {
    case JT_NAME: return !is_name(p, "else") && !is_name(p, "or") && !is_name(p, "and");
    case JT_STR:
    case JT_INT:
    case JT_FLOAT: return true;
    default: return is_op(p, "[") || is_op(p, "{");
    }
}

static struct jnode *test(struct jparser *p, struct jnode *n)
{
    bool negated = skip_name(p, "not");
    struct jnode *t = node(p, JN_TEST);
    t->a = n;
    t->val = dotted_name(p, "the name of a test");
    if (is_op(p, "(")) {
        call_args(p, t);
    } else if (begins_test_argument(p)) {
        if (is_name(p, "is")) jenv_fail(p->j, QN_EDATA, "tests cannot be chained with 'is'");
        push(p, t, postfix(p, primary(p)));
    }
    if (!negated) return t;
    struct jnode *not = node(p, JN_NOT);
    not ->a = t;
    return not ;
}

static struct jnode *unary(struct jparser *p, bool with_filter)
{
    struct jnode *n;
    jenv_enter(p->j);
    if (is_op(p, "-") || is_op(p, "+")) {
        n = node(p, is_op(p, "-") ? JN_NEG : JN_POS);
        next(p);
        n->a = unary(p, false);
    } else {
        n = primary(p);
    }
    n = postfix(p, n);
    while (with_filter) {
        if (skip_op(p, "|"))
            n = filter(p, n);
        else if (skip_name(p, "is"))
            n = test(p, n);
        else if (is_op(p, "("))
            n = call(p, n);
        else
            break;
    }
    jenv_leave(p->j);
    return n;
}

/* ---- statements ---- */

static struct jnode *target_name(struct jparser *p)
{
    struct jnode *n = node(p, JN_NAME);
    if (p->t->kind == JT_OP && is_op(p, "(")) {
        next(p);
        n->kind = JN_TUPLE;
        while (!is_op(p, ")")) {
            jenv_enter(p->j);
            push(p, n, target_name(p));
            jenv_leave(p->j);
            if (!skip_op(p, ",")) break;
        }
        expect_op(p, ")");
        return n;
    }
    n->val = expect_name(p, "a name to assign to");
    static const char *const reserved[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++)
        if (jstr_is(n->val, reserved[i])) jenv_fail(p->j, QN_EDATA, "cannot assign to '%s'", reserved[i]);
    return n;
}

/* name, (a, b) or a, b; with_space: also space.attribute. */
static struct jnode *target(struct jparser *p, bool with_space)
{
    struct jnode *first = target_name(p);
    if (with_space && first->kind == JN_NAME && is_op(p, ".")) {
        next(p);
        struct jnode *n = node(p, JN_SPACE_SET);
        n->a = first;
        n->val = expect_name(p, "an attribute");
        return n;
    }
    if (!is_op(p, ",")) return first;
    struct jnode *n = node(p, JN_TUPLE);
    push(p, n, first);
    while (skip_op(p, ",") && p->t->kind == JT_NAME && !is_name(p, "in")) push(p, n, target_name(p));
    return n;
}

static struct jnode *body(struct jparser *p, const char *const *ends)
{
    expect_block_end(p);
    return statements(p, ends);
}

/* A body that ends with the tag `end`, which is consumed. */
static struct jnode *body_until(struct jparser *p, const char *end)
{
    struct jnode *n = body(p, (const char *const[]){end, NULL});
    next(p);
    return n;
}

static struct jnode *for_stmt(struct jparser *p)
{
    struct jnode *n = node(p, JN_FOR);
    n->a = target(p, false);
    if (!skip_name(p, "in")) unexpected(p, "'in'");
    n->b = tuple(p, false);
    if (skip_name(p, "if")) n->c = expression(p, true);
    n->flag = skip_name(p, "recursive");
    p->n_loops++;
    n->body = body(p, (const char *const[]){"endfor", "else", NULL});
    p->n_loops--;
    if (skip_name(p, "else"))
        n->other = body_until(p, "endfor");
    else
        next(p);
    return n;
}

static struct jnode *if_stmt(struct jparser *p)
{
    struct jnode *first = NULL, **at = &first;
    do { /* if and each elif */
        struct jnode *n = node(p, JN_IF);
        n->a = tuple(p, false);
        n->body = body(p, (const char *const[]){"elif", "else", "endif", NULL});
        *at = n;
        at = &n->other;
    } while (skip_name(p, "elif"));
    if (skip_name(p, "else"))
        *at = body_until(p, "endif");
    else
        next(p);
    return first;
}

/* a | b | ...: the filters of a block's text, from the name of the first one on */
static struct jnode *filters(struct jparser *p)
{
    struct jnode *n = filter(p, NULL);
    while (skip_op(p, "|")) n = filter(p, n);
    return n;
}

static struct jnode *set_stmt(struct jparser *p)
{
    struct jnode *n = node(p, JN_SET);
    n->a = target(p, true);
    if (skip_op(p, "=")) {
        n->b = tuple(p, true);
        return n;
    }
    n->kind = JN_SET_BLOCK;
    if (skip_op(p, "|")) n->b = filters(p);
    n->body = body_until(p, "endset");
    return n;
}

/* (a, b=1): the parameters of a macro or a caller */
static void signature(struct jparser *p, struct jnode *m)
{
    size_t cap = 0;
    expect_op(p, "(");
    while (!is_op(p, ")")) {
        if (m->n_list) expect_op(p, ",");
        m->defaults = jenv_grow(p->j, m->defaults, m->n_list, &cap, sizeof(struct jnode *));
        struct jnode *name = target_name(p);
        if (name->kind != JN_NAME) jenv_fail(p->j, QN_EDATA, "a parameter must be a name");
        m->defaults[m->n_list] = skip_op(p, "=") ? expression(p, true) : NULL;
        if (!m->defaults[m->n_list] && m->n_list && m->defaults[m->n_list - 1])
            jenv_fail(p->j, QN_EDATA, "a parameter without a default after one with");
        push(p, m, name);
    }
    next(p);
}

static void macro_body(struct jparser *p, struct jnode *m, const char *end)
{
    struct jnode *outer = p->macro;
    int n_loops = p->n_loops;
    p->macro = m;
    p->n_loops = 0;
    m->body = body_until(p, end);
    p->macro = outer;
    p->n_loops = n_loops;
}

static struct jnode *macro_stmt(struct jparser *p)
{
    struct jnode *m = node(p, JN_MACRO);
    m->val = expect_name(p, "the name of the macro");
    signature(p, m);
    macro_body(p, m, "endmacro");
    return m;
}

static struct jnode *call_stmt(struct jparser *p)
{
    struct jnode *n = node(p, JN_CALL_BLOCK), *m = node(p, JN_MACRO);
    m->val = jval_cstr(p->j, "caller");
    if (is_op(p, "(")) signature(p, m);
    n->a = expression(p, true);
    if (n->a->kind != JN_CALL) jenv_fail(p->j, QN_EDATA, "'call' needs a call");
    n->b = m;
    macro_body(p, m, "endcall");
    return n;
}

static struct jnode *filter_stmt(struct jparser *p)
{
    struct jnode *n = node(p, JN_FILTER_BLOCK);
    n->a = filters(p);
    n->body = body_until(p, "endfilter");
    return n;
}

static struct jnode *with_stmt(struct jparser *p)
{
    struct jnode *n = node(p, JN_WITH);
    while (p->t->kind != JT_BLOCK_END) {
        if (n->n_list) expect_op(p, ",");
        push(p, n, target_name(p));
        expect_op(p, "=");
        push(p, n, expression(p, true));
    }
    n->body = body_until(p, "endwith");
    return n;
}

static struct jnode *generation_stmt(struct jparser *p)
{
    struct jnode *n = node(p, JN_SCOPE);
    n->body = body_until(p, "endgeneration");
    return n;
}

static struct jnode *print_expr(struct jparser *p, struct jnode *(*parse)(struct jparser *p, bool with_cond))
{
    struct jnode *n = node(p, JN_PRINT);
    n->a = parse(p, true);
    return n;
}

/* `print a, b` prints one value after the other, not a tuple. */
static struct jnode *print_stmt(struct jparser *p)
{
    struct jnode *n = node(p, JN_BLOCK);
    do push(p, n, print_expr(p, expression));
    while (skip_op(p, ","));
    return n;
}

static struct jnode *jump(struct jparser *p, enum jnode_kind kind, const char *name)
{
    if (!p->n_loops) jenv_fail(p->j, QN_EDATA, "'%s' outside of a loop", name);
    return node(p, kind);
}

static struct jnode *break_stmt(struct jparser *p) { return jump(p, JN_BREAK, "break"); }
static struct jnode *continue_stmt(struct jparser *p) { return jump(p, JN_CONTINUE, "continue"); }

static _Noreturn struct jnode *unsupported_stmt(struct jparser *p)
{
    const struct jval name = p->t[-1].val;
    jenv_fail(p->j, QN_EUNSUP, "statement '%.*s' is not supported", (int)name.s->n, name.s->p);
}

/* One statement, from its name to the end of its last tag. */
static struct jnode *statement(struct jparser *p)
{
    static const struct {
        const char *name;
        struct jnode *(*parse)(struct jparser *p);
    } known[] = {
        {"if", if_stmt},
        {"for", for_stmt},
        {"set", set_stmt},
        {"macro", macro_stmt},
        {"call", call_stmt},
        {"filter", filter_stmt},
        {"with", with_stmt},
        {"generation", generation_stmt},
        {"print", print_stmt},
        {"break", break_stmt},
        {"continue", continue_stmt},
        {"block", unsupported_stmt},
        {"extends", unsupported_stmt},
        {"include", unsupported_stmt},
        {"import", unsupported_stmt},
        {"from", unsupported_stmt},
        {"autoescape", unsupported_stmt},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (!skip_name(p, known[i].name)) continue;
        jenv_enter(p->j);
        struct jnode *n = known[i].parse(p);
        jenv_leave(p->j);
        expect_block_end(p);
        return n;
    }
    unexpected(p, "a statement");
}

/* Text, prints and statements up to a tag that one of `ends` names; NULL: up to the end of the template. The name of
 * that tag is then the current token, so that the caller can tell "else" from "endif". */
static struct jnode *statements(struct jparser *p, const char *const *ends)
{
    struct jnode *block = node(p, JN_BLOCK), *n;
    for (;;) {
        switch (p->t->kind) {
        case JT_END:
            if (ends) unexpected(p, ends[0]);
            return block;
        case JT_DATA:
            n = node(p, JN_TEXT);
            n->val = p->t->val;
            next(p);
            push(p, block, n);
            break;
        case JT_VAR_BEGIN:
            next(p);
            n = print_expr(p, tuple);
            push(p, block, n);
            if (p->t->kind != JT_VAR_END) unexpected(p, "the end of the tag");
            next(p);
            break;
        default:
            assert(p->t->kind == JT_BLOCK_BEGIN);
            next(p);
            for (size_t i = 0; ends && ends[i]; i++)
                if (is_name(p, ends[i])) return block;
            push(p, block, statement(p));
        }
    }
}

struct jnode *jinja_parse(struct jenv *j, const char *src, size_t n)
{
    struct jparser p = {.j = j, .t = jinja_lex(j, src, n).v};
    j->line = p.t->line;
    return statements(&p, NULL);
}
