/* SPDX-License-Identifier: MIT
 *
 * test_pace.c: how many prompt rows go with running answers, on made-up machines.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "engine/core/pace.h"

/* Reading the weights takes 1, computing a row 1 / balance; the longer one counts. */
static double machine(int rows, double balance) { return rows > balance ? rows / balance : 1; }

/* Steps with n_decode rows of answers and as many of a prompt as are allowed; the number it comes to. */
static int settle(struct pace *p, int n_decode, double balance, int most, double *longest)
{
    int rows = 0;
    pace_learn(p, n_decode, 0, machine(n_decode, balance));
    for (int i = 0; i < 60; i++) {
        rows = pace_prefill_rows(p, n_decode, n_decode, 2, most);
        double s = machine(n_decode + rows, balance);
        pace_learn(p, n_decode + rows, rows, s);
        if (s > *longest) *longest = s;
    }
    return rows;
}

static void finds_the_balance(void **state)
{
    (void)state;
    for (double balance = 1; balance < 300; balance *= 1.7)
        for (int n = 1; n <= 16; n *= 2) {
            struct pace p = {0};
            double longest = 0, alone = machine(n, balance);
            int rows = settle(&p, n, balance, 512, &longest);
            int ideal = (int)(2 * alone * balance) - n;
            assert_true(longest <= 3 * alone);
            assert_true(rows <= 512 && (rows >= ideal * 2 / 3 || rows == 512 || rows == 1));
        }
}

static void begins_carefully(void **state)
{
    (void)state;
    struct pace p = {0};
    assert_int_equal(pace_prefill_rows(&p, 1, 1, 2, 512), 1); /* nothing is known */
    pace_learn(&p, 512, 512, 5);
    assert_int_equal(pace_prefill_rows(&p, 1, 1, 2, 512), 1); /* of small steps still nothing */
    pace_learn(&p, 2, 0, 0.1);
    assert_true(pace_prefill_rows(&p, 1, 1, 2, 512) <= 12); /* 5 s for 512 rows, in proportion */
    assert_int_equal(pace_prefill_rows(&p, 1, 1, 2, 1), 1);
}

static void forgets_a_slow_step(void **state)
{
    (void)state;
    struct pace p = {0};
    double longest = 0;
    int before = settle(&p, 2, 40, 512, &longest);
    for (int rows = 2; rows < 100; rows *= 2)
        pace_learn(&p, rows, rows - 2, 30); /* the machine was busy with something else */
    longest = 0;
    int after = settle(&p, 2, 40, 512, &longest);
    assert_true(after * 10 >= before * 8);
}

/* One slow step just before a prompt comes must not make all of its pieces too long: while it is read there are no more
 * steps without it. */
static void believes_no_single_step(void **state)
{
    (void)state;
    struct pace p = {0};
    double longest = 0;
    int before = settle(&p, 2, 40, 512, &longest);
    pace_learn(&p, 2, 0, 2 * machine(2, 40));
    assert_true(pace_prefill_rows(&p, 2, 2, 2, 512) <= before * 115 / 100);
}

/* Every row takes the same time here, so that the limit is reached exactly. */
static void what_takes_as_long_as_the_limit_is_allowed(void **state)
{
    (void)state;
    struct pace p = {0};
    pace_learn(&p, 1, 0, 1);
    assert_int_equal(pace_prefill_rows(&p, 1, 1, 4, 512), 3);
    assert_int_equal(pace_prefill_rows(&p, 2, 2, 4, 512), 6);
    assert_int_equal(pace_prefill_rows(&p, 1, 1, 4, 2), 2);
}

/* Many prompts arrive beside one answer. Steps may be as long as when all are answered, but not without limit. */
static void answers_to_come_count(void **state)
{
    (void)state;
    struct pace p = {0};
    for (int n = 1; n <= 64; n *= 2) pace_learn(&p, n, 0, 1 + n / 8.0);
    assert_int_equal(pace_prefill_rows(&p, 1, 1, 1.75, 512), 6);   /* 1.75 * 1.125 s are 7 rows */
    assert_int_equal(pace_prefill_rows(&p, 1, 4, 1.75, 512), 12);  /* 1.75 * 1.5 s */
    assert_int_equal(pace_prefill_rows(&p, 1, 64, 1.75, 512), 22); /* 2 * 1.75 * 1.125 s */
    assert_int_equal(pace_prefill_rows(&p, 2, 3, 1.75, 512), pace_prefill_rows(&p, 2, 2, 1.75, 512)); /* of one size */
}

/* A row of a prompt takes a fiftieth of the time of 8 answers at first, and half of it at its end. */
static void keeps_the_limit_while_a_prompt_grows_deeper(void **state)
{
    (void)state;
    struct pace p = {0};
    for (int i = 0; i < 50; i++) pace_learn(&p, 8, 0, 1);
    double row = 0.02, longest = 0;
    for (int i = 0; i < 600; i++, row *= 1.0055) {
        int rows = pace_prefill_rows(&p, 8, 8, 1.75, 512);
        double s = 1 + row * rows;
        pace_learn(&p, 8 + rows, rows, s);
        if (s > longest) longest = s;
    }
    assert_true(row > 0.5);
    assert_true(longest < 2.3);
}

/* Steps with a few prompt rows have about as many rows as those without, and must not make them seem slow. */
static void steps_without_a_prompt_keep_their_own_time(void **state)
{
    (void)state;
    struct pace p = {0};
    for (int i = 0; i < 50; i++) pace_learn(&p, 8, 0, 1);
    for (int i = 0; i < 200; i++) pace_learn(&p, 12, 4, 1.75);
    assert_true(pace_prefill_rows(&p, 8, 8, 1.75, 512) <= 5);
    for (int i = 0; i < 200; i++)
        pace_learn(&p, 9, 1, 4); /* the machine became slower: a prompt goes on nevertheless */
    assert_true(pace_prefill_rows(&p, 8, 8, 1.75, 512) >= 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_the_balance),
                                       cmocka_unit_test(begins_carefully),
                                       cmocka_unit_test(forgets_a_slow_step),
                                       cmocka_unit_test(believes_no_single_step),
                                       cmocka_unit_test(answers_to_come_count),
                                       cmocka_unit_test(keeps_the_limit_while_a_prompt_grows_deeper),
                                       cmocka_unit_test(steps_without_a_prompt_keep_their_own_time),
                                       cmocka_unit_test(what_takes_as_long_as_the_limit_is_allowed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
