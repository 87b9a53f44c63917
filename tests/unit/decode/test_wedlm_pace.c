/* SPDX-License-Identifier: MIT
 *
 * test_wedlm_pace.c: windows grow where guesses are right, end where they are not, and come back: alone, and together
 * with the controller of drafts in a simulation of answers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/inline/minmax.h"
#include "decode/wedlm_pace.h"

/* Steps whose time grows by a tenth with each row. */
static struct draft_control control(void)
{
    struct draft_control c;
    double relative[31];
    for (int i = 0; i < 31; i++) relative[i] = 1 + 0.1 * i;
    draft_control_init(&c, relative, 31);
    return c;
}

/* n steps in which `right` guesses in a row would be right. Returns the last window; *tokens, *time: the sums. */
static int steps(struct wedlm_pace *p, const struct draft_control *c, int n, int right, double *tokens, double *time)
{
    int window = 0, before = 0;
    for (int i = 0; i < n; i++) {
        window = wedlm_pace_choose(p, NULL, c, 1, 1, 31);
        assert_true(window == 0 || window == 2 || window == 4 || window == 8 || window == 16);
        int n_right = right < before ? right : before - 1;
        if (n_right < 0) n_right = 0;
        if (window || before) wedlm_pace_saw(p, NULL, before, n_right, true);
        *tokens += 1 + n_right;
        *time += 1 + 0.1 * (window + n_right);
        before = window;
    }
    return window;
}

static void right_guesses_make_it_wide(void **state)
{
    struct draft_control c = control();
    struct wedlm_pace p = {0};
    double tokens = 0, time = 0;
    (void)state;
    assert_int_equal(steps(&p, &c, 100, 16, &tokens, &time), 16);
    assert_true(tokens / time > 3);
}

static void some_right_guesses_keep_it_narrow(void **state)
{
    struct draft_control c = control();
    struct wedlm_pace p = {0};
    double tokens = 0, time = 0;
    (void)state;
    assert_in_range(steps(&p, &c, 100, 2, &tokens, &time), 2, 4);
}

static void wrong_guesses_end_it_within_32_tokens(void **state)
{
    struct draft_control c = control();
    struct wedlm_pace p = {0};
    double tokens = 0, time = 0;
    (void)state;
    assert_int_equal(steps(&p, &c, 32, 0, &tokens, &time), 0);
    tokens = time = 0;
    steps(&p, &c, 2000, 0, &tokens, &time);
    assert_true(tokens / time > 0.98); /* what the trials cost */
}

static void it_comes_back_when_the_text_changes(void **state)
{
    struct draft_control c = control();
    struct wedlm_pace p = {0};
    double tokens = 0, time = 0;
    (void)state;
    steps(&p, &c, 200, 0, &tokens, &time);
    steps(&p, &c, 1000, 16, &tokens, &time);
    tokens = time = 0;
    assert_int_equal(steps(&p, &c, 50, 16, &tokens, &time), 16);
    assert_int_equal(steps(&p, &c, 32, 0, &tokens, &time), 0);
}

/* As long as guesses have no rows, only one is compared in each step. */
static void what_was_not_compared_is_no_miss(void **state)
{
    struct draft_control c = control();
    struct wedlm_pace p = {0};
    (void)state;
    for (int i = 0; i < 20; i++) {
        assert_true(wedlm_pace_choose(&p, NULL, &c, 1, 1, 31) >= 4);
        wedlm_pace_saw(&p, NULL, 8, 1, false);
    }
}

static void there_is_none_without_room(void **state)
{
    struct draft_control c = control();
    struct wedlm_pace p = {0};
    (void)state;
    assert_int_equal(wedlm_pace_choose(&p, NULL, &c, 1, 1, 1), 0);
    assert_int_equal(wedlm_pace_choose(&p, NULL, &c, 1, 1, 3), 3);
    assert_int_equal(wedlm_pace_choose(&p, NULL, &c, 1, 1, 31), 4);
}

/* A window of two brings one guess at most, which says nothing against a larger one. */
static void a_narrow_window_does_not_stay_narrow(void **state)
{
    struct draft_control c = control();
    struct wedlm_pace p = {0};
    (void)state;
    for (int i = 0; i < 30; i++) wedlm_pace_saw(&p, NULL, 2, 1, true);
    assert_true(wedlm_pace_choose(&p, NULL, &c, 1, 1, 31) > 2);
}

static void an_answer_begins_with_what_others_brought(void **state)
{
    struct draft_control c = control();
    struct wedlm_pace all = {0}, p = wedlm_pace_begin(&all);
    (void)state;
    assert_int_equal(wedlm_pace_choose(&p, NULL, &c, 1, 1, 31), 4);
    for (int i = 0; i < 100; i++) wedlm_pace_saw(&p, &all, 4, 0, true);
    p = wedlm_pace_begin(&all);
    assert_int_equal(wedlm_pace_choose(&p, NULL, &c, 1, 1, 31), 0);
    for (int i = 0; i < 300; i++) wedlm_pace_saw(&p, &all, 16, 15, true);
    p = wedlm_pace_begin(&all);
    assert_int_equal(wedlm_pace_choose(&p, NULL, &c, 1, 1, 31), 16);
}

/* ---- a simulation ---- */

/* An answer's windows, on a machine whose steps take 1 + slope for each further row. */
struct scene {
    struct draft_control *c;
    struct wedlm_pace *all;
    double slope;
};

struct outcome {
    double time;
    int n_steps;
};

/* One answer of n tokens, of which each window's guesses are right up to `right` in a row. Only masks that had rows are
 * filled, and only filled masks can be guesses. */
