/* SPDX-License-Identifier: MIT
 *
 * test_guide.c: the parts of a reply that has a grammar: thoughts, channels, calls, the text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/guide.h"
#include "small_trie.h"

static struct small small;
static struct grammar_shelf shelf;
static qn_token eog;

#define THINK 3 /* user-defined, so that it is not in the tree */

static bool is_silent; /* of the next guide */

static struct guide *guide(const char *pattern, const struct chat_form *form, enum chat_begins begins, bool has_tools,
                           const char *prompt)
{
    struct qn_grammar_params p = {.kind = QN_GRAMMAR_REGEX, .text = pattern, .n = strlen(pattern)};
    struct guide_start start = {form, begins, has_tools, is_silent, prompt, strlen(prompt)};
    struct shelved *s = NULL;
    struct guide *g = NULL;
    struct qn_error e;
    if (shelf_get(&s, &shelf, small.v, &p, &e)) fail_msg("%s", e.msg);
    int rc = guide_new(&g, s, small.v, vocab_n_tokens(small.v), form ? &start : NULL, &e);
    shelf_put(s);
    if (rc) return NULL;
    guide_prepare(g);
    assert_int_equal(guide_failed(g, &e), 0);
    return g;
}

static bool may(const struct guide *g, qn_token t)
{
    const uint64_t *mask = guide_mask(g);
    return !mask || (mask[t / 64] >> (t % 64) & 1);
}

/* The token of one byte. */
static qn_token byte(char c) { return SMALL_WORDS + (uint8_t)c; }

static void take(struct guide *g, qn_token t)
{
    if (!may(g, t)) fail_msg("token %d is not allowed", t);
    guide_take(g, t);
    assert_false(guide_is_ready(g));
    assert_true(guide_try_prepare(g));
    assert_int_equal(guide_failed(g, NULL), 0);
}

static void say(struct guide *g, const char *text)
{
    for (; *text; text++) take(g, byte(*text));
}

/* "ab" and then the end. */
static void say_text(struct guide *g)
{
    assert_false(may(g, byte('b')));
    assert_false(may(g, eog));
    say(g, "ab");
    assert_true(may(g, eog));
    assert_false(may(g, byte('a')));
    guide_free(g);
}

static const struct chat_form thinking = {CHAT_CALLS_TAG, "<think>", "</think>", 0},
                              harmony = {CHAT_CALLS_HARMONY, NULL, NULL, 0}, code = {CHAT_CALLS_CODE, NULL, NULL, 0};

static void a_text_begins_with_its_first_token(void **state)
{
    (void)state;
    struct guide *g = guide("ab", NULL, CHAT_BEGIN_REPLY, false, "");
    assert_false(may(g, byte('<')));
    say_text(g);
}

static void thoughts_are_free_until_their_mark(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) { /* the mark is one token, or several */
        struct guide *g = guide("ab", &thinking, CHAT_BEGIN_REPLY, false, "hi");
        assert_true(may(g, byte('a')) && may(g, byte('<')) && may(g, THINK));
        assert_false(may(g, byte('t')));
        assert_false(may(g, byte('\n')));
        if (i) {
            say(g, "<th");
            assert_false(may(g, byte('a')));
            say(g, "ink>");
        } else {
            take(g, THINK);
        }
        assert_false(may(g, eog));
        say(g, "b, {\"\n</thin</think>");
        assert_true(may(g, byte('a')) && may(g, byte('\n')));
        assert_false(may(g, byte('<')));
        say(g, "\n");
        assert_false(may(g, byte('\n')));
        say_text(g);
    }
}

static void thoughts_may_be_left_out_or_have_begun(void **state)
{
    (void)state;
    say_text(guide("ab", &thinking, CHAT_BEGIN_REPLY, false, ""));
    say_text(guide("ab", &thinking, CHAT_BEGIN_CONTENT, false, ""));
    struct guide *g = guide("ab", &thinking, CHAT_BEGIN_REPLY, false, "<think>\n\n</think>\n\n");
    assert_false(may(g, byte('<')));
    say_text(g);
    g = guide("ab", &thinking, CHAT_BEGIN_THOUGHTS, false, "<think>\n");
    say(g, "x</think>");
    say_text(g);
}

static void thoughts_that_are_switched_off_do_not_begin(void **state)
{
    (void)state;
    is_silent = true;
    struct guide *g = guide("ab", &thinking, CHAT_BEGIN_REPLY, false, "hi");
    is_silent = false;
    assert_false(may(g, byte('<')) || may(g, THINK));
    say_text(g);
}

