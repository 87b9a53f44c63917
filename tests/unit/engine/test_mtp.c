/* SPDX-License-Identifier: MIT
 *
 * test_mtp.c: guesses of the block that predicts the token after the next one, and what becomes of them.
 *
 *     test_mtp MODEL [PATTERN]
 *
 * The model is one whose block is often right, and sometimes not (make-model --meek). Such a block looks at the token
 * only, so the tests block_* are for others, too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "decode/mtp.h"
#include "engine/engine.h"

#define N_CTX    (MTP_SLOTS + 300)
#define N_PROMPT 20
#define N_TEXT   110 /* more than hidden rows are kept */

static qn_model *model;
static struct qn_error e;

static void ok_at(int rc, int line)
{
    if (rc) fail_msg("line %d: %d '%s'", line, rc, e.msg);
}
#define OK(call) ok_at((call), __LINE__)

static qn_engine *engine(int n_threads)
{
    qn_engine *g = NULL;
    struct qn_engine_params p;
    qn_engine_params_init(&p);
    p.n_threads = n_threads;
    p.n_ctx = N_CTX;
    p.n_batch = 256;
    p.n_sessions = 4;
    OK(qn_engine_new(&g, model, &p, &e));
    return g;
}

static struct drafter *drafter(qn_engine *g, int n_seqs)
{
    struct drafter *d = NULL;
    OK(mtp_new(&d, &g->forward, KV_F16, n_seqs, &g->ledger, &e));
    return d;
}

/* One text as it comes, and a record of it. */
struct text {
    qn_engine *g;
    struct kv_seq memory, *mem; /* mem: &memory, as the last pass has it */
    struct drafter *d;
    void *record;
    qn_token tokens[N_CTX];
    float *logits; /* [1 + DRAFT_MOST][n_vocab] */
    int n, n_drafted, n_right;
};

/* The rows of the first `keep` of n tokens after those in memory, n - 1 of which are guesses; draws go to next[n]. */
static void run_rows(struct text *t, const qn_token *tokens, int n, bool is_prompt, qn_token *next)
{
    struct kv_seq *mem = t->mem = &t->memory;
    struct batch *b = &t->g->batch;
    const size_t n_vocab = (size_t)t->g->model->hp.n_vocab;
    OK(kv_seq_reserve(mem, mem->n_slots + n, &e));
    batch_clear(b);
    for (int i = 0; i < n; i++) {
        batch_add(b, tokens[i], mem->n_slots + i, 0, !is_prompt || i == n - 1);
        b->held[i] = n > 1 && !is_prompt;
    }
    assert_true(forward_run(&t->g->forward, b, &t->mem, t->logits));
    for (int i = 0; i < (is_prompt ? 1 : n); i++)
        next[i] =
            t->g->forward.pass.kt.argmax(t->logits + (size_t)i * n_vocab, (int)n_vocab, t->g->forward.pass.scratch);
}

static void start(struct text *t, qn_engine *g, struct drafter *d, uint64_t seed)
{
    *t = (struct text){.g = g, .d = d, .n = N_PROMPT};
    const uint64_t n_vocab = (uint64_t)g->model->hp.n_vocab;
    t->logits = mem_calloc((1 + DRAFT_MOST) * n_vocab, sizeof *t->logits);
    OK(kv_seq_init(&t->memory, g->kv, N_CTX, &e));
    if (d) OK(d->type->open(d, 1, N_CTX, &t->record, &e));
    for (int i = 0; i < N_PROMPT; i++) t->tokens[i] = (qn_token)(rng_u64(seed, 1, (uint64_t)i) % n_vocab);
    run_rows(t, t->tokens, N_PROMPT, true, &t->tokens[t->n++]);
    kv_seq_extend(&t->memory, N_PROMPT);
    if (d) d->type->absorb(d, t->record, 0, 0, N_PROMPT);
}

static void finish(struct text *t)
{
    if (t->d) t->d->type->close(t->d, t->record);
    kv_seq_deinit(&t->memory);
    mem_free(t->logits);
}

