/* SPDX-License-Identifier: MIT
 *
 * test_draft_model.c: what a draft model proposes is what it would say next, whatever was proposed, taken and refused
 * before, in whatever company, and with however little memory.
 *
 *     test_draft_model MODEL OTHER [TEST]
 *
 * OTHER is a model with another vocabulary. The program is built with the smallest pages.
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
#include "engine/draft_model_impl.h"
#include "engine/scheduler.h"

#define N_CTX    256
#define N_PLACES 4
#define N_ROUNDS 40
#define PIECE    11

static qn_model *model, *other;
static struct qn_error e;

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if (call) fail_msg("line %d: '%s'", __LINE__, e.msg);                                                          \
    } while (0)

static int n_threads = 1;
static uint64_t n_random;
static int some(int n) { return (int)(rng_u64(5, 1, n_random++) % (uint64_t)n); }

static qn_engine *engine_of(int n_ctx)
{
    qn_engine *g = NULL;
    struct qn_engine_params p;
    qn_engine_params_init(&p);
    p.n_threads = n_threads;
    p.n_ctx = n_ctx;
    p.n_batch = 32;
    OK(qn_engine_new(&g, model, &p, &e));
    return g;
}

static struct draft_model_params usual(void)
{
    struct draft_model_params p;
    draft_model_params_init(&p);
    p.n_places = N_PLACES;
    p.piece = PIECE;
    p.least = 0;
    return p;
}

static struct drafter *drafter_of(qn_engine *g, struct draft_model_params p)
{
    struct drafter *d = NULL;
    OK(draft_model_new(&d, g, model, &p, &e));
    return d;
}

/* ---- what the model says next, by a session ---- */

struct oracle {
    qn_engine *g;
    qn_session *s;
};

static struct oracle oracle_new(void)
{
    struct qn_sampling greedy;
    struct oracle o = {.g = engine_of(N_CTX + 1)}; /* a chain's last token needs no slot */
    qn_sampling_init(&greedy);
    greedy.temperature = 0;
    OK(qn_session_new(&o.s, o.g, &greedy, &e));
    return o;
}

static void oracle_free(struct oracle *o)
{
    qn_session_free(o->s);
    qn_engine_free(o->g);
}

/* The chain that follows the tokens, of n tokens unless the model ends it. Returns its length. */
static int chain(struct oracle *o, const qn_token *tokens, int n_tokens, qn_token *out, int n)
{
    OK(qn_session_sync(o->s, tokens, (size_t)n_tokens, NULL, &e));
    for (int i = 0; i < n; i++) {
        OK(qn_session_step(o->s, &out[i], &e));
        if (qn_model_is_eog(model, out[i])) return i + 1;
    }
    return n;
}

/* ---- sequences ---- */

struct timeline {
    void *seq;
    qn_token tokens[N_CTX];
    int n;
    qn_token proposed[DRAFT_MOST];
    uint8_t sureness[DRAFT_MOST];
};

static void begin(struct timeline *t, struct drafter *d, int n)
{
    for (t->n = 0; t->n < n; t->n++) t->tokens[t->n] = some(qn_model_n_vocab(model));
    OK(d->type->open(d, 7, N_CTX, &t->seq, &e));
}

static struct draft ask(struct timeline *t, int most)
{
    return (struct draft){.seq = t->seq,
                          .tokens = t->tokens,
                          .n_tokens = t->n,
                          .most = most,
                          .proposed = t->proposed,
                          .sureness = t->sureness,
                          .n = -1};
}

/* Calls the drafter, which must not allocate. */
static void propose(struct drafter *d, struct draft *drafts, int n)
{
    uint64_t n_calls = mem_n_calls();
    d->type->propose(d, drafts, n);
    assert_int_equal(mem_n_calls(), n_calls);
}

static int propose_one(struct drafter *d, struct timeline *t, int most)
{
    struct draft one = ask(t, most);
    propose(d, &one, 1);
    return one.n;
}

/* Calls it until a sequence was read. */
static int propose_at_last(struct drafter *d, struct timeline *t, int most)
{
    for (int i = 0; i < N_CTX / PIECE + 2; i++) {
        int n = propose_one(d, t, most);
        if (n) return n;
    }
    return 0;
}

