/* SPDX-License-Identifier: MIT
 *
 * test_flow.c: a scheduler with several steps under way in a chain of stages gives every request the bits that it gets
 * alone, and keeps the stages busy.
 *
 *     test_flow [--all] MODEL...
 *     test_flow --bench MODEL < TIMES    measures with passes that take a given time, for bench/cluster
 *
 * A line of TIMES is: name, stages, answers, tokens of the prompt, tokens of each answer, serial (0 or 1), and pairs of
 * rows and microseconds: a pass of a stage takes that long, and in between as long as a straight line says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/rng.h"

#include "near.h"

#define N_CTX      320
#define N_REQUESTS 10
#define N_ANSWERS  3
#define MOST       64 /* tokens of an answer */

/* ---- requests ---- */

struct record {
    int cancel_at; /* a step; -1: the one after its first token; 0: none */
    atomic_bool is_unwanted;
    pthread_mutex_t *mutex;
    pthread_cond_t *ended;
    int *n_open;
    uint64_t first_ns, last_ns;
    int n[N_ANSWERS];
    qn_token token[N_ANSWERS][MOST];
    float logprob[N_ANSWERS][MOST];
    struct qn_logprob top[N_ANSWERS][MOST][2];
    float prompt_sum; /* of its logprobs */
    enum qn_finish finish;
};

static void take(void *arg, const struct qn_event *ev)
{
    struct record *r = arg;
    if (ev->type == QN_EVENT_PROMPT && ev->logprob == ev->logprob) r->prompt_sum += ev->logprob;
    if (ev->type == QN_EVENT_TOKEN && ev->answer < N_ANSWERS && r->n[ev->answer] < MOST) {
        int k = ev->answer, i = r->n[k]++;
        r->token[k][i] = ev->token;
        r->logprob[k][i] = ev->logprob;
        if (ev->n_top) memcpy(r->top[k][i], ev->top, sizeof r->top[k][i]);
    }
    if (ev->type == QN_EVENT_TOKEN) {
        r->last_ns = clock_ns();
        atomic_store(&r->is_unwanted, r->cancel_at < 0);
        if (!r->first_ns) r->first_ns = r->last_ns;
    }
    if (ev->type != QN_EVENT_DONE) return;
    pthread_mutex_lock(r->mutex);
    r->finish = ev->finish;
    if (!--*r->n_open) pthread_cond_signal(r->ended);
    pthread_mutex_unlock(r->mutex);
}

static uint64_t dice(int request, int what, uint64_t n) { return rng_u64(7, (uint64_t)request, (uint64_t)what) % n; }

/* The i-th request: prompts of all lengths, some with a common beginning, several answers, all kinds of sampling. */
static void ask(qn_scheduler *s, const qn_model *m, struct record *r, int i)
{
    static const int lengths[N_REQUESTS] = {1, 200, 7, 130, 64, 65, 180, 3, 90, 128};
    qn_token prompt[N_CTX];
    struct qn_request_params p;
    struct qn_error e;
    int n_vocab = m->model->hp.n_vocab, boundary = lengths[i] / 2;
    qn_request_params_init(&p);
    for (int k = 0; k < lengths[i]; k++)
        prompt[k] = (qn_token)dice(i % 3 == 0 || k >= 60 ? i : 99, 1000 + k, (uint64_t)n_vocab);
    p.prompt = prompt;
    p.n_prompt = (size_t)lengths[i];
    if (boundary) {
        p.boundaries = &boundary;
        p.n_boundaries = 1;
    }
    p.max_tokens = 3 + (int)dice(i, 1, 40);
    p.n_answers = 1 + (i % 4 == 1) + (i % 4 == 3) * 2;
    p.n_top_logprobs = i % 3 ? 2 : -1;
    p.prompt_logprobs = i == 4;
    p.ignore_eog = true;
    p.no_text = true;
    p.priority = i == 8;
    p.identity = (uint64_t)(i % 2);
    p.sampling.seed = (uint64_t)i;
    p.sampling.temperature = i % 3 == 1 ? 0 : 1.3f;
    p.sampling.repetition_penalty = i % 2 ? 1.2f : 1;
    p.sampling.dry_multiplier = i % 5 == 2 ? 0.8f : 0;
    p.sampling.mirostat_tau = i % 5 == 3 ? 4 : 0;
    p.sampling.xtc_probability = i % 5 == 4 ? 0.5f : 0;
    p.callback = take;
    p.arg = r;
    if (qn_submit(s, &p, NULL, NULL, &e)) fail_msg("request %d: %s", i, e.msg);
}

