/* SPDX-License-Identifier: MIT
 *
 * test_jinja.c: chat templates: every filter, test, method, operator and statement, limits, and origins.
 *
 * What a template must give is in jinja_cases.h and comes from Jinja2 itself. Here are the things it does not have:
 * which part of the output is the user's, limits, refusals, and what errors say.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/jinja/jinja.h"

#include "jinja_cases.h"

static const char context_text[] =
    "{\"s\":\"hello World\",\"t\":\" \\t padded\\n\",\"u\":\"Gr\303\274\303\237e \303\234n\303\257 "
    "\346\227\245\346\234\254\",\"m\":\"a\\nb\\r\\nc\\n\\nd\",\"n\":7,\"z\":-3,\"f\":2.5,\"yes\":true,\"no\":false,"
    "\"nil\":null,\"l\":[3,1,2],\"w\":[\"b\",\"A\",\"c\",\"a\"],\"d\":{\"b\":1,\"A\":[1,2],\"items\":\"x\",\"k\":\"v\"}"
    ",\"o\":[{\"name\":\"x\",\"on\":true,\"p\":{\"q\":1}},{\"name\":\"Y\",\"on\":false,\"p\":{\"q\":2}},{\"name\":"
    "\"z\",\"p\":{\"q\":0}}],\"e\":\"\",\"el\":[],\"ed\":{},\"q\":\"it's \\\"q\\\" \\\\ "
    "<b>&\",\"c\":\"\\u0001\\u200b\\u00e9\\ud83d\\ude00\"}";

static const struct tm noon = {.tm_year = 124,
                               .tm_mon = 6,
                               .tm_mday = 26,
                               .tm_hour = 12,
                               .tm_min = 34,
                               .tm_sec = 56,
                               .tm_wday = 5,
                               .tm_yday = 207};

/* Compiles and renders; out and e as jinja_render leaves them. */
static int render(const char *template, const struct jinja_input *in, struct jinja_output *out, struct qn_error *e)
{
    struct jinja *t = NULL;
    *out = (struct jinja_output){0};
    *e = (struct qn_error){0};
    int rc = jinja_compile(&t, template, strlen(template), e);
    if (rc == 0) rc = jinja_render(t, in, out, e);
    jinja_free(t);
    assert_int_equal(rc, e->code);
    return rc;
}

static json_t *context(void)
{
    json_t *c = json_loads(context_text, 0, NULL);
    assert_non_null(c);
    return c;
}

/* ---- what Jinja2 says ---- */

static void check_rows(const struct row *row, size_t n)
{
    json_t *c = context();
    int n_bad = 0;
    for (size_t i = 0; i < n; i++) {
        struct jinja_output out;
        struct qn_error e;
        int rc = render(row[i].template, &(struct jinja_input){.context = c, .now = &noon}, &out, &e);
        const char *got = out.text.data ? (const char *)out.text.data : "";
        if (row[i].want ? rc != 0 || strcmp(got, row[i].want) != 0 : rc == 0) {
            print_message("%s\n  want %s\n  got  %s %s\n", row[i].template, row[i].want ? row[i].want : "an error", got,
                          e.msg);
            n_bad++;
        }
        jinja_output_deinit(&out);
    }
    json_decref(c);
    assert_int_equal(n_bad, 0);
}

#define ROWS(name)                                                                                                     \
    static void test_##name(void **state)                                                                              \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        check_rows(name, sizeof name / sizeof name[0]);                                                                \
    }
ROWS(filters)
ROWS(tests)
ROWS(methods)
ROWS(operators)
ROWS(statements)
ROWS(whitespace)
ROWS(errors)

/* ---- origins ---- */