static void check(struct oracle *o, const struct draft *p, bool is_whole)
{
    qn_token want[DRAFT_MOST];
    int room = N_CTX + 1 - p->n_tokens, most = p->most < room ? p->most : room;
    int n = chain(o, p->tokens, p->n_tokens, want, most);
    assert_in_range(p->n, 0, most);
    if (memcmp(p->proposed, want, (size_t)p->n * sizeof *want) != 0)
        fail_msg("after %d tokens, %d proposed: something else", p->n_tokens, p->n);
    if (is_whole && p->n < n) fail_msg("%d of %d proposed", p->n, n);
    for (int i = 0; i < p->n; i++) assert_true(p->sureness[i] < DRAFT_CLASSES);
}

/* The target takes some of the proposed tokens, and then has one of its own. */
static void advance(struct timeline *t, int n_proposed)
{
    int n_taken = n_proposed ? some(n_proposed + 1) : 0;
    if (some(3) == 0) n_taken = n_proposed;
    for (int i = 0; i < n_taken && t->n < N_CTX; i++) t->tokens[t->n++] = t->proposed[i];
    for (int i = some(8) ? 1 : some(20); i > 0 && t->n < N_CTX; i--)
        t->tokens[t->n++] = some(4) || !n_proposed ? some(qn_model_n_vocab(model)) : t->proposed[n_proposed - 1];
}

/* ---- any schedule ---- */

/* Rounds with some of the sequences, which end and begin anew. Returns how many tokens were proposed. */
static int play(struct drafter *d, struct oracle *o, struct timeline *lines, int n_lines)
{
    int n_proposed = 0;
    for (int round = 0; round < N_ROUNDS; round++) {
        struct draft drafts[N_PLACES];
        struct timeline *who[N_PLACES];
        int n = 0;
        for (int i = 0; i < n_lines; i++) {
            if (some(40) == 0 || lines[i].n >= N_CTX - 1) {
                d->type->close(d, lines[i].seq);
                begin(&lines[i], d, 1 + some(some(2) ? 40 : 150));
            }
            if (n == N_PLACES || some(4) == 0) continue;
            who[n] = &lines[i];
            drafts[n++] = ask(&lines[i], some(5) ? 1 + some(DRAFT_MOST) : 0);
        }
        propose(d, drafts, n);
        for (int i = 0; i < n; i++) {
            check(o, &drafts[i], false);
            n_proposed += drafts[i].n;
            if (some(10)) advance(who[i], drafts[i].n); /* or the step was abandoned */
        }
    }
    return n_proposed;
}

static void play_with(int n_pages, int least_proposed)
{
    struct oracle o = oracle_new();
    qn_engine *g = engine_of(N_CTX);
    size_t used = ledger_used(&g->ledger);
    struct draft_model_params p = usual();
    struct timeline *lines = calloc(N_PLACES, sizeof *lines);
    p.n_pages = n_pages;
    struct drafter *d = drafter_of(g, p);
    for (int i = 0; i < N_PLACES; i++) begin(&lines[i], d, 1 + some(100));
    int n = play(d, &o, lines, N_PLACES);
    if (n < least_proposed) fail_msg("only %d tokens proposed", n);
    for (int i = 0; i < N_PLACES; i++) d->type->close(d, lines[i].seq);
    struct kv_pool *kv = ((struct draft_model *)d)->kv;
    assert_int_equal(kv_pool_n_free(kv), kv_pool_n_pages(kv));
    d->type->free(d);
    assert_int_equal(ledger_used(&g->ledger), used);
    free(lines);
    qn_engine_free(g);
    oracle_free(&o);
}

static void proposals_are_what_the_model_says_next(void **state)
{
    (void)state;
    play_with(0, 300);
}

static void a_small_cache_proposes_less_and_nothing_wrong(void **state)
{
    (void)state;
    play_with(1, 0);
    play_with(12, 100);
}

/* ---- one thing at a time ---- */

struct one {
    struct oracle o;
    qn_engine *g;
    struct drafter *d;
    struct timeline t;
};

static struct one *one_new(struct draft_model_params p, int n)
{
    struct one *w = calloc(1, sizeof *w);
    w->o = oracle_new();
    w->g = engine_of(N_CTX);
    w->d = drafter_of(w->g, p);
    begin(&w->t, w->d, n);
    return w;
}

static void one_free(struct one *w)
{
    w->d->type->close(w->d, w->t.seq);
    w->d->type->free(w->d);
    qn_engine_free(w->g);
    oracle_free(&w->o);
    free(w);
}