static void a_call_is_free(void **state)
{
    (void)state;
    struct guide *g = guide("ab", &thinking, CHAT_BEGIN_REPLY, true, "");
    say(g, "<tool_call>");
    assert_null(guide_mask(g));
    say(g, "{}</tool_call>");
    guide_free(g);
    g = guide("ab", &thinking, CHAT_BEGIN_REPLY, false, "");
    say(g, "<t");
    assert_false(may(g, byte('o')));
    guide_free(g);
    assert_null(guide("ab", &code, CHAT_BEGIN_REPLY, true, ""));
}

static void the_grammar_wins_over_a_mark_that_begins_like_its_text(void **state)
{
    (void)state;
    struct guide *g = guide("<t[a-z]", &thinking, CHAT_BEGIN_REPLY, true, "");
    say(g, "<tz");
    assert_true(may(g, eog));
    guide_free(g);
}

static void only_analysis_and_calls_are_free_channels(void **state)
{
    (void)state;
    static const char *const texts[] = {"<|channel|>final<|message|>", "<|channel|>commentary<|message|>",
                                        "<|message|>", "<|channel|>final <|constrain|>json<|message|>"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct guide *g = guide("ab", &harmony, CHAT_BEGIN_REPLY, false, "");
        say(g, "<|channel|>analysis<|message|>Let me <|message|> "
               "see.<|end|><|start|>assistant<|channel|>analysis<|message|>b");
        assert_false(may(g, eog));
        say(g, i % 2 ? "<|end|><|start|>assistant" : "<|start|>assistant");
        say(g, texts[i]);
        say_text(g);
    }
    struct guide *g = guide("ab", &harmony, CHAT_BEGIN_REPLY, true, "");
    say(g, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>");
    assert_null(guide_mask(g));
    guide_free(g);
    g = guide("ab", &harmony, CHAT_BEGIN_REPLY, false, "");
    for (int i = 0; i <= 400; i++) say(g, "x"); /* a head without an end */
    assert_false(may(g, byte('x')));
    guide_free(g);
}

/* The longest tokens that spell what has to come, as far as there is no choice. */
static void what_is_forced(void **state)
{
    (void)state;
    struct guide *g = guide("12abname(0|1)ab12", NULL, CHAT_BEGIN_REPLY, false, "");
    struct guide_forced f;
    guide_forced(g, 9, &f);
    assert_int_equal(f.n, 3);
    assert_string_equal(small_words[f.tokens[0].token], "12");
    assert_string_equal(small_words[f.tokens[1].token], "ab");
    assert_string_equal(small_words[f.tokens[2].token], "name");
    assert_true(!f.tokens[0].is_only && !f.tokens[1].is_last && f.tokens[2].is_last);
    guide_forced(g, 2, &f);
    assert_int_equal(f.n, 2);
    say(g, "12abn");
    guide_forced(g, 9, &f); /* "a" is a byte and a word, "m" only a byte */
    assert_int_equal(f.n, 3);
    assert_true(!f.tokens[0].is_only && f.tokens[1].token == byte('m') && f.tokens[1].is_only);
    say(g, "ame");
    guide_forced(g, 9, &f);
    assert_int_equal(f.n, 0);
    guide_take(g, byte('0'));
    guide_forced(g, 9, &f); /* it is not ready */
    assert_int_equal(f.n, 0);
    guide_free(g);
    g = guide("ab", &thinking, CHAT_BEGIN_REPLY, false, "");
    guide_forced(g, 9, &f); /* thoughts may come, too */
    assert_int_equal(f.n, 0);
    guide_free(g);
}

/* A comment is a part of the text, which is kept. */
static struct shelved *large(int k, size_t bytes)
{
    struct qn_error e;
    struct shelved *g = NULL;
    char *text = malloc(bytes);
    assert_non_null(text);
    memset(text, ' ', bytes);
    int n = snprintf(text, 100, "root ::= \"x%d\"\n#", k);
    text[n] = ' ';
    struct qn_grammar_params p = {.kind = QN_GRAMMAR_GBNF, .text = text, .n = bytes};
    if (shelf_get(&g, &shelf, small.v, &p, &e)) fail_msg("%s", e.msg);
    free(text);
    return g;
}

static void grammars_that_nobody_uses_give_their_memory_back(void **state)
{
    (void)state;
    const size_t bytes = SHELF_IDLE_BYTES / 9; /* a little less than fits 9 times, with the rest of each grammar */
    shelf_deinit(&shelf);
    shelf_init(&shelf);
    struct shelved *used = large(100, bytes);
    for (int i = 0; i < 14; i++) {
        shelf_put(large(i, bytes));
        assert_int_equal(shelf.n, i < 8 ? i + 2 : 9); /* 8 idle ones and the used one */
    }
    struct shelved *last = large(13, bytes);
    assert_int_equal(shelf.n, 9); /* it was there */
    shelf_put(last);
    shelf_put(used); /* it is the least recently used one, and surplus now */
    assert_int_equal(shelf.n, 8);
}

/* ---- memory ---- */

static int get_words(struct shelved **out, int k, struct qn_error *e)
{
    char text[64];
    int n = snprintf(text, sizeof text, "(?:[a-f]{1,9}x%d){1,500}", k);
    const struct qn_grammar_params p = {.kind = QN_GRAMMAR_REGEX, .text = text, .n = (size_t)n};
    return shelf_get(out, &shelf, small.v, &p, e);
}

/* Room for the tree, and for some grammars that nobody uses. */
static void all_memory_comes_from_the_ledger(void **state)
{
    (void)state;
    struct ledger l;
    struct qn_error e = {0};
    struct shelved *first = NULL, *g = NULL;
    struct guide *answer = NULL;
    shelf_deinit(&shelf);
    shelf_init(&shelf);
    ledger_init(&l, (size_t)32 << 20);
    shelf_pay_from(&shelf, &l);
    if (get_words(&first, 0, &e)) fail_msg("%s", e.msg);
    size_t tree = shelf.trie->taken;
    assert_true(tree > 0 && ledger_used(&l) == shelf_bytes(&shelf));
    assert_int_equal(guide_new(&answer, first, small.v, vocab_n_tokens(small.v), NULL, &e), 0);
    guide_prepare(answer);
    assert_int_equal(guide_failed(answer, &e), 0);
    size_t used = ledger_used(&l);

    for (int i = 1; i < 20; i++) { /* one after the other, they stay */
        assert_int_equal(get_words(&g, i, &e), 0);
        shelf_put(g);
    }
    assert_int_equal(shelf.n, 20);
    size_t rest = l.budget - ledger_used(&l);
    assert_int_equal(ledger_take(&l, rest, "the rest", &e), 0); /* others give up their memory for a new one */
    assert_int_equal(get_words(&g, 20, &e), 0);
    assert_true(shelf.n < 20);
    struct shelved *one[SHELF_PLACES] = {NULL};
    int n = 0;
    while (n < SHELF_PLACES && !get_words(&one[n], 100 + n, &e)) n++;
    assert_true(n > 0 && n < SHELF_PLACES && e.code == QN_ENOMEM); /* until all are in use */
    assert_non_null(strstr(e.msg, "memory budget: "));
    while (n) shelf_put(one[--n]);
    shelf_put(g);

    guide_free(answer);
    ledger_give(&l, rest);
    assert_int_equal(ledger_used(&l), shelf_bytes(&shelf));
    assert_true(ledger_used(&l) < used + l.budget / 4);
    shelf_put(first);
    shelf_deinit(&shelf);
    assert_int_equal(ledger_used(&l), 0);
    shelf_init(&shelf);
}

/* Takes all that is left, for others. */
static size_t take_rest(struct ledger *l)
{
    size_t rest = l->budget - ledger_used(l);
    assert_int_equal(ledger_take(l, rest, "the rest", NULL), 0);
    return rest;
}

static void an_answer_without_memory_forgets_what_it_found_out(void **state)
{
    (void)state;
    struct ledger l;
    struct qn_error e = {0};
    struct shelved *g = NULL;
    struct guide *answer = NULL;
    int n_forgotten = 0;
    shelf_deinit(&shelf);
    shelf_init(&shelf);
    ledger_init(&l, (size_t)32 << 20);
    shelf_pay_from(&shelf, &l);
    assert_int_equal(get_words(&g, 0, &e), 0);
    assert_int_equal(guide_new(&answer, g, small.v, vocab_n_tokens(small.v), NULL, &e), 0);
    shelf_put(g);
    guide_prepare(answer);
    size_t rest = take_rest(&l);
    for (int i = 0; i < 1900; i++) {
        size_t before = shelf_bytes(&shelf);
        guide_take(answer, byte("abx0"[i % 4]));
        guide_prepare(answer);
        if (guide_failed(answer, &e)) fail_msg("token %d: %s", i, e.msg);
        n_forgotten += shelf_bytes(&shelf) < before;
    }
    assert_true(n_forgotten > 0);
    guide_free(answer);
    ledger_give(&l, rest);
    shelf_deinit(&shelf);
    assert_int_equal(ledger_used(&l), 0);
    shelf_init(&shelf);
}

static void what_can_be_left_out_and_what_never_fits_drops_no_grammar(void **state)
{
    (void)state;
    struct ledger l;
    struct qn_error e = {0};
    struct shelved *g = NULL;
    struct limits a = {.source = &shelf.source, .max_bytes = (size_t)64 << 20};
    shelf_deinit(&shelf);
    shelf_init(&shelf);
    ledger_init(&l, (size_t)32 << 20);
    shelf_pay_from(&shelf, &l);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(get_words(&g, i, &e), 0);
        shelf_put(g);
    }
    size_t rest = take_rest(&l);
    assert_false(limits_try_take(&a, 1000));
    assert_false(limits_take(&a, l.budget + 1));
    assert_int_equal(a.rc, QN_ENOMEM);
    assert_int_equal(shelf.n, 3);
    a.rc = 0;
    assert_true(limits_take(&a, 1000)); /* this one gets its memory */
    assert_int_equal(shelf.n, 2);
    limits_give(&a, 1000);
    ledger_give(&l, rest);
    shelf_deinit(&shelf);
    assert_int_equal(ledger_used(&l), 0);
    shelf_init(&shelf);
}

