/* SPDX-License-Identifier: MIT
 *
 * command_run.c: `quern run`: continues a text. Of the engine it knows only quern.h.
 *
 * The prompt is standard input (if that is a file or a pipe), then the PROMPT argument. Standard output is the answer
 * while it arrives, and nothing else. On a terminal control characters are shown as \xNN.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "cli/core/cli.h"
#include "cli/core/commands.h"
#include "cli/core/progress.h"
#include "cli/core/render.h"
#include "cli/direct/run_receipt.h"
#include "cli/direct/run_scheduled.h"
#include "cli/place/operand.h"
#include "cli/place/stage_hosts.h"

struct run_options {
    int n_predict;
    bool greedy, raw, special;
    struct qn_sampling sampling;
    struct qn_engine_params engine;
    struct qn_model_params model;
    struct draft_options draft;
    enum qn_draft how; /* what they mean */
    struct cli_strings stop, bias, folders;
    struct qn_logit_bias *biases;
    struct receipt_options receipt;
    struct stage_hosts hosts;
};

/* What continues the text: a session, or a scheduler if the model is on several hosts or fills windows of masks. */
struct run_engine {
    struct group *group; /* NULL: no hosts */
    qn_model *model, *drafter;
    qn_engine *engine;
    qn_scheduler *scheduler; /* NULL: a session is made */
};

/* Parses the values of --logit-bias, "ID=BIAS". */
static int parse_biases(struct run_options *r)
{
    for (size_t i = 0; i < r->bias.n; i++) {
        char *end;
        long id = strtol(r->bias.v[i], &end, 10);
        if (end == r->bias.v[i] || *end != '=' || id < 0 || id > INT32_MAX)
            return cli_usage("--logit-bias: '%s' is not ID=BIAS", r->bias.v[i]);
        const char *value = end + 1;
        r->biases[i] = (struct qn_logit_bias){(qn_token)id, strtof(value, &end)};
        if (end == value || *end) return cli_usage("--logit-bias: '%s' is not ID=BIAS", r->bias.v[i]);
    }
    r->sampling.logit_bias = r->biases;
    r->sampling.n_logit_bias = r->bias.n;
    return 0;
}

/* Reads the prompt: standard input if something is connected to it, then the argument. */
static int read_prompt(const char *arg, char **prompt, size_t *n)
{
    char *in = NULL;
    size_t len = 0, arg_len = arg ? strlen(arg) : 0;
    if (!arg || cli_has_stdin()) {
        int rc = cli_read_all(STDIN_FILENO, "standard input", CLI_MAX_INPUT, &in, &len);
        if (rc) return rc;
    }
    char *p = cli_alloc(len + arg_len + 1, 1);
    if (len) memcpy(p, in, len);
    if (arg) memcpy(p + len, arg, arg_len);
    cli_free(in);
    *prompt = p;
    *n = len + arg_len;
    return 0;
}

/* Where the answer goes. */
struct out {
    bool shown; /* on a terminal */
    int status; /* the exit status; EX_OK also if the reader left */
};

/* Writes a piece of the answer, which has whole characters: to a file or a pipe as it is, to a terminal without what
 * it would act on. Returns false if that failed. */
static bool put(void *arg, const char *bytes, size_t n)
{
    struct out *to = arg;
    struct buf clean = {0};
    struct qn_error e;
    bool done = true;
    if (n && to->shown && render_clean(&clean, bytes, n, &e)) {
        to->status = cli_fail(&e);
        done = false;
    } else if (to->shown ? cli_write(clean.data, clean.len) : cli_write(bytes, n)) {
        to->status = cli_write_status();
        done = false;
    }
    buf_deinit(&clean);
    return done;
}

static void say_full(const qn_engine *g)
{
    fprintf(stderr, "quern: stopped: the context of %d tokens is full\n", qn_engine_n_ctx(g));
}

