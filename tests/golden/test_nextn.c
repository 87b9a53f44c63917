/* SPDX-License-Identifier: MIT
 *
 * test_nextn.c: the block that predicts the token after the next one: its logits beside a plain float64 pass over the
 * same hidden rows (naive_nextn.c), and the same bits however its rows are computed.
 *
 *     test_nextn MODEL...          of float weights: both
 *     test_nextn --bits MODEL...   any weights: only the bits
 *     test_nextn --reference NAME... a model of the reference data: both
 *
 * The hidden rows are those of the engine's own forward pass, which other tests compare with other programs.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../levels.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "model/nextn.h"
#include "naive.h"
#include "reference.h"

enum {
    N = 100,     /* tokens: more than a page of the cache, and than a pass of the block */
    MOST = 64,   /* rows of a pass of the block */
    N_FEW = 200, /* tokens of a smaller vocabulary */
    N_SKEWED = 64
};

/* As in test_naive.c, but for one layer: f32 costs up to 9e-6 here, and the smallest of the mistakes 2.7e-3. */
static const double bound = 5e-5;

/* How rows are computed. */
struct way {
    enum cpu_level level;
    int threads, rows, n_vocab;
    bool with_others; /* rows of another sequence stand between them */
};

struct result {
    int n_embd, n_vocab;
    float *logits; /* [N][n_vocab] of the block */
    float *y;      /* [N][n_embd] of the block */
};

struct test {
    const char *path;
    qn_model *model;
    qn_token tokens[N];
    float *hidden; /* [N][n_embd] of the model */
};

static _Noreturn void die(const struct test *t, const struct qn_error *e)
{
    fprintf(stderr, "%s: %s\n", t->path, e->msg);
    exit(1);
}

static void result_free(struct result *r)
{
    mem_free(r->logits);
    mem_free(r->y);
}

static qn_engine *open_engine(const struct test *t, enum cpu_level level, int threads)
{
    struct qn_error e;
    struct qn_engine_params p;
    qn_engine *g;
    qn_engine_params_init(&p);
    p.n_ctx = N;
    p.n_batch = N;
    p.kv = QN_KV_F32;
    p.n_threads = threads;
    p.cpu = cpu_level_name(level);
    if (qn_engine_new(&g, t->model, &p, &e)) die(t, &e);
    return g;
}

/* The hidden rows of all tokens. */
static void run_model(struct test *t)
{
    struct qn_error e;
    struct kv_seq m;
    qn_engine *g = open_engine(t, cpu_best(), 1);
    const size_t n_embd = (size_t)g->model->hp.n_embd;
    float *logits = mem_calloc((size_t)g->model->hp.n_vocab, sizeof *logits);
    t->hidden = mem_calloc(N * n_embd, sizeof *t->hidden);
    if (kv_seq_init(&m, g->kv, N, &e) || engine_append(g, &m, t->tokens, N, logits, &e)) die(t, &e);
    for (int i = 0; i < N; i++) forward_hidden(&g->forward, i, t->hidden + (size_t)i * n_embd);
    kv_seq_deinit(&m);
    qn_engine_free(g);
    mem_free(logits);
}

/* Runs the batch, and takes the rows of sequence 0. */
static void run_batch(struct nextn *x, const struct batch *b, struct kv_seq *const *mem, const float *const *hidden,
                      struct result *r)
{
    const size_t n_embd = (size_t)r->n_embd, n_vocab = (size_t)x->n_vocab;
    float *logits = mem_calloc((size_t)b->n * n_vocab, sizeof *logits);
    nextn_run(x, b, mem, hidden, logits);
    for (int i = 0; i < b->n; i++) {
        if (b->seq[i]) continue;
        memcpy(r->logits + (size_t)b->pos[i] * n_vocab, logits + (size_t)i * n_vocab, n_vocab * sizeof *logits);
        memcpy(r->y + (size_t)b->pos[i] * n_embd, nextn_hidden(x, i), n_embd * sizeof *logits);
    }
    mem_free(logits);
}

/* Row i is token i with the hidden row of the token before it; of the first token it is not known. */
static void run_block(const struct test *t, qn_engine *g, const struct way *way, struct result *r)
{
    struct qn_error e;
    struct kv_pool *pool;
    struct kv_seq seqs[2], *mem[] = {&seqs[0], &seqs[1]};
    struct nextn x = {0};
    struct batch b;
    const float *hidden[MOST];
    struct kv_shape shape = nextn_kv_shape(g->model, KV_F32);
    if (kv_pool_new(&pool, &shape, 2 * (N + KV_PAGE_SLOTS), 0, 0, &g->ledger, &e)) die(t, &e);
    if (nextn_init(&x, &g->forward, MOST, way->n_vocab, &g->ledger, &e) || batch_init(&b, MOST, &e)) die(t, &e);
    for (int q = 0; q < 2; q++)
        if (kv_seq_init(&seqs[q], pool, N, &e) || kv_seq_reserve(&seqs[q], N, &e)) die(t, &e);
    for (int i = 0; i < N;) {
        batch_clear(&b);
        for (int k = 0; k < way->rows && i < N; k++, i++) {
            hidden[b.n] = i ? t->hidden + (size_t)(i - 1) * (size_t)r->n_embd : NULL;
            batch_add(&b, t->tokens[i], i, 0, true);
            if (!way->with_others) continue;
            hidden[b.n] = t->hidden;
            batch_add(&b, t->tokens[N - 1 - i], i, 1, true);
        }
        run_batch(&x, &b, mem, hidden, r);
        for (int q = 0; q < 2; q++) kv_seq_extend(&seqs[q], i);
    }
    for (int q = 0; q < 2; q++) kv_seq_deinit(&seqs[q]);
    batch_deinit(&b);
    nextn_deinit(&x);
    kv_pool_free(pool);
}

