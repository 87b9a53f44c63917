/* SPDX-License-Identifier: MIT
 *
 * command_check.c: `quern check FILE...`: says whether a model file is sound.
 *
 * It runs every check that loading runs (file format, hyper-parameters, tokenizer, tensor shapes) without loading.
 * With --wedlm it also loads the model and tries its mask (check_wedlm.h).
 * With --schema the files are JSON Schemas. With --deep it also reads all tensor data and looks for NaN and infinity.
 * It prints one line per file: on stdout if the file is sound, on stderr if not. Reading the data is optional because a
 * file is usually much larger than its header.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/models/check_model.h"
#include "cli/models/check_schema.h"
#include "cli/models/check_wedlm.h"
#include "cli/core/cli.h"
#include "cli/core/columns.h"
#include "cli/core/progress.h"
#include "cli/core/term.h"
#include "cli/core/commands.h"
#include "cli/place/operand.h"
#include "cli/place/hashes.h"
#include "format/file/model_files.h"
#include "model/load.h"

struct check {
    bool deep, is_schema, wedlm;
    struct qn_model_params model;
    struct cli_strings folders;
};

static bool watch(void *arg, uint64_t done, uint64_t total)
{
    struct progress *p = arg;
    p->total = total;
    progress_update(p, done);
    return true;
}

static void begin(struct progress *p, const char *what, const char *path)
{
    const char *slash = strrchr(path, '/');
    char label[300];
    snprintf(label, sizeof label, "%s %s", what, slash ? slash + 1 : path);
    progress_begin(p, label, "B", 0);
}

/* Computes the SHA-256 of each file. For a model in one file, a line is put into `one`; for several files, one
 * is printed for each. */
static int print_hashes(const struct weights *w, char one[80], struct qn_error *e)
{
    struct progress p;
    const struct model_files *f = weights_files(w);
    char hex[2 * SHA256_BYTES + 1], name[4 * PATH_MAX];
    int rc = 0;
    for (size_t i = 0; i < f->n && !rc; i++) {
        uint8_t hash[SHA256_BYTES];
        begin(&p, "hashing", f->file[i].path);
        rc = hashes_make(hash, f->file[i].path, watch, &p, e);
        progress_end(&p);
        if (rc) break;
        sha256_hex(hash, hex);
        if (f->n == 1) {
            snprintf(one, 80, "\n    sha256 %s", hex);
            break;
        }
        error_clean(name, sizeof name, f->file[i].path);
        printf("%s: sha256 %s\n", name, hex);
    }
    return rc;
}

static int check_file(const char *path, const struct check *o)
{
    struct qn_error e = {0};
    struct weights *w = NULL;
    char name[4 * PATH_MAX], hash[80] = "", size[32];
    struct progress p;
    begin(&p, "reading", path);
    int rc = check_model(&w, path, o->deep, o->model.pre, watch, &p, &e);
    progress_end(&p);
    if (rc) return cli_fail(&e);
    if (o->deep && print_hashes(w, hash, &e)) {
        weights_close(w);
        return cli_fail(&e);
    }
    error_clean(name, sizeof name, path);
    columns_size(weights_file_bytes(w), size);
    char what[160];
    snprintf(what, sizeof what, "(%zu tensors, %zu metadata keys, %s)", weights_n_tensors(w), weights_n_meta(w), size);
    bool is_wide = isatty(STDOUT_FILENO) && columns_width(name) + 5 + strlen(what) > (size_t)term_width(STDOUT_FILENO);
    printf("%s: ok%s%s%s\n", name, is_wide ? "\n    " : " ", what, hash);
    weights_close(w);
    return 0;
}

static int check_one_schema(const char *path)
{
    struct qn_error e = {0};
    struct buf example = {0};
    char name[4 * PATH_MAX], shown[2048];
    if (check_schema(path, &example, &e)) return cli_fail(&e);
    error_clean(name, sizeof name, path);
    bool is_shown = example.len && !buf_add(&example, "", 1, NULL);
    if (is_shown) error_clean(shown, sizeof shown, (char *)example.data);
    printf("%s: ok%s%s\n", name, is_shown ? ", for example " : "", is_shown ? shown : "");
    buf_deinit(&example);
    return 0;
}

static void init(void *options) { qn_model_params_init(&((struct check *)options)->model); }

static int run(struct invocation *v)
{
    const struct check *o = v->options;
    int status = 0;
    if (o->is_schema && o->wedlm) return cli_usage("check: --schema excludes --wedlm");
    /* All files are checked. The status is that of the first bad one. */
    for (int i = 0; i < v->n; i++) {
        int bad = o->is_schema ? 0 : operand_model(v, i, &o->folders);
        if (!bad) bad = o->is_schema ? check_one_schema(v->operand[i]) : check_file(v->operand[i], o);
        if (!bad && o->wedlm) bad = check_wedlm(v->operand[i], &o->model);
        if (!status) status = bad;
    }
    return status;
}

static const struct opt opts[] = {
    {"deep", 0, OPT_FLAG, offsetof(struct check, deep), NULL,
     "read all data too: refuse NaN and infinity, print the SHA-256"},
    {"schema", 0, OPT_FLAG, offsetof(struct check, is_schema), NULL,
     "the files are JSON Schemas: can an answer follow them? Print an example", .rare = true},
    {"wedlm", 0, OPT_FLAG, offsetof(struct check, wedlm), NULL,
     "load the model too, and try which token behaves like the mask of a WeDLM: is it the one that the file names?",
     .rare = true},
    {0},
};

static const struct opt_group groups[] = {{"Options", opts},
                                          {"Model file", opts_model, offsetof(struct check, model), .rare = true},
                                          OPERAND_GROUP(offsetof(struct check, folders)),
                                          {0}};

static const struct example examples[] = {
    {"quern check ~/models/*.gguf", "Are they all sound?"},
    {"quern check --deep download.gguf && mv download.gguf ~/models", "Keep a file only if it is"},
    {"quern check --schema person.json", "Which keyword of my schema is not supported?"},
    {0},
};

const struct command command_check = {
    .name = "check",
    .operands = "[--deep|--schema] FILE...",
    .brief = "check that a model file is sound",
    .about = "Runs every check that loading a model runs, without loading it: file format, hyper-parameters, "
             "tokenizer, shapes of tensors.\n\n"
             "Prints one line per file: on standard output if the file is sound, on standard error if not. --deep "
             "reads all tensor data too, and prints and remembers the SHA-256 of each file, so that a daemon does not "
             "have to compute it again. The exit status is that of the first file that is not sound. --schema checks "
             "JSON Schemas instead, and says "
             "which part of them no answer can be made to follow.",
    .min = 1,
    .max = -1,
    .words = WORDS_MODEL,
    .examples = examples,
    .rank = RANK_RARE,
    .groups = groups,
    .size = sizeof(struct check),
    .init = init,
    .run = run,
};
