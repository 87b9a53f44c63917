/* SPDX-License-Identifier: MIT
 *
 * test_regex.c: regular expressions, patterns and GBNF rules made at random, against sets of short texts that are
 * computed from the same trees; and patterns with all of their syntax.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "grammar/gbnf/gbnf.h"
#include "grammar/grammar.h"
#include "grammar/regex/pattern.h"

/* ---- sets of texts over a and b, of at most 6 characters ---- */

#define LONGEST 6
#define N_TEXTS 128 /* text i is the bits of i below its highest one */

struct texts {
    bool has[N_TEXTS]; /* from 1 on */
};

static unsigned length_of(unsigned text)
{
    unsigned n = 0;
    while (text >> (n + 1)) n++;
    return n;
}

static unsigned spell(unsigned text, char out[LONGEST + 1])
{
    unsigned n = length_of(text);
    for (unsigned i = 0; i < n; i++) out[i] = text >> (n - 1 - i) & 1 ? 'b' : 'a';
    out[n] = '\0';
    return n;
}

static struct texts one_text(unsigned text)
{
    struct texts t = {{false}};
    t.has[text] = true;
    return t;
}

static struct texts cat(const struct texts *a, const struct texts *b)
{
    struct texts t = {{false}};
    for (unsigned i = 1; i < N_TEXTS; i++)
        for (unsigned k = 1; k < N_TEXTS && a->has[i]; k++) {
            unsigned n = length_of(k);
            if (b->has[k] && length_of(i) + n <= LONGEST) t.has[i << n | (k ^ 1u << n)] = true;
        }
    return t;
}

static struct texts join(const struct texts *a, const struct texts *b)
{
    struct texts t;
    for (unsigned i = 0; i < N_TEXTS; i++) t.has[i] = a->has[i] || b->has[i];
    return t;
}

static struct texts meet(const struct texts *a, const struct texts *b, bool opposite)
{
    struct texts t;
    for (unsigned i = 0; i < N_TEXTS; i++) t.has[i] = i && a->has[i] && b->has[i] != opposite;
    return t;
}

static struct texts repeat(const struct texts *a, unsigned least, unsigned most)
{
    struct texts power = one_text(1), all = {{false}};
    for (unsigned i = 0; i <= most && i <= least + LONGEST; i++) {
        if (i >= least) all = join(&all, &power);
        power = cat(&power, a);
    }
    return all;
}

/* ---- random trees ---- */

static uint64_t random_state;

static unsigned next_random(unsigned below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % below;
}

/* A tree as a set of texts, as a pattern, and as an expression. */
struct tree {
    struct texts texts;
    char text[4000];
    re_id re;
};

static void make_leaf(struct regex *r, struct tree *t)
{
    static const char *const patterns[] = {"a", "b", "[ab]", "(?:)", "[^a]", "ab"};
    unsigned k = next_random(6);
    struct texts a = one_text(2), b = one_text(3);
    const struct texts sets[] = {a, b, join(&a, &b), one_text(1), b, cat(&a, &b)};
    strcpy(t->text, patterns[k]);
    t->texts = sets[k];
    t->re = pattern_compile(r, t->text, strlen(t->text), PATTERN_WHOLE);
    if (k == 4) t->re = re_range(r, 'b', 'b'); /* other characters are in no text */
}

static void make_repeat(struct regex *r, struct tree *t, const struct tree *a)
{
    static const char *const quantifiers[] = {"*", "+", "?", "{2}", "{1,3}", "{2,}"};
    static const uint32_t least[] = {0, 1, 0, 2, 1, 2}, most[] = {RE_NO_MAX, RE_NO_MAX, 1, 2, 3, RE_NO_MAX};
    unsigned k = next_random(6);
    snprintf(t->text, sizeof t->text, "(?:%.1900s)%s", a->text, quantifiers[k]);
    t->texts = repeat(&a->texts, least[k], most[k] == RE_NO_MAX ? 100 : most[k]);
    t->re = re_repeat(r, a->re, least[k], most[k]);
}

