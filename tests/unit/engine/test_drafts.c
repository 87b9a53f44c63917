/* SPDX-License-Identifier: MIT
 *
 * test_drafts.c: answers with drafts are those without, to the bit, however good the drafts are.
 *
 *     test_drafts MODEL [PATTERN [DRAFT_MODEL N]]
 *
 * Requests of all kinds are answered without drafts first, one after the other. The drafters are then told what the
 * answers say. The program is built with the smallest pages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../oracle.h"
#include "decode/wedlm_draft.h"
#include "engine/scheduler.h"
#include "kernel/cpu.h"

#define N_CTX        256
#define N_ANSWERS    3
#define MAX_TOKENS   48
#define N_TOP        4
#define TEXT_BYTES   4096
#define N_IDENTITIES 2

static qn_model *model, *small; /* small: a draft model; NULL: there is none */
static int n_random = 24;       /* random prompts for each drafter */
static qn_grammar *grammar;
static int n_vocab;
static struct qn_error e;

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if (call) fail_msg("line %d: '%s'", __LINE__, e.msg);                                                          \
    } while (0)

/* ---- what a request is told ---- */

struct record {
    int n[N_ANSWERS];
    qn_token token[N_ANSWERS][MAX_TOKENS];
    float logprob[N_ANSWERS][MAX_TOKENS];
    struct qn_logprob top[N_ANSWERS][MAX_TOKENS][N_TOP];
    char text[N_ANSWERS][TEXT_BYTES];
    enum qn_finish finish[N_ANSWERS], outcome;
    int stop_index[N_ANSWERS];
    struct qn_usage usage;
    int n_done;
    qn_scheduler *scheduler; /* its request is cancelled after so many tokens; 0: never */
    int cancel_after;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;

static void told(void *arg, const struct qn_event *ev)
{
    struct record *r = arg;
    int k = ev->answer, n = r->n[k];
    pthread_mutex_lock(&mutex);
    if (ev->type == QN_EVENT_TOKEN) {
        r->token[k][n] = ev->token;
        r->logprob[k][n] = ev->logprob;
        if (ev->n_top) memcpy(r->top[k][n], ev->top, sizeof r->top[k][n]);
        r->n[k]++;
    }
    if (ev->type == QN_EVENT_TOKEN || ev->type == QN_EVENT_FINISH) strncat(r->text[k], ev->text, ev->n_text);
    if (ev->type == QN_EVENT_FINISH) {
        r->finish[k] = ev->finish;
        r->stop_index[k] = ev->stop_index;
    }
    if (ev->type == QN_EVENT_DONE) {
        r->outcome = ev->finish;
        r->usage = ev->usage;
        r->n_done++;
        pthread_cond_broadcast(&done);
    }
    /* After the last event, the record may be freed as soon as the mutex is. */
    qn_scheduler *cancels = ev->type == QN_EVENT_TOKEN && r->n[k] == r->cancel_after ? r->scheduler : NULL;
    pthread_mutex_unlock(&mutex);
    if (cancels) qn_cancel(cancels, ev->request);
}

static void wait_for(const struct record *r)
{
    pthread_mutex_lock(&mutex);
    while (!r->n_done) pthread_cond_wait(&done, &mutex);
    pthread_mutex_unlock(&mutex);
}

static struct record *record(void)
{
    struct record *r = calloc(1, sizeof *r);
    assert_non_null(r);
    return r;
}

/* is_whole: it was not cancelled. */
static void same(const struct record *a, const struct record *b, bool is_whole, const char *what)
{
    for (int k = 0; k < N_ANSWERS; k++) {
        size_t n = (size_t)a->n[k];
        if (is_whole ? a->n[k] != b->n[k] : a->n[k] > b->n[k])
            fail_msg("%s: %d tokens, not %d", what, a->n[k], b->n[k]);
        for (size_t i = 0; i < n; i++)
            if (a->token[k][i] != b->token[k][i])
                fail_msg("%s: token %zu of answer %d is %d, not %d", what, i, k, a->token[k][i], b->token[k][i]);
        if (memcmp(a->logprob[k], b->logprob[k], n * sizeof(float))) fail_msg("%s: other logprobs", what);
        if (memcmp(a->top[k], b->top[k], n * sizeof a->top[k][0])) fail_msg("%s: other top logprobs", what);
        if (!is_whole) continue;
        if (strcmp(a->text[k], b->text[k])) fail_msg("%s: '%s', not '%s'", what, a->text[k], b->text[k]);
        if (a->finish[k] != b->finish[k]) fail_msg("%s: finish %d, not %d", what, a->finish[k], b->finish[k]);
        if (a->stop_index[k] != b->stop_index[k]) fail_msg("%s: another stop string", what);
    }
    assert_int_equal(a->n_done, 1);
    assert_int_equal(a->usage.n_prompt, b->usage.n_prompt);
    if (!is_whole) return;
    assert_int_equal(a->outcome, b->outcome);
    assert_int_equal(a->usage.n_generated, b->usage.n_generated);
}

/* ---- requests ---- */

/* What they differ in. */
static const char *const kinds[] = {
    "greedy", "seed",    "penalties", "dry",        "mirostat",    "xtc",
    "bias",   "grammar", "answers",   "stop-token", "stop-string", "short",
};
#define N_KINDS ((int)(sizeof kinds / sizeof kinds[0]))

static int kind_of(const char *name)
{
    for (int i = 0; i < N_KINDS; i++)
        if (!strcmp(kinds[i], name)) return i;
    fail_msg("there is no kind '%s'", name);
    return -1;
}

/* What was answered without drafts. Of requests that stop at a token or a string: what they say if they do not. */
static struct answers {
    struct record *plain[N_KINDS], *unstopped[N_KINDS];
} all_answers[3], *known; /* by KV type; of the present one */

static qn_token prompts[N_KINDS][N_CTX];
static int n_prompts[N_KINDS];

static void make_prompts(void)
{
    for (int kind = 0; kind < N_KINDS; kind++) {
        n_prompts[kind] = 3 + kind * 19 % 61;
        for (int i = 0; i < n_prompts[kind]; i++)
            prompts[kind][i] = (qn_token)(rng_u64((uint64_t)kind, 1, (uint64_t)i) % (uint64_t)n_vocab);
    }
}

static void stop_it(struct qn_request_params *p, int kind, bool is_token)
{
    static qn_token token;
    static char text[TEXT_BYTES];
    static const char *stop;
    const struct record *r = known->unstopped[kind];
    if (!r) return;
    assert_in_range(r->n[0], 30, MAX_TOKENS);
    token = r->token[0][23];
    size_t n = strlen(r->text[0]);
    snprintf(text, sizeof text, "%.*s", 6, r->text[0] + n / 2);
    stop = text;
    p->stop_tokens = &token;
    p->n_stop_tokens = is_token;
    p->stop = &stop;
    p->n_stop = !is_token;
}

static struct qn_request_params request(int kind, struct record *r)
{
    static struct qn_logit_bias bias[] = {{7, -INFINITY}, {11, 2.5f}};
    const char *name = kinds[kind];
    struct qn_request_params p;
    qn_request_params_init(&p);
    p.prompt = prompts[kind];
    p.n_prompt = (size_t)n_prompts[kind];
    p.sampling.seed = (uint64_t)kind;
    p.sampling.temperature = strcmp(name, "greedy") ? 1.1f : 0;
    p.max_tokens = MAX_TOKENS - kind;
    p.n_top_logprobs = N_TOP;
    p.ignore_eog = true;
    if (!strcmp(name, "penalties")) p.sampling.repetition_penalty = 1.3f, p.sampling.frequency_penalty = 0.2f;
    if (!strcmp(name, "penalties")) p.sampling.penalty_last_n = 20;
    if (!strcmp(name, "dry")) p.sampling.dry_multiplier = 0.8f, p.sampling.dry_allowed_length = 1;
    if (!strcmp(name, "mirostat")) p.sampling.mirostat_tau = 4;
    if (!strcmp(name, "xtc")) p.sampling.xtc_probability = 0.5f, p.sampling.xtc_threshold = 0.01f;
    if (!strcmp(name, "bias")) p.sampling.logit_bias = bias, p.sampling.n_logit_bias = 2;
    if (!strcmp(name, "grammar")) p.grammar = grammar, p.ignore_eog = false;
    if (!strcmp(name, "answers")) p.n_answers = N_ANSWERS;
    if (!strcmp(name, "short")) p.max_tokens = 2;
    if (!strcmp(name, "stop-token")) stop_it(&p, kind, true);
    if (!strcmp(name, "stop-string")) stop_it(&p, kind, false);
    p.identity = (uint64_t)(kind % N_IDENTITIES);
    p.callback = told;
    p.arg = r;
    return p;
}

/* ---- places where they are answered ---- */

struct setting {
    const char *cpu;
    int n_threads, n_batch, kv_tokens, n_running;
    enum qn_kv kv;
    enum qn_draft draft;
};

static const struct setting usual = {.n_threads = 2, .n_batch = 64, .n_running = N_KINDS + N_ANSWERS};

static qn_engine *engine(const struct setting *t)
{
    qn_engine *g = NULL;
    struct qn_engine_params p;
    qn_engine_params_init(&p);
    p.cpu = t->cpu;
    p.n_threads = t->n_threads;
    p.n_ctx = N_CTX;
    p.n_batch = t->n_batch;
    p.n_sessions = t->n_running + 2;
    p.kv_tokens = t->kv_tokens;
    p.kv = t->kv;
    OK(qn_engine_new(&g, model, &p, &e));
    return g;
}

/* own: NULL for no drafter of the test. */
static qn_scheduler *scheduler_with(qn_engine *g, const struct setting *t, const struct drafters_own *own)
{
    qn_scheduler *s = NULL;
    struct qn_scheduler_params p;
    qn_scheduler_params_init(&p);
    p.n_running = t->n_running;
    p.draft = t->draft;
    p.draft_model = t->draft == QN_DRAFT_MODEL || t->draft == QN_DRAFT_AUTO ? small : NULL;
    OK(scheduler_new(&s, g, &p, own, &e));
    return s;
}

/* oracle: NULL for no drafts. */
static qn_scheduler *scheduler(qn_engine *g, const struct setting *t, struct oracle *o)
{
    struct drafters_own own = {.drafter = o ? &o->drafter : NULL, .is_eager = true, .window = 9};
    return scheduler_with(g, t, o ? &own : NULL);
}

static struct record *ask(qn_scheduler *s, int kind)
{
    struct record *r = record();
    struct qn_request_params p = request(kind, r);
    OK(qn_submit(s, &p, NULL, NULL, &e));
    wait_for(r);
    return r;
}

/* How many answers of a request got tokens. */
static int plain_answers(int kind) { return strcmp(kinds[kind], "answers") ? 1 : N_ANSWERS; }

/* All pages are free or cached. */
static struct qn_scheduler_stats idle(qn_scheduler *s)
{
    struct qn_scheduler_stats st = {.size = sizeof st};
    for (int i = 0; i < 20000; i++) {
        OK(qn_scheduler_stats(s, &st));
        if (!st.n_running && !st.n_queued && st.n_pages_free + st.n_pages_cached == st.n_pages) return st;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    fail_msg("%d pages are lost", st.n_pages - st.n_pages_free - st.n_pages_cached);
    return st;
}

/* A model that keeps more than keys and values by slot cannot have rows aside. */
static int n_moods(void)
{
    const struct hparams *h = &model->model->hp;
    return h->state_bytes || h->n_layer_win || h->n_lora_kv ? ORACLE_ASIDE : ORACLE_N_MOODS;
}

/* What is answered without drafts, with one KV type. */
static void answer_plainly(enum qn_kv kv)
{
    struct setting t = usual;
    t.kv = kv;
    known = &all_answers[kv];
    if (known->plain[0]) return;
    qn_engine *g = engine(&t);
    qn_scheduler *s = scheduler(g, &t, NULL);
    for (int kind = 0; kind < N_KINDS; kind++) {
        known->unstopped[kind] = ask(s, kind);
        known->plain[kind] = ask(s, kind);
    }
    qn_scheduler_free(s);
    qn_engine_free(g);
}

static struct oracle *oracle(enum oracle_mood mood)
{
    struct oracle *o = oracle_new(mood, n_vocab);
    for (int kind = 0; kind < N_KINDS; kind++)
        for (int k = 0; k < N_ANSWERS; k++)
            oracle_tell(o, prompts[kind], (size_t)n_prompts[kind], known->unstopped[kind]->token[k],
                        known->unstopped[kind]->n[k]);
    return o;
}

/* All requests at once. */
static void ask_all(qn_scheduler *s)
{
    struct record *r[N_KINDS];
    for (int kind = 0; kind < N_KINDS; kind++) {
        struct qn_request_params p = request(kind, r[kind] = record());
        OK(qn_submit(s, &p, NULL, NULL, &e));
    }
    for (int kind = 0; kind < N_KINDS; kind++) {
        wait_for(r[kind]);
        same(r[kind], known->plain[kind], true, kinds[kind]);
        free(r[kind]);
    }
}

/* ---- tests ---- */

/* The answer begins with the tokens that were given, and goes on as after a prompt that ends with them. */
static void a_replay_is_how_the_answer_begins(void **state)
{
    (void)state;
    enum { N_REPLAY = 9, N_MORE = 8 };
    int kind = kind_of("seed"), n = n_prompts[kind];
    qn_token replay[N_REPLAY], whole[N_CTX];
    qn_engine *g = engine(&usual);
    qn_scheduler *s = scheduler(g, &usual, NULL);
    for (int i = 0; i < N_REPLAY; i++) replay[i] = (qn_token)(rng_u64(77, 1, (uint64_t)i) % (uint64_t)n_vocab);
    memcpy(whole, prompts[kind], (size_t)n * sizeof *whole);
    memcpy(whole + n, replay, sizeof replay);
    for (int is_prompt = 0; is_prompt < 2; is_prompt++) {
        static struct record *r[2];
        struct qn_request_params p = request(kind, r[is_prompt] = record());
        p.max_tokens = is_prompt ? N_MORE : N_REPLAY + N_MORE;
        if (is_prompt) p.prompt = whole, p.n_prompt += N_REPLAY;
        if (!is_prompt) p.replay = replay, p.n_replay = N_REPLAY;
        OK(qn_submit(s, &p, NULL, NULL, &e));
        wait_for(r[is_prompt]);
        assert_int_equal(r[is_prompt]->n[0], p.max_tokens);
        if (!is_prompt) continue;
        assert_memory_equal(r[0]->token[0], replay, sizeof replay);
        assert_memory_equal(r[0]->token[0] + N_REPLAY, r[1]->token[0], N_MORE * sizeof(qn_token));
        assert_memory_equal(r[0]->logprob[0] + N_REPLAY, r[1]->logprob[0], N_MORE * sizeof(float));
        free(r[0]);
        free(r[1]);
    }
    qn_scheduler_free(s);
    qn_engine_free(g);
}

/* The first guess of each step is right, and the second one is not. */
static void a_measurement_says_which_guesses_are_right(void **state)
{
    (void)state;
    enum { N_REPLAY = 41 };
    const struct wedlm_file windows = {.mask = 3,
                                       .params = {.window = 2, .entropy_threshold = 100}}; /* all are filled */
    struct drafters_own own = {.is_eager = true, .most = 2, .right = {{1, 0}, 2}, .window = 2, .file = &windows};
    struct qn_scheduler_params q;
    qn_token replay[N_REPLAY];
    qn_engine *g = engine(&usual);
    for (int i = 0; i < N_REPLAY; i++) replay[i] = (qn_token)(rng_u64(78, 1, (uint64_t)i) % (uint64_t)n_vocab);
    for (int draft = QN_DRAFT_MTP; draft <= QN_DRAFT_WEDLM; draft++) {
        int n_without = draft == QN_DRAFT_WEDLM; /* its first step only fills masks */
        own.most = n_without ? 4 : 2;            /* places of a window, too */
        qn_scheduler *s = NULL;
        struct record *r = record();
        struct qn_request_params p = request(kind_of("greedy"), r);
        p.n_replay = (size_t)(p.max_tokens = N_REPLAY);
        p.replay = replay;
        qn_scheduler_params_init(&q);
        q.draft = (enum qn_draft)draft;
        q.draft_model = draft == QN_DRAFT_MODEL ? model : NULL;
        if ((draft == QN_DRAFT_MTP && !g->model->has_nextn) ||
            (draft == QN_DRAFT_WEDLM && wedlm_draft_check(g->model, windows.mask, NULL))) {
            free(r);
            continue;
        }
        OK(scheduler_new(&s, g, &q, &own, &e));
        OK(qn_submit(s, &p, NULL, NULL, &e));
        wait_for(r);
        assert_memory_equal(r->token[0], replay, sizeof replay);
        /* the prompt's step drew the first token */
        assert_int_equal(r->usage.n_passes, (N_REPLAY - 1) / 2 + n_without);
        assert_int_equal(r->usage.n_accepted, (N_REPLAY - 1) / 2 - n_without);
        if (n_without)
            assert_int_equal(r->usage.n_drafted, r->usage.n_accepted); /* two masks bring one guess */
        else
            assert_in_range(r->usage.n_drafted, N_REPLAY - 3, N_REPLAY - 1);
        free(r);
        qn_scheduler_free(s);
    }
    qn_engine_free(g);
}

static void each_request_alone(void **state)
{
    (void)state;
    answer_plainly(QN_KV_F16);
    for (int mood = 0; mood < n_moods(); mood++) {
        struct oracle *o = oracle((enum oracle_mood)mood);
        qn_engine *g = engine(&usual);
        qn_scheduler *s = scheduler(g, &usual, o);
        for (int kind = 0; kind < N_KINDS; kind++) {
            struct record *r = ask(s, kind);
            same(r, known->plain[kind], true, kinds[kind]);
            free(r);
        }
        idle(s);
        assert_true(o->n_proposed > 0 && o->n_absorbed > 0 && (o->n_looks > 0) == (mood == ORACLE_ASIDE));
        qn_scheduler_free(s);
        qn_engine_free(g);
    }
}

static void a_right_drafter_saves_steps(void **state)
{
    (void)state;
    int kind = kind_of("seed");
    uint64_t n_steps[2], n_rows[2];
    answer_plainly(QN_KV_F16);
    for (int is_right = 0; is_right < 2; is_right++) {
        struct oracle *o = oracle(is_right ? ORACLE_RIGHT : ORACLE_WRONG);
        qn_engine *g = engine(&usual);
        qn_scheduler *s = scheduler(g, &usual, o);
        free(ask(s, kind));
        struct qn_scheduler_stats st = idle(s);
        n_steps[is_right] = st.n_steps;
        n_rows[is_right] = st.n_rows;
        qn_scheduler_free(s);
        qn_engine_free(g);
    }
    int n = known->plain[kind]->n[0];
    assert_true(n > 33 && n < 65);
    assert_int_equal(n_steps[0], n);     /* the first token comes with the prompt */
    assert_int_equal(n_steps[1], 1 + 2); /* 31 drafts and a token in each step */
    assert_int_equal(n_rows[1], n_prompts[kind] + n - 1);
}

static void all_at_once(void **state)
{
    (void)state;
    answer_plainly(QN_KV_F16);
    for (int mood = 0; mood < n_moods(); mood++) {
        qn_engine *g = engine(&usual);
        qn_scheduler *s = scheduler(g, &usual, oracle((enum oracle_mood)mood));
        ask_all(s);
        ask_all(s); /* their prompts are in the cache now */
        idle(s);
        qn_scheduler_free(s);
        qn_engine_free(g);
    }
}

static void all_at_once_on_every_setting(void **state)
{
    static const struct setting settings[] = {
        {.n_threads = 1, .n_batch = 64, .n_running = N_KINDS + N_ANSWERS},
        {.n_threads = 2, .n_batch = 64, .n_running = N_KINDS + N_ANSWERS, .kv = QN_KV_F32},
        {.n_threads = 2, .n_batch = 18, .n_running = N_KINDS + N_ANSWERS, .kv = QN_KV_Q8_0},
        {.n_threads = 2, .n_batch = 40, .n_running = 4, .kv = QN_KV_Q8_0},
        {.n_threads = 1, .n_batch = 5, .n_running = 3, .cpu = "ref"},
        {.n_threads = 2, .n_batch = 33, .n_running = 3, .cpu = "avx2"},
    };
    (void)state;
#ifdef FEW_CASES
    const size_t stride = 2;
#else
    const size_t stride = 1;
#endif
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i += stride) {
        const struct setting *t = &settings[i];
        if (t->cpu && !cpu_has((enum cpu_level)cpu_level_parse(t->cpu))) continue;
        answer_plainly(t->kv);
        /* where the reference is instrumented, it takes most of the time */
        const int n = stride > 1 && t->cpu ? 1 : n_moods();
        for (int mood = 0; mood < n; mood++) {
            qn_engine *g = engine(t);
            qn_scheduler *s = scheduler(g, t, oracle((enum oracle_mood)mood));
            ask_all(s);
            idle(s);
            qn_scheduler_free(s);
            qn_engine_free(g);
        }
    }
}

/* A prompt that goes on from an answer whose last step had drafts. */
static void what_was_drafted_is_not_in_the_cache(void **state)
{
    (void)state;
    answer_plainly(QN_KV_F16);
    for (int kind = 0; kind < N_KINDS; kind++) {
        struct record *r[2];
        for (int drafted = 0; drafted < 2; drafted++) {
            struct oracle *o = drafted ? oracle(kind % 2 ? ORACLE_SOMETIMES : ORACLE_RIGHT) : NULL;
            qn_engine *g = engine(&usual);
            qn_scheduler *s = scheduler(g, &usual, o);
            free(ask(s, kind));
            r[drafted] = record();
            struct qn_request_params p = request(kind_of("greedy"), r[drafted]);
            qn_token prompt[N_CTX];
            int n = n_prompts[kind], n_answer = known->plain[kind]->n[0];
            memcpy(prompt, prompts[kind], (size_t)n * sizeof *prompt);
            memcpy(prompt + n, known->plain[kind]->token[0], (size_t)n_answer * sizeof *prompt);
            for (int i = 0; i < 5; i++) prompt[n + n_answer + i] = i;
            p.prompt = prompt;
            p.n_prompt = (size_t)(n + n_answer + 5);
            p.identity = (uint64_t)(kind % N_IDENTITIES);
            OK(qn_submit(s, &p, NULL, NULL, &e));
            wait_for(r[drafted]);
            qn_scheduler_free(s);
            qn_engine_free(g);
        }
        same(r[1], r[0], true, kinds[kind]);
        assert_int_equal(r[1]->usage.n_cached, r[0]->usage.n_cached);
        free(r[0]);
        free(r[1]);
    }
}

/* Few pages: drafts take none that another answer needs, so as many answers give way as without drafts. */
static void drafts_take_no_pages_of_others(void **state)
{
    struct setting t = usual;
    (void)state;
    t.kv_tokens = 7 * N_CTX / 2;
    answer_plainly(QN_KV_F16);
    for (int mood = 0; mood < n_moods(); mood++) {
        qn_engine *g = engine(&t);
        qn_scheduler *s = scheduler(g, &t, oracle((enum oracle_mood)mood));
        ask_all(s);
        ask_all(s);
        idle(s);
        qn_scheduler_free(s);
        qn_engine_free(g);
    }
}

static void cancelled_answers_leave_the_others_alone(void **state)
{
    (void)state;
    answer_plainly(QN_KV_F16);
    for (int mood = 0; mood < n_moods(); mood++) {
        struct record *r[N_KINDS];
        qn_engine *g = engine(&usual);
        qn_scheduler *s = scheduler(g, &usual, oracle((enum oracle_mood)mood));
        for (int kind = 0; kind < N_KINDS; kind++) {
            struct qn_request_params p = request(kind, r[kind] = record());
            r[kind]->scheduler = s;
            r[kind]->cancel_after = kind % 2 ? 0 : 1 + kind;
            OK(qn_submit(s, &p, NULL, NULL, &e));
        }
        for (int kind = 0; kind < N_KINDS; kind++) {
            wait_for(r[kind]);
            same(r[kind], known->plain[kind], kind % 2, kinds[kind]);
            free(r[kind]);
        }
        idle(s);
        qn_scheduler_free(s);
        qn_engine_free(g);
    }
}

/* The drafters themselves, with the controller. */
static void drafters_change_nothing(void **state)
{
    (void)state;
    answer_plainly(QN_KV_F16);
    for (int draft = QN_DRAFT_OFF; draft <= QN_DRAFT_MTP; draft++) {
        struct setting t = usual;
        t.draft = (enum qn_draft)draft;
        qn_engine *g = engine(&t);
        if (draft == QN_DRAFT_MTP && !g->model->has_nextn) {
            qn_engine_free(g);
            continue;
        }
        qn_scheduler *s = scheduler(g, &t, NULL);
        for (int i = 0; i < 3; i++) ask_all(s);
        for (int kind = 0; kind < N_KINDS; kind++) {
            struct record *r = ask(s, kind);
            const struct qn_usage *u = &r->usage;
            same(r, known->plain[kind], true, kinds[kind]);
            assert_true(u->n_accepted <= u->n_drafted && u->n_passes <= u->n_generated);
            if (draft == QN_DRAFT_OFF) assert_int_equal(u->n_drafted, 0);
            if (!r->usage.n_drafted) assert_int_equal(u->n_passes, u->n_generated - plain_answers(kind));
            free(r);
        }
        idle(s);
        qn_scheduler_free(s);
        qn_engine_free(g);
    }
}

/* A prompt of random tokens, of tokens that repeat, or of a question that the trained models know. Returns its length.
 */
static size_t random_prompt(qn_token *to, uint64_t number)
{
    uint64_t n_used = 0;
#define BELOW(n) (int)(rng_u64(number, 5, n_used++) % (uint64_t)(n))
    size_t n = (size_t)BELOW(90) + 3, step = number % 3 ? (size_t)BELOW(12) + 1 : n;
    for (size_t i = 0; i < n; i++) to[i] = i < step ? BELOW(n_vocab) : to[i - step];
    if (number % 3 == 2) {
        char text[200];
        qn_token *ids = NULL;
        int by = BELOW(3) + 1, from = BELOW(90);
        snprintf(text, sizeof text, "<|im_start|>user\nCount from %d to %d by %d.<|im_end|>\n<|im_start|>assistant\n",
                 from, from + by * (5 + BELOW(9)), by);
        OK(qn_tokenize(model, text, strlen(text), QN_PARSE_SPECIAL, NULL, &ids, &n, &e));
        memcpy(to, ids, n * sizeof *to);
        qn_free(ids);
    }
    return n;
}

/* All that is guessed becomes rows. */
static void random_prompts_are_answered_alike(void **state)
{
    (void)state;
    struct drafters_own own = {.is_eager = true, .most = 5};
    qn_engine *g[2] = {engine(&usual), engine(&usual)};
    qn_scheduler *s[2] = {scheduler(g[0], &usual, NULL), NULL};
    uint64_t number = 0;
    answer_plainly(QN_KV_F16);
    for (int draft = QN_DRAFT_AUTO; draft <= QN_DRAFT_MODEL; draft++) {
        struct setting t = usual;
        long n_drafted = 0, n_accepted = 0;
        if (draft == QN_DRAFT_MTP && !g[1]->model->has_nextn) continue;
        if (draft == QN_DRAFT_MODEL && !small) continue;
        t.draft = (enum qn_draft)draft;
        s[1] = scheduler_with(g[1], &t, &own);
        for (int i = 0; i < n_random; i += N_KINDS) {
            struct record *r[2][N_KINDS];
            for (int kind = 0; kind < N_KINDS; kind++, number++)
                for (int k = 0; k < 2; k++) {
                    qn_token prompt[N_CTX];
                    struct qn_request_params p = request(kind, r[k][kind] = record());
                    p.prompt = prompt;
                    p.n_prompt = random_prompt(prompt, number);
                    p.sampling.seed = number;
                    OK(qn_submit(s[k], &p, NULL, NULL, &e));
                }
            for (int kind = 0; kind < N_KINDS; kind++) {
                wait_for(r[0][kind]);
                wait_for(r[1][kind]);
                same(r[1][kind], r[0][kind], true, kinds[kind]);
                n_drafted += r[1][kind]->usage.n_drafted;
                n_accepted += r[1][kind]->usage.n_accepted;
                free(r[0][kind]);
                free(r[1][kind]);
            }
        }
        print_message("%s: %ld of %ld guesses were right\n", qn_draft_name(t.draft), n_accepted, n_drafted);
        qn_scheduler_free(s[1]);
    }
    qn_scheduler_free(s[0]);
    for (int k = 0; k < 2; k++) qn_engine_free(g[k]);
    print_message("%lu prompts\n", (unsigned long)number);
}

/* Windows of the model itself, with any token as the mask; a model that cannot have them is refused by name. */
static void windows_change_nothing(void **state)
{
    static const int windows[] = {16, 5, 1};
    struct wedlm_file file = {7, wedlm_defaults()};
    (void)state;
    for (int kv = QN_KV_F16; kv <= QN_KV_Q8_0; kv++) {
        struct setting t = usual;
        t.kv = (enum qn_kv)kv;
        answer_plainly(t.kv);
        for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
            struct drafters_own own = {.is_eager = true, .window = windows[i]};
            qn_engine *g = engine(&t);
            int rc = wedlm_draft_new(&own.drafter, g->model, &g->forward.pass.kt, &file, t.n_running, &g->ledger, &e);
            if (rc) {
                assert_int_equal(rc, QN_EUNSUP);
                assert_true(strstr(e.msg, "recurrent") || strstr(e.msg, "windowed") || strstr(e.msg, "latent"));
                qn_engine_free(g);
                return;
            }
            qn_scheduler *s = scheduler_with(g, &t, &own);
            ask_all(s);
            for (int kind = 0; kind < N_KINDS; kind += 1 + (int)i * 4) {
                struct record *r = ask(s, kind);
                same(r, known->plain[kind], true, kinds[kind]);
                free(r);
            }
            idle(s);
            qn_scheduler_free(s);
            qn_engine_free(g);
        }
    }
}