static struct outcome answer(const struct scene *a, int n, int right)
{
    uint8_t sureness[DRAFT_MOST];
    struct draft_record record = {0};
    struct wedlm_pace p = wedlm_pace_begin(a->all);
    struct outcome o = {0, 0};
    int before = 0, n_filled = 0;
    memset(sureness, right ? 6 : 1, sizeof sureness);
    for (int done = 0; done < n; o.n_steps++) {
        bool may = draft_control_may(a->c, 1);
        int most = min_int(n - done - 1, 31);
        int window = may ? wedlm_pace_choose(&p, a->all, a->c, 1, 1, most) : 0, n_plan = min_int(n_filled, most);
        struct draft_plan plan = {.record = &record, .sureness = sureness, .n = n_plan, .most = n_plan};
        a->c->n_aside = window;
        draft_control_share(a->c, &plan, n_plan > 0, 1, 1, 31 - window);
        int rows = plan.n_rows + window, n_right = min_int(right, n_plan);
        int accepted = min_int(n_right, plan.n_rows), n_known = min_int(accepted + 1, n_plan);
        if (n_plan) draft_control_saw(a->c, &plan, n_known, min_int(n_right, n_known));
        wedlm_pace_saw(&p, a->all, before, min_int(n_right, n_known), true);
        double time = 1 + a->slope * rows;
        draft_control_took(a->c, 1 + rows, rows, 0.01 * time);
        o.time += time;
        done += 1 + accepted;
        n_filled = window > 1 ? min_int(window - 1, right + 1) : 0;
        before = window;
    }
    return o;
}

/* Tokens in the time of a plain step, over many answers of n tokens. */
static double speed(const struct scene *a, int n_answers, int n, int right)
{
    double time = 0;
    for (int i = 0; i < n_answers; i++) time += answer(a, n, right).time;
    return n_answers * n / time;
}

static void windows_that_gain_are_used_and_others_cost_little(void **state)
{
    (void)state;
    static struct draft_control c;
    static const double slopes[] = {0.01, 0.05, 0.1, 0.3};
    for (size_t i = 0; i < sizeof slopes / sizeof *slopes; i++)
        for (int n = 15; n <= 500; n *= 5) {
            struct wedlm_pace all = {0};
            struct scene a = {&c, &all, slopes[i]};
            draft_control_init(&c, NULL, 0);
            double lost = speed(&a, 8000 / n, n, 0);
            all = (struct wedlm_pace){0};
            draft_control_init(&c, NULL, 0);
            double gained = speed(&a, 8000 / n, n, 15);
            if (lost < 0.98) fail_msg("slope %g, %d tokens: %.3f where no guess is right", slopes[i], n, lost);
            double least = slopes[i] < 0.2 ? 1.5 : n == 15 ? 0.97 : 1.2;
            if (gained < least) fail_msg("slope %g, %d tokens: %.3f where all are right", slopes[i], n, gained);
        }
}

/* Answers whose guesses are never right have used up the account. The next ones gain all the same: what their masks
 * cost is taken out together with what they bring. */
static void windows_are_used_again_after_answers_without_gain(void **state)
{
    (void)state;
    static struct draft_control c;
    struct wedlm_pace all = {0};
    struct scene a = {&c, &all, 0.1};
    draft_control_init(&c, NULL, 0);
    speed(&a, 100, 20, 0);
    c.credit = 0.001;
    double gained = speed(&a, 20, 100, 15);
    if (gained < 1.8) fail_msg("%.3f of plain steps", gained);
}

/* If each of them tried a window, a sixteenth of all steps would have one in vain. */
static void short_answers_share_their_trials(void **state)
{
    (void)state;
    enum { N_ANSWERS = 200, N_STEPS = 64 };
    struct draft_control c = control();
    struct wedlm_pace all = {0};
    int n_windows = 0;
    for (int i = 0; i < N_ANSWERS; i++) {
        struct wedlm_pace p = wedlm_pace_begin(&all);
        for (int k = 0, before = 0; k < N_STEPS; k++) {
            int window = wedlm_pace_choose(&p, &all, &c, 1, 1, 31);
            wedlm_pace_saw(&p, &all, before, 0, true);
            n_windows += window > 0;
            before = window;
        }
    }
    assert_in_range(n_windows, 16, N_ANSWERS * N_STEPS / 80);
    for (int i = 0, is_wide = 0; !is_wide; i++) { /* the texts are others now: a trial shows it */
        struct wedlm_pace p = wedlm_pace_begin(&all);
        assert_in_range(i, 0, 30);
        for (int k = 0, before = 0; k < N_STEPS; k++) {
            int window = wedlm_pace_choose(&p, &all, &c, 1, 1, 31);
            wedlm_pace_saw(&p, &all, before, before ? before - 1 : 0, true);
            is_wide |= window == 16;
            before = window;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_guesses_make_it_wide),
        cmocka_unit_test(some_right_guesses_keep_it_narrow),
        cmocka_unit_test(wrong_guesses_end_it_within_32_tokens),
        cmocka_unit_test(it_comes_back_when_the_text_changes),
        cmocka_unit_test(what_was_not_compared_is_no_miss),
        cmocka_unit_test(there_is_none_without_room),
        cmocka_unit_test(a_narrow_window_does_not_stay_narrow),
        cmocka_unit_test(an_answer_begins_with_what_others_brought),
        cmocka_unit_test(windows_that_gain_are_used_and_others_cost_little),
        cmocka_unit_test(windows_are_used_again_after_answers_without_gain),
        cmocka_unit_test(short_answers_share_their_trials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
