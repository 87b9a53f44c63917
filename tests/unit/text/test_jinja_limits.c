/* SPDX-License-Identifier: MIT
 *
 * test_jinja_limits.c: what chat templates may use: every work on a value is counted, nothing computed from a
 * template's numbers wraps, and a rendering that is no longer wanted ends.
 *
 * With JINJA_HASH_BITS of 1 (another program of the same file) all keys of a dictionary collide.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "text/jinja/jinja.h"

#include "range_cases.h"

#define LONG_BYTES ((size_t)50 << 20)

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Where a test does not choose it, there is no limit on time: a sanitizer may take any. */
static int render(const char *template, const struct jinja_input *given, struct jinja_output *out, struct qn_error *e)
{
    struct jinja *t = NULL;
    struct jinja_input in = *given;
    if (!in.limits.cpu_ns) in.limits.cpu_ns = UINT64_MAX / 2;
    *out = (struct jinja_output){0};
    *e = (struct qn_error){0};
    int rc = jinja_compile(&t, template, strlen(template), e);
    assert_int_equal(rc, 0);
    rc = jinja_render(t, &in, out, e);
    jinja_free(t);
    return rc;
}

static void check_error(const char *template, const struct jinja_input *in, int code, const char *message)
{
    struct jinja_output out;
    struct qn_error e;
    int rc = render(template, in, &out, &e);
    if (rc != code || !strstr(e.msg, message)) print_message("%.300s\n  gives %d '%s'\n", template, rc, e.msg);
    assert_int_equal(rc, code);
    assert_non_null(strstr(e.msg, message));
    jinja_output_deinit(&out);
}

static void check_text(const char *template, const struct jinja_input *in, const char *want)
{
    struct jinja_output out;
    struct qn_error e;
    render(template, in, &out, &e);
    assert_string_equal(e.msg, "");
    const char *got = out.text.data ? (const char *)out.text.data : "";
    if (strcmp(got, want) != 0) print_message("%s\n", template);
    assert_string_equal(got, want);
    jinja_output_deinit(&out);
}

/* Texts side by side are joined when a template is compiled. What a rendering adds to them is the rendering's. */
static void test_the_tree_stays(void **state)
{
    (void)state;
    char *text = malloc((4u << 20) + 1);
    memset(text, 'x', 4u << 20);
    text[4u << 20] = '\0';
    json_t *c = json_pack("{s:s}", "x", text);
    const struct jinja_input in = {.context = c, .limits.value_bytes = 1u << 20};
    check_error("{{ ('a' 'b' ~ x)|length }}", &in, QN_EDATA, "values need more memory than the limit");
    check_error("{{ ('a' 'b' + x)|length }}", &in, QN_EDATA, "values need more memory than the limit");
    check_text("{{ ('a' 'b' + 'c')|length }} {{ 'a' 'b' + 'd' }}", &in, "3 abd");
    json_decref(c);
    free(text);
}

/* A filter that applies another by name applies itself, on the characters of a character. */
static void test_filters_of_filters(void **state)
{
    (void)state;
    const struct jinja_input in = {.context = NULL};
    check_error("{{ 'a'|map(*(['map'] * 60000 + ['upper']))|list|length }}", &in, QN_EDATA,
                "nested deeper than the limit of 1000");
    check_text("{{ 'ab'|map('map', 'upper')|map('list')|list }}", &in, "[['A'], ['B']]");
    check_text("{{ [{'a': none, 'b': 1}, {'a': none, 'b': 2}]|sort(attribute='a')|map(attribute='b')|join }}", &in,
               "12");
}

/* ---- numbers ---- */

static void test_range(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof range_cases / sizeof range_cases[0]; i++) {
        char want[100];
        json_int_t a = range_cases[i].start, b = range_cases[i].stop, step = range_cases[i].step;
        json_t *c = json_pack("{s:I, s:I, s:I}", "a", a, "b", b, "c", step);
        const struct jinja_input in = {.context = c};
        const char *t = "{% set r = range(a, b, c) %}{{ r|length }} {{ r|last if r else 0 }}";
        snprintf(want, sizeof want, "%lld %lld", (long long)range_cases[i].n, (long long)range_cases[i].last);
        if (range_cases[i].n < 0)
            check_error(t, &in, QN_EDATA, "range of more items than the limit of 100000");
        else
            check_text(t, &in, want);
        json_decref(c);
    }
}

