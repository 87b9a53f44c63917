/* SPDX-License-Identifier: MIT
 *
 * bench.c: `quern bench`: tokens per second beside what the machine allows.
 *
 * Prefill is a prompt of P tokens evaluated behind `depth` earlier ones, its last logits
 * included; decode is N single tokens at that depth. Each is repeated, and given as median and
 * spread. The ceilings are measured in the same run, because shared machines wander; a rate
 * without its ceiling says little. Weights that stay in the processor's caches are read faster
 * than memory allows: their fraction is above 100%.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/os.h"
#include "base/rng.h"
#include "cli/account.h"
#include "cli/ceilings.h"
#include "cli/cli.h"

struct bench {
    const char *path, *kv;
    char name[512]; /* the path, printable */
    int n_prompt, n_predict, depth, reps;
    bool json;
    struct qn_engine_params p;

    qn_model *model;
    qn_engine *engine;
    struct ceilings c;
    double *prefill, *decode; /* [reps] tokens/s */
    struct account prefill_cost, decode_cost;
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int measure(struct bench *b, struct memory *mem, qn_token *tokens, float *logits, struct qn_error *e)
{
    int rc;
    if ((rc = account_fill(mem, b->depth, e))) return rc;
    /* once without the clock: the file's pages become resident */
    if ((rc = engine_append(b->engine, mem, tokens, 1, logits, e))) return rc;
    for (int i = 0; i < b->reps; i++) {
        memory_truncate(mem, b->depth);
        uint64_t t = clock_ns();
        if (b->n_prompt && (rc = engine_append(b->engine, mem, tokens, (size_t)b->n_prompt, logits, e))) return rc;
        b->prefill[i] = b->n_prompt * 1e9 / (double)(clock_ns() - t);
        memory_truncate(mem, b->depth);
        t = clock_ns();
        for (int j = 0; j < b->n_predict; j++)
            if ((rc = engine_append(b->engine, mem, tokens + j, 1, logits, e))) return rc;
        b->decode[i] = b->n_predict * 1e9 / (double)(clock_ns() - t);
    }
    return 0;
}

static int run(struct bench *b, struct qn_error *e)
{
    struct memory mem = {0};
    float *logits = NULL;
    qn_token *tokens = NULL;
    int most = b->n_prompt > b->n_predict ? b->n_prompt : b->n_predict, rc;
    if (b->p.n_ctx == 0) b->p.n_ctx = b->depth + most + 1;
    if ((rc = qn_model_open(&b->model, b->path, e))) return rc;
    if ((rc = qn_engine_new(&b->engine, b->model, &b->p, e))) return rc;
    const struct model *m = b->engine->model;
    enum cpu_level level = b->p.cpu ? (enum cpu_level)cpu_level_parse(b->p.cpu) : cpu_best();
    if ((rc = memory_init(&mem, b->engine->kv, b->p.n_ctx, e))) return rc;
    logits = mem_calloc((size_t)m->hp.n_vocab, sizeof *logits);
    tokens = mem_calloc((size_t)most + 1, sizeof *tokens);
    b->prefill = mem_calloc((size_t)b->reps, sizeof *b->prefill);
    b->decode = mem_calloc((size_t)b->reps, sizeof *b->decode);
    if (!logits || !tokens || !b->prefill || !b->decode) {
        rc = error_nomem(e, "measurements", (size_t)m->hp.n_vocab * sizeof *logits);
        goto done;
    }
    for (int i = 0; i < most + 1; i++) tokens[i] = (qn_token)(rng_u64(2, 0, (uint64_t)i) % (uint64_t)m->hp.n_vocab);
    enum kv_type kv = kv_pool_shape(b->engine->kv)->type;
    if ((rc = account_cost(&b->decode_cost, m, kv, 1, b->depth, e))) goto done;
    if (b->n_prompt && (rc = account_cost(&b->prefill_cost, m, kv, b->n_prompt, b->depth, e))) goto done;
    if ((rc = measure(b, &mem, tokens, logits, e))) goto done;
    if ((rc = ceilings_measure(&b->c, b->engine->pool, level, m->weights, e))) goto done;
    qsort(b->prefill, (size_t)b->reps, sizeof *b->prefill, by_value);
    qsort(b->decode, (size_t)b->reps, sizeof *b->decode, by_value);
done:
    mem_free(logits);
    mem_free(tokens);
    memory_deinit(&mem);
    return rc;
}

/* tokens/s if nothing but reading and multiplying took time */
static double ceiling_of(const struct bench *b, const struct account *a, int n)
{
    return n / ceilings_floor(&b->c, a->bytes, a->macs_int8, a->macs_f32);
}

static void print_line(const struct bench *b, const char *what, const double *v, const struct account *a, int n)
{
    double mid = v[b->reps / 2], lo = v[0], hi = v[b->reps - 1];
    printf("%-10s %5d tokens at depth %-6d %9.2f tok/s  (%.2f .. %.2f, %d runs)  %3.0f%% of %.2f\n", what, n, b->depth,
           mid, lo, hi, b->reps, 100 * mid / ceiling_of(b, a, what[0] == 'p' ? n : 1),
           ceiling_of(b, a, what[0] == 'p' ? n : 1));
}

