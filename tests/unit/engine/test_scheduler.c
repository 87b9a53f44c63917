/* SPDX-License-Identifier: MIT
 *
 * test_scheduler.c: many requests at once, through quern.h alone, on a small random model.
 *
 *     test_scheduler MODEL [PATTERN]    PATTERN: of the tests to run; exact_* are those about bits
 *
 * The rule for everything here: what a request is answered, tokens, logprobs and embedding, is bit for bit what it is
 * answered alone, and what a session draws, whatever runs, waits, is cancelled or was cached beside it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/os.h"
#include "base/rng.h"

#define N_CTX       320
#define MAX_ANSWERS 3
#define MAX_EMBD    1024

static qn_model *model;
static int n_vocab;
static struct qn_error e;

static void ok_at(int rc, int line)
{
    if (rc) fail_msg("line %d: %d '%s'", line, rc, e.msg);
}
#define OK(call) ok_at((call), __LINE__)

static void refused_at(int rc, int code, const char *text, int line)
{
    if (rc != code || e.code != code || !strstr(e.msg, text))
        fail_msg("line %d: %d '%s', expected %d '%s'", line, rc, e.msg, code, text);
}
#define REFUSED(call, code, text) refused_at((call), code, text, __LINE__)

/* ---- what a request was told ---- */

struct record {
    int n[MAX_ANSWERS]; /* tokens */
    qn_token token[MAX_ANSWERS][N_CTX];
    float logprob[MAX_ANSWERS][N_CTX];
    struct qn_logprob top[MAX_ANSWERS][N_CTX];
    char text[MAX_ANSWERS][N_CTX * 16];
    enum qn_finish finish[MAX_ANSWERS], outcome;
    int n_finish[MAX_ANSWERS];
    int stop_index;
    int n_prompt; /* events */
    float prompt_logprob[N_CTX];
    float embedding[MAX_EMBD];
    int n_embedding, n_done, n_queued, n_pauses, last_prefill;
    struct qn_usage usage;
    struct qn_timings timings;
    bool after_done;
    /* what it does meanwhile */
    qn_scheduler *scheduler;
    uint64_t submitted_ns;
    uint64_t cancels;  /* this request, when its own prefill has begun */
    atomic_bool *gate; /* waits in its first prefill event until this is set */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL); }

static void note(struct record *r, const struct qn_event *ev)
{
    int a = ev->answer;
    if (r->n_done) r->after_done = true;
    switch (ev->type) {
    case QN_EVENT_QUEUED: r->n_queued++; break;
    case QN_EVENT_PAUSE: r->n_pauses++; break;
    case QN_EVENT_PREFILL: r->last_prefill = ev->n_done; break;
    case QN_EVENT_PROMPT: r->prompt_logprob[r->n_prompt++] = ev->logprob; break;
    case QN_EVENT_TOKEN:
        r->token[a][r->n[a]] = ev->token;
        r->logprob[a][r->n[a]] = ev->logprob;
        if (ev->n_top) r->top[a][r->n[a]] = ev->top[ev->n_top - 1];
        r->n[a]++;
        strncat(r->text[a], ev->text, ev->n_text);
        break;
    case QN_EVENT_EMBEDDING:
        r->n_embedding = ev->n_embedding;
        memcpy(r->embedding, ev->embedding, (size_t)ev->n_embedding * sizeof(float));
        break;
    case QN_EVENT_FINISH:
        r->finish[a] = ev->finish;
        r->n_finish[a]++;
        if (ev->finish == QN_FINISH_STOP_STRING) r->stop_index = ev->stop_index;
        strncat(r->text[a], ev->text, ev->n_text);
        break;
    case QN_EVENT_DONE:
        r->n_done++;
        r->outcome = ev->finish;
        r->usage = ev->usage;
        r->timings = ev->timings;
    }
}

static void told(void *arg, const struct qn_event *ev)
{
    struct record *r = arg;
    pthread_mutex_lock(&mutex);
    note(r, ev);
    pthread_cond_broadcast(&done);
    pthread_mutex_unlock(&mutex);
    if (ev->type != QN_EVENT_PREFILL) return;
    if (r->gate)
        while (!*r->gate) nap();
    if (r->cancels && ev->n_done > 0) qn_cancel(r->scheduler, r->cancels);
}

static void wait_for(const struct record *r)
{
    pthread_mutex_lock(&mutex);
    while (!r->n_done) pthread_cond_wait(&done, &mutex);
    pthread_mutex_unlock(&mutex);
}

/* ---- making things ---- */

static qn_engine *engine(int n_sessions, int n_batch)
{
    qn_engine *g = NULL;
    struct qn_engine_params p;
    qn_engine_params_init(&p);
    p.n_threads = 2;
    p.n_ctx = N_CTX;
    p.n_sessions = n_sessions;
    p.n_batch = n_batch;
    OK(qn_engine_new(&g, model, &p, &e));
    return g;
}

static qn_scheduler *scheduler(qn_engine *g, int n_running, int n_queued, int n_prefill)
{
    qn_scheduler *s = NULL;
    struct qn_scheduler_params p;
    qn_scheduler_params_init(&p);
    p.n_running = n_running;
    p.n_queued = n_queued;
    p.n_prefill = n_prefill;
    OK(qn_scheduler_new(&s, g, &p, &e));
    return s;
}

