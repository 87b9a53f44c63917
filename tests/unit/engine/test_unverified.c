/* SPDX-License-Identifier: MIT
 *
 * test_unverified.c: answers of unverified windows do not depend on what else is computed, on the cache or on memory.
 *
 *     test_unverified MODEL [PATTERN]
 *     test_unverified --trace N MODEL
 *
 * --trace prints what N answers to random prompts do, for unverified_peer.py, which decodes them in its own way. The
 * program is built with the smallest pages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/scheduler.h"

#define N_CTX      160
#define MAX_TOKENS 64
#define N_ANSWERS  5
#define N_CASES    8
#define TEXT_BYTES 4096

static qn_model *model;
static int n_vocab;
static struct qn_error e;
static const struct wedlm_file file = {7, {16, 0.4f, 0.02f}};

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if (call) fail_msg("line %d: '%s'", __LINE__, e.msg);                                                          \
    } while (0)

/* ---- requests ---- */

struct record {
    int n[N_ANSWERS];
    qn_token token[N_ANSWERS][MAX_TOKENS];
    float logprob[MAX_TOKENS];
    char text[N_ANSWERS][TEXT_BYTES];
    enum qn_finish finish[N_ANSWERS];
    struct qn_usage usage;
    struct qn_error error;
    int is_done, n_pauses, cancel_after; /* is_done: the number of its last event among all */
    qn_scheduler *scheduler;
    const struct qn_request_params *pushes; /* another request, which is submitted after a few tokens; NULL: none */
};

static int n_events;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;

static void told(void *arg, const struct qn_event *ev)
{
    struct record *r = arg;
    int k = ev->answer;
    pthread_mutex_lock(&mutex);
    n_events++;
    if (ev->type == QN_EVENT_TOKEN) {
        if (k == 0) r->logprob[r->n[k]] = ev->logprob;
        r->token[k][r->n[k]++] = ev->token;
    }
    if (ev->type == QN_EVENT_TOKEN || ev->type == QN_EVENT_FINISH) strncat(r->text[k], ev->text, ev->n_text);
    if (ev->type == QN_EVENT_FINISH) r->finish[k] = ev->finish;
    if (ev->type == QN_EVENT_PAUSE) r->n_pauses++;
    qn_scheduler *cancels = ev->type == QN_EVENT_TOKEN && r->n[k] == r->cancel_after ? r->scheduler : NULL;
    if (ev->type == QN_EVENT_DONE) {
        r->usage = ev->usage;
        if (ev->error) r->error = *ev->error;
        r->is_done = n_events;
        pthread_cond_broadcast(&done);
    }
    pthread_mutex_unlock(&mutex);
    if (cancels) qn_cancel(cancels, ev->request);
    if (ev->type == QN_EVENT_TOKEN && r->pushes && r->n[k] == 3) OK(qn_submit(r->scheduler, r->pushes, NULL, NULL, &e));
}

static void wait_for(const struct record *r)
{
    pthread_mutex_lock(&mutex);
    while (!r->is_done) pthread_cond_wait(&done, &mutex);
    pthread_mutex_unlock(&mutex);
}

/* Number `what` of case i: any 24 bits. */
static int any(int i, int what, int most)
{
    return (int)((rng_u64((uint64_t)i, 9, (uint64_t)what) >> 40) % (uint64_t)most);
}

