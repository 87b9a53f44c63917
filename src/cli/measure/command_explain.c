/* SPDX-License-Identifier: MIT
 *
 * command_explain.c: `quern explain`: where the bytes, the multiply-adds and the time of a token go.
 *
 * The account comes from running the ordinary forward pass on kernels that only count, so it agrees with what is run.
 * Equal operations of all layers are one line. The floor is the time for reading the bytes or for the multiply-adds at
 * the machine's measured ceilings, whichever is longer. How many experts the rows share is known only after a run:
 * without --analyze it is the number for rows that choose at random.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "cli/measure/account.h"
#include "cli/measure/ceilings.h"
#include "cli/core/cli.h"
#include "cli/core/commands.h"

/* Equal operations of several layers. */
struct line {
    struct trace_op op; /* its bytes, multiply-adds and ns are sums */
    int count;
};

struct explain {
    const char *path;
    char name[512]; /* the path, printable */
    int n_rows, depth, reps;
    bool analyze, json;
    struct qn_engine_params p;
    struct qn_model_params file;

    qn_model *model;
    qn_engine *engine;
    struct ceilings c;
    struct account a;
    struct line *lines;
    int n_lines;
};

/* The lines of the second table. */
static const char *const class_names[OP_N_CLASSES] = {
    [OP_EMBEDDING] = "embedding",
    [OP_ELEMENTWISE] = "element-wise",
    [OP_ATTENTION_MATRIX] = "attention matrices",
    [OP_ATTENTION] = "attention over the KV cache",
    [OP_LATENT] = "latent attention",
    [OP_DELTA] = "DeltaNet",
    [OP_FFN] = "feed-forward matrices",
    [OP_EXPERTS] = "experts",
    [OP_OUTPUT] = "output head",
};

static bool alike(const struct trace_op *a, const struct trace_op *b)
{
    return !strcmp(a->name, b->name) && a->class == b->class && a->dtype == b->dtype && a->n == b->n && a->k == b->k &&
           a->cols == b->cols;
}

static void merge(struct line *l, const struct trace_op *op)
{
    l->count++;
    l->op.bytes += op->bytes;
    l->op.macs_int8 += op->macs_int8;
    l->op.macs_f32 += op->macs_f32;
    l->op.ns += op->ns;
    l->op.n_experts += op->n_experts;
}

static int group(struct explain *x, struct qn_error *e)
{
    x->lines = mem_calloc((size_t)x->a.n, sizeof *x->lines);
    if (!x->lines) return error_nomem(e, "the account", (size_t)x->a.n * sizeof *x->lines);
    for (int i = 0; i < x->a.n; i++) {
        int l = 0;
        while (l < x->n_lines && !alike(&x->lines[l].op, &x->a.ops[i])) l++;
        if (l == x->n_lines) {
            x->lines[x->n_lines++].op = x->a.ops[i];
            x->lines[l].count = 1;
        } else {
            merge(&x->lines[l], &x->a.ops[i]);
        }
    }
    return 0;
}

static double floor_ms(const struct explain *x, const struct trace_op *op)
{
    return 1e3 * ceilings_floor(&x->c, op->bytes, op->macs_int8, op->macs_f32);
}

static const char *type_name(int dtype) { return dtype < 0 ? "-" : dtype_get(dtype)->name; }

static void print_op(const struct explain *x, const char *name, const struct trace_op *op, int count, bool shape)
{
    char dims[48] = "";
    double floor = floor_ms(x, op), ms = (double)op->ns * 1e-6;
    if (shape) snprintf(dims, sizeof dims, "%lldx%lldx%lld", (long long)op->n, (long long)op->k, (long long)op->cols);
    printf("%-28s %-8s %5d %-20s %10.3f %10.3f %9.3f", name, shape ? type_name(op->dtype) : "", count, dims,
           (double)op->bytes * 1e-6, (double)(op->macs_int8 + op->macs_f32) * 1e-6, floor);
    if (x->analyze) {
        printf(" %9.3f", ms);
        if (floor > 0.0005) printf(" %5.0f%%", 100 * floor / ms);
    }
    putchar('\n');
}