struct wait {
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    int n_open;
};

static void wait_begin(struct wait *w, struct record *r, int n)
{
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->ended, NULL);
    w->n_open = n;
    for (int i = 0; i < n; i++) {
        memset(&r[i], 0, sizeof r[i]);
        r[i].mutex = &w->mutex;
        r[i].ended = &w->ended;
        r[i].n_open = &w->n_open;
    }
}

static void wait_end(struct wait *w)
{
    pthread_mutex_lock(&w->mutex);
    while (w->n_open) pthread_cond_wait(&w->ended, &w->mutex);
    pthread_mutex_unlock(&w->mutex);
    pthread_cond_destroy(&w->ended);
    pthread_mutex_destroy(&w->mutex);
}

static struct qn_engine_params small(int kv_tokens)
{
    struct qn_engine_params q;
    qn_engine_params_init(&q);
    q.n_ctx = N_CTX;
    q.n_batch = 64;
    q.n_threads = 1;
    q.n_sessions = 6;
    q.kv_tokens = kv_tokens;
    q.memory_bytes = (uint64_t)1 << 30;
    q.state_bytes = (uint64_t)1 << 26;
    return q;
}

/* What each request is answered alone, in this process. */
static void alone(const char *path, struct record *r)
{
    struct qn_engine_params q = small(0);
    struct qn_error e;
    struct wait w;
    qn_model *m;
    qn_engine *g;
    qn_scheduler *s;
    if (qn_model_open(&m, path, &e) || qn_engine_new(&g, m, &q, &e) || qn_scheduler_new(&s, g, NULL, &e))
        fail_msg("%s: %s", path, e.msg);
    for (int i = 0; i < N_REQUESTS; i++) {
        wait_begin(&w, &r[i], 1);
        ask(s, m, &r[i], i);
        wait_end(&w);
    }
    qn_scheduler_free(s);
    qn_engine_free(g);
    qn_model_close(m);
}

static void same(const char *path, const struct record *a, const struct record *b, int i)
{
    if (a->finish != b->finish) fail_msg("%s, request %d ends with %d, alone with %d", path, i, b->finish, a->finish);
    if (memcmp(a->n, b->n, sizeof a->n) || memcmp(a->token, b->token, sizeof a->token))
        fail_msg("%s, request %d: other tokens", path, i);
    if (memcmp(a->logprob, b->logprob, sizeof a->logprob) || memcmp(a->top, b->top, sizeof a->top))
        fail_msg("%s, request %d: other logprobs", path, i);
    if (memcmp(&a->prompt_sum, &b->prompt_sum, sizeof a->prompt_sum)) fail_msg("%s, request %d: prompt", path, i);
}

/* ---- tests ---- */

static char **paths;
static int n_paths;
static bool are_all; /* every model in every number of stages */

/* All requests at once; most of the second time begins with what is cached. With few pages, answers give way. */
static void requests_get_their_bits(void **state)
{
    (void)state;
    static struct record expected[N_REQUESTS], got[N_REQUESTS];
    for (int k = 0; k < n_paths; k++) {
        alone(paths[k], expected);
        for (int n = 2 + k % 3, last = are_all ? 4 : n; n <= last; n++) {
            struct near x;
            struct wait w;
            struct near_params p = {.path = paths[k], .n_stages = n, .engine = small(n == 3 ? 700 : 0)};
            qn_scheduler_params_init(&p.scheduler);
            p.scheduler.draft = n == 4 ? QN_DRAFT_NGRAM : QN_DRAFT_OFF;
            near_open(&x, &p);
            for (int round = 0; round < 2; round++) {
                wait_begin(&w, got, N_REQUESTS);
                for (int i = 0; i < N_REQUESTS; i++) ask(x.scheduler, x.model, &got[i], i);
                wait_end(&w);
                for (int i = 0; i < N_REQUESTS; i++) same(paths[k], &expected[i], &got[i], i);
            }
            /* Only the prompt of request 4 has logprobs, which need logits here. */
            if (p.scheduler.draft == QN_DRAFT_OFF) assert_in_range(x.n_logits, 1, 2 * 64);
            near_free(&x);
        }
    }
}

