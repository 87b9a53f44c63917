/* SPDX-License-Identifier: MIT
 *
 * test_depth.c: single tokens after a long past give the same bits, however attention divides that past.
 *
 *     test_depth [--reference] MODEL...
 *
 * Logits of the last tokens of a prompt are computed with one thread and in one batch on the best instruction set. Then
 * the last tokens come one by one, with 1 to 8 threads on the best instruction set and with some numbers of threads on
 * all others, for f16 and q8_0 keys and values. At the end several forks and a short stranger decode in one batch. With
 * --reference, which takes long, the reference kernels compute the last tokens in a batch, and in a fork one by one;
 * the best instruction set has to agree, with which the plain test compares the others. The test is linked with room
 * for few partial results (ATTN_MAX_PARTIALS), so that a past has several stretches.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../levels.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "kernel/cpu.h"

enum {
    N_TOKENS = 1061, /* in the fifth chunk of attention */
    N_LAST = 5,      /* tokens that come one by one */
    N_FORKS = 3,
};

struct test {
    const char *path;
    bool on_reference; /* what all are compared with; false: the best instruction set */
    qn_model *model;
    size_t n_vocab;
    qn_token tokens[N_TOKENS];
    float *expected; /* [N_LAST][n_vocab] */
    int n_passed, n_failed;
};

static void die(const struct test *t, const struct qn_error *e)
{
    fprintf(stderr, "%s: %s\n", t->path, e->msg);
    exit(1);
}

static qn_engine *make_engine(const struct test *t, enum cpu_level cpu, int threads, enum qn_kv kv)
{
    struct qn_engine_params p;
    struct qn_error e;
    qn_engine *g;
    qn_engine_params_init(&p);
    p.cpu = cpu_level_name(cpu);
    p.n_threads = threads;
    p.n_batch = N_TOKENS;
    p.n_ctx = N_TOKENS;
    p.n_sessions = N_FORKS + 2;
    p.kv = kv;
    if (qn_engine_new(&g, t->model, &p, &e)) die(t, &e);
    return g;
}

/* logits: [n_vocab], overwritten. */
static void begin(const struct test *t, qn_engine *g, struct kv_seq *m, int n_tokens, float *logits)
{
    struct qn_error e;
    if (kv_seq_init(m, g->kv, g->n_ctx, &e)) die(t, &e);
    if (engine_append(g, m, t->tokens, (size_t)n_tokens, logits, &e)) die(t, &e);
}

static void check(struct test *t, const char *what, enum cpu_level cpu, int threads, enum qn_kv kv, int i,
                  const float *got)
{
    bool same = !memcmp(got, t->expected + (size_t)i * t->n_vocab, t->n_vocab * sizeof *got);
    *(same ? &t->n_passed : &t->n_failed) += 1;
    if (!same)
        printf("FAILED %s, %s: %s, %d threads, KV type %d, token %d of the last %d\n", t->path, what,
               cpu_level_name(cpu), threads, (int)kv, i, N_LAST);
}

static int keep_last(void *arg, const float *row, struct qn_error *e)
{
    struct test *t = arg;
    (void)e;
    memmove(t->expected, t->expected + t->n_vocab, (N_LAST - 1) * t->n_vocab * sizeof *row);
    memcpy(t->expected + (N_LAST - 1) * t->n_vocab, row, t->n_vocab * sizeof *row);
    return 0;
}

static void expect(struct test *t, enum qn_kv kv)
{
    qn_engine *g = make_engine(t, cpu_best(), 1, kv);
    struct qn_error e;
    struct kv_seq m;
    float *scratch = mem_alloc(N_TOKENS * t->n_vocab * sizeof *scratch);
    if (kv_seq_init(&m, g->kv, g->n_ctx, &e)) die(t, &e);
    if (engine_append_all(g, &m, t->tokens, N_TOKENS, 1, scratch, keep_last, t, &e)) die(t, &e);
    kv_seq_deinit(&m);
    mem_free(scratch);
    qn_engine_free(g);
}

static void check_one_by_one(struct test *t, enum cpu_level cpu, int threads, enum qn_kv kv)
{
    qn_engine *g = make_engine(t, cpu, threads, kv);
    struct qn_error e;
    struct kv_seq m;
    float *got = mem_alloc(t->n_vocab * sizeof *got);
    begin(t, g, &m, N_TOKENS - N_LAST, got);
    for (int i = 0; i < N_LAST; i++) {
        memset(got, 0xff, t->n_vocab * sizeof *got);
        if (engine_append(g, &m, &t->tokens[N_TOKENS - N_LAST + i], 1, got, &e)) die(t, &e);
        check(t, "one by one", cpu, threads, kv, i, got);
    }
    kv_seq_deinit(&m);
    mem_free(got);
    qn_engine_free(g);
}

