/* SPDX-License-Identifier: MIT
 *
 * test_grammar.c: GBNF, regular expressions and choices; cursors; masks against the reference, token by token; limits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "small_trie.h"

static struct small small;

static struct grammar *gbnf(const char *text)
{
    struct grammar *g = NULL;
    struct qn_error e = {0};
    if (grammar_from_gbnf(&g, text, strlen(text), NULL, &e)) fail_msg("%s in %s", e.msg, text);
    return g;
}

static struct grammar *regex(const char *text)
{
    struct grammar *g = NULL;
    struct qn_error e = {0};
    if (grammar_from_regex(&g, text, strlen(text), NULL, &e)) fail_msg("%s in %s", e.msg, text);
    return g;
}

/* ---- languages ---- */

static void gbnf_grammars(void **state)
{
    (void)state;
    static const struct {
        const char *text, *fit[5], *misfit[5];
    } cases[] = {
        {"root ::= \"a\" | \"b\" # comment\n", {"a", "b"}, {"", "c", "ab"}},
        {"root ::= x (\",\" x)*\nx ::= [0-9]+ | \"(\" root \")\"\n",
         {"1", "1,22", "(1,(2),3)"},
         {"", "(", "(1", "1,", "()"}},
        {"root ::=\n  \"x\"? y{2,3}\n  | \"z\"\ny ::= [^a-z\\n] .\n",
         {"x1a2b", "1a2b3c", "z"},
         {"x1a", "aa", "1a2b3c4d", "xz"}},
        {"root ::= (\"a\" root \"b\")?", {"", "ab", "aaabbb"}, {"a", "aab", "abb", "ba"}},
        {"root ::= item+ \"\\x21\\u00e9\"\nitem ::= [\\]\\-a] ",
         {"a!\xC3\xA9", "]-!\xC3\xA9"},
         {"!\xC3\xA9", "b!\xC3\xA9"}},
        {"root ::= \"b\" root root | \"\" | \"c\" root", {"", "b", "bb", "bcbbc"}, {"a"}},
        {"root ::= s s\ns ::= \"a\"*", {"", "a", "aaa"}, {"b"}},
        {"root ::= e\ne ::= t (\"+\" t)*\nt ::= \"1\" | \"[\" e \"]\"", {"1+1", "[1+[1]]+1"}, {"1+", "[1"}},
        {"root ::= \"a\" (\"b\" x{3} | \"c\")\nx ::= \"d\" | \"e\" x?", {"abddd", "ac", "abedded"}, {"abdd", "a"}},
        {"root ::= a | b\na ::= \"x\" a\nb ::= \"xy\"", {"xy"}, {"x", "xxy"}}, /* a never ends */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct grammar *g = gbnf(cases[i].text);
        for (int k = 0; k < 5 && cases[i].fit[k]; k++)
            if (!fits(g, cases[i].fit[k])) fail_msg("refused: '%s' by %s", cases[i].fit[k], cases[i].text);
        for (int k = 0; k < 5 && cases[i].misfit[k]; k++)
            if (fits(g, cases[i].misfit[k])) fail_msg("accepted: '%s' by %s", cases[i].misfit[k], cases[i].text);
        grammar_free(g);
    }
}

static void gbnf_errors_name_the_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"root ::= \"a\"\nx = 3", "line 2: '::=' is missing"},
        {"root ::= (\"a\"", "line 1: ')' is missing"},
        {"root ::= \"a", "line 1: "},
        {"root ::= x", "the rule 'x' is not defined"},
        {"x ::= \"a\"", "there is no rule 'root'"},
        {"root ::= root \"a\" | \"b\"", "the rule 'root' calls itself before it reads anything"},
        {"root ::= x\nx ::= \"\"? root", "calls itself"},
        {"root ::= \"a\" root", "the rule 'root' has no text that ends"},
        {"root ::= \"a\"{3,2}", "above the most"},
        {"root ::= <tool>", "tokens by name"},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2: a rule is defined twice"},
        {"root ::= [z-a]", "wrong way round"},
        {"root ::= \"\\q\"", "an unknown escape"},
        {"root ::= \"\xFF\"", "not UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct grammar *g = NULL;
        struct qn_error e = {0};
        int rc = grammar_from_gbnf(&g, cases[i].text, strlen(cases[i].text), NULL, &e);
        if (rc != QN_EDATA || !strstr(e.msg, cases[i].words)) fail_msg("%d '%s' for %s", rc, e.msg, cases[i].text);
        assert_null(g);
    }
}

