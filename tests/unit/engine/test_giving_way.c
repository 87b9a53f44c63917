/* SPDX-License-Identifier: MIT
 *
 * test_giving_way.c: requests that need more pages than there are, so that answers give way to each other.
 *
 *     test_giving_way MODEL N_SCHEDULES [PATTERN [drafts]]    drafts: with drafters that know the answers, more or less
 *
 * Each schedule submits random requests at random times to a scheduler with a small pool: several answers, priorities,
 * identities, embeddings, logprobs of prompts, deadlines, and cancellation at any time. All of them have to end, with
 * what they are answered alone, and each event exactly once. The program is built with the smallest pages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../oracle.h"
#include "engine/scheduler.h"

#define MAX_CTX     320
#define MAX_ANSWERS 3
#define N_KINDS     16
#define N_AT_ONCE   12
#define LATE_S      120 /* nothing takes as long, unless it hangs */

static qn_model *model;
static int n_vocab, n_schedules;
static struct qn_error e;

static void ok_at(int rc, int line)
{
    if (rc) fail_msg("line %d: %d '%s'", line, rc, e.msg);
}
#define OK(call) ok_at((call), __LINE__)

/* ---- what a request was told ---- */

struct record {
    int n[MAX_ANSWERS], n_pauses[MAX_ANSWERS];
    qn_token token[MAX_ANSWERS][MAX_CTX];
    float logprob[MAX_ANSWERS][MAX_CTX];
    enum qn_finish finish[MAX_ANSWERS], outcome;
    int n_finish[MAX_ANSWERS], n_prompt, n_embedding, n_done, last_prefill;
    int order; /* in which it ended, among all */
    float prompt_logprob[MAX_CTX];
    float embedding; /* the sum of its elements */
    bool is_wrong;   /* an event came twice, or after the end, or a prefill went back */
    struct qn_usage usage;
    struct qn_timings timings;
    atomic_bool *gate; /* waits in its prefill events until this is set; NULL: it does not */
    atomic_bool is_at_gate;
};

static int n_ended;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;

static void note(struct record *r, const struct qn_event *ev)
{
    int k = ev->answer;
    if (r->n_done || r->n_finish[k]) r->is_wrong |= ev->type != QN_EVENT_DONE || r->n_done;
    switch (ev->type) {
    case QN_EVENT_QUEUED: break;
    case QN_EVENT_PREFILL:
        if (ev->n_done < r->last_prefill || r->n[0]) r->is_wrong = true;
        r->last_prefill = ev->n_done;
        break;
    case QN_EVENT_PROMPT: r->prompt_logprob[r->n_prompt++] = ev->logprob; break;
    case QN_EVENT_TOKEN:
        r->token[k][r->n[k]] = ev->token;
        r->logprob[k][r->n[k]++] = ev->logprob;
        break;
    case QN_EVENT_EMBEDDING:
        r->n_embedding++;
        for (int i = 0; i < ev->n_embedding; i++) r->embedding += ev->embedding[i];
        break;
    case QN_EVENT_PAUSE: r->n_pauses[k]++; break;
    case QN_EVENT_FINISH:
        r->finish[k] = ev->finish;
        r->n_finish[k]++;
        break;
    case QN_EVENT_DONE:
        r->n_done++;
        r->order = ++n_ended;
        r->outcome = ev->finish;
        r->usage = ev->usage;
        r->timings = ev->timings;
    }
}

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL); }

static void told(void *arg, const struct qn_event *ev)
{
    struct record *r = arg;
    pthread_mutex_lock(&mutex);
    note(r, ev);
    if (ev->type == QN_EVENT_DONE) pthread_cond_broadcast(&done);
    pthread_mutex_unlock(&mutex);
    if (ev->type == QN_EVENT_PREFILL && r->gate) r->is_at_gate = true;
    while (ev->type == QN_EVENT_PREFILL && r->gate && !*r->gate) nap();
}

static void wait_for(const struct record *r)
{
    struct timespec late;
    int rc = 0;
    clock_gettime(CLOCK_REALTIME, &late);
    late.tv_sec += LATE_S;
    pthread_mutex_lock(&mutex);
    while (!r->n_done && !rc) rc = pthread_cond_timedwait(&done, &mutex, &late);
    pthread_mutex_unlock(&mutex);
    if (rc == ETIMEDOUT) {
        fprintf(stderr, "a request has not ended after %d s: a deadlock\n", LATE_S);
        abort();
    }
}

