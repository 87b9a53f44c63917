/* SPDX-License-Identifier: MIT
 *
 * command_verify.c: `quern verify FILE...`: checks that answers are those that a model gives, by their receipts.
 *
 * The result of each receipt goes to standard output. A receipt that is damaged, or is not for this model, gets a
 * message on standard error, and the others are still checked.
 */
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/core/cli.h"
#include "cli/core/commands.h"
#include "cli/core/progress.h"
#include "cli/place/catalog.h"
#include "cli/place/hashes.h"
#include "cli/place/operand.h"
#include "model/arithmetic.h"
#include "receipt/model_proof.h"
#include "receipt/verify.h"

#define MOST_BYTES ((size_t)16 << 20) /* of a receipt: parsed, they take 75 times as much at most */
#define MOST_BAD   20                 /* texts in a row that are no receipts */
#define DIFFERS    1                  /* the exit status, as diff(1) has it */

struct verify_options {
    const char *model, *against, *prompt;
    bool replay;
    struct qn_engine_params engine;
    struct cli_strings folders;
};

/* A model that is open, for all receipts of it. */
struct verify_model {
    char *path, *pre; /* pre NULL: none */
    qn_model *model;
    qn_chat *chat;
    struct receipt_model proof; /* for --against without hashes of the files */
    bool has_warned;
};

struct verify_run {
    const struct verify_options *o;
    struct verify_model m;
    char *prompt; /* the text of --prompt; NULL: none */
    struct receipt_prompts prompts;
    const char *file;
    int number; /* of the receipt in the file; 0: it is the only one */
    int status;
};

/* Reads a file, or standard input for "-". Returns 0 or an exit status, after a message. */
static int read_file(const char *path, char **text, size_t *n)
{
    struct qn_error e;
    if (!strcmp(path, "-")) return cli_read_all(STDIN_FILENO, "standard input", CLI_MAX_INPUT, text, n);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        error_set(&e, QN_ENOINPUT, "cannot open '%s': %m", path);
        return cli_fail(&e);
    }
    int status = cli_read_all(fd, path, CLI_MAX_INPUT, text, n);
    close(fd);
    return status;
}

/* ---- messages ---- */

static void put_place(const struct verify_run *v, FILE *f)
{
    char name[512];
    error_clean(name, sizeof name, v->file);
    fprintf(f, "%s%s: ", f == stderr ? "quern: " : "", name);
    if (v->number) fprintf(f, "receipt %d: ", v->number);
}

/* Says that a receipt cannot be checked. The worst status of all receipts stays. */
static void refuse(struct verify_run *v, struct qn_error *e)
{
    static const int statuses[] = {
        [-QN_EDATA] = EX_DATAERR,    [-QN_EUSAGE] = EX_DATAERR,     [-QN_EFULL] = EX_DATAERR,
        [-QN_ENOINPUT] = EX_NOINPUT, [-QN_EUNSUP] = EX_UNAVAILABLE, [-QN_EIO] = EX_IOERR,
        [-QN_ENOMEM] = EX_TEMPFAIL,  [-QN_EBUSY] = EX_TEMPFAIL,     [-QN_ENUMERIC] = EX_UNAVAILABLE};
    int i = -e->code, status = i > 0 && i < (int)(sizeof statuses / sizeof *statuses) ? statuses[i] : 0;
    put_place(v, stderr);
    fprintf(stderr, "%s\n", e->msg);
    if (!status) status = EX_SOFTWARE;
    if (status > v->status) v->status = status;
}

/* The token, its text in quotes, and how probable it is. */
static void put_token(const struct verify_run *v, const char *label, qn_token t, double p)
{
    char *bytes = NULL, text[96] = "";
    size_t n = 0;
    if (t < 0) {
        printf("  %s  none\n", label);
        return;
    }
    if (!qn_token_bytes(v->m.model, t, true, &bytes, &n, NULL)) {
        char *copy = cli_alloc(n + 1, 1);
        if (n) memcpy(copy, bytes, n);
        error_clean(text, sizeof text, copy);
        cli_free(copy);
    }
    qn_free(bytes);
    if (p >= 0)
        printf("  %s  %d \"%s\", probability %.4g\n", label, t, text, p);
    else
        printf("  %s  %d \"%s\"\n", label, t, text);
}

