/* SPDX-License-Identifier: MIT
 *
 * jinja_test.c: the tests, which stand after `is`.
 *
 * Difference from Jinja2: the test `escaped` does not exist.
 */
#include "text/jinja/jinja_eval.h"

#include <string.h>
#include <utf8proc.h>

#include "text/jinja/jinja_str.h"

#define TEST(name) JFUNC(name, v)

TEST(t_defined) { return jval_bool(v.kind != JUNDEF); }
TEST(t_undefined) { return jval_bool(v.kind == JUNDEF); }
TEST(t_none) { return jval_bool(v.kind == JNONE); }
TEST(t_boolean) { return jval_bool(v.kind == JBOOL); }
TEST(t_true) { return jval_bool(v.kind == JBOOL && v.b); }
TEST(t_false) { return jval_bool(v.kind == JBOOL && !v.b); }
TEST(t_integer) { return jval_bool(v.kind == JINT); }
TEST(t_float) { return jval_bool(v.kind == JFLOAT); }
TEST(t_number) { return jval_bool(jval_is_number(v)); }
TEST(t_string) { return jval_bool(v.kind == JSTR); }
TEST(t_mapping) { return jval_bool(v.kind == JDICT); }
TEST(t_iterable) { return jval_bool(jval_iterable(v) || v.kind == JLOOP); }
TEST(t_callable) { return jval_bool(v.kind >= JLOOP && v.kind <= JMETHOD); }
TEST(t_filter) { return jval_bool(v.kind == JSTR && jfilter_find(v)); }
TEST(t_test) { return jval_bool(v.kind == JSTR && jtest_find(v)); }

TEST(t_sequence)
{
    return jval_bool(v.kind == JSTR || v.kind == JLIST || v.kind == JTUPLE || v.kind == JDICT || v.kind == JUNDEF);
}

TEST(t_sameas)
{
    if (v.kind != arg[0].kind) return jval_bool(false);
    if (v.kind == JNONE || v.kind == JUNDEF) return jval_bool(true);
    if (jval_is_number(v)) return jval_bool(jval_equal(j, v, arg[0]));
    return jval_bool(v.l == arg[0].l);
}

static struct jval leaves(struct jenv *j, struct jval v, struct jval by, int64_t rest)
{
    return jval_bool(jval_equal(j, jop_binary(j, JO_MOD, v, by), jval_int(rest)));
}

TEST(t_odd) { return leaves(j, v, jval_int(2), 1); }
TEST(t_even) { return leaves(j, v, jval_int(2), 0); }
TEST(t_divisibleby) { return leaves(j, v, arg[0], 0); }

/* As str.islower() and str.isupper(): at least one letter has this case, and none has the other. */
static bool has_case(struct jenv *j, struct jval s, bool upper)
{
    bool some = false;
    for (size_t at = 0; at < s.s->n;) {
        uint32_t cp;
        at += jchar_at(s, at, &cp);
        jenv_looks(j, 1);
        utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
        if (c == UTF8PROC_CATEGORY_LT || c == (upper ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU)) return false;
        some |= c == (upper ? UTF8PROC_CATEGORY_LU : UTF8PROC_CATEGORY_LL);
    }
    return some;
}

TEST(t_lower) { return jval_bool(has_case(j, jval_to_str(j, v), false)); }
TEST(t_upper) { return jval_bool(has_case(j, jval_to_str(j, v), true)); }

TEST(t_eq) { return jval_bool(jop_compare(j, JO_EQ, v, arg[0])); }
TEST(t_ne) { return jval_bool(jop_compare(j, JO_NE, v, arg[0])); }
TEST(t_lt) { return jval_bool(jop_compare(j, JO_LT, v, arg[0])); }
TEST(t_le) { return jval_bool(jop_compare(j, JO_LE, v, arg[0])); }
TEST(t_gt) { return jval_bool(jop_compare(j, JO_GT, v, arg[0])); }
TEST(t_ge) { return jval_bool(jop_compare(j, JO_GE, v, arg[0])); }
TEST(t_in) { return jval_bool(jop_compare(j, JO_IN, v, arg[0])); }

const struct jfunc *jtest_find(struct jval name)
{
    static const struct jfunc tests[] = {
        {"defined", t_defined, 0, ""},    {"undefined", t_undefined, 0, ""},
        {"none", t_none, 0, ""},          {"string", t_string, 0, ""},
        {"mapping", t_mapping, 0, ""},    {"iterable", t_iterable, 0, ""},
        {"sequence", t_sequence, 0, ""},  {"true", t_true, 0, ""},
        {"false", t_false, 0, ""},        {"boolean", t_boolean, 0, ""},
        {"integer", t_integer, 0, ""},    {"float", t_float, 0, ""},
        {"number", t_number, 0, ""},      {"callable", t_callable, 0, ""},
        {"sameas", t_sameas, 1, "other"}, {"odd", t_odd, 0, ""},
        {"even", t_even, 0, ""},          {"divisibleby", t_divisibleby, 1, "num"},
        {"lower", t_lower, 0, ""},        {"upper", t_upper, 0, ""},
        {"eq", t_eq, 1, "other"},         {"equalto", t_eq, 1, "other"},
        {"ne", t_ne, 1, "other"},         {"lt", t_lt, 1, "other"},
        {"lessthan", t_lt, 1, "other"},   {"le", t_le, 1, "other"},
        {"gt", t_gt, 1, "other"},         {"greaterthan", t_gt, 1, "other"},
        {"ge", t_ge, 1, "other"},         {"in", t_in, 1, "seq"},
        {"filter", t_filter, 0, ""},      {"test", t_test, 0, ""},
        {"==", t_eq, 1, "other"},         {"!=", t_ne, 1, "other"},
        {"<", t_lt, 1, "other"},          {"<=", t_le, 1, "other"},
        {">", t_gt, 1, "other"},          {">=", t_ge, 1, "other"},
    };
    return jfunc_find(tests, sizeof tests / sizeof tests[0], name);
}

bool jtest_apply(struct jenv *j, struct jval name, struct jval v, const struct jargs *args)
{
    const struct jfunc *f = jtest_find(name);
    if (!f) jenv_fail(j, QN_EDATA, "unknown test '%.*s'", name.s->n > 100 ? 100 : (int)name.s->n, name.s->p);
    return jval_true(jfunc_call(j, f, "test", v, args));
}