/* ---- making things ---- */

/* n_pages: of the KV cache; the context may be longer. */
static qn_engine *engine(int n_ctx, int n_sessions)
{
    qn_engine *g = NULL;
    struct qn_engine_params p;
    qn_engine_params_init(&p);
    p.n_threads = 1;
    p.n_ctx = n_ctx;
    p.n_sessions = n_sessions;
    p.n_batch = 32;
    OK(qn_engine_new(&g, model, &p, &e));
    return g;
}

static bool has_drafts;
static struct oracle *next_oracle; /* for the next scheduler; NULL: it has no drafter */

static qn_scheduler *scheduler(qn_engine *g, int n_running)
{
    qn_scheduler *s = NULL;
    struct qn_scheduler_params p;
    qn_scheduler_params_init(&p);
    p.n_running = n_running;
    p.n_queued = 2 * N_AT_ONCE;
    const struct hparams *h = &g->model->hp;
    bool has_aside = !h->state_bytes && !h->n_layer_win && !h->n_lora_kv;
    struct drafters_own own = {
        .drafter = next_oracle ? &next_oracle->drafter : NULL, .is_eager = true, .window = has_aside ? 7 : 0};
    OK(scheduler_new(&s, g, &p, next_oracle ? &own : NULL, &e));
    next_oracle = NULL;
    return s;
}

/* Request number `kind` of N_KINDS. Every other one begins like its neighbour. prompt: [MAX_CTX] */
static struct qn_request_params request(int kind, int n_ctx, qn_token *prompt)
{
    struct qn_request_params p;
    qn_request_params_init(&p);
    p.n_prompt = (size_t)(1 + kind * 29 % (n_ctx * 3 / 4));
    for (size_t i = 0; i < p.n_prompt; i++)
        prompt[i] = (qn_token)(rng_u64((uint64_t)(kind / 2 + (i > 20 ? 100 * kind : 0)), 1, i) % (uint64_t)n_vocab);
    p.prompt = prompt;
    p.sampling.seed = (uint64_t)kind;
    p.sampling.repetition_penalty = kind % 4 == 1 ? 1.2f : 1;
    p.n_top_logprobs = 0;
    p.ignore_eog = kind % 5 != 0;
    p.max_tokens = kind % 3 == 0 ? -1 : 5 + kind * 7 % 60;
    p.n_answers = kind % 4 == 3 ? MAX_ANSWERS : 1;
    if (kind % 8 == 2) p.pooling = kind == 2 ? QN_POOL_MEAN : QN_POOL_LAST;
    if (kind % 8 == 4) p.prompt_logprobs = true;
    p.callback = told;
    return p;
}

static struct record *record(void)
{
    struct record *r = calloc(1, sizeof *r);
    assert_non_null(r);
    return r;
}