/* A request whose parameters follow from its number; every second one is plain. */
static struct qn_request_params request(int i, qn_token *prompt, struct record *r)
{
    struct qn_request_params p;
    qn_request_params_init(&p);
    p.n_prompt = (size_t)(1 + any(i, 0, 60));
    for (size_t t = 0; t < p.n_prompt; t++) prompt[t] = any(i, 100 + (int)t, n_vocab);
    p.prompt = prompt;
    p.max_tokens = MAX_TOKENS - any(i, 1, 20);
    p.sampling.seed = (uint64_t)i;
    p.sampling.temperature = i % 4 < 2 ? 0 : 1;
    p.ignore_eog = true;
    p.wedlm.verify = 0;
    p.wedlm.window = 1 + any(i, 2, WEDLM_MOST);
    p.wedlm.entropy_threshold = (float)any(i, 3, 80) / 10;
    p.wedlm.pos_penalty = (float)any(i, 4, 4) / 20;
    if (i % 2) {
        qn_wedlm_init(&p.wedlm);
        p.draft = QN_DRAFT_OFF;
        p.n_top_logprobs = 0;
    }
    p.callback = told;
    p.arg = r;
    return p;
}

/* ---- places ---- */

struct place {
    qn_engine *engine;
    qn_scheduler *scheduler;
};

static struct place place_with(const char *cpu, enum qn_kv kv, int n_threads, int kv_tokens, int n_batch,
                               const struct drafters_own *own)
{
    struct place at;
    struct qn_engine_params p;
    struct qn_scheduler_params q;
    struct drafters_own usual = {.file = &file};
    qn_engine_params_init(&p);
    p.cpu = cpu;
    p.kv = kv;
    p.n_threads = n_threads;
    p.n_ctx = N_CTX;
    p.n_batch = n_batch;
    p.n_sessions = N_CASES;
    p.kv_tokens = kv_tokens;
    OK(qn_engine_new(&at.engine, model, &p, &e));
    qn_scheduler_params_init(&q);
    q.n_running = N_CASES + N_ANSWERS;
    q.draft = QN_DRAFT_WEDLM;
    OK(scheduler_new(&at.scheduler, at.engine, &q, own ? own : &usual, &e));
    return at;
}

static struct place place(void) { return place_with(NULL, QN_KV_F16, 2, 0, 128, NULL); }

static void leave(struct place at)
{
    qn_scheduler_free(at.scheduler);
    qn_engine_free(at.engine);
}

static struct record *record(void)
{
    struct record *r = calloc(1, sizeof *r);
    assert_non_null(r);
    return r;
}

static struct record *ask(qn_scheduler *s, const struct qn_request_params *p)
{
    struct record *r = p->arg;
    OK(qn_submit(s, p, NULL, NULL, &e));
    wait_for(r);
    return r;
}

static struct record *ask_case(qn_scheduler *s, int i)
{
    qn_token prompt[N_CTX];
    struct qn_request_params p = request(i, prompt, record());
    return ask(s, &p);
}

static void same(const struct record *a, const struct record *b, const char *what)
{
    for (int k = 0; k < N_ANSWERS; k++) {
        if (a->n[k] != b->n[k]) fail_msg("%s: %d tokens, not %d", what, a->n[k], b->n[k]);
        if (memcmp(a->token[k], b->token[k], (size_t)a->n[k] * sizeof(qn_token))) fail_msg("%s: other tokens", what);
        if (strcmp(a->text[k], b->text[k])) fail_msg("%s: another text", what);
        if (a->finish[k] != b->finish[k]) fail_msg("%s: finish %d, not %d", what, a->finish[k], b->finish[k]);
    }
    if (memcmp(a->logprob, b->logprob, (size_t)a->n[0] * sizeof(float))) fail_msg("%s: other logprobs", what);
}

static struct record *alone[N_CASES];

static void answer_alone(void)
{
    for (int i = 0; i < N_CASES && !alone[i]; i++) {
        struct place at = place_with(NULL, QN_KV_F16, 1, 0, 128, NULL);
        alone[i] = ask_case(at.scheduler, i);
        assert_int_equal(alone[i]->usage.n_unverified > 0, i % 2 == 0);
        assert_true(i % 2 || alone[i]->usage.n_unverified == alone[i]->usage.n_generated);
        leave(at);
    }
}