/* A grammar with one text: all of its tokens are guessed from it, and those that are right come together. */
static void forced_tokens_come_together(void **state)
{
    (void)state;
    static const char only[] = "root ::= \"{ the only text that there is: word for word, 1 2 3 4 5 6 7 8 9 }\"\n";
    struct drafters_own own = {.is_eager = true};
    struct qn_scheduler_params p;
    struct qn_grammar_params q;
    struct record *answers[2];
    qn_engine *g = engine(&usual);
    qn_grammar *text = NULL;
    qn_grammar_params_init(&q);
    q.kind = QN_GRAMMAR_GBNF;
    q.text = only;
    q.n = sizeof only - 1;
    OK(qn_grammar_new(&text, model, &q, &e));
    qn_scheduler_params_init(&p);
    for (int i = 0; i < 2; i++) {
        qn_scheduler *s = NULL;
        p.draft = i ? QN_DRAFT_NGRAM : QN_DRAFT_OFF;
        OK(scheduler_new(&s, g, &p, i ? &own : NULL, &e));
        struct qn_request_params r = request(kind_of("seed"), answers[i] = record());
        r.grammar = text;
        r.ignore_eog = false;
        OK(qn_submit(s, &r, NULL, NULL, &e));
        wait_for(answers[i]);
        qn_scheduler_free(s);
    }
    same(answers[1], answers[0], true, "a forced text");
    const struct qn_usage *u = &answers[1]->usage;
    assert_true(u->n_accepted > 0 && u->n_passes + u->n_accepted + 1 == u->n_generated);
    free(answers[0]);
    free(answers[1]);
    qn_grammar_free(text);
    qn_engine_free(g);
}

