/* SPDX-License-Identifier: MIT
 *
 * test_equal.c: every path to the logits gives the same bits.
 *
 *     test_equal [--tokens N] [--levels LIST] [--all-sizes] MODEL... [--f16 MODEL...]
 *     test_equal [--tokens N] [--levels LIST] --reference NAME... [--f16 NAME...]     models of the reference data
 *
 * For each model and each KV type the logits of a prompt are computed on the reference kernels,
 * one thread, one batch; then again on every instruction set, with 1, 2, 3 and 7 threads, in batches
 * of 1, 3 and 64 rows and of all sizes around the tiles of kernels (the slow reference takes one of these, and with
 * --all-sizes three), together with a stranger in the same batches, in a fork of a session, in an original after its
 * fork has gone on, and behind a recurrent state that was put back. All are compared with memcmp. The comparison is
 * shown to be able to fail: a pass whose products are added up in another order must differ. N is 67 unless given; with
 * 540 the ragged batches end in single rows behind two whole chunks of attention. LIST names the instruction sets that
 * are compared with the reference, with commas between them; all of this machine's unless given. Those that the machine
 * lacks are named as skipped. The models after --f16 have this KV type alone: what reads the cache does not see the
 * type of the weights, so only one of the models that differ in nothing else needs all types of the cache.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "../levels.h"
#include "kernel/cpu.h"
#include "reference.h"

enum {
    SOME_TOKENS = 67, /* more than a page, no multiple of anything */
    MAX_TOKENS = 1100,
    STRANGER_ROWS = 13, /* of each side in a batch */
    RAGGED = 0,         /* as a size of batches: see run_ragged() */
};

struct test {
    const char *path;
    const char *levels; /* as given by --levels; NULL: all */
    bool is_f16;        /* the KV type is not varied */
    bool all_sizes;     /* of batches, on the reference, too */
    qn_model *model;
    int n_vocab, n_tokens;
    qn_token tokens[MAX_TOKENS];
    float *expected, *got; /* [n_tokens][n_vocab] */
    int n_passed, n_failed;
};

static void die(const struct test *t, const struct qn_error *e)
{
    fprintf(stderr, "%s: %s\n", t->path, e->msg);
    exit(1);
}

static qn_engine *make_engine(const struct test *t, enum cpu_level cpu, int threads, int batch, enum qn_kv kv)
{
    struct qn_engine_params p;
    struct qn_error e;
    qn_engine *g;
    qn_engine_params_init(&p);
    p.cpu = cpu_level_name(cpu);
    p.n_threads = threads;
    p.n_batch = batch;
    p.n_ctx = t->n_tokens;
    p.n_sessions = 3;
    p.kv = kv;
    if (qn_engine_new(&g, t->model, &p, &e)) die(t, &e);
    return g;
}

struct into {
    float *p;
    size_t bytes;
};

static int keep(void *arg, const float *row, struct qn_error *e)
{
    (void)e;
    struct into *to = arg;
    memcpy(to->p, row, to->bytes);
    to->p += to->bytes / sizeof(float);
    return 0;
}

/* How many tokens come next when n are left: the sizes around the tiles of kernels, falling, then single ones. */
static int ragged_size(int *next, int n)
{
    static const int sizes[] = {100, 65, 64, 63, 48, 33, 32, 31, 17, 16, 15, 9, 8, 7, 6, 5, 4, 3, 2};
    const int n_sizes = sizeof sizes / sizeof sizes[0];
    while (*next < n_sizes && sizes[*next] > n) ++*next;
    return *next < n_sizes ? sizes[(*next)++] : 1;
}

/* All logits of the prompt on an engine, in its own batches or in ragged ones. */
static void run(const struct test *t, qn_engine *g, bool ragged, float *out)
{
    struct kv_seq m;
    struct qn_error e;
    struct into to = {out, (size_t)t->n_vocab * sizeof(float)};
    float *scratch = mem_alloc((size_t)g->n_batch * to.bytes);
    memset(out, 0xff, (size_t)t->n_tokens * to.bytes); /* NaN: a row that is not written does not pass */
    if (kv_seq_init(&m, g->kv, g->n_ctx, &e)) die(t, &e);
    for (int done = 0, next = 0, n; done < t->n_tokens; done += n) {
        n = ragged ? ragged_size(&next, t->n_tokens - done) : t->n_tokens;
        if (engine_append_all(g, &m, t->tokens + done, (size_t)n, 1, scratch, keep, &to, &e)) die(t, &e);
    }
    assert(to.p == out + (size_t)t->n_tokens * (size_t)t->n_vocab);
    kv_seq_deinit(&m);
    mem_free(scratch);
}