/* All cases at once. */
static void all_at_once(qn_scheduler *s, const char *what)
{
    qn_token prompts[N_CASES][N_CTX];
    struct record *r[N_CASES];
    for (int i = 0; i < N_CASES; i++) {
        struct qn_request_params p = request(i, prompts[i], r[i] = record());
        OK(qn_submit(s, &p, NULL, NULL, &e));
    }
    for (int i = 0; i < N_CASES; i++) {
        wait_for(r[i]);
        same(r[i], alone[i], what);
        free(r[i]);
    }
}

/* ---- tests ---- */

static void half_windows_half_plain_have_the_bytes_they_have_alone(void **state)
{
    (void)state;
    answer_alone();
    struct place at = place();
    for (int i = 0; i < 3; i++) all_at_once(at.scheduler, i ? "again" : "together");
    leave(at);
}

static void threads_instructions_and_small_steps_change_nothing(void **state)
{
    (void)state;
#ifdef FEW_CASES
    static const char *const cpus[] = {NULL}; /* the best one; the reference is slow when it is instrumented */
#else
    static const char *const cpus[] = {"ref", "avx2", "avx512"};
#endif
    answer_alone();
    for (size_t i = 0; i < sizeof cpus / sizeof *cpus; i++) {
        struct qn_engine_params p;
        qn_engine *g = NULL;
        qn_engine_params_init(&p);
        p.cpu = cpus[i];
        p.n_ctx = N_CTX;
        int rc = qn_engine_new(&g, model, &p, &e);
        if (i == 0) OK(rc);
        if (rc) continue; /* this machine has not got it */
        qn_engine_free(g);
        struct place at = place_with(cpus[i], QN_KV_F16, 3, 0, 80, NULL); /* not all windows fit a step */
        all_at_once(at.scheduler, cpus[i] ? cpus[i] : "the best");
        leave(at);
    }
}

/* A request that goes before others comes when the answer has a few tokens, and there are not enough pages for both. */
static void answers_that_give_way_go_on_as_they_were(void **state)
{
    (void)state;
    answer_alone();
    for (int i = 0; i < N_CASES; i += 2) {
        qn_token prompt[N_CTX], other[N_CTX];
        struct place at = place_with(NULL, QN_KV_F16, 2, N_CTX, 128, NULL);
        struct qn_request_params p = request(i, prompt, record()), q = request(i + 1, other, record());
        struct record *r = p.arg;
        q.priority = 1;
        r->scheduler = at.scheduler;
        r->pushes = &q;
        same(ask(at.scheduler, &p), alone[i], "after it gave way");
        wait_for(q.arg);
        same(q.arg, alone[i + 1], "before others");
        assert_int_equal(r->n_pauses, 1);
        free(q.arg);
        free(r);
        leave(at);
    }
}

static void answers_to_one_prompt_are_those_of_their_seeds(void **state)
{
    (void)state;
    qn_token prompt[N_CTX];
    struct place at = place();
    struct qn_request_params p = request(2, prompt, record());
    p.n_answers = N_ANSWERS;
    struct record *all = ask(at.scheduler, &p);
    for (int k = 0; k < N_ANSWERS; k++) {
        struct qn_request_params q = request(2, prompt, record());
        q.sampling.seed += (uint64_t)k;
        struct record *one = ask(at.scheduler, &q);
        assert_int_equal(one->n[0], all->n[k]);
        assert_memory_equal(one->token[0], all->token[k], (size_t)one->n[0] * sizeof(qn_token));
        free(one);
    }
    free(all);
    leave(at);
}

