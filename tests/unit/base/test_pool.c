/* SPDX-License-Identifier: MIT
 *
 * test_pool.c: every member runs once a run, barriers order plain memory, and nothing collapses when there are more
 * threads than CPUs. Plain (not atomic) shared data is deliberate: under ThreadSanitizer these tests prove the
 * ordering.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"
#include "base/pool.h"

#define MAX_THREADS 16

struct work {
    struct pool *pool;
    int n_rounds;
    int cell[MAX_THREADS * 16]; /* one a member, a cache line apart */
    int bad[MAX_THREADS];
};

static void count(void *arg, int ith, int nth)
{
    struct work *w = arg;
    w->bad[ith] += nth != pool_n_threads(w->pool);
    w->cell[ith * 16]++;
}

static void every_member_runs(void **state)
{
    (void)state;
    for (int n = 1; n <= 9; n++) {
        struct work w = {0};
        assert_int_equal(pool_new(&w.pool, n, 0, NULL), 0);
        assert_int_equal(pool_n_threads(w.pool), n);
        for (int r = 1; r <= 200; r++) {
            pool_run(w.pool, count, &w);
            for (int i = 0; i < n; i++) {
                assert_int_equal(w.cell[i * 16], r);
                assert_int_equal(w.bad[i], 0);
            }
        }
        pool_free(w.pool);
    }
}

/* Each round: everybody writes its cell; barrier; everybody reads all cells; barrier. */
static void rounds(void *arg, int ith, int nth)
{
    struct work *w = arg;
    for (int r = 1; r <= w->n_rounds; r++) {
        w->cell[ith * 16] = r;
        pool_barrier(w->pool);
        for (int i = 0; i < nth; i++) w->bad[ith] += w->cell[i * 16] != r;
        pool_barrier(w->pool);
    }
}

static void check_rounds(int n_threads, int pin, int n_rounds)
{
    struct work w = {.n_rounds = n_rounds};
    assert_int_equal(pool_new(&w.pool, n_threads, pin, NULL), 0);
    pool_run(w.pool, rounds, &w);
    pool_run(w.pool, rounds, &w);
    pool_free(w.pool);
    for (int i = 0; i < n_threads; i++) assert_int_equal(w.bad[i], 0);
}

static void barriers_order_memory(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++) check_rounds(n, 0, 1000);
}

/* Members that arrive so late that the others sleep, and a caller that is late or early in turns. */
static void late(void *arg, int ith, int nth)
{
    struct work *w = arg;
    for (int r = 0; r < w->n_rounds; r++) {
        if (r % nth == ith) usleep(300);
        w->cell[ith * 16]++;
        pool_barrier(w->pool);
        for (int i = 0; i < nth; i++) w->bad[ith] += w->cell[i * 16] != w->cell[ith * 16];
        pool_barrier(w->pool);
    }
}

static void sleepers_wake(void **state)
{
    (void)state;
    struct work w = {.n_rounds = 50};
    assert_int_equal(pool_new(&w.pool, 3, 0, NULL), 0);
    for (int i = 0; i < 10; i++) {
        pool_run(w.pool, late, &w);
        usleep(500);
    }
    pool_free(w.pool);
    for (int i = 0; i < 3; i++) assert_int_equal(w.bad[i], 0);
}

static void *hog(void *stop)
{
    while (!atomic_load((_Atomic int *)stop))
        ;
    return NULL;
}

static void oversubscribed(void **state)
{
    (void)state;
    _Atomic int stop = 0;
    pthread_t hogs[2];
    uint64_t t0 = clock_ns();

    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&hogs[i], NULL, hog, &stop), 0);
    check_rounds(7, 1, 500); /* two runs of 500 rounds of two barriers */
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++) pthread_join(hogs[i], NULL);
    double s = (double)(clock_ns() - t0) * 1e-9;
    print_message("2000 barriers of 7 threads beside 2 hogs: %.2f s\n", s);
    assert_true(s < 60); /* spinning through time slices would take minutes */
}

