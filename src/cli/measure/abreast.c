/* SPDX-License-Identifier: MIT
 *
 * abreast.c: turns of two schedulers. See abreast.h.
 */
#include "cli/measure/abreast.h"

#include <time.h>

#include "base/os.h"

static uint64_t now_ns(bool counts_cpu)
{
    struct timespec t;
    if (!counts_cpu) return clock_ns();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static const struct abreast_side *other_of(const struct abreast_side *s) { return &s->of->side[s == &s->of->side[0]]; }

static void begin(void *arg)
{
    struct abreast_side *s = arg;
    struct abreast *a = s->of;
    pthread_mutex_lock(&a->mutex);
    s->waits = true;
    while (a->runs || (a->last == s && other_of(s)->waits)) pthread_cond_wait(&a->turn, &a->mutex);
    s->waits = false;
    a->runs = a->last = s;
    pthread_mutex_unlock(&a->mutex);
    s->since_ns = now_ns(a->counts_cpu);
}

static void end(void *arg)
{
    struct abreast_side *s = arg;
    struct abreast *a = s->of;
    s->ran_ns += now_ns(a->counts_cpu) - s->since_ns;
    pthread_mutex_lock(&a->mutex);
    a->runs = NULL;
    pthread_cond_broadcast(&a->turn);
    pthread_mutex_unlock(&a->mutex);
}

void abreast_init(struct abreast *a, bool counts_cpu)
{
    *a = (struct abreast){
        .mutex = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_COND_INITIALIZER, .counts_cpu = counts_cpu};
    a->side[0].of = a->side[1].of = a;
}

void abreast_deinit(struct abreast *a)
{
    pthread_cond_destroy(&a->turn);
    pthread_mutex_destroy(&a->mutex);
}

void abreast_join(struct abreast *a, int side, qn_scheduler *s)
{
    s->around = (struct step_around){begin, end, &a->side[side]};
}

uint64_t abreast_ns(const struct abreast *a, int side)
{
    return a->side[side].ran_ns + now_ns(a->counts_cpu) - a->side[side].since_ns;
}