static void check(struct test *t, const char *what)
{
    size_t n = (size_t)t->n_tokens * (size_t)t->n_vocab, i = 0;
    while (i < n && !memcmp(&t->expected[i], &t->got[i], sizeof(float))) i++;
    if (i == n) {
        t->n_passed++;
        return;
    }
    t->n_failed++;
    printf("FAILED %s, %s: position %zu, token %zu: %a, expected %a\n", t->path, what, i / (size_t)t->n_vocab,
           i % (size_t)t->n_vocab, (double)t->got[i], (double)t->expected[i]);
}

/* The prompt in batches of at most `rows`, each row followed by one of a stranger with other tokens. */
static void run_beside_stranger(const struct test *t, qn_engine *g, int rows)
{
    struct kv_seq m[2], *mems[2] = {&m[0], &m[1]};
    struct qn_error e;
    const size_t row_bytes = (size_t)t->n_vocab * sizeof(float);
    float *logits = mem_alloc((size_t)rows * row_bytes);
    struct batch b;
    if (batch_init(&b, 2 * rows, &e)) die(t, &e);
    for (int i = 0; i < 2; i++)
        if (kv_seq_init(mems[i], g->kv, g->n_ctx, &e) || kv_seq_reserve(mems[i], t->n_tokens, &e)) die(t, &e);
    for (int done = 0; done < t->n_tokens; done += rows) {
        int n = t->n_tokens - done < rows ? t->n_tokens - done : rows;
        batch_clear(&b);
        for (int i = 0; i < 2 * n; i++) {
            /* half the rows are ours, half the stranger's; who is first alternates */
            bool ours = (i < n) == (done / rows % 2 == 0);
            int pos = done + i % n;
            qn_token token = ours ? t->tokens[pos] : (t->tokens[pos] * 7 + 3) % t->n_vocab;
            batch_add(&b, token, pos, ours ? 0 : 1, ours);
        }
        memset(logits, 0xff, (size_t)n * row_bytes); /* NaN, not what the batch before left */
        for (int i = 0; i < 2; i++)
            if (kv_seq_open(mems[i], done, done + n, &e)) die(t, &e);
        forward_run(&g->forward, &b, mems, logits);
        kv_seq_extend(mems[0], done + n);
        kv_seq_extend(mems[1], done + n);
        memcpy(t->got + (size_t)done * (size_t)t->n_vocab, logits, (size_t)n * row_bytes);
    }
    batch_deinit(&b);
    kv_seq_deinit(mems[0]);
    kv_seq_deinit(mems[1]);
    mem_free(logits);
}

/* A session that goes half the way, is forked, and both go on, the original with other tokens: the logits of
 * the fork's last position stand for all. */
static void check_fork(struct test *t, qn_engine *g)
{
    struct qn_error e;
    qn_session *a, *b;
    const float *logits;
    qn_token other[MAX_TOKENS];
    const size_t n = (size_t)t->n_tokens, half = n / 2, last = (n - 1) * (size_t)t->n_vocab;
    size_t kept;
    memcpy(other, t->tokens, sizeof other);
    for (size_t i = half; i < n; i++) other[i] = (other[i] + 11) % t->n_vocab;
    if (qn_session_new(&a, g, NULL, &e) || qn_session_sync(a, t->tokens, half, NULL, &e)) die(t, &e);
    if (qn_session_fork(&b, a, &e)) die(t, &e);
    if (qn_session_sync(a, other, n, NULL, &e)) die(t, &e);
    if (qn_session_sync(b, t->tokens, n, &kept, &e) || qn_session_logits(b, &logits, &e)) die(t, &e);
    if (kept != half) {
        t->n_failed++;
        printf("FAILED %s: a fork kept %zu of %zu tokens\n", t->path, kept, half);
    }
    memcpy(t->got, t->expected, last * sizeof(float));
    memcpy(t->got + last, logits, (size_t)t->n_vocab * sizeof(float));
    check(t, "a fork beside its original");
    if (qn_session_sync(a, t->tokens, n, &kept, &e) || qn_session_logits(a, &logits, &e)) die(t, &e);
    memcpy(t->got + last, logits, (size_t)t->n_vocab * sizeof(float));
    check(t, "a session rewound to its fork's tokens");
    qn_session_free(a);
    qn_session_free(b);
}

/* A session half the way is forked, both go on, the fork last and with other tokens: then the original's next token
 * must still see the original's slots. */