/* Two models take from one part of the ledger of requests. */
static void shelves_with_one_ledger_have_idle_grammars_in_common(void **state)
{
    (void)state;
    struct ledger requests, grammars;
    struct grammar_shelf other;
    struct qn_error e = {0};
    struct shelved *g = NULL;
    const size_t bytes = 100000;
    shelf_deinit(&shelf);
    shelf_init(&shelf);
    shelf_init(&other);
    ledger_init(&requests, (size_t)16 << 20);
    ledger_init_part(&grammars, &requests, requests.budget / 2);
    shelf_pay_from(&shelf, &grammars);
    shelf_pay_from(&other, &grammars);
    char *text = malloc(bytes);
    for (int i = 0; i < 40; i++) {
        memset(text, ' ', bytes);
        text[snprintf(text, 30, "root ::= \"%d\"", i)] = ' ';
        struct qn_grammar_params p = {.kind = QN_GRAMMAR_GBNF, .text = text, .n = bytes};
        assert_int_equal(shelf_get(&g, i % 2 ? &other : &shelf, small.v, &p, &e), 0);
        shelf_put(g);
        assert_true(ledger_used(&grammars) <= grammars.budget / 4);
    }
    assert_true(shelf.n > 0 && other.n > 0);
    size_t trees = shelf.trie->taken + other.trie->taken; /* these stay, so the whole pays for them */
    assert_int_equal(ledger_used(&requests), ledger_used(&grammars) + trees);
    free(text);
    shelf_deinit(&other);
    shelf_deinit(&shelf);
    assert_int_equal(ledger_used(&requests), 0);
    shelf_init(&shelf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_begins_with_its_first_token),
        cmocka_unit_test(thoughts_are_free_until_their_mark),
        cmocka_unit_test(thoughts_may_be_left_out_or_have_begun),
        cmocka_unit_test(thoughts_that_are_switched_off_do_not_begin),
        cmocka_unit_test(a_call_is_free),
        cmocka_unit_test(the_grammar_wins_over_a_mark_that_begins_like_its_text),
        cmocka_unit_test(only_analysis_and_calls_are_free_channels),
        cmocka_unit_test(what_is_forced),
        cmocka_unit_test(grammars_that_nobody_uses_give_their_memory_back),
        cmocka_unit_test(all_memory_comes_from_the_ledger),
        cmocka_unit_test(an_answer_without_memory_forgets_what_it_found_out),
        cmocka_unit_test(what_can_be_left_out_and_what_never_fits_drops_no_grammar),
        cmocka_unit_test(shelves_with_one_ledger_have_idle_grammars_in_common),
    };
    int n;
    small = small_open();
    eog = vocab_eog(small.v, &n)[0];
    shelf_init(&shelf);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    shelf_deinit(&shelf);
    small_close(&small);
    return rc;
}