static const char *end_text(enum receipt_end end)
{
    static const char *const texts[] = {
        [RECEIPT_GOES_ON] = "goes on",          [RECEIPT_TOKEN] = "ends with this token",
        [RECEIPT_TEXT] = "ends at a stop text", [RECEIPT_LENGTH] = "ends, because it has max_tokens",
        [RECEIPT_CALL] = "ends after its call", [RECEIPT_CANCELLED] = "is cut by its client"};
    return texts[end];
}

/* Says where an answer differs. "other": what the other model does. */
static void say_difference(const struct verify_run *v, const struct receipt *r, const struct verify_result *x)
{
    const struct receipt_answer *a = &r->answers[x->answer];
    if (x->outcome == VERIFY_PROMPT) {
        printf("the conversation has another prompt, from token %zu of %zu on\n", x->at + 1, r->n_prompt);
        put_token(v, "receipt ", x->said, -1);
        put_token(v, "expected", x->expected, -1);
        return;
    }
    printf("differs at token %zu of %zu", x->at + 1, a->n);
    if (r->n_answers > 1) printf(" of answer %zu", x->answer + 1);
    putchar('\n');
    if (x->outcome == VERIFY_TOKEN) {
        put_token(v, "receipt ", x->said, x->said_p);
        put_token(v, "expected", x->expected, x->expected_p);
    } else if (x->outcome == VERIFY_NOTHING) {
        printf("  no token can be drawn: %s\n", x->why.msg);
    } else {
        printf("  receipt   the answer %s\n", end_text(x->outcome == VERIFY_ENDS ? RECEIPT_GOES_ON : a->end));
        printf("  expected  the answer %s\n", end_text(x->outcome == VERIFY_GOES_ON ? RECEIPT_GOES_ON : x->end));
    }
}

static bool is_cut(const struct receipt *r)
{
    for (size_t k = 0; k < r->n_answers; k++)
        if (r->answers[k].end == RECEIPT_CANCELLED) return true;
    return false;
}

static void say_result(struct verify_run *v, const struct receipt *r, const struct verify_result *x)
{
    bool is_multiple = r->n_answers > 1;
    put_place(v, stdout);
    if (x->outcome == VERIFY_SAME) {
        printf("every token is the one this model gives (%zu token%s", x->n_tokens, x->n_tokens == 1 ? "" : "s");
        if (is_multiple) printf(" of %zu answers", r->n_answers);
        printf(")%s\n", is_cut(r) ? "; the client cut the answer, so more may have followed" : "");
        return;
    }
    say_difference(v, r, x);
    if (v->status < DIFFERS) v->status = DIFFERS;
}

/* ---- the model ---- */

static void close_model(struct verify_model *m)
{
    qn_chat_free(m->chat);
    qn_model_close(m->model);
    mem_free(m->proof.file);
    mem_free(m->path);
    mem_free(m->pre);
    *m = (struct verify_model){0};
}

/* The hashes of the model's files, which are remembered for this user. */
static int prove(struct verify_model *m, struct qn_error *e)
{
    char *dir = hashes_dir();
    const struct model_proof_places places = {.dir = dir};
    int rc = model_proof(&m->proof, m->model, m->path, m->pre, &places, e);
    mem_free(dir);
    return rc;
}

static int open_model(struct verify_run *v, const char *path, const char *pre, struct qn_error *e)
{
    struct verify_model *m = &v->m;
    struct qn_model_params p;
    qn_model_params_init(&p);
    p.pre = pre;
    m->path = mem_dup(path, strlen(path));
    m->pre = pre ? mem_dup(pre, strlen(pre)) : NULL;
    if (!m->path || (pre && !m->pre)) return error_nomem(e, "a path", strlen(path) + 1);
    int rc = qn_model_open_with(&m->model, path, &p, e);
    if (!rc && qn_model_has_template(m->model) && qn_chat_new(&m->chat, m->model, NULL, 0, NULL)) m->chat = NULL;
    if (!rc && !v->o->against)
        rc = prove(m, e);
    else if (!rc)
        model_proof_texts(&m->proof, m->model);
    return rc;
}

/* Two files of one model may describe its vocabulary differently, so another one is no failure. */
static void warn_of_vocabulary(struct verify_run *v, const struct receipt *r)
{
    if (v->m.has_warned || !strcmp(r->model.tokenizer, v->m.proof.tokenizer)) return;
    fprintf(stderr,
            "quern: warning: '%s' has another vocabulary than the receipt's model: the same number may be another "
            "token\n",
            v->o->against);
    v->m.has_warned = true;
}