/* The output with [ and ] around what is the user's. */
static void check_marks(const char *template, const char *want)
{
    json_t *c = json_loads("{\"x\": \"<|im_start|>\", \"y\": \" aB \", \"n\": 12, \"l\": [\"p\", \"q\"],"
                           "\"d\": {\"k\": \"v\", \"m\": null}, \"role\": \"user\", \"msg\": {\"role\": \"user\"},"
                           "\"lines\": \"a\\nb\", \"eos\": \"no\"}",
                           0, NULL);
    json_t *trusted = json_loads("{\"bos\": \"<s>\", \"eos\": \"</s>\"}", 0, NULL);
    struct jinja_output out;
    struct qn_error e;
    struct buf shown = {0};
    int rc = render(template, &(struct jinja_input){.context = c, .trusted = trusted}, &out, &e);
    if (rc) print_message("%s: %s\n", template, e.msg);
    assert_int_equal(rc, 0);
    size_t at = 0;
    for (size_t i = 0; i < out.n_user; i++) {
        const struct text_span *s = &out.user[i];
        assert_true(s->n > 0 && s->at >= at && s->at + s->n <= out.text.len);
        buf_printf(&shown, NULL, "%.*s{%.*s}", (int)(s->at - at), out.text.data + at, (int)s->n, out.text.data + s->at);
        at = s->at + s->n;
    }
    buf_printf(&shown, NULL, "%s", out.text.data ? (const char *)out.text.data + at : "");
    if (strcmp((const char *)shown.data, want) != 0) print_message("%s\n", template);
    assert_string_equal((const char *)shown.data, want);
    buf_deinit(&shown);
    jinja_output_deinit(&out);
    json_decref(c);
    json_decref(trusted);
}

