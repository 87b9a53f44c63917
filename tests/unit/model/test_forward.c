/* SPDX-License-Identifier: MIT
 *
 * test_forward.c: cancelling a pass, taking rows back, and the trace of a pass.
 *
 * A pass that is cancelled between any two pieces of its work leaves everything as it was, recurrent states included. A
 * state from which rows are taken back is the one to which they were never added.
 *
 *     test_forward MODEL
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "engine/engine.h"

#define N_FIRST 20
#define N_NEXT  70 /* enough for products in strips */
#define N_CTX   96

/* A pass is cancelled before each of so many pieces of its work: with two threads, and with other numbers of them. With
 * sanitizers these are fewer places, in another operation of each layer. */
#ifdef FEW_CASES
#define EVERY       5
#define EVERY_OTHER 19
#else
#define EVERY       1
#define EVERY_OTHER 5
#endif

static qn_model *model;

struct countdown {
    int n_asked, yes_at;
};

static bool asked(void *arg)
{
    struct countdown *c = arg;
    return c->n_asked++ == c->yes_at;
}

/* Runs the next rows of m. True: they were computed. */
static bool next_rows(qn_engine *g, struct kv_seq *m, float *logits, struct countdown *c)
{
    batch_clear(&g->batch);
    for (int i = 0; i < N_NEXT; i++) batch_add(&g->batch, 3 + i * 5, m->n_slots + i, 0, i == N_NEXT - 1);
    assert_int_equal(kv_seq_open(m, m->n_slots, m->n_slots + N_NEXT, NULL), 0);
    g->forward.pass.is_cancelled = c ? asked : NULL;
    g->forward.pass.cancel_arg = c;
    return forward_run(&g->forward, &g->batch, &m, logits);
}

/* ---- states, of models that have them ---- */

static size_t state_bytes(const struct kv_seq *m) { return kv_pool_shape(m->pool)->state_bytes; }

static uint8_t *state_copy(const struct kv_seq *m)
{
    uint8_t *copy = mem_alloc(state_bytes(m) + 1);
    if (m->state) memcpy(copy, m->state, state_bytes(m));
    return copy;
}

static void state_put(struct kv_seq *m, const uint8_t *copy)
{
    if (m->state) memcpy(m->state, copy, state_bytes(m));
}

static void assert_state(const struct kv_seq *m, const uint8_t *copy)
{
    if (m->state) assert_memory_equal(m->state, copy, state_bytes(m));
}

static void cancelled_anywhere(void **state)
{
    (void)state;
    struct qn_engine_params p;
    struct qn_error e;
    qn_token first[N_FIRST] = {1, 2, 3};
    qn_engine_params_init(&p);
    p.n_ctx = N_CTX;
    for (p.n_threads = 1; p.n_threads <= 4; p.n_threads++) {
        qn_engine *g = NULL;
        struct kv_seq m;
        assert_int_equal(qn_engine_new(&g, model, &p, &e), 0);
        size_t bytes = (size_t)qn_model_n_vocab(model) * sizeof(float);
        float *want = mem_alloc(bytes), *got = mem_alloc(bytes);
        assert_int_equal(kv_seq_init(&m, g->kv, N_CTX, &e), 0);
        assert_int_equal(engine_append(g, &m, first, N_FIRST, got, &e), 0);
        assert_int_equal(kv_seq_reserve(&m, N_FIRST + N_NEXT, &e), 0);
        uint8_t *before = state_copy(&m);
        assert_true(next_rows(g, &m, want, NULL));
        state_put(&m, before);
        int at = 0, n_layer = g->model->hp.n_layer;
        for (bool done = false; !done; at += p.n_threads == 2 ? EVERY : EVERY_OTHER) {
            struct countdown c = {0, at};
            done = next_rows(g, &m, got, &c);
            assert_true(done ? c.n_asked <= at : c.n_asked == at + 1); /* yes is for good */
            assert_int_equal(m.n_slots, N_FIRST);
            if (!done) assert_state(&m, before);
            state_put(&m, before);
            memset(got, 0, bytes);
            assert_true(next_rows(g, &m, got, NULL));
            assert_memory_equal(got, want, bytes);
            state_put(&m, before);
        }
        mem_free(before);
        assert_true(at > 10 * n_layer); /* more often than once a layer */
        mem_free(want);
        mem_free(got);
        kv_seq_deinit(&m);
        qn_engine_free(g);
    }
}

