/* SPDX-License-Identifier: MIT
 *
 * run.c: `quern run`: continues a text. Written with quern.h alone.
 *
 * The prompt is standard input (when it is a file or a pipe), the PROMPT argument, or both, in
 * this order. Standard output is the answer, as it comes, and nothing else.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "cli/cli.h"

struct run {
    int n_predict;
    bool greedy, raw, special;
    struct qn_sampling sampling;
    struct qn_engine_params engine;
    const char *kv;
    struct cli_strings stop, bias;
    struct qn_logit_bias *biases;
};

/* "ID=BIAS" */
static int parse_biases(struct run *r)
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

/* Standard input, when something was really connected to it, then the argument. */
static int read_prompt(const char *arg, char **prompt, size_t *n)
{
    struct stat st;
    char *in = NULL;
    size_t len = 0, arg_len = arg ? strlen(arg) : 0;
    bool connected =
        fstat(STDIN_FILENO, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode));
    if (!arg || connected) {
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

/* The answer, token by token, until the model ends it, a stop string comes, or there is no room. */
static int stream(const struct run *r, const qn_model *m, qn_engine *g, qn_session *s, qn_text *text,
                  struct qn_error *e)
{
    const qn_token *all;
    const char *bytes;
    size_t n;
    bool stopped = false;
    for (int i = 0; (r->n_predict < 0 || i < r->n_predict) && !stopped; i++) {
        qn_token t;
        if (qn_session_tokens(s, &all) == (size_t)qn_engine_n_ctx(g)) {
            fprintf(stderr, "quern: stopped: the context of %d tokens is full\n", qn_engine_n_ctx(g));
            break;
        }
        if (qn_session_step(s, &t, e)) return cli_fail(e);
        if (qn_model_is_eog(m, t)) break;
        if (qn_text_push(text, t, &bytes, &n, &stopped, e)) return cli_fail(e);
        if (cli_write(bytes, n)) return cli_write_status();
    }
    if (qn_text_end(text, &bytes, &n, e)) return cli_fail(e);
    if (cli_write(bytes, n)) return cli_write_status();
    if (isatty(STDOUT_FILENO) && cli_write("\n", 1)) return cli_write_status();
    return EX_OK;
}

/* The prompt's tokens; one that cannot fit is refused before any work is put into it. */
static int tokenize(const struct run *r, const qn_model *m, const qn_engine *g, const char *prompt, size_t n,
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
    return qn_tokenize(m, prompt, n, QN_ADD_BOS | (r->special ? QN_PARSE_SPECIAL : 0), ids, n_ids, e);
}

static int answer(const struct run *r, const char *path, const char *prompt, size_t prompt_len)
{
    struct qn_error e = {0};
    qn_model *m = NULL;
    qn_engine *g = NULL;
    qn_session *s = NULL;
    qn_text *text = NULL;
    qn_token *ids = NULL;
    size_t n = 0;
    int rc = EX_OK;
    if (qn_model_open(&m, path, &e) || qn_engine_new(&g, m, &r->engine, &e) ||
        qn_session_new(&s, g, &r->sampling, &e) || tokenize(r, m, g, prompt, prompt_len, &ids, &n, &e) ||
        qn_text_new(&text, m, prompt_len > 0, (const char *const *)r->stop.v, r->stop.n, &e) ||
        qn_session_sync(s, ids, n, NULL, &e))
        rc = cli_fail(&e);
    else
        rc = stream(r, m, g, s, text, &e);
    qn_free(ids);
    qn_text_free(text);
    qn_session_free(s);
    qn_engine_free(g);
    qn_model_close(m);
    return rc;
}

int cmd_run(int argc, char **argv)
{
    struct run r = {.n_predict = -1, .kv = "f16"};
    struct qn_sampling *p = &r.sampling;
    struct qn_engine_params *g = &r.engine;
    bool help;
    int first, rc;
    char *prompt = NULL;
    size_t n;
    qn_sampling_init(p);
    p->seed = qn_random_seed();
    qn_engine_params_init(g);
    r.stop.v = cli_alloc((size_t)argc, sizeof *r.stop.v);
    r.bias.v = cli_alloc((size_t)argc, sizeof *r.bias.v);
    r.biases = cli_alloc((size_t)argc, sizeof *r.biases);
    const struct opt opts[] = {
        {"predict", 'n', OPT_INT, &r.n_predict, "N", "tokens at most; -1: until the model ends (default)", -1,
         INT32_MAX},
        {"greedy", 0, OPT_FLAG, &r.greedy, NULL, "always the most likely token (temperature 0)", 0, 0},
        {"raw", 0, OPT_FLAG, &r.raw, NULL, "the prompt as it is, without a chat template (the only mode so far)", 0, 0},
        {"special", 0, OPT_FLAG, &r.special, NULL, "control tokens written out in the prompt mean these tokens", 0, 0},
        {"seed", 0, OPT_U64, &p->seed, "N", "the same seed gives the same answer (default: a new one each time)", 0, 0},
        {"temperature", 0, OPT_FLOAT, &p->temperature, "X", "0: greedy (default 0.8)", 0, 0},
        {"top-k", 0, OPT_INT, &p->top_k, "N", "keep the N most likely tokens; 0: off (default 40)", 0, INT32_MAX},
        {"top-p", 0, OPT_FLOAT, &p->top_p, "X", "keep the likeliest with probability X in sum; 1: off (default 0.95)",
         0, 0},
        {"min-p", 0, OPT_FLOAT, &p->min_p, "X", "drop tokens below X times the best; 0: off (default 0.05)", 0, 0},
        {"typical-p", 0, OPT_FLOAT, &p->typical_p, "X", "locally typical sampling; 1: off (default)", 0, 0},
        {"top-n-sigma", 0, OPT_FLOAT, &p->top_n_sigma, "X",
         "keep logits within X deviations of the best; 0: off (default)", 0, 0},
        {"repetition-penalty", 0, OPT_FLOAT, &p->repetition_penalty, "X", "1: off (default)", 0, 0},
        {"presence-penalty", 0, OPT_FLOAT, &p->presence_penalty, "X", "0: off (default)", 0, 0},
        {"frequency-penalty", 0, OPT_FLOAT, &p->frequency_penalty, "X", "0: off (default)", 0, 0},
        {"penalty-last-n", 0, OPT_INT, &p->penalty_last_n, "N", "tokens the penalties look back; -1: all (default 64)",
         -1, INT32_MAX},
        {"dry-multiplier", 0, OPT_FLOAT, &p->dry_multiplier, "X", "against repeated sequences; 0: off (default)", 0, 0},
        {"dry-base", 0, OPT_FLOAT, &p->dry_base, "X", "growth per repeated token (default 1.75)", 0, 0},
        {"dry-allowed-length", 0, OPT_INT, &p->dry_allowed_length, "N", "repeats up to this long are free (default 2)",
         1, INT32_MAX},
        {"dry-last-n", 0, OPT_INT, &p->dry_last_n, "N", "tokens it looks back; -1: all (default)", -1, INT32_MAX},
        {"xtc-probability", 0, OPT_FLOAT, &p->xtc_probability, "X",
         "how often to drop the top choices; 0: off (default)", 0, 0},
        {"xtc-threshold", 0, OPT_FLOAT, &p->xtc_threshold, "X", "what counts as a top choice (default 0.1)", 0, 0},
        {"mirostat-tau", 0, OPT_FLOAT, &p->mirostat_tau, "X", "mirostat v2 target surprise; 0: off (default)", 0, 0},
        {"mirostat-eta", 0, OPT_FLOAT, &p->mirostat_eta, "X", "mirostat v2 learning rate (default 0.1)", 0, 0},
        {"logit-bias", 0, OPT_STRINGS, &r.bias, "ID=X", "add X to a token's logit (-inf bans it); may be repeated", 0,
         0},
        {"stop", 0, OPT_STRINGS, &r.stop, "TEXT", "end before this text; may be repeated", 0, 0},
        {"kv", 0, OPT_STRING, &r.kv, "TYPE", "keys and values as f32, f16 (default) or q8_0", 0, 0},
        {"ctx", 0, OPT_INT, &g->n_ctx, "N", "tokens of context (default: the model's, at most 4096)", 1, 1 << 28},
        {"batch", 0, OPT_INT, &g->n_batch, "N", "most rows in one forward pass (default 512)", 1, 65536},
        {"threads", 0, OPT_INT, &g->n_threads, "N", "threads (default: the CPUs this process may use)", 1, 1024},
        {"cpu", 0, OPT_STRING, &g->cpu, "LEVEL", CLI_CPU_HELP, 0, 0},
        {"memory", 0, OPT_SIZE, &g->memory_bytes, "BYTES", "memory budget, such as 6G (default: what is available)", 0,
         0},
        {"mlock", 0, OPT_FLAG, &g->lock_weights, NULL, "weights stay in memory, as many as the budget has room for", 0,
         0},
        {0},
    };
    rc = cli_parse(
        argc, argv,
        "run MODEL [OPTIONS] [PROMPT]\n\nThe prompt is standard input when that is a pipe or a file, then PROMPT.",
        opts, &first, &help);
    if (rc || help) goto done;
    if (argc - first < 1 || argc - first > 2) {
        rc = cli_usage("run: one MODEL and at most one PROMPT (see quern run --help)");
        goto done;
    }
    if (r.greedy) p->temperature = 0;
    if ((rc = cli_parse_kv(r.kv, &g->kv)) || (rc = parse_biases(&r))) goto done;
    if ((rc = read_prompt(argc - first == 2 ? argv[first + 1] : NULL, &prompt, &n))) goto done;
    rc = answer(&r, argv[first], prompt, n);
done:
    cli_free(prompt);
    cli_free(r.stop.v);
    cli_free(r.bias.v);
    cli_free(r.biases);
    return rc;
}