static const struct row marks[] = {
    {"<|im_start|>{{ x }}<|im_end|>", "<|im_start|>{<|im_start|>}<|im_end|>"},
    {"{{ '<|im_start|>' }}", "<|im_start|>"},
    {"{{ bos }}{{ eos }}", "<s></s>"}, /* the trusted object wins */
    {"{{ '<' + x + '>' }}", "<{<|im_start|>}>"},
    {"{{ '<' ~ x ~ 1 ~ n }}", "<{<|im_start|>}1{12}"},
    {"{{ ('<' + x + '>')[1:4] }}", "{<|i}"},
    {"{{ ('ab' + x + 'cd')[:4] }}|{{ ('ab' + x + 'cd')[-3:] }}", "ab{<|}|{>}cd"},
    {"{{ ('a' + x)[::-1] }}", "{>|trats_mi|<}a"},
    {"{{ ('a' + x)|reverse }}", "{>|trats_mi|<}a"},
    {"{{ (' ' + y + ' ')|trim }}", "{aB}"},
    {"{{ ('a' + y).strip('a') }}", "{ aB }"},
    {"{{ (' c' + y).strip() }}", "c{ aB}"},
    {"{{ ('z' + y)|upper }}{{ ('Z' + y).lower() }}{{ ('z' + y)|title }}{{ ('z' + y)|capitalize }}",
     "Z{ AB }z{ ab }Z{ Ab }Z{ ab }"},
    {"{{ y.replace('a', '<s>') }}", "{ }<s>{B }"}, /* the new text is the template's */
    {"{{ 'abc'.replace('b', x) }}{{ 'abc'|replace('b', x) }}", "a{<|im_start|>}ca{<|im_start|>}c"},
    {"{{ l|join('+') }}{{ '+'.join(l) }}{{ ['a', x]|join(y) }}", "{p}+{qp}+{q}a{ aB <|im_start|>}"},
    {"{{ ('a-' + x + '-b').split('-') | join('*') }}", "a*{<|im_start|>}*b"},
    {"{{ ('a ' + y).split()|join('.') }}", "a.{aB}"},
    {"{{ ('1' + lines)|indent(2) }}", "1{a\n}  {b}"},
    {"{{ x|tojson }}{{ 'a'|tojson }}", "{\"<|im_start|>\"}\"a\""},
    {"{{ {'k': x}|tojson }}", "{\"k\": {\"<|im_start|>\"}}"},
    {"{{ d|tojson }}{{ d }}{{ l }}", "{{\"k\": \"v\", \"m\": null}{'k': 'v', 'm': None}['p', 'q']}"},
    {"{{ [x] }}{{ [1, n] }}", "[{'<|im_start|>'}][1, {12}]"},
    {"{{ d.k }}{{ d['k'] }}{{ d.get('k') }}{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %}", "{vvvkvmNone}"},
    {"{{ d|dictsort }}{% for k in d %}{{ k }}{% endfor %}", "{[('k', 'v'), ('m', None)]km}"},
    {"{% for c in 'a' + y %}{{ c }}.{% endfor %}", "a.{ }.{a}.{B}.{ }."},
    {"{% set z %}<{{ x }}>{% endset %}{{ z }}", "<{<|im_start|>}>"},
    {"{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(x) }}{{ m('b') }}", "<{<|im_start|>}><b>"},
    {"{% filter upper %}a{{ y }}{% endfilter %}", "A{ AB }"},
    {"{% set ns = namespace(t='') %}{% for c in l %}{% set ns.t = ns.t + '<' + c %}{% endfor %}{{ ns.t }}", "<{p}<{q}"},
    {"{{ '%s|%s' % (x, 'a') }}{{ '%5s' % d.k }}{{ '%d' % n }}", "{<|im_start|>}|a    {v12}"},
    {"{{ '<{}>'.format(x) }}{{ '%s'|format(x) }}", "<{<|im_start|>}>{<|im_start|>}"},
    {"{{ (x + '%s') % 'a' }}", "{<|im_start|>}a"},
    {"{{ d.k.center(5) }}{{ d.k.zfill(3) }}", "  {v}  00{v}"},
    {"{{ y.partition('a')|join('|') }}{{ y.splitlines()[0] }}", "{ }|{a}|{B  aB }"},
    {"{{ x * 2 }}{{ ('a' + d.k) * 2 }}", "{<|im_start|><|im_start|>}a{v}a{v}"},
    {"{{ n + 1 }}{{ n|string }}{{ n|float }}{{ l|length }}{{ '7'|int + n }}", "{131212.0}2{19}"},
    {"{{ ('<' + d.k)|e }}{{ x|e }}", "&lt;{v&lt;|im_start|&gt;}"},
    {"{{ x|safe + '<' }}", "{<|im_start|>}&lt;"},
    {"{{ x|first }}{{ x|last }}{{ x[0] }}{{ l|first }}{{ l|sort|last }}{{ l|max }}", "{<><pqq}"},
    {"{{ nope|default(x) }}{{ x|default('a') }}{{ x or 'a' }}{{ 'a' if x }}",
     "{<|im_start|><|im_start|><|im_start|>}a"},
    {"{{ x.removeprefix('<|') }}{{ ('a' + x).removesuffix('|>') }}", "{im_start|>}a{<|im_start}"},
    {"{{ l|map('upper')|join }}{{ l|select('eq', 'p')|join }}{{ (l + ['a'])|join }}", "{PQppq}a"},
    {"{{ d|items|list }}", "{[('k', 'v'), ('m', None)]}"},
    {"<|{{ role }}|>", "<|{user}|>"}, /* for this there is vouch */
};

static void test_marks(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) check_marks(marks[i].template, marks[i].want);
}

static bool vouch_for_user(void *arg, const char *key, const char *text, size_t n)
{
    ++*(int *)arg;
    return strcmp(key, "role") == 0 && n == 4 && memcmp(text, "user", 4) == 0;
}

static void test_vouch(void **state)
{
    (void)state;
    json_t *c = json_loads("{\"messages\": [{\"role\": \"user\", \"content\": \"user\"},"
                           "{\"role\": \"evil\", \"content\": [\"x\"]}]}",
                           0, NULL);
    struct jinja_output out;
    struct qn_error e;
    int n = 0;
    const struct jinja_input in = {.context = c, .vouch = vouch_for_user, .vouch_arg = &n};
    assert_int_equal(render("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}", &in, &out, &e), 0);
    assert_string_equal((const char *)out.text.data, "<|user|>user<|evil|>['x']");
    assert_int_equal(n, 3); /* members that are strings */
    assert_int_equal(out.n_user, 3);
    assert_int_equal(out.user[0].at, 8);
    assert_int_equal(out.user[1].at, 14);
    assert_int_equal(out.user[2].at, 20);
    jinja_output_deinit(&out);
    json_decref(c);
}

