/* SPDX-License-Identifier: MIT
 *
 * test_mtp_answers.c: answers with guesses of the model's own block are those without, to the bit.
 *
 *     test_mtp_answers MODEL
 *
 * All guesses become rows. The model is one whose block is sometimes right (make-model --meek). Requests differ in how
 * tokens are chosen and in how many answers they have; they are answered alone, together, and with so few pages that
 * some give way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "decode/mtp.h"
#include "engine/scheduler.h"

#define N_CTX      256
#define N_PROMPT   90 /* more than hidden rows are kept, and than a step reads */
#define N_KINDS    6
#define N_ANSWERS  3
#define MAX_TOKENS 50
#define N_GUESSES  5 /* at a time */

static qn_model *model;
static struct qn_error e;

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if (call) fail_msg("line %d: '%s'", __LINE__, e.msg);                                                          \
    } while (0)

/* ---- a request and what it is told ---- */

struct told {
    int n[N_ANSWERS];
    qn_token token[N_ANSWERS][MAX_TOKENS];
    float logprob[N_ANSWERS][MAX_TOKENS];
    bool is_done;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;

static void tell(void *arg, const struct qn_event *ev)
{
    struct told *t = arg;
    pthread_mutex_lock(&mutex);
    if (ev->type == QN_EVENT_TOKEN) {
        int i = t->n[ev->answer]++;
        t->token[ev->answer][i] = ev->token;
        t->logprob[ev->answer][i] = ev->logprob;
    }
    t->is_done |= ev->type == QN_EVENT_DONE;
    pthread_cond_broadcast(&done);
    pthread_mutex_unlock(&mutex);
}

static void submit(qn_scheduler *s, int kind, struct told *t)
{
    static qn_token prompts[N_KINDS][N_PROMPT];
    struct qn_request_params p;
    int n = N_PROMPT - 13 * kind;
    memset(t, 0, sizeof *t);
    for (int i = 0; i < n; i++)
        prompts[kind][i] = (qn_token)(rng_u64((uint64_t)kind, 5, (uint64_t)i) % (uint64_t)qn_model_n_vocab(model));
    qn_request_params_init(&p);
    p.prompt = prompts[kind];
    p.n_prompt = (size_t)n;
    p.max_tokens = MAX_TOKENS - kind;
    p.sampling.seed = (uint64_t)kind;
    p.sampling.temperature = kind ? 0.3f * (float)kind : 0;
    if (kind == 2) p.sampling.repetition_penalty = 1.2f;
    if (kind == 3) p.sampling.mirostat_tau = 3;
    if (kind == 4) p.n_answers = N_ANSWERS;
    p.n_top_logprobs = 0;
    p.ignore_eog = true;
    p.identity = (uint64_t)(kind % 2);
    p.callback = tell;
    p.arg = t;
    OK(qn_submit(s, &p, NULL, NULL, &e));
}

static void wait_for(const struct told *t)
{
    pthread_mutex_lock(&mutex);
    while (!t->is_done) pthread_cond_wait(&done, &mutex);
    pthread_mutex_unlock(&mutex);
}

static void same(const struct told *a, const struct told *b)
{
    assert_memory_equal(a->n, b->n, sizeof a->n);
    for (int k = 0; k < N_ANSWERS; k++) {
        assert_memory_equal(a->token[k], b->token[k], (size_t)a->n[k] * sizeof a->token[k][0]);
        assert_memory_equal(a->logprob[k], b->logprob[k], (size_t)a->n[k] * sizeof a->logprob[k][0]);
    }
}

/* ---- places where they are answered ---- */

static struct drafter_type whole, few; /* the drafter's own type; one that makes a few guesses, which takes less time */

static void propose_few(struct drafter *d, struct draft *drafts, int n)
{
    for (int i = 0; i < n; i++)
        if (drafts[i].most > N_GUESSES) drafts[i].most = N_GUESSES;
    whole.propose(d, drafts, n);
}

static struct drafter *drafter(qn_engine *g, int n_seqs)
{
    struct drafter *d = NULL;
    OK(mtp_new(&d, &g->forward, KV_F16, n_seqs, &g->ledger, &e));
    whole = few = *d->type;
    few.propose = propose_few;
    d->type = &few;
    return d;
}

struct place {
    qn_engine *engine;
    qn_scheduler *scheduler;
};

/* Which drafter there is: a test's, with records for n_seqs sequences, or (0) the scheduler's own. kv_tokens 0: enough
 * for all. */
struct setting {
    int n_seqs;
    enum qn_draft draft;
    int kv_tokens;
};

static struct place open_place(struct setting t)
{
    struct place p;
    struct qn_engine_params ep;
    struct qn_scheduler_params sp;
    struct drafters_own own = {.is_eager = true};
    qn_engine_params_init(&ep);
    ep.n_threads = 2;
    ep.n_ctx = N_CTX;
    ep.n_batch = 80;
    ep.n_sessions = N_KINDS + N_ANSWERS + 1;
    ep.kv_tokens = t.kv_tokens;
    OK(qn_engine_new(&p.engine, model, &ep, &e));
    qn_scheduler_params_init(&sp);
    sp.n_running = N_KINDS + N_ANSWERS - 1;
    sp.draft = t.draft;
    if (t.n_seqs) own.drafter = drafter(p.engine, t.n_seqs);
    OK(scheduler_new(&p.scheduler, p.engine, &sp, t.n_seqs ? &own : NULL, &e));
    return p;
}

static struct qn_scheduler_stats close_place(struct place *p)
{
    struct qn_scheduler_stats st = {.size = sizeof st};
    OK(qn_scheduler_stats(p->scheduler, &st));
    qn_scheduler_free(p->scheduler);
    qn_engine_free(p->engine);
    return st;
}

static struct told plain[N_KINDS];
static uint64_t n_plain_steps;

static int answer_plainly(void **state)
{
    (void)state;
    struct place p = open_place((struct setting){0});
    for (int kind = 0; kind < N_KINDS; kind++) {
        submit(p.scheduler, kind, &plain[kind]);
        wait_for(&plain[kind]);
    }
    n_plain_steps = close_place(&p).n_steps;
    return 0;
}

/* Asks everything again twice, the second time with the prompts in the cache. */
static struct qn_scheduler_stats ask_together(struct setting setting)
{
    static struct told t[N_KINDS];
    struct place p = open_place(setting);
    for (int i = 0; i < 2; i++) {
        for (int kind = 0; kind < N_KINDS; kind++) submit(p.scheduler, kind, &t[kind]);
        for (int kind = 0; kind < N_KINDS; kind++) {
            wait_for(&t[kind]);
            same(&t[kind], &plain[kind]);
        }
    }
    return close_place(&p);
}

/* ---- tests ---- */

static void guesses_save_steps_of_answers_alone(void **state)
{
    (void)state;
    struct place p = open_place((struct setting){.n_seqs = N_ANSWERS});
    static struct told t;
    for (int kind = 0; kind < N_KINDS; kind++) {
        submit(p.scheduler, kind, &t);
        wait_for(&t);
        same(&t, &plain[kind]);
    }
    uint64_t n_steps = close_place(&p).n_steps;
    printf("%llu steps, %llu without guesses\n", (unsigned long long)n_steps, (unsigned long long)n_plain_steps);
    assert_true(n_steps < n_plain_steps * 9 / 10);
}

static void answers_together_are_the_plain_ones(void **state)
{
    (void)state;
    ask_together((struct setting){.n_seqs = N_KINDS + N_ANSWERS});
}

static void answers_without_a_record_are_the_plain_ones(void **state)
{
    (void)state;
    ask_together((struct setting){.n_seqs = 2});
}

static void answers_that_give_way_are_the_plain_ones(void **state)
{
    (void)state;
    ask_together((struct setting){.n_seqs = N_KINDS + N_ANSWERS, .kv_tokens = 2 * N_CTX});
}

/* How many guesses become rows is the scheduler's choice. */
static void answers_of_a_scheduler_with_drafts_are_the_plain_ones(void **state)
{
    (void)state;
    ask_together((struct setting){.draft = QN_DRAFT_MTP});
    ask_together((struct setting){.draft = QN_DRAFT_AUTO, .kv_tokens = 2 * N_CTX});
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guesses_save_steps_of_answers_alone),
        cmocka_unit_test(answers_together_are_the_plain_ones),
        cmocka_unit_test(answers_without_a_record_are_the_plain_ones),
        cmocka_unit_test(answers_that_give_way_are_the_plain_ones),
        cmocka_unit_test(answers_of_a_scheduler_with_drafts_are_the_plain_ones),
    };
    if (argc != 2 || qn_model_open(&model, argv[1], &e)) return 1;
    int n_failed = cmocka_run_group_tests(tests, answer_plainly, NULL);
    qn_model_close(model);
    return n_failed;
}
