/* SPDX-License-Identifier: MIT
 *
 * test_step.c: a forward pass that is cancelled between any two pieces of its work leaves everything as it was, a
 * recurrent state too; and a state from which rows are taken back is the one that they were never added to.
 *
 *     test_step MODEL
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

static qn_model *model;

struct countdown {
    int n_asked, yes_at;
};

static bool asked(void *arg)
{
    struct countdown *c = arg;
    return c->n_asked++ == c->yes_at;
}

/* The next rows of m: true when they were computed. */
static bool next_rows(qn_engine *g, struct memory *m, float *logits, struct countdown *c)
{
    qn_token token[N_NEXT];
    for (int i = 0; i < N_NEXT; i++) {
        token[i] = 3 + i * 5;
        g->pos[i] = g->slot[i] = m->n_slots + i;
        g->seq[i] = 0;
        g->want[i] = i == N_NEXT - 1;
    }
    const struct batch b = {N_NEXT, token, g->pos, g->slot, g->seq, g->want, NULL};
    g->step.is_cancelled = c ? asked : NULL;
    g->step.cancel_arg = c;
    return step_run(&g->step, &b, &m, logits);
}

/* ---- states, of models that have them ---- */

static size_t state_bytes(const struct memory *m) { return kv_pool_shape(m->pool)->state_bytes; }

static uint8_t *state_copy(const struct memory *m)
{
    uint8_t *copy = mem_alloc(state_bytes(m) + 1);
    if (m->state) memcpy(copy, m->state, state_bytes(m));
    return copy;
}

static void state_put(struct memory *m, const uint8_t *copy)
{
    if (m->state) memcpy(m->state, copy, state_bytes(m));
}

static void assert_state(const struct memory *m, const uint8_t *copy)
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
        struct memory m;
        assert_int_equal(qn_engine_new(&g, model, &p, &e), 0);
        size_t bytes = (size_t)qn_model_n_vocab(model) * sizeof(float);
        float *want = mem_alloc(bytes), *got = mem_alloc(bytes);
        assert_int_equal(memory_init(&m, g->kv, N_CTX, &e), 0);
        assert_int_equal(engine_append(g, &m, first, N_FIRST, got, &e), 0);
        assert_int_equal(memory_reserve(&m, N_FIRST + N_NEXT, &e), 0);
        uint8_t *before = state_copy(&m);
        assert_true(next_rows(g, &m, want, NULL));
        state_put(&m, before);
        int at = 0, n_layer = g->model->hp.n_layer;
        for (bool done = false; !done; at += p.n_threads == 2 ? 1 : 5) {
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
        memory_deinit(&m);
        qn_engine_free(g);
    }
}

/* ---- rows that are taken back ---- */

#define N_DRAFT 6 /* held rows of one sequence; another has two, a third has three that are not held */

/* Rows of three sequences behind what they have, two of them held; interleaved: the second sequence's rows are not
 * together. */
static void held_rows(qn_engine *g, struct memory *const *mem, bool interleaved, float *logits)
{
    static const int apart[] = {0, 0, 1, 0, 0, 2, 2, 2, 0, 1, 0}, together[] = {0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 2};
    enum { N = N_DRAFT + 2 + 3 };
    qn_token token[N];
    uint8_t held[N];
    int next[3];
    for (int i = 0; i < 3; i++) next[i] = mem[i]->n_slots;
    for (int i = 0; i < N; i++) {
        int q = interleaved ? apart[i] : together[i];
        g->seq[i] = q;
        g->pos[i] = g->slot[i] = next[q]++;
        token[i] = 7 + 3 * g->pos[i] + q;
        held[i] = q != 2;
        g->want[i] = 0;
    }
    const struct batch b = {N, token, g->pos, g->slot, g->seq, g->want, held};
    g->step.is_cancelled = NULL;
    assert_true(step_run(&g->step, &b, mem, logits));
}