static struct record *record(void)
{
    struct record *r = calloc(1, sizeof *r);
    assert_non_null(r);
    return r;
}

static qn_token prompt_token(int which, int i)
{
    return (qn_token)(rng_u64((uint64_t)which, 1, (uint64_t)i) % (uint64_t)n_vocab);
}

/* Request number `which` ends a message with the last but one token of its prompt: so the same prompt again goes on
 * from there, in a model with a recurrent state too. */
#define N_REQUESTS 100
static int last_but_one[N_REQUESTS];

static size_t prompt_length(int which) { return (size_t)(20 + which * 37 % 150); }

/* Request number `which`: its prompt, its length and its sampling all differ. */
static struct qn_request_params request(int which, qn_token *prompt)
{
    struct qn_request_params p;
    qn_request_params_init(&p);
    p.n_prompt = prompt_length(which);
    assert_true(which < N_REQUESTS);
    p.boundaries = &last_but_one[which];
    p.n_boundaries = 1;
    for (size_t i = 0; i < p.n_prompt; i++) prompt[i] = prompt_token(which, (int)i);
    p.prompt = prompt;
    p.sampling.seed = (uint64_t)which + 7;
    p.sampling.temperature = which % 3 ? 1 : 0;
    p.sampling.repetition_penalty = which % 4 == 1 ? 1.2f : 1;
    p.max_tokens = 10 + which % 7 * 6;
    p.n_top_logprobs = 3;
    p.ignore_eog = true;
    p.callback = told;
    return p;
}

static uint64_t submit(qn_scheduler *s, int which, struct record *r)
{
    qn_token prompt[N_CTX];
    uint64_t id = 0;
    struct qn_request_params p = request(which, prompt);
    p.arg = r;
    OK(qn_submit(s, &p, &id, NULL, &e));
    return id;
}

static void same_answer(const struct record *a, int i, const struct record *b, int k)
{
    assert_int_equal(a->n[i], b->n[k]);
    assert_memory_equal(a->token[i], b->token[k], (size_t)a->n[i] * sizeof(qn_token));
    assert_memory_equal(a->logprob[i], b->logprob[k], (size_t)a->n[i] * sizeof(float));
    assert_memory_equal(a->top[i], b->top[k], (size_t)a->n[i] * sizeof(struct qn_logprob));
    assert_string_equal(a->text[i], b->text[k]);
    assert_int_equal(a->finish[i], b->finish[k]);
}

/* Every request alone, on a scheduler that has seen nothing else. */
static struct record *alone(int which)
{
    qn_engine *g = engine(1, 64);
    qn_scheduler *s = scheduler(g, 1, 1, 0);
    struct record *r = record();
    submit(s, which, r);
    wait_for(r);
    qn_scheduler_free(s);
    qn_engine_free(g);
    return r;
}

/* All pages are free or cached, nothing runs or waits. */
static void assert_idle(qn_scheduler *s)
{
    struct qn_scheduler_stats st = {.size = sizeof st};
    for (int i = 0; i < 20000; i++) {
        qn_scheduler_stats(s, &st);
        if (!st.n_running && !st.n_queued && st.n_pages_free + st.n_pages_cached == st.n_pages) return;
        nap();
    }
    fail_msg("%d running, %d queued, %d + %d of %d pages", st.n_running, st.n_queued, st.n_pages_free,
             st.n_pages_cached, st.n_pages);
}

/* ---- exactness ---- */

#define N_OTHERS 8

static void exact_as_a_session(void **state)
{
    (void)state;
    for (int which = 0; which < 4; which++) {
        struct record *r = alone(which);
        qn_token prompt[N_CTX], t;
        struct qn_request_params p = request(which, prompt);
        qn_engine *g = engine(1, 64);
        qn_session *session = NULL;
        struct qn_logit_bias bans[64];
        p.sampling.logit_bias = bans; /* as ignore_eog does it */
        for (t = 0; t < qn_model_n_vocab(model); t++)
            if (qn_model_is_eog(model, t)) bans[p.sampling.n_logit_bias++] = (struct qn_logit_bias){t, -INFINITY};
        assert_in_range(p.sampling.n_logit_bias, 1, 64);
        OK(qn_session_new(&session, g, &p.sampling, &e));
        OK(qn_session_sync(session, prompt, p.n_prompt, NULL, &e));
        assert_int_equal(r->n[0], p.max_tokens);
        for (int i = 0; i < p.max_tokens; i++) {
            OK(qn_session_step(session, &t, &e));
            assert_int_equal(t, r->token[0][i]);
            assert_true(r->logprob[0][i] <= 0 && r->logprob[0][i] > -50);
        }
        assert_int_equal(r->outcome, QN_FINISH_LENGTH);
        assert_int_equal(r->usage.n_prompt, p.n_prompt);
        assert_int_equal(r->usage.n_generated, p.max_tokens);
        qn_session_free(session);
        qn_engine_free(g);
        free(r);
    }
}