static int n_unsure; /* calls of the drafter that is never sure */

static void be_unsure(struct drafter *d, struct draft *drafts, int n)
{
    (void)d;
    n_unsure++;
    for (int i = 0; i < n; i++) drafts[i].n = 0, drafts[i].is_unsure = true;
}

static void forget_drafter(struct drafter *d) { (void)d; }

static void a_drafter_that_is_never_sure_is_hardly_asked(void **state)
{
    (void)state;
    static const struct drafter_type type = {.name = "unsure", .propose = be_unsure, .free = forget_drafter};
    struct drafter unsure = {&type};
    struct drafters d = {0};
    struct draft_seqs seqs = {.of = {[DRAFT_MODEL] = &unsure}};
    qn_token token = 1;
    OK(drafters_init(&d, 1, NULL, &e));
    d.of[DRAFT_MODEL] = &unsure;
    for (int i = 0; i < 2000; i++) {
        d.n_offers = 0;
        drafters_offer(&d, &seqs, &token, 1, 8, NULL);
        drafters_ask(&d);
        drafters_share(&d, 8);
        drafters_compare(&d, &d.offers[0], &token, 1);
        draft_control_took(&d.control, 1, 0, 0.01);
    }
    assert_in_range(n_unsure, 1, 60);
    drafters_deinit(&d);
}

