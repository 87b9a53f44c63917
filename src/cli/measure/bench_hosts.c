/* SPDX-License-Identifier: MIT
 *
 * bench_hosts.c: prompts and answers through a scheduler and its stages. See bench_hosts.h.
 *
 * A prompt's time is that from its submission to the first token. Answers at once begin together; their time is that
 * from when all of them have begun to when the last one ends, and the tokens of this time are counted. Prompts are
 * never found in the cache, because each has a salt of its own.
 */
#include "cli/measure/bench_hosts.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/inline/minmax.h"
#include "base/os.h"
#include "base/rng.h"
#include "cli/core/cli.h"
#include "cli/core/progress.h"
#include "cli/measure/explain.h"
#include "cli/place/await.h"
#include "engine/scheduler.h"

#define FIRST_TOKENS 2 /* of the prompt of an answer */

struct hosts_test {
    int n_prompt, n_answer, n_streams; /* tokens, tokens of each answer, answers at once */
    bool is_prompt;                    /* the prompt is measured, not the answer */
    char name[32];
    double *rate; /* [n_runs] tokens/s, ascending */
    int n_runs;
};

struct hosts_bench {
    const struct bench_hosts *b;
    struct group *group;
    qn_model *model;
    qn_engine *engine;
    qn_scheduler *scheduler;
    struct hosts_test *tests;
    int n_tests;
    qn_token *tokens; /* of the longest prompt */
    uint64_t salt;
    struct group_stage stages[STAGE_MOST];
    int n_stages;
};

/* ---- which tests ---- */

static struct hosts_test *add_test(struct hosts_bench *h, const struct hosts_test *t)
{
    struct hosts_test *to = &h->tests[h->n_tests++];
    *to = *t;
    to->rate = cli_alloc((size_t)h->b->reps, sizeof *to->rate);
    return to;
}

static void list_tests(struct hosts_bench *h)
{
    const struct bench_hosts *b = h->b;
    h->tests = cli_alloc((size_t)(b->n_prompts + b->n_streams) + 1, sizeof *h->tests);
    for (int i = 0; i < b->n_prompts; i++) {
        struct hosts_test *t = add_test(h, &(struct hosts_test){b->prompts[i], 1, 1, true});
        snprintf(t->name, sizeof t->name, "pp%d", t->n_prompt);
    }
    for (int i = 0; i < b->n_streams && b->n_predict; i++) {
        struct hosts_test *t = add_test(h, &(struct hosts_test){FIRST_TOKENS, b->n_predict + 1, b->streams[i], false});
        if (t->n_streams == 1)
            snprintf(t->name, sizeof t->name, "tg");
        else
            snprintf(t->name, sizeof t->name, "tg%d", t->n_streams);
    }
}

/* ---- measuring ---- */

struct hosts_answer {
    struct await *await;
    uint64_t *at; /* [n_answer] when its tokens came */
    int n;
};

static void told(void *arg, const struct qn_event *ev)
{
    struct hosts_answer *a = arg;
    if (ev->type == QN_EVENT_TOKEN) a->at[a->n++] = clock_ns();
    await_told(a->await, ev);
}

static int ask(struct hosts_bench *h, const struct hosts_test *t, struct hosts_answer *a, struct qn_error *e)
{
    struct qn_request_params p;
    qn_request_params_init(&p);
    p.prompt = h->tokens;
    p.n_prompt = (size_t)t->n_prompt;
    p.max_tokens = t->n_answer;
    p.sampling.temperature = 0;
    p.ignore_eog = p.no_text = true;
    p.salt[0] = ++h->salt;
    p.callback = told;
    p.arg = a;
    return await_submit(a->await, h->scheduler, &p, e);
}