static void check_original(struct test *t, qn_engine *g)
{
    struct qn_error e;
    qn_session *a, *b;
    const float *logits;
    qn_token other[MAX_TOKENS];
    const size_t n = (size_t)t->n_tokens, half = n / 2, last = (n - 1) * (size_t)t->n_vocab;
    memcpy(other, t->tokens, sizeof other);
    for (size_t i = half; i < n; i++) other[i] = (other[i] + 11) % t->n_vocab;
    if (qn_session_new(&a, g, NULL, &e) || qn_session_sync(a, t->tokens, half, NULL, &e)) die(t, &e);
    if (qn_session_fork(&b, a, &e)) die(t, &e);
    if (qn_session_sync(a, t->tokens, n - 1, NULL, &e) || qn_session_sync(b, other, n - 1, NULL, &e)) die(t, &e);
    if (qn_session_sync(a, t->tokens, n, NULL, &e) || qn_session_logits(a, &logits, &e)) die(t, &e);
    memcpy(t->got, t->expected, last * sizeof(float));
    memcpy(t->got + last, logits, (size_t)t->n_vocab * sizeof(float));
    check(t, "an original after its fork has gone on");
    qn_session_free(a);
    qn_session_free(b);
}

/* A recurrent state half the way, copied, and put back behind other tokens. */
static void check_snapshot(struct test *t, qn_engine *g)
{
    struct kv_seq m;
    struct qn_error e;
    const size_t n = (size_t)t->n_tokens, half = n / 2, row = (size_t)t->n_vocab;
    const size_t bytes = kv_pool_shape(g->kv)->state_bytes;
    float *scratch = mem_alloc((size_t)g->n_batch * row * sizeof(float));
    if (!bytes) goto done;
    uint8_t *copy = mem_alloc(bytes);
    struct into into = {t->got, row * sizeof(float)};
    memset(t->got, 0xff, n * row * sizeof(float));
    if (kv_seq_init(&m, g->kv, g->n_ctx, &e)) die(t, &e);
    if (engine_append_all(g, &m, t->tokens, half, 1, scratch, keep, &into, &e)) die(t, &e);
    memcpy(copy, m.state, bytes);
    if (engine_append(g, &m, t->tokens, half / 2, scratch, &e)) die(t, &e);
    kv_seq_restore(&m, (int)half, copy);
    if (engine_append_all(g, &m, t->tokens + half, n - half, 1, scratch, keep, &into, &e)) die(t, &e);
    check(t, "a state that was put back");
    kv_seq_deinit(&m);
    mem_free(copy);
done:
    mem_free(scratch);
}

/* The same sums in another order: both halves of k apart, then added. */
static gemm_fn *honest_gemm;
static void perturbed_gemm(const struct gemm *g, void *scratch)
{
    float *half = mem_alloc((size_t)g->n_cols * g->ld_y * sizeof(float));
    struct gemm a = *g, b = *g;
    a.k = g->k / 2;
    b.k = g->k - a.k;
    b.w += (size_t)a.k * sizeof(float);
    b.x += (size_t)a.k * sizeof(float);
    b.y = half;
    honest_gemm(&a, scratch);
    honest_gemm(&b, scratch);
    for (int c = 0; c < g->n_cols; c++)
        for (size_t r = 0; r < (size_t)g->n_rows; r++) g->y[(size_t)c * g->ld_y + r] += half[(size_t)c * g->ld_y + r];
    mem_free(half);
}

static void check_can_fail(struct test *t)
{
    qn_engine *g = make_engine(t, CPU_REF, 1, t->n_tokens, QN_KV_F16);
    enum dtype type = g->model->output->type;
    if (type == DT_F32) { /* where half a row is a row too */
        honest_gemm = g->forward.pass.kt.gemm[type];
        g->forward.pass.kt.gemm[type] = perturbed_gemm;
        run(t, g, false, t->got);
        bool same = !memcmp(t->got, t->expected, (size_t)t->n_tokens * (size_t)t->n_vocab * sizeof(float));
        if (same) printf("FAILED %s: another order of summation went unnoticed\n", t->path);
        *(same ? &t->n_failed : &t->n_passed) += 1;
    }
    qn_engine_free(g);
}

static void check_one(struct test *t, enum cpu_level cpu, int threads, int batch, enum qn_kv kv)
{
    char what[80];
    qn_engine *g = make_engine(t, cpu, threads, batch == RAGGED ? t->n_tokens : batch, kv);
    snprintf(what, sizeof what, "%s, %d threads, batches of %d, KV type %d", cpu_level_name(cpu), threads, batch,
             (int)kv);
    run(t, g, batch == RAGGED, t->got);
    check(t, what);
    qn_engine_free(g);
}

