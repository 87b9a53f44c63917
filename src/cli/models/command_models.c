/* SPDX-License-Identifier: MIT
 *
 * command_models.c: `quern models`: lists the models in the folders, and how well this machine can run them.
 *
 * Each model is opened as if it were to be run, so the list says what running it would find. A model that cannot be
 * opened is listed with the reason. Tokens per second are the bound of `quern explain`: the bytes and multiply-adds of
 * one token against what this machine was measured to do. No program is faster, and ours is somewhat slower.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "cli/measure/account.h"
#include "cli/place/catalog.h"
#include "cli/measure/ceilings_kept.h"
#include "cli/core/cli.h"
#include "cli/core/columns.h"
#include "cli/core/commands.h"
#include "format/weights.h"

enum verdict { NO_MODEL, FITS, FROM_DISK, TOO_LARGE };
static const char *const verdict_words[] = {"-", "yes", "from disk", "no"};
static const char *const verdict_names[] = {"unusable", "fits", "reads_from_disk", "does_not_fit"};

struct model_row {
    const struct catalog_entry *entry; /* borrowed */
    bool is_default;
    char arch[64];    /* printable; empty: not known */
    const char *type; /* NULL: not known */
    uint64_t n_params;
    enum verdict verdict;
    struct qn_engine_plan plan;
    double tokens_per_s; /* 0: not known */
    char why[500];       /* NO_MODEL */
};

struct models_command {
    struct cli_strings folders;
    const char *model;
    bool json, refresh;

    struct ceilings c;
    uint64_t memory_bytes;
    struct model_row *rows;
};

/* ---- one model ---- */