static struct record *alone(int kind, int n_ctx)
{
    qn_token prompt[MAX_CTX];
    qn_engine *g = engine(n_ctx, 4);
    qn_scheduler *s = scheduler(g, MAX_ANSWERS);
    struct qn_request_params p = request(kind, n_ctx, prompt);
    struct record *r = record();
    p.arg = r;
    OK(qn_submit(s, &p, NULL, NULL, &e));
    wait_for(r);
    assert_int_equal(r->timings.paused_ms, 0);
    qn_scheduler_free(s);
    qn_engine_free(g);
    return r;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* All pages are free or cached, nothing runs or waits. */
static struct qn_scheduler_stats idle(qn_scheduler *s)
{
    struct qn_scheduler_stats st = {.size = sizeof st};
    for (double late = now_s() + LATE_S; now_s() < late; nap()) {
        qn_scheduler_stats(s, &st);
        if (!st.n_running && !st.n_queued && st.n_pages_free + st.n_pages_cached == st.n_pages) break;
    }
    assert_int_equal(st.n_pages_free + st.n_pages_cached, st.n_pages);
    assert_int_equal(st.n_paused, 0);
    assert_int_equal(st.n_answers, 0);
    return st;
}

/* is_whole: it was not cancelled and had no deadline. */
static void check_record(const struct record *r, const struct record *single, bool is_whole)
{
    assert_int_equal(r->n_done, 1);
    assert_false(r->is_wrong);
    assert_int_not_equal(r->outcome, QN_FINISH_ERROR);
    if (is_whole) {
        assert_int_equal(r->outcome, single->outcome);
        assert_int_equal(r->n_embedding, single->n_embedding);
        assert_int_equal(r->n_prompt, single->n_prompt);
        assert_int_equal(r->usage.n_generated, single->usage.n_generated);
    }
    if (r->n_embedding) assert_memory_equal(&r->embedding, &single->embedding, sizeof r->embedding);
    if (r->n_prompt > 1)
        assert_memory_equal(r->prompt_logprob + 1, single->prompt_logprob + 1,
                            ((size_t)r->n_prompt - 1) * sizeof(float));
    for (int k = 0; k < MAX_ANSWERS; k++) {
        if (is_whole) assert_int_equal(r->n[k], single->n[k]);
        if (is_whole) assert_int_equal(r->finish[k], single->finish[k]);
        assert_true(r->n[k] <= single->n[k]);
        assert_memory_equal(r->token[k], single->token[k], (size_t)r->n[k] * sizeof(qn_token));
        assert_memory_equal(r->logprob[k], single->logprob[k], (size_t)r->n[k] * sizeof(float));
    }
}

/* ---- tests ---- */

/* Answers that are short, so that the scheduler expects short ones. */
static void answer_shortly(qn_scheduler *s)
{
    qn_token prompt[MAX_CTX];
    for (int i = 0; i < 100; i++) {
        struct qn_request_params p = request(0, MAX_CTX, prompt);
        struct record *r = p.arg = record();
        p.max_tokens = 1;
        p.salt[1] = 1;
        OK(qn_submit(s, &p, NULL, NULL, &e));
        wait_for(r);
        free(r);
    }
}

/* Makes the scheduler stand still, in a short request, until the gate opens: what is submitted meanwhile is there at
 * once, however long the submitting takes. */
static struct record *stand_still(qn_scheduler *s, atomic_bool *gate)
{
    qn_token prompt[MAX_CTX];
    struct qn_request_params p = request(0, MAX_CTX, prompt);
    struct record *r = p.arg = record();
    r->gate = gate;
    p.max_tokens = 1;
    p.salt[1] = 1;
    OK(qn_submit(s, &p, NULL, NULL, &e));
    while (!r->is_at_gate) nap();
    return r;
}

/* Several long answers in a pool for little more than one: who gives way, and who goes on. */
static void the_youngest_gives_way(void **state)
{
    (void)state;
    qn_token prompt[MAX_CTX];
    struct record *r[3], *single[3];
    for (int i = 0; i < 3; i++) single[i] = alone(3 + 3 * i, MAX_CTX);
    for (int turned = 0; turned < 2; turned++) { /* then the last one has the highest priority */
        atomic_bool gate = false;
        qn_engine *g = engine(MAX_CTX, 1);
        qn_scheduler *s = scheduler(g, 3);
        answer_shortly(s);
        struct record *still = stand_still(s, &gate);
        for (int i = 0; i < 3; i++) {
            struct qn_request_params p = request(3 + 3 * i, MAX_CTX, prompt);
            p.arg = r[i] = record();
            p.n_answers = 1;
            p.priority = turned ? i : 0;
            p.ignore_eog = true;
            OK(qn_submit(s, &p, NULL, NULL, &e));
        }
        gate = true;
        wait_for(still);
        free(still);
        for (int i = 0; i < 3; i++) {
            wait_for(r[i]);
            assert_false(r[i]->is_wrong);
            assert_int_equal(r[i]->outcome, QN_FINISH_LENGTH);
            assert_int_equal(r[i]->usage.n_prompt + r[i]->n[0], MAX_CTX);
            assert_memory_equal(r[i]->token[0], single[i]->token[0], (size_t)single[i]->n[0] * sizeof(qn_token));
            assert_true((r[i]->timings.paused_ms > 0) == (r[i]->n_pauses[0] > 0));
        }
        assert_int_equal(r[turned ? 2 : 0]->n_pauses[0], 0);
        assert_true(r[1]->order < r[turned ? 0 : 2]->order); /* it goes on before the other one */
        struct qn_scheduler_stats st = idle(s);
        assert_true(st.n_pauses > 0);
        assert_int_equal(r[0]->n_pauses[0] + r[1]->n_pauses[0] + r[2]->n_pauses[0], st.n_pauses);
        qn_scheduler_free(s);
        qn_engine_free(g);
        for (int i = 0; i < 3; i++) free(r[i]);
    }
    for (int i = 0; i < 3; i++) free(single[i]);
}

/* Submits requests with one answer each, before any of them is read, and waits for their ends. */
static void submit_at_once(qn_scheduler *s, int n, const uint64_t *identity, const int *max_tokens, struct record **r)
{
    qn_token prompt[MAX_CTX];
    atomic_bool gate = false;
    struct record *still = stand_still(s, &gate);
    for (int i = 0; i < n; i++) {
        struct qn_request_params p = request(3 + 3 * i, MAX_CTX, prompt);
        p.arg = r[i] = record();
        p.n_answers = 1;
        p.ignore_eog = true;
        p.identity = identity[i];
        p.max_tokens = max_tokens[i];
        OK(qn_submit(s, &p, NULL, NULL, &e));
    }
    gate = true;
    wait_for(still);
    free(still);
    for (int i = 0; i < n; i++) wait_for(r[i]);
}

/* One identity has two answers and the other one the youngest. */
static void the_largest_share_gives_way(void **state)
{
    static const uint64_t identity[] = {1, 1, 2};
    static const int max_tokens[] = {-1, -1, -1};
    struct record *r[3];
    (void)state;
    qn_engine *g = engine(MAX_CTX, 1);
    qn_scheduler *s = scheduler(g, 3);
    answer_shortly(s);
    submit_at_once(s, 3, identity, max_tokens, r);
    assert_true(r[1]->n_pauses[0] > 0);
    assert_int_equal(r[2]->n_pauses[0], 0);
    qn_scheduler_free(s);
    qn_engine_free(g);
    for (int i = 0; i < 3; i++) free(r[i]);
}

/* The second request fits beside what the first one has, but not beside what it will have. */
static void a_request_waits_for_pages_that_others_will_need(void **state)
{
    static const uint64_t identity[] = {0, 0};
    static const int max_tokens[] = {-1, 40};
    struct record *r[2];
    (void)state;
    qn_engine *g = engine(MAX_CTX, 1);
    qn_scheduler *s = scheduler(g, 2);
    submit_at_once(s, 2, identity, max_tokens, r);
    assert_int_equal(idle(s).n_pauses, 0);
    assert_int_equal(r[0]->usage.n_prompt + r[0]->n[0], MAX_CTX);
    assert_int_equal(r[1]->n[0], 40);
    qn_scheduler_free(s);
    qn_engine_free(g);
    for (int i = 0; i < 2; i++) free(r[i]);
}

struct total {
    uint64_t n_rows, n_again, n_pauses, n_requests;
};

/* How many requests a schedule has, and the dice of each of them, which decide its kind too. */
static int schedule_size(int which) { return 1 + (int)(rng_u64(5, (uint64_t)which, 0) % N_AT_ONCE); }
static uint64_t schedule_dice(int which, int i) { return rng_u64(6, (uint64_t)which, (uint64_t)i); }

/* What the kinds in the schedules from `which` to before `end` are answered alone; NULL for other kinds.
 * single: [N_KINDS] */
static void answers_alone(int which, int end, int n_ctx, struct record **single)
{
    memset(single, 0, N_KINDS * sizeof *single);
    for (; which < end; which++) {
        for (int i = 0; i < schedule_size(which); i++) {
            int kind = (int)(schedule_dice(which, i) % N_KINDS);
            if (!single[kind]) single[kind] = alone(kind, n_ctx);
        }
    }
}

/* One schedule. single: [N_KINDS] */
static void run_schedule(qn_scheduler *s, int n_ctx, int which, struct record *const *single)
{
    struct record *r[N_AT_ONCE] = {0};
    int kind[N_AT_ONCE];
    bool is_whole[N_AT_ONCE];
    uint64_t id[N_AT_ONCE] = {0};
    int n = schedule_size(which);
    for (int i = 0; i < n; i++) {
        qn_token prompt[MAX_CTX];
        uint64_t dice = schedule_dice(which, i);
        kind[i] = (int)(dice % N_KINDS);
        struct qn_request_params p = request(kind[i], n_ctx, prompt);
        p.arg = r[i] = record();
        p.priority = -(int)(dice >> 8 & 3) / 2;
        p.identity = dice >> 10 & 3;
        p.salt[0] = dice >> 12 & 1;
        if ((dice >> 16 & 15) == 0) p.deadline_ms = 1 + (int)(dice >> 20 & 7);
        is_whole[i] = !p.deadline_ms;
        OK(qn_submit(s, &p, &id[i], NULL, &e));
        if ((dice >> 24 & 3) == 0) nanosleep(&(struct timespec){.tv_nsec = (long)(dice >> 28 & 0xfff) * 100}, NULL);
        int other = (int)((dice >> 40) % (uint64_t)(i + 1));
        if ((dice >> 48 & 7) == 0) {
            qn_cancel(s, id[other]);
            is_whole[other] = false;
        }
    }
    for (int i = 0; i < n; i++) {
        wait_for(r[i]);
        check_record(r[i], single[kind[i]], is_whole[i]);
        free(r[i]);
    }
}

static void add_stats(qn_scheduler *s, struct total *t)
{
    struct qn_scheduler_stats st = idle(s);
    t->n_rows += st.n_rows;
    t->n_again += st.n_rows_again;
    t->n_pauses += st.n_pauses;
    t->n_requests += st.n_submitted;
}

/* A drafter that knows what the requests are answered. */
static struct oracle *oracle(int which, int n_ctx, struct record *const *single)
{
    struct oracle *o = oracle_new((enum oracle_mood)(which % ORACLE_N_MOODS), n_vocab);
    for (int kind = 0; kind < N_KINDS; kind++) {
        qn_token prompt[MAX_CTX];
        struct qn_request_params p = request(kind, n_ctx, prompt);
        for (int k = 0; single[kind] && k < p.n_answers; k++)
            oracle_tell(o, prompt, p.n_prompt, single[kind]->token[k], single[kind]->n[k]);
    }
    return o;
}

static void random_schedules(void **state)
{
    static const struct {
        int n_ctx, n_sessions, n_running;
    } sizes[] = {{32, 1, 3}, {64, 1, 8}, {160, 1, 12}, {MAX_CTX, 1, 4}, {64, 2, 12}};
    int n_sizes = sizeof sizes / sizeof sizes[0];
    struct total t = {0};
    (void)state;
    for (int z = 0, which = 0; z < n_sizes; z++) {
        struct record *single[N_KINDS];
        int n_ctx = sizes[z].n_ctx, end = n_schedules * (z + 1) / n_sizes;
        answers_alone(which, end, n_ctx, single);
        while (which < end) {
            qn_engine *g = engine(n_ctx, sizes[z].n_sessions);
            if (has_drafts) next_oracle = oracle(which / 25 + which, n_ctx, single);
            qn_scheduler *s = scheduler(g, sizes[z].n_running);
            for (int i = 0; i < 25 && which < end; i++) run_schedule(s, n_ctx, which++, single);
            add_stats(s, &t);
            qn_scheduler_free(s);
            qn_engine_free(g);
        }
        for (int i = 0; i < N_KINDS; i++) free(single[i]);
    }
    printf("%llu requests, %llu rows, %llu of them again, after %llu pauses\n", (unsigned long long)t.n_requests,
           (unsigned long long)t.n_rows, (unsigned long long)t.n_again, (unsigned long long)t.n_pauses);
    assert_true(t.n_pauses > 0);
    assert_true(2 * t.n_again <= t.n_rows); /* on average, nothing is computed more than twice */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_youngest_gives_way),
        cmocka_unit_test(the_largest_share_gives_way),
        cmocka_unit_test(a_request_waits_for_pages_that_others_will_need),
        cmocka_unit_test(random_schedules),
    };
    if (argc < 3 || argc > 5 || qn_model_open(&model, argv[1], &e)) {
        fprintf(stderr, "test_giving_way: %s\n", e.code ? e.msg : "MODEL N_SCHEDULES");
        return 1;
    }
    n_schedules = atoi(argv[2]);
    if (argc > 3) cmocka_set_test_filter(argv[3]);
    has_drafts = argc > 4;
    n_vocab = qn_model_n_vocab(model);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    qn_model_close(model);
    return rc;
}