static void a_drafter_that_is_not_there_is_refused(void **state)
{
    (void)state;
    struct setting t = usual;
    qn_engine *g = engine(&t);
    qn_scheduler *s = NULL;
    struct qn_scheduler_params p;
    qn_scheduler_params_init(&p);
    p.draft = QN_DRAFT_MODEL;
    assert_int_equal(qn_scheduler_new(&s, g, &p, &e), QN_EUSAGE);
    p.draft = QN_DRAFT_MTP;
    if (!g->model->has_nextn) assert_int_equal(qn_scheduler_new(&s, g, &p, &e), QN_EUNSUP);
    p.draft = QN_DRAFT_DEFAULT + 1;
    assert_int_equal(qn_scheduler_new(&s, g, &p, &e), QN_EUSAGE);
    assert_null(s);
    s = scheduler(g, &t, NULL);
    struct record *r = record();
    struct qn_request_params q = request(0, r);
    q.draft = QN_DRAFT_NGRAM;
    assert_int_equal(qn_submit(s, &q, NULL, NULL, &e), QN_EUSAGE);
    if (!strstr(e.msg, "'ngram'")) fail_msg("'%s'", e.msg);
    q.draft = QN_DRAFT_AUTO; /* those that are there: none */
    OK(qn_submit(s, &q, NULL, NULL, &e));
    wait_for(r);
    free(r);
    qn_scheduler_free(s);
    qn_engine_free(g);
}