static void exact_among_others(void **state)
{
    (void)state;
    struct record *single[N_OTHERS + 1], *r[N_OTHERS + 1];
    for (int i = 0; i <= N_OTHERS; i++) single[i] = alone(i);
    for (int n_prefill = 7; n_prefill < 300; n_prefill += 57) {
        qn_engine *g = engine(N_OTHERS + 1, 96);
        qn_scheduler *s = scheduler(g, N_OTHERS + 1, N_OTHERS + 1, n_prefill);
        for (int i = 0; i <= N_OTHERS; i++) submit(s, i, r[i] = record());
        for (int i = 0; i <= N_OTHERS; i++) {
            wait_for(r[i]);
            same_answer(r[i], 0, single[i], 0);
        }
        assert_idle(s);
        for (int i = 0; i <= N_OTHERS; i++) free(r[i]);
        qn_scheduler_free(s);
        qn_engine_free(g);
    }
    for (int i = 0; i <= N_OTHERS; i++) free(single[i]);
}

static void exact_three_answers(void **state)
{
    (void)state;
    for (int length = 63; length <= 65; length++) { /* a page's edge and both sides of it */
        qn_engine *g = engine(3, 64);
        qn_scheduler *s = scheduler(g, 4, 4, 0);
        qn_token prompt[N_CTX];
        struct qn_request_params p = request(4, prompt);
        struct record *all = record(), *one;
        for (int i = 0; i < length; i++) prompt[i] = prompt_token(4, i);
        p.n_prompt = (size_t)length;
        p.n_boundaries = 0;
        p.n_answers = 3;
        p.max_tokens = 40;
        p.arg = all;
        OK(qn_submit(s, &p, NULL, NULL, &e));
        wait_for(all);
        p.n_answers = 1;
        for (int i = 0; i < 3; i++, p.sampling.seed++) {
            p.arg = one = record();
            OK(qn_submit(s, &p, NULL, NULL, &e));
            wait_for(one);
            assert_int_equal(one->n[0], 40);
            same_answer(all, i, one, 0);
            free(one);
        }
        assert_int_equal(all->usage.n_generated, 120);
        assert_int_not_equal(memcmp(all->token[0], all->token[1], 40 * sizeof(qn_token)), 0);
        assert_idle(s);
        qn_scheduler_free(s);
        qn_engine_free(g);
        free(all);
    }
}

/* A neighbour that is cancelled while its prompt is read leaves no trace. */
static void exact_cancelled_neighbour(void **state)
{
    (void)state;
    struct record *single = alone(2);
    qn_engine *g = engine(4, 64);
    qn_scheduler *s = scheduler(g, 4, 4, 16);
    for (int i = 0; i < 5; i++) {
        struct record *a = record(), *b = record(), *c = record();
        atomic_bool gate = false;
        b->scheduler = s;
        a->gate = &gate;
        submit(s, 2, a);
        uint64_t id = submit(s, 4, b);
        submit(s, i, c);
        b->cancels = id; /* the gate holds the scheduler's thread until here */
        gate = true;
        wait_for(a);
        wait_for(b);
        wait_for(c);
        same_answer(a, 0, single, 0);
        assert_int_equal(b->outcome, QN_FINISH_CANCELLED);
        assert_int_equal(b->n[0], 0);
        assert_false(qn_cancel(s, id));
        free(a);
        free(b);
        free(c);
    }
    assert_idle(s);
    qn_scheduler_free(s);
    qn_engine_free(g);
    free(single);
}

/* A request that was submitted can be cancelled at any time, so it is always in a list, also while it is admitted. */
static void test_always_in_a_list(void **state)
{
    (void)state;
    qn_engine *g = engine(1, 64);
    qn_scheduler *s = scheduler(g, 1, 1, 0);
    for (int i = 0; i < 400; i++) {
        struct record *r = record();
        struct qn_scheduler_stats st = {.size = sizeof st};
        atomic_bool gate = false;
        r->gate = &gate; /* it holds the scheduler's thread after the move */
        uint64_t id = submit(s, 2, r);
        do {
            qn_scheduler_stats(s, &st);
            assert_int_equal(st.n_queued + st.n_running, 1);
        } while (!st.n_running);
        assert_true(qn_cancel(s, id));
        gate = true;
        wait_for(r);
        assert_int_equal(r->outcome, QN_FINISH_CANCELLED);
        free(r);
    }
    assert_idle(s);
    qn_scheduler_free(s);
    qn_engine_free(g);
}