/* ---- errors ---- */

static void check_error(const char *template, const struct jinja_input *in, int code, const char *message)
{
    struct jinja_output out;
    struct qn_error e;
    int rc = render(template, in, &out, &e);
    if (rc != code || !strstr(e.msg, message)) print_message("%.200s\n  gives %d '%s'\n", template, rc, e.msg);
    assert_int_equal(rc, code);
    assert_non_null(strstr(e.msg, message));
    assert_null(out.text.data);
    assert_null(out.user);
}

static void test_messages(void **state)
{
    (void)state;
    json_t *c = context();
    const struct jinja_input in = {.context = c};
    check_error("a\n\n{{ s|foo }}", &in, QN_EDATA, "template line 3: unknown filter 'foo'");
    check_error("{{ s is foo }}", &in, QN_EDATA, "template line 1: unknown test 'foo'");
    check_error("{{ nope.x }}", &in, QN_EDATA, "'nope' is undefined");
    check_error("{{ d.nope.x }}", &in, QN_EDATA, "'dict object' has no attribute 'nope'");
    check_error("{{ l[9].x }}", &in, QN_EDATA, "list object has no element 9");
    check_error("{% macro m(a) %}{{ a.x }}{% endmacro %}\n{{ m() }}", &in, QN_EDATA,
                "template line 1: parameter 'a' was not provided");
    check_error("{{ l.append(1) }}", &in, QN_EDATA, "access to attribute 'append' of 'list' object is unsafe");
    check_error("\n{% if x %}", &in, QN_EDATA, "template line 2: unexpected the end of the template, expected elif");
    check_error("{% include 'x' %}", &in, QN_EUNSUP, "statement 'include' is not supported");
    check_error("{{ raise_exception('Roles must alternate: ' ~ s) }}", &in, QN_EUSAGE,
                "Roles must alternate: hello World");
    check_error("{{ strftime_now('%Y') }}", &in, QN_EDATA, "no time was given");
    check_error("{{ 9223372036854775807 + 1 }}", &in, QN_EDATA, "9223372036854775807 + 1 does not fit 64 bits");
    check_error("{{ -9223372036854775807 - 2 }}", &in, QN_EDATA, "does not fit 64 bits");
    check_error("{{ 9223372036854775807 * 2 }}", &in, QN_EDATA, "does not fit 64 bits");
    check_error("{{ 2 ** 63 }}", &in, QN_EDATA, "does not fit 64 bits");
    check_error("{{ 9223372036854775808 }}", &in, QN_EDATA, "integer 9223372036854775808 does not fit 64 bits");
    check_error("{{ (-9223372036854775807 - 1) // -1 }}", &in, QN_EDATA, "does not fit 64 bits");
    check_error("{{ -(-9223372036854775807 - 1) }}", &in, QN_EDATA, "does not fit 64 bits");
    check_error("{{ '9223372036854775808'|int }}{{ 1e30|int }}", &in, QN_EDATA, "does not fit 64 bits");
    check_error("\xff", &in, QN_EDATA, "not UTF-8");
    json_decref(c);
}

/* ---- limits ---- */

static void repeated(struct buf *b, const char *s, int n)
{
    for (int i = 0; i < n; i++) assert_int_equal(buf_str(b, s, NULL), 0);
}

/* before, n times `open`, `middle`, n times `close` */
static void check_nested(const char *open, const char *middle, const char *close, const char *limit)
{
    struct buf b = {0};
    json_t *c = context();
    repeated(&b, open, 40000);
    repeated(&b, middle, 1);
    repeated(&b, close, 40000);
    check_error((const char *)b.data, &(struct jinja_input){.context = c}, QN_EDATA, limit);
    json_decref(c);
    buf_deinit(&b);
}