/* logic: intersections and complements, which have no pattern. */
static struct tree *make_tree(struct regex *r, struct tree *pool, unsigned depth, bool logic)
{
    struct tree *t = pool++;
    unsigned kind = depth ? next_random(logic ? 6 : 4) : 0;
    if (kind == 0) {
        make_leaf(r, t);
        return t;
    }
    struct tree *a = make_tree(r, pool, depth - 1, logic);
    if (kind == 1) {
        make_repeat(r, t, a);
        return t;
    }
    struct tree *b = make_tree(r, pool + 200 / (1u << (6 - depth)), depth - 1, logic);
    if (kind == 2) {
        snprintf(t->text, sizeof t->text, "(?:%.1900s)(?:%.1900s)", a->text, b->text);
        t->texts = cat(&a->texts, &b->texts);
        t->re = re_cat(r, a->re, b->re);
    } else if (kind == 3) {
        snprintf(t->text, sizeof t->text, "%.1900s|%.1900s", a->text, b->text);
        t->texts = join(&a->texts, &b->texts);
        t->re = re_or2(r, a->re, b->re);
    } else {
        t->texts = meet(&a->texts, &b->texts, kind == 5);
        t->re = re_and2(r, a->re, kind == 5 ? re_not(r, b->re) : b->re);
    }
    return t;
}

static void compare(struct regex *r, re_id re, const struct texts *want, const char *what)
{
    unsigned n = 0;
    for (unsigned i = 1; i < N_TEXTS; i++) {
        char text[LONGEST + 1];
        unsigned length = spell(i, text);
        n += want->has[i];
        if (re_matches(r, re, text, length) != want->has[i]) fail_msg("'%s' for %s", text, what);
    }
    assert_int_equal(r->l->rc, 0);
    assert_true(n == 0 || re_is_live(r, re));
    assert_true(re_count(r, re, 3) >= (n < 3 ? n : 3));
}

static void random_expressions(bool logic)
{
    static struct tree pool[400];
    for (unsigned i = 0; i < 600; i++) {
        struct limits l = {.max_bytes = (size_t)64 << 20, .work = 10000000};
        struct regex r;
        random_state = i;
        assert_true(regex_init(&r, &l));
        struct tree *t = make_tree(&r, pool, 1 + i % 6, logic);
        compare(&r, t->re, &t->texts, t->text);
        if (!logic) compare(&r, pattern_compile(&r, t->text, strlen(t->text), PATTERN_WHOLE), &t->texts, t->text);
        regex_deinit(&r);
        assert_int_equal(l.bytes, 0);
    }
}

static void random_patterns_match_their_texts(void **state)
{
    (void)state;
    random_expressions(false);
}

static void random_intersections_and_complements_match_their_texts(void **state)
{
    (void)state;
    random_expressions(true);
}

/* ---- random rules ---- */

#define N_RULES 3
#define N_PARTS 3

/* Each branch is a list of parts: 0: none, 1, 2: the characters, 3 and up: rules. */
struct random_rules {
    unsigned n_branches[N_RULES], branch[N_RULES][3][N_PARTS];
};

static void make_rules(struct random_rules *g, char *text, size_t cap)
{
    static const char *const words[] = {"\"\"", "\"a\"", "\"b\"", "root", "x", "y"};
    size_t n = 0;
    for (unsigned i = 0; i < N_RULES; i++) {
        g->n_branches[i] = 1 + next_random(3);
        n += (size_t)snprintf(text + n, cap - n, "%s ::=", words[3 + i]);
        for (unsigned b = 0; b < g->n_branches[i]; b++) {
            n += (size_t)snprintf(text + n, cap - n, b ? " |" : "");
            for (unsigned k = 0; k < N_PARTS; k++) {
                unsigned part = next_random(8);
                g->branch[i][b][k] = part > 5 ? part - 5 : part;
                n += (size_t)snprintf(text + n, cap - n, " %s", words[g->branch[i][b][k]]);
            }
        }
        n += (size_t)snprintf(text + n, cap - n, "\n");
    }
}

