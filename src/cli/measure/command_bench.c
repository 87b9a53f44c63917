/* SPDX-License-Identifier: MIT
 *
 * command_bench.c: `quern bench`: tokens per second, and how much of the machine's ceiling that is.
 *
 * There are three kinds of test, each at every depth of --depth ("@4096": after 4,096 earlier tokens):
 *
 *       pp512   prefill: a prompt of 512 tokens in batches of --batch, with the logits of its last token
 *       tg      decode: -n single tokens, one after the other, each with logits
 *       b8      one pass of 8 rows, all with logits, as for drafts and for streams; it alternates with a
 *               pass of one row and is also given as a multiple of it
 *
 * Each test is repeated, and its median and spread are given. The ceilings are measured before and after the tests,
 * because the speed of shared machines changes, and a rate says little without its ceiling. Weights that stay in the
 * processor's caches are read faster than memory allows, so their fraction is above 100%. Sampling and text are not
 * measured.
 * --ceilings measures the machine alone, --replay the use of drafts (replay.h), and --hosts a model on several hosts
 * (bench_hosts.h).
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/os.h"
#include "base/rng.h"
#include "cli/measure/account.h"
#include "cli/measure/bench_hosts.h"
#include "cli/measure/ceilings_kept.h"
#include "cli/measure/explain.h"
#include "cli/measure/replay.h"
#include "cli/measure/row_costs.h"
#include "cli/measure/window_bench.h"
#include "cli/core/cli.h"
#include "cli/core/commands.h"
#include "cli/core/progress.h"
#include "cli/place/operand.h"

#define MAX_LIST 32

enum test_kind { PREFILL, DECODE, BATCH };
static const char *const kinds[] = {"prefill", "decode", "batch"};

static const char *const kv_names[] = {[QN_KV_F16] = "f16", [QN_KV_F32] = "f32", [QN_KV_Q8_0] = "q8_0"};

struct bench_test {
    enum test_kind kind;
    int rows, depth; /* rows of the prompt or the batch; for decode the number of tokens, one at a time */
    char name[32];
    int n_runs;
    double *s, *one_s; /* [n_runs] seconds, ascending; one_s: of a pass of one row (BATCH) */
    /* The cost of all passes of a prompt together, or of a single token of decode. */
    uint64_t bytes, macs_int8, macs_f32;
    double floor_s;
    uint64_t n_experts; /* experts read in the last repetition, over all operations */
};

struct bench {
    const char *path, *prompts, *depths, *batches;
    char name[512]; /* the path, printable */
    int n_predict, reps, seconds;
    bool json, ceilings;
    const char *right;
    struct replay_params replay; /* path NULL: not asked for */
    const char *streams;
    struct draft_options draft;
    struct qn_engine_params p;
    struct qn_model_params file;
    struct cli_strings folders;
    struct stage_hosts hosts;

    struct bench_test *tests; /* by depth, then in the order of the kinds */
    int n_tests;
    qn_model *model;
    qn_engine *engine;
    struct ceilings c;
    struct kv_seq mem;
    uint8_t *state;      /* a copy of mem's recurrent state at the depth that was filled; NULL: the model has none */
    qn_token *tokens;    /* [the most rows] */
    float *logits;       /* [the most rows of a BATCH, at least 1][n_vocab] */
    size_t logits_bytes; /* what the ledger counts for them */
};

/* ---- which tests ---- */

/* Parses "19,103,512" into v. A 0 stands for "none" and is left out unless `zero` is set. */
static int parse_list(const char *option, const char *text, long hi, bool zero, int *v, int *n)
{
    *n = 0;
    for (const char *p = text;; p++) {
        char *end;
        long x = strtol(p, &end, 10);
        if (end == p || (*end && *end != ',') || x < 0 || x > hi || *p < '0' || *p > '9')
            return cli_usage("%s: '%s' is not a list of whole numbers in 0..%ld such as 19,103", option, text, hi);
        if (*n == MAX_LIST) return cli_usage("%s: more than %d numbers", option, MAX_LIST);
        if (x || zero) v[(*n)++] = (int)x;
        p = end;
        if (!*p) return 0;
    }
}

static void add_test(struct bench *b, enum test_kind kind, int rows, int depth)
{
    static const char *const prefixes[] = {"pp", "tg", "b"};
    struct bench_test *t = &b->tests[b->n_tests++];
    char count[16] = "", at[16] = "";
    if (kind != DECODE) snprintf(count, sizeof count, "%d", rows);
    if (depth) snprintf(at, sizeof at, "@%d", depth);
    *t = (struct bench_test){.kind = kind, .rows = rows, .depth = depth};
    snprintf(t->name, sizeof t->name, "%s%s%s", prefixes[kind], count, at);
}