/* Writes the answer, token by token, until the model ends it, a stop string comes, or the context is full. */
static int stream(const struct run_options *r, const qn_model *m, qn_engine *g, qn_session *s, qn_text *text,
                  struct qn_error *e)
{
    const qn_token *all;
    const char *bytes;
    size_t n;
    bool stopped = false;
    struct out to = {isatty(STDOUT_FILENO), EX_OK};
    for (int i = 0; (r->n_predict < 0 || i < r->n_predict) && !stopped; i++) {
        qn_token t;
        if (qn_session_tokens(s, &all) == (size_t)qn_engine_n_ctx(g)) {
            say_full(g);
            break;
        }
        if (qn_session_step(s, &t, e)) return cli_fail(e);
        if (qn_model_is_eog(m, t)) break;
        if (qn_text_push(text, t, &bytes, &n, &stopped, e)) return cli_fail(e);
        if (!put(&to, bytes, n)) return to.status;
    }
    if (qn_text_end(text, &bytes, &n, e)) return cli_fail(e);
    if (!put(&to, bytes, n)) return to.status;
    if (to.shown) put(&to, "\n", 1);
    return to.status;
}

/* The same through a scheduler. */
static int schedule(const struct run_options *r, const struct run_engine *x, const qn_token *prompt, size_t n,
                    bool continues, struct qn_error *e)
{
    struct out to = {isatty(STDOUT_FILENO), EX_OK};
    bool is_full = r->n_predict != 0 && n == (size_t)qn_engine_n_ctx(x->engine);
    const struct run_scheduled w = {.prompt = prompt,
                                    .n_prompt = n,
                                    .continues = continues,
                                    .sampling = r->sampling,
                                    .draft = r->how,
                                    .max_tokens = r->n_predict,
                                    .stop = (const char *const *)r->stop.v,
                                    .n_stop = r->stop.n,
                                    .put = put,
                                    .arg = &to};
    if (!is_full && run_scheduled(x->scheduler, &w, &is_full, e)) return cli_fail(e);
    if (is_full) say_full(x->engine);
    if (to.shown && to.status == EX_OK) put(&to, "\n", 1);
    return to.status;
}

/* Turns the prompt into tokens. A prompt that cannot fit is refused before any work is done. */
static int tokenize(const struct run_options *r, const qn_model *m, const qn_engine *g, const char *prompt, size_t n,
                    qn_token **ids, size_t *n_ids, struct qn_error *e)
{
    int n_ctx = qn_engine_n_ctx(g);
    if (n_ctx > qn_model_n_ctx_train(m))
        fprintf(stderr, "quern: warning: a context of %d tokens; the model was trained with %d\n", n_ctx,
                qn_model_n_ctx_train(m));
    if (n > qn_model_max_text(m, n_ctx)) {
        snprintf(e->msg, sizeof e->msg, "run: a prompt of %zu bytes cannot fit a context of %d tokens", n, n_ctx);
        return e->code = QN_EFULL;
    }
    return qn_tokenize(m, prompt, n, QN_ADD_BOS | (r->special ? QN_PARSE_SPECIAL : 0), NULL, ids, n_ids, e);
}

/* Says who guesses tokens. *model: the draft model, for qn_model_close(). */
static int set_draft(const struct run_options *r, qn_session *s, const char *path, qn_model **model, struct qn_error *e)
{
    int rc = path ? qn_model_open(model, path, e) : 0;
    return rc ? rc : qn_session_set_draft(s, r->how, *model, e);
}

/* Writes the receipt of the answer, if that was asked for. */
static int keep_receipt(const struct run_options *r, struct run_answer *a)
{
    a->pre = r->model.pre;
    a->kv = r->engine.kv;
    a->sampling = r->sampling;
    a->max_tokens = r->n_predict;
    a->stop = (const char *const *)r->stop.v;
    a->n_stop = r->stop.n;
    return run_receipt_write(&r->receipt, a);
}