static int ask(struct text *t, int most, qn_token *proposed, uint8_t *sureness)
{
    struct draft draft = {.seq = t->record,
                          .tokens = t->tokens,
                          .n_tokens = t->n,
                          .most = most,
                          .proposed = proposed,
                          .sureness = sureness};
    t->d->type->propose(t->d, &draft, 1);
    return draft.n;
}

/* One step with up to `most` guesses. */
static void step(struct text *t, int most)
{
    qn_token row[1 + DRAFT_MOST] = {t->tokens[t->n - 1]}, next[1 + DRAFT_MOST];
    uint8_t sureness[DRAFT_MOST];
    int n = t->d && most ? ask(t, most, row + 1, sureness) : 0, from = t->memory.n_slots, keep = 0;
    assert_true(n == (t->d ? most : 0));
    run_rows(t, row, n + 1, false, next);
    while (keep < n && next[keep] == row[keep + 1]) keep++;
    const int32_t kept = keep + 1;
    if (n) forward_accept(&t->g->forward, &kept);
    kv_seq_extend(&t->memory, from + kept);
    if (t->d) t->d->type->absorb(t->d, t->record, 0, from, kept);
    for (int i = 0; i <= keep; i++) t->tokens[t->n++] = next[i];
    t->n_drafted += n;
    t->n_right += keep;
}

/* ---- tests ---- */

static void text_with_guesses_is_the_plain_text(void **state)
{
    (void)state;
    qn_engine *g = engine(2);
    struct drafter *d = drafter(g, 1);
    static struct text plain, t;
    start(&plain, g, NULL, 7);
    while (plain.n < N_TEXT) step(&plain, 0);
    int n_drafted = 0, n_right = 0;
    for (int most = 1; most < 8; most += 2) {
        start(&t, g, d, 7);
        for (int i = 0; t.n < N_TEXT; i++) step(&t, most < 7 ? most : i * 5 % 7);
        assert_memory_equal(t.tokens, plain.tokens, N_TEXT * sizeof *t.tokens);
        n_drafted += t.n_drafted;
        n_right += t.n_right;
        finish(&t);
    }
    printf("%d of %d guesses right\n", n_right, n_drafted);
    assert_true(n_right > n_drafted / 4); /* otherwise little of this was tried */
    assert_true(n_right < n_drafted);
    finish(&plain);
    d->type->free(d);
    qn_engine_free(g);
}

/* What is guessed depends on the tokens only: not on earlier guesses, on threads, or on other sequences. */
static void block_guesses_by_the_text_only(void **state)
{
    (void)state;
    enum { MOST = 4, EVERY = 13 };
    qn_token want[N_TEXT][MOST], got[3][MOST];
    uint8_t sure[N_TEXT][MOST], sure_now[3][MOST];
    for (int pass = 0; pass < 3; pass++) {
        qn_engine *g = engine(1 + pass);
        struct drafter *d = drafter(g, 3);
        static struct text t[3];
        for (int q = 0; q < 3; q++) start(&t[q], g, d, (uint64_t)(7 + q));
        while (t[0].n < N_TEXT) {
            if (pass == 0) {
                assert_int_equal(ask(&t[0], MOST, want[t[0].n], sure[t[0].n]), MOST);
                step(&t[0], 0);
                continue;
            }
            struct draft drafts[3];
            for (int q = 0; q < 3; q++)
                drafts[q] = (struct draft){.seq = t[q].record,
                                           .tokens = t[q].tokens,
                                           .n_tokens = t[q].n,
                                           .most = q == 1 ? 1 : MOST,
                                           .proposed = got[q],
                                           .sureness = sure_now[q]};
            if (t[0].n % EVERY == 0) {
                for (int twice = 0; twice < 2; twice++) { /* the second time nothing is new */
                    d->type->propose(d, drafts, 3);
                    assert_int_equal(drafts[1].n, 1);
                    assert_memory_equal(got[0], want[t[0].n], sizeof got[0]);
                    assert_memory_equal(sure_now[0], sure[t[0].n], sizeof sure_now[0]);
                }
            }
            for (int q = 0; q < 3; q++) step(&t[q], 0);
        }
        for (int q = 0; q < 3; q++) finish(&t[q]);
        d->type->free(d);
        qn_engine_free(g);
    }
}

