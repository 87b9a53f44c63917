/* SPDX-License-Identifier: MIT
 *
 * test_naive.c: the engine's logits beside a plain float64 pass over the same file (naive.h).
 *
 *     test_naive MODEL...
 *     test_naive --reference NAME...     models of the reference data
 *     test_naive --itself NAME...        the plain pass beside the reference data's logits: is it right?
 *     test_naive --rounded NAME...       the same of models whose YaRN range the reference rounds, wrongly
 *
 * For float weights the two compute the same thing but for the engine's f32, so every logit of the prompt must be
 * within a bound that only rounding can explain. The comparison is shown to be able to fail: the same bound is
 * exceeded by a pass with a slightly wrong hyper-parameter. Nothing of this needs expected values, so it covers what
 * has none: biases, linear RoPE scaling, whole families.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "naive.h"
#include "reference.h"

enum {
    N_TOKENS = 300, /* more than one chunk of attention, several times YaRN's original context */
    N_SKEWED = 64,  /* of these for a pass that is wrong on purpose */
};

/* f32 rounds by 2^-24 = 6e-8 of a value. Sums of some hundred terms, three layers, and angles of up to 300 rad, which
 * f32 holds to 2e-5, bring the logits, of deviation 3, to 1e-5..4e-5: five times that is allowed. The smallest of the
 * mistakes below costs 2.6e-3. */
static const double bound = 2e-4;

struct test {
    const char *path;
    struct weights *weights;
    qn_token tokens[N_TOKENS];
    int n_vocab;
    float *ours; /* [N_TOKENS][n_vocab] */
};

static _Noreturn void die(const struct test *t, const struct qn_error *e)
{
    fprintf(stderr, "%s: %s\n", t->path, e->msg);
    exit(1);
}

struct into {
    float *p;
    size_t n;
}; /* n: floats in a row */

static int keep(void *arg, const float *row, struct qn_error *e)
{
    (void)e;
    struct into *to = arg;
    memcpy(to->p, row, to->n * sizeof *row);
    to->p += to->n;
    return 0;
}

/* The engine's logits of every position. KV is f32: rounding keys and values to f16 would cost 1e-2. */
static void run_engine(struct test *t)
{
    struct qn_error e;
    struct qn_engine_params p;
    qn_model *m;
    qn_engine *g;
    struct kv_seq mem;
    qn_engine_params_init(&p);
    p.n_ctx = N_TOKENS;
    p.kv = QN_KV_F32;
    if (qn_model_open(&m, t->path, &e) || qn_engine_new(&g, m, &p, &e)) die(t, &e);
    if (kv_seq_init(&mem, g->kv, g->n_ctx, &e)) die(t, &e);
    t->n_vocab = qn_model_n_vocab(m);
    for (int i = 0; i < N_TOKENS; i++) t->tokens[i] = (qn_token)(rng_u64(5, 1, (uint64_t)i) % (uint64_t)t->n_vocab);
    t->ours = mem_calloc((size_t)N_TOKENS * (size_t)t->n_vocab, sizeof(float));
    float *scratch = mem_calloc((size_t)g->n_batch * (size_t)t->n_vocab, sizeof(float));
    struct into to = {t->ours, (size_t)t->n_vocab};
    if (engine_append_all(g, &mem, t->tokens, N_TOKENS, 1, scratch, keep, &to, &e)) die(t, &e);
    mem_free(scratch);
    kv_seq_deinit(&mem);
    qn_engine_free(g);
    qn_model_close(m);
}

/* The largest |difference| over the first n positions; NaN when any logit is. */
static double largest_difference(const struct test *t, int n, struct naive_skew skew)
{
    int n_vocab;
    double worst = 0, *theirs = naive_logits(t->weights, t->tokens, n, N_TOKENS, &skew, &n_vocab);
    if (n_vocab != t->n_vocab) die(t, &(struct qn_error){0, "another vocabulary size"});
    for (int i = 0; i < n * n_vocab && !isnan(worst); i++) {
        double d = fabs(theirs[i] - (double)t->ours[i]);
        if (!(d <= worst)) worst = d;
    }
    mem_free(theirs);
    return worst;
}