static void print_head(const struct explain *x, const char *what)
{
    printf("\n%-28s %-8s %5s %-20s %10s %10s %9s%s\n", what, "type", "times", "out x in x rows", "MB", "MMAC",
           "floor ms", x->analyze ? "        ms floor/ms" : "");
}

static void print_classes(const struct explain *x)
{
    struct line classes[OP_N_CLASSES] = {0};
    for (int i = 0; i < x->n_lines; i++) {
        struct line *c = &classes[x->lines[i].op.class];
        merge(c, &x->lines[i].op);
        c->count += x->lines[i].count - 1;
    }
    print_head(x, "class");
    for (int c = 0; c < OP_N_CLASSES; c++)
        if (classes[c].count) print_op(x, class_names[c], &classes[c].op, classes[c].count, false);
}

static void print_table(const struct explain *x)
{
    struct trace_op total = {.bytes = x->a.bytes, .macs_int8 = x->a.macs_int8, .macs_f32 = x->a.macs_f32};
    printf("%s (%s): %d row%s at depth %d; kernels %s, %d threads\n", x->name, x->engine->model->hp.arch, x->n_rows,
           x->n_rows == 1 ? "" : "s", x->depth, x->engine->forward.pass.kt.name, pool_n_threads(x->engine->pool));
    printf("ceilings: %.1f GB/s (the mapped file %.1f), %.0f GMAC/s int8, %.0f GFMA/s f32\n", x->c.read_gbs,
           x->c.mapped_gbs, x->c.int8_gmacs, x->c.f32_gmacs);
    print_head(x, "operation");
    for (int i = 0; i < x->n_lines; i++) print_op(x, x->lines[i].op.name, &x->lines[i].op, x->lines[i].count, true);
    print_classes(x);
    for (int i = 0; i < x->a.n; i++) total.ns += x->a.ops[i].ns;
    print_op(x, "total", &total, x->a.n, false);
    if (x->analyze) printf("one pass without the tracing: %.3f ms\n", (double)x->a.ns * 1e-6);
}

static json_t *json_line(const struct explain *x, const struct line *l)
{
    const struct trace_op *op = &l->op;
    json_t *j = json_pack("{s:s,s:s,s:s,s:s,s:i,s:[I,I,I],s:I,s:I,s:I,s:f}", "name", op->name, "class",
                          class_names[op->class], "type", type_name(op->dtype), "kernel",
                          x->engine->forward.pass.kt.name, "count", l->count, "shape", (json_int_t)op->n,
                          (json_int_t)op->k, (json_int_t)op->cols, "bytes", (json_int_t)op->bytes, "macs_int8",
                          (json_int_t)op->macs_int8, "macs_f32", (json_int_t)op->macs_f32, "floor_ms", floor_ms(x, op));
    if (op->n_experts) json_object_set_new(j, "experts", json_integer(op->n_experts));
    if (x->analyze) json_object_set_new(j, "ms", json_real((double)op->ns * 1e-6));
    return j;
}

static void print_json(const struct explain *x)
{
    json_t *ops = json_array();
    double sum = 0;
    for (int i = 0; i < x->n_lines; i++) {
        json_array_append_new(ops, json_line(x, &x->lines[i]));
        sum += (double)x->lines[i].op.ns * 1e-6;
    }
    json_t *j = json_pack("{s:s,s:s,s:i,s:i,s:i,s:{s:f,s:f,s:f,s:f},s:o,s:{s:I,s:I,s:I,s:f}}", "model", x->name, "arch",
                          x->engine->model->hp.arch, "rows", x->n_rows, "depth", x->depth, "threads",
                          pool_n_threads(x->engine->pool), "ceilings", "read_gbs", x->c.read_gbs, "mapped_gbs",
                          x->c.mapped_gbs, "int8_gmacs", x->c.int8_gmacs, "f32_gmacs", x->c.f32_gmacs, "operations",
                          ops, "total", "bytes", (json_int_t)x->a.bytes, "macs_int8", (json_int_t)x->a.macs_int8,
                          "macs_f32", (json_int_t)x->a.macs_f32, "floor_ms",
                          1e3 * ceilings_floor(&x->c, x->a.bytes, x->a.macs_int8, x->a.macs_f32));
    if (x->analyze) {
        json_object_set_new(json_object_get(j, "total"), "ms", json_real(sum));
        json_object_set_new(json_object_get(j, "total"), "pass_ms", json_real((double)x->a.ns * 1e-6));
    }
    cli_print_json(j, JSON_COMPACT | JSON_REAL_PRECISION(9));
}