/* A session continues the prompt. */
static int continue_prompt(const struct run_options *r, const char *path, const char *draft, const qn_model *m,
                           qn_engine *g, const qn_token *ids, size_t n, bool continues, struct qn_error *e)
{
    qn_model *drafter = NULL;
    qn_session *s = NULL;
    qn_text *text = NULL;
    int rc;
    if (qn_session_new(&s, g, &r->sampling, e) || set_draft(r, s, draft, &drafter, e) ||
        qn_text_new(&text, m, continues, (const char *const *)r->stop.v, r->stop.n, e) ||
        qn_session_sync(s, ids, n, NULL, e))
        rc = cli_fail(e);
    else
        rc = stream(r, m, g, s, text, e);
    if (!rc && r->receipt.path)
        rc = keep_receipt(r, &(struct run_answer){.path = path,
                                                  .model = m,
                                                  .engine = g,
                                                  .session = s,
                                                  .text = text,
                                                  .n_prompt = n,
                                                  .continues = continues});
    qn_text_free(text);
    qn_session_free(s);
    qn_model_close(drafter);
    return rc;
}

/* Opens the model and makes what continues the text. The hosts come first, while there is one thread. */
static int open_engine(struct run_engine *x, const struct run_options *r, const char *path, const char *draft,
                       struct qn_error *e)
{
    struct qn_scheduler_params s;
    bool has_hosts = stage_hosts_are_named(&r->hosts);
    int rc = stage_hosts_start(&x->group, &r->hosts, path, &r->engine, false, e);
    if (!rc) rc = qn_model_open_with(&x->model, path, &r->model, e);
    if (!rc && !has_hosts && r->how != QN_DRAFT_WEDLM) return qn_engine_new(&x->engine, x->model, &r->engine, e);
    if (!rc && draft) rc = qn_model_open(&x->drafter, draft, e);
    qn_scheduler_params_init(&s);
    s.n_running = 1;
    s.draft = r->how;
    s.draft_model = x->drafter;
    s.wedlm = r->draft.wedlm;
    if (!rc && has_hosts) progress_note("starting the hosts");
    if (!rc) rc = stage_hosts_engine(x->group, &x->engine, &x->scheduler, x->model, &r->engine, &s, e);
    if (has_hosts) progress_note("%s", "");
    return rc;
}

static void close_engine(struct run_engine *x)
{
    qn_scheduler_free(x->scheduler);
    qn_engine_free(x->engine);
    qn_model_close(x->drafter);
    qn_model_close(x->model);
    stage_hosts_end(x->group);
}

static int answer(const struct run_options *r, const char *path, const char *draft, const char *prompt,
                  size_t prompt_len)
{
    struct qn_error e = {0};
    struct run_engine x = {0};
    qn_token *ids = NULL;
    size_t n = 0;
    int rc = EX_OK;
    if (open_engine(&x, r, path, draft, &e) || tokenize(r, x.model, x.engine, prompt, prompt_len, &ids, &n, &e))
        rc = cli_fail(&e);
    else if (x.scheduler)
        rc = schedule(r, &x, ids, n, prompt_len > 0, &e);
    else
        rc = continue_prompt(r, path, draft, x.model, x.engine, ids, n, prompt_len > 0, &e);
    qn_free(ids);
    close_engine(&x);
    return rc;
}

static void init(void *options)
{
    struct run_options *r = options;
    r->n_predict = -1;
    qn_sampling_init(&r->sampling);
    r->sampling.seed = qn_random_seed();
    qn_engine_params_init(&r->engine);
    qn_model_params_init(&r->model);
    draft_options_init(&r->draft);
}