static void a_long_sequence_is_read_in_pieces(void **state)
{
    (void)state;
    struct one *w = one_new(usual(), 150);
    const struct draft_seq *s = w->t.seq;
    int n_calls = 0;
    while (propose_one(w->d, &w->t, 5) == 0) {
        n_calls++;
        assert_int_equal(s->memory.n_slots, n_calls * PIECE);
    }
    assert_int_equal(n_calls, 8); /* 62 tokens are left, and they are read at once */
    struct draft p = ask(&w->t, 5);
    propose(w->d, &p, 1);
    check(&w->o, &p, true);
    one_free(w);
}

/* The scheduler asks again for a sequence that got no token. */
static void the_same_question_has_the_same_answer(void **state)
{
    (void)state;
    struct one *w = one_new(usual(), 20);
    for (int most = DRAFT_MOST; most >= 0; most--) {
        struct draft p = ask(&w->t, most);
        uint64_t n_copies = ((struct draft_model *)w->d)->n_calls;
        propose(w->d, &p, 1);
        assert_int_equal(((struct draft_model *)w->d)->n_calls, n_copies + 1);
        check(&w->o, &p, true);
    }
    one_free(w);
}

static void beyond_the_context_nothing_is_proposed(void **state)
{
    (void)state;
    struct one *w = one_new(usual(), N_CTX - 4);
    int n = propose_at_last(w->d, &w->t, DRAFT_MOST);
    assert_in_range(n, 1, 5); /* there are slots for four of them, and the last one needs none */
    while (w->t.n < N_CTX) {
        w->t.tokens[w->t.n++] = some(qn_model_n_vocab(model));
        assert_in_range(propose_one(w->d, &w->t, DRAFT_MOST), 1, 1 + N_CTX - w->t.n);
    }
    struct draft_seq *s = w->t.seq;
    s->max_slots--; /* as if its context were shorter than the target's */
    assert_int_equal(propose_one(w->d, &w->t, DRAFT_MOST), 0);
    assert_int_equal(s->memory.n_pages, 0);
    one_free(w);
}

/* The probability of the most probable token. */
static double largest(const float *logits)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < qn_model_n_vocab(model); i++) max = fmax(max, (double)logits[i]);
    for (int i = 0; i < qn_model_n_vocab(model); i++) sum += exp((double)logits[i] - max);
    return 1 / sum;
}

/* How long the chain is if its probability does not fall below `least`. */
static int likely(struct oracle *o, const struct timeline *t, double least)
{
    const float *logits;
    qn_token token = -1;
    double chance = 1;
    OK(qn_session_sync(o->s, t->tokens, (size_t)t->n, NULL, &e));
    for (int n = 0;; n++) {
        OK(qn_session_logits(o->s, &logits, &e));
        chance *= largest(logits);
        if (chance < least || n == DRAFT_MOST || (n && qn_model_is_eog(model, token))) return n;
        OK(qn_session_step(o->s, &token, &e));
    }
}

static void an_unlikely_chain_ends(void **state)
{
    (void)state;
    static const float least[] = {0, 1e-20f, 1e-7f, 1e-4f, 0.01f, 1.5f}; /* no product is near one of them */
    struct draft_model_params p = usual();
    int n_lengths = 0, last = -1;
    for (int i = 0; i < 6; i++) {
        p.least = least[i];
        n_random = 1;
        struct one *w = one_new(p, 20);
        struct draft q = ask(&w->t, DRAFT_MOST);
        propose(w->d, &q, 1);
        assert_int_equal(q.n, likely(&w->o, &w->t, (double)least[i]));
        assert_int_equal(q.is_unsure, q.n == 0);
        n_lengths += q.n != last;
        last = q.n;
        one_free(w);
    }
    assert_int_equal(last, 0);
    assert_true(n_lengths >= 3);
}

static void a_token_that_it_does_not_know_ends_a_sequence(void **state)
{
    (void)state;
    struct one *w = one_new(usual(), 20);
    assert_true(propose_one(w->d, &w->t, 4) > 0);
    w->t.tokens[w->t.n++] = qn_model_n_vocab(model);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(propose_one(w->d, &w->t, 4), 0);
        w->t.tokens[w->t.n++] = 3;
    }
    one_free(w);
}