/* ---- pinning ---- */

struct masks {
    cpu_set_t of[MAX_THREADS];
};

static void record_mask(void *arg, int ith, int nth)
{
    (void)nth;
    struct masks *m = arg;
    sched_getaffinity(0, sizeof m->of[ith], &m->of[ith]);
}

static void pins_members_and_during_a_run_the_caller_when_it_fits(void **state)
{
    (void)state;
    cpu_set_t before, after;
    sched_getaffinity(0, sizeof before, &before);
    int n_cpus = CPU_COUNT(&before);
    for (int n = 1; n <= n_cpus + 1 && n <= MAX_THREADS; n++) {
        struct pool *p;
        struct masks m;
        assert_int_equal(pool_new(&p, n, 1, NULL), 0);
        pool_run(p, record_mask, &m);
        pool_free(p);
        int pinned = n > 1 && n <= n_cpus && os_n_cpus() == n_cpus;
        for (int i = 0; i < n; i++) {
            assert_int_equal(CPU_COUNT(&m.of[i]), pinned ? 1 : n_cpus);
            for (int k = 0; pinned && k < i; k++) assert_false(CPU_EQUAL(&m.of[i], &m.of[k]));
        }
        sched_getaffinity(0, sizeof after, &after);
        assert_true(CPU_EQUAL(&before, &after));
    }
}

/* ---- failure ---- */

static void allocation_failure(void **state)
{
    (void)state;
    struct pool *p = NULL;
    struct qn_error e;
    for (uint64_t k = 1;; k++) {
        mem_fault_set(k);
        int r = pool_new(&p, 3, 0, &e);
        if (r == 0) break;
        assert_int_equal(r, QN_ENOMEM);
        assert_null(p);
        assert_int_equal(mem_fault_hit(), 1);
    }
    mem_fault_set(0);
    pool_free(p);
    pool_free(NULL);
}

/* In a process of its own whose address space ends after some stacks: pool_new must say so and undo what it began. */
static void thread_creation_failure(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* they need the address space themselves */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    skip();
#endif
#endif
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit lim = {.rlim_cur = 256u << 20, .rlim_max = 256u << 20};
        struct pool *p = NULL;
        struct qn_error e = {0};
        setrlimit(RLIMIT_AS, &lim);
        if (pool_new(&p, 1000, 0, &e) != QN_ENOMEM || p || !strstr(e.msg, "of 1000")) _exit(1);
        _exit(pool_new(&p, 2, 0, &e) == 0 ? 0 : 2); /* and there is room again */
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- shares ---- */

static void shares_cover_everything_once(void **state)
{
    (void)state;
    for (int n = 0; n < 70; n++)
        for (int unit = 1; unit < 20; unit += 3)
            for (int nth = 1; nth < 9; nth++) {
                int at = 0, least = n, most = 0;
                for (int i = 0; i < nth; i++) {
                    int lo, hi;
                    pool_share(n, unit, i, nth, &lo, &hi);
                    assert_int_equal(lo, at);
                    assert_true(hi >= lo && (hi == n || hi % unit == 0));
                    int units = (hi - lo + unit - 1) / unit;
                    least = units < least ? units : least;
                    most = units > most ? units : most;
                    at = hi;
                }
                assert_int_equal(at, n);
                assert_true(most - least <= 1);
            }
    int lo, hi;
    pool_share(INT32_MAX, 1024, 6, 7, &lo, &hi);
    assert_int_equal(hi, INT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_member_runs),
        cmocka_unit_test(barriers_order_memory),
        cmocka_unit_test(sleepers_wake),
        cmocka_unit_test(oversubscribed),
        cmocka_unit_test(pins_members_and_during_a_run_the_caller_when_it_fits),
        cmocka_unit_test(allocation_failure),
        cmocka_unit_test(thread_creation_failure),
        cmocka_unit_test(shares_cover_everything_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