static void regexes_and_choices(void **state)
{
    (void)state;
    struct qn_error e = {0};
    struct grammar *g = regex("(yes|no)( please){0,2}[.!]?");
    assert_true(fits(g, "yes please please!") && fits(g, "no") && fits(g, "no."));
    assert_false(fits(g, "maybe") || fits(g, "yes please please please") || fits(g, ""));
    grammar_free(g);
    g = regex("^\\w+@\\w+$");
    assert_true(fits(g, "a@b"));
    assert_false(fits(g, "a@") || fits(g, "a@b!"));
    grammar_free(g);
    const struct str choices[] = {{"red", 3}, {"green", 5}, {"redder", 6}, {"red", 3}};
    assert_int_equal(grammar_from_choice(&g, choices, 4, NULL, &e), 0);
    assert_true(fits(g, "red") && fits(g, "redder") && fits(g, "green"));
    assert_false(fits(g, "re") || fits(g, "reddest") || fits(g, ""));
    grammar_free(g);
    g = NULL;
    assert_int_equal(grammar_from_choice(&g, choices, 0, NULL, &e), QN_EDATA);
    const struct str huge = {"red", ((size_t)1 << 32) + 3}; /* more than 32 bits can say: it is not "red" */
    assert_int_equal(grammar_from_choice(&g, &huge, 1, NULL, &e), QN_EUNSUP);
    assert_int_equal(grammar_from_regex(&g, "a(", 2, NULL, &e), QN_EDATA);
    assert_non_null(strstr(e.msg, "character 3 of the pattern: ')' is missing"));
    assert_int_equal(grammar_from_regex(&g, "a(?!a)a", 7, NULL, &e), QN_EDATA);
    assert_string_equal(e.msg, "no text fits it");
    assert_null(g);
    assert_int_equal(grammar_from_json_object(&g, NULL, &e), 0);
    assert_true(fits(g, "{\"a\":[{}]}"));
    assert_false(fits(g, "[]") || fits(g, "1"));
    grammar_free(g);
}

/* ---- cursors ---- */

static void a_commit_that_does_not_fit_changes_nothing(void **state)
{
    (void)state;
    struct grammar *g = grammar_of("{\"enum\":[\"red\",\"green\"]}", NULL);
    struct grammar_cursor *c, *copy;
    struct qn_error e = {0};
    assert_int_equal(grammar_cursor_new(&c, g, &e), 0);
    assert_int_equal(grammar_commit_bytes(c, "\"re", 3, &e), 0);
    assert_int_equal(grammar_commit_bytes(c, "dd", 2, &e), QN_EDATA);
    assert_string_equal(e.msg, "byte 2 does not fit the grammar");
    assert_int_equal(grammar_commit_token(c, small.t, 1, &e), QN_EDATA); /* <s> is never part of a text */
    assert_int_equal(grammar_commit_token(c, small.t, -1, &e), QN_EUSAGE);
    assert_int_equal(grammar_commit_token(c, small.t, small.t->n_tokens, &e), QN_EUSAGE);
    assert_int_equal(grammar_cursor_copy(&copy, c, &e), 0);
    assert_int_equal(grammar_commit_token(c, small.t, small_token(&small, "d"), &e), 0);
    assert_false(grammar_is_complete(c));
    assert_int_equal(grammar_commit_bytes(c, "\"", 1, &e), 0);
    assert_true(grammar_is_complete(c) && !grammar_is_complete(copy));
    assert_int_equal(grammar_commit_bytes(copy, "d\"", 2, &e), 0);
    assert_true(grammar_is_complete(copy));
    grammar_cursor_free(c);
    grammar_cursor_free(copy);
    grammar_free(g);
}