/* Sizes that would wrap, or be far beyond what there is. */
static void test_sizes(void **state)
{
    (void)state;
    static const char *const templates[] = {
        "{{ 'ab' * h }}",
        "{{ [1, 2] * h }}",
        "{{ (1, 2) * h }}",
        "{{ 'a'|indent(h) }}",
        "{{ 'a'|center(h) }}",
        "{{ 'a'.ljust(h) }}",
        "{{ 'a'.rjust(h, 'xy'[0]) }}",
        "{{ 'a'.center(h, '\303\251') }}",
        "{{ 'a'.zfill(h) }}",
        "{{ '%*s' % (h, 'a') }}",
        "{{ '%99999999d' % 1 }}",
        "{{ '%999999999s' % 1 }}",
        "{{ '%.*f' % (h, 1.5) }}",
        "{{ range(3)|batch(h, 1)|list }}",
        "{{ range(3)|slice(h)|list }}",
        "{{ {'a': 1}|tojson(indent=h) }}",
    };
    static const int64_t huge[] = {INT64_MAX,          INT64_MAX - 1, INT64_MAX / 2 + 1,
                                   INT64_MAX / 16 + 1, 4294967297,    1 << 30};
    for (size_t k = 0; k < sizeof huge / sizeof huge[0]; k++) {
        json_t *c = json_pack("{s:I}", "h", (json_int_t)huge[k]);
        const struct jinja_input in = {.context = c};
        for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++)
            check_error(templates[i], &in, QN_EDATA, "limit of ");
        json_decref(c);
    }
    json_t *c = json_pack("{s:I, s:I}", "h", (json_int_t)INT64_MAX, "l", (json_int_t)INT64_MIN);
    const struct jinja_input in = {.context = c};
    check_text("{{ 'abc'[l:h:h] }}{{ 'abc'[h:l:l] }}{{ [1, 2, 3][h:l:l] }}{{ [1, 2, 3][l:h:h] }}{{ 'abc'[::-2] }}", &in,
               "ac[3][1]ca");
    check_text("{{ 1.5|round(h) }} {{ 1.5|round(l) }} {{ 'abc'.find('c', l, h) }} {{ 'a,b'.split(',', h) }}", &in,
               "1.5 0.0 2 ['a', 'b']");
    check_text("{{ 'a' * l }}{{ [1] * l }}{{ 'a'.center(l) }}{{ '%.3s' % 'abcd' }}{{ 'abab'.replace('a', 'x', l) }}",
               &in, "[]aabcxbxb");
    json_decref(c);
}

/* ---- nesting ---- */

/* So deep that following it on the stack overflows that: with sanitizers, whose frames are larger, with fewer. */
#ifdef FEW_CASES
#define N_NESTS "3"
#else
#define N_NESTS "9"
#endif
#define NEST_DEEP                                                                                                      \
    "{% set ns = namespace(t=1) %}{% for a in range(" N_NESTS ") %}{% for b in range(100000) %}"                       \
    "{% set ns.t = (ns.t,) %}{% endfor %}{% endfor %}"
#define TWICE_60 "{% set ns = namespace(t=1) %}{% for a in range(60) %}{% set ns.t = (ns.t, ns.t) %}{% endfor %}"

static const char *const uses[] = {
    "{{ {ns.t: 1} }}",          "{{ {1: 2}[ns.t] }}",          "{{ {1: 2}.get(ns.t) }}",
    "{{ ns.t in {1: 2} }}",     "{{ ns.t == ns.t }}",          "{{ ns.t in [1, ns.t] }}",
    "{{ ns.t < ns.t }}",        "{{ [ns.t, ns.t]|sort }}",     "{{ ns.t }}",
    "{{ ns.t|string|length }}", "{{ ns.t|tojson }}",           "{{ [ns.t, ns.t]|unique|list }}",
    "{{ ns.t ~ '' }}",          "{{ [1, ns.t].count(ns.t) }}", "{{ '%s' % (ns.t,) }}",
    "{{ '{}'.format(ns.t) }}",  "{{ [ns.t, ns.t]|max }}",      "{{ ns.t is eq(ns.t) }}",
    "{{ [ns.t]|join }}",        "{{ dict([(ns.t, 1)]) }}",     "{{ ns.t|upper }}",
    "{{ [1][ns.t].x }}",        "{{ {1: 1}[ns.t].x }}",
};

