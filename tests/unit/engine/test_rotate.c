/* SPDX-License-Identifier: MIT
 *
 * test_rotate.c: an answer in a context that rotates is what sessions give for the tokens that the context holds.
 *
 *     test_rotate MODEL
 *
 * The expected answers are computed with a session for each stretch between two rotations, and with samplers of their
 * own. The program is built with the smallest pages.
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

#include "base/rng.h"
#include "engine/core/rotate.h"
#include "engine/scheduler.h"

#define N_CTX      64
#define KEEP       10
#define N_PROMPT   23
#define MAX_TOKENS 130
#define N_TEXT     (N_PROMPT + MAX_TOKENS)
#define N_ANSWERS  2

static qn_model *model;
static int n_vocab;
static struct qn_error e;

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if (call) fail_msg("line %d: '%s'", __LINE__, e.msg);                                                          \
    } while (0)

static const char *const kinds[] = {"greedy", "seed", "penalties", "dry", "mirostat"};
#define N_KINDS ((int)(sizeof kinds / sizeof kinds[0]))

static struct qn_sampling sampling(int kind)
{
    struct qn_sampling s;
    qn_sampling_init(&s);
    s.seed = (uint64_t)kind * 10;
    s.temperature = kind ? 1.1f : 0;
    if (!strcmp(kinds[kind], "penalties")) s.repetition_penalty = 1.3f, s.penalty_last_n = 40;
    if (!strcmp(kinds[kind], "dry")) s.dry_multiplier = 0.8f, s.dry_allowed_length = 1;
    if (!strcmp(kinds[kind], "mirostat")) s.mirostat_tau = 4;
    return s;
}

static qn_engine *engine(int n_ctx, int kv_tokens)
{
    qn_engine *g = NULL;
    struct qn_engine_params p;
    qn_engine_params_init(&p);
    p.n_threads = 2;
    p.n_ctx = n_ctx;
    p.n_batch = 48;
    p.n_sessions = 16;
    p.kv_tokens = kv_tokens;
    OK(qn_engine_new(&g, model, &p, &e));
    return g;
}

/* ---- what is expected ---- */

static qn_token expected[N_KINDS][N_ANSWERS][N_TEXT];

/* Copies the tokens that the context of a text of n holds; returns their number. */
static int context_of(const qn_token *text, int n, qn_token *out)
{
    int step = (N_CTX - KEEP) / 2, dropped = 0;
    while (n - dropped >= N_CTX) dropped += step;
    if (!dropped) {
        memcpy(out, text, (size_t)n * sizeof *out);
        return n;
    }
    memcpy(out, text, KEEP * sizeof *out);
    memcpy(out + KEEP, text + KEEP + dropped, (size_t)(n - KEEP - dropped) * sizeof *out);
    return n - dropped;
}

/* The tokens until the next rotation, and whether there are more. */
static int stretch(qn_engine *g, const struct qn_sampling *how, qn_token *text, int n)
{
    qn_token context[N_CTX];
    qn_session *s = NULL;
    struct sampler *sampler = NULL;
    int n_held = context_of(text, n, context);
    OK(qn_session_new(&s, g, NULL, &e));
    OK(qn_session_sync(s, context, (size_t)n_held, NULL, &e));
    OK(sampler_new(&sampler, how, n_vocab, &g->forward.pass.kt, &e));
    OK(sampler_reserve(sampler, N_CTX, &e));
    for (int i = 0; i < n_held; i++) sampler_accept(sampler, context[i]);
    while (n_held < N_CTX && n < N_TEXT) {
        const float *logits;
        OK(qn_session_logits(s, &logits, &e));
        OK(sampler_pick(sampler, logits, (uint64_t)n, &text[n], &e));
        sampler_accept(sampler, text[n]);
        context[n_held++] = text[n++];
        if (n_held < N_CTX) OK(qn_session_sync(s, context, (size_t)n_held, NULL, &e));
    }
    sampler_free(sampler);
    qn_session_free(s);
    return n;
}

/* End tokens are ignored. */
static void expect_all(void)
{
    static struct qn_logit_bias bans[64];
    int n_eog;
    qn_engine *g = engine(N_CTX, 0);
    const qn_token *eog = vocab_eog(model->model->vocab, &n_eog);
    assert_in_range(n_eog, 0, 64);
    for (int i = 0; i < n_eog; i++) bans[i] = (struct qn_logit_bias){eog[i], -INFINITY};
    for (int kind = 0; kind < N_KINDS; kind++)
        for (int k = 0; k < N_ANSWERS; k++) {
            struct qn_sampling how = sampling(kind);
            qn_token *text = expected[kind][k];
            how.seed += (uint64_t)k;
            how.logit_bias = bans;
            how.n_logit_bias = (size_t)n_eog;
            for (int i = 0; i < N_PROMPT; i++)
                text[i] = (qn_token)(rng_u64((uint64_t)kind, 1, (uint64_t)i) % (uint64_t)n_vocab);
            for (int n = N_PROMPT; n < N_TEXT;) n = stretch(g, &how, text, n);
        }
    qn_engine_free(g);
}

