/* SPDX-License-Identifier: MIT
 *
 * command_check.c: `quern check FILE...`: says whether a model file is sound.
 *
 * It runs every check that loading runs (file format, hyper-parameters, tokenizer, tensor shapes) without loading.
 * With --deep it also reads all tensor data and looks for NaN and infinity. It prints one line per file: on stdout if
 * the file is sound, on stderr if not. Reading the data is optional because a file is usually much larger than its
 * header.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "base/error.h"
#include "cli/models/check_model.h"
#include "cli/core/cli.h"
#include "cli/core/commands.h"
#include "cli/place/hashes.h"
#include "format/file/model_files.h"
#include "model/load.h"

struct check {
    bool deep;
    struct qn_model_params model;
};

/* Computes the SHA-256 of each file. For a model in one file, the text is put into `one`; for several files, one
 * line is printed for each. */
static int print_hashes(const struct weights *w, char one[80], struct qn_error *e)
{
    const struct model_files *f = weights_files(w);
    char hex[2 * SHA256_BYTES + 1], name[4 * PATH_MAX];
    int rc = 0;
    for (size_t i = 0; i < f->n && !rc; i++) {
        uint8_t hash[SHA256_BYTES];
        if ((rc = hashes_make(hash, f->file[i].path, e))) break;
        sha256_hex(hash, hex);
        if (f->n == 1) {
            snprintf(one, 80, ", sha256 %s", hex);
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
    char name[4 * PATH_MAX], hash[80] = "";
    if (check_model(&w, path, o->deep, o->model.pre, &e)) return cli_fail(&e);
    if (o->deep && print_hashes(w, hash, &e)) {
        weights_close(w);
        return cli_fail(&e);
    }
    error_clean(name, sizeof name, path);
    printf("%s: ok (%zu tensors, %zu metadata keys, %" PRIu64 " bytes%s)\n", name, weights_n_tensors(w),
           weights_n_meta(w), weights_file_bytes(w), hash);
    weights_close(w);
    return 0;
}

static int run(struct invocation *v)
{
    const struct check *o = v->options;
    int status = 0;
    /* All files are checked. The status is that of the first bad one. */
    for (int i = 0; i < v->n; i++) {
        int bad = check_file(v->operand[i], o);
        if (!status) status = bad;
    }
    return status;
}

static const struct opt opts[] = {
    {"deep", 0, OPT_FLAG, offsetof(struct check, deep), NULL,
     "read all data too: refuse NaN and infinity, print the SHA-256"},
    {0},
};

static const struct opt_group groups[] = {
    {"Options", opts}, {"Model file", opts_model, offsetof(struct check, model), .rare = true}, {0}};

static const struct example examples[] = {
    {"quern check ~/models/*.gguf", "Are they all sound?"},
    {"quern check --deep download.gguf && mv download.gguf ~/models", "Keep a file only if it is"},
    {0},
};

const struct command command_check = {
    .name = "check",
    .operands = "[--deep] FILE...",
    .brief = "check that a model file is sound",
    .about = "Runs every check that loading a model runs, without loading it: file format, hyper-parameters, "
             "tokenizer, shapes of tensors.\n\n"
             "Prints one line per file: on standard output if the file is sound, on standard error if not. --deep "
             "reads all tensor data too, and prints and remembers the SHA-256 of each file, so that a daemon does not "
             "have to compute it again. The exit status is that of the first file that is not sound.",
    .min = 1,
    .max = -1,
    .words = WORDS_MODEL,
    .examples = examples,
    .rank = RANK_RARE,
    .groups = groups,
    .size = sizeof(struct check),
    .run = run,
};