/* The guess of the block run by hand over all tokens and hidden rows. */
static qn_token by_hand(qn_engine *g, const qn_token *tokens, int n)
{
    const struct model *m = g->model;
    struct kv_shape shape = nextn_kv_shape(m, KV_F16);
    struct kv_pool *pool;
    struct kv_seq model_memory, memory, *mem = &memory;
    struct nextn x = {0};
    const float *hidden[N_TEXT];
    float *rows = mem_calloc((size_t)n * (size_t)m->hp.n_embd, sizeof *rows);
    float *logits = mem_calloc((size_t)m->hp.n_vocab, sizeof *logits);
    struct batch b;
    OK(kv_seq_init(&model_memory, g->kv, N_CTX, &e));
    OK(engine_append(g, &model_memory, tokens, (size_t)n - 1, logits, &e));
    for (int i = 0; i < n - 1; i++) forward_hidden(&g->forward, i, rows + (size_t)i * (size_t)m->hp.n_embd);
    OK(kv_pool_new(&pool, &shape, N_TEXT + KV_PAGE_SLOTS, 0, 0, &g->ledger, &e));
    OK(kv_seq_init(&memory, pool, N_TEXT, &e));
    OK(kv_seq_reserve(&memory, n, &e));
    OK(nextn_init(&x, &g->forward, N_TEXT, m->hp.n_vocab, &g->ledger, &e));
    OK(batch_init(&b, N_TEXT, &e));
    for (int i = 1; i < n; i++) {
        hidden[b.n] = rows + (size_t)(i - 1) * (size_t)m->hp.n_embd;
        batch_add(&b, tokens[i], i, 0, i == n - 1);
        b.slot[b.n - 1] = i - 1;
    }
    nextn_run(&x, &b, &mem, hidden, logits);
    qn_token best = g->forward.pass.kt.argmax(logits, m->hp.n_vocab, g->forward.pass.scratch);
    batch_deinit(&b);
    nextn_deinit(&x);
    kv_seq_deinit(&memory);
    kv_seq_deinit(&model_memory);
    kv_pool_free(pool);
    mem_free(rows);
    mem_free(logits);
    return best;
}

static void block_makes_the_first_guess(void **state)
{
    (void)state;
    qn_engine *g = engine(2);
    struct drafter *d = drafter(g, 1);
    static struct text t;
    start(&t, g, d, 9);
    while (t.n < 100) {
        qn_token guess[3];
        uint8_t sureness[3];
        if (t.n % 10 == 0) {
            ask(&t, 3, guess, sureness);
            assert_int_equal(guess[0], by_hand(g, t.tokens, t.n));
        }
        step(&t, t.n % 3);
    }
    finish(&t);
    d->type->free(d);
    qn_engine_free(g);
}

/* The oldest are forgotten, page by page; and after a time without questions those in between. */
static void a_long_text_has_guesses_to_its_end(void **state)
{
    (void)state;
    qn_engine *g = engine(1);
    struct drafter *d = drafter(g, 2);
    static struct text t;
    start(&t, g, d, 11);
    for (int i = 0; t.n < N_CTX - 10; i++) step(&t, i % 300 < 200 ? 5 : 0);
    assert_true(t.n_right > t.n_drafted / 4);
    finish(&t);
    d->type->free(d);
    qn_engine_free(g);
}