/* ---- requests ---- */

struct record {
    int n[N_ANSWERS], n_done;
    qn_token token[N_ANSWERS][N_TEXT];
    enum qn_finish finish;
    struct qn_usage usage;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;

static void told(void *arg, const struct qn_event *ev)
{
    struct record *r = arg;
    pthread_mutex_lock(&mutex);
    if (ev->type == QN_EVENT_TOKEN) r->token[ev->answer][r->n[ev->answer]++] = ev->token;
    if (ev->type == QN_EVENT_DONE) {
        r->finish = ev->finish;
        r->usage = ev->usage;
        r->n_done++;
        pthread_cond_broadcast(&done);
    }
    pthread_mutex_unlock(&mutex);
}

static void wait_for(const struct record *r)
{
    pthread_mutex_lock(&mutex);
    while (!r->n_done) pthread_cond_wait(&done, &mutex);
    pthread_mutex_unlock(&mutex);
}

/* The rest of a text, of which n tokens are the prompt. */
static struct qn_request_params request(int kind, int n, int n_answers, struct record *r)
{
    struct qn_request_params p;
    qn_request_params_init(&p);
    memset(r, 0, sizeof *r);
    p.prompt = expected[kind][0];
    p.n_prompt = (size_t)n;
    p.sampling = sampling(kind);
    p.max_tokens = N_TEXT - n;
    p.n_answers = n_answers;
    p.ignore_eog = true;
    p.rotates = true;
    p.n_keep = KEEP;
    p.callback = told;
    p.arg = r;
    return p;
}

static void check(int kind, int n, int n_answers, const struct record *r)
{
    if (r->finish != QN_FINISH_LENGTH) fail_msg("%s: finish %d", kinds[kind], (int)r->finish);
    for (int k = 0; k < n_answers; k++) {
        assert_int_equal(r->n[k], N_TEXT - n);
        for (int i = n; i < N_TEXT; i++)
            if (r->token[k][i - n] != expected[kind][k][i])
                fail_msg("%s, answer %d after %d tokens: token %d is %d, not %d", kinds[kind], k, n, i,
                         r->token[k][i - n], expected[kind][k][i]);
    }
    int step = rotate_step(N_CTX, KEEP), before = (int)rotate_dropped((size_t)n, N_CTX, KEEP);
    int after = (int)rotate_dropped(N_TEXT - 1, N_CTX, KEEP); /* the last token needs no more room */
    assert_int_equal(r->usage.n_prompt, n - before);
    assert_int_equal(r->usage.n_dropped, after);
    assert_int_equal(r->usage.n_rotations, (after - before) / step);
}

static qn_scheduler *scheduler(qn_engine *g, enum qn_draft draft)
{
    qn_scheduler *s = NULL;
    struct qn_scheduler_params p;
    qn_scheduler_params_init(&p);
    p.n_running = N_KINDS + 1;
    p.draft = draft;
    OK(qn_scheduler_new(&s, g, &p, &e));
    return s;
}

/* ---- tests ---- */

static void dropped_tokens_depend_on_their_number_only(void **state)
{
    (void)state;
    for (int n_ctx = 4; n_ctx < 40; n_ctx++)
        for (int keep = 0; keep <= n_ctx / 2; keep++)
            for (size_t n = 0, dropped = 0; n < 200; n++) {
                if (n - dropped == (size_t)n_ctx) dropped += (size_t)((n_ctx - keep) / 2);
                assert_int_equal(rotate_dropped(n, n_ctx, keep), dropped);
            }
    assert_int_equal(rotate_check(64, 33, &e), QN_EUSAGE);
    assert_int_equal(rotate_check(64, -1, &e), QN_EUSAGE);
    assert_int_equal(rotate_check(3, 0, &e), QN_EUSAGE);
    OK(rotate_check(64, 32, &e));
}

static void one_answer_has_the_tokens_of_sessions(void **state)
{
    static struct record r;
    (void)state;
    qn_engine *g = engine(N_CTX, 0);
    qn_scheduler *s = scheduler(g, QN_DRAFT_OFF);
    for (int kind = 0; kind < N_KINDS; kind++) {
        struct qn_request_params p = request(kind, N_PROMPT, N_ANSWERS, &r);
        OK(qn_submit(s, &p, NULL, NULL, &e));
        wait_for(&r);
        check(kind, N_PROMPT, N_ANSWERS, &r);
    }
    qn_scheduler_free(s);
    qn_engine_free(g);
}

/* The text so far is given again as a prompt. Mirostat begins anew with each request. */
static void a_text_that_is_given_again_goes_on_in_the_same_way(void **state)
{
    static struct record r;
    (void)state;
    qn_engine *g = engine(N_CTX, 0);
    qn_scheduler *s = scheduler(g, QN_DRAFT_OFF);
    for (int kind = 0; kind < N_KINDS; kind++)
        for (int n = N_PROMPT; n < N_TEXT && strcmp(kinds[kind], "mirostat"); n += 7 + 13 * kind) {
            struct qn_request_params p = request(kind, n, 1, &r);
            OK(qn_submit(s, &p, NULL, NULL, &e));
            wait_for(&r);
            check(kind, n, 1, &r);
        }
    qn_scheduler_free(s);
    qn_engine_free(g);
}

/* With drafts and without, and with so few pages that answers give way. */
static void many_at_once(void **state)
{
    static struct record r[N_KINDS];
    (void)state;
    for (int i = 0; i < 4; i++) {
        qn_engine *g = engine(N_CTX, i % 2 ? 2 * N_CTX + 32 : 0);
        qn_scheduler *s = scheduler(g, i / 2 ? QN_DRAFT_NGRAM : QN_DRAFT_OFF);
        for (int kind = 0; kind < N_KINDS; kind++) {
            struct qn_request_params p = request(kind, N_PROMPT, kind ? 1 : N_ANSWERS, &r[kind]);
            OK(qn_submit(s, &p, NULL, NULL, &e));
        }
        for (int kind = 0; kind < N_KINDS; kind++) {
            wait_for(&r[kind]);
            check(kind, N_PROMPT, kind ? 1 : N_ANSWERS, &r[kind]);
        }
        qn_scheduler_free(s);
        qn_engine_free(g);
    }
}

static void what_cannot_rotate_is_refused(void **state)
{
    static struct record r;
    (void)state;
    qn_engine *g = engine(N_CTX, 0);
    qn_scheduler *s = scheduler(g, QN_DRAFT_OFF);
    struct qn_request_params p = request(0, N_PROMPT, 1, &r);
    p.n_keep = N_CTX / 2 + 1;
    assert_int_equal(qn_submit(s, &p, NULL, NULL, &e), QN_EUSAGE);
    p = request(0, N_PROMPT, 1, &r);
    p.pooling = QN_POOL_LAST;
    assert_int_equal(qn_submit(s, &p, NULL, NULL, &e), QN_EUSAGE);
    p = request(0, N_PROMPT, 1, &r);
    p.n_top_logprobs = 0;
    p.prompt_logprobs = true;
    assert_int_equal(qn_submit(s, &p, NULL, NULL, &e), QN_EUSAGE);
    p = request(0, N_TEXT, 1, &r);
    p.rotates = false;
    assert_int_equal(qn_submit(s, &p, NULL, NULL, &e), QN_EFULL);
    p = request(0, N_PROMPT, 1, &r);
    p.max_tokens = -1; /* as many as the context has */
    OK(qn_submit(s, &p, NULL, NULL, &e));
    wait_for(&r);
    assert_int_equal(r.n[0], N_CTX);
    qn_scheduler_free(s);
    qn_engine_free(g);
    g = engine(2 * N_CTX, N_CTX + 16); /* memory would decide what is dropped */
    s = scheduler(g, QN_DRAFT_OFF);
    p = request(0, N_PROMPT, 1, &r);
    assert_int_equal(qn_submit(s, &p, NULL, NULL, &e), QN_ENOMEM);
    qn_scheduler_free(s);
    qn_engine_free(g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dropped_tokens_depend_on_their_number_only),
        cmocka_unit_test(one_answer_has_the_tokens_of_sessions),
        cmocka_unit_test(a_text_that_is_given_again_goes_on_in_the_same_way),
        cmocka_unit_test(many_at_once),
        cmocka_unit_test(what_cannot_rotate_is_refused),
    };
    if (argc < 2 || qn_model_open(&model, argv[1], &e)) {
        fprintf(stderr, "usage: test_rotate MODEL (%s)\n", e.msg);
        return 1;
    }
    n_vocab = qn_model_n_vocab(model);
    expect_all();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    qn_model_close(model);
    return failed;
}