static struct result run(const struct test *t, const struct way *way)
{
    struct result r = {.n_embd = t->model->model->hp.n_embd, .n_vocab = t->model->model->hp.n_vocab};
    qn_engine *g = open_engine(t, way->level, way->threads);
    r.y = mem_calloc((size_t)N * (size_t)r.n_embd, sizeof(float));
    r.logits = mem_calloc((size_t)N * (size_t)way->n_vocab, sizeof(float));
    run_block(t, g, way, &r);
    qn_engine_free(g);
    return r;
}

/* ---- the same bits ---- */

static bool is_same(const struct test *t, const struct way *way, const struct result *want)
{
    struct result got = run(t, way);
    bool ok = !memcmp(got.y, want->y, (size_t)N * (size_t)got.n_embd * sizeof(float));
    for (int i = 0; i < N && ok; i++)
        ok = !memcmp(got.logits + (size_t)i * (size_t)way->n_vocab, want->logits + (size_t)i * (size_t)want->n_vocab,
                     (size_t)way->n_vocab * sizeof(float));
    if (!ok)
        printf("%s: other bits on %s with %d threads, %d rows, %d tokens%s\n", t->path, cpu_level_name(way->level),
               way->threads, way->rows, way->n_vocab, way->with_others ? ", beside others" : "");
    result_free(&got);
    return ok;
}

static bool check_bits(const struct test *t, const struct result *want)
{
    bool ok = true;
    for (int l = 0; l < CPU_N; l++) {
        if (!cpu_has((enum cpu_level)l)) continue;
        for (int i = 0; i < 4; i++) {
            static const int rows[] = {MOST, 1, 7, 20};
            struct way way = {(enum cpu_level)l, 1 + i % 4, rows[i], i % 2 ? N_FEW : want->n_vocab, i == 3};
            ok &= is_same(t, &way, want);
        }
    }
    return ok;
}

/* ---- beside the plain pass ---- */

static double worst_of(const float *ours, const double *theirs, size_t n)
{
    double worst = 0;
    for (size_t i = 0; i < n && !isnan(worst); i++) {
        double d = fabs((double)ours[i] - theirs[i]);
        if (!(d <= worst)) worst = d;
    }
    return worst;
}

static double difference(const struct test *t, const struct result *r, int n, struct naive_skew skew)
{
    int n_vocab = 0;
    size_t n_embd = (size_t)r->n_embd;
    const struct model *m = t->model->model;
    double *hidden = mem_calloc((size_t)n * n_embd, sizeof *hidden), *y; /* the first row's are zeros */
    for (size_t i = n_embd; i < (size_t)n * n_embd; i++) hidden[i] = (double)t->hidden[i - n_embd];
    double *logits = naive_nextn(m->weights, m->hp.n_layer, t->tokens, hidden, n, &skew, &n_vocab, &y);
    if (n_vocab != r->n_vocab) die(t, &(struct qn_error){0, "another vocabulary size"});
    double worst =
        fmax(worst_of(r->logits, logits, (size_t)n * (size_t)n_vocab), worst_of(r->y, y, (size_t)n * n_embd));
    mem_free(hidden);
    mem_free(logits);
    mem_free(y);
    return worst;
}

static bool check_numbers(const struct test *t, const struct result *r)
{
    double right = difference(t, r, N, (struct naive_skew){1, 1, false});
    double eps = difference(t, r, N_SKEWED, (struct naive_skew){1000, 1, false});
    double base = difference(t, r, N_SKEWED, (struct naive_skew){1, 1.05, false});
    printf("%s: max %.1e; eps x 1000: %.1e, rope base + 5%%: %.1e\n", t->path, right, eps, base);
    return right <= bound && eps > bound && base > bound;
}

static bool check(const char *path, bool only_bits)
{
    struct qn_error e;
    struct test t = {.path = path};
    if (qn_model_open(&t.model, path, &e)) die(&t, &e);
    if (!t.model->model->has_nextn) die(&t, &(struct qn_error){0, "no block that predicts the token after the next"});
    int n_vocab = t.model->model->hp.n_vocab;
    for (int i = 0; i < N; i++) t.tokens[i] = (qn_token)(rng_u64(9, 1, (uint64_t)i) % (uint64_t)n_vocab);
    run_model(&t);
    struct result want = run(&t, &(struct way){CPU_REF, 1, MOST, n_vocab, false});
    bool ok = check_bits(&t, &want);
    if (!only_bits) ok &= check_numbers(&t, &want);
    printf("%s: %s\n", path, ok ? "ok" : "FAILED");
    result_free(&want);
    mem_free(t.hidden);
    qn_model_close(t.model);
    return ok;
}

int main(int argc, char **argv)
{
    bool is_reference = argc > 1 && !strcmp(argv[1], "--reference"), only_bits = argc > 1 && !strcmp(argv[1], "--bits");
    int n_failed = 0, first = 1 + (is_reference || only_bits);
    for (int i = first; i < argc; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/models/%s.gguf", is_reference ? reference_dir() : "", argv[i]);
        n_failed += !check(is_reference ? path : argv[i], only_bits);
    }
    levels_print_skipped();
    levels_print_result(!n_failed);
    return n_failed || first == argc;
}