/* The same for one sequence, a row at a time. */
static void plain_rows(qn_engine *g, struct memory *m, int q, int n, float *logits)
{
    struct qn_error e;
    for (int i = 0; i < n; i++) {
        qn_token t = 7 + 3 * m->n_slots + q;
        assert_int_equal(engine_append(g, m, &t, 1, logits, &e), 0);
    }
}

/* All that two held sequences can keep: as if the rest had never been there, then and later. */
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
        struct memory m[3], plain, *mem[] = {&m[0], &m[1], &m[2]};
        qn_engine *g = NULL;
        p.n_threads = 1 + i % 4;
        assert_int_equal(qn_engine_new(&g, model, &p, &e), 0);
        size_t bytes = (size_t)qn_model_n_vocab(model) * sizeof(float);
        float *want = mem_alloc(bytes), *got = mem_alloc(bytes);
        for (int q = 0; q < 3; q++) {
            assert_int_equal(memory_init(mem[q], g->kv, N_CTX, &e), 0);
            assert_int_equal(engine_append(g, mem[q], first, (size_t)(N_FIRST - q), got, &e), 0);
            assert_int_equal(memory_reserve(mem[q], N_FIRST + N_NEXT, &e), 0);
        }
        held_rows(g, mem, i % 2, got);
        step_accept(&g->step, keep);
        for (int q = 0; q < 3; q++) {
            memory_extend(mem[q], mem[q]->n_slots + keep[q]);
            assert_int_equal(memory_init(&plain, g->kv, N_CTX, &e), 0);
            assert_int_equal(engine_append(g, &plain, first, (size_t)(N_FIRST - q), want, &e), 0);
            plain_rows(g, &plain, q, keep[q], want);
            assert_int_equal(plain.n_slots, mem[q]->n_slots);
            assert_state(mem[q], plain.state);
            assert_int_equal(engine_append(g, &plain, &after, 1, want, &e), 0);
            assert_int_equal(engine_append(g, mem[q], &after, 1, got, &e), 0);
            assert_memory_equal(got, want, bytes);
            assert_state(mem[q], plain.state);
            memory_deinit(&plain);
        }
        for (int q = 0; q < 3; q++) memory_deinit(mem[q]);
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
    struct memory m[2], *mem[] = {&m[0], &m[1]};
    qn_engine *g = NULL;
    const qn_token token[4] = {1, 2, 3, 4};
    qn_engine_params_init(&p);
    p.n_ctx = N_CTX;
    p.n_sessions = 1;
    assert_int_equal(qn_engine_new(&g, model, &p, &e), 0);
    float *logits = mem_alloc((size_t)qn_model_n_vocab(model) * sizeof(float));
    for (int q = 0; q < 2; q++) assert_int_equal(memory_init(mem[q], g->kv, N_CTX / 2, &e), 0);
    for (int q = 0; q < 2; q++) assert_int_equal(memory_reserve(mem[q], 2, &e), 0);
    for (int i = 0; i < 4; i++) {
        g->seq[i] = i / 2;
        g->pos[i] = g->slot[i] = i % 2;
        g->want[i] = 0;
    }
    const struct batch b = {4, token, g->pos, g->slot, g->seq, g->want, NULL};
    g->step.is_cancelled = always;
    assert_int_equal(step_run(&g->step, &b, mem, logits), m[0].state != NULL);
    for (int q = 0; q < 2; q++) memory_deinit(mem[q]);
    mem_free(logits);
    qn_engine_free(g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cancelled_anywhere), cmocka_unit_test(taken_back),
                                       cmocka_unit_test(too_many_to_copy)};
    struct qn_error e = {0};
    if (argc != 2 || qn_model_open(&model, argv[1], &e)) {
        fprintf(stderr, "test_step: %s\n", argc == 2 ? e.msg : "one model, please");
        return 1;
    }
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    qn_model_close(model);
    return rc;
}