/* What the cache has of an answer is what plain decoding of its tokens would have left there. */
static void pages_hold_true_tokens(void **state)
{
    (void)state;
    qn_token prompt[N_CTX], whole[N_CTX];
    struct place at = place(), fresh = place();
    struct record *r = ask_case(at.scheduler, 0);
    struct qn_request_params p = request(0, prompt, NULL), q = request(1, prompt, record()), cold;
    memcpy(whole, request(0, prompt, NULL).prompt, p.n_prompt * sizeof *whole);
    memcpy(whole + p.n_prompt, r->token[0], (size_t)r->n[0] * sizeof *whole);
    q.prompt = whole;
    q.n_prompt = p.n_prompt + (size_t)r->n[0];
    q.max_tokens = 20;
    cold = q;
    cold.arg = record();
    struct record *a = ask(at.scheduler, &q), *b = ask(fresh.scheduler, &cold);
    assert_int_equal(a->usage.n_cached, (int)q.n_prompt - 1);
    assert_int_equal(b->usage.n_cached, 0);
    same(a, b, "after an unverified answer");
    free(a);
    free(b);
    free(r);
    leave(at);
    leave(fresh);
}

static void a_prompt_that_is_known_needs_no_row(void **state)
{
    (void)state;
    struct place at = place();
    struct qn_scheduler_stats before = {.size = sizeof before}, after = before;
    struct record *a = ask_case(at.scheduler, 0);
    OK(qn_scheduler_stats(at.scheduler, &before));
    struct record *b = ask_case(at.scheduler, 0);
    OK(qn_scheduler_stats(at.scheduler, &after));
    same(a, b, "again");
    assert_int_equal(b->usage.n_cached, b->usage.n_prompt);
    assert_int_equal(after.n_prefill_rows, before.n_prefill_rows);
    assert_true(after.n_wedlm_entropy[QN_WEDLM_CLASSES - 1] > 0 && after.wedlm_pass_s > 0 && after.wedlm_head_s > 0);
    free(a);
    free(b);
    leave(at);
}

static void answers_end_where_they_should(void **state)
{
    (void)state;
    qn_token prompt[N_CTX];
    struct place at = place();
    struct record *whole = ask_case(at.scheduler, 2);
    assert_int_equal(whole->finish[0], QN_FINISH_LENGTH);
    struct qn_request_params p = request(2, prompt, record());
    assert_int_equal(whole->n[0], p.max_tokens);
    p.stop_tokens = &whole->token[0][9];
    p.n_stop_tokens = 1;
    struct record *r = ask(at.scheduler, &p);
    int at_stop = 0;
    while (whole->token[0][at_stop] != whole->token[0][9]) at_stop++;
    assert_int_equal(r->finish[0], QN_FINISH_STOP_TOKEN);
    assert_int_equal(r->n[0], at_stop);
    assert_memory_equal(r->token[0], whole->token[0], (size_t)r->n[0] * sizeof(qn_token));
    free(r);
    char stop[TEXT_BYTES];
    const char *stops = stop;
    snprintf(stop, sizeof stop, "%.5s", whole->text[0] + strlen(whole->text[0]) / 2);
    p = request(2, prompt, record());
    p.stop = &stops;
    p.n_stop = 1;
    r = ask(at.scheduler, &p);
    assert_int_equal(r->finish[0], QN_FINISH_STOP_STRING);
    assert_int_equal(strlen(r->text[0]), strstr(whole->text[0], stop) - whole->text[0]);
    free(r);
    p = request(2, prompt, record());
    r = p.arg;
    r->scheduler = at.scheduler;
    r->cancel_after = 7;
    ask(at.scheduler, &p);
    assert_int_equal(r->finish[0], QN_FINISH_CANCELLED);
    assert_int_equal(r->n[0], 7);
    assert_memory_equal(r->token[0], whole->token[0], 7 * sizeof(qn_token));
    free(r);
    free(whole);
    leave(at);
}

/* One request has more windows than a step. */
static void a_request_with_many_answers_holds_up_no_other(void **state)
{
    (void)state;
    qn_token prompt[N_CTX], other[N_CTX];
    struct place at = place_with(NULL, QN_KV_F16, 2, 0, 256, NULL);
    struct qn_request_params p = request(0, prompt, record()), q = request(2, other, record());
    p.wedlm.window = q.wedlm.window = WEDLM_MOST;
    p.wedlm.entropy_threshold = q.wedlm.entropy_threshold = 0; /* only the first mask is filled in a step */
    p.wedlm.pos_penalty = q.wedlm.pos_penalty = WEDLM_MOST_NATS;
    p.n_answers = N_ANSWERS;
    q.max_tokens = 4;
    struct record *many = p.arg, *one = q.arg;
    many->scheduler = at.scheduler;
    many->pushes = &q;
    int first = n_events;
    ask(at.scheduler, &p);
    wait_for(one);
    assert_true(one->is_done - first < (many->is_done - first) / 2);
    free(many);
    free(one);
    leave(at);
}

