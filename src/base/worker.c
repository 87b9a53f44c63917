/* SPDX-License-Identifier: MIT
 *
 * worker.c: a thread and its queue of jobs. Jobs cannot be cancelled from here: one that may be given up looks at a
 * flag of its own.
 */
#include "base/worker.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "base/mem.h"
#include "base/os.h"

struct worker {
    pthread_t thread;
    pthread_mutex_t mutex; /* of the queue, is_stopping and is_done of the jobs. A leaf: nothing that locks is called
                              with it held */
    pthread_cond_t wake, done;
    struct worker_job *first, **last;
    bool is_stopping;
    char name[16];
};

static void *thread_main(void *arg)
{
    struct worker *w = arg;
    pthread_setname_np(pthread_self(), w->name);
    pthread_mutex_lock(&w->mutex);
    for (;;) {
        while (!w->first && !w->is_stopping) pthread_cond_wait(&w->wake, &w->mutex);
        struct worker_job *job = w->first;
        if (!job) break;
        w->first = job->next;
        if (!w->first) w->last = &w->first;
        pthread_mutex_unlock(&w->mutex);
        job->run(job);
        pthread_mutex_lock(&w->mutex);
        job->is_done = true; /* from here on the job belongs to its poster */
        pthread_cond_broadcast(&w->done);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

int worker_new(struct worker **out, const char *name, struct qn_error *e)
{
    struct worker *w = mem_calloc(1, sizeof *w);
    if (!w) return error_nomem(e, "a thread", sizeof *w);
    w->last = &w->first;
    snprintf(w->name, sizeof w->name, "%s", name);
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->wake, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC); /* as clock_ns() */
    pthread_cond_init(&w->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int rc = os_thread_start(&w->thread, thread_main, w, name, e);
    if (rc) {
        mem_free(w);
        return rc;
    }
    *out = w;
    return 0;
}

void worker_free(struct worker *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->mutex);
    w->is_stopping = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->done);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->mutex);
    mem_free(w);
}

void worker_post(struct worker *w, struct worker_job *job)
{
    pthread_mutex_lock(&w->mutex);
    job->next = NULL;
    job->is_done = false;
    *w->last = job;
    w->last = &job->next;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->mutex);
}

bool worker_is_done(struct worker *w, const struct worker_job *job)
{
    pthread_mutex_lock(&w->mutex);
    bool is_done = job->is_done;
    pthread_mutex_unlock(&w->mutex);
    return is_done;
}

void worker_wait(struct worker *w, const struct worker_job *job)
{
    pthread_mutex_lock(&w->mutex);
    while (!job->is_done) pthread_cond_wait(&w->done, &w->mutex);
    pthread_mutex_unlock(&w->mutex);
}

bool worker_wait_until(struct worker *w, const struct worker_job *job, uint64_t ns)
{
    const struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    int rc = 0;
    pthread_mutex_lock(&w->mutex);
    while (!job->is_done && !rc) rc = pthread_cond_timedwait(&w->done, &w->mutex, &t);
    bool is_done = job->is_done;
    pthread_mutex_unlock(&w->mutex);
    return is_done;
}