/* Whether the machine has the level and it is one of the list. */
static bool is_wanted(const struct test *t, enum cpu_level cpu)
{
    char list[80], name[20];
    snprintf(list, sizeof list, ",%s,", t->levels ? t->levels : "");
    snprintf(name, sizeof name, ",%s,", cpu_level_name(cpu));
    return cpu_has(cpu) && (!t->levels || strstr(list, name));
}

/* Every instruction set for one KV type; t->expected is the reference in one batch. */
static void check_kv(struct test *t, enum qn_kv kv)
{
    const int all = t->n_tokens;
    const struct {
        int threads, batch;
    } ways[] = {{3, RAGGED}, {7, 3}, {1, 1}, {2, 64}, {1, all}, {2, all}};
    qn_engine *g = make_engine(t, CPU_REF, 1, t->n_tokens, kv);
    const bool is_recurrent = kv_pool_shape(g->kv)->state_bytes > 0;
    run(t, g, false, t->expected);
    qn_engine_free(g);
    /* The reference is slow, and its batches do not depend on the KV type, so one type has them. Its loops over them
     * are the same for all types of weights of a shape. */
    int n_ref = kv != QN_KV_F16 ? 0 : t->all_sizes ? 3 : 1;
    for (int i = 0; i < n_ref; i++) check_one(t, CPU_REF, ways[i].threads, ways[i].batch, kv);
    for (enum cpu_level cpu = CPU_REF + 1; cpu < CPU_N; cpu++)
        for (size_t i = 0; is_wanted(t, cpu) && i < sizeof ways / sizeof ways[0]; i++)
            check_one(t, cpu, ways[i].threads, ways[i].batch, kv);
    /* Fewer rows than a convolution has taps: its state is made of old inputs and new ones. */
    for (enum cpu_level cpu = CPU_REF; is_recurrent && kv == QN_KV_F16 && cpu < CPU_N; cpu++)
        if (cpu == CPU_REF || is_wanted(t, cpu)) check_one(t, cpu, 2, 2, kv);
}

static void check_model(struct test *t)
{
    struct qn_error e;
    if (qn_model_open(&t->model, t->path, &e)) die(t, &e);
    t->n_vocab = qn_model_n_vocab(t->model);
    t->expected = mem_alloc((size_t)t->n_tokens * (size_t)t->n_vocab * sizeof(float));
    t->got = mem_alloc((size_t)t->n_tokens * (size_t)t->n_vocab * sizeof(float));
    for (int i = 0; i < t->n_tokens; i++) t->tokens[i] = (qn_token)(rng_u64(3, 1, (uint64_t)i) % (uint64_t)t->n_vocab);
    if (!t->is_f16) {
        check_kv(t, QN_KV_Q8_0);
        check_kv(t, QN_KV_F32);
    }
    check_kv(t, QN_KV_F16); /* last: what follows uses it */
    qn_engine *g = make_engine(t, cpu_best(), 2, t->n_tokens, QN_KV_F16);
    run_beside_stranger(t, g, STRANGER_ROWS);
    check(t, "beside a stranger, 13 rows each");
    run_beside_stranger(t, g, 1);
    check(t, "beside a stranger, 1 row each");
    check_fork(t, g);
    check_original(t, g);
    check_snapshot(t, g);
    qn_engine_free(g);
    check_can_fail(t);
    mem_free(t->expected);
    mem_free(t->got);
    qn_model_close(t->model);
}

int main(int argc, char **argv)
{
    int passed = 0, failed = 0;
    bool reference = false;
    struct test common = {.n_tokens = SOME_TOKENS};
    for (int i = 1; i < argc; i++) {
        char path[512];
        struct test t = common;
        if (!strcmp(argv[i], "--tokens") && i + 1 < argc) {
            common.n_tokens = atoi(argv[++i]);
            assert(common.n_tokens >= 2 * STRANGER_ROWS && common.n_tokens <= MAX_TOKENS);
        } else if (!strcmp(argv[i], "--levels") && i + 1 < argc) {
            common.levels = argv[++i];
        } else if (!strcmp(argv[i], "--all-sizes")) {
            common.all_sizes = true;
        } else if (!strcmp(argv[i], "--reference")) {
            reference = true;
        } else if (!strcmp(argv[i], "--f16")) {
            common.is_f16 = true;
        } else {
            if (reference) snprintf(path, sizeof path, "%s/models/%s.gguf", reference_dir(), argv[i]);
            t.path = reference ? path : argv[i];
            check_model(&t);
            passed += t.n_passed;
            failed += t.n_failed;
        }
    }
    printf("%d passed, %d failed\n", passed, failed);
    levels_print_skipped();
    levels_print_result(!failed);
    return failed || passed == 0;
}