static void test_lists_change(void **state)
{
    static const struct row rows[] = {
        {"{% set a = [] %}{% for i in range(20) %}{% set _ = a.append(i ~ 'x') %}{% endfor %}{{ a | join }}",
         "0x1x2x3x4x5x6x7x8x9x10x11x12x13x14x15x16x17x18x19x"},
        {"{% set a = [1] %}{% set b = a.copy() %}{% set c = a | list %}{% set d = a + [2] %}{{ a.append(3) }}"
         "{{ a }}{{ b }}{{ c }}{{ d }}",
         "None[1, 3][1][1][1, 2]"},
        {"{% set a = [1, 2] %}{% for i in a %}{% set _ = a.append(i) %}{% endfor %}{{ a }}", "[1, 2, 1, 2]"},
        {"{% set ns = namespace(l=['a']) %}{% for i in 'xyz' %}{% for k in 'uv' %}{% set _ = ns.l.append(i + k) %}"
         "{% endfor %}{% endfor %}{{ ns.l | join(' ') }}",
         "a xu xv yu yv zu zv"},
        {"{% set a = [1, 2, 3, 4] %}{% set b = a | list %}{{ a.pop(0) }}{{ a.pop() }}{{ a.append(5) }}{{ a.pop(1) }}{{ "
         "a }}"
         "{{ b }}{{ a.pop(-2) }}{{ a.pop() }}{{ a }}",
         "14None3[2, 5][1, 2, 3, 4]25[]"},
    };
    (void)state;
    check_rows(rows, sizeof rows / sizeof rows[0]);
    struct jinja_input in = {.context = json_object()};
    check_error("{% set a = [] %}{{ a.append(a) }}", &in, QN_EDATA, "append() takes texts and numbers, not list");
    check_error("{% set a = [] %}{{ a.pop() }}", &in, QN_EDATA, "pop() from a list of 0 items");
    check_error("{% set a = [1] %}{{ a.pop(1) }}", &in, QN_EDATA, "pop() from a list of 1 items");
    check_error("{% set a = [1] %}{{ a.pop('x') }}", &in, QN_EDATA, "index");
    check_error("{% set a = [] %}{{ a.append() }}", &in, QN_EDATA, "append");
    check_error("{% set a = (1,) %}{{ a.append(1) }}", &in, QN_EDATA, "append");
    json_decref(in.context);
}

static void test_depth(void **state)
{
    (void)state;
    json_t *c = context();
    const struct jinja_input in = {.context = c};
    check_nested("{% if 1 %}", "", "{% endif %}", "nested deeper than the limit of 300");
    check_error("{% macro r() %}{{ r() }}{% endmacro %}{{ r() }}", &in, QN_EDATA,
                "nested deeper than the limit of 1000");
    check_error("{% set n = namespace() %}{% set n.n = n %}{{ n }}", &in, QN_EDATA,
                "nested deeper than the limit of 1000");
    check_error("{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}", &in, QN_EDATA, "nested deeper");
    static const char *const open[] = {"(", "[", "{1:", "not ", "-", "a(", "1 if 1 else ", "a[", "s|f(", "x is y("};
    for (size_t i = 0; i < sizeof open / sizeof open[0]; i++) {
        struct buf b = {0};
        repeated(&b, "{{ ", 1);
        repeated(&b, open[i], 80000);
        check_error((const char *)b.data, &in, QN_EDATA, "deeper than the limit of");
        buf_deinit(&b);
    }
    static const char *const chain[] = {"+1", "~1|trim", "|trim", ".x", " and 1", " is defined", "()", " if 1", "**1"};
    for (size_t i = 0; i < sizeof chain / sizeof chain[0]; i++) {
        struct jinja_output out;
        struct qn_error e;
        struct buf b = {0};
        repeated(&b, "{{ 1", 1);
        repeated(&b, chain[i], 100000);
        repeated(&b, " }}", 1);
        render((const char *)b.data, &in, &out, &e); /* some are deep, some are long: none may exhaust the stack */
        jinja_output_deinit(&out);
        buf_deinit(&b);
    }
    json_decref(c);
}

