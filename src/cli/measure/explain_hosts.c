/* SPDX-License-Identifier: MIT
 *
 * explain_hosts.c: the time of a token on several hosts. See explain_hosts.h.
 *
 * Stages tell with each step how long their passes took. What is left of the time from when the head sends a step until
 * it has the token is copying, the wire, and waiting for packets. A packet without work, sent round as often as tokens
 * were, shows how much of it does not depend on what is sent.
 */
#include "cli/measure/explain_hosts.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "cli/core/cli.h"
#include "cli/core/progress.h"
#include "cli/place/await.h"
#include "engine/scheduler.h"

#define MOST_TOKENS 1024

/* Stands between a scheduler and its stages, and notes the times of steps. The scheduler's thread uses it. */
struct spy {
    const struct stage *inner;
    struct stage stage;
    uint64_t since_ns;
    int n;                      /* steps of one token */
    double all_ms[MOST_TOKENS]; /* from the head and back */
    double stage_ms[STAGE_MOST][MOST_TOKENS], between_ms[MOST_TOKENS];
};

static int spy_start(void *arg, const struct stage_step *s, bool can_cancel, struct qn_error *e)
{
    struct spy *y = arg;
    y->since_ns = s->batch->n == 1 ? clock_ns() : 0;
    return y->inner->ops->start(y->inner->arg, s, can_cancel, e);
}

static int spy_finish(void *arg, bool (*is_needed)(void *arg), void *needed_arg, struct stage_result *out,
                      struct qn_error *e)
{
    struct spy *y = arg;
    int rc = y->inner->ops->finish(y->inner->arg, is_needed, needed_arg, out, e);
    if (rc || !y->since_ns || y->n == MOST_TOKENS || out->n_times != y->inner->n_stages) return rc;
    y->all_ms[y->n] = 1e-6 * (double)(clock_ns() - y->since_ns);
    for (int i = 0; i < out->n_times; i++) y->stage_ms[i][y->n] = 1e-3 * out->times[i];
    y->n++;
    return rc;
}

static int spy_cancel(void *arg, struct qn_error *e)
{
    const struct spy *y = arg;
    return y->inner->ops->cancel(y->inner->arg, e);
}

static int spy_accept(void *arg, const int32_t *n_accepted, struct qn_error *e)
{
    const struct spy *y = arg;
    return y->inner->ops->accept(y->inner->arg, n_accepted, e);
}

static int spy_mend(void *arg, struct qn_error *e)
{
    const struct spy *y = arg;
    return y->inner->ops->mend(y->inner->arg, e);
}

static void spy_close(void *arg)
{
    const struct spy *y = arg;
    y->inner->ops->close(y->inner->arg);
}

static void spy_on(struct spy *y, qn_engine *g)
{
    static const struct stage_ops ops = {spy_start, spy_finish, spy_cancel, spy_accept, spy_mend, spy_close};
    y->inner = g->stage;
    y->stage = (struct stage){&ops, y, y->inner->n_stages};
    engine_set_stage(g, &y->stage);
}

/* ---- the answer ---- */

/* What it says does not matter: as long as it has its tokens. */
static int answer(qn_scheduler *s, int n_tokens, struct qn_error *e)
{
    struct await end = AWAIT_INIT;
    const qn_token prompt[] = {0, 1};
    struct qn_request_params p;
    qn_request_params_init(&p);
    p.prompt = prompt;
    p.n_prompt = 2;
    p.max_tokens = n_tokens;
    p.sampling.temperature = 0;
    p.ignore_eog = p.no_text = true;
    return await_one(&end, s, &p, e);
}

/* ---- the report ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, ascending);
    return n ? (v[n / 2] + v[(n - 1) / 2]) / 2 : 0;
}

struct report {
    int n, n_layer;
    struct group_stage stage[STAGE_MOST];
    double ms[STAGE_MOST], between_ms, all_ms; /* medians of a token */
    double round_ms;                           /* of a packet without work */
};

static double predicted(const struct group_stage *s) { return s->layer_ms * (s->hi - s->lo) + s->head_ms; }

/* What all layers would take on the host of stage i; 0: they have no room there, or it is not known. */
static double alone_ms(const struct report *r, int i)
{
    const struct group_stage *s = &r->stage[i], *last = &r->stage[r->n - 1];
    double head_layers = last->layer_ms > 0 ? last->head_ms / last->layer_ms : 0;
    return s->fits_all ? s->layer_ms * (r->n_layer + head_layers) : 0;
}

static int fastest_alone(const struct report *r)
{
    int best = -1;
    for (int i = 0; i < r->n; i++)
        if (alone_ms(r, i) > 0 && (best < 0 || alone_ms(r, i) < alone_ms(r, best))) best = i;
    return best;
}

static double sum_ms(const struct report *r)
{
    double sum = 0;
    for (int i = 0; i < r->n; i++) sum += r->ms[i];
    return sum;
}

static double slowest_ms(const struct report *r)
{
    double most = 0;
    for (int i = 0; i < r->n; i++)
        if (r->ms[i] > most) most = r->ms[i];
    return most;
}