static void check_uses(const char *make, const struct jinja_input *in, const char *message)
{
    char t[1000];
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++) {
        snprintf(t, sizeof t, "%s%s", make, uses[i]);
        check_error(t, in, QN_EDATA, message);
    }
}

static void test_deep(void **state)
{
    (void)state;
    json_t *c = json_object();
    const struct jinja_input in = {
        .context = c, .limits = {.n_steps = 40000000, .value_bytes = (size_t)1 << 30, .cpu_ns = UINT64_MAX / 2}};
    check_uses(NEST_DEEP, &in, "nested deeper than the limit of 1000");
    json_decref(c);
}

static void test_doubled(void **state)
{
    (void)state;
    json_t *c = json_object();
    const struct jinja_input in = {
        .context = c, .limits = {.n_steps = 200000, .value_bytes = (size_t)1 << 28, .cpu_ns = UINT64_MAX / 2}};
    check_uses(TWICE_60, &in, "more steps than the limit of 200000");
    json_decref(c);
}

/* ---- long texts ---- */

static json_t *long_text(char c, char last)
{
    char *s = malloc(LONG_BYTES);
    assert_non_null(s);
    memset(s, c, LONG_BYTES);
    s[LONG_BYTES - 1] = last;
    json_t *j = json_stringn_nocheck(s, LONG_BYTES);
    free(s);
    assert_non_null(j);
    return j;
}

/* s, s2: the same letters; v: these but for the last; sp: spaces; dg: digits; b: braces. */
static const char *const whole_text[] = {
    "s|upper",
    "s|lower",
    "s|title",
    "s|capitalize",
    "sp|trim",
    "s|trim(s2)",
    "s|length",
    "s|count",
    "s|wordcount",
    "s|escape",
    "s|e",
    "s|tojson",
    "s|tojson(true)",
    "s|reverse",
    "s|list",
    "s|replace('b', 'c')",
    "s|indent",
    "s|center(99999999)",
    "s|sort",
    "s|unique|list",
    "s|batch(3)|list",
    "s|slice(3)|list",
    "s|map('upper')|list",
    "s|select|list",
    "s|min",
    "s|max",
    "s|join",
    "[s, s]|join(s2)",
    "[s]|sort(attribute=s2)",
    "s|string ~ 'x'",
    "s|format",
    "s|safe ~ '<'",
    "[s]",
    "{1: s}",
    "(s,)|string",
    "[s, s2]|sort",
    "[s, s2]|unique|list",
    "[s, s2]|max",
    "{s: 1}|dictsort",
    "{s: 1}",
    "{1: 2}[s]",
    "s in {1: 2}",
    "{1: 2}.get(s)",
    "dict(**{s: 1})",
    "namespace(**{s: 1})",
    "s is lower",
    "dg is upper",
    "s2 is eq(s)",
    "s in [s2]",
    "s is in([s2])",
    "s == s2",
    "s != s2",
    "s < s2",
    "s >= s2",
    "[s] == [s2]",
    "{1: s} == {1: s2}",
    "s + 'x'",
    "'x' + s",
    "s * 2",
    "s ~ s",
    "s in v",
    "v in s",
    "'b' in s",
    "s[-1]",
    "s[1:-1]",
    "s[::2]",
    "s[::-1]",
    "s[:9999999]",
    "s.isalpha()",
    "s.isalnum()",
    "s.isascii()",
    "dg.isdigit()",
    "dg.isdecimal()",
    "dg.isnumeric()",
    "sp.isspace()",
    "s.islower()",
    "dg.isupper()",
    "s.upper()",
    "s.lower()",
    "s.casefold()",
    "s.title()",
    "s.swapcase()",
    "s.capitalize()",
    "sp.strip()",
    "sp.lstrip()",
    "sp.rstrip()",
    "s.strip('a')",
    "s.split()",
    "sp.split()",
    "s.split('b')",
    "s.rsplit()",
    "s.rsplit('b')",
    "s.splitlines()",
    "s.partition('b')",
    "s.rpartition('b')",
    "s.find('b')",
    "s.rfind('b')",
    "s.index(s2)",
    "s.count('b')",
    "s.count('')",
    "s.startswith(s2)",
    "s.endswith(s2)",
    "s.startswith((s2, s2))",
    "s.startswith('a', 9, 99999999)",
    "s.removeprefix(s2)",
    "s.removesuffix(s2)",
    "s.zfill(99999999)",
    "s.center(99999999)",
    "s.ljust(99999999)",
    "s.rjust(99999999)",
    "s.join(['a', 'b'])",
    "'x'.join([s, s])",
    "s.replace('b', 'c')",
    "s.replace('', 'c')",
    "s.format()",
    "b.format()",
    "'%s' % s",
    "'%.9999999s' % s",
    "'%r' % s",
    "s % ()",
    "('%-' ~ s) % 1",
    "'{}'.format(s)",
    "'{a}'.format(a=s)",
    "[s].count(s2)",
    "[s].index(s2)",
    "loop_over(s)",
};