/* The same prompt again, by somebody else, and with its answer and more behind it. */
static void exact_from_the_cache(void **state)
{
    (void)state;
    qn_engine *g = engine(2, 64);
    qn_scheduler *s = scheduler(g, 2, 2, 0);
    for (int which = 0; which < 9; which++) {
        struct record *first = alone(which), *r;
        qn_token prompt[N_CTX];
        struct qn_request_params p = request(which, prompt);
        for (int i = 0; i < 3; i++) {
            submit(s, which, r = record());
            wait_for(r);
            same_answer(r, 0, first, 0);
            assert_int_equal(r->usage.n_cached, i ? (int)p.n_prompt - 1 : 0);
            if (i) assert_null(r->timings.miss);
            free(r);
        }
        p.salt[1] = (uint64_t)which + 1; /* somebody else */
        p.arg = r = record();
        OK(qn_submit(s, &p, NULL, NULL, &e));
        wait_for(r);
        same_answer(r, 0, first, 0);
        assert_int_equal(r->usage.n_cached, 0);
        assert_string_equal(r->timings.miss, "nothing");
        free(r);
        p.salt[1] = 0; /* the next turn: the prompt, its answer and something new, which then differs */
        for (int i = 0; i < first->n[0]; i++) prompt[p.n_prompt++] = first->token[0][i];
        for (int i = 0; i < 2; i++) {
            struct record *cold = record();
            size_t known = p.n_prompt - 1; /* the last token of an answer is not evaluated */
            prompt[p.n_prompt] = (qn_token)(i + 5);
            p.n_prompt++;
            p.arg = r = record();
            OK(qn_submit(s, &p, NULL, NULL, &e));
            wait_for(r);
            assert_int_equal(r->usage.n_cached, known);
            assert_string_equal(r->timings.miss, i ? "differs" : "ends");
            assert_int_equal(r->timings.miss_position, known);
            p.salt[0] = 99 + (uint64_t)i; /* as if new */
            p.arg = cold;
            OK(qn_submit(s, &p, NULL, NULL, &e));
            wait_for(cold);
            assert_int_equal(cold->usage.n_cached, 0);
            same_answer(r, 0, cold, 0);
            p.salt[0] = 0;
            p.n_prompt--;
            free(r);
            free(cold);
            prompt[p.n_prompt - 1] ^= 1; /* the last token of the answer */
        }
        free(first);
    }
    assert_idle(s);
    qn_scheduler_free(s);
    qn_engine_free(g);
}

/* Prompts that leave each other in the middle, where no message ends. With a recurrent state the first one that does
 * goes on from a copy that was made on the way, and leaves one where it left: for the next. */
static void exact_where_prompts_part(void **state)
{
    (void)state;
    enum { LENGTH = 250, SHARED = 203, EVERY = 64 };
    qn_engine *g = engine(4, 96);
    qn_scheduler *s = NULL;
    struct qn_scheduler_params sp;
    qn_scheduler_params_init(&sp);
    sp.n_running = 4;
    sp.snapshot_every = EVERY;
    OK(qn_scheduler_new(&s, g, &sp, &e));
    struct qn_scheduler_stats st = {.size = sizeof st};
    qn_scheduler_stats(s, &st);
    for (int i = 0; i < 4; i++) {
        struct record *r = record(), *cold = record();
        qn_token prompt[N_CTX];
        struct qn_request_params p = request(4, prompt);
        for (int k = 0; k < LENGTH; k++) prompt[k] = prompt_token(k < SHARED ? 4 : 40 + i, k);
        p.n_prompt = LENGTH;
        p.n_boundaries = 0;
        p.max_tokens = 12;
        p.n_answers = 2;
        p.arg = r;
        OK(qn_submit(s, &p, NULL, NULL, &e));
        wait_for(r);
        int on_the_way = SHARED / EVERY * EVERY;
        assert_int_equal(r->usage.n_cached, i == 0 ? 0 : st.n_states && i == 1 ? on_the_way : SHARED);
        assert_string_equal(r->timings.miss, i == 0 ? "nothing" : st.n_states && i == 1 ? "state" : "differs");
        p.salt[0] = 77 + (uint64_t)i; /* as if new */
        p.arg = cold;
        OK(qn_submit(s, &p, NULL, NULL, &e));
        wait_for(cold);
        assert_int_equal(cold->usage.n_cached, 0);
        for (int k = 0; k < 2; k++) same_answer(r, k, cold, k);
        free(r);
        free(cold);
    }
    assert_idle(s);
    qn_scheduler_free(s);
    qn_engine_free(g);
}