/* The stages are lost after these steps. The chain is begun anew before ten more could be under way. */
static void lose(void *arg, int n_begun)
{
    struct near *x = arg;
    if (n_begun == 5 || n_begun == 15 || n_begun == 25) atomic_store(&x->stop, true);
}

/* Stages that are lost in the middle: nothing that was under way is taken for something else. */
static void a_lost_chain_goes_on(void **state)
{
    (void)state;
    static struct record expected[N_REQUESTS], got[N_REQUESTS];
    for (int k = 0; k < n_paths; k += are_all ? 1 : 2) {
        struct near x;
        struct wait w;
        struct near_params p = {.path = paths[k], .n_stages = 3, .engine = small(0), .began = lose, .began_arg = &x};
        qn_scheduler_params_init(&p.scheduler);
        alone(paths[k], expected);
        near_open(&x, &p);
        wait_begin(&w, got, N_REQUESTS);
        for (int i = 0; i < N_REQUESTS; i++) ask(x.scheduler, x.model, &got[i], i);
        wait_end(&w);
        for (int i = 0; i < N_REQUESTS; i++) same(paths[k], &expected[i], &got[i], i);
        assert_int_equal(x.n_mended, 3);
        near_free(&x);
    }
}

struct canceller {
    struct near *x;
    struct record *r; /* [2 * N_REQUESTS] */
    sem_t are_asked;
};

/* Cancels what is due at that step. The first one waits until everything was asked for. */
static void cancel_some(void *arg, int n_begun)
{
    struct canceller *c = arg;
    if (n_begun == 1) sem_wait(&c->are_asked);
    for (int i = 0; i < 2 * N_REQUESTS; i++)
        if (c->r[i].cancel_at == n_begun || atomic_exchange(&c->r[i].is_unwanted, false))
            qn_cancel(c->x->scheduler, (uint64_t)i + 1); /* numbers begin with 1 */
}

/* While it waits; in the middle of a prompt that takes three steps or more; after the first of three tokens or more. */
static int when_to_cancel(int i)
{
    static const int at[N_REQUESTS] = {-1, 3, -1, 3, -1, 1, 3, 1, -1, 3};
    return at[i];
}

/* Requests that nobody waits for end, whatever of them is under way, and others are answered as if they were alone. */
static void cancelled_requests_disturb_nobody(void **state)
{
    (void)state;
    static struct record expected[N_REQUESTS], got[2 * N_REQUESTS];
    for (int k = 0; k < n_paths; k += are_all ? 1 : 2) {
        struct near x;
        struct wait w;
        struct canceller c = {.x = &x, .r = got};
        struct near_params p = {
            .path = paths[k], .n_stages = 3, .engine = small(0), .began = cancel_some, .began_arg = &c};
        qn_scheduler_params_init(&p.scheduler);
        alone(paths[k], expected);
        sem_init(&c.are_asked, 0, 0);
        wait_begin(&w, got, 2 * N_REQUESTS);
        for (int i = 0; i < 2 * N_REQUESTS; i += 2) got[i].cancel_at = when_to_cancel(i / 2);
        near_open(&x, &p);
        for (int i = 0; i < 2 * N_REQUESTS; i++) ask(x.scheduler, x.model, &got[i], i / 2);
        sem_post(&c.are_asked);
        wait_end(&w);
        for (int i = 0; i < 2 * N_REQUESTS; i += 2)
            if (got[i].finish != QN_FINISH_CANCELLED)
                fail_msg("%s, request %d ends with %d, not cancelled", paths[k], i / 2, got[i].finish);
        for (int i = 1; i < 2 * N_REQUESTS; i += 2) same(paths[k], &expected[i / 2], &got[i], i / 2);
        near_free(&x);
        sem_destroy(&c.are_asked);
    }
}

/* ---- passes that take a given time ---- */

struct times {
    int n;
    double rows[32], us[32];
};

static uint64_t least_ns(void *arg, int n_rows)
{
    const struct times *t = arg;
    int i = 0;
    if (!t->n) return 0;
    while (i < t->n - 1 && t->rows[i + 1] < n_rows) i++;
    if (t->n == 1 || n_rows <= t->rows[0]) return (uint64_t)(1000 * t->us[0]);
    if (i == t->n - 1) i--;
    double slope = (t->us[i + 1] - t->us[i]) / (t->rows[i + 1] - t->rows[i]);
    return (uint64_t)(1000 * (t->us[i] + slope * (n_rows - t->rows[i])));
}