static int list_tests(struct bench *b)
{
    int prompts[MAX_LIST], depths[MAX_LIST], batches[MAX_LIST], n_prompts, n_depths, n_batches, rc, widest = 0;
    if ((rc = parse_list("--prompt", b->prompts, 1 << 20, false, prompts, &n_prompts))) return rc;
    if ((rc = parse_list("--depth", b->depths, 1 << 24, true, depths, &n_depths))) return rc;
    if ((rc = parse_list("--rows", b->batches, 65536, false, batches, &n_batches))) return rc;
    b->tests = cli_alloc((size_t)n_depths * (size_t)(n_prompts + 1 + n_batches), sizeof *b->tests);
    for (int d = 0; d < n_depths; d++) {
        for (int i = 0; i < n_prompts; i++) add_test(b, PREFILL, prompts[i], depths[d]);
        if (b->n_predict) add_test(b, DECODE, b->n_predict, depths[d]);
        for (int i = 0; i < n_batches; i++) add_test(b, BATCH, batches[i], depths[d]);
    }
    if (b->n_tests == 0) return cli_usage("bench: nothing to measure (-p 0 -n 0)");
    for (int i = 0; i < n_batches; i++)
        if (batches[i] > widest) widest = batches[i];
    if (b->p.n_batch && widest > b->p.n_batch)
        return cli_usage("--rows: %d rows are more than a forward pass has (--batch %d)", widest, b->p.n_batch);
    if (widest > 512 && !b->p.n_batch) b->p.n_batch = widest;
    for (int i = 0; i < b->n_tests; i++) {
        b->tests[i].s = cli_alloc((size_t)b->reps, sizeof(double));
        b->tests[i].one_s = cli_alloc((size_t)b->reps, sizeof(double));
    }
    return 0;
}

/* ---- measuring ---- */

static double seconds_since(uint64_t t) { return (double)(clock_ns() - t) * 1e-9; }

static int ignore(void *arg, const float *logits, struct qn_error *e)
{
    (void)arg, (void)logits, (void)e;
    return 0;
}

/* Goes back to the depth that was filled. */
static void rewind_to(struct bench *b, int depth)
{
    if (b->state && depth)
        kv_seq_restore(&b->mem, depth, b->state);
    else
        kv_seq_truncate(&b->mem, depth);
}