/* The reference reads the past once: its sequence goes on with the last tokens in a batch, and a fork one by one. */
static void expect_reference(struct test *t, enum qn_kv kv)
{
    enum { THREADS = 3 };
    qn_engine *g = make_engine(t, CPU_REF, THREADS, kv);
    struct qn_error e;
    struct kv_seq m, fork;
    const qn_token *last = &t->tokens[N_TOKENS - N_LAST];
    float *got = mem_alloc(N_LAST * t->n_vocab * sizeof *got);
    begin(t, g, &m, N_TOKENS - N_LAST, got);
    if (kv_seq_init(&fork, g->kv, g->n_ctx, &e)) die(t, &e);
    kv_seq_fork(&fork, &m);
    if (engine_append_all(g, &m, last, N_LAST, 1, got, keep_last, t, &e)) die(t, &e);
    for (int i = 0; i < N_LAST; i++) {
        memset(got, 0xff, t->n_vocab * sizeof *got);
        if (engine_append(g, &fork, &last[i], 1, got, &e)) die(t, &e);
        check(t, "one by one", CPU_REF, THREADS, kv, i, got);
    }
    kv_seq_deinit(&fork);
    kv_seq_deinit(&m);
    mem_free(got);
    qn_engine_free(g);
}

/* The last token in each of several forks, and one of a stranger with a short past, in one batch. */
static void check_forks(struct test *t, enum cpu_level cpu, int threads, enum qn_kv kv)
{
    qn_engine *g = make_engine(t, cpu, threads, kv);
    struct qn_error e;
    struct kv_seq m[N_FORKS + 1], *mems[N_FORKS + 1];
    struct batch b;
    float *got = mem_alloc(N_FORKS * t->n_vocab * sizeof *got);
    if (batch_init(&b, N_FORKS + 1, &e)) die(t, &e);
    begin(t, g, &m[0], N_TOKENS - 1, got);
    begin(t, g, &m[N_FORKS], 40, got);
    for (int i = 1; i < N_FORKS; i++) {
        if (kv_seq_init(&m[i], g->kv, g->n_ctx, &e)) die(t, &e);
        kv_seq_fork(&m[i], &m[0]);
    }
    for (int i = 0; i <= N_FORKS; i++) {
        int pos = i < N_FORKS ? N_TOKENS - 1 : 40;
        mems[i] = &m[i];
        if (kv_seq_reserve(mems[i], pos + 1, &e)) die(t, &e);
        batch_add(&b, t->tokens[pos], pos, i, i < N_FORKS);
    }
    memset(got, 0xff, N_FORKS * t->n_vocab * sizeof *got);
    forward_run(&g->forward, &b, mems, got);
    for (int i = 0; i < N_FORKS; i++) check(t, "forks", cpu, threads, kv, N_LAST - 1, got + (size_t)i * t->n_vocab);
    batch_deinit(&b);
    for (int i = 0; i <= N_FORKS; i++) kv_seq_deinit(mems[i]);
    mem_free(got);
    qn_engine_free(g);
}

static void check_kv(struct test *t, enum qn_kv kv)
{
    if (t->on_reference) {
        expect_reference(t, kv);
        check_one_by_one(t, cpu_best(), 1, kv);
        check_forks(t, cpu_best(), 5, kv);
        return;
    }
    expect(t, kv);
    for (enum cpu_level cpu = CPU_REF + 1; cpu < CPU_N; cpu++)
        for (int threads = 1; cpu_has(cpu) && threads <= 8; threads++)
            if (cpu == cpu_best() || threads == 5) check_one_by_one(t, cpu, threads, kv);
    check_forks(t, cpu_best(), 5, kv);
    check_forks(t, cpu_best(), 8, kv);
}

static void check_model(struct test *t)
{
    struct qn_error e;
    if (qn_model_open(&t->model, t->path, &e)) die(t, &e);
    t->n_vocab = (size_t)qn_model_n_vocab(t->model);
    t->expected = mem_alloc(N_LAST * t->n_vocab * sizeof *t->expected);
    for (int i = 0; i < N_TOKENS; i++) t->tokens[i] = (qn_token)(rng_u64(3, 1, (uint64_t)i) % t->n_vocab);
    check_kv(t, QN_KV_F16);
    check_kv(t, QN_KV_Q8_0);
    mem_free(t->expected);
    qn_model_close(t->model);
}

int main(int argc, char **argv)
{
    int n_passed = 0, n_failed = 0;
    const bool on_reference = argc > 1 && !strcmp(argv[1], "--reference");
    for (int i = 1 + on_reference; i < argc; i++) {
        struct test t = {.path = argv[i], .on_reference = on_reference};
        check_model(&t);
        n_passed += t.n_passed;
        n_failed += t.n_failed;
    }
    printf("%d passed, %d failed\n", n_passed, n_failed);
    levels_print_skipped();
    levels_print_result(!n_failed);
    return n_failed || n_passed == 0;
}
