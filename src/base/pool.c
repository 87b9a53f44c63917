/* SPDX-License-Identifier: MIT
 *
 * pool.c: a team of threads that starts, lines up and ends together.
 *
 * A forward pass has a few barriers in each layer, some microseconds apart. They must cost about a microsecond when
 * every member has a CPU, and must not waste time slices when it has not. All waiting here is at a *gate*: a generation
 * number that one thread advances and the others watch, first spinning for at most SPIN_NS, then asleep on a futex. The
 * gate counts its sleepers, so that opening it without sleepers needs no system call.
 *
 *     run:     caller opens `start`; the last member to finish opens `done`; the caller waits there.
 *     barrier: the last of nth to arrive opens `line`; the others wait there.
 *
 * Why no wake-up is lost: a sleeper adds itself to n_asleep and then looks at the generation; an opener advances the
 * generation and then looks at n_asleep. All four are sequentially consistent, so at least one of the two sees the
 * other, and the kernel compares the generation once more before it lets the sleeper sleep.
 *
 * Source: futex(2); U. Drepper, "Futexes are tricky" (2011).
 * There is no queue, no work stealing and no nesting, on purpose: members divide the work by their number (pool_share).
 */
#include "base/pool.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"

#define SPIN_NS     20000u
#define SPIN_PAUSES 16 /* between two looks at the clock */
#define CACHE_LINE  64

struct gate {
    _Alignas(CACHE_LINE) _Atomic uint32_t gen; /* the futex word */
    _Atomic uint32_t n_asleep;
};

struct pool_thread {
    struct pool *pool;
    pthread_t thread;
    int ith;
    int cpu; /* to be pinned to, below CPU_SETSIZE; -1 = not */
};

struct pool {
    int n;                       /* members, the caller included */
    int n_started;               /* threads that exist: members 1 .. n_started */
    struct pool_thread *members; /* [n]; element 0, the caller, is not used */
    uint32_t
        spin_ns; /* SPIN_NS; 0 when there are more members than CPUs, because spinning would keep others from working */

    /* The work. The caller writes it before it opens `start`, and members read it after that. */
    pool_fn *fn; /* NULL = leave */
    void *arg;

    struct gate start, done, line;
    _Alignas(CACHE_LINE) _Atomic uint32_t n_working; /* members that have not finished this run, caller excluded */
    _Alignas(CACHE_LINE) _Atomic uint32_t n_in_line; /* members that have arrived at this barrier */
};

static inline void cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static uint32_t gate_gen(struct gate *g) { return atomic_load_explicit(&g->gen, memory_order_acquire); }

/* Returns when the generation is no longer `seen`. */
static void gate_wait(struct gate *g, uint32_t seen, uint32_t spin_ns)
{
    uint64_t t0 = clock_ns();

    do {
        for (int i = 0; i < SPIN_PAUSES; i++) {
            if (gate_gen(g) != seen) return;
            cpu_pause();
        }
    } while (clock_ns() - t0 < spin_ns);

    atomic_fetch_add(&g->n_asleep, 1);
    while (atomic_load(&g->gen) == seen)
        syscall(SYS_futex, &g->gen, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0); /* early returns are looked at again */
    atomic_fetch_sub(&g->n_asleep, 1);
}