struct load {
    int n_stages, n_answers, n_prompt, n_tokens;
    bool is_serial;
};

struct outcome {
    double prompt_s, answers_s; /* until the first token; from there to the last */
    int n_steps;
    double pass_s, slowest_s;
};

static struct outcome measure(const char *path, const struct load *l, struct times *t, int rounds)
{
    static struct record r[64];
    struct outcome best = {0};
    struct near x;
    struct near_params p = {.path = path, .n_stages = l->n_stages, .is_serial = l->is_serial};
    p.least_ns = least_ns;
    p.least_arg = t;
    qn_engine_params_init(&p.engine);
    qn_scheduler_params_init(&p.scheduler);
    p.engine.n_ctx = l->n_prompt + l->n_tokens + 8;
    p.engine.n_sessions = l->n_answers;
    p.engine.n_threads = 1;
    p.engine.memory_bytes = (uint64_t)4 << 30;
    p.scheduler.n_running = l->n_answers;
    p.scheduler.draft = QN_DRAFT_OFF; /* as in `quern serve --hosts`, which would wait for each step otherwise */
    near_open(&x, &p);
    for (int round = 0; round < rounds; round++) {
        struct wait w;
        qn_token *prompt = mem_calloc((size_t)l->n_prompt, sizeof *prompt);
        x.n_steps = 0;
        x.pass_s = x.slowest_s = 0;
        wait_begin(&w, r, l->n_answers);
        uint64_t t0 = clock_ns(), first = 0, last = 0;
        for (int i = 0; i < l->n_answers; i++) {
            struct qn_request_params q;
            struct qn_error e;
            qn_request_params_init(&q);
            for (int k = 0; k < l->n_prompt; k++) prompt[k] = (qn_token)dice(1 + round * 64 + i, k, 200);
            q.prompt = prompt;
            q.n_prompt = (size_t)l->n_prompt;
            q.max_tokens = l->n_tokens;
            q.ignore_eog = q.no_text = true;
            q.callback = take;
            q.arg = &r[i];
            if (qn_submit(x.scheduler, &q, NULL, NULL, &e)) stage_die("a request", &e);
        }
        wait_end(&w);
        for (int i = 0; i < l->n_answers; i++) {
            first = r[i].first_ns > first ? r[i].first_ns : first;
            last = r[i].last_ns > last ? r[i].last_ns : last;
        }
        struct outcome now = {1e-9 * (double)(first - t0), 1e-9 * (double)(last - first), x.n_steps, x.pass_s,
                              x.slowest_s};
        if (!round || now.prompt_s + now.answers_s < best.prompt_s + best.answers_s) best = now;
        mem_free(prompt);
    }
    near_free(&x);
    return best;
}

static int bench(const char *path)
{
    char line[4096], name[64];
    while (fgets(line, sizeof line, stdin)) {
        struct load l;
        struct times t = {0};
        int at = 0, used, serial;
        if (sscanf(line, "%63s %d %d %d %d %d%n", name, &l.n_stages, &l.n_answers, &l.n_prompt, &l.n_tokens, &serial,
                   &at) != 6)
            return 1;
        l.is_serial = serial;
        while (t.n < 32 && sscanf(line + at, "%lf %lf%n", &t.rows[t.n], &t.us[t.n], &used) == 2) {
            at += used;
            t.n++;
        }
        struct outcome o = measure(path, &l, &t, 3);
        printf("{\"name\": \"%s\", \"stages\": %d, \"answers\": %d, \"prompt\": %d, \"tokens\": %d, \"serial\": %s, "
               "\"prompt_s\": %.6f, \"answers_s\": %.6f, \"steps\": %d, \"pass_s\": %.6f, \"slowest_s\": %.6f}\n",
               name, l.n_stages, l.n_answers, l.n_prompt, l.n_tokens, serial ? "true" : "false", o.prompt_s,
               o.answers_s, o.n_steps, o.pass_s, o.slowest_s);
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_get_their_bits),
        cmocka_unit_test(a_lost_chain_goes_on),
        cmocka_unit_test(cancelled_requests_disturb_nobody),
    };
    patience_be_exact();
    if (argc == 3 && !strcmp(argv[1], "--bench")) return bench(argv[2]);
    are_all = argc > 1 && !strcmp(argv[1], "--all");
    paths = argv + 1 + are_all;
    n_paths = argc - 1 - are_all;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