static void a_window_without_tokens_to_choose_is_an_error(void **state)
{
    (void)state;
    qn_token prompt[N_CTX];
    struct place at = place();
    struct qn_request_params p = request(0, prompt, record());
    struct record *r = p.arg;
    answer_alone();
    struct qn_logit_bias *none = calloc((size_t)n_vocab, sizeof *none);
    assert_non_null(none);
    for (int i = 0; i < n_vocab; i++) none[i] = (struct qn_logit_bias){i, -INFINITY};
    p.sampling.logit_bias = none;
    p.sampling.n_logit_bias = (size_t)n_vocab;
    ask(at.scheduler, &p);
    assert_int_equal(r->finish[0], QN_FINISH_ERROR);
    assert_int_equal(r->error.code, QN_ENUMERIC);
    assert_int_equal(r->n[0], 0);
    struct record *after = ask_case(at.scheduler, 0);
    same(after, alone[0], "after it");
    free(after);
    free(none);
    free(r);
    leave(at);
}

static void refuse(qn_scheduler *s, const struct qn_request_params *p, const char *why)
{
    assert_int_equal(qn_submit(s, p, NULL, NULL, &e), QN_EUSAGE);
    if (!strstr(e.msg, why)) fail_msg("'%s' says nothing of '%s'", e.msg, why);
}

static void what_cannot_be_is_refused_by_name(void **state)
{
    (void)state;
    qn_token prompt[N_CTX];
    struct record r = {0};
    struct place at = place();
    struct qn_request_params p = request(0, prompt, &r), q;
    qn_scheduler *s = at.scheduler;
    q = p, q.n_top_logprobs = 0, refuse(s, &q, "logprobs");
    q = p, q.rotates = true, q.n_keep = 4, refuse(s, &q, "rotates");
    q = p, q.sampling.repetition_penalty = 1.5f, q.sampling.penalty_last_n = 9, refuse(s, &q, "penalties");
    q = p, q.sampling.dry_multiplier = 1, refuse(s, &q, "DRY");
    q = p, q.sampling.mirostat_tau = 5, refuse(s, &q, "mirostat");
    q = p, q.draft = QN_DRAFT_OFF, refuse(s, &q, "'off'");
    q = p, q.wedlm.window = 17, refuse(s, &q, "a window of 17 masks");
    q = p, q.wedlm.entropy_threshold = NAN, refuse(s, &q, "entropy_threshold");
    q = p, q.wedlm.verify = 2, refuse(s, &q, "wedlm_verify is 2");
    leave(at);
    at = place_with(NULL, QN_KV_F16, 1, 0, 48, NULL);
    q = p, q.wedlm.window = 16, refuse(at.scheduler, &q, "steps of 76 rows, and the engine's have 48");
    leave(at);
}

/* ---- traces ---- */

static int n_said;

static void trace_said(void *arg, const struct qn_event *ev)
{
    if (ev->type == QN_EVENT_TOKEN || (ev->type == QN_EVENT_FINISH && ev->finish == QN_FINISH_STOP_TOKEN)) {
        printf(n_said++ ? " %d" : " said %d", ev->token);
        fflush(stdout);
    }
    if (ev->type == QN_EVENT_DONE) told(arg, ev);
}

