/* SPDX-License-Identifier: MIT
 *
 * test_filter.c: the filters exactly at their bounds. Logits are equal or far apart, so that probabilities are exact
 * fractions and a sum reaches a bound without rounding.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "decode/filter.h"
#include "kernel/cpu.h"

#define MAX_N 16
#define LOW   (-1000.0F) /* a probability of 0 beside 0 */

static struct arena arena;
static struct kernels kernels;
static struct filter filter;

static int setup(void **state)
{
    (void)state;
    kernels_init(&kernels, cpu_best());
    if (arena_init(&arena, filter_bytes(MAX_N), NULL)) return -1;
    filter_init(&filter, MAX_N, &kernels, &arena);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_deinit(&arena);
    return 0;
}

static struct filter *candidates(const float *x, int n)
{
    memcpy(filter.x, x, (size_t)n * sizeof *x);
    filter_begin(&filter, n);
    return &filter;
}

static void assert_kept(const int32_t *id, int n)
{
    assert_int_equal(filter.n, n);
    for (int i = 0; i < n; i++) assert_int_equal(filter.id[i], id[i]);
}

#define KEPT(...)                                                                                                      \
    assert_kept((const int32_t[]){__VA_ARGS__}, (int)(sizeof(const int32_t[]){__VA_ARGS__} / sizeof(int32_t)))

static const float four_equal[] = {0, 0, 0, 0};

static void top_p_stops_where_the_sum_reaches_it(void **state)
{
    (void)state;
    filter_top_p(candidates(four_equal, 4), 0.5F);
    KEPT(0, 1);
    filter_top_p(candidates(four_equal, 4), 0.75F);
    KEPT(0, 1, 2);
    filter_top_p(candidates(four_equal, 4), 0.7500001F);
    KEPT(0, 1, 2, 3);
    filter_top_p(candidates((const float[]){LOW, 0, LOW, 0}, 4), 1);
    KEPT(1, 3);
    filter_top_p(candidates(four_equal, 4), 0);
    KEPT(0);
}

static void typical_stops_where_the_sum_reaches_it(void **state)
{
    (void)state;
    filter_typical(candidates(four_equal, 4), 0.5F);
    KEPT(0, 1);
    filter_typical(candidates(four_equal, 4), 0.25F);
    KEPT(0);
}

static void top_k_keeps_the_lower_of_equal_tokens(void **state)
{
    (void)state;
    filter_top_k(candidates((const float[]){1, 2, 2, 3, 2}, 5), 3);
    KEPT(3, 1, 2);
    filter_top_k(candidates(four_equal, 4), 1);
    KEPT(0);
}

static void min_p_keeps_what_equals_it(void **state)
{
    (void)state;
    filter_min_p(candidates((const float[]){0, LOW, 0}, 3), 1);
    KEPT(0, 2);
}

static void top_n_sigma_keeps_what_equals_it(void **state)
{
    (void)state;
    filter_top_n_sigma(candidates((const float[]){1, -1, 1, -1}, 4), 2); /* the deviation is 1 */
    KEPT(0, 1, 2, 3);
    filter_top_n_sigma(candidates((const float[]){1, -1, 1, -1}, 4), 1.9999F);
    KEPT(0, 2);
}

static void xtc_drops_all_but_the_last_that_reach_the_threshold(void **state)
{
    (void)state;
    filter_xtc(candidates(four_equal, 4), 0.25F);
    KEPT(3);
    filter_xtc(candidates(four_equal, 4), 0.2500001F);
    KEPT(0, 1, 2, 3);
}

static void mirostat_keeps_what_equals_its_bound(void **state)
{
    (void)state;
    filter_mirostat(candidates((const float[]){0, LOW, 0}, 3), 1.0001);
    KEPT(0, 2);
    filter_mirostat(candidates((const float[]){0, LOW, 0}, 3), 0.5); /* none has so few bits: the most probable */
    KEPT(0, 2);
}

static void a_draw_at_a_bound_belongs_to_the_next_candidate(void **state)
{
    (void)state;
    static const double shares[] = {0, 0.2499, 0.25, 0.5, 0.75, 0.9999};
    static const int want[] = {0, 0, 1, 2, 3, 3};
    for (int i = 0; i < 6; i++) {
        filter_weigh(candidates(four_equal, 4), 1);
        assert_int_equal(filter_draw(&filter, shares[i]), want[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(top_p_stops_where_the_sum_reaches_it),
        cmocka_unit_test(typical_stops_where_the_sum_reaches_it),
        cmocka_unit_test(top_k_keeps_the_lower_of_equal_tokens),
        cmocka_unit_test(min_p_keeps_what_equals_it),
        cmocka_unit_test(top_n_sigma_keeps_what_equals_it),
        cmocka_unit_test(xtc_drops_all_but_the_last_that_reach_the_threshold),
        cmocka_unit_test(mirostat_keeps_what_equals_its_bound),
        cmocka_unit_test(a_draw_at_a_bound_belongs_to_the_next_candidate),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