static int account(struct explain *x, struct qn_error *e)
{
    int rc;
    if (x->p.n_ctx == 0) x->p.n_ctx = x->depth + x->n_rows;
    if (x->p.n_batch == 0) x->p.n_batch = x->n_rows;
    if ((rc = qn_model_open_with(&x->model, x->path, &x->file, e))) return rc;
    if ((rc = qn_engine_new(&x->engine, x->model, &x->p, e))) return rc;
    const struct model *m = x->engine->model;
    if ((rc = account_cost(&x->a, m, kv_pool_shape(x->engine->kv)->type, x->n_rows, x->depth, 1, e))) return rc;
    if (x->analyze && (rc = account_measure(&x->a, x->engine, x->n_rows, x->depth, x->reps, e))) return rc;
    enum cpu_level level = (enum cpu_level)cpu_level_parse(x->engine->forward.pass.kt.name);
    if ((rc = ceilings_measure(&x->c, x->engine->pool, level, m->weights, e))) return rc;
    return group(x, e);
}

static void init(void *options)
{
    struct explain *x = options;
    x->n_rows = 1;
    x->reps = 5;
    qn_engine_params_init(&x->p);
    qn_model_params_init(&x->file);
}

static int run(struct invocation *v)
{
    struct explain *x = v->options;
    struct qn_error e = {0};
    x->path = v->operand[0];
    error_clean(x->name, sizeof x->name, x->path);
    int rc = account(x, &e);
    if (rc)
        rc = cli_fail(&e);
    else if (x->json)
        print_json(x);
    else
        print_table(x);
    mem_free(x->lines);
    account_deinit(&x->a);
    qn_engine_free(x->engine);
    qn_model_close(x->model);
    return rc;
}

#define AT(field) offsetof(struct explain, field)
static const struct opt opts[] = {
    {"prompt", 'p', OPT_INT, AT(n_rows), "N", "rows in the pass: 1 is decode (default), more is prefill", 1, 65536},
    {"depth", 'd', OPT_INT, AT(depth), "N", "earlier tokens (default 0)", 0, 1 << 24},
    {"analyze", 0, OPT_FLAG, AT(analyze), NULL, "run the pass too, and print its time next to the floor"},
    {"reps", 'r', OPT_INT, AT(reps), "N", "repetitions with --analyze; the median is shown (default 5)", 1, 1000},
    {"json", 0, OPT_FLAG, AT(json), NULL, "one JSON object instead of tables"},
    {0},
};

static const struct opt_group groups[] = {
    {"Options", opts}, {"Engine", opts_engine, AT(p)}, {"Model file", opts_model, AT(file), .rare = true}, {0}};

static const struct example examples[] = {
    {"quern explain m.gguf", "Where the time of one token goes"},
    {"quern explain m.gguf -p 512 -d 4096 --analyze",
     "A prompt of 512 tokens after 4096 others, predicted and measured"},
    {0},
};

const struct command command_explain = {
    .name = "explain",
    .operands = "MODEL [OPTIONS]",
    .brief = "account for every operation: bytes, multiply-adds, floor, time",
    .about = "Accounts for every operation of a forward pass: the bytes that it reads, its multiply-adds, and the "
             "least time that they take on this machine.\n\n"
             "The account comes from running the ordinary pass on kernels that only count, so it agrees with what is "
             "run. Equal operations of all layers are one line. The floor is the time for the bytes or for the "
             "multiply-adds at the machine's measured ceilings, whichever is longer. --analyze runs the pass too, and "
             "prints its time next to the floor.",
    .min = 1,
    .max = 1,
    .words = WORDS_MODEL,
    .examples = examples,
    .rank = RANK_RARE,
    .groups = groups,
    .size = sizeof(struct explain),
    .init = init,
    .run = run,
};