static bool is_stopped(const char *template, const struct jinja_input *in)
{
    struct jinja_output out;
    struct qn_error e;
    bool stopped = render(template, in, &out, &e) == QN_EDATA && strstr(e.msg, "more steps than the limit of");
    if (!stopped) print_message("%s\n  gives '%s'\n", template, e.msg);
    jinja_output_deinit(&out);
    return stopped;
}

static void test_long_texts(void **state)
{
    (void)state;
    json_t *c =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "s", long_text('a', 'a'), "s2", long_text('a', 'a'), "v",
                  long_text('a', 'b'), "sp", long_text(' ', ' '), "dg", long_text('7', '7'), "b", long_text('{', '{'));
    assert_non_null(c);
    /* 64 bytes are a step: each of these needs eight times as many */
    const struct jinja_input in = {
        .context = c,
        .limits = {.n_steps = LONG_BYTES / 64 / 8, .value_bytes = (size_t)2 << 30, .cpu_ns = UINT64_MAX / 2}};
    int n_bad = 0;
    for (size_t i = 0; i < sizeof whole_text / sizeof whole_text[0]; i++) {
        char t[300];
        snprintf(t, sizeof t,
                 "{%% macro loop_over(x) %%}{%% for c in x %%}{%% endfor %%}{%% endmacro %%}{%% if %s %%}{%% endif %%}",
                 whole_text[i]);
        /* what is printed and what is only looked at */
        bool printed = whole_text[i][0] == '[' || whole_text[i][0] == '{' || strstr(whole_text[i], "string");
        if (printed) snprintf(t, sizeof t, "{{ %s }}", whole_text[i]);
        n_bad += !is_stopped(t, &in);
    }
    json_decref(c);
    assert_int_equal(n_bad, 0);
}

/* ---- many names ---- */

static void test_many_names(void **state)
{
    (void)state;
    json_t *d = json_object();
    for (int i = 0; i < 100000; i++) {
        char key[20];
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(json_object_set_new(d, key, json_integer(i)), 0);
    }
    json_t *c = json_pack("{s:o}", "d", d);
    /* 100,000 named arguments are compared with each other */
    const struct jinja_input in = {.context = c, .limits = {.n_steps = 3000000, .value_bytes = (size_t)1 << 28}};
    check_error("{{ namespace(**d) }}", &in, QN_EDATA, "more steps than the limit of 3000000");
    check_error("{% macro m() %}{{ kwargs }}{% endmacro %}{{ m(**d) }}", &in, QN_EDATA, "more steps than the limit");
    check_error("{{ '{k99999}'.format(**d) }}", &in, QN_EDATA, "more steps than the limit");
    json_decref(c);
}

/* ---- dictionaries ---- */

static json_t *many_keys(int n, size_t *bytes)
{
    json_t *d = json_object();
    for (int i = 0; i < n; i++) {
        char key[20];
        snprintf(key, sizeof key, "%d", i);
        assert_int_equal(json_object_set_new(d, key, json_true()), 0);
    }
    json_t *c = json_pack("{s:o}", "d", d);
    *bytes = json_dumpb(c, NULL, 0, JSON_COMPACT);
    return c;
}

