/* SPDX-License-Identifier: MIT
 *
 * near.h: a scheduler whose model is computed by stages that are threads of this process.
 *
 * Everything but the links and the way in which stages are started is what `quern serve --hosts` uses.
 */
#ifndef QUERN_TESTS_CLUSTER_NEAR_H
#define QUERN_TESTS_CLUSTER_NEAR_H

#include "cluster/group.h"
#include "cluster/pipeline.h"
#include "engine/scheduler.h"
#include "stage_thread.h"

#define NEAR_MOST 8 /* stages */

struct near_params {
    const char *path;
    int n_stages;
    struct qn_engine_params engine;
    struct qn_scheduler_params scheduler;
    bool is_serial; /* a step begins when the one before has ended */
    uint64_t (*least_ns)(void *arg, int n_rows);
    void *least_arg;
    void (*began)(void *arg, int n_begun); /* after a step was sent; n_begun: since near_open(). NULL: nothing */
    void *began_arg;
};

struct near {
    struct near_params p;
    qn_model *model;
    qn_engine *engine;
    qn_scheduler *scheduler;
    struct stage stage;
    struct pipeline *pipeline;
    struct link *to_first, *from_last;
    struct stage_thread stages[NEAR_MOST];
    atomic_bool stop;
    struct stage_result early; /* of a serial step */
    int early_rc;
    int n_begun, n_mended; /* steps; losses */
    /* for measuring; read them when nothing runs */
    int n_steps, n_logits;
    double pass_s, slowest_s; /* sums over steps: of all stages; of the slowest one of each */
};

static int near_start(void *arg, const struct stage_step *s, bool can_cancel, struct qn_error *e)
{
    struct near *x = arg;
    int rc = pipeline_start(x->pipeline, s, can_cancel, e);
    if (!rc && x->p.began) x->p.began(x->p.began_arg, ++x->n_begun);
    if (rc || !x->p.is_serial) return rc;
    x->early.logits = x->scheduler->logits;
    x->early.drawn = x->scheduler->heard;
    x->early_rc = pipeline_finish(x->pipeline, NULL, NULL, &x->early, e);
    return x->early_rc == QN_ECANCEL ? 0 : x->early_rc;
}

static int near_finish(void *arg, bool (*is_needed)(void *arg), void *needed_arg, struct stage_result *out,
                       struct qn_error *e)
{
    struct near *x = arg;
    double slowest = 0;
    int rc = x->early_rc;
    if (x->p.is_serial)
        *out = x->early;
    else
        rc = pipeline_finish(x->pipeline, is_needed, needed_arg, out, e);
    if (rc) return rc;
    x->n_steps++;
    x->n_logits += out->n_logits;
    for (int i = 0; i < out->n_times; i++) {
        x->pass_s += 1e-6 * out->times[i];
        slowest = out->times[i] > slowest ? out->times[i] : slowest;
    }
    x->slowest_s += 1e-6 * slowest;
    return 0;
}

static int near_cancel(void *arg, struct qn_error *e) { return pipeline_cancel(((struct near *)arg)->pipeline, e); }

static int near_accept(void *arg, const int32_t *n_accepted, struct qn_error *e)
{
    return pipeline_accept(((struct near *)arg)->pipeline, n_accepted, e);
}

static void near_stage_open(struct near *x, int i, const struct step_limits *l, uint32_t group)
{
    int n_layer = x->model->model->hp.n_layer, n = x->p.n_stages;
    stage_thread_open(&x->stages[i], x->p.path, n_layer * i / n, n_layer * (i + 1) / n,
                      (struct runner_params){.kv = kv_pool_shape(x->engine->kv)->type,
                                             .n_ctx = x->engine->n_ctx,
                                             .limits = *l,
                                             .group = group,
                                             .least_ns = x->p.least_ns,
                                             .least_arg = x->p.least_arg});
}

static void near_chain_open(struct near *x)
{
    static uint32_t group = 4000;
    const int n = x->p.n_stages;
    struct link *ends[2 * (NEAR_MOST + 1)];
    struct step_limits l;
    struct qn_error e;
    group++;
    group_limits(&l, x->scheduler);
    atomic_store(&x->stop, false);
    for (int i = 0; i <= n; i++)
        if (link_open_pair(&ends[2 * i], &ends[2 * i + 1], &e)) stage_die("links", &e);
    x->to_first = ends[0];
    x->from_last = ends[2 * n + 1];
    for (int i = 0; i < n; i++) {
        near_stage_open(x, i, &l, group);
        stage_thread_start(&x->stages[i], ends[2 * i + 1], ends[2 * i + 2], &x->stop);
    }
    struct pipeline_params p = {.kv = x->engine->kv,
                                .limits = l,
                                .group = group,
                                .to_first = x->to_first,
                                .from_last = x->from_last,
                                .deadline_ns = 60000000000u,
                                .depth = stage_steps(&x->stage)};
    if (pipeline_new(&x->pipeline, &p, &e)) stage_die("the head", &e);
}

static void near_chain_close(struct near *x)
{
    atomic_store(&x->stop, true);
    pipeline_free(x->pipeline);
    x->pipeline = NULL;
    link_close(x->to_first);
    link_close(x->from_last);
    for (int i = 0; i < x->p.n_stages; i++) stage_thread_close(&x->stages[i]);
}

/* New stages, which have nothing of what the old ones had. */
static int near_mend(void *arg, struct qn_error *e)
{
    (void)e;
    ((struct near *)arg)->n_mended++;
    near_chain_close(arg);
    near_chain_open(arg);
    return 0;
}

static void near_close(void *arg) { near_chain_close(arg); }

static void near_open(struct near *x, const struct near_params *p)
{
    static const struct stage_ops ops = {near_start, near_finish, near_cancel, near_accept, near_mend, near_close};
    struct qn_error e;
    *x = (struct near){.p = *p};
    x->stage = (struct stage){&ops, x, p->is_serial ? 1 : p->n_stages};
    if (qn_model_open(&x->model, p->path, &e)) stage_die(p->path, &e);
    if (engine_new_head(&x->engine, x->model, &p->engine, pipeline_kv_shape, &e)) stage_die("the engine", &e);
    if (qn_scheduler_new(&x->scheduler, x->engine, &p->scheduler, &e)) stage_die("the scheduler", &e);
    near_chain_open(x);
    engine_set_stage(x->engine, &x->stage);
}

static void near_free(struct near *x)
{
    qn_scheduler_free(x->scheduler);
    qn_engine_free(x->engine);
    qn_model_close(x->model);
}

#endif