static bool check(const char *path)
{
    struct qn_error e;
    struct test t = {.path = path};
    run_engine(&t);
    if (weights_open(&t.weights, path, &e)) die(&t, &e);
    double right = largest_difference(&t, N_TOKENS, (struct naive_skew){1, 1, false});
    double eps = largest_difference(&t, N_SKEWED, (struct naive_skew){10, 1, false});
    double base = largest_difference(&t, N_SKEWED, (struct naive_skew){1, 1.01, false});
    bool ok = right <= bound && eps > bound && base > bound;
    const char *slash = strrchr(path, '/');
    printf("%-22s max %.1e; eps x 10: %.1e, rope base + 1%%: %.1e", slash ? slash + 1 : path, right, eps, base);
    if (naive_has_exact_range(t.weights)) { /* then rounding it must show */
        double rounded = largest_difference(&t, N_SKEWED, (struct naive_skew){1, 1, true});
        ok = ok && rounded > bound;
        printf(", range rounded: %.1e", rounded);
    }
    printf(": %s\n", ok ? "ok" : "FAILED");
    mem_free(t.ours);
    weights_close(t.weights);
    return ok;
}

/* The largest |difference| of the plain pass from the reference's logits. */
static double difference_of_plain(const struct test *t, const struct reference *r, struct naive_skew skew)
{
    int n_vocab;
    double worst = 0, *ours = naive_logits(t->weights, r->tokens, r->n_tokens, r->n_ctx, &skew, &n_vocab);
    if (n_vocab != r->n_vocab) die(t, &(struct qn_error){0, "another vocabulary size"});
    for (int i = 0; i < r->n_positions; i++)
        for (int j = 0; j < n_vocab; j++) {
            double d = fabs(ours[r->positions[i] * n_vocab + j] - (double)r->logits[i * n_vocab + j]);
            if (!(d <= worst)) worst = d;
        }
    mem_free(ours);
    return worst;
}

/* The reference's own spread is up to 3e-4; its GELU comes from a table of f16 values, which costs up to 0.0142. */
static bool check_itself(const char *name, bool rounded)
{
    struct reference r = {0};
    struct qn_error e;
    double allowed = strncmp(name, "gemma", 5) ? 5e-4 : 0.03;
    reference_load(&r, reference_dir(), "logits", name);
    struct test t = {.path = r.model};
    if (weights_open(&t.weights, r.model, &e)) die(&t, &e);
    double exact = difference_of_plain(&t, &r, (struct naive_skew){1, 1, false}), as_there = exact;
    if (rounded) as_there = difference_of_plain(&t, &r, (struct naive_skew){1, 1, true});
    bool ok = as_there <= allowed && (!rounded || exact > allowed);
    printf("%-22s the plain pass: max %.1e", name, as_there);
    if (rounded) printf(" with the range rounded, %.1e as it is", exact);
    printf(": %s\n", ok ? "ok" : "FAILED");
    weights_close(t.weights);
    reference_free(&r);
    return ok;
}

int main(int argc, char **argv)
{
    int passed = 0, failed = 0;
    const char *mode = argc > 1 && !strncmp(argv[1], "--", 2) ? argv[1] : "";
    bool reference = !strcmp(mode, "--reference"), rounded = !strcmp(mode, "--rounded");
    for (int i = 1 + (*mode != 0); i < argc; i++) {
        char path[512];
        if (reference) snprintf(path, sizeof path, "%s/models/%s.gguf", reference_dir(), argv[i]);
        bool is_engine = reference || !*mode;
        bool ok = is_engine ? check(reference ? path : argv[i]) : check_itself(argv[i], rounded);
        passed += ok;
        failed += !ok;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || passed == 0;
}