/* Finds and opens the model for a receipt, unless it is open. */
static int find_model(struct verify_run *v, const struct receipt *r, struct qn_error *e)
{
    const char *name = v->o->against ? v->o->against : v->o->model ? v->o->model : r->model.name;
    const char *pre = r->model.pre, *open_pre = v->m.pre;
    char *path = NULL;
    int rc = catalog_find(&path, &v->o->folders, name, e);
    if (rc) return rc;
    bool is_open = v->m.model && !strcmp(v->m.path, path) && !strcmp(pre ? pre : "", open_pre ? open_pre : "");
    if (!is_open) {
        close_model(&v->m);
        rc = open_model(v, path, pre, e);
        if (rc) close_model(&v->m);
    }
    mem_free(path);
    return rc;
}

/* ---- one receipt ---- */

static void on_progress(void *arg, size_t n_done, size_t n_total)
{
    struct progress *p = arg;
    p->total = n_total;
    progress_update(p, n_done);
}

static int check(struct verify_run *v, const struct receipt *r, struct verify_result *x, struct qn_error *e)
{
    struct qn_engine_params p = v->o->engine;
    struct progress bar = {0};
    const struct verify_watch watch = {.progress = on_progress, .arg = &bar};
    qn_engine *g = NULL;
    if (r->arithmetic != MODEL_ARITHMETIC)
        return error_set(e, QN_EDATA, "the receipt has version %d of the arithmetic, this program has version %d",
                         r->arithmetic, MODEL_ARITHMETIC);
    int rc = find_model(v, r, e);
    if (!rc && !v->o->against) rc = model_proof_compare(&r->model, &v->m.proof, e);
    if (rc) return rc;
    if (v->o->against) warn_of_vocabulary(v, r);
    bool is_replay = r->is_replay || v->o->replay;
    verify_engine(&p, r, is_replay);
    progress_begin(&bar, "verify", "tokens", 0);
    rc = qn_engine_new(&g, v->m.model, &p, e);
    if (!rc) rc = verify(x, r, g, v->m.chat, v->o->against != NULL, is_replay, &watch, e);
    progress_end(&bar);
    qn_engine_free(g);
    return rc;
}

static void check_one(struct verify_run *v, struct receipt *r)
{
    struct verify_result x;
    struct qn_error e = {0};
    int rc = 0;
    if (r->is_private && v->prompt)
        rc = receipt_add_prompt(r, &v->prompts, &e);
    else if (r->is_private)
        rc = error_set(&e, QN_EDATA, "the prompt of this receipt is private: --prompt FILE has to give it");
    if (!rc) rc = check(v, r, &x, &e);
    if (rc)
        refuse(v, &e);
    else
        say_result(v, r, &x);
    fflush(stdout);
}

/* Checks all receipts of a text, one after the other. After one that is damaged, the next line is looked at. */
static void check_text(struct verify_run *v, const char *text, size_t n)
{
    size_t at = 0, used;
    int count = 0, n_bad = 0;
    for (;;) {
        while (at < n && isspace((unsigned char)text[at])) at++;
        if (at == n && count) return;
        struct receipt r;
        struct qn_error e = {0};
        used = 0;
        int rc = receipt_read(&r, text + at, n - at < MOST_BYTES ? n - at : MOST_BYTES, &used, &e);
        size_t end = at + used;
        const char *line = rc ? memchr(text + at, '\n', n - at) : NULL;
        if (rc && (size_t)((line ? line : text + n) - text) - at > MOST_BYTES)
            error_set(&e, QN_EDATA, "receipt: this line has more than %zu MiB, the most that is read",
                      MOST_BYTES >> 20);
        if (rc && (!used || end > n)) end = line ? (size_t)(line - text) + 1 : n;
        size_t rest = end;
        while (rest < n && isspace((unsigned char)text[rest])) rest++;
        v->number = count || rest < n ? ++count : 0;
        if (!v->number) count = 1;
        if (rc)
            refuse(v, &e);
        else
            check_one(v, &r);
        receipt_deinit(&r);
        at = end;
        n_bad = rc ? n_bad + 1 : 0;
        if (n_bad == MOST_BAD) {
            error_set(&e, QN_EDATA, "%d texts in a row are no receipts: the rest is not read", MOST_BAD);
            refuse(v, &e);
            return;
        }
    }
}

