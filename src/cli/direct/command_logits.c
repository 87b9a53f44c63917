/* SPDX-License-Identifier: MIT
 *
 * command_logits.c: `quern logits`: writes the raw logits of given tokens, to compare engines and paths.
 *
 * The output is little-endian f32 [position][vocab] for every K-th position. It is written under a temporary name and
 * renamed when it is complete.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/error.h"
#include "base/out_file.h"
#include "base/mem.h"
#include "cli/core/cli.h"
#include "cli/core/commands.h"
#include "cli/place/operand.h"
#include "engine/engine.h"

struct sink {
    struct out_file file;
    size_t bytes;
};

static int write_row(void *arg, const float *logits, struct qn_error *e)
{
    struct sink *s = arg;
    return out_file_write(&s->file, logits, s->bytes, e);
}

/* Parses numbers that are separated by white space or commas; text[n] is a NUL. */
static int parse_ids(const char *text, size_t n, qn_token **ids, size_t *n_ids)
{
    qn_token *v = cli_alloc(n / 2 + 1, sizeof *v);
    *n_ids = 0;
    for (const char *p = text;;) {
        char *end;
        p += strspn(p, " \t\r\n,");
        if (p == text + n) break;
        errno = 0;
        long id = strtol(p, &end, 10);
        bool ends = strchr(" \t\r\n,", *end) != NULL; /* also true for the NUL */
        if (end == p || !isdigit((unsigned char)*p) || !ends || errno || id > INT32_MAX) {
            cli_free(v);
            return cli_usage("logits: '%.20s' at byte %zu is not a token id", p, (size_t)(p - text));
        }
        v[(*n_ids)++] = (qn_token)id;
        p = end;
    }
    if (*n_ids == 0) {
        cli_free(v);
        return cli_usage("logits: no token ids given (--ids or --ids-file)");
    }
    *ids = v;
    return 0;
}

static int read_ids(const char *ids, const char *path, qn_token **out, size_t *n)
{
    char *text;
    size_t len;
    if (ids) return parse_ids(ids, strlen(ids), out, n);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        fprintf(stderr, "quern: cannot open '%s': %s\n", path, strerror(errno));
        return EX_NOINPUT;
    }
    int rc = cli_read_all(fd, path, CLI_MAX_INPUT, &text, &len);
    close(fd);
    if (rc) return rc;
    rc = parse_ids(text, len, out, n);
    cli_free(text);
    return rc;
}

/* Removes the incomplete file and ends the program by the signal. */
static void on_signal(int sig)
{
    if (cli_unfinished) unlink(cli_unfinished);
    signal(sig, SIG_DFL);
    raise(sig);
}

/* Takes memory for the logits of one batch from the engine's budget. */
static int take_scratch(struct qn_engine *g, int every, size_t row_bytes, float **scratch, size_t *bytes,
                        struct qn_error *e)
{
    size_t n = ((size_t)g->n_batch / (size_t)every + 1) * row_bytes;
    int rc = ledger_take(&g->ledger, n, "the logits of a batch", e);
    if (rc) return rc;
    *scratch = mem_alloc(n);
    if (!*scratch) {
        ledger_give(&g->ledger, n);
        return error_nomem(e, "the logits of a batch", n);
    }
    *bytes = n;
    return 0;
}

static int write_logits(const char *path, const struct qn_model_params *file, struct qn_engine_params *p,
                        const qn_token *ids, size_t n, int every, const char *out)
{
    struct qn_error e = {0};
    qn_model *m = NULL;
    qn_engine *g = NULL;
    struct kv_seq mem = {0};
    struct sink sink = {0};
    float *scratch = NULL;
    size_t scratch_bytes = 0;
    int rc;
    if (p->n_ctx == 0) p->n_ctx = (int)n;
    if ((rc = qn_model_open_with(&m, path, file, &e))) goto done;
    if ((rc = qn_engine_new(&g, m, p, &e))) goto done;
    if ((rc = kv_seq_init(&mem, g->kv, g->n_ctx, &e))) goto done;
    sink.bytes = (size_t)qn_model_n_vocab(m) * sizeof(float);
    if ((rc = take_scratch(g, every, sink.bytes, &scratch, &scratch_bytes, &e))) goto done;
    if ((rc = out_file_open(&sink.file, out, &e))) goto done;
    cli_unfinished = sink.file.temp;
    rc = engine_append_all(g, &mem, ids, n, every, scratch, write_row, &sink, &e);
    if (!rc) rc = out_file_commit(&sink.file, &e);
done:
    cli_unfinished = NULL;
    if (rc) rc = cli_fail(&e);
    out_file_abort(&sink.file);
    mem_free(scratch);
    kv_seq_deinit(&mem);
    if (g) ledger_give(&g->ledger, scratch_bytes);
    qn_engine_free(g);
    qn_model_close(m);
    return rc;
}