/* As many keys as a request can bring: their time is that of the bytes; when they collide, probes are steps. */
static void test_keys(void **state)
{
    (void)state;
    struct jinja_used used = {0};
    struct jinja_output out;
    struct qn_error e;
    size_t bytes;
    json_t *c = many_keys(32768, &bytes);
    const struct jinja_input in = {.context = c, .n_bytes = bytes, .used = &used};
    int rc = render("{{ d|length }} {{ d['77'] }} {{ d['x'] }}", &in, &out, &e);
#if defined(JINJA_HASH_BITS) && JINJA_HASH_BITS < 8
    assert_int_equal(rc, QN_EDATA);
    assert_non_null(strstr(e.msg, "more steps than the limit of"));
#else
    assert_string_equal(e.msg, "");
    assert_int_equal(rc, 0);
    assert_string_equal((const char *)out.text.data, "32768 True ");
    assert_true(used.n_steps < 32768 * 8);
#endif
    jinja_output_deinit(&out);
    json_decref(c);
    c = many_keys(20, &bytes);
    check_text("{% for k in d %}{{ k }} {% endfor %}{{ d['19'] }}", &(struct jinja_input){.context = c},
               "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 True");
    json_decref(c);
}

/* ---- memory, time, and who still wants it ---- */

static void test_memory(void **state)
{
    (void)state;
    struct jinja_used used = {0};
    json_t *c = json_object();
    struct jinja_input in = {.context = c, .used = &used};
    assert_int_equal(jinja_value_bytes(0), 16 << 20);
    check_error("{{ ('a' * 17000000)|length }}", &in, QN_EDATA,
                "values need more memory than the limit of 16777216 bytes");
    assert_true(used.value_bytes <= 16 << 20);
    check_error("{{ [1] * 1100000 }}", &in, QN_EDATA, "values need more memory than the limit of 16777216 bytes");
    check_error(
        "{% set ns = namespace(a=[]) %}{% for i in range(100000) %}{% set ns.a = [ns.a, 'x' * 200] %}{% endfor %}", &in,
        QN_EDATA, "values need more memory than the limit");
    assert_true(used.value_bytes <= 16 << 20);
    /* half of the output is the user's, every other byte: the list of ranges would be eight times as long as the text
     */
    json_object_set_new(c, "u", json_string("u"));
    in.limits.n_steps = UINT64_MAX / 2;
    check_error("{% for a in range(20) %}{% for b in range(60000) %}.{{ u }}{% endfor %}{% endfor %}", &in, QN_EDATA,
                "values need more memory than the limit");
    assert_true(used.value_bytes <= 16 << 20);
    /* what a turn of a loop made is given back */
    check_text("{% for i in range(10000) %}{% set x = [i, 'abc' * 100]|string|upper %}{% endfor %}", &in, "");
    assert_true(used.value_bytes < 3 << 20);
    in.n_bytes = 1 << 20;
    check_text("{{ ('a' * 17000000)|length }}", &in, "17000000");
    json_decref(c);
}

/* What outlives the turn it was made in is still there afterwards. */
static void test_kept(void **state)
{
    (void)state;
    json_t *c = json_pack("{s:s, s:[s, s, s]}", "u", "user", "l", "a", "b", "c");
    const struct jinja_input in = {.context = c};
    check_text(
        "{% set ns = namespace(a='', b=[], n=0, f=none) %}{% for i in range(40) %}"
        "{% for x in l %}{% set ns.a = ns.a + x ~ i %}{% set ns.n = ns.n + 1 %}{% set y = [x * 50] * 9 %}{% endfor %}"
        "{% set ns.b = ns.b + ['x' ~ i] %}{% endfor %}{{ ns.n }}{{ ns.a[-9:] }}{{ ns.b[3] }}{{ ns.b|length }}"
        "{{ ns.a[:8] }}{{ ns.b|last }}",
        &in, "120a39b39c39x340a0b0c0a1x39");
    check_text("{% set ns = namespace(s='') %}{% set s = 'q' + u %}{% for i in range(300) %}{% set t = s + 'r' * i %}"
               "{% set k = t ~ t %}{% endfor %}{{ s + '!' }}{{ s ~ u }}",
               &in, "quser!quseruser");
    check_text("{% for i in range(9) %}{% if loop.changed('x' ~ i // 3) %}{{ i }}{% endif %}{% set z = 'y' * 99 %}{% "
               "endfor %}",
               &in, "036");
    check_text("{% set ns = namespace(m=none, l=none) %}{% for x in l %}{% macro m(a) %}{{ a }}{{ x }}{% endmacro %}"
               "{% set ns.m = m %}{% set ns.l = loop %}{% endfor %}{% for i in range(99) %}{% set q = ['z' * 20] %}"
               "{% endfor %}{{ ns.m('-') }}{{ ns.l.index }}",
               &in, "-c4");
    check_text("{% macro m(n) %}{% set ns = namespace(t='') %}{% for i in range(n) %}{% set ns.t = ns.t ~ m(i) ~ i "
               "%}{% endfor %}"
               "{{ ns.t }}{% endmacro %}{% for i in range(5) %}{{ m(i) }};{% endfor %}",
               &in, ";0;001;0010012;001001200100123;");
    json_decref(c);
}