static void forced(struct grammar *g, const char *before, const char *bytes, const char *token)
{
    struct grammar_cursor *c;
    struct qn_error e = {0};
    uint8_t out[101] = {0};
    qn_token only = -2;
    assert_int_equal(grammar_cursor_new(&c, g, &e), 0);
    assert_int_equal(grammar_commit_bytes(c, before, strlen(before), &e), 0);
    assert_int_equal(grammar_forced_bytes(c, out, 100), strlen(bytes));
    assert_string_equal((char *)out, bytes);
    assert_int_equal(grammar_forced_token(c, small.t, &only, &e), 0);
    assert_int_equal(only, token ? small_token(&small, token) : -1);
    assert_in_range(grammar_forced_bytes(c, out, 2), 0, 2);
    grammar_cursor_free(c);
}

static void what_must_come_next(void **state)
{
    (void)state;
    struct grammar *g = grammar_of("{\"type\":\"object\",\"properties\":{\"zq\":{\"type\":\"boolean\"}},\"required\":["
                                   "\"zq\"],\"additionalProperties\":false}",
                                   NULL);
    forced(g, "", "{\"zq\":", NULL); /* '{' or '{"' */
    forced(g, "{\"z", "q\":", "q");
    forced(g, "{\"zq\":", "", NULL);
    forced(g, "{\"zq\":t", "rue}", "r");
    grammar_free(g);
    g = regex("(ab)+");
    forced(g, "", "ab", NULL);
    forced(g, "ab", "", NULL); /* it is complete */
    grammar_free(g);
}

/* ---- masks ---- */

static void mask_at(struct grammar_cursor *c)
{
    struct qn_error e = {0};
    int rc = grammar_mask(c, small.t, small.mask, &e);
    assert_int_equal(rc, grammar_mask_reference(c, small.t, small.wanted, &e));
    assert_memory_equal(small.mask, small.wanted, token_trie_mask_words(small.t) * sizeof *small.mask);
    assert_int_equal(rc, 0);
    assert_true((small.mask[0] & 15) == (grammar_is_complete(c) ? 4 : 0)); /* of the first tokens, only </s> */
}

/* The mask of the grammar after a text. */
static void mask_after(struct grammar *g, const char *text)
{
    struct grammar_cursor *c;
    struct qn_error e = {0};
    assert_int_equal(grammar_cursor_new(&c, g, &e), 0);
    assert_int_equal(grammar_commit_bytes(c, text, strlen(text), &e), 0);
    mask_at(c);
    grammar_cursor_free(c);
}

static void tokens_cross_boundaries(void **state)
{
    (void)state;
    struct grammar *g = grammar_of("{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"ab\":{"
                                   "\"type\":\"string\",\"maxLength\":5}},"
                                   "\"required\":[\"ab\"],\"additionalProperties\":false}}",
                                   NULL);
    mask_after(g, "[{\"ab\":\"x");
    assert_true(small_allows(&small, "\"}") && small_allows(&small, "\"},") && small_allows(&small, "x\"") &&
                small_allows(&small, "aaaa"));
    assert_true(small_allows(&small, "\\ud83d") && small_allows(&small, "\\u") && small_allows(&small, "\\\""));
    assert_false(small_allows(&small, "\",\"") || small_allows(&small, "\"]") || small_allows(&small, "x\","));
    assert_false(small_allows(&small, "aaaaaaaa") || small_allows(&small, "\n") || small_allows(&small, "\\ude00"));
    mask_after(g, "[{\"ab\":\"xx");
    assert_true(small_allows(&small, "abc") && small_allows(&small, "ab\"}]"));
    assert_false(small_allows(&small, "aaaa"));
    mask_after(g, "[{\"ab\":\"\\ud83d");
    assert_true(small_allows(&small, "\\ude00") && small_allows(&small, "\\u"));
    assert_false(small_allows(&small, "a") || small_allows(&small, "\\ud83d") || small_allows(&small, "\\n"));
    mask_after(g, "[{");
    assert_true(small_allows(&small, "\"ab") && small_allows(&small, "\""));
    assert_false(small_allows(&small, "\"x") || small_allows(&small, "}"));
    mask_after(g, "[]");
    grammar_free(g);
    g = grammar_of("{\"type\":\"array\",\"items\":{\"type\":[\"integer\",\"string\"]},\"uniqueItems\":true}", NULL);
    mask_after(g, "[\"");
    assert_true(small_allows(&small, "ab\"") && small_allows(&small, "\",\""));
    assert_false(small_allows(&small, "ab\",\"ab\""));
    mask_after(g, "[2");
    assert_true(small_allows(&small, "1,1"));
    grammar_free(g);
}

