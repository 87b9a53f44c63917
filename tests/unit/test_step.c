/* SPDX-License-Identifier: MIT
 *
 * test_step.c: a forward pass that is cancelled between any two pieces of its work leaves everything as it was.
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
        assert_true(next_rows(g, &m, want, NULL));
        int at = 0, n_layer = g->model->hp.n_layer;
        for (bool done = false; !done; at += p.n_threads == 2 ? 1 : 5) {
            struct countdown c = {0, at};
            done = next_rows(g, &m, got, &c);
            assert_true(done ? c.n_asked <= at : c.n_asked == at + 1); /* yes is for good */
            assert_int_equal(m.n_slots, N_FIRST);
            memset(got, 0, bytes);
            assert_true(next_rows(g, &m, got, NULL));
            assert_memory_equal(got, want, bytes);
        }
        assert_true(at > 10 * n_layer); /* more often than once a layer */
        mem_free(want);
        mem_free(got);
        memory_deinit(&m);
        qn_engine_free(g);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cancelled_anywhere)};
    struct qn_error e = {0};
    if (argc != 2 || qn_model_open(&model, argv[1], &e)) {
        fprintf(stderr, "test_step: %s\n", argc == 2 ? e.msg : "one model, please");
        return 1;
    }
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    qn_model_close(model);
    return rc;
}