static void an_idle_sequence_gives_way_and_is_read_again(void **state)
{
    (void)state;
    struct draft_model_params p = usual();
    n_threads = 2;
    p.n_pages = 8; /* 128 slots */
    struct one *w = one_new(p, 60);
    struct timeline *t = calloc(2, sizeof *t);
    begin(&t[0], w->d, 60);
    begin(&t[1], w->d, 60);
    assert_true(propose_one(w->d, &t[0], 4) > 0);
    assert_true(propose_one(w->d, &w->t, 4) > 0);
    assert_true(propose_one(w->d, &t[1], 4) > 0); /* takes the pages of the first */
    assert_int_equal(((struct draft_seq *)t[0].seq)->memory.n_pages, 0);
    assert_true(((struct draft_seq *)w->t.seq)->memory.n_pages > 0);
    struct draft q = ask(&t[0], 4);
    propose(w->d, &q, 1);
    check(&w->o, &q, true);
    /* All three at once do not fit: two of them go on. */
    struct draft all[] = {ask(&w->t, 4), ask(&t[0], 4), ask(&t[1], 4)};
    for (int i = 0; i < 4; i++) propose(w->d, all, 3);
    assert_int_equal((all[0].n > 0) + (all[1].n > 0) + (all[2].n > 0), 2);
    for (int i = 0; i < 2; i++) w->d->type->close(w->d, t[i].seq);
    free(t);
    one_free(w);
    n_threads = 1;
}

static void a_sequence_without_room_is_not_begun(void **state)
{
    (void)state;
    struct draft_model_params p = usual();
    p.n_pages = 8; /* 128 slots */
    struct one *w = one_new(p, 60);
    struct timeline *far = calloc(1, sizeof *far);
    begin(far, w->d, 100);
    for (int i = 0; i < 5; i++) {
        struct draft both[] = {ask(far, 4), ask(&w->t, 4)};
        propose(w->d, both, 2);
        assert_int_equal(both[0].n, 0);
        assert_true(both[1].n > 0);
        if (i) assert_int_equal(((struct draft_seq *)far->seq)->memory.n_pages, 0);
        advance(&w->t, both[1].n);
    }
    w->d->type->close(w->d, far->seq);
    free(far);
    one_free(w);
}

/* ---- what cannot be ---- */

static void another_vocabulary_is_refused(void **state)
{
    (void)state;
    qn_engine *g = engine_of(N_CTX);
    struct drafter *d = NULL;
    struct draft_model_params p = usual();
    size_t used = ledger_used(&g->ledger);
    assert_int_equal(draft_model_new(&d, g, other, &p, &e), QN_EUSAGE);
    assert_non_null(strstr(e.msg, "draft model: token "));
    assert_non_null(strstr(e.msg, qn_model_name(other)));
    assert_null(d);
    assert_int_equal(ledger_used(&g->ledger), used);
    qn_engine_free(g);
}

static void a_budget_without_room_is_an_error(void **state)
{
    (void)state;
    qn_engine *g = engine_of(N_CTX);
    struct draft_model_params p = usual();
    struct drafter *d = drafter_of(g, p);
    size_t all = ledger_used(&g->ledger);
    d->type->free(d);
    d = NULL;
    size_t without = ledger_used(&g->ledger);
    p.n_pages = 1;
    for (g->ledger.budget = without; g->ledger.budget < all; g->ledger.budget += (all - without) / 50 + 1) {
        if (draft_model_new(&d, g, model, &p, &e)) {
            assert_int_equal(e.code, QN_ENOMEM);
            assert_non_null(strstr(e.msg, "budget"));
            assert_null(d);
        } else {
            d->type->free(d);
            d = NULL;
        }
        assert_int_equal(ledger_used(&g->ledger), without);
    }
    qn_engine_free(g);
}

/* Makes a drafter and a sequence, with each allocation failing in turn. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    qn_engine *g = engine_of(N_CTX);
    struct draft_model_params p = usual();
    size_t used = ledger_used(&g->ledger);
    int hit = 1, n_failed = 0;
    for (uint64_t n = 1; hit; n++) {
        struct drafter *d = NULL;
        void *seq = NULL;
        mem_fault_set(n);
        int rc = draft_model_new(&d, g, model, &p, &e);
        if (!rc && (rc = d->type->open(d, 1, 50, &seq, &e))) assert_null(seq);
        hit = mem_fault_hit();
        mem_fault_set(0);
        assert_int_equal(rc, hit ? QN_ENOMEM : 0);
        n_failed += hit;
        if (d) {
            d->type->close(d, seq);
            d->type->free(d);
        }
        assert_int_equal(ledger_used(&g->ledger), used);
    }
    assert_true(n_failed > 8);
    qn_engine_free(g);
}

/* ---- in a scheduler ---- */

#define N_REQUESTS 3
#define N_TOKENS   60