static int run(struct invocation *v)
{
    struct run_options *r = v->options;
    char *prompt = NULL, *draft = NULL;
    struct qn_error e = {0};
    size_t n;
    int rc;
    if ((rc = receipt_file_check("run", &r->receipt, false)) || (rc = stage_hosts_check(&r->hosts, "run"))) return rc;
    if (stage_hosts_are_named(&r->hosts) && r->receipt.path)
        return cli_usage("run: --receipt excludes --hosts; quern ask has both");
    if (r->greedy) r->sampling.temperature = 0;
    if (operand_draft(&draft, &r->how, &r->draft, &r->folders, &e)) return cli_fail(&e);
    if (r->how != QN_DRAFT_WEDLM && draft_options_say_windows(&r->draft))
        return cli_usage("run: --window, --wedlm-verify and the like are for --decoder wedlm");
    if (r->how == QN_DRAFT_WEDLM && r->receipt.path)
        return cli_usage("run: --receipt excludes --decoder wedlm; quern ask has both");
    r->how = stage_hosts_draft(&r->hosts, r->how, draft);
    r->biases = cli_alloc(r->bias.n, sizeof *r->biases);
    if (!(rc = operand_model(v, 0, &r->folders)) && !(rc = parse_biases(r)) &&
        !(rc = read_prompt(v->n == 2 ? v->operand[1] : NULL, &prompt, &n)))
        rc = answer(r, v->operand[0], draft, prompt, n);
    cli_free(draft);
    cli_free(prompt);
    cli_free(r->biases);
    return rc;
}

#define AT(field) offsetof(struct run_options, field)
static const struct opt opts[] = {
    {"predict", 'n', OPT_INT, AT(n_predict), "N", "at most N tokens; -1: until the model ends (default)", -1,
     INT32_MAX},
    {"greedy", 0, OPT_FLAG, AT(greedy), NULL, "always the most likely token (temperature 0)"},
    {"raw", 0, OPT_FLAG, AT(raw), NULL, "use the prompt without a chat template (the only mode so far)", .rare = true},
    {"special", 0, OPT_FLAG, AT(special), NULL, "read control tokens in the text of the prompt", .rare = true},
    {"stop", 0, OPT_STRINGS, AT(stop), "TEXT", "end before this text; may be repeated"},
    {"logit-bias", 0, OPT_STRINGS, AT(bias), "ID=X", "add X to a token's logit (-inf bans it); may be repeated",
     .rare = true},
    {0},
};

static const struct opt_group groups[] = {
    {"Options", opts},
    {"Receipt", opts_receipt, AT(receipt), .rare = true},
    {"Sampling", opts_sampling, AT(sampling)},
    {"Engine", opts_engine, AT(engine)},
    {"Context", opts_context, AT(engine)},
    {"Drafts", opts_draft, AT(draft), .rare = true},
    {"Model file", opts_model, AT(model), .rare = true},
    {"Several hosts", opts_stage_hosts, AT(hosts), .rare = true},
    OPERAND_GROUP(AT(folders)),
    {0},
};

static const struct example examples[] = {
    {"quern run story.gguf \"Once upon a time\"", "Continue a text, with another answer each time"},
    {"quern run story.gguf --greedy -n 50 < beginning.txt", "The most likely 50 tokens after a file"},
    {"echo \"def fib(n):\" | quern run code.gguf --seed 1 --stop \"def \"",
     "One function, and the same one every time"},
    {0},
};

const struct command command_run = {
    .name = "run",
    .operands = "MODEL [OPTIONS] [PROMPT]",
    .brief = "continue a text: load, answer, exit",
    .about = "Continues a text with a model, in this process, and exits. The prompt is standard input if that is a "
             "pipe or a file, then PROMPT.\n\n"
             "MODEL is a GGUF file, or a folder with config.json, tokenizer.json and safetensors files, as models are "
             "published.\n\n"
             "Standard output has what the model writes and nothing else, token by token. The text ends where the "
             "model ends it, before a --stop text, after --predict tokens, or when the context is full; in the last "
             "case there is a message on standard error. With the same model, prompt and --seed the bytes are the "
             "same, whatever the number of threads and the instruction set.\n\n"
             "The text is continued as it is, without a chat template: this is for base models, for scripts and for "
             "tests.",
    .min = 1,
    .max = 2,
    .words = WORDS_MODEL,
    .examples = examples,
    .groups = groups,
    .size = sizeof(struct run_options),
    .init = init,
    .run = run,
};
