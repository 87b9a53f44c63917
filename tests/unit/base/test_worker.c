/* SPDX-License-Identifier: MIT
 *
 * test_worker.c: jobs are run in order, by another thread, and are given back when they are done.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "base/mem.h"
#include "base/worker.h"

#define N 1000

static int n_run;

struct job {
    struct worker_job job;
    pthread_mutex_t *gate; /* NULL: none */
    int place;
    pthread_t thread;
};

static void run(struct worker_job *job)
{
    struct job *j = (struct job *)job;
    if (j->gate) {
        pthread_mutex_lock(j->gate);
        pthread_mutex_unlock(j->gate);
    }
    j->place = n_run++;
    j->thread = pthread_self();
}

static void jobs_are_run_in_order(void **state)
{
    static struct job jobs[N];
    struct worker *w = NULL;
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    (void)state;
    n_run = 0;
    assert_int_equal(worker_new(&w, "a worker", NULL), 0);
    pthread_mutex_lock(&gate);
    for (int i = 0; i < N; i++) {
        jobs[i] = (struct job){.job.run = run, .gate = i ? NULL : &gate};
        worker_post(w, &jobs[i].job);
    }
    assert_false(worker_is_done(w, &jobs[0].job));
    assert_false(worker_is_done(w, &jobs[N - 1].job));
    pthread_mutex_unlock(&gate);
    worker_wait(w, &jobs[N / 2].job);
    for (int i = 0; i <= N / 2; i++) assert_true(worker_is_done(w, &jobs[i].job) && jobs[i].place == i);
    worker_free(w); /* finishes the rest */
    assert_int_equal(n_run, N);
    assert_int_equal(jobs[N - 1].place, N - 1);
    assert_false(pthread_equal(jobs[0].thread, pthread_self()));
}

static void there_may_be_no_memory(void **state)
{
    struct worker *w = NULL;
    struct qn_error e;
    (void)state;
    mem_fault_set(1);
    assert_int_equal(worker_new(&w, "a worker", &e), QN_ENOMEM);
    mem_fault_set(0);
    assert_null(w);
    worker_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_are_run_in_order),
        cmocka_unit_test(there_may_be_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
