/* SPDX-License-Identifier: MIT
 *
 * test_abreast.c: two sides that take turns. Threads take the place of schedulers, and do what these do around a step.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/os.h"
#include "cli/measure/abreast.h"

#define STEP_NS 2000000

struct stepper {
    qn_scheduler s;
    struct abreast *a;
    int side, n_steps;
    bool is_late; /* a side that has to read something else between its first steps */
    pthread_t thread;
    uint64_t ran_ns; /* by its clock, in the last step */
};

static atomic_int n_inside;
static int order[64], n_order; /* which side had each step; only read and written inside of one */

static void nap(uint64_t ns) { nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL); }

static void *steps(void *arg)
{
    struct stepper *t = arg;
    for (int i = 0; i < t->n_steps; i++) {
        if (t->is_late && i == 1) nap(20 * STEP_NS);
        t->s.around.begin(t->s.around.arg);
        assert_int_equal(atomic_fetch_add(&n_inside, 1), 0);
        order[n_order++] = t->side;
        uint64_t before = abreast_ns(t->a, t->side);
        nap(STEP_NS);
        t->ran_ns = abreast_ns(t->a, t->side);
        assert_true(t->ran_ns >= before + STEP_NS);
        atomic_fetch_sub(&n_inside, 1);
        t->s.around.end(t->s.around.arg);
    }
    return NULL;
}

static void run(struct stepper *two, int n0, int n1, bool is_late, struct abreast *a)
{
    n_order = 0;
    abreast_init(a, false);
    for (int i = 0; i < 2; i++) {
        two[i] = (struct stepper){.a = a, .side = i, .n_steps = i ? n1 : n0, .is_late = is_late && i == 1};
        abreast_join(a, i, &two[i].s);
    }
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&two[i].thread, NULL, steps, &two[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(two[i].thread, NULL);
    assert_int_equal(n_order, n0 + n1);
    abreast_deinit(a);
}

static bool waits(struct abreast *a, int side)
{
    pthread_mutex_lock(&a->mutex);
    bool is = a->side[side].waits;
    pthread_mutex_unlock(&a->mutex);
    return is;
}

/* The first side, which is this thread, has another step only after the second one, which is known to wait. */
static void who_waits_comes_before_who_had_a_step(void **state)
{
    (void)state;
    struct stepper *two = calloc(2, sizeof *two);
    struct abreast a;
    assert_non_null(two);
    abreast_init(&a, false);
    for (int i = 0; i < 2; i++) abreast_join(&a, i, &two[i].s);
    struct step_around *first = &two[0].s.around;
    first->begin(first->arg);
    for (int i = 0; i < 10; i++) {
        two[1].a = &a, two[1].side = 1, two[1].n_steps = 1;
        n_order = 0;
        assert_int_equal(pthread_create(&two[1].thread, NULL, steps, &two[1]), 0);
        while (!waits(&a, 1)) nap(STEP_NS / 20);
        uint64_t before = abreast_ns(&a, 0);
        first->end(first->arg);
        first->begin(first->arg);
        assert_int_equal(n_order, 1);
        pthread_join(two[1].thread, NULL);
        assert_true(abreast_ns(&a, 0) >= before);
    }
    first->end(first->arg);
    assert_true(two[1].ran_ns >= 10 * (uint64_t)STEP_NS);
    abreast_deinit(&a);
    free(two);
}

/* The clock of a side stands still during the other's steps. */
static void a_clock_runs_in_own_steps_only(void **state)
{
    (void)state;
    struct stepper *two = calloc(2, sizeof *two);
    struct abreast a;
    assert_non_null(two);
    uint64_t t0 = clock_ns();
    run(two, 20, 20, false, &a);
    uint64_t all = clock_ns() - t0;
    for (int i = 0; i < 2; i++) assert_true(two[i].ran_ns >= 20 * (uint64_t)STEP_NS);
    assert_true(two[0].ran_ns + two[1].ran_ns <= all);
    free(two);
}

static void one_goes_on_while_the_other_has_nothing_to_do(void **state)
{
    (void)state;
    struct stepper *two = calloc(2, sizeof *two);
    struct abreast a;
    assert_non_null(two);
    run(two, 9, 3, false, &a);
    run(two, 9, 3, true, &a);
    run(two, 1, 30, false, &a);
    free(two);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_comes_before_who_had_a_step),
        cmocka_unit_test(a_clock_runs_in_own_steps_only),
        cmocka_unit_test(one_goes_on_while_the_other_has_nothing_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