static void a_comma_follows_only_where_another_item_is_left(void **state)
{
    (void)state;
    struct grammar *g = grammar_of("{\"type\":\"array\",\"items\":{\"enum\":[12,\"a\",null,\"ab\"]},"
                                   "\"uniqueItems\":true,\"minItems\":2}",
                                   NULL);
    mask_after(g, "[\"a\",null");
    assert_true(small_allows(&small, ",") && small_allows(&small, ",12"));
    mask_after(g, "[\"a\",12");
    assert_true(small_allows(&small, ",") && !small_allows(&small, ",12"));
    mask_after(g, "[\"a\",\"ab\",12,null");
    assert_true(small_allows(&small, "]"));
    assert_false(small_allows(&small, ",") || small_allows(&small, ",12"));
    grammar_free(g);
}

/* Schemas and grammars whose masks are compared with the reference along random texts. */
static const char *const walked[] = {
    "true",
    "{\"type\":\"object\",\"properties\":{\"name\":{},\"ab\":{\"type\":\"integer\"},\"abc\":{\"type\":\"string\"}},"
    "\"additionalProperties\":{\"type\":\"string\"}}",
    "{\"type\":\"object\",\"patternProperties\":{\"^a\":{\"type\":\"number\"}},\"properties\":{\"red\":{\"enum\":["
    "\"red\",\"green\",3]}},\"minProperties\":3}",
    "{\"type\":\"array\",\"items\":{\"anyOf\":[{\"type\":\"string\",\"maxLength\":6},{\"type\":\"string\",\"pattern\":"
    "\"^[ab]+$\"},{\"type\":\"null\"}]}}",
    "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":2},\"uniqueItems\":true}",
    "{\"type\":\"string\",\"minLength\":3,\"maxLength\":40}",
    "{\"type\":\"array\",\"items\":{\"enum\":[\"red\",\"green\",\"ab\",\"abc\",12,1]},\"uniqueItems\":true,"
    "\"maxItems\":4}",
    "{\"type\":\"array\",\"items\":{\"enum\":[0,\"a\",null,\"ab\"]},\"uniqueItems\":true,\"minItems\":2}",
    "{\"type\":\"string\",\"format\":\"date-time\"}",
    "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"ab.?red|\\\\n\\\\d\"}}",
    "{\"type\":\"array\",\"items\":{\"type\":\"number\",\"minimum\":-1,\"maximum\":12.5}}",
    "{\"type\":\"object\",\"propertyNames\":{\"maxLength\":3},\"additionalProperties\":{\"type\":\"string\",\"not\":{"
    "\"enum\":[\"red\",\"ab\"]}}}",
};

static uint64_t random_state;

static unsigned next_random(unsigned below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % below;
}

/* One of the tokens of the mask; -1: it has none but those that end generation. */
static qn_token choose_token(void)
{
    qn_token list[SMALL_WORDS + 256];
    unsigned n = 0;
    for (qn_token i = 3; i < small.t->n_tokens; i++)
        if (small.mask[i / 64] >> (i % 64) & 1) list[n++] = i;
    return n ? list[next_random(n)] : -1;
}

