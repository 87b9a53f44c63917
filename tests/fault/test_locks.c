/* SPDX-License-Identifier: MIT
 *
 * test_locks.c: a decode step takes no lock, whatever the number of threads, and with one thread asks the system for
 * nothing to wait on.
 *
 *     test_locks MODEL
 *
 * Counted at the C library's own doors, which this program takes the place of: pthread_mutex_lock, the waits on
 * conditions, and syscall(), through which the thread pool reaches the futex. A team of threads may sleep on a futex
 * when one is late; that is waiting for work, not for a lock.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <quern.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTED 0 /* a sanitizer stands at these doors itself */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define COUNTED 0
#endif
#endif
#ifndef COUNTED
#define COUNTED 1
#endif

static _Atomic long n_locks, n_futex;

#if COUNTED
#define EXPORT __attribute__((visibility("default")))

/* The C library's function of this name, found once. */
#define NEXT(name)                                                                                                     \
    static __typeof__(name) *_Atomic next;                                                                             \
    if (!next) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

EXPORT int pthread_mutex_lock(pthread_mutex_t *m)
{
    NEXT(pthread_mutex_lock);
    n_locks++;
    return next(m);
}

EXPORT int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    NEXT(pthread_cond_wait);
    n_locks++;
    return next(c, m);
}

EXPORT long syscall(long number, ...)
{
    NEXT(syscall);
    long a[6];
    va_list ap;
    va_start(ap, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(ap, long);
    va_end(ap);
    n_futex += number == SYS_futex;
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
#endif

static const char *path;

/* What N steps of decoding on this many threads count. */
static void count(int n_threads, long *locks, long *futex)
{
    struct qn_error e;
    struct qn_engine_params p;
    qn_model *m = NULL;
    qn_engine *g = NULL;
    qn_session *s = NULL;
    qn_token t = 3;
    qn_engine_params_init(&p);
    p.n_threads = n_threads;
    p.n_ctx = 160;
    if (qn_model_open(&m, path, &e) || qn_engine_new(&g, m, &p, &e) || qn_session_new(&s, g, NULL, &e) ||
        qn_session_sync(s, &t, 1, NULL, &e))
        fail_msg("%s", e.msg);
    *locks = n_locks;
    *futex = n_futex;
    for (int i = 0; i < 100; i++)
        if (qn_session_step(s, &t, &e)) fail_msg("step %d: %s", i, e.msg);
    *locks = n_locks - *locks;
    *futex = n_futex - *futex;
    qn_session_free(s);
    qn_engine_free(g);
    qn_model_close(m);
}

static void the_counts_count(void **state)
{
    (void)state;
    if (!COUNTED) skip();
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    long locks = n_locks, futex = n_futex;
    uint32_t word = 0;
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    syscall(SYS_futex, &word, 1 /* wake */, 1, NULL, NULL, 0);
    assert_int_equal(n_locks, locks + 1);
    assert_int_equal(n_futex, futex + 1);
}

static void a_step_takes_no_lock(void **state)
{
    (void)state;
    if (!COUNTED) skip();
    long locks, futex;
    for (int n = 1; n <= 4; n++) {
        count(n, &locks, &futex);
        assert_int_equal(locks, 0);
        if (n == 1) assert_int_equal(futex, 0);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_counts_count),
        cmocka_unit_test(a_step_takes_no_lock),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: test_locks MODEL\n");
        return 1;
    }
    path = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
