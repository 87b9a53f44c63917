/* SPDX-License-Identifier: MIT
 *
 * test_nearest.c: mistakes are counted, and only near words are proposed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/nearest.h"

static void mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        size_t n;
    } cases[] = {
        {"", "", 0},
        {"", "abc", 3},
        {"ctx", "ctx", 0},
        {"ctx", "cxt", 1},
        {"ctx", "ct", 1},
        {"ctx", "xtc", 2},
        {"ca", "abc", 3 /* not 2 */},
        {"kitten", "sitting", 3},
        {"ab", "ba", 1},
        {"abcd", "badc", 2},
        {"top_k", "top-k", 1},
        {"temprature", "temperature", 1},
        {"abcdef", "ghi", 6},
        {"aaaa", "aa", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(nearest_distance(cases[i].a, cases[i].b), cases[i].n);
        assert_int_equal(nearest_distance(cases[i].b, cases[i].a), cases[i].n);
    }
}

static void long_words_are_near_nothing(void **state)
{
    (void)state;
    char a[NEAREST_MAX + 2], b[NEAREST_MAX + 2];
    memset(a, 'a', sizeof a);
    memset(b, 'a', sizeof b);
    a[NEAREST_MAX] = b[NEAREST_MAX] = '\0';
    b[0] = 'b';
    assert_int_equal(nearest_distance(a, b), 1);
    a[NEAREST_MAX] = 'a';
    a[NEAREST_MAX + 1] = '\0';
    assert_true(nearest_distance(a, b) == SIZE_MAX && nearest_distance(b, a) == SIZE_MAX);
    struct nearest s = {.word = a};
    nearest_offer(&s, b);
    assert_null(s.best);
}

static const char *near_to(const char *word)
{
    static const char *const words[] = {"temperature", "top-k", "top-p", "ctx", "seed", "listen", "log"};
    struct nearest s = {.word = word};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) nearest_offer(&s, words[i]);
    return s.best;
}

static void only_near_words(void **state)
{
    (void)state;
    assert_string_equal(near_to("temprature"), "temperature");
    assert_string_equal(near_to("Temperature"), "temperature");
    assert_string_equal(near_to("top_p"), "top-p"); /* which is nearer than top-k, offered before */
    assert_string_equal(near_to("cxt"), "ctx");
    assert_null(near_to("top")); /* two of five letters */
    assert_string_equal(near_to("sede"), "seed");
    assert_null(near_to("model"));
    assert_null(near_to(""));
    assert_null(near_to("g"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes),
        cmocka_unit_test(long_words_are_near_nothing),
        cmocka_unit_test(only_near_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