static void walk(struct grammar *g, int n_tokens)
{
    struct grammar_cursor *c;
    struct qn_error e = {0};
    assert_int_equal(grammar_cursor_new(&c, g, &e), 0);
    for (int i = 0; i < n_tokens; i++) {
        mask_at(c);
        qn_token t = choose_token();
        if (t < 0) break;
        assert_int_equal(grammar_commit_token(c, small.t, t, &e), 0);
    }
    grammar_cursor_free(c);
}

static void masks_are_those_of_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof walked / sizeof walked[0]; i++)
        for (unsigned k = 0; k < 8; k++) {
            struct grammar *g = grammar_of(walked[i], &(struct grammar_options){.spaces = k & 1, .any_order = k & 2});
            random_state = k;
            walk(g, 60);
            walk(g, 60);
            grammar_free(g);
        }
    struct grammar *g =
        gbnf("root ::= \"[\" (item (\",\" item)*)? \"]\"\nitem ::= root | \"\\\"\" [^\"\\\\]* \"\\\"\"");
    for (int k = 0; k < 10; k++) walk(g, 60);
    grammar_free(g);
}

/* ---- limits ---- */

static void states_that_nobody_needs_are_dropped(void **state)
{
    (void)state;
    struct grammar_options o = {.memory_bytes = (size_t)1 << 20, .any_order = true};
    struct grammar *g = grammar_of("{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"ab\":{"
                                   "\"type\":\"string\",\"maxLength\":3000}},"
                                   "\"minProperties\":2,\"additionalProperties\":{\"type\":\"array\",\"items\":{"
                                   "\"type\":\"string\"},\"uniqueItems\":true}}}",
                                   &o);
    struct grammar_cursor *c, *other;
    struct qn_error e = {0};
    assert_int_equal(grammar_cursor_new(&c, g, &e), 0);
    assert_int_equal(grammar_commit_bytes(c, "[{\"x\":[\"a\",\"b\"],\"y\":[\"c", 23, &e), 0);
    assert_int_equal(grammar_cursor_copy(&other, c, &e), 0);
    assert_int_equal(grammar_commit_bytes(c, "\"]}", 3, &e), 0);
    size_t most = 0;
    for (int i = 0; i < 400; i++) {
        char text[64];
        snprintf(text, sizeof text, ",{\"k%d\":[\"v%d\"],\"ab\":\"%d%d%d\"}", i, i, i, i, i);
        for (const char *p = text; *p; p++) {
            assert_int_equal(grammar_commit_bytes(c, p, 1, &e), 0);
            if (i % 50 == 0) mask_at(c);
        }
        if (grammar_memory(g) > most) most = grammar_memory(g);
    }
    assert_true(most <= o.memory_bytes);
    assert_int_equal(grammar_commit_bytes(other, "\",\"c\"", 5, &e), QN_EDATA); /* it was there */
    assert_int_equal(grammar_commit_bytes(other, "\",\"d\"],\"x\":[]}]", 15, &e), 0);
    assert_true(grammar_is_complete(other));
    assert_int_equal(grammar_commit_bytes(c, "]", 1, &e), 0);
    assert_true(grammar_is_complete(c));
    grammar_cursor_free(c);
    grammar_cursor_free(other);
    grammar_free(g);
}

static void too_little_memory_is_an_error(void **state)
{
    (void)state;
    struct grammar *g = NULL;
    struct qn_error e = {0};
    json_t *j = json_pack("{s:s}", "type", "object");
    assert_int_equal(grammar_from_schema(&g, j, &(struct grammar_options){.memory_bytes = 2000}, &e), QN_EUNSUP);
    assert_non_null(strstr(e.msg, "1000 bytes"));
    assert_null(g);
    json_decref(j);
}

