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

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "decode/filter.h"
#include "kernel/cpu.h"

#define MAX_N   16
#define LARGE_N 20000
#define LOW     (-1000.0F) /* a probability of 0 beside 0 */

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
    filter_begin(&filter, filter.x, n);
    return &filter;
}

/* Values with ties, zeros of both signs, NaN and -inf. kind 0: all differ; 1: few values; 2: 41 at most are candidates.
 */
static float odd_value(int kind, int i)
{
    uint64_t r = rng_u64(7, (uint64_t)kind, (uint64_t)i);
    if (r % 16 == 0) return -INFINITY;
    if (r % 16 == 1) return __builtin_nanf("");
    if (r % 16 == 2) return r & 64 ? 0.0f : -0.0f;
    if (kind == 2 && i % 500) return -INFINITY;
    return kind == 1 ? (float)(r >> 8 & 7) : (float)(r >> 32) * 1e-9f;
}

static void top_k_at_once_is_the_same_as_top_k(void **state)
{
    (void)state;
    static float v[LARGE_N];
    static int32_t id[LARGE_N];
    static float x[LARGE_N];
    struct arena a;
    struct filter f;
    assert_int_equal(arena_init(&a, filter_bytes(LARGE_N), NULL), 0);
    filter_init(&f, LARGE_N, &kernels, &a);
    for (int kind = 0; kind < 3; kind++)
        for (int n = LARGE_N - 70; n <= LARGE_N; n += 35)
            for (int k = 1; k <= 300; k = k * 3 - 1) {
                for (int i = 0; i < n; i++) v[i] = odd_value(kind, i);
                filter_begin(&f, v, n);
                filter_top_k(&f, k);
                int kept = f.n;
                memcpy(id, f.id, (size_t)kept * sizeof *id);
                memcpy(x, f.x, (size_t)kept * sizeof *x);
                filter_begin_top_k(&f, v, n, k);
                assert_int_equal(f.n, kept);
                assert_memory_equal(f.id, id, (size_t)kept * sizeof *id);
                assert_memory_equal(f.x, x, (size_t)kept * sizeof *x);
            }
    arena_deinit(&a);
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
        cmocka_unit_test(top_k_at_once_is_the_same_as_top_k),
        cmocka_unit_test(min_p_keeps_what_equals_it),
        cmocka_unit_test(top_n_sigma_keeps_what_equals_it),
        cmocka_unit_test(xtc_drops_all_but_the_last_that_reach_the_threshold),
        cmocka_unit_test(mirostat_keeps_what_equals_its_bound),
        cmocka_unit_test(a_draw_at_a_bound_belongs_to_the_next_candidate),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