/* The next process finds on disk what the last one computed. */
static void exact_from_disk(void **state)
{
    (void)state;
    char dir[] = "/tmp/test_scheduler_XXXXXX", command[64];
    assert_non_null(mkdtemp(dir));
    struct record *first = alone(4);
    for (int i = 0; i < 2; i++) {
        qn_engine *g = engine(2, 64);
        qn_scheduler *s = NULL;
        struct qn_scheduler_params p;
        qn_scheduler_params_init(&p);
        p.cache_dir = dir;
        p.cache_bytes = 64 << 20;
        OK(qn_scheduler_new(&s, g, &p, &e));
        struct record *r = record();
        submit(s, 4, r);
        wait_for(r);
        same_answer(r, 0, first, 0);
        assert_true(i ? r->usage.n_cached == r->usage.n_prompt - 1 : r->usage.n_cached == 0);
        qn_scheduler_free(s);
        qn_engine_free(g);
        free(r);
    }
    free(first);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

static void exact_prompt_logprobs(void **state)
{
    (void)state;
    struct record *r[2];
    for (int i = 0; i < 2; i++) {
        qn_engine *g = engine(3, 96);
        qn_scheduler *s = scheduler(g, 3, 3, i ? 11 : 0);
        qn_token prompt[N_CTX];
        struct qn_request_params p = request(3, prompt);
        struct record *other = record();
        p.prompt_logprobs = true;
        p.arg = r[i] = record();
        if (i) submit(s, 1, other);
        OK(qn_submit(s, &p, NULL, NULL, &e));
        wait_for(r[i]);
        if (i) wait_for(other);
        assert_int_equal(r[i]->n_prompt, p.n_prompt);
        assert_true(isnan(r[i]->prompt_logprob[0]));
        qn_scheduler_free(s);
        qn_engine_free(g);
        free(other);
    }
    same_answer(r[0], 0, r[1], 0);
    assert_memory_equal(r[0]->prompt_logprob + 1, r[1]->prompt_logprob + 1,
                        ((size_t)r[0]->n_prompt - 1) * sizeof(float));
    free(r[0]);
    free(r[1]);
}

static void exact_embedding(void **state)
{
    (void)state;
    for (enum qn_pooling pooling = QN_POOL_MEAN; pooling <= QN_POOL_LAST; pooling++) {
        struct record *r[2];
        for (int i = 0; i < 2; i++) {
            qn_engine *g = engine(3, 96);
            qn_scheduler *s = scheduler(g, 3, 3, i ? 11 : 0);
            qn_token prompt[N_CTX];
            struct qn_request_params p = request(3, prompt);
            struct record *other = record();
            double sum = 0;
            p.pooling = pooling;
            p.arg = r[i] = record();
            if (i) submit(s, 1, other);
            OK(qn_submit(s, &p, NULL, NULL, &e));
            wait_for(r[i]);
            if (i) wait_for(other);
            assert_true(r[i]->n_embedding > 0);
            assert_int_equal(r[i]->n[0], 0);
            for (int k = 0; k < r[i]->n_embedding; k++) sum += (double)r[i]->embedding[k] * (double)r[i]->embedding[k];
            assert_true(fabs(sum - 1) < 1e-5);
            assert_idle(s);
            qn_scheduler_free(s);
            qn_engine_free(g);
            free(other);
        }
        assert_memory_equal(r[0]->embedding, r[1]->embedding, (size_t)r[0]->n_embedding * sizeof(float));
        free(r[0]);
        free(r[1]);
    }
}

/* ---- ends and refusals ---- */

static void test_stops(void **state)
{
    (void)state;
    qn_engine *g = engine(2, 64);
    qn_scheduler *s = scheduler(g, 2, 2, 0);
    qn_token prompt[N_CTX];
    struct qn_request_params p = request(2, prompt);
    struct record *whole = record(), *r = record();
    p.arg = whole;
    OK(qn_submit(s, &p, NULL, NULL, &e));
    wait_for(whole);

    p.arg = r; /* the token of the whole answer that comes there for the first time */
    p.stop_tokens = &whole->token[0][5];
    p.n_stop_tokens = 1;
    int first = 0;
    while (whole->token[0][first] != whole->token[0][5]) first++;
    OK(qn_submit(s, &p, NULL, NULL, &e));
    wait_for(r);
    assert_int_equal(r->outcome, QN_FINISH_STOP_TOKEN);
    assert_int_equal(r->n[0], first);
    free(r);

    p.arg = r = record();
    p.max_tokens = 0;
    OK(qn_submit(s, &p, NULL, NULL, &e));
    wait_for(r);
    assert_int_equal(r->outcome, QN_FINISH_LENGTH);
    assert_int_equal(r->n[0], 0);
    free(r);

    p.arg = r = record(); /* to the end of the context */
    p.n_stop_tokens = 0;
    p.max_tokens = -1;
    OK(qn_submit(s, &p, NULL, NULL, &e));
    wait_for(r);
    assert_int_equal(r->outcome, QN_FINISH_LENGTH);
    assert_int_equal(r->n[0], N_CTX - (int)p.n_prompt);
    free(r);

    size_t half = strlen(whole->text[0]) / 2;
    char end[8] = {0};
    while (half && (whole->text[0][half] & 0xc0) == 0x80) half--;
    memcpy(end, whole->text[0] + half, 4);
    const char *stop[] = {"never \x01 said", end};
    p.arg = r = record();
    p.max_tokens = (int)N_CTX / 4;
    p.stop = stop;
    p.n_stop = 2;
    OK(qn_submit(s, &p, NULL, NULL, &e));
    wait_for(r);
    if (r->outcome == QN_FINISH_STOP_STRING) {
        assert_int_equal(r->stop_index, 1);
        assert_null(strstr(r->text[0], end));
        assert_memory_equal(r->text[0], whole->text[0], strlen(r->text[0]));
    }
    free(r);

    p.arg = r = record(); /* the caller makes the same text of the tokens */
    p.n_stop = 0;
    p.no_text = true;
    p.max_tokens = whole->n[0];
    OK(qn_submit(s, &p, NULL, NULL, &e));
    wait_for(r);
    assert_int_equal(r->n[0], whole->n[0]);
    assert_memory_equal(r->token[0], whole->token[0], (size_t)r->n[0] * sizeof(qn_token));
    assert_string_equal(r->text[0], "");
    qn_text *text = NULL;
    const char *bytes;
    size_t n;
    OK(qn_text_new(&text, model, p.continues, NULL, 0, &e));
    for (int i = 0; i < r->n[0]; i++) {
        OK(qn_text_push(text, r->token[0][i], &bytes, &n, NULL, &e));
        strncat(r->text[0], bytes, n);
    }
    OK(qn_text_end(text, &bytes, &n, &e));
    strncat(r->text[0], bytes, n);
    assert_string_equal(r->text[0], whole->text[0]);
    qn_text_free(text);
    free(r);
    free(whole);
    assert_idle(s);
    qn_scheduler_free(s);
    qn_engine_free(g);
}

/* Every one of several answers is told how it ended, with nothing to say too, and when it was not begun. */
static void test_every_answer_ends(void **state)
{
    (void)state;
    qn_engine *g = engine(4, 32);
    qn_scheduler *s = scheduler(g, 4, 4, 0);
    qn_token prompt[N_CTX];
    for (int round = 0; round < 2 * MAX_ANSWERS * 3; round++) {
        struct qn_request_params p = request(6 + round, prompt);
        struct record *r = record();
        bool cancels = round % 3 == 2;
        enum qn_finish why = cancels ? QN_FINISH_CANCELLED : QN_FINISH_LENGTH;
        p.arg = r;
        p.n_answers = 1 + round / 3 % MAX_ANSWERS;
        p.max_tokens = cancels ? 20 : 0;
        p.n_prompt = N_CTX / 2;
        for (size_t i = 0; i < p.n_prompt; i++) prompt[i] = prompt_token(round, (int)i);
        p.n_boundaries = 0;
        p.prompt_logprobs = round % 3 == 1;
        r->scheduler = s;
        OK(qn_submit(s, &p, cancels ? &r->cancels : NULL, NULL, &e));
        wait_for(r);
        assert_int_equal(r->outcome, why);
        for (int k = 0; k < p.n_answers; k++) {
            assert_int_equal(r->n_finish[k], 1);
            assert_int_equal(r->finish[k], why);
            assert_int_equal(r->n[k], 0);
        }
        assert_int_equal(r->n_prompt, p.prompt_logprobs ? p.n_prompt : 0);
        free(r);
    }
    assert_idle(s);
    qn_scheduler_free(s);
    qn_engine_free(g);
}

static void test_refusals(void **state)
{
    (void)state;
    qn_engine *g = engine(1, 64);
    qn_scheduler *s = scheduler(g, 2, 2, 0);
    qn_token prompt[N_CTX + 1] = {0};
    struct qn_request_params p = request(1, prompt);
    struct record *r[4] = {record(), record(), record(), record()};
    atomic_bool gate = false;
    double retry = 0;
    struct qn_request_params bad = p;
    bad.n_prompt = N_CTX + 1;
    REFUSED(qn_submit(s, &bad, NULL, NULL, &e), QN_EFULL, "321 tokens does not fit the context of 320");
    bad.n_prompt = N_CTX;
    REFUSED(qn_submit(s, &bad, NULL, NULL, &e), QN_EFULL, "320 tokens does not fit the context of 320 with an answer");
    bad = p;
    bad.n_answers = 3;
    REFUSED(qn_submit(s, &bad, NULL, NULL, &e), QN_EUSAGE, "3 answers, at most 2");
    bad = p;
    prompt[3] = n_vocab;
    REFUSED(qn_submit(s, &bad, NULL, NULL, &e), QN_EUSAGE, "token 3 is");
    prompt[3] = 1;
    bad.sampling.top_p = 2;
    REFUSED(qn_submit(s, &bad, NULL, NULL, &e), QN_EUSAGE, "top_p");
    bad = p;
    bad.stop = (const char *const[]){""};
    bad.n_stop = 1;
    REFUSED(qn_submit(s, &bad, NULL, NULL, &e), QN_EUSAGE, "empty");
    bad = p;
    bad.replay = (qn_token[]){1, n_vocab};
    bad.n_replay = 2;
    REFUSED(qn_submit(s, &bad, NULL, NULL, &e), QN_EUSAGE, "token of the replay 1 is");

    /* One that runs, held at the gate; two that wait; one too many. */
    r[0]->gate = &gate;
    submit(s, 0, r[0]);
    pthread_mutex_lock(&mutex);
    while (!r[0]->n_queued) pthread_cond_wait(&done, &mutex);
    pthread_mutex_unlock(&mutex);
    struct qn_scheduler_stats st = {.size = sizeof st};
    do qn_scheduler_stats(s, &st);
    while (!st.n_running);
    submit(s, 1, r[1]);
    p.arg = r[2];
    p.deadline_ms = 1;
    OK(qn_submit(s, &p, NULL, NULL, &e));
    REFUSED(qn_submit(s, &p, NULL, &retry, &e), QN_EBUSY, "2 requests wait");
    assert_true(retry > 0);
    for (int i = 0; i < 20; i++) nap();
    gate = true;
    for (int i = 0; i < 3; i++) wait_for(r[i]);
    assert_int_equal(r[2]->outcome, QN_FINISH_DEADLINE);
    assert_int_equal(r[1]->outcome, QN_FINISH_LENGTH);
    qn_scheduler_stats(s, &st);
    assert_int_equal(st.n_refused, 1);
    assert_int_equal(st.n_submitted, 3);
    assert_idle(s);
    qn_scheduler_stop(s, 1);
    REFUSED(qn_submit(s, &p, NULL, NULL, &e), QN_ECANCEL, "stopped");
    qn_scheduler_free(s);
    qn_engine_free(g);
    for (int i = 0; i < 4; i++) free(r[i]);
}

static void test_stop_with_grace(void **state)
{
    (void)state;
    for (int grace = 0; grace < 2; grace++) {
        qn_engine *g = engine(1, 64);
        qn_scheduler *s = scheduler(g, 1, 4, 0);
        struct record *r[3];
        atomic_bool gate = false;
        r[0] = record();
        r[0]->gate = &gate;
        submit(s, 6, r[0]);
        struct qn_scheduler_stats st = {.size = sizeof st};
        do qn_scheduler_stats(s, &st);
        while (!st.n_running);
        for (int i = 1; i < 3; i++) submit(s, i, r[i] = record());
        gate = true;
        qn_scheduler_stop(s, grace ? 100 : 0);
        for (int i = 0; i < 3; i++) assert_int_equal(r[i]->n_done, 1);
        if (grace) assert_int_equal(r[0]->outcome, QN_FINISH_LENGTH);
        qn_scheduler_free(s);
        qn_engine_free(g);
        for (int i = 0; i < 3; i++) free(r[i]);
    }
}

/* ---- shares ---- */

struct client {
    qn_scheduler *s;
    uint64_t identity;
    int n_prompt, max_tokens, n_left;
    int64_t n_computed; /* rows, as long as both have more to send */
    struct client *other;
    atomic_bool *gate;
};

static void next_please(struct client *c);

static void client_told(void *arg, const struct qn_event *ev)
{
    struct client *c = arg;
    if (ev->type == QN_EVENT_PREFILL && c->gate)
        while (!*c->gate) nap();
    if (ev->type != QN_EVENT_DONE) return;
    pthread_mutex_lock(&mutex);
    if (c->n_left > 0 && c->other->n_left > 0 && ev->finish == QN_FINISH_LENGTH) {
        c->n_computed += ev->usage.n_prompt + ev->usage.n_generated;
        next_please(c);
    }
    pthread_cond_broadcast(&done);
    pthread_mutex_unlock(&mutex);
}

static void next_please(struct client *c)
{
    qn_token prompt[N_CTX];
    struct qn_request_params p = request(0, prompt);
    for (int i = 0; i < c->n_prompt; i++) prompt[i] = prompt_token(1000 + c->n_left, i);
    p.n_prompt = (size_t)c->n_prompt;
    p.n_boundaries = 0;
    p.max_tokens = c->max_tokens;
    p.identity = c->identity;
    p.salt[0] = (uint64_t)c->n_left; /* nothing is shared */
    p.n_top_logprobs = -1;
    p.callback = client_told;
    p.arg = c;
    c->n_left--;
    if (qn_submit(c->s, &p, NULL, NULL, NULL)) abort();
}

/* One sends long requests and many at a time, the other short ones: they get the same. */
static void test_fair_shares(void **state)
{
    (void)state;
#ifdef FEW_CASES /* this counts rows, which are the same with sanitizers */
    int n_running = 4;
#else
    int n_running = 1;
#endif
    for (; n_running <= 4; n_running += 3) {
        qn_engine *g = engine(4, 64);
        qn_scheduler *s = scheduler(g, n_running, 64, 0);
        atomic_bool gate = false;
        struct client a = {.s = s, .identity = 1, .n_prompt = 60, .max_tokens = 20, .n_left = 60};
        struct client b = {.s = s, .identity = 2, .n_prompt = 10, .max_tokens = 6, .n_left = 300};
        a.other = &b;
        b.other = &a;
        a.gate = &gate;
        for (int i = 0; i < 16; i++) next_please(&a);
        for (int i = 0; i < 8; i++) next_please(&b);
        gate = true;
        pthread_mutex_lock(&mutex);
        while (a.n_left > 0 && b.n_left > 0) pthread_cond_wait(&done, &mutex);
        pthread_mutex_unlock(&mutex);
        qn_scheduler_free(s);
        qn_engine_free(g);
        int64_t x = a.n_computed, y = b.n_computed;
        if (llabs(x - y) * 10 > (x > y ? x : y)) fail_msg("%lld and %lld rows", (long long)x, (long long)y);
    }
}

/* ---- everything at once ---- */

#define N_THREADS 3
#define N_EACH    120
#define N_KEPT    6

struct worker {
    pthread_t thread;
    qn_scheduler *s;
    int ith;
    struct record *single[6]; /* borrowed */
    struct record *r[N_EACH];
    int which[N_EACH];
    bool refused[N_EACH];
};

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    uint64_t ids[N_KEPT] = {0};
    for (int i = 0; i < N_EACH; i++) {
        uint64_t dice = rng_u64(77, (uint64_t)w->ith, (uint64_t)i);
        qn_token prompt[N_CTX];
        struct qn_request_params p = request(w->which[i] = (int)(dice % 6), prompt);
        p.arg = w->r[i] = calloc(1, sizeof *w->r[i]);
        if (!p.arg) abort();
        p.priority = (int)(dice >> 8 & 1);
        p.identity = dice >> 9 & 3;
        p.salt[1] = dice >> 11 & 1;
        if ((dice >> 12 & 7) == 0) p.deadline_ms = 1 + (int)(dice >> 16 & 15);
        if ((dice >> 20 & 7) == 0) p.n_answers = 3;
        if ((dice >> 24 & 15) == 0) p.prompt_logprobs = true;
        if ((dice >> 28 & 15) == 0) p.pooling = QN_POOL_MEAN, p.prompt_logprobs = false, p.n_answers = 1;
        w->refused[i] = qn_submit(w->s, &p, &ids[i % N_KEPT], NULL, NULL) != 0;
        if (w->refused[i]) nap();
        if ((dice >> 32 & 3) == 0) qn_cancel(w->s, ids[(dice >> 36) % N_KEPT]);
        if ((dice >> 40 & 3) == 0) nap();
    }
    return NULL;
}