/* ---- rows that are taken back ---- */

#define N_DRAFT 6 /* held rows of one sequence; another has two, a third has three that are not held */

/* Runs further rows of three sequences, two of which are held. interleaved: the rows of the first two sequences
 * alternate. */
static void held_rows(qn_engine *g, struct kv_seq *const *mem, bool interleaved, float *logits)
{
    static const int apart[] = {0, 0, 1, 0, 0, 2, 2, 2, 0, 1, 0}, together[] = {0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 2};
    enum { N = N_DRAFT + 2 + 3 };
    struct batch *b = &g->batch;
    int next[3];
    batch_clear(b);
    for (int i = 0; i < 3; i++) next[i] = mem[i]->n_slots;
    for (int i = 0; i < N; i++) {
        int q = interleaved ? apart[i] : together[i], pos = next[q]++;
        batch_add(b, 7 + 3 * pos + q, pos, q, false);
        b->held[i] = q != 2;
    }
    g->forward.pass.is_cancelled = NULL;
    for (int i = 0; i < 3; i++) assert_int_equal(kv_seq_open(mem[i], mem[i]->n_slots, next[i], NULL), 0);
    assert_true(forward_run(&g->forward, b, mem, logits));
}

/* The same for one sequence, a row at a time. */
static void plain_rows(qn_engine *g, struct kv_seq *m, int q, int n, float *logits)
{
    struct qn_error e;
    for (int i = 0; i < n; i++) {
        qn_token t = 7 + 3 * m->n_slots + q;
        assert_int_equal(engine_append(g, m, &t, 1, logits, &e), 0);
    }
}

/* Accepts each possible number of rows of two held sequences. Then and later everything is as if the other rows had
 * never been run. */
static void taken_back(void **state)
{
    (void)state;
    struct qn_engine_params p;
    struct qn_error e;
    qn_token first[N_FIRST] = {1, 2, 3};
    qn_engine_params_init(&p);
    p.n_ctx = N_CTX;
    p.n_sessions = 4;
    for (int i = 0; i < 2 * (N_DRAFT + 1); i++) {
        const int32_t keep[3] = {i / 2, i % 3, 3}; /* of the third none is held */
        const qn_token after = 11;
        struct kv_seq m[3], plain, *mem[] = {&m[0], &m[1], &m[2]};
        qn_engine *g = NULL;
        p.n_threads = 1 + i % 4;
        assert_int_equal(qn_engine_new(&g, model, &p, &e), 0);
        size_t bytes = (size_t)qn_model_n_vocab(model) * sizeof(float);
        float *want = mem_alloc(bytes), *got = mem_alloc(bytes);
        for (int q = 0; q < 3; q++) {
            assert_int_equal(kv_seq_init(mem[q], g->kv, N_CTX, &e), 0);
            assert_int_equal(engine_append(g, mem[q], first, (size_t)(N_FIRST - q), got, &e), 0);
            assert_int_equal(kv_seq_reserve(mem[q], N_FIRST + N_NEXT, &e), 0);
        }
        held_rows(g, mem, i % 2, got);
        forward_accept(&g->forward, keep);
        for (int q = 0; q < 3; q++) {
            kv_seq_extend(mem[q], mem[q]->n_slots + keep[q]);
            assert_int_equal(kv_seq_init(&plain, g->kv, N_CTX, &e), 0);
            assert_int_equal(engine_append(g, &plain, first, (size_t)(N_FIRST - q), want, &e), 0);
            plain_rows(g, &plain, q, keep[q], want);
            assert_int_equal(plain.n_slots, mem[q]->n_slots);
            assert_state(mem[q], plain.state);
            assert_int_equal(engine_append(g, &plain, &after, 1, want, &e), 0);
            assert_int_equal(engine_append(g, mem[q], &after, 1, got, &e), 0);
            assert_memory_equal(got, want, bytes);
            assert_state(mem[q], plain.state);
            kv_seq_deinit(&plain);
        }
        for (int q = 0; q < 3; q++) kv_seq_deinit(mem[q]);
        mem_free(want);
        mem_free(got);
        qn_engine_free(g);
    }
}