static int check_file(struct verify_run *v, const char *path)
{
    char *text = NULL;
    size_t n = 0;
    int status = read_file(path, &text, &n);
    if (status) return status;
    v->file = path;
    check_text(v, text, n);
    cli_free(text);
    return 0;
}

/* Reads the prompts of private receipts. Returns 0 or an exit status, after a message. */
static int read_prompts(struct verify_run *v, const char *path)
{
    struct qn_error e;
    size_t n = 0;
    int status = read_file(path, &v->prompt, &n);
    if (status || !receipt_prompts_read(&v->prompts, v->prompt, n, &e)) return status;
    v->file = path;
    refuse(v, &e);
    return v->status;
}

static int run(struct invocation *i)
{
    const struct verify_options *o = i->options;
    struct verify_run v = {.o = o};
    int status = 0;
    if (o->model && o->against) return cli_usage("verify: --model and --against exclude each other");
    if (o->prompt) status = read_prompts(&v, o->prompt);
    for (int k = 0; k < i->n && !status; k++) status = check_file(&v, i->operand[k]);
    close_model(&v.m);
    receipt_prompts_deinit(&v.prompts);
    cli_free(v.prompt);
    return status ? status : v.status;
}

static void init(void *options)
{
    struct verify_options *o = options;
    qn_engine_params_init(&o->engine);
}

#define AT(field) offsetof(struct verify_options, field)
static const struct opt opts[] = {
    {"model", 'm', OPT_STRING, AT(model), "MODEL", "the model, if it is not found by the name in the receipt",
     .words = WORDS_MODEL},
    {"against", 0, OPT_STRING, AT(against), "MODEL", "another model: where would it first have gone another way?",
     .words = WORDS_MODEL},
    {"prompt", 0, OPT_STRING, AT(prompt), "FILE", "the prompts of private receipts", .words = WORDS_FILE},
    {"replay", 0, OPT_FLAG, AT(replay), NULL, "make the answers again instead of reading them, which takes longer",
     .rare = true},
    {"threads", 0, OPT_INT, AT(engine.n_threads), "N", "threads (default: the CPUs this process may use)", 1, 1024},
    {"cpu", 0, OPT_STRING, AT(engine.cpu), "LEVEL",
     "instruction set at most: ref, avx2, avxvnni, avx512, avx512vbmi or amx", .rare = true},
    {"batch", 0, OPT_INT, AT(engine.n_batch), "N", "most rows in one forward pass (default 512)", 1, 65536,
     .rare = true},
    {"memory", 0, OPT_SIZE, AT(engine.memory_bytes), "BYTES", "memory budget, such as 6G (default: what is available)"},
    {0},
};

static const struct opt_group groups[] = {{"Options", opts}, OPERAND_GROUP(AT(folders)), {0}};

static const struct example examples[] = {
    {"quern ask --receipt a.json \"Name three rivers.\"; quern verify a.json", "Make a receipt and check it"},
    {"quern verify answer.json -m downloads/model.gguf", "With a model that is somewhere else"},
    {"quern verify answer.json --against other.gguf", "Where would another file have gone another way?"},
    {"quern verify private.json --prompt private.json.prompt", "A receipt that has only the hash of its prompt"},
    {0},
};

const struct command command_verify = {
    .name = "verify",
    .operands = "FILE... [OPTIONS]",
    .brief = "check that an answer is what a model gives",
    .about = "Checks the answers of receipts, which ask, chat, run and serve write: is every token the one that this "
             "model gives to this prompt, with these options?\n\n"
             "Nothing is generated. The prompt and the answer are read in one batched pass, and a token is drawn at "
             "every position. The result does not depend on the instruction set, the number of threads, or how the "
             "answer was made. A file may have several receipts, as the file of serve --receipts has. - is standard "
             "input.\n\n"
             "The exit status is 0 if every token is the model's, and 1 if one is not; then the first one is shown, "
             "with the one that was expected and their probabilities. It is 65 if a receipt is damaged, or if the "
             "model's files are not those of the receipt. A receipt proves what a model computes from a prompt. It "
             "does not prove who computed it, or when.",
    .min = 1,
    .max = -1,
    .words = WORDS_FILE,
    .examples = examples,
    .rank = RANK_RARE,
    .groups = groups,
    .size = sizeof(struct verify_options),
    .init = init,
    .run = run,
};