static int run_once(struct bench *b, struct bench_test *t, double *s, double *one_s, struct qn_error *e)
{
    int rc = 0;
    const struct pass *pass = &b->engine->forward.pass;
    rewind_to(b, t->depth);
    if (t->kind == BATCH) {
        uint64_t start = clock_ns();
        if ((rc = engine_append(b->engine, &b->mem, b->tokens, 1, b->logits, e))) return rc;
        *one_s = seconds_since(start);
        rewind_to(b, t->depth);
    }
    uint64_t start = clock_ns(), n_experts = pass->n_experts_read;
    if (t->kind == PREFILL)
        rc = engine_append(b->engine, &b->mem, b->tokens, (size_t)t->rows, b->logits, e);
    else if (t->kind == BATCH)
        rc = engine_append_all(b->engine, &b->mem, b->tokens, (size_t)t->rows, 1, b->logits, ignore, NULL, e);
    for (int i = 0; t->kind == DECODE && i < t->rows && !rc; i++)
        rc = engine_append(b->engine, &b->mem, b->tokens + i, 1, b->logits, e);
    *s = seconds_since(start);
    t->n_experts = pass->n_experts_read - n_experts;
    return rc;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int measure(struct bench *b, struct bench_test *t, struct qn_error *e)
{
    uint64_t start = clock_ns();
    int rc;
    do {
        progress_note("test %d of %d: %s, run %d of %d", (int)(t - b->tests) + 1, b->n_tests, t->name, t->n_runs + 1,
                      b->reps);
        if ((rc = run_once(b, t, &t->s[t->n_runs], &t->one_s[t->n_runs], e))) return rc;
        t->n_runs++;
    } while (t->n_runs < b->reps && seconds_since(start) < b->seconds);
    qsort(t->s, (size_t)t->n_runs, sizeof *t->s, by_value);
    qsort(t->one_s, (size_t)t->n_runs, sizeof *t->one_s, by_value);
    return 0;
}

/* Adds up the passes of a test, each with its own floor. experts: a factor on the number of experts that the costing
 * table expects; *n_experts: the resulting number. */
static int sum_costs(struct bench *b, struct bench_test *t, double experts, uint64_t *n_experts, struct qn_error *e)
{
    enum kv_type kv = kv_pool_shape(b->engine->kv)->type;
    /* The middle token of decode stands for all, because the cost of a token grows evenly with depth. */
    int rows = t->kind == DECODE ? 1 : t->rows, depth = t->depth + (t->kind == DECODE ? t->rows / 2 : 0);
    t->bytes = t->macs_int8 = t->macs_f32 = *n_experts = 0;
    t->floor_s = 0;
    for (int done = 0; done < rows;) {
        struct account a = {0};
        int n = rows - done < b->engine->n_batch ? rows - done : b->engine->n_batch;
        int n_logits = t->kind == BATCH ? n : done + n == rows;
        int rc = account_cost(&a, b->engine->model, kv, n, depth + done, n_logits, e);
        if (rc) return rc;
        account_scale_experts(&a, experts);
        *n_experts += a.n_experts;
        t->bytes += a.bytes;
        t->macs_int8 += a.macs_int8;
        t->macs_f32 += a.macs_f32;
        t->floor_s += ceilings_floor(&b->c, a.bytes, a.macs_int8, a.macs_f32);
        account_deinit(&a);
        done += n;
    }
    return 0;
}

/* After the run it is known which experts the rows of a batch share. The experts of a single row are all different. */
static int add_costs(struct bench *b, struct bench_test *t, struct qn_error *e)
{
    uint64_t expected;
    int rc = sum_costs(b, t, 1, &expected, e);
    if (rc || t->kind == DECODE || !expected) return rc;
    return sum_costs(b, t, (double)t->n_experts / (double)expected, &expected, e);
}

/* Makes the buffers for the tests. The budget pays for the logits. */
static int take_buffers(struct bench *b, struct qn_error *e)
{
    const struct model *m = b->engine->model;
    int most = 1, widest = 1, rc;
    for (int i = 0; i < b->n_tests; i++) {
        const struct bench_test *t = &b->tests[i];
        if (t->rows > most) most = t->rows;
        if (t->kind == BATCH && t->rows > widest) widest = t->rows;
    }
    size_t bytes = (size_t)widest * (size_t)m->hp.n_vocab * sizeof *b->logits;
    if ((rc = ledger_take(&b->engine->ledger, bytes, "the logits of a batch", e))) return rc;
    b->logits_bytes = bytes;
    b->logits = mem_alloc(bytes);
    b->tokens = mem_calloc((size_t)most, sizeof *b->tokens);
    if (!b->logits || !b->tokens) return error_nomem(e, "measurements", bytes);
    memset(b->logits, 0, bytes); /* resident before the clock starts */
    for (int i = 0; i < most; i++) b->tokens[i] = (qn_token)(rng_u64(2, 0, (uint64_t)i) % (uint64_t)m->hp.n_vocab);
    b->state = kv_state_get(b->engine->kv); /* the engine has more states than those of its sequences */
    return kv_seq_init(&b->mem, b->engine->kv, b->engine->n_ctx, e);
}

static int probe(struct bench *b, struct qn_error *e)
{
    enum cpu_level level = (enum cpu_level)cpu_level_parse(b->engine->forward.pass.kt.name);
    progress_note("measuring this machine");
    return ceilings_measure(&b->c, b->engine->pool, level, b->engine->model->weights, e);
}

static int bench_all(struct bench *b, struct qn_error *e)
{
    int rc, filled = -1;
    for (int i = 0; i < b->n_tests; i++)
        if (b->p.n_ctx <= b->tests[i].depth + b->tests[i].rows) b->p.n_ctx = b->tests[i].depth + b->tests[i].rows + 1;
    if ((rc = qn_model_open_with(&b->model, b->path, &b->file, e))) return rc;
    if ((rc = qn_engine_new(&b->engine, b->model, &b->p, e))) return rc;
    if ((rc = take_buffers(b, e))) return rc;
    for (int i = 0; i < b->n_tests; i++) {
        struct bench_test *t = &b->tests[i];
        if (t->depth != filled) {
            kv_seq_truncate(&b->mem, 0);
            filled = t->depth;
            if ((rc = account_fill(&b->mem, filled, e))) return rc;
            kv_seq_pin(&b->mem, 1); /* for rewind_to() */
            if (b->state) memcpy(b->state, b->mem.state, kv_pool_shape(b->engine->kv)->state_bytes);
            /* a first run without the clock brings the file's pages into memory */
            if ((rc = engine_append(b->engine, &b->mem, b->tokens, 1, b->logits, e))) return rc;
        }
        if (i == 0 && (rc = probe(b, e))) return rc;
        if ((rc = measure(b, t, e))) return rc;
    }
    if ((rc = probe(b, e))) return rc;
    ceilings_improve(&b->c, pool_n_threads(b->engine->pool),
                     (enum cpu_level)cpu_level_parse(b->engine->forward.pass.kt.name));
    for (int i = 0; i < b->n_tests; i++)
        if ((rc = add_costs(b, &b->tests[i], e))) return rc;
    return 0;
}

static void free_all(struct bench *b)
{
    for (int i = 0; i < b->n_tests; i++) {
        cli_free(b->tests[i].s);
        cli_free(b->tests[i].one_s);
    }
    cli_free(b->tests);
    mem_free(b->tokens);
    mem_free(b->logits);
    kv_seq_deinit(&b->mem);
    if (b->state) kv_state_put(b->engine->kv, b->state);
    if (b->engine) ledger_give(&b->engine->ledger, b->logits_bytes);
    qn_engine_free(b->engine);
    qn_model_close(b->model);
}

/* ---- output ---- */

static double rate(const struct bench_test *t, int i) { return t->rows / t->s[i]; }
static double median(const double *v, int n) { return (v[n / 2] + v[(n - 1) / 2]) / 2; }
static double middle(const struct bench_test *t) { return t->rows / median(t->s, t->n_runs); }
/* Tokens per second if only reading and multiplying took time. */
static double ceiling_of(const struct bench_test *t) { return (t->kind == DECODE ? 1 : t->rows) / t->floor_s; }
static double times_one_row(const struct bench_test *t)
{
    return median(t->s, t->n_runs) / median(t->one_s, t->n_runs);
}

static void print_rows(const struct bench_test *t)
{
    printf("    %.2f times one row", times_one_row(t));
    if (t->rows > 1) row_print_break_even(t->rows, times_one_row(t));
    putchar('\n');
}

/* Writes a rate with as many digits as are useful. */
static const char *rate_text(double v, char dst[24])
{
    explain_rate(v, dst);
    return dst;
}

static void print_test(const struct bench_test *t)
{
    char name[64], after[32] = "", rates[4][24];
    if (t->depth) snprintf(after, sizeof after, " after %d", t->depth);
    snprintf(name, sizeof name, t->kind == BATCH ? "%s of %d rows%s" : "%s of %d%s", kinds[t->kind], t->rows, after);
    printf("%-26s %9s %9s %9s %4d %9s %6.0f%%\n", name, rate_text(middle(t), rates[0]),
           rate_text(rate(t, t->n_runs - 1), rates[1]), rate_text(rate(t, 0), rates[2]), t->n_runs,
           rate_text(ceiling_of(t), rates[3]), 100 * middle(t) / ceiling_of(t));
    if (t->kind == BATCH) print_rows(t);
}

static void print_table(const struct bench *b)
{
    char bytes[24];
    explain_amount((double)weights_tensor_bytes(b->engine->model->weights), "B", bytes);
    printf("model      %s (%s), %s of weights\n", b->name, b->engine->model->hp.arch, bytes);
    printf("machine    %d threads, %s\n", pool_n_threads(b->engine->pool), b->engine->forward.pass.kt.name);
    ceilings_print(&b->c);
    printf("\n%-26s %9s %9s %9s %4s %9s %7s\n", "test", "tokens/s", "slowest", "fastest", "runs", "at most", "reached");
    for (int i = 0; i < b->n_tests; i++) print_test(&b->tests[i]);
}

static json_t *json_test(const struct bench_test *t)
{
    json_t *list = json_array();
    for (int i = t->n_runs - 1; i >= 0; i--) json_array_append_new(list, json_real(rate(t, i)));
    json_t *j = json_pack("{s:s,s:i,s:i,s:o,s:f,s:f,s:f,s:I,s:I,s:I}", "kind", kinds[t->kind], "tokens", t->rows,
                          "depth", t->depth, "tok_s", list, "median", middle(t), "ceiling", ceiling_of(t), "fraction",
                          middle(t) / ceiling_of(t), "bytes", (json_int_t)t->bytes, "macs_int8",
                          (json_int_t)t->macs_int8, "macs_f32", (json_int_t)t->macs_f32);
    if (t->n_experts) json_object_set_new(j, "experts", json_integer((json_int_t)t->n_experts));
    if (t->kind == BATCH) json_object_set_new(j, "times_one_row", json_real(times_one_row(t)));
    if (t->kind == BATCH && t->rows > 1)
        json_object_set_new(j, "break_even", json_real(row_break_even(t->rows, times_one_row(t))));
    return j;
}

static void print_json(const struct bench *b)
{
    json_t *tests = json_object();
    for (int i = 0; i < b->n_tests; i++) json_object_set_new(tests, b->tests[i].name, json_test(&b->tests[i]));
    json_t *j = json_pack(
        "{s:s,s:s,s:I,s:i,s:s,s:s,s:i,s:s,s:o,s:o}", "model", b->name, "arch", b->engine->model->hp.arch,
        "weight_bytes", (json_int_t)weights_tensor_bytes(b->engine->model->weights), "threads",
        pool_n_threads(b->engine->pool), "cpu", b->engine->forward.pass.kt.name, "kv", kv_names[b->p.kv], "batch",
        b->engine->n_batch, "version", qn_version(), "ceilings", ceilings_json(&b->c), "tests", tests);
    cli_print_json(j, JSON_COMPACT | JSON_REAL_PRECISION(9));
}

/* Measures the machine alone: how fast it reads, and what each of its instruction sets computes. */
static int show_ceilings(const struct bench *b, struct qn_error *e)
{
    struct pool *pool = NULL;
    qn_model *model = NULL;
    json_t *levels = json_object();
    struct ceilings c;
    int rc, n = b->p.n_threads ? b->p.n_threads : os_n_cpus();
    if (b->path && (rc = qn_model_open_with(&model, b->path, &b->file, e))) goto done;
    if ((rc = pool_new(&pool, n, n > 1, e))) goto done;
    for (int l = 0; l < CPU_N; l++) {
        if (!cpu_has((enum cpu_level)l)) continue;
        c = (struct ceilings){0};
        ceilings_compute(&c, pool, (enum cpu_level)l);
        json_object_set_new(levels, cpu_level_name((enum cpu_level)l),
                            json_pack("{s:f,s:f}", "int8_gmacs", c.int8_gmacs, "f32_gmacs", c.f32_gmacs));
        if (!b->json)
            printf("%-10s %9.1f (%.1f) GMAC/s int8 %9.1f (%.1f) GFMA/s f32\n", cpu_level_name((enum cpu_level)l),
                   c.int8_gmacs, c.low.int8_gmacs, c.f32_gmacs, c.low.f32_gmacs);
    }
    if ((rc = ceilings_read(&c, pool, cpu_best(), model ? model->model->weights : NULL, e))) goto done;
    if (b->json) {
        json_t *j = json_pack("{s:i,s:f,s:O}", "threads", n, "read_gbs", c.read_gbs, "levels", levels);
        if (c.mapped_bytes) json_object_set_new(j, "mapped_gbs", json_real(c.mapped_gbs));
        cli_print_json(j, JSON_COMPACT | JSON_REAL_PRECISION(9));
    } else {
        printf("%-10s %9.1f (%.1f) GB/s, anonymous memory\n", "read", c.read_gbs, c.low.read_gbs);
        if (c.mapped_bytes)
            printf("%-10s %9.1f (%.1f) GB/s, the mapped file\n", "read", c.mapped_gbs, c.low.mapped_gbs);
        printf("In parentheses: the slowest of several passes. Other programs slow them down.\n");
    }
done:
    json_decref(levels);
    pool_free(pool);
    qn_model_close(model);
    return rc;
}

/* ---- replays ---- */

static json_t *json_replay(const struct replay_result *r)
{
    json_t *plain = json_array(), *drafted = json_array();
    for (int i = 0; i < r->n_rounds; i++) {
        json_array_append_new(plain, json_real(r->plain[i]));
        json_array_append_new(drafted, json_real(r->drafted[i]));
    }
    return json_pack("{s:i, s:f, s:f, s:f, s:f, s:o, s:o, s:I, s:I, s:I, s:I}", "streams", r->n_streams, "ratio",
                     r->median, "account", r->account, "low", r->low, "high", r->high, "plain_tok_s", plain,
                     "draft_tok_s", drafted, "tokens", (json_int_t)r->n_tokens, "passes", (json_int_t)r->n_passes,
                     "drafted", (json_int_t)r->n_drafted, "accepted", (json_int_t)r->n_accepted);
}

static void print_replay(const struct bench *b, const struct replay_result *results, int n)
{
    if (b->json) {
        json_t *all = json_array();
        for (int i = 0; i < n; i++) json_array_append_new(all, json_replay(&results[i]));
        cli_print_json(
            json_pack("{s:s, s:s, s:o}", "model", b->name, "draft", qn_draft_name(b->replay.draft), "replay", all),
            JSON_INDENT(2));
        return;
    }
    printf("model      %s, drafts: %s\n", b->name, qn_draft_name(b->replay.draft));
    for (int i = 0; i < n; i++) {
        const struct replay_result *r = &results[i];
        printf("streams    %d: %.3f of the speed without drafts (%.3f .. %.3f; rounds: %d)\n"
               "           by the times of all steps: %.4f\n"
               "           tokens: %ld, passes: %ld, guesses: %ld right of %ld\n",
               r->n_streams, r->median, r->low, r->high, r->n_rounds, r->account, r->n_tokens, r->n_passes,
               r->n_accepted, r->n_drafted);
    }
}

/* "0.8,0.6": the last number holds for all further guesses. */
static int parse_right(const char *list, struct drafts_right *r)
{
    char *end;
    double p = 0;
    for (const char *at = list; at && r->n < DRAFT_MOST; r->n++) {
        p = strtod(at, &end);
        if (end == at || !(p >= 0 && p <= 1) || (*end && *end != ','))
            return cli_usage("--right: not a list of numbers 0..1: '%s'", list);
        r->p[r->n] = (float)p;
        at = *end ? end + 1 : NULL;
    }
    for (; list && r->n < DRAFT_MOST; r->n++) r->p[r->n] = (float)p;
    return 0;
}

static int run_replay(struct bench *b)
{
    struct replay_result results[MAX_LIST] = {0};
    struct qn_error e = {0};
    qn_model *drafter = NULL;
    char *draft = NULL;
    int rc = parse_list("--streams", b->streams, 64, false, b->replay.streams, &b->replay.n_streams);
    if (rc) return rc;
    if (!b->replay.n_streams) return cli_usage("--streams: no streams");
    if (b->replay.counts_cpu && b->p.n_threads != 1)
        return cli_usage("--cpu-time needs --threads 1, because threads wait for each other");
    if ((rc = parse_right(b->right, &b->replay.right))) return rc;
    if (qn_model_open_with(&b->model, b->path, &b->file, &e)) return cli_fail(&e);
    if (operand_draft(&draft, &b->replay.draft, &b->draft, &b->folders, &e) ||
        (draft && qn_model_open(&drafter, draft, &e)))
        rc = cli_fail(&e);
    b->replay.draft_model = drafter;
    b->replay.wedlm = b->draft.wedlm;
    error_clean(b->name, sizeof b->name, b->path);
    if (!rc && b->draft.decoder == DECODER_WEDLM)
        rc = window_bench(&b->replay, b->model, &b->p, b->name, b->json);
    else if (!rc && !(rc = replay_run(&b->replay, b->model, &b->p, results)))
        print_replay(b, results, b->replay.n_streams);
    replay_deinit(results, b->replay.n_streams);
    qn_model_close(drafter);
    mem_free(draft);
    return rc;
}

/* ---- several hosts ---- */

static int run_hosts(struct bench *b)
{
    int prompts[MAX_LIST], streams[MAX_LIST], n_prompts, n_streams;
    struct qn_error e = {0};
    int rc = parse_list("--prompt", b->prompts, 1 << 20, false, prompts, &n_prompts);
    if (!rc) rc = parse_list("--streams", b->streams, 64, false, streams, &n_streams);
    if (rc) return rc;
    if (!n_prompts && (!n_streams || !b->n_predict)) return cli_usage("bench: nothing to measure (-p 0 -n 0)");
    b->hosts.only_these = true; /* the hosts are measured even where this one alone is faster */
    error_clean(b->name, sizeof b->name, b->path);
    const struct bench_hosts h = {.hosts = &b->hosts,
                                  .path = b->path,
                                  .name = b->name,
                                  .engine = &b->p,
                                  .file = &b->file,
                                  .prompts = prompts,
                                  .n_prompts = n_prompts,
                                  .streams = streams,
                                  .n_streams = n_streams,
                                  .n_predict = b->n_predict,
                                  .reps = b->reps,
                                  .seconds = b->seconds,
                                  .json = b->json};
    return bench_hosts(&h, &e) ? cli_fail(&e) : 0;
}

static void init(void *options)
{
    struct bench *b = options;
    b->prompts = "512";
    b->depths = b->batches = "0";
    b->n_predict = 32;
    b->reps = 3;
    b->seconds = 30;
    b->streams = "1";
    b->replay.n_rounds = 16;
    draft_options_init(&b->draft);
    b->draft.how = QN_DRAFT_AUTO;
    qn_engine_params_init(&b->p);
    qn_model_params_init(&b->file);
}

/* Refuses the options of a list that the command line names. */
static int exclude(const struct invocation *v, const char *const *names, const char *why)
{
    for (; *names; names++)
        if (options_origin(v, *names) == ORIGIN_FLAG) return cli_usage("bench: --%s %s", *names, why);
    return 0;
}

/* Refuses options of the command line that what is measured does not look at. */
static int check_mode(const struct invocation *v, const struct bench *b)
{
    static const char *const
        plain[] = {"prompt", "predict", "rows", "depth", "reps", NULL},
        *const replay[] =
            {"draft",        "decoder", "draft-model",       "repeat",      "rounds", "guesses", "right", "cpu-time",
             "wedlm-verify", "window",  "entropy-threshold", "pos-penalty", NULL},
        *const streams[] = {"streams", NULL}, *const other[] = {"rows",   "depth",      "ceilings",
                                                                "replay", "only-hosts", NULL},
        *const pairs[] = {"draft", "draft-model", "repeat", "streams", "guesses", "right", "cpu-time", "seconds", NULL};
    int rc = stage_hosts_check(&b->hosts, "bench");
    bool has_hosts = stage_hosts_are_named(&b->hosts);
    if (!rc && has_hosts) rc = exclude(v, other, "does not go together with --hosts");
    if (!rc && !b->replay.path) rc = exclude(v, replay, "is for --replay");
    if (!rc && !b->replay.path && !has_hosts) rc = exclude(v, streams, "is for --replay and --hosts");
    if (rc || !b->replay.path) return rc;
    rc = exclude(v, plain, "excludes --replay");
    if (rc || b->draft.decoder != DECODER_WEDLM) return rc;
    return exclude(v, pairs, "excludes --decoder wedlm, which measures windows alone, class by class");
}

static int run(struct invocation *v)
{
    struct bench *b = v->options;
    struct qn_error e = {0};
    int rc = check_mode(v, b);
    if (rc) return rc;
    if (!v->n && !b->ceilings) return cli_usage("bench: one MODEL (see quern bench --help)");
    if (v->n && (rc = operand_model(v, 0, &b->folders))) return rc;
    b->path = v->operand[0];
    if (stage_hosts_are_named(&b->hosts)) return v->n ? run_hosts(b) : cli_usage("bench: --hosts needs a MODEL");
    if (b->ceilings) return (rc = show_ceilings(b, &e)) ? cli_fail(&e) : 0;
    if (options_origin(v, "seconds") == ORIGIN_FLAG) b->replay.seconds = b->seconds;
    if (b->replay.path) {
        if (!(rc = v->n ? 0 : cli_usage("bench: --replay needs a MODEL"))) rc = run_replay(b);
        goto done;
    }
    if ((rc = list_tests(b))) goto done;
    error_clean(b->name, sizeof b->name, b->path);
    rc = bench_all(b, &e);
    progress_note("%s", "");
    if (rc)
        rc = cli_fail(&e);
    else if (b->json)
        print_json(b);
    else
        print_table(b);
done:
    free_all(b);
    return rc;
}

#define AT(field) offsetof(struct bench, field)
static const struct opt opts[] = {
    {"prompt", 'p', OPT_STRING, AT(prompts), "LIST", "prefill this many tokens; 0: none (default 512)"},
    {"predict", 'n', OPT_INT, AT(n_predict), "N", "decode this many tokens; 0: none (default 32)", 0, 1 << 20},
    {"rows", 'b', OPT_STRING, AT(batches), "LIST", "single passes of this many rows, logits for all (default none)"},
    {"depth", 'd', OPT_STRING, AT(depths), "LIST", "measure after this many earlier tokens (default 0)"},
    {"reps", 'r', OPT_INT, AT(reps), "N", "repetitions of a test (default 3)", 1, 10000},
    {"seconds", 0, OPT_INT, AT(seconds), "N",
     "start no repetition of a test after N seconds (default 30; with --replay, no block: no limit)", 0, 86400,
     .rare = true},
    {"batch", 0, OPT_INT, AT(p.n_batch), "N", "rows in one forward pass (default 512)", 1, 65536, .rare = true},
    {"mlock", 0, OPT_FLAG, AT(p.lock_weights), NULL, "lock weights in memory, as many as the budget allows",
     .rare = true},
    {"ceilings", 0, OPT_FLAG, AT(ceilings), NULL, "measure only the machine; MODEL may be left out"},
    {"replay", 0, OPT_STRING, AT(replay.path), "FILE",
     "measure drafts on the recorded answers in FILE; with --decoder wedlm: what windows do, by content"},
    {"streams", 0, OPT_STRING, AT(streams), "LIST", "with --replay or --hosts: answers at once (default 1)",
     .rare = true},
    {"rounds", 0, OPT_INT, AT(replay.n_rounds), "N", "with --replay: blocks of 64 tokens (default 16)", 1, 100000,
     .rare = true},
    {"repeat", 0, OPT_FLAG, AT(replay.repeats), NULL,
     "with --replay: begin again when the answers are used up, as somebody else", .rare = true},
    {"cpu-time", 0, OPT_FLAG, AT(replay.counts_cpu), NULL,
     "with --replay: count the time of the threads, not the clock's, because others use the machine; with --threads 1",
     .rare = true},
    {"guesses", 0, OPT_INT, AT(replay.n_guesses), "N",
     "with --replay: so many guesses in every step, whatever they cost (default 0: as many as pay)", 0, DRAFT_MOST,
     .rare = true},
    {"right", 0, OPT_STRING, AT(right), "LIST",
     "with --replay: how probably the first, second ... guess of mtp, model or wedlm is right, instead of what it "
     "guesses: for models with random weights, such as 0.8,0.7",
     .rare = true},
    {"json", 0, OPT_FLAG, AT(json), NULL, "one JSON object instead of a table"},
    {0},
};

static const struct opt_group groups[] = {{"Options", opts},
                                          {"Drafts (with --replay; default auto)", opts_draft, AT(draft), .rare = true},
                                          {"Engine", opts_engine, AT(p)},
                                          {"Model file", opts_model, AT(file), .rare = true},
                                          {"Several hosts", opts_stage_hosts, AT(hosts), .rare = true},
                                          OPERAND_GROUP(AT(folders)),
                                          {0}};

static const struct example examples[] = {
    {"quern bench m.gguf", "Prefill of 512 tokens, decode of 32"},
    {"quern bench m.gguf -p 128,2048 -n 64 -d 0,4096",
     "Two lengths of prompts, at the beginning and after 4096 tokens"},
    {"quern bench --ceilings --json", "The limits of this machine, for a program"},
    {"quern bench m.gguf --hosts localhost,b --interface wg0 --streams 1,2,8",
     "A model on two hosts: one answer, and several at once"},
    {0},
};

const struct command command_bench = {
    .name = "bench",
    .operands = "MODEL [OPTIONS]",
    .brief = "measure prefill and decode, and the machine's ceilings",
    .about =
        "Measures how fast a model reads prompts and writes answers on this machine, and how much of the "
        "machine's speed that is.\n\n"
        "The tests are prefill (pp512: a prompt of 512 tokens), decode (tg: single tokens, one after the other) "
        "and passes of several rows (b8), each at every --depth. LIST is numbers with commas between them. Each "
        "test is repeated; the output has the median and the spread. The ceilings are measured in the same run, "
        "with the slowest pass of each, because the speed of shared machines changes. Weights that stay in the "
        "processor's caches are read "
        "faster than memory allows, so their fraction is above 100%.\n\n"
        "--replay measures drafts instead: recorded answers are replayed in blocks of 64 tokens, with "
        "drafts and without, a step of each in turn. Each line of FILE is a JSON object; \"prompt\" and "
        "\"answer\" are arrays of token "
        "ids.\n\n"
        "With --hosts, the model is started on these hosts as quern serve would do it. The tests are prefill, from "
        "the submission of a prompt to its first token, and decode, of as many answers at once as --streams says.",
    .min = 0,
    .max = 1,
    .words = WORDS_MODEL,
    .examples = examples,
    .rank = RANK_RARE,
    .groups = groups,
    .size = sizeof(struct bench),
    .init = init,
    .run = run,
};