static bool always(void *arg)
{
    (void)arg;
    return true;
}

/* More sequences than there is room for copies of states: the pass is not abandoned. */
static void too_many_to_copy(void **state)
{
    (void)state;
    struct qn_engine_params p;
    struct qn_error e;
    struct kv_seq m[2], *mem[] = {&m[0], &m[1]};
    qn_engine *g = NULL;
    qn_engine_params_init(&p);
    p.n_ctx = N_CTX;
    p.n_sessions = 1;
    assert_int_equal(qn_engine_new(&g, model, &p, &e), 0);
    float *logits = mem_alloc((size_t)qn_model_n_vocab(model) * sizeof(float));
    for (int q = 0; q < 2; q++) assert_int_equal(kv_seq_init(mem[q], g->kv, N_CTX / 2, &e), 0);
    for (int q = 0; q < 2; q++) assert_int_equal(kv_seq_reserve(mem[q], 2, &e) || kv_seq_open(mem[q], 0, 2, &e), 0);
    batch_clear(&g->batch);
    for (int i = 0; i < 4; i++) batch_add(&g->batch, 1 + i, i % 2, i / 2, false);
    g->forward.pass.is_cancelled = always;
    assert_int_equal(forward_run(&g->forward, &g->batch, mem, logits), m[0].state != NULL);
    for (int q = 0; q < 2; q++) kv_seq_deinit(mem[q]);
    mem_free(logits);
    qn_engine_free(g);
}

/* ---- the trace ---- */

static void assert_classes(const struct hparams *h, const struct hp_layer *l, const int n[OP_N_CLASSES])
{
    bool is_latent = h->n_lora_kv != 0;
    assert_int_equal(n[OP_ATTENTION], !l->is_recurrent);
    assert_int_equal(n[OP_DELTA] > 0, l->is_recurrent);
    assert_int_equal(n[OP_LATENT] > 0, is_latent);
    assert_int_equal(n[OP_ATTENTION_MATRIX] > 0, !l->is_recurrent && !is_latent);
    assert_int_equal(n[OP_EXPERTS] > 0, l->has_experts);
    assert_int_equal(n[OP_FFN], l->has_experts ? 0 : 2);
    assert_int_equal(n[OP_EMBEDDING] + n[OP_OUTPUT], 0);
}

static void operations_have_the_class_of_their_block(void **state)
{
    (void)state;
    struct trace_op ops[1024];
    struct trace trace = {.ops = ops, .cap = 1024};
    struct qn_engine_params p;
    struct qn_error e;
    struct kv_seq m;
    qn_engine *g = NULL;
    const qn_token token = 1;
    qn_engine_params_init(&p);
    p.n_ctx = N_CTX;
    assert_int_equal(qn_engine_new(&g, model, &p, &e), 0);
    const struct hparams *h = &g->model->hp;
    float *logits = mem_alloc((size_t)h->n_vocab * sizeof(float));
    assert_int_equal(kv_seq_init(&m, g->kv, N_CTX, &e), 0);
    g->forward.pass.trace = &trace;
    assert_int_equal(engine_append(g, &m, &token, 1, logits, &e), 0);
    for (int il = 0; il < h->n_layer; il++) {
        int n[OP_N_CLASSES] = {0};
        for (int i = 0; i < trace.n; i++) n[ops[i].class] += ops[i].layer == il;
        assert_classes(h, &h->layer[il], n);
    }
    assert_int_equal(ops[0].class, OP_EMBEDDING);
    assert_int_equal(ops[trace.n - 1].class, OP_OUTPUT);
    kv_seq_deinit(&m);
    mem_free(logits);
    qn_engine_free(g);
}