static void print_table(const struct bench *b)
{
    printf("model      %s (%s), %.2f GB of weights\n", b->name, b->engine->model->hp.arch,
           (double)weights_tensor_bytes(b->engine->model->weights) * 1e-9);
    printf("machine    %d threads, %s; reads %.1f GB/s (the mapped file %.1f), %.0f GMAC/s int8, %.0f GFMA/s f32\n",
           pool_n_threads(b->engine->pool), b->engine->step.kt.name, b->c.read_gbs, b->c.mapped_gbs, b->c.int8_gmacs,
           b->c.f32_gmacs);
    if (b->n_prompt) print_line(b, "prefill", b->prefill, &b->prefill_cost, b->n_prompt);
    if (b->n_predict) print_line(b, "decode", b->decode, &b->decode_cost, b->n_predict);
}

static json_t *json_rates(const struct bench *b, const double *v, const struct account *a, int n, int per)
{
    json_t *list = json_array();
    for (int i = 0; i < b->reps; i++) json_array_append_new(list, json_real(v[i]));
    double top = ceiling_of(b, a, per);
    return json_pack("{s:i,s:i,s:o,s:f,s:f,s:f,s:I,s:I,s:I}", "tokens", n, "depth", b->depth, "tok_s", list, "median",
                     v[b->reps / 2], "ceiling", top, "fraction", v[b->reps / 2] / top, "bytes", (json_int_t)a->bytes,
                     "macs_int8", (json_int_t)a->macs_int8, "macs_f32", (json_int_t)a->macs_f32);
}

static void print_json(const struct bench *b)
{
    json_t *j =
        json_pack("{s:s,s:s,s:I,s:i,s:s,s:s,s:{s:f,s:f,s:f,s:f}}", "model", b->name, "arch", b->engine->model->hp.arch,
                  "weight_bytes", (json_int_t)weights_tensor_bytes(b->engine->model->weights), "threads",
                  pool_n_threads(b->engine->pool), "cpu", b->engine->step.kt.name, "version", qn_version(), "ceilings",
                  "read_gbs", b->c.read_gbs, "mapped_gbs", b->c.mapped_gbs, "int8_gmacs", b->c.int8_gmacs, "f32_gmacs",
                  b->c.f32_gmacs);
    if (b->n_prompt)
        json_object_set_new(j, "prefill", json_rates(b, b->prefill, &b->prefill_cost, b->n_prompt, b->n_prompt));
    if (b->n_predict) json_object_set_new(j, "decode", json_rates(b, b->decode, &b->decode_cost, b->n_predict, 1));
    json_dumpf(j, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(j);
}

int cmd_bench(int argc, char **argv)
{
    struct bench b = {.n_prompt = 512, .n_predict = 32, .reps = 3, .kv = "f16"};
    struct qn_error e = {0};
    bool help;
    int first, rc;
    qn_engine_params_init(&b.p);
    const struct opt opts[] = {
        {"prompt", 'p', OPT_INT, &b.n_prompt, "N", "tokens of prefill; 0: none (default 512)", 0, 1 << 20},
        {"predict", 'n', OPT_INT, &b.n_predict, "N", "tokens of decode; 0: none (default 32)", 0, 1 << 20},
        {"depth", 'd', OPT_INT, &b.depth, "N", "tokens that went before (default 0)", 0, 1 << 24},
        {"reps", 'r', OPT_INT, &b.reps, "N", "repetitions (default 3)", 1, 10000},
        {"threads", 0, OPT_INT, &b.p.n_threads, "N", "threads (default: the CPUs this process may use)", 1, 1024},
        {"batch", 0, OPT_INT, &b.p.n_batch, "N", "rows in one forward pass (default 512)", 1, 65536},
        {"kv", 0, OPT_STRING, &b.kv, "TYPE", "keys and values as f32, f16 (default) or q8_0", 0, 0},
        {"cpu", 0, OPT_STRING, &b.p.cpu, "LEVEL", CLI_CPU_HELP, 0, 0},
        {"memory", 0, OPT_SIZE, &b.p.memory_bytes, "BYTES", "memory budget, such as 6G (default: what is available)", 0,
         0},
        {"json", 0, OPT_FLAG, &b.json, NULL, "one JSON object instead of a table", 0, 0},
        {0},
    };
    rc = cli_parse(argc, argv, "bench MODEL [OPTIONS]", opts, &first, &help);
    if (rc || help) return rc;
    if (argc - first != 1) return cli_usage("bench: one MODEL (see quern bench --help)");
    if (b.n_prompt == 0 && b.n_predict == 0) return cli_usage("bench: nothing to measure (-p 0 -n 0)");
    if ((rc = cli_parse_kv(b.kv, &b.p.kv))) return rc;
    b.path = argv[first];
    error_clean(b.name, sizeof b.name, b.path);
    rc = run(&b, &e);
    if (rc)
        rc = cli_fail(&e);
    else if (b.json)
        print_json(&b);
    else
        print_table(&b);
    mem_free(b.prefill);
    mem_free(b.decode);
    account_deinit(&b.prefill_cost);
    account_deinit(&b.decode_cost);
    qn_engine_free(b.engine);
    qn_model_close(b.model);
    return rc;
}
