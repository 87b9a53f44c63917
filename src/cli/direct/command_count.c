/* SPDX-License-Identifier: MIT
 *
 * command_count.c: `quern count [FILE...]`: counts the tokens of texts, as wc counts words.
 *
 * Only the metadata of the model file is read. A text is counted as a user's text: what looks like a special token in
 * it is text, and no token is added.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/core/cli.h"
#include "cli/core/commands.h"
#include "cli/place/operand.h"
#include "text/token/vocab.h"

struct count {
    struct operand_choice which;
    struct qn_model_params model;
};

/* Counts one text; path: NULL for standard input. Returns 0 or an exit status, after a message. */
static int count_one(const struct vocab *v, const char *path, size_t *n_tokens)
{
    struct qn_error e = {0};
    qn_token *ids = NULL;
    char *text = NULL;
    size_t n;
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    if (fd < 0) {
        error_set(&e, errno == ENOENT ? QN_ENOINPUT : QN_EIO, "cannot read '%s': %s", path, strerror(errno));
        return cli_fail(&e);
    }
    int status = cli_read_all(fd, path ? path : "standard input", CLI_MAX_INPUT, &text, &n);
    if (path) close(fd);
    if (!status && vocab_encode(v, text, n, 0, &ids, n_tokens, &e)) status = cli_fail(&e);
    mem_free(ids);
    cli_free(text);
    return status;
}

static void print_line(size_t n, const char *path)
{
    char clean[4096];
    if (!path) {
        printf("%zu\n", n);
        return;
    }
    error_clean(clean, sizeof clean, path);
    printf("%zu %s\n", n, clean);
}

/* Counts all texts. One that fails does not stop the others; the first failure is the exit status. */
static int count_all(const struct invocation *v, const struct vocab *vocab)
{
    size_t n, all = 0;
    int status = 0;
    for (int i = 0; i < v->n || (!v->n && !i); i++) {
        const char *path = v->n && strcmp(v->operand[i], "-") ? v->operand[i] : NULL;
        int failed = count_one(vocab, path, &n);
        if (!status) status = failed;
        if (failed) continue;
        print_line(n, path);
        all += n;
    }
    if (v->n > 1) print_line(all, "total");
    return status;
}

static int run(struct invocation *v)
{
    const struct count *o = v->options;
    struct qn_error e = {0};
    struct weights *w = NULL;
    struct vocab *vocab = NULL;
    char *path = NULL;
    int status;
    if (operand_find(&path, &o->which.models, o->which.model, &e) || weights_open(&w, path, &e) ||
        vocab_load_with(&vocab, w, o->model.pre, &e))
        status = cli_fail(&e);
    else
        status = count_all(v, vocab);
    vocab_free(vocab);
    weights_close(w);
    mem_free(path);
    return status;
}

static const struct opt_group groups[] = {
    {"Options", opts_choice, offsetof(struct count, which), ""},
    {"Model file", opts_model, offsetof(struct count, model), .rare = true},
    {0},
};

static const struct example examples[] = {
    {"quern count *.txt", "The tokens of some files, and their sum"},
    {"git diff | quern count -m small", "Of a diff, for the model small"},
    {0},
};

const struct command command_count = {
    .name = "count",
    .operands = "[OPTIONS] [FILE...]",
    .brief = "count the tokens of texts",
    .about = "Writes how many tokens each file has for a model, and their sum if there are several. Without FILE, or "
             "for a FILE -, it is standard input. Only the beginning of the model file is read.\n\n"
             "The tokens that a chat template adds to a message are not counted; quern -v shows the number of a whole "
             "request.",
    .min = 0,
    .max = -1,
    .words = WORDS_FILE,
    .examples = examples,
    .rank = RANK_RARE,
    .groups = groups,
    .size = sizeof(struct count),
    .run = run,
};