/* ---- main ---- */

static const char list_grammar[] =
    "root ::= \"[\" item (\", \" item){4,12} \"]\"\nitem ::= [a-z0-9]{1,3} | \"\\\"\" [A-Z]+ \"\\\"\"\n";

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replay_is_how_the_answer_begins),
        cmocka_unit_test(a_measurement_says_which_guesses_are_right),
        cmocka_unit_test(each_request_alone),
        cmocka_unit_test(a_right_drafter_saves_steps),
        cmocka_unit_test(all_at_once),
        cmocka_unit_test(all_at_once_on_every_setting),
        cmocka_unit_test(what_was_drafted_is_not_in_the_cache),
        cmocka_unit_test(drafts_take_no_pages_of_others),
        cmocka_unit_test(cancelled_answers_leave_the_others_alone),
        cmocka_unit_test(drafters_change_nothing),
        cmocka_unit_test(a_drafter_that_is_not_there_is_refused),
        cmocka_unit_test(forced_tokens_come_together),
        cmocka_unit_test(random_prompts_are_answered_alike),
        cmocka_unit_test(windows_change_nothing),
        cmocka_unit_test(a_drafter_that_is_never_sure_is_hardly_asked),
    };
    struct qn_grammar_params p;
    qn_grammar_params_init(&p);
    p.kind = QN_GRAMMAR_GBNF;
    p.text = list_grammar;
    p.n = sizeof list_grammar - 1;
    if (argc < 2 || qn_model_open(&model, argv[1], &e) || qn_grammar_new(&grammar, model, &p, &e)) {
        fprintf(stderr, "usage: test_drafts MODEL [PATTERN] (%s)\n", e.msg);
        return 1;
    }
    if (argc > 4 && qn_model_open(&small, argv[3], &e)) return 1;
    if (argc > 4) n_random = atoi(argv[4]);
    if (argc > 2) cmocka_set_test_filter(argv[2]);
    n_vocab = qn_model_n_vocab(model);
    make_prompts();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < 3 * N_KINDS; i++) {
        free(all_answers[i / N_KINDS].plain[i % N_KINDS]);
        free(all_answers[i / N_KINDS].unstopped[i % N_KINDS]);
    }
    qn_grammar_free(grammar);
    qn_model_close(small);
    qn_model_close(model);
    return failed;
}