/* Tokens in a second. */
static double rate_of(const struct hosts_test *t, const struct hosts_answer *answers, uint64_t begin_ns)
{
    uint64_t from = 0, to = 0;
    int n = 0;
    if (t->is_prompt) return 1e9 * t->n_prompt / (double)(answers->at[0] - begin_ns);
    for (int i = 0; i < t->n_streams; i++) {
        const struct hosts_answer *a = &answers[i];
        if (a->at[0] > from) from = a->at[0];
        if (a->at[a->n - 1] > to) to = a->at[a->n - 1];
    }
    for (int i = 0; i < t->n_streams; i++)
        for (int k = 0; k < answers[i].n; k++) n += answers[i].at[k] > from;
    return 1e9 * n / (double)(to - from);
}

static int run_once(struct hosts_bench *h, const struct hosts_test *t, double *rate, struct qn_error *e)
{
    struct await await = AWAIT_INIT;
    struct hosts_answer *answers = cli_alloc((size_t)t->n_streams, sizeof *answers);
    uint64_t *at = cli_alloc((size_t)t->n_streams * (size_t)t->n_answer, sizeof *at);
    struct qn_error why;
    int rc = 0;
    await_hold(&await);
    for (int i = 0; i < t->n_streams && !rc; i++) {
        answers[i] = (struct hosts_answer){.await = &await, .at = at + i * t->n_answer};
        rc = ask(h, t, &answers[i], e);
    }
    uint64_t begin_ns = clock_ns();
    await_release(&await);
    int other = await_all(&await, &why);
    if (other && !rc) rc = (*e = why).code;
    if (!rc) *rate = rate_of(t, answers, begin_ns);
    cli_free(at);
    cli_free(answers);
    return rc;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int measure(struct hosts_bench *h, struct hosts_test *t, struct qn_error *e)
{
    uint64_t until = clock_ns() + (uint64_t)h->b->seconds * 1000000000;
    int rc = 0;
    do {
        progress_note("test %d of %d: %s, run %d of %d", (int)(t - h->tests) + 1, h->n_tests, t->name, t->n_runs + 1,
                      h->b->reps);
        rc = run_once(h, t, &t->rate[t->n_runs], e);
        t->n_runs += !rc;
    } while (!rc && t->n_runs < h->b->reps && clock_ns() < until);
    qsort(t->rate, (size_t)t->n_runs, sizeof *t->rate, ascending);
    return rc;
}

/* ---- the hosts ---- */

/* Everything has room at once: the longest prompt, or all answers. */
static int start(struct hosts_bench *h, struct qn_error *e)
{
    struct qn_engine_params p = *h->b->engine;
    struct qn_scheduler_params s;
    int n_ctx = 0, n_tokens = 0, most = 1, longest = 1;
    for (int i = 0; i < h->n_tests; i++) {
        const struct hosts_test *t = &h->tests[i];
        n_ctx = max_int(n_ctx, t->n_prompt + t->n_answer);
        n_tokens = max_int(n_tokens, t->n_streams * (t->n_prompt + t->n_answer + KV_PAGE_SLOTS));
        most = max_int(most, t->n_streams);
        longest = max_int(longest, t->n_prompt);
    }
    p.n_ctx = n_ctx;
    p.kv_tokens = n_tokens + KV_PAGE_SLOTS;
    qn_scheduler_params_init(&s);
    s.n_running = s.n_queued = most;
    s.draft = QN_DRAFT_OFF;
    progress_note("starting the hosts");
    int rc = stage_hosts_start(&h->group, h->b->hosts, h->b->path, &p, false, e);
    if (!rc) rc = qn_model_open_with(&h->model, h->b->path, h->b->file, e);
    if (!rc) rc = stage_hosts_engine(h->group, &h->engine, &h->scheduler, h->model, &p, &s, e);
    if (rc) return rc;
    h->n_stages = group_stages(h->group, h->stages);
    h->tokens = cli_alloc((size_t)longest, sizeof *h->tokens);
    uint64_t n_vocab = (uint64_t)qn_model_n_vocab(h->model);
    for (int i = 0; i < longest; i++) h->tokens[i] = (qn_token)(rng_u64(2, 0, (uint64_t)i) % n_vocab);
    return 0;
}

static void end(struct hosts_bench *h)
{
    for (int i = 0; i < h->n_tests; i++) cli_free(h->tests[i].rate);
    cli_free(h->tests);
    cli_free(h->tokens);
    qn_scheduler_free(h->scheduler);
    qn_engine_free(h->engine);
    qn_model_close(h->model);
    stage_hosts_end(h->group);
}

/* ---- output ---- */

static double median(const struct hosts_test *t) { return (t->rate[t->n_runs / 2] + t->rate[(t->n_runs - 1) / 2]) / 2; }

static double weight_bytes(const struct hosts_bench *h)
{
    return (double)weights_tensor_bytes(h->model->model->weights);
}

static void print_json(const struct hosts_bench *h)
{
    json_t *stages = json_array(), *tests = json_object();
    for (int i = 0; i < h->n_stages; i++) {
        const struct group_stage *s = &h->stages[i];
        json_array_append_new(stages,
                              json_pack("{s:s, s:i, s:i}", "host", s->host, "first", s->lo, "layers", s->hi - s->lo));
    }
    for (int i = 0; i < h->n_tests; i++) {
        const struct hosts_test *t = &h->tests[i];
        json_t *list = json_array();
        for (int k = 0; k < t->n_runs; k++) json_array_append_new(list, json_real(t->rate[k]));
        json_object_set_new(tests, t->name,
                            json_pack("{s:s, s:i, s:i, s:o, s:f}", "kind", t->is_prompt ? "prefill" : "decode",
                                      "tokens", t->is_prompt ? t->n_prompt : t->n_answer - 1, "streams", t->n_streams,
                                      "tok_s", list, "median", median(t)));
    }
    cli_print_json(json_pack("{s:s, s:s, s:I, s:s, s:o, s:o}", "model", h->b->name, "arch", h->model->model->hp.arch,
                             "weight_bytes", (json_int_t)weight_bytes(h), "version", qn_version(), "stages", stages,
                             "tests", tests),
                   JSON_COMPACT | JSON_REAL_PRECISION(9));
}

static void print_test(const struct hosts_test *t)
{
    char name[64], rates[3][24];
    if (t->is_prompt)
        snprintf(name, sizeof name, "prefill of %d", t->n_prompt);
    else if (t->n_streams == 1)
        snprintf(name, sizeof name, "decode of %d", t->n_answer - 1);
    else
        snprintf(name, sizeof name, "decode of %d, %d answers", t->n_answer - 1, t->n_streams);
    explain_rate(median(t), rates[0]);
    explain_rate(t->rate[0], rates[1]);
    explain_rate(t->rate[t->n_runs - 1], rates[2]);
    printf("%-30s %9s %9s %9s %4d\n", name, rates[0], rates[1], rates[2], t->n_runs);
}

static void print_table(const struct hosts_bench *h)
{
    char bytes[24];
    explain_amount(weight_bytes(h), "B", bytes);
    printf("model      %s (%s), %s of weights\n", h->b->name, h->model->model->hp.arch, bytes);
    for (int i = 0; i < h->n_stages; i++)
        printf("stage      %s, layers %d to %d\n", h->stages[i].host, h->stages[i].lo, h->stages[i].hi - 1);
    printf("\n%-30s %9s %9s %9s %4s\n", "test", "tokens/s", "slowest", "fastest", "runs");
    for (int i = 0; i < h->n_tests; i++) print_test(&h->tests[i]);
}

int bench_hosts(const struct bench_hosts *b, struct qn_error *e)
{
    /* A first run without the clock brings the file's pages into memory. */
    const struct hosts_test first = {1, 2, 1, false};
    struct hosts_bench h = {.b = b};
    double rate;
    list_tests(&h);
    int rc = start(&h, e);
    if (!rc) rc = run_once(&h, &first, &rate, e);
    for (int i = 0; i < h.n_tests && !rc; i++) rc = measure(&h, &h.tests[i], e);
    progress_note("%s", "");
    if (!rc && b->json) print_json(&h);
    if (!rc && !b->json) print_table(&h);
    end(&h);
    return rc;
}