static void test_time(void **state)
{
    (void)state;
    json_t *c = json_object();
    const struct jinja_input in = {.context = c, .limits = {.n_steps = UINT64_MAX / 2, .cpu_ns = 20000000}};
    uint64_t before = cpu_ns();
    check_error("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", &in, QN_EDATA,
                "more time than the limit of 20 ms");
    assert_true(cpu_ns() - before < 500000000);
    json_decref(c);
}

struct wish {
    uint64_t last_ns, end_ns, longest_ns; /* of this thread's time */
    int n;
};

/* Wanted for 50 ms. */
static bool is_cancelled(void *arg)
{
    struct wish *w = arg;
    uint64_t now = cpu_ns();
    if (w->n++ && now - w->last_ns > w->longest_ns) w->longest_ns = now - w->last_ns;
    w->last_ns = now;
    return now >= w->end_ns;
}

static void test_cancel(void **state)
{
    (void)state;
    static const char *const endless[] = {
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% for a in range(100000) %}{% if s.isalpha() %}{% endif %}{% endfor %}",
        "{% for a in range(100000) %}{% if s|upper %}{% endif %}{% endfor %}",
        "{% for a in range(100000) %}{% if s.split('b') %}{% endif %}{% endfor %}",
        "{% for a in range(100000) %}{% if s|tojson %}{% endif %}{% endfor %}",
        "{% for a in range(100000) %}{% if s == v %}{% endif %}{% endfor %}",
        "{% for a in range(100000) %}{% if s.rfind('b') %}{% endif %}{% endfor %}",
        "{% for a in range(100000) %}{% if s|replace('a', 'bc') %}{% endif %}{% endfor %}",
        "{% for a in range(100000) %}{% if range(90000)|sort(reverse=true) %}{% endif %}{% endfor %}",
        TWICE_60 "{{ ns.t in {1: 2} }}",
        TWICE_60 "{{ ns.t == ns.t }}",
    };
    char *s = calloc(1, 2000001);
    assert_non_null(s);
    memset(s, 'a', 2000000);
    json_t *c = json_pack("{s:s, s:s}", "s", s, "v", s);
    free(s);
    for (size_t i = 0; i < sizeof endless / sizeof endless[0]; i++) {
        struct wish w = {.end_ns = cpu_ns() + 50000000};
        const struct qn_cancel cancel = {is_cancelled, &w};
        const struct jinja_input in = {
            .context = c, .limits = {UINT64_MAX / 2, 0, 0, (size_t)1 << 30, UINT64_MAX / 2}, .cancel = &cancel};
        check_error(endless[i], &in, QN_ECANCEL, "the rendering was cancelled");
        if (w.longest_ns > 30000000) print_message("%s: not asked for %g ms\n", endless[i], (double)w.longest_ns / 1e6);
        assert_true(w.longest_ns < 100000000); /* some milliseconds, in a sanitizer's build too */
        assert_true(cpu_ns() - w.last_ns < 100000000);
    }
    json_decref(c);
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_range),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_doubled),
        cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_many_names),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_the_tree_stays),
        cmocka_unit_test(test_filters_of_filters),
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_cancel),
    };
#ifdef JINJA_HASH_BITS
    cmocka_set_test_filter("test_keys");
#endif
    return cmocka_run_group_tests(all, NULL, NULL);
}
