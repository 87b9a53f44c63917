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

#include "base/out_file.h"
#include "cli/measure/ceilings_kept.h"
#include "cli/measure/explain.h"
#include "cli/measure/explain_hosts.h"
#include "cli/measure/row_costs.h"
#include "cli/core/cli.h"
#include "cli/core/commands.h"
#include "cli/core/progress.h"
#include "cli/place/operand.h"

#define MOST_ROWS    32 /* of the passes of several rows, for one row */
#define HOSTS_TOKENS 8  /* with --hosts: tokens for each repetition */

struct explain {
    const char *path, *svg;
    char name[512]; /* the path, printable */
    int reps;
    bool json;
    struct qn_engine_params p;
    struct qn_model_params file;
    struct cli_strings folders;
    struct stage_hosts hosts;

    qn_model *model;
    qn_engine *engine;
    struct explain_view v;
    struct row_costs rows; /* for one row only */
};

static bool alike(const struct trace_op *a, const struct trace_op *b)
{
    return !strcmp(a->name, b->name) && a->class == b->class && a->dtype == b->dtype && a->n == b->n && a->k == b->k &&
           a->cols == b->cols;
}

static void merge(struct explain_line *l, const struct trace_op *op)
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
    x->v.lines = mem_calloc((size_t)x->v.a.n, sizeof *x->v.lines);
    if (!x->v.lines) return error_nomem(e, "the account", (size_t)x->v.a.n * sizeof *x->v.lines);
    for (int i = 0; i < x->v.a.n; i++) {
        int l = 0;
        while (l < x->v.n_lines && !alike(&x->v.lines[l].op, &x->v.a.ops[i])) l++;
        if (l == x->v.n_lines) {
            x->v.lines[x->v.n_lines++].op = x->v.a.ops[i];
            x->v.lines[l].count = 1;
        } else {
            merge(&x->v.lines[l], &x->v.a.ops[i]);
        }
    }
    return 0;
}

static const char *type_name(int dtype) { return dtype < 0 ? "-" : dtype_get(dtype)->name; }

static json_t *json_line(const struct explain *x, const struct explain_line *l)
{
    const struct trace_op *op = &l->op;
    json_t *j = json_pack(
        "{s:s,s:s,s:s,s:s,s:i,s:[I,I,I],s:I,s:I,s:I,s:f}", "name", op->name, "class", explain_class_names[op->class],
        "type", type_name(op->dtype), "kernel", x->engine->forward.pass.kt.name, "count", l->count, "shape",
        (json_int_t)op->n, (json_int_t)op->k, (json_int_t)op->cols, "bytes", (json_int_t)op->bytes, "macs_int8",
        (json_int_t)op->macs_int8, "macs_f32", (json_int_t)op->macs_f32, "floor_ms", explain_floor_ms(&x->v, op));
    if (op->n_experts) json_object_set_new(j, "experts", json_integer(op->n_experts));
    if (x->v.is_measured) json_object_set_new(j, "ms", json_real((double)op->ns * 1e-6));
    return j;
}

static void print_json(const struct explain *x)
{
    json_t *ops = json_array();
    double sum = 0;
    for (int i = 0; i < x->v.n_lines; i++) {
        json_array_append_new(ops, json_line(x, &x->v.lines[i]));
        sum += (double)x->v.lines[i].op.ns * 1e-6;
    }
    json_t *j = json_pack("{s:s,s:s,s:i,s:i,s:i,s:o,s:o,s:{s:I,s:I,s:I,s:f}}", "model", x->name, "arch",
                          x->engine->model->hp.arch, "rows", x->v.n_rows, "depth", x->v.depth, "threads",
                          pool_n_threads(x->engine->pool), "ceilings", ceilings_json(&x->v.c), "operations", ops,
                          "total", "bytes", (json_int_t)x->v.a.bytes, "macs_int8", (json_int_t)x->v.a.macs_int8,
                          "macs_f32", (json_int_t)x->v.a.macs_f32, "floor_ms", explain_pass_floor_ms(&x->v));
    if (x->v.is_measured) {
        json_object_set_new(json_object_get(j, "total"), "ms", json_real(sum));
        json_object_set_new(json_object_get(j, "total"), "pass_ms", json_real((double)x->v.a.ns * 1e-6));
    }
    if (x->rows.n) json_object_set_new(j, "passes", row_costs_json(&x->rows));
    cli_print_json(j, JSON_COMPACT | JSON_REAL_PRECISION(9));
}

static int account(struct explain *x, struct qn_error *e)
{
    int rc;
    int most = x->v.n_rows > 1 ? x->v.n_rows : MOST_ROWS;
    if (x->p.n_ctx == 0) x->p.n_ctx = x->v.depth + most;
    if (x->p.n_batch == 0) x->p.n_batch = most;
    if ((rc = qn_model_open_with(&x->model, x->path, &x->file, e))) return rc;
    if ((rc = qn_engine_new(&x->engine, x->model, &x->p, e))) return rc;
    const struct model *m = x->engine->model;
    if ((rc = account_cost(&x->v.a, m, kv_pool_shape(x->engine->kv)->type, x->v.n_rows, x->v.depth, 1, e))) return rc;
    if (x->v.is_measured) progress_note("measuring the pass");
    if (x->v.is_measured && (rc = account_measure(&x->v.a, x->engine, x->v.n_rows, x->v.depth, x->reps, e))) return rc;
    enum cpu_level level = (enum cpu_level)cpu_level_parse(x->engine->forward.pass.kt.name);
    progress_note("measuring this machine");
    if ((rc = ceilings_measure(&x->v.c, x->engine->pool, level, m->weights, e))) return rc;
    ceilings_improve(&x->v.c, pool_n_threads(x->engine->pool), level);
    if (x->v.n_rows == 1 && (rc = row_costs_count(&x->rows, x->engine, &x->v.c, x->v.depth, e))) return rc;
    if (x->v.is_measured && (rc = row_costs_measure(&x->rows, x->engine, x->v.depth, x->reps, e))) return rc;
    x->v.name = x->name;
    x->v.arch = m->hp.arch;
    x->v.kernels = x->engine->forward.pass.kt.name;
    x->v.n_threads = pool_n_threads(x->engine->pool);
    return group(x, e);
}