/* ---- numbers that hardly show in the logits ---- */

/* Up to the context that the model was trained with, LongRoPE takes the short table. */
static void longrope_takes_the_long_table_beyond_the_original_context(void **state)
{
    (void)state;
    enum { ORIGINAL = 64 };
    static const int contexts[] = {ORIGINAL - 1, ORIGINAL, ORIGINAL + 1};
    struct model *m = (struct model *)model->model, before = *m;
    struct qn_engine_params p;
    struct qn_error e;
    float longer[HP_MAX_HEAD_DIM / 2], shorter[HP_MAX_HEAD_DIM / 2];
    for (int i = 0; i < HP_MAX_HEAD_DIM / 2; i++) {
        longer[i] = 4;
        shorter[i] = 2;
    }
    m->hp.rope_scaling = ROPE_LONG;
    m->hp.rope_ctx_orig = ORIGINAL;
    m->rope_long = longer;
    m->rope_short = shorter;
    qn_engine_params_init(&p);
    for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++) {
        qn_engine *g = NULL;
        p.n_ctx = contexts[i];
        assert_int_equal(qn_engine_new(&g, model, &p, &e), 0);
        assert_true(g->forward.pass.rope.freq[0] == (contexts[i] > ORIGINAL ? 0.25 : 0.5)); /* of 1 */
        qn_engine_free(g);
    }
    *m = before;
}

static l2_norm_fn *honest_l2_norm;
static int n_norms, n_other_eps;

static void watched_l2_norm(const float *x, float eps, float scale, int n, float *y, void *scratch)
{
    n_norms++;
    n_other_eps += eps != 1e-6F;
    honest_l2_norm(x, eps, scale, n, y, scratch);
}

/* The constant of the published code, whatever the model's other norms have (docs/KERNELS.md, section 5). */
static void keys_of_the_delta_rule_have_their_own_epsilon(void **state)
{
    (void)state;
    struct qn_engine_params p;
    struct qn_error e;
    struct kv_seq m;
    qn_engine *g = NULL;
    const qn_token first[3] = {1, 2, 3};
    qn_engine_params_init(&p);
    p.n_ctx = N_CTX;
    p.n_threads = 1;
    assert_int_equal(qn_engine_new(&g, model, &p, &e), 0);
    honest_l2_norm = g->forward.pass.kt.l2_norm;
    g->forward.pass.kt.l2_norm = watched_l2_norm;
    float *logits = mem_alloc((size_t)qn_model_n_vocab(model) * sizeof(float));
    assert_int_equal(kv_seq_init(&m, g->kv, N_CTX, &e), 0);
    assert_int_equal(engine_append(g, &m, first, 3, logits, &e), 0);
    assert_true(m.state ? n_norms > 0 : n_norms == 0);
    assert_int_equal(n_other_eps, 0);
    kv_seq_deinit(&m);
    mem_free(logits);
    qn_engine_free(g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cancelled_anywhere),
                                       cmocka_unit_test(taken_back),
                                       cmocka_unit_test(operations_have_the_class_of_their_block),
                                       cmocka_unit_test(too_many_to_copy),
                                       cmocka_unit_test(longrope_takes_the_long_table_beyond_the_original_context),
                                       cmocka_unit_test(keys_of_the_delta_rule_have_their_own_epsilon)};
    struct qn_error e = {0};
    if (argc != 2 || qn_model_open(&model, argv[1], &e)) {
        fprintf(stderr, "test_forward: %s\n", argc == 2 ? e.msg : "one model, please");
        return 1;
    }
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    qn_model_close(model);
    return rc;
}
