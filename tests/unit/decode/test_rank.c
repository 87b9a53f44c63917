/* SPDX-License-Identifier: MIT
 *
 * test_rank.c: the lazy order against qsort, on arrays that stress its buckets: ties, one bucket, everything in the
 * last one, both zeros, infinities at the bottom.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "decode/rank.h"

#define MAX_N 20000

static const float *sorted_values;

static int by_value_then_index(const void *a, const void *b)
{
    int i = *(const int *)a, j = *(const int *)b;
    float x = sorted_values[i], y = sorted_values[j];
    return x > y ? -1 : x < y ? 1 : (i > j) - (i < j);
}

static float value(int kind, uint64_t i)
{
    double u = rng_uniform(7, (uint64_t)kind, i);
    switch (kind) {
    case 0: return (float)(u * 40 - 20);
    case 1: return (float)floor(u * 10);   /* many ties */
    case 2: return u < 0.5 ? 0.0f : -0.0f; /* equal, with different bits */
    case 3: return 1e-3f * (float)u;       /* one bucket */
    case 4: return (float)(u * 1e9 - 5e8); /* the last bucket */
    case 5: return u < 0.1 ? FLT_MAX : u < 0.2 ? -FLT_MAX : u < 0.3 ? -INFINITY : (float)u;
    default: return (float)i;
    }
}

static void matches_qsort(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 32, 33, 128, 129, 1000, MAX_N};
    static float v[MAX_N];
    static int want[MAX_N];
    struct arena a;
    struct rank r;

    assert_int_equal(arena_init(&a, rank_bytes(MAX_N), NULL), 0);
    rank_init(&r, MAX_N, &a);
    for (int kind = 0; kind < 7; kind++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            int n = sizes[s];
            for (int i = 0; i < n; i++) {
                v[i] = value(kind, (uint64_t)i);
                want[i] = i;
            }
            v[n / 2] = 1; /* the caller guarantees a finite largest value */
            sorted_values = v;
            qsort(want, (size_t)n, sizeof *want, by_value_then_index);
            rank_begin(&r, v, n);
            for (int i = 0; i < n; i++) assert_int_equal(rank_at(&r, i), want[i]);
            assert_int_equal(rank_at(&r, n / 3), want[n / 3]);
        }
    arena_deinit(&a);
}

static void sorts_no_more_than_is_read(void **state)
{
    (void)state;
    static float v[MAX_N];
    struct arena a;
    struct rank r;

    assert_int_equal(arena_init(&a, rank_bytes(MAX_N), NULL), 0);
    rank_init(&r, MAX_N, &a);
    for (int i = 0; i < MAX_N; i++) v[i] = value(0, (uint64_t)i);
    uint64_t calls = mem_n_calls();
    rank_begin(&r, v, MAX_N);
    rank_at(&r, 39);
    assert_true(r.n_done >= 40 && r.n_done < 400);
    rank_at(&r, 2000);
    assert_true(r.n_done > 2000 && r.n_done < MAX_N);
    assert_true(mem_n_calls() == calls);
    arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_qsort),
        cmocka_unit_test(sorts_no_more_than_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
