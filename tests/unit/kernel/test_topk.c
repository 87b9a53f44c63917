/* SPDX-License-Identifier: MIT
 *
 * test_topk.c: the largest values against a plain search: among equals the lower index comes first, and NaN comes last.
 *
 * Levels without a function of their own have the reference's, so that no comparison of levels would show its faults.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/rng.h"
#include "kernel/cpu.h"

#define MAX_N 100

static _Alignas(64) uint8_t scratch[KERNEL_SCRATCH_BYTES];

/* Whether index i goes before index j. */
static bool goes_before(const float *x, int i, int j)
{
    if (isnan(x[i]) || isnan(x[j])) return isnan(x[i]) && isnan(x[j]) ? i < j : isnan(x[j]);
    return x[i] > x[j] || (x[i] == x[j] && i < j);
}

/* The index in place `rank` of the order. */
static int index_at(const float *x, int n, int rank)
{
    for (int i = 0; i < n; i++) {
        int n_before = 0;
        for (int j = 0; j < n; j++) n_before += goes_before(x, j, i);
        if (n_before == rank) return i;
    }
    return -1;
}

static void check(const struct kernels *k, const float *x, int n)
{
    int32_t got[MAX_N];
    for (int count = 0; count <= n; count += 1 + count / 3) {
        k->topk(x, n, count, got, scratch);
        for (int i = 0; i < count; i++) assert_int_equal(got[i], index_at(x, n, i));
    }
    const int best = index_at(x, n, 0);
    assert_int_equal(k->argmax(x, n, scratch), isnan(x[best]) ? -1 : best);
}

static void equals_keep_their_order(void **state)
{
    (void)state;
    for (enum cpu_level l = 0; l < CPU_N; l++) {
        struct kernels k;
        if (!cpu_has(l)) continue;
        kernels_init(&k, l);
        check(&k, (const float[]){3, 5, 5, 1, 5, 3}, 6);
        check(&k, (const float[]){0.0F, -0.0F, 0.0F}, 3);
        check(&k, (const float[]){NAN, -INFINITY, NAN, -INFINITY, INFINITY, INFINITY}, 6);
        check(&k, (const float[]){NAN, NAN}, 2);
    }
}

static void few_different_values_at_any_place(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 7, 16, 17, 33, 64, MAX_N};
    for (enum cpu_level l = 0; l < CPU_N; l++) {
        struct kernels k;
        if (!cpu_has(l)) continue;
        kernels_init(&k, l);
        for (uint64_t round = 0; round < 40; round++) {
            float x[MAX_N];
            const int n = sizes[round % (sizeof sizes / sizeof *sizes)];
            for (int i = 0; i < n; i++) {
                const uint64_t r = rng_u64(9, round, (uint64_t)i);
                x[i] = r % 16 == 0 ? NAN : (float)(r >> 8 & 3);
            }
            check(&k, x, n);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_keep_their_order),
        cmocka_unit_test(few_different_values_at_any_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
