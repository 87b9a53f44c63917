/* SPDX-License-Identifier: MIT
 *
 * stage_thread.h: a stage that is a thread of this process.
 */
#ifndef QUERN_TESTS_CLUSTER_STAGE_THREAD_H
#define QUERN_TESTS_CLUSTER_STAGE_THREAD_H

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "cluster/runner.h"
#include "engine/engine.h"
#include "kernel/cpu.h"

struct stage_thread {
    qn_model *model;
    struct kernels kernels;
    struct pool *pool;
    struct ledger ledger;
    struct runner *runner;
    struct link *in, *out;
    const atomic_bool *stop;
    pthread_t thread;
    int rc;
    struct qn_error error;
};

static void stage_die(const char *what, const struct qn_error *e)
{
    fprintf(stderr, "%s: %s\n", what, e->msg);
    abort();
}

/* A stage of layers lo..hi-1. p: what the runner needs besides the model, kernels, threads and the ledger. */
static void stage_thread_open(struct stage_thread *s, const char *path, int lo, int hi, struct runner_params p)
{
    struct qn_error e;
    if (qn_model_open(&s->model, path, &e)) stage_die(path, &e);
    if (model_cut(s->model->model, lo, hi, &e)) stage_die("layers", &e);
    kernels_init(&s->kernels, cpu_best());
    ledger_init(&s->ledger, (size_t)1 << 36);
    if (pool_new(&s->pool, 1, 0, &e)) stage_die("threads", &e);
    p.model = s->model->model;
    p.kernels = &s->kernels;
    p.pool = s->pool;
    p.ledger = &s->ledger;
    if (runner_new(&s->runner, &p, &e)) stage_die("a stage", &e);
}

static void *stage_thread_main(void *arg)
{
    struct stage_thread *s = arg;
    s->rc = runner_serve(s->runner, s->in, s->out, s->stop, &s->error);
    link_close(s->in);
    link_close(s->out);
    return NULL;
}

/* in, out: taken over. */
static void stage_thread_start(struct stage_thread *s, struct link *in, struct link *out, const atomic_bool *stop)
{
    s->in = in;
    s->out = out;
    s->stop = stop;
    if (pthread_create(&s->thread, NULL, stage_thread_main, s)) abort();
}

/* Waits for its end; *stop is set, or its links are closed. */
static void stage_thread_close(struct stage_thread *s)
{
    pthread_join(s->thread, NULL);
    runner_free(s->runner);
    pool_free(s->pool);
    assert(ledger_used(&s->ledger) == 0);
    qn_model_close(s->model);
}

#endif