static void gate_open(struct gate *g)
{
    atomic_fetch_add(&g->gen, 1);
    if (atomic_load(&g->n_asleep) > 0) syscall(SYS_futex, &g->gen, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Failing to pin costs speed at most: the member runs where it may. */
static void pin_self(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void *member_main(void *arg)
{
    struct pool_thread *m = arg;
    struct pool *p = m->pool;
    uint32_t seen = 0; /* no run can have begun before all members were created */
    char name[16];

    snprintf(name, sizeof name, "pool-%d", m->ith);
    pthread_setname_np(pthread_self(), name);
    if (m->cpu >= 0) pin_self(m->cpu);
    for (;; seen++) {
        gate_wait(&p->start, seen, p->spin_ns);
        if (!p->fn) return NULL;
        p->fn(p->arg, m->ith, p->n);
        if (atomic_fetch_sub_explicit(&p->n_working, 1, memory_order_acq_rel) == 1) gate_open(&p->done);
    }
}

/* Fills members[1 .. n-1].cpu with the 2nd, 3rd, ... CPU of the affinity mask; the first is for the caller. All stay
 * unpinned when there are too few CPUs, or when a quota gives the process fewer than the mask has. In that case other
 * processes use the same CPUs, and everybody would be pinned to the first ones. */
static void choose_cpus(struct pool *p)
{
    cpu_set_t set;
    int i = 0;

    if (sched_getaffinity(0, sizeof set, &set) != 0) /* more than CPU_SETSIZE CPUs: the kernel may place them */
        return;
    if (CPU_COUNT(&set) < p->n || os_n_cpus() < CPU_COUNT(&set)) return;
    for (int cpu = 0; cpu < CPU_SETSIZE && i < p->n; cpu++)
        if (CPU_ISSET((size_t)cpu, &set)) p->members[i++].cpu = cpu;
}

/* Starts threads 1 .. n-1; 0, or the error number of the one that failed. */
static int start_threads(struct pool *p)
{
    sigset_t old;
    int r = 0;

    os_block_signals(&old);
    while (r == 0 && p->n_started < p->n - 1) {
        struct pool_thread *m = &p->members[p->n_started + 1];
        r = pthread_create(&m->thread, NULL, member_main, m);
        if (r == 0) p->n_started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return r;
}

int pool_prepare(struct pool **out, int n_threads, int pin, struct qn_error *e)
{
    assert(n_threads >= 1);
    size_t members_bytes = (size_t)n_threads * sizeof(struct pool_thread);
    struct pool *p = mem_aligned(CACHE_LINE, sizeof *p);

    if (!p) return error_nomem(e, "a thread pool", sizeof *p);
    memset(p, 0, sizeof *p);
    p->n = n_threads;
    p->spin_ns = n_threads > os_n_cpus() ? 0 : SPIN_NS;
    p->members = mem_calloc((size_t)n_threads, sizeof *p->members);
    if (!p->members) {
        mem_free(p);
        return error_nomem(e, "a thread pool", members_bytes);
    }
    for (int i = 0; i < n_threads; i++) p->members[i] = (struct pool_thread){.pool = p, .ith = i, .cpu = -1};
    if (pin) choose_cpus(p);
    *out = p;
    return 0;
}

int pool_start(struct pool *p, struct qn_error *e)
{
    int r = start_threads(p);
    if (!r) return 0;
    return error_set(e, QN_ENOMEM, "cannot start thread %d of %d: %s", p->n_started + 2, p->n, strerror(r));
}

int pool_new(struct pool **out, int n_threads, int pin, struct qn_error *e)
{
    struct pool *p;
    int r = pool_prepare(&p, n_threads, pin, e);
    if (r) return r;
    if ((r = pool_start(p, e)))
        pool_free(p);
    else
        *out = p;
    return r;
}

void pool_free(struct pool *p)
{
    if (!p) return;
    p->fn = NULL;
    gate_open(&p->start);
    for (int i = 1; i <= p->n_started; i++) pthread_join(p->members[i].thread, NULL);
    mem_free(p->members);
    mem_free(p);
}

int pool_n_threads(const struct pool *p) { return p->n; }

/* Pins the caller to the first CPU, if it may run there, and saves its mask. The other members are pinned to the other
 * CPUs. The system often wakes a thread where its waker runs, so the caller would share the CPU of a member for long
 * times, each at half its speed, while a CPU is idle. Returns false if nothing was changed. */
static bool pin_caller(const struct pool *p, cpu_set_t *old)
{
    int cpu = p->members[0].cpu;
    if (cpu < 0 || sched_getaffinity(0, sizeof *old, old) != 0 || !CPU_ISSET((size_t)cpu, old)) return false;
    pin_self(cpu);
    return true;
}

void pool_run(struct pool *p, pool_fn *fn, void *arg)
{
    cpu_set_t old;

    assert(fn && p->n_started == p->n - 1);
    if (p->n == 1) {
        fn(arg, 0, 1);
        return;
    }
    assert(atomic_load_explicit(&p->n_working, memory_order_relaxed) == 0); /* one run at a time */
    bool is_pinned = pin_caller(p, &old);
    uint32_t seen = gate_gen(&p->done);
    p->fn = fn;
    p->arg = arg;
    atomic_store_explicit(&p->n_working, (uint32_t)p->n - 1, memory_order_relaxed); /* published by the gate */
    gate_open(&p->start);
    fn(arg, 0, p->n);
    gate_wait(&p->done, seen, p->spin_ns);
    if (is_pinned) sched_setaffinity(0, sizeof old, &old);
}

void pool_barrier(struct pool *p)
{
    if (p->n == 1) return;
    uint32_t seen = gate_gen(&p->line); /* before arriving: afterwards the gate may open at any time */
    if (atomic_fetch_add_explicit(&p->n_in_line, 1, memory_order_acq_rel) + 1 < (uint32_t)p->n) {
        gate_wait(&p->line, seen, p->spin_ns);
        return;
    }
    atomic_store_explicit(&p->n_in_line, 0, memory_order_relaxed); /* nobody arrives again before the gate opens */
    gate_open(&p->line);
}

void pool_share(int n, int unit, int ith, int nth, int *lo, int *hi)
{
    assert(n >= 0 && unit >= 1 && ith >= 0 && ith < nth);
    int64_t n_units = ((int64_t)n + unit - 1) / unit;
    int64_t a = n_units * ith / nth * unit;
    int64_t b = n_units * (ith + 1) / nth * unit;

    *lo = (int)(a < n ? a : n);
    *hi = (int)(b < n ? b : n);
}