static int write_svg(const struct explain *x, struct qn_error *e)
{
    struct buf text = {0};
    struct out_file f = {0};
    int rc;
    if ((rc = explain_svg(&x->v, &text, e))) goto done;
    if ((rc = out_file_open(&f, x->svg, e))) goto done;
    if ((rc = out_file_write(&f, text.data, text.len, e))) goto done;
    rc = out_file_commit(&f, e);
done:
    out_file_abort(&f);
    buf_deinit(&text);
    return rc;
}

static void init(void *options)
{
    struct explain *x = options;
    x->v.n_rows = 1;
    x->reps = 5;
    qn_engine_params_init(&x->p);
    qn_model_params_init(&x->file);
}

/* A pass of one token, which is measured. */
static int run_hosts(struct invocation *v, struct explain *x)
{
    static const char *const other[] = {"prompt", "depth", "svg"};
    struct qn_error e = {0};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (options_origin(v, other[i]) == ORIGIN_FLAG)
            return cli_usage("explain: --%s does not go together with --hosts", other[i]);
    if (x->hosts.only_these) return cli_usage("explain: --only-hosts is for quern serve");
    x->hosts.only_these = true; /* what they take is shown even where this host alone is faster */
    struct explain_hosts p = {&x->hosts, x->path, x->name, &x->p, &x->file, HOSTS_TOKENS * x->reps, x->json};
    return explain_hosts(&p, &e) ? cli_fail(&e) : 0;
}

static int run(struct invocation *v)
{
    struct explain *x = v->options;
    struct qn_error e = {0};
    int rc = stage_hosts_check(&x->hosts, "explain");
    if (!rc) rc = operand_model(v, 0, &x->folders);
    if (rc) return rc;
    x->path = v->operand[0];
    error_clean(x->name, sizeof x->name, x->path);
    if (stage_hosts_are_named(&x->hosts)) return run_hosts(v, x);
    rc = account(x, &e);
    progress_note("%s", "");
    if (!rc && x->svg) rc = write_svg(x, &e);
    if (rc)
        rc = cli_fail(&e);
    else if (x->json)
        print_json(x);
    else {
        explain_print(&x->v);
        if (x->rows.n) row_costs_print(&x->rows);
    }
    mem_free(x->v.lines);
    account_deinit(&x->v.a);
    qn_engine_free(x->engine);
    qn_model_close(x->model);
    return rc;
}

#define AT(field) offsetof(struct explain, field)
static const struct opt opts[] = {
    {"prompt", 'p', OPT_INT, AT(v.n_rows), "N", "rows in the pass: 1 is decode (default), more is prefill", 1, 65536},
    {"depth", 'd', OPT_INT, AT(v.depth), "N", "earlier tokens (default 0)", 0, 1 << 24},
    {"analyze", 0, OPT_FLAG, AT(v.is_measured), NULL, "run the pass too, and print its time next to the floor"},
    {"reps", 'r', OPT_INT, AT(reps), "N", "repetitions with --analyze; the median is shown (default 5)", 1, 1000},
    {"svg", 0, OPT_STRING, AT(svg), "FILE", "draw it too: the pass as a strip, and the roofline", .words = WORDS_FILE},
    {"json", 0, OPT_FLAG, AT(json), NULL, "one JSON object instead of tables"},
    {0},
};

static const struct opt_group groups[] = {{"Options", opts},
                                          {"Engine", opts_engine, AT(p)},
                                          {"Model file", opts_model, AT(file), .rare = true},
                                          {"Several hosts", opts_stage_hosts, AT(hosts), .rare = true},
                                          OPERAND_GROUP(AT(folders)),
                                          {0}};

static const struct example examples[] = {
    {"quern explain m.gguf", "Where the time of one token goes"},
    {"quern explain m.gguf -p 512 -d 4096 --analyze",
     "A prompt of 512 tokens after 4096 others, predicted and measured"},
    {"quern explain m.gguf --analyze --svg token.svg", "A picture of one token"},
    {"quern explain m.gguf --hosts localhost,b --interface wg0",
     "Which host gets which layers, and what a token takes"},
    {0},
};

const struct command command_explain = {
    .name = "explain",
    .operands = "MODEL [OPTIONS]",
    .brief = "show where the time of a token goes, part by part",
    .about = "Accounts for every operation of a forward pass: the bytes that it reads, its multiply-adds, and the "
             "least time that they take on this machine.\n\n"
             "The account comes from running the ordinary pass on kernels that only count, so it agrees with what is "
             "run. Equal operations of all layers are one line. The floor is the time for the bytes or for the "
             "multiply-adds at the machine's measured ceilings, whichever is longer. --analyze runs the pass too, and "
             "prints its time next to the floor.\n\n"
             "For one row, passes of up to 32 rows follow. With --analyze, they say how many times as long as one row "
             "they take, and how often guesses of the next tokens have to be right so that such passes pay.\n\n"
             "With --hosts, the model is started on these hosts as quern serve would do it, and computes an answer of "
             "8 tokens for each of the --reps. The table has the layers of each host, what they take of its memory, "
             "and the milliseconds of a token: those that follow from the speed of a few layers, by which they were "
             "divided, and the median of those that the hosts needed. What copies, the network and waiting add is a "
             "line of its own.",
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