/* The texts of the rules: the least fixed point. */
static struct texts texts_of(const struct random_rules *g)
{
    struct texts rules[N_RULES] = {{{false}}}, before[N_RULES];
    do {
        memcpy(before, rules, sizeof rules);
        for (unsigned i = 0; i < N_RULES; i++)
            for (unsigned b = 0; b < g->n_branches[i]; b++) {
                struct texts t = one_text(1);
                for (unsigned k = 0; k < N_PARTS; k++) {
                    unsigned part = g->branch[i][b][k];
                    struct texts x = part < 3 ? one_text(part ? part + 1 : 1) : rules[part - 3];
                    t = cat(&t, &x);
                }
                rules[i] = join(&rules[i], &t);
            }
    } while (memcmp(before, rules, sizeof rules) != 0);
    return rules[0];
}

static bool fits(struct grammar *g, const char *text, size_t n)
{
    struct grammar_cursor *c;
    struct qn_error e;
    assert_int_equal(grammar_cursor_new(&c, g, &e), 0);
    int rc = grammar_commit_bytes(c, text, n, &e);
    bool whole = rc == 0 && grammar_is_complete(c);
    grammar_cursor_free(c);
    return whole;
}

static void random_rules_have_their_texts(void **state)
{
    (void)state;
    unsigned n_compiled = 0;
    for (unsigned i = 0; i < 1500; i++) {
        struct random_rules rules;
        struct grammar *g = NULL;
        struct qn_error e = {0};
        char source[1000];
        random_state = i;
        make_rules(&rules, source, sizeof source);
        if (grammar_from_gbnf(&g, source, strlen(source), NULL, &e)) continue; /* many begin with themselves */
        struct texts want = texts_of(&rules);
        for (unsigned k = 1; k < N_TEXTS; k++) {
            char text[LONGEST + 1];
            unsigned n = spell(k, text);
            if (fits(g, text, n) != want.has[k]) fail_msg("'%s' for %s", text, source);
        }
        grammar_free(g);
        n_compiled++;
    }
    assert_true(n_compiled > 300);
}

/* ---- the syntax of patterns ---- */