/* Fills in what the header says, which works for models that cannot be run too. */
static void summarise(struct model_row *r, const struct weights *w)
{
    uint64_t bytes[DT_N] = {0};
    struct str arch = {"", 0};
    char text[sizeof r->arch];
    int most = 0;
    meta_str(w, "general.architecture", &arch, NULL);
    snprintf(text, sizeof text, "%.*s", (int)(arch.n < sizeof text ? arch.n : sizeof text - 1), arch.p);
    error_clean(r->arch, sizeof r->arch, text);
    for (size_t i = 0; i < weights_n_tensors(w); i++) {
        const struct tensor *t = weights_tensor_at(w, i);
        r->n_params += (uint64_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
        bytes[t->type] += t->bytes;
    }
    for (int t = 0; t < DT_N; t++)
        if (bytes[t] > bytes[most]) most = t;
    if (bytes[most]) r->type = dtype_get((enum dtype)most)->name;
}

/* Keeps the reason why a model cannot be used, without its path, which is printed next to it. */
static void give_up(struct model_row *r, const struct qn_error *e)
{
    size_t n = strlen(r->entry->path);
    bool has_path = !strncmp(e->msg, r->entry->path, n) && !strncmp(e->msg + n, ": ", 2);
    r->verdict = NO_MODEL;
    snprintf(r->why, sizeof r->why, "%s", e->msg + (has_path ? n + 2 : 0));
}

static int estimate(struct model_row *r, const struct models_command *o, const struct model *m, struct qn_error *e)
{
    struct account a;
    int rc = account_cost(&a, m, KV_F16, 1, 0, 1, e);
    if (rc) return rc;
    r->tokens_per_s = 1 / ceilings_floor(&o->c, a.bytes, a.macs_int8, a.macs_f32);
    account_deinit(&a);
    return 0;
}

static void look_at(struct model_row *r, const struct models_command *o)
{
    struct qn_error e = {0};
    struct weights *w = NULL;
    qn_model *m = NULL;
    int rc = qn_model_open(&m, r->entry->path, &e);
    if (rc) {
        give_up(r, &e);
        if (!weights_open(&w, r->entry->path, NULL)) summarise(r, w);
        weights_close(w);
        return;
    }
    summarise(r, m->model->weights);
    r->plan.size = sizeof r->plan;
    rc = qn_engine_plan(&r->plan, m, NULL, NULL, &e);
    r->verdict = TOO_LARGE;
    if (r->plan.least_bytes <= o->memory_bytes) r->verdict = FROM_DISK;
    if (r->plan.bytes <= o->memory_bytes) r->verdict = FITS;
    if (!rc && r->verdict == FITS) rc = estimate(r, o, m->model, &e);
    if (rc) give_up(r, &e);
    qn_model_close(m);
}

/* ---- all of them ---- */

static void count_text(uint64_t n, char dst[32])
{
    static const char *const units[] = {"", "K", "M", "B", "T"};
    double v = (double)n;
    int u = 0;
    for (; v >= 1000 && u < 4; u++) v /= 1000;
    snprintf(dst, 32, u ? "%.1f%s" : "%.0f%s", v, units[u]);
}

static void print_table(const struct models_command *o, size_t n)
{
    static const char *const heads[] = {"", "NAME", "FAMILY", "PARAMS", "SIZE", "TYPE", "AT MOST", "FITS"};
    struct text_columns t = {.align = "lnlrrlrl"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) columns_add(&t, "%s", heads[i]);
    for (size_t i = 0; i < n; i++) {
        const struct model_row *r = &o->rows[i];
        char params[32] = "-", size[32], rate[32] = "-";
        if (r->n_params) count_text(r->n_params, params);
        columns_size(r->entry->bytes, size);
        if (r->tokens_per_s > 0)
            snprintf(rate, sizeof rate, r->tokens_per_s < 10 ? "%.1f tok/s" : "%.0f tok/s", r->tokens_per_s);
        columns_add(&t, "%s", r->is_default ? "*" : "");
        columns_add(&t, "%s", r->entry->name);
        columns_add(&t, "%s", r->arch[0] ? r->arch : "-");
        columns_add(&t, "%s", params);
        columns_add(&t, "%s", size);
        columns_add(&t, "%s", r->type ? r->type : "-");
        columns_add(&t, "%s", rate);
        columns_add(&t, "%s", r->verdict == NO_MODEL ? r->why : verdict_words[r->verdict]);
    }
    columns_print(&t);
}

/* A JSON string of a name that may not be UTF-8. */
static json_t *json_name(const char *s)
{
    char clean[4096];
    json_t *j = json_string(s);
    if (j) return j;
    error_clean(clean, sizeof clean, s);
    return json_string(clean);
}

static json_t *json_row(const struct model_row *r)
{
    json_t *j =
        json_pack("{s:o, s:o, s:b, s:I, s:s*, s:s*, s:s}", "name", json_name(r->entry->name), "path",
                  json_name(r->entry->path), "default", r->is_default, "bytes", (json_int_t)r->entry->bytes,
                  "architecture", r->arch[0] ? r->arch : NULL, "type", r->type, "fits", verdict_names[r->verdict]);
    if (r->n_params) json_object_set_new(j, "parameters", json_integer((json_int_t)r->n_params));
    if (r->verdict == NO_MODEL) json_object_set_new(j, "error", json_string(r->why));
    if (r->verdict != NO_MODEL) {
        json_object_set_new(j, "memory_bytes", json_integer((json_int_t)r->plan.bytes));
        json_object_set_new(j, "context_length", json_integer(r->plan.n_ctx));
    }
    if (r->tokens_per_s > 0) json_object_set_new(j, "tokens_per_second", json_real(r->tokens_per_s));
    return j;
}

static void print_json(const struct models_command *o, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_row(&o->rows[i]));
    json_t *j = json_pack("{s:o, s:{s:I, s:f, s:f, s:f}}", "models", list, "machine", "memory_bytes",
                          (json_int_t)o->memory_bytes, "read_gbs", o->c.read_gbs, "int8_gmacs", o->c.int8_gmacs,
                          "f32_gmacs", o->c.f32_gmacs);
    cli_print_json(j, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
}

static void mark_default(struct models_command *o, size_t n)
{
    struct qn_error e = {0};
    char *path, clean[4096];
    bool found = false;
    if (catalog_find(&path, &o->folders, o->model, &e)) {
        if (o->model) fprintf(stderr, "quern: the default: %s\n", e.msg);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        o->rows[i].is_default = !strcmp(o->rows[i].entry->path, path);
        found |= o->rows[i].is_default;
    }
    error_clean(clean, sizeof clean, path);
    if (!found) fprintf(stderr, "quern: the default is %s\n", clean);
    mem_free(path);
}

static int run(struct invocation *v)
{
    struct models_command *o = v->options;
    struct catalog c = {0};
    struct qn_error e = {0};
    int rc = catalog_open(&c, &o->folders, &e);
    if (!rc && c.n) rc = ceilings_kept(&o->c, o->refresh, &e);
    if (rc) {
        catalog_close(&c);
        return cli_fail(&e);
    }
    o->memory_bytes = os_memory_bytes();
    o->rows = cli_alloc(c.n, sizeof *o->rows);
    for (size_t i = 0; i < c.n; i++) {
        o->rows[i].entry = &c.entry[i];
        look_at(&o->rows[i], o);
    }
    mark_default(o, c.n);
    if (o->json)
        print_json(o, c.n);
    else if (c.n)
        print_table(o, c.n);
    else if (!o->model)
        fprintf(stderr, "quern: there are no models here: quern pull gets one\n");
    cli_free(o->rows);
    catalog_close(&c);
    return 0;
}

#define AT(field) offsetof(struct models_command, field)
static const struct opt defaults[] = {
    {"model", 'm', OPT_STRING, AT(model), "MODEL", "the default model, which is marked", .words = WORDS_MODEL},
    {0},
};

static const struct opt opts[] = {
    {"json", 0, OPT_FLAG, AT(json), NULL, "one JSON object instead of a table"},
    {"refresh", 0, OPT_FLAG, AT(refresh), NULL, "measure this machine again"},
    {0},
};

static const struct opt_group groups[] = {
    {"Options", opts}, {"Models", defaults, .section = ""}, {"Folders", opts_folders, AT(folders), ""}, {0}};

static const struct example examples[] = {
    {"quern models", "What is in ~/models"},
    {"QUERN_MODELS=/srv/models:~/models quern models", "In two folders; the first one's names win"},
    {"quern models --json | jq -r '.models[].name'", "The names, for a script"},
    {0},
};

const struct command command_models = {
    .name = "models",
    .operands = "[OPTIONS]",
    .brief = "list the models on disk: whether they fit, how fast they are",
    .about =
        "Lists the models in the folders: their size, whether they fit into memory, and how fast they would be.\n\n"
        "A model is a file NAME.gguf, all parts of a split model, or a folder with a config.json. TYPE is the "
        "type of most of its bytes. AT MOST are the tokens per second that no program exceeds on this machine, from "
        "the bytes and multiply-adds of a token and the measured speed of the machine. The measurement is kept for a "
        "month in "
        "$XDG_CACHE_HOME/quern or ~/.cache/quern. FITS says whether the weights and a context of 4096 tokens (or "
        "the model's, if that is less) fit into memory; a model that reads from disk does so for every token. A "
        "model that cannot be used is listed with the reason. A star marks the default model.",
    .examples = examples,
    .min = 0,
    .max = 0,
    .groups = groups,
    .size = sizeof(struct models_command),
    .run = run,
};
