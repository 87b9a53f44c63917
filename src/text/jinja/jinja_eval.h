/* SPDX-License-Identifier: MIT
 *
 * jinja_eval.h: runs the tree. Also what filters, tests and methods use of the evaluator and of each other.
 *
 * A function that fails does not return (jinja_env.h).
 */
#ifndef QUERN_TEXT_JINJA_EVAL_H
#define QUERN_TEXT_JINJA_EVAL_H

#include "text/jinja/jinja_parse.h"

struct jtext;

struct jscope {
    struct jscope *parent; /* NULL: the outermost */
    struct jbinding {
        struct jval name, val;
    } * v; /* [n] */
    size_t n, cap;
};

struct jloop {
    struct jlist items;
    size_t i; /* the current item */
    int depth0;
    const struct jnode *node;
    struct jscope *scope;     /* around the loop */
    uint64_t born;            /* for jenv_escapes */
    struct jval last_changed; /* the last arguments of changed(); JABSENT: it was never called */
};

struct jmacro {
    const struct jnode *node;
    struct jscope *scope; /* where it was defined */
};

/* Runs a whole template. */
void jeval_run(struct jenv *j, const struct jnode *root, struct jtext *out);
struct jval jeval_call(struct jenv *j, struct jval callee, const struct jargs *args);

/* ---- built-in functions ---- */

/* Sorts the arguments into the order of the function's names, and calls it. `what` is "filter", "test", ... for
 * messages. */
struct jval jfunc_call(struct jenv *j, const struct jfunc *f, const char *what, struct jval self,
                       const struct jargs *args);
/* Return NULL when there is none of this name. */
const struct jfunc *jfilter_find(struct jval name);
const struct jfunc *jtest_find(struct jval name);
const struct jfunc *jmethod_find(enum jkind kind, struct jval name);
const struct jfunc *jglobal_find(struct jval name);
struct jval jfilter_apply(struct jenv *j, struct jval name, struct jval v, const struct jargs *args);
bool jtest_apply(struct jenv *j, struct jval name, struct jval v, const struct jargs *args);

/* Searches a table of n functions; NULL: there is none of this name. */
const struct jfunc *jfunc_find(const struct jfunc *table, size_t n, struct jval name);

/* The value of an argument, which must be of the type; `what` names the argument in the message. absent: the value of
 * an integer that was not given. */
int64_t jarg_int(struct jenv *j, struct jval v, int64_t absent, const char *what);
struct jval jarg_str(struct jenv *j, struct jval v, const char *what);

/* ---- operators (jinja_op.c) ---- */

struct jval jop_binary(struct jenv *j, enum jop op, struct jval a, struct jval b);
bool jop_compare(struct jenv *j, enum jop op, struct jval a, struct jval b);
struct jval jop_negate(struct jenv *j, struct jval v, bool minus);
struct jval jop_attr(struct jenv *j, struct jval v, struct jval name); /* v.name */
struct jval jop_item(struct jenv *j, struct jval v, struct jval key);  /* v[key] */
struct jval jop_slice(struct jenv *j, struct jval v, struct jval from, struct jval to, struct jval step);
struct jval jop_format(struct jenv *j, struct jval s, const struct jval *arg, size_t n,
                       struct jval dict); /* s % args */

#endif