/* Compiles a grammar, and reads a text with masks. Returns the first failure. */
static int work(const json_t *schema)
{
    struct grammar *g = NULL;
    struct grammar_cursor *c = NULL;
    struct qn_error e = {0};
    const char *text = "{\"red\":\"red\",\"ab\":1,\"ac\":2,\"b\":";
    int rc = grammar_from_schema(&g, schema, NULL, &e);
    if (rc == 0) rc = grammar_cursor_new(&c, g, &e);
    for (; rc == 0 && *text; text++) {
        rc = grammar_mask(c, small.t, small.mask, &e);
        if (rc == 0) rc = grammar_commit_bytes(c, text, 1, &e);
    }
    assert_int_equal(rc, e.code);
    assert_true(rc == 0 || e.msg[0]);
    grammar_cursor_free(c);
    grammar_free(g);
    return rc;
}

/* LeakSanitizer sees what is lost. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    json_t *schema = json_loads(walked[2], 0, NULL);
    for (uint64_t n = 1;; n++) {
        mem_fault_set(n);
        int rc = work(schema);
        bool hit = mem_fault_hit();
        mem_fault_set(0);
        if (!hit) {
            assert_int_equal(rc, 0);
            break;
        }
        if (rc != 0) assert_int_equal(rc, QN_ENOMEM); /* a mask that cannot be kept is no failure */
    }
    json_decref(schema);
}

/* Schemas that the compiler makes of values and of parts of others are whole, or it fails: with a part missing they
 * would accept more. */
static void without_memory_nothing_more_is_accepted(void **state)
{
    static const char *const wrong[] = {"{\"a\":{}", "{\"a\":{\"x\":[1,3", "{\"a\":[3,4", "{\"a\":[3],\"b\":2",
                                        "{\"a\":[3],\"b\":1,\"c\":7}"};
    (void)state;
    json_t *schema = json_loads("{\"type\":\"object\",\"required\":[\"a\",\"b\",\"c\"],\"properties\":{"
                                "\"a\":{\"enum\":[{\"x\":[1,2]},[3]]},"
                                "\"b\":{\"oneOf\":[{\"const\":1},{\"type\":\"string\"}],\"minLength\":2},"
                                "\"c\":{\"type\":\"integer\",\"maximum\":9,\"not\":{\"const\":7}}}}",
                                0, NULL);
    assert_non_null(schema);
    bool hit = true;
    for (uint64_t n = 1; hit; n++) {
        struct grammar *g = NULL;
        struct qn_error e = {0};
        mem_fault_set(n);
        int rc = grammar_from_schema(&g, schema, NULL, &e);
        hit = mem_fault_hit();
        mem_fault_set(0);
        assert_true(rc == 0 || (hit && rc == QN_ENOMEM));
        for (size_t i = 0; rc == 0 && i < sizeof wrong / sizeof *wrong; i++) {
            struct grammar_cursor *c = NULL;
            assert_int_equal(grammar_cursor_new(&c, g, &e), 0);
            assert_int_equal(grammar_commit_bytes(c, wrong[i], strlen(wrong[i]), &e), QN_EDATA);
            grammar_cursor_free(c);
        }
        grammar_free(g);
    }
    json_decref(schema);
}

static int open_small(void **state)
{
    (void)state;
    small = small_open();
    return 0;
}

static int close_small(void **state)
{
    (void)state;
    small_close(&small);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gbnf_grammars),
        cmocka_unit_test(gbnf_errors_name_the_line),
        cmocka_unit_test(regexes_and_choices),
        cmocka_unit_test(a_commit_that_does_not_fit_changes_nothing),
        cmocka_unit_test(what_must_come_next),
        cmocka_unit_test(tokens_cross_boundaries),
        cmocka_unit_test(a_comma_follows_only_where_another_item_is_left),
        cmocka_unit_test(masks_are_those_of_the_reference),
        cmocka_unit_test(states_that_nobody_needs_are_dropped),
        cmocka_unit_test(too_little_memory_is_an_error),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(without_memory_nothing_more_is_accepted),
    };
    json_set_alloc_funcs(mem_alloc, mem_free); /* as in the program: its allocations may fail, too */
    return cmocka_run_group_tests(tests, open_small, close_small);
}