struct logits {
    struct qn_engine_params engine;
    struct qn_model_params model;
    const char *ids, *ids_file, *out;
    int every;
    struct cli_strings folders;
};

static void init(void *options)
{
    struct logits *o = options;
    o->every = 1;
    qn_engine_params_init(&o->engine);
    qn_model_params_init(&o->model);
}

static int run(struct invocation *v)
{
    struct logits *o = v->options;
    qn_token *ids;
    size_t n;
    int rc;
    if (!o->ids == !o->ids_file) return cli_usage("logits: give either --ids or --ids-file");
    if (!o->out || !strcmp(o->out, "-")) return cli_usage("logits: there is no -o FILE (a regular file)");
    for (const int *sig = (const int[]){SIGINT, SIGTERM, SIGHUP, 0}; *sig; sig++)
        if (signal(*sig, on_signal) == SIG_IGN) signal(*sig, SIG_IGN); /* a signal that nohup ignores stays ignored */
    if ((rc = operand_model(v, 0, &o->folders))) return rc;
    if ((rc = read_ids(o->ids, o->ids_file, &ids, &n))) return rc;
    rc = write_logits(v->operand[0], &o->model, &o->engine, ids, n, o->every, o->out);
    cli_free(ids);
    return rc;
}

#define AT(field) offsetof(struct logits, field)
static const struct opt opts[] = {
    {"ids", 0, OPT_STRING, AT(ids), "IDS", "token ids, separated by spaces or commas"},
    {"ids-file", 0, OPT_STRING, AT(ids_file), "FILE", "the same from a file", .words = WORDS_FILE},
    {"every", 0, OPT_INT, AT(every), "K", "write positions 0, K, 2K, ... (default 1)", 1, INT32_MAX},
    {"output", 'o', OPT_STRING, AT(out), "FILE", "output file: raw little-endian f32 [position][vocab]",
     .words = WORDS_FILE},
    {"batch", 0, OPT_INT, AT(engine.n_batch), "N", "rows in one forward pass (default 512)", 1, 65536},
    {"ctx", 0, OPT_INT, AT(engine.n_ctx), "N", "tokens of context (default: as many as there are ids)", 1, 1 << 28},
    {0},
};

static const struct opt_group groups[] = {{"Options", opts},
                                          {"Engine", opts_engine, AT(engine)},
                                          {"Model file", opts_model, AT(model), .rare = true},
                                          OPERAND_GROUP(AT(folders)),
                                          {0}};

static const struct example examples[] = {
    {"quern logits m.gguf --ids \"1 306 4658\" -o a.f32", "The logits after each of three tokens"},
    {"quern logits m.gguf --ids-file ids --every 16 -o t.f32",
     "Every 16th position of a text, from the ids of quern tokenize"},
    {0},
};

const struct command command_logits = {
    .name = "logits",
    .operands = "MODEL (--ids IDS | --ids-file FILE) -o FILE [OPTIONS]",
    .brief = "write the logits of every position to a file",
    .about = "Evaluates token ids and writes the raw logits of their positions to a file, to compare engines, settings "
             "and machines.\n\n"
             "The file has little-endian 32-bit floats, one row of the vocabulary's size for each position. It appears "
             "when it is complete. The same ids give the same bytes, whatever --threads, --batch and --cpu are.",
    .min = 1,
    .max = 1,
    .words = WORDS_MODEL,
    .examples = examples,
    .rank = RANK_RARE,
    .groups = groups,
    .size = sizeof(struct logits),
    .init = init,
    .run = run,
};