static void patterns_are_read_as_ecma_says(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *in[4], *out[4];
    } cases[] = {
        {"^\\u{1F600}\\uD83D\\uDE00\\x41\\cJ\\0?$",
         {"\xF0\x9F\x98\x80\xF0\x9F\x98\x80"
          "A\n"},
         {"A"}},
        {"^[\\]\\-^a-c]$", {"]", "-", "^", "b"}, {"d", ""}},
        {"^[a-]$", {"a", "-"}, {"b"}},
        {"^[\\d-x]$", {"5", "-", "x"}, {"y"}},
        {"^a{,2}b{$", {"a{,2}b{"}, {"ab"}},
        {"^[^]$", {"\n", "\xC3\xA9"}, {"", "ab"}},
        {"[]", {NULL}, {"", "a"}},
        {"^.$", {"\xE2\x82\xAC", "\t"}, {"\n", "\r", "\xE2\x80\xA8"}},
        {"^(?<name>a)(?:b)(c)??$", {"ab", "abc"}, {"abcc"}},
        {"^\\W\\S\\D$", {"-aa"}, {"aaa", "- a", "-a1"}},
        {"^\\P{L}\\p{gc=Nd}$", {"12"}, {"a2", "1a"}},
        {"(^a|b$)", {"ac", "cb"}, {"ca", "bc"}},
        {"^$|^x", {"", "xy"}, {"y"}},
        {"a(?=b)", {"xab"}, {"a", "axb"}},
        {"^(?:a(?!b))?c", {"c", "ac"}, {"abc"}},
        {"^/\\/[.]\\.$", {"//.."}, {"//ab"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct limits l = {.max_bytes = (size_t)64 << 20, .work = 10000000};
        struct regex r;
        assert_true(regex_init(&r, &l));
        re_id re = pattern_compile(&r, cases[i].pattern, strlen(cases[i].pattern), PATTERN_SEARCH);
        if (l.rc) fail_msg("%s for %s", l.error.msg, cases[i].pattern);
        for (int k = 0; k < 4 && cases[i].in[k]; k++)
            if (!re_matches(&r, re, cases[i].in[k], strlen(cases[i].in[k])))
                fail_msg("%s: %s", cases[i].pattern, cases[i].in[k]);
        for (int k = 0; k < 4 && cases[i].out[k]; k++)
            if (re_matches(&r, re, cases[i].out[k], strlen(cases[i].out[k])))
                fail_msg("%s: %s", cases[i].pattern, cases[i].out[k]);
        regex_deinit(&r);
    }
}

static void malformed_patterns_name_the_place(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        int code;
        const char *words;
    } cases[] = {
        {"a)", QN_EDATA, "character 2 "},           {"(a", QN_EDATA, "character 3 "},
        {"[a", QN_EDATA, "']' is missing"},         {"*a", QN_EDATA, "nothing to repeat"},
        {"a**", QN_EDATA, "nothing to repeat"},     {"a{3,2}", QN_EDATA, "above the most"},
        {"[b-a]", QN_EDATA, "wrong way"},           {"\\", QN_EDATA, "ends with"},
        {"(?<=a)b", QN_EUNSUP, "lookbehind"},       {"\\bx", QN_EUNSUP, "\\b"},
        {"(a)\\1", QN_EUNSUP, "back-references"},   {"\\p{Greek}", QN_EUNSUP, "general category"},
        {"(?i)a", QN_EUNSUP, "kind of group"},      {"\\A", QN_EUNSUP, "letter after"},
        {"(?:^a)+", QN_EUNSUP, "assertion inside"}, {"a?^b", QN_EUNSUP, "'^' after"},
        {"a{100001}", QN_EDATA, "100000"},          {"\xFF", QN_EDATA, "not UTF-8"},
        {"\\u12", QN_EDATA, "hexadecimal"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct limits l = {.max_bytes = (size_t)64 << 20, .work = 10000000};
        struct regex r;
        assert_true(regex_init(&r, &l));
        assert_int_equal(pattern_compile(&r, cases[i].pattern, strlen(cases[i].pattern), PATTERN_SEARCH), RE_NONE);
        if (l.rc != cases[i].code || !strstr(l.error.msg, cases[i].words))
            fail_msg("%d '%s' for %s", l.rc, l.error.msg, cases[i].pattern);
        regex_deinit(&r);
    }
}

/* A pattern that may match anywhere has many states, and each of them with each length. */
static void long_texts_with_a_pattern_inside_are_live_without_a_search(void **state)
{
    (void)state;
    static const char pattern[] = "\\d+-[A-Fa-f0-9]*-[A-Fa-f0-9]{24}", text[] = "1-ab-2-0f-3-cd-4-5-6-7-8-9a";
    struct limits l = {.max_bytes = 16 << 20, .work = 3000};
    struct regex r;
    assert_true(regex_init(&r, &l));
    re_id re = re_and2(&r, re_chars(&r, 500, RE_NO_MAX), pattern_compile(&r, pattern, strlen(pattern), PATTERN_SEARCH));
    for (size_t i = 0; i < strlen(text); i++) {
        re = re_step(&r, re, (uint8_t)text[i]);
        assert_true(re != RE_NONE);
    }
    assert_int_equal(l.rc, 0);
    /* Nothing is claimed of texts that are limited, or are no UTF-8. */
    re = re_and2(&r, re_chars(&r, 500, 600), re_cat(&r, re_text(&r, "a", 1), re_chars(&r, 0, 20)));
    assert_false(re_is_live(&r, re));
    re = re_and2(&r, re_chars(&r, 2, RE_NO_MAX), re_cat(&r, re_range(&r, 0xFF, 0xFF), re_chars(&r, 0, RE_NO_MAX)));
    assert_false(re_is_live(&r, re));
    regex_deinit(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_patterns_match_their_texts),
        cmocka_unit_test(random_intersections_and_complements_match_their_texts),
        cmocka_unit_test(random_rules_have_their_texts),
        cmocka_unit_test(patterns_are_read_as_ecma_says),
        cmocka_unit_test(malformed_patterns_name_the_place),
        cmocka_unit_test(long_texts_with_a_pattern_inside_are_live_without_a_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