static void print_json(const struct explain_hosts *p, const struct report *r)
{
    json_t *stages = json_array();
    for (int i = 0; i < r->n; i++) {
        const struct group_stage *s = &r->stage[i];
        json_array_append_new(stages, json_pack("{s:s, s:i, s:i, s:f, s:i, s:f, s:f, s:f}", "host", s->host, "first",
                                                s->lo, "layers", s->hi - s->lo, "bytes", s->bytes, "memory_mb",
                                                (int)s->memory_mb, "predicted_ms", predicted(s), "compute_ms", r->ms[i],
                                                "alone_ms", alone_ms(r, i)));
    }
    cli_print_json(json_pack("{s:s, s:i, s:o, s:f, s:f, s:f, s:f}", "model", p->name, "tokens", p->n_tokens, "stages",
                             stages, "compute_ms", sum_ms(r), "between_ms", r->all_ms - sum_ms(r), "round_ms",
                             r->round_ms, "token_ms", r->all_ms),
                   JSON_COMPACT | JSON_REAL_PRECISION(9));
}

static void print_alone(const struct report *r)
{
    int best = fastest_alone(r);
    if (r->n < 2) return;
    if (best < 0) {
        printf("\nNo host has room for all layers, or it is not known how fast they are.\n");
        return;
    }
    double ms = alone_ms(r, best);
    printf("\nAll layers have room on %s, which alone would take %.2f ms a token:\n%s for one answer.\n",
           r->stage[best].host, ms, ms < r->all_ms ? "faster" : "slower");
}

static void print_table(const struct explain_hosts *p, const struct report *r)
{
    printf("%s: a token on %d stage%s\n\n", p->name, r->n, r->n == 1 ? "" : "s");
    printf("%-22s %-10s %9s %9s %12s %11s\n", "host", "layers", "needs MB", "has MB", "predicted ms", "compute ms");
    for (int i = 0; i < r->n; i++) {
        const struct group_stage *s = &r->stage[i];
        char layers[32], guess[32] = "-", memory[32] = "-";
        snprintf(layers, sizeof layers, "%d to %d", s->lo, s->hi - 1);
        if (s->layer_ms > 0) snprintf(guess, sizeof guess, "%.3f", predicted(s));
        if (s->memory_mb) snprintf(memory, sizeof memory, "%u", s->memory_mb);
        printf("%-22s %-10s %9.1f %9s %12s %11.3f\n", s->host, layers, 1e-6 * s->bytes, memory, guess, r->ms[i]);
    }
    double sized = r->between_ms - r->round_ms;
    printf("%-40s %37.3f\n", "latency of the wire, waking up", r->round_ms);
    printf("%-40s %37.3f\n", "copies, bytes on the wire", sized > 0 ? sized : 0);
    printf("%-22s %55.3f\n", "a token of one answer", r->all_ms);
    if (slowest_ms(r) > 0)
        printf("\nOne answer gets %.1f tokens/s. Answers that keep all stages busy get at most\n%.1f together.\n",
               1e3 / r->all_ms, 1e3 / slowest_ms(r));
    print_alone(r);
}

static void sum_up(struct report *r, const struct group *g, struct spy *y, int n_layer)
{
    r->n = group_stages(g, r->stage);
    r->n_layer = n_layer;
    for (int k = 0; k < y->n; k++) {
        y->between_ms[k] = y->all_ms[k];
        for (int i = 0; i < r->n; i++) y->between_ms[k] -= y->stage_ms[i][k];
    }
    for (int i = 0; i < r->n; i++) r->ms[i] = median(y->stage_ms[i], y->n);
    r->between_ms = median(y->between_ms, y->n);
    r->all_ms = median(y->all_ms, y->n);
}

int explain_hosts(const struct explain_hosts *p, struct qn_error *e)
{
    struct group *group = NULL;
    struct qn_engine_params engine = *p->engine;
    struct qn_scheduler_params s;
    qn_model *model = NULL;
    qn_engine *g = NULL;
    qn_scheduler *scheduler = NULL;
    struct report r = {0};
    struct spy *spy = mem_calloc(1, sizeof *spy);
    int rc = spy ? 0 : error_nomem(e, "the times of steps", sizeof *spy);
    qn_scheduler_params_init(&s);
    s.draft = QN_DRAFT_OFF;
    s.n_running = 1;
    if (engine.n_ctx == 0) engine.n_ctx = p->n_tokens + 2;
    progress_note("starting the stages");
    if (!rc) rc = stage_hosts_start(&group, p->hosts, p->path, p->engine, false, e);
    if (!rc) rc = qn_model_open_with(&model, p->path, p->file, e);
    if (!rc) rc = stage_hosts_engine(group, &g, &scheduler, model, &engine, &s, e);
    if (!rc) {
        spy_on(spy, g);
        progress_note("computing an answer");
        rc = answer(scheduler, p->n_tokens, e);
    }
    if (!rc) sum_up(&r, group, spy, model->model->hp.n_layer);
    if (!rc && !spy->n) rc = error_set(e, QN_EIO, "hosts: the stages did not say how long their passes took");
    qn_scheduler_free(scheduler);
    scheduler = NULL;
    if (!rc) rc = group_round(group, (uint64_t)(1e6 * r.all_ms), &r.round_ms, e);
    progress_note("%s", "");
    if (!rc && p->json) print_json(p, &r);
    if (!rc && !p->json) print_table(p, &r);
    qn_scheduler_free(scheduler);
    qn_engine_free(g);
    qn_model_close(model);
    group_free(group);
    mem_free(spy);
    return rc;
}