/* Nobody told it of the text's rows: the guesses are bad ones, but the text is the same. */
static void rows_that_nobody_knows_count_as_zeros(void **state)
{
    (void)state;
    qn_engine *g = engine(1);
    struct drafter *d = drafter(g, 1);
    static struct text plain, t;
    start(&plain, g, NULL, 13);
    while (plain.n < N_TEXT) step(&plain, 0);
    start(&t, g, d, 13);
    d->type->close(d, t.record);
    OK(d->type->open(d, 1, N_CTX, &t.record, &e));
    while (t.n < N_TEXT) step(&t, 3);
    assert_memory_equal(t.tokens, plain.tokens, N_TEXT * sizeof *t.tokens);
    finish(&plain);
    finish(&t);
    d->type->free(d);
    qn_engine_free(g);
}

static void nothing_is_allocated_for_a_guess(void **state)
{
    (void)state;
    qn_engine *g = engine(2);
    struct drafter *d = drafter(g, 1);
    static struct text t;
    start(&t, g, d, 15);
    d->type->close(d, t.record);
    uint64_t n_calls = mem_n_calls();
    OK(d->type->open(d, 1, N_CTX, &t.record, &e));
    for (int i = 0; i < 60; i++) step(&t, i % 4);
    assert_int_equal(mem_n_calls(), n_calls);
    finish(&t);
    d->type->free(d);
    qn_engine_free(g);
}

static void an_allocation_that_fails_leaves_nothing(void **state)
{
    (void)state;
    qn_engine *g = engine(1);
    struct drafter *d = NULL;
    size_t before = ledger_used(&g->ledger);
    int n = 0;
    for (bool is_hit = true; is_hit;) {
        mem_fault_set((uint64_t)++n);
        int rc = mtp_new(&d, &g->forward, KV_F16, 2, &g->ledger, &e);
        is_hit = mem_fault_hit();
        mem_fault_set(0);
        assert_int_equal(rc, is_hit ? QN_ENOMEM : 0);
        if (is_hit) assert_int_equal(ledger_used(&g->ledger), before);
    }
    assert_true(n > 10);
    d->type->free(d);
    assert_int_equal(ledger_used(&g->ledger), before);
    qn_engine_free(g);
}

static void records_and_memory_are_counted(void **state)
{
    (void)state;
    qn_engine *g = engine(1);
    size_t before = ledger_used(&g->ledger);
    struct drafter *d = drafter(g, 2);
    void *a = NULL, *b = NULL, *c = NULL;
    assert_int_equal(ledger_used(&g->ledger) - before, mtp_bytes(g->model, KV_F16, 2));
    OK(d->type->open(d, 1, 10, &a, &e));
    OK(d->type->open(d, 2, 10, &b, &e));
    assert_int_equal(d->type->open(d, 3, 10, &c, &e), QN_ENOMEM);
    assert_non_null(strstr(e.msg, "mtp: all records of 2 sequences are in use"));
    d->type->close(d, a);
    d->type->close(d, NULL);
    OK(d->type->open(d, 3, 10, &c, &e));
    d->type->close(d, b);
    d->type->close(d, c);
    d->type->free(d);
    assert_int_equal(ledger_used(&g->ledger), before);

    struct ledger small;
    for (size_t room = 0; room < mtp_bytes(g->model, KV_F16, 2); room += 100000) {
        ledger_init(&small, room);
        assert_int_equal(mtp_new(&d, &g->forward, KV_F16, 2, &small, &e), QN_ENOMEM);
        assert_int_equal(ledger_used(&small), 0);
    }
    qn_engine_free(g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_with_guesses_is_the_plain_text),
        cmocka_unit_test(block_guesses_by_the_text_only),
        cmocka_unit_test(block_makes_the_first_guess),
        cmocka_unit_test(a_long_text_has_guesses_to_its_end),
        cmocka_unit_test(rows_that_nobody_knows_count_as_zeros),
        cmocka_unit_test(records_and_memory_are_counted),
        cmocka_unit_test(nothing_is_allocated_for_a_guess),
        cmocka_unit_test(an_allocation_that_fails_leaves_nothing),
    };
    if (argc < 2 || argc > 3 || qn_model_open(&model, argv[1], &e)) return 1;
    if (argc == 3) cmocka_set_test_filter(argv[2]);
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    qn_model_close(model);
    return n_failed;
}