struct record {
    qn_token tokens[2][N_TOKENS];
    float logprobs[2][N_TOKENS];
    int n[2];
    bool is_done;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;

static void told(void *arg, const struct qn_event *ev)
{
    struct record *r = arg;
    int k = ev->answer;
    if (ev->type == QN_EVENT_TOKEN) {
        r->tokens[k][r->n[k]] = ev->token;
        r->logprobs[k][r->n[k]++] = ev->logprob;
    }
    if (ev->type != QN_EVENT_DONE) return;
    pthread_mutex_lock(&mutex);
    r->is_done = true;
    pthread_cond_broadcast(&done);
    pthread_mutex_unlock(&mutex);
}

static void submit(qn_scheduler *s, int which, struct record *r)
{
    qn_token prompt[40];
    struct qn_request_params p;
    qn_request_params_init(&p);
    for (int i = 0; i < 40; i++) prompt[i] = (qn_token)(rng_u64(8, (uint64_t)which, (uint64_t)i) % 200);
    p.prompt = prompt;
    p.n_prompt = (size_t)(20 + which);
    p.max_tokens = N_TOKENS;
    p.n_answers = 1 + which % 2;
    p.sampling.temperature = which ? 0.7f : 0;
    p.sampling.seed = 3;
    p.ignore_eog = true;
    p.n_top_logprobs = 0;
    p.callback = told;
    p.arg = r;
    OK(qn_submit(s, &p, NULL, NULL, &e));
}

/* Answers the first n requests together. Returns the steps that it took. */
static int answer(struct record *records, int n, bool has_drafts)
{
    qn_engine *g = engine_of(N_CTX);
    qn_scheduler *s = NULL;
    struct qn_scheduler_params p;
    struct qn_scheduler_stats st = {.size = sizeof st};
    struct draft_model_params q = usual();
    struct drafters_own own = {.is_eager = true};
    qn_scheduler_params_init(&p);
    p.n_running = q.n_places = N_REQUESTS + 1;
    p.draft = QN_DRAFT_OFF;
    if (has_drafts) own.drafter = drafter_of(g, q);
    OK(scheduler_new(&s, g, &p, has_drafts ? &own : NULL, &e));
    memset(records, 0, (size_t)n * sizeof *records);
    for (int i = 0; i < n; i++) submit(s, i, &records[i]);
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < n; i++)
        while (!records[i].is_done) pthread_cond_wait(&done, &mutex);
    pthread_mutex_unlock(&mutex);
    OK(qn_scheduler_stats(s, &st));
    qn_scheduler_free(s);
    qn_engine_free(g);
    return (int)st.n_steps;
}

static void answers_are_the_same_and_come_in_fewer_steps(void **state)
{
    (void)state;
    struct record plain[N_REQUESTS], drafted[N_REQUESTS];
    for (int n = 1; n <= N_REQUESTS; n += N_REQUESTS - 1) {
        int n_plain = answer(plain, n, false), n_drafted = answer(drafted, n, true);
        assert_memory_equal(plain, drafted, (size_t)n * sizeof *plain);
        assert_int_equal(plain[0].n[0], N_TOKENS);
        assert_true(n_plain >= N_TOKENS);
        /* All that a model says of itself is right. How many steps several requests take depends on when they come. */
        if (n == 1) assert_true(n_drafted <= 4);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(proposals_are_what_the_model_says_next),
        cmocka_unit_test(a_small_cache_proposes_less_and_nothing_wrong),
        cmocka_unit_test(a_long_sequence_is_read_in_pieces),
        cmocka_unit_test(the_same_question_has_the_same_answer),
        cmocka_unit_test(beyond_the_context_nothing_is_proposed),
        cmocka_unit_test(an_unlikely_chain_ends),
        cmocka_unit_test(a_token_that_it_does_not_know_ends_a_sequence),
        cmocka_unit_test(an_idle_sequence_gives_way_and_is_read_again),
        cmocka_unit_test(a_sequence_without_room_is_not_begun),
        cmocka_unit_test(another_vocabulary_is_refused),
        cmocka_unit_test(a_budget_without_room_is_an_error),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(answers_are_the_same_and_come_in_fewer_steps),
    };
    if (argc < 3) return 2;
    if (qn_model_open(&model, argv[1], &e) || qn_model_open(&other, argv[2], &e)) {
        print_error("%s\n", e.msg);
        return 1;
    }
    if (argc > 3) cmocka_set_test_filter(argv[3]);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    qn_model_close(model);
    qn_model_close(other);
    return rc;
}