/* The rows of the step as they are in the batch, and the logits of masks as bytes in hexadecimal. */
static void trace_rows(const struct qn_scheduler *s, const struct step_part *p, const float *logits)
{
    const struct batch *b = &s->engine->batch;
    if (n_said) printf("\n");
    n_said = 0;
    printf(" rows");
    for (int i = p->row; i < p->row + p->n; i++)
        printf(" %d:%d:%d", b->slot[i], b->pos[i], b->want_logits[i] ? -1 : b->token[i]);
    printf("\n logits ");
    for (size_t i = 0; i < (size_t)p->n_logits * (size_t)n_vocab; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        printf("%08x", bits);
    }
    printf("\n");
}

/* A line for each case: its number of prompt tokens, most tokens, window, threshold, penalty, temperature, top_k,
 * top_p, seed and stop tokens; then its rows, logits and tokens. */
static void trace(int n)
{
    struct drafters_own own = {.file = &file, .watch = trace_rows};
    struct place at = place_with(NULL, QN_KV_F16, 1, 0, 128, &own);
    int n_eog;
    const qn_token *eog = vocab_eog(at.engine->model->vocab, &n_eog);
    for (int i = 0; i < n; i++) {
        qn_token prompt[N_CTX], stops[4];
        struct record *r = record();
        struct qn_request_params p = request(2 * i, prompt, r);
        p.max_tokens = 1 + any(i, 5, 40);
        p.sampling.temperature = i % 2 ? (float)(1 + any(i, 6, 8)) / 4 : 0;
        p.sampling.top_k = i % 3 ? 0 : 1 + any(i, 7, 20);
        p.sampling.top_p = i % 5 ? 1 : 0.75f;
        p.sampling.min_p = 0;
        p.ignore_eog = false;
        p.callback = trace_said;
        for (int k = 0; k < 4; k++) stops[k] = any(i, 10 + k, n_vocab);
        p.stop_tokens = stops;
        p.n_stop_tokens = 4;
        printf("case %d %d %d %.9g %.9g %.9g %d %.9g %d %d %d %d %d", (int)p.n_prompt, p.max_tokens, p.wedlm.window,
               (double)p.wedlm.entropy_threshold, (double)p.wedlm.pos_penalty, (double)p.sampling.temperature,
               p.sampling.top_k, (double)p.sampling.top_p, (int)p.sampling.seed, stops[0], stops[1], stops[2],
               stops[3]);
        for (int k = 0; k < n_eog; k++) printf(" %d", eog[k]);
        printf("\n");
        ask(at.scheduler, &p);
        if (n_said) printf("\n");
        n_said = 0;
        free(r);
    }
    leave(at);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_windows_half_plain_have_the_bytes_they_have_alone),
        cmocka_unit_test(threads_instructions_and_small_steps_change_nothing),
        cmocka_unit_test(answers_that_give_way_go_on_as_they_were),
        cmocka_unit_test(answers_to_one_prompt_are_those_of_their_seeds),
        cmocka_unit_test(pages_hold_true_tokens),
        cmocka_unit_test(a_prompt_that_is_known_needs_no_row),
        cmocka_unit_test(answers_end_where_they_should),
        cmocka_unit_test(a_request_with_many_answers_holds_up_no_other),
        cmocka_unit_test(a_window_without_tokens_to_choose_is_an_error),
        cmocka_unit_test(what_cannot_be_is_refused_by_name),
    };
    bool is_trace = argc > 3 && !strcmp(argv[1], "--trace");
    const char *path = argv[is_trace ? 3 : 1];
    if (argc < 2 || qn_model_open(&model, path, &e)) {
        fprintf(stderr, "test_unverified: %s\n", argc < 2 ? "no model" : e.msg);
        return 2;
    }
    n_vocab = qn_model_n_vocab(model);
    if (!is_trace && argc > 2) cmocka_set_test_filter(argv[2]);
    int rc = 0;
    if (is_trace)
        trace(atoi(argv[2]));
    else
        rc = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < N_CASES; i++) free(alone[i]);
    qn_model_close(model);
    return rc;
}