static void check_record(const struct worker *w, int i)
{
    const struct record *r = w->r[i], *single = w->single[w->which[i]];
    if (w->refused[i]) {
        assert_int_equal(r->n_done, 0);
        return;
    }
    wait_for(r);
    assert_int_equal(r->n_done, 1);
    assert_false(r->after_done);
    assert_int_not_equal(r->outcome, QN_FINISH_ERROR);
    if (r->n_embedding || r->n[0] == 0) return;
    if (r->outcome == QN_FINISH_LENGTH) assert_int_equal(r->n[0], single->n[0]);
    assert_true(r->n[0] <= single->n[0]);
    assert_memory_equal(r->token[0], single->token[0], (size_t)r->n[0] * sizeof(qn_token));
    assert_memory_equal(r->logprob[0], single->logprob[0], (size_t)r->n[0] * sizeof(float));
}

static void test_random(void **state)
{
    (void)state;
    struct record *single[6];
    struct worker w[N_THREADS] = {0};
    qn_engine *g = engine(2, 48);
    qn_scheduler *s = scheduler(g, 5, 12, 0);
    for (int i = 0; i < 6; i++) single[i] = alone(i);
    for (int i = 0; i < N_THREADS; i++) {
        w[i].s = s;
        w[i].ith = i;
        memcpy(w[i].single, single, sizeof single);
        assert_int_equal(pthread_create(&w[i].thread, NULL, worker_main, &w[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) pthread_join(w[i].thread, NULL);
    int n_refused = 0;
    for (int i = 0; i < N_THREADS; i++)
        for (int k = 0; k < N_EACH; k++) {
            check_record(&w[i], k);
            n_refused += w[i].refused[k];
        }
    assert_idle(s);
    struct qn_scheduler_stats st = {.size = sizeof st};
    qn_scheduler_stats(s, &st);
    uint64_t n = 0;
    for (int i = 0; i <= QN_FINISH_ERROR; i++) n += st.n_done[i];
    assert_int_equal(n, N_THREADS * N_EACH - n_refused);
    assert_int_equal(st.n_submitted, n);
    assert_int_equal(st.n_answers, 0);
    qn_scheduler_free(s);
    qn_engine_free(g);
    for (int i = 0; i < N_THREADS; i++)
        for (int k = 0; k < N_EACH; k++) free(w[i].r[k]);
    for (int i = 0; i < 6; i++) free(single[i]);
}

/* What hangs is told by how long a request is without a step: the time in which there was none, before the submission,
 * does not count. */
static void look(void *arg, const struct qn_event *ev)
{
    struct record *r = arg;
    struct qn_scheduler_stats st = {.size = sizeof st};
    qn_scheduler_stats(r->scheduler, &st);
    if (ev->type == QN_EVENT_PREFILL && ev->n_done < 2 && st.n_running)
        assert_true(st.idle_s <= 1e-9 * (double)(clock_ns() - r->submitted_ns));
    told(arg, ev);
}

static void test_idleness_is_no_hang(void **state)
{
    qn_engine *g = engine(1, 64);
    qn_scheduler *s = scheduler(g, 1, 1, 0);
    (void)state;
    for (int i = 0; i < 2; i++) {
        qn_token prompt[N_CTX];
        struct record *r = record();
        struct qn_request_params p = request(0, prompt);
        r->scheduler = s;
        p.arg = r;
        p.callback = look;
        p.salt[0] = (uint64_t)i; /* nothing is found */
        r->submitted_ns = clock_ns();
        OK(qn_submit(s, &p, NULL, NULL, &e));
        wait_for(r);
        free(r);
        nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
    }
    qn_scheduler_free(s);
    qn_engine_free(g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_as_a_session),       cmocka_unit_test(exact_among_others),
        cmocka_unit_test(exact_three_answers),      cmocka_unit_test(exact_cancelled_neighbour),
        cmocka_unit_test(exact_from_the_cache),     cmocka_unit_test(exact_where_prompts_part),
        cmocka_unit_test(exact_from_disk),          cmocka_unit_test(exact_prompt_logprobs),
        cmocka_unit_test(exact_embedding),          cmocka_unit_test(test_stops),
        cmocka_unit_test(test_every_answer_ends),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_stop_with_grace),     cmocka_unit_test(test_fair_shares),
        cmocka_unit_test(test_idleness_is_no_hang), cmocka_unit_test(test_random),
        cmocka_unit_test(test_always_in_a_list),
    };
    if (argc < 2 || argc > 3 || qn_model_open(&model, argv[1], &e)) {
        fprintf(stderr, "test_scheduler: %s\n", e.code ? e.msg : "one model, please");
        return 1;
    }
    for (int i = 0; i < N_REQUESTS; i++) last_but_one[i] = (int)prompt_length(i) - 1;
    if (argc == 3) cmocka_set_test_filter(argv[2]);
    n_vocab = qn_model_n_vocab(model);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    qn_model_close(model);
    return rc;
}