static void test_limits(void **state)
{
    (void)state;
    json_t *c = context();
    struct jinja_input in = {.context = c};
    const char *forever = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
    check_error(forever, &in, QN_EDATA, "the limit of ");
    in.limits.n_steps = 1000;
    check_error(forever, &in, QN_EDATA, "more steps than the limit of 1000");
    in.limits = (struct jinja_limits){.out_bytes = 100};
    check_error("{% for a in range(1000) %}{{ s }}{% endfor %}", &in, QN_EDATA,
                "output exceeds the limit of 100 bytes");
    in.limits = (struct jinja_limits){.value_bytes = 100000};
    check_error("{{ ('a' * 1000000)|length }}", &in, QN_EDATA, "more memory than the limit of 100000 bytes");
    check_error("{{ ([1] * 1000000)|length }}", &in, QN_EDATA, "more memory than the limit of 100000 bytes");
    in.limits = (struct jinja_limits){.depth = 5};
    check_error("{{ ((((1 + (2 + (3 + (4 + 5))))))) }}", &in, QN_EDATA, "deeper than the limit of 5");
    in.limits = (struct jinja_limits){0};
    check_error("{{ 'a' * 9223372036854775807 }}", &in, QN_EDATA, "the limit of");
    check_error("{{ [1] * 9223372036854775807 }}", &in, QN_EDATA, "the limit of");
    check_error("{{ '%*d' % (1000000000, 1) }}", &in, QN_EDATA, "the limit of 400");
    check_error("{{ 'a'.center(9223372036854775807) }}", &in, QN_EDATA, "the limit of");
    check_error("{{ 'a'.zfill(9223372036854775807) }}", &in, QN_EDATA, "the limit of");
    check_error("{{ 'a'|indent(9223372036854775807) }}", &in, QN_EDATA, "the limit of");
    check_error("{{ range(3)|batch(9223372036854775807, 1)|list }}", &in, QN_EDATA, "the limit of");
    json_decref(c);
}

/* Text that is built piece by piece in a namespace takes memory in proportion to its length. */
static void test_accumulating(void **state)
{
    (void)state;
    json_t *c = context();
    struct jinja_output out;
    struct qn_error e;
    const struct jinja_input in = {.context = c, .limits = {.value_bytes = 40 << 20}};
    int rc = render("{% set ns = namespace(t='') %}{% for i in range(50000) %}"
                    "{% set ns.t = ns.t + 'abc' + s %}{% endfor %}{{ ns.t }}",
                    &in, &out, &e);
    assert_string_equal(e.msg, "");
    assert_int_equal(rc, 0);
    assert_int_equal(out.text.len, 50000 * 14);
    assert_int_equal(out.n_user, 50000);
    jinja_output_deinit(&out);
    json_decref(c);
}

/* ---- memory ---- */

static void test_no_memory(void **state)
{
    (void)state;
    json_t *c = context();
    const struct jinja_input in = {.context = c};
    int rc = QN_ENOMEM;
    for (uint64_t n = 1; rc; n++) {
        struct jinja_output out;
        struct qn_error e;
        mem_fault_set(n);
        rc = render("{% macro m(x) %}{{ x|tojson }}{% endmacro %}{{ m(d) }}{{ 'a' * 20000 }}", &in, &out, &e);
        mem_fault_set(0);
        assert_true(rc == 0 || rc == QN_ENOMEM);
        jinja_output_deinit(&out);
    }
    json_decref(c);
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_filters),   cmocka_unit_test(test_tests),        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_operators), cmocka_unit_test(test_statements),   cmocka_unit_test(test_whitespace),
        cmocka_unit_test(test_errors),    cmocka_unit_test(test_marks),        cmocka_unit_test(test_vouch),
        cmocka_unit_test(test_messages),  cmocka_unit_test(test_lists_change), cmocka_unit_test(test_depth),
        cmocka_unit_test(test_limits),    cmocka_unit_test(test_accumulating), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}
