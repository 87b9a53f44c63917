/* SPDX-License-Identifier: MIT
 *
 * receipts.c: see receipts.h.
 */
#include "server/api/receipts.h"

#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/os.h"
#include "model/arithmetic.h"
#include "receipt/model_proof.h"
#include "server/api/api_impl.h"

/* The hashes of one model. */
struct receipt_source {
    struct receipt_source *next;
    int index;     /* of the model among those that are served */
    uint64_t mark; /* of its files: another file has another one */
    struct receipt_model model;
};

int receipt_parse_wish(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    struct answer_params *a = out;
    (void)field;
    if (json_is_boolean(v))
        a->receipt = json_is_true(v) ? RECEIPT_FULL : RECEIPT_NONE;
    else if (field_is(v, "private"))
        a->receipt = RECEIPT_PRIVATE;
    else
        return field_unsupported(f, name, "anything but true, false and \"private\" is");
    return 0;
}

/* ---- models ---- */

void receipts_init(struct api *a)
{
    pthread_mutex_init(&a->receipts.lock, NULL);
    pthread_mutex_init(&a->receipts.log_lock, NULL);
}

void receipts_deinit(struct api *a)
{
    for (struct receipt_source *s; (s = a->receipts.first);) {
        a->receipts.first = s->next;
        mem_free(s->model.file);
        mem_free(s);
    }
    pthread_mutex_destroy(&a->receipts.lock);
    pthread_mutex_destroy(&a->receipts.log_lock);
}

static int add_source(struct api *a, const struct served *m, uint64_t mark, struct qn_error *e)
{
    const struct receipts_config *c = &a->c.receipts;
    const struct model_proof_places places = {.dir = c->hash_dir};
    struct receipt_source *s = mem_calloc(1, sizeof *s);
    if (!s) return error_nomem(e, "the hashes of a model", sizeof *s);
    int rc = model_proof(&s->model, m->model, m->name, c->pre, &places, e);
    if (rc) {
        mem_free(s);
        return rc;
    }
    s->index = m->index;
    s->mark = mark;
    s->next = a->receipts.first;
    a->receipts.first = s;
    return 0;
}

/* Finds the hashes of the job's model, or computes them. */
static int find_model(struct job *j, struct qn_error *e)
{
    struct api *a = j->api;
    uint64_t mark = qn_model_mark(j->served->model);
    const struct receipt_source *s;
    int rc = 0;
    pthread_mutex_lock(&a->receipts.lock);
    for (int tries = 0; tries < 2 && !j->receipt.model && !rc; tries++) {
        for (s = a->receipts.first; s && (s->index != j->served->index || s->mark != mark);) s = s->next;
        if (s)
            j->receipt.model = &s->model;
        else
            rc = add_source(a, j->served, mark, e);
    }
    pthread_mutex_unlock(&a->receipts.lock);
    return rc;
}

/* ---- one job ---- */

bool job_wants_receipt(const struct job *j) { return j->params.receipt || j->api->c.receipts.log > 0; }

/* The windows that fill the answers; verify: 1 if each token is drawn after all tokens before it. */
static struct qn_wedlm windows_of(const struct job *j)
{
    const struct answer_params *a = &j->params;
    const struct qn_wedlm *own = &a->wedlm;
    bool may = a->draft == QN_DRAFT_DEFAULT || a->draft == QN_DRAFT_AUTO || a->draft == QN_DRAFT_WEDLM;
    struct qn_scheduler_stats s = {.size = sizeof s};
    qn_scheduler_stats(j->served->scheduler, &s);
    struct qn_wedlm w = s.wedlm;
    if (!may || own->verify >= 0) w.verify = may ? own->verify : 1;
    if (own->window) w.window = own->window;
    if (own->entropy_threshold >= 0) w.entropy_threshold = own->entropy_threshold;
    if (own->pos_penalty >= 0) w.pos_penalty = own->pos_penalty;
    return w;
}

int job_receipt_open(struct job *j, struct fault *f)
{
    struct qn_error e = {0};
    struct job_receipt *r = &j->receipt;
    if (!job_wants_receipt(j)) return 0;
    if (j->served->is_rounded)
        return fault_set(f, 400, "unsupported_value", "receipt",
                         "receipt: the hosts of this model round what they send each other (--wire bf16), so the "
                         "answer cannot be made again");
    r->wish = j->params.receipt;
    if (r->wish == RECEIPT_PRIVATE) receipt_make_salt(r->salt);
    r->tokens = mem_calloc((size_t)j->n_answers, sizeof *r->tokens);
    if (!r->tokens) return api_no_memory(f);
    return find_model(j, &e) ? api_fault(f, &e) : 0;
}

void job_receipt_free(struct job *j)
{
    struct job_receipt *r = &j->receipt;
    for (int i = 0; r->tokens && i < j->n_answers; i++) buf_deinit(&r->tokens[i]);
    mem_free(r->tokens);
    buf_deinit(&r->conversation);
    buf_deinit(&r->made);
    buf_deinit(&r->made_more);
}

/* The tokens that an answer could have: the scheduler's limits come on top of the request's. */
static int most_tokens(const struct job *j, int asked)
{
    struct qn_scheduler_stats s = {.size = sizeof s};
    qn_scheduler_stats(j->served->scheduler, &s);
    int n_slots = s.n_pages * s.page_tokens;
    if (n_slots > j->served->n_ctx) n_slots = j->served->n_ctx;
    if (j->params.context.rotates) return receipt_max_tokens_rotating(asked, n_slots);
    return receipt_max_tokens(asked, n_slots, j->n_tokens);
}

void job_receipt_submitted(struct job *j, const struct qn_request_params *p)
{
    if (!j->receipt.tokens) return;
    j->receipt.seed = p->sampling.seed;
    j->receipt.max_tokens = most_tokens(j, p->max_tokens);
}

void job_receipt_token(struct job *j, int answer, qn_token t)
{
    if (j->receipt.tokens && buf_add(&j->receipt.tokens[answer], &t, sizeof t, NULL)) j->receipt.has_failed = true;
}

static enum receipt_end end_of(const struct job_answer *a)
{
    if (a->early) return a->early;
    switch (a->finish) {
    case QN_FINISH_STOP_TOKEN: return RECEIPT_TOKEN;
    case QN_FINISH_STOP_STRING: return RECEIPT_TEXT;
    case QN_FINISH_LENGTH: return RECEIPT_LENGTH;
    default: return RECEIPT_CANCELLED;
    }
}

static void describe_prompt(struct receipt *r, const struct job *j)
{
    const struct job_receipt *own = &j->receipt;
    r->prompt = j->tokens;
    r->n_prompt = j->n_tokens;
    r->is_private = own->wish == RECEIPT_PRIVATE;
    if (*own->salt) r->salt = own->salt;
    r->continues = !j->prompt && j->n_tokens > 0;
    if (!j->prompt) return;
    r->conversation = (char *)own->conversation.data;
    r->n_conversation = own->conversation.len;
}

/* Fills in everything but answers and the names of tools. */
static void describe(struct receipt *r, const struct job *j)
{
    const struct answer_params *p = &j->params;
    const struct qn_wedlm w = windows_of(j);
    *r = (struct receipt){.arithmetic = MODEL_ARITHMETIC,
                          .model = *j->receipt.model,
                          .n_ctx = j->served->n_ctx,
                          .kv = j->api->c.receipts.kv,
                          .sampling = p->sampling,
                          .max_tokens = j->receipt.max_tokens,
                          .rotates = p->context.rotates,
                          .n_keep = p->context.n_keep,
                          .is_replay = !w.verify,
                          .windows = {w.window, w.entropy_threshold, w.pos_penalty},
                          .stop = p->stop,
                          .n_stop = (size_t)p->n_stop,
                          .stop_tokens = p->stop_tokens,
                          .n_stop_tokens = p->n_stop_tokens,
                          .ignore_eos = p->ignore_eos,
                          .one_call = p->one_call,
                          .has_form = p->format.is_set,
                          .form_kind = p->format.kind,
                          .form = (char *)p->format.text.data,
                          .n_form = p->format.text.len,
                          .has_calls = p->calls.is_compiled,
                          .calls_required = p->calls.required,
                          .n_call_names = json_array_size(p->calls.names)};
    r->sampling.seed = j->receipt.seed;
    describe_prompt(r, j);
}

/* Appends a line to the log. */
static void log_line(struct job *j, struct buf *line)
{
    struct api *a = j->api;
    const char *why = NULL;
    int failed = 0;
    pthread_mutex_lock(&a->receipts.log_lock);
    if (buf_str(line, "\n", NULL))
        why = "no memory";
    else if ((failed = os_append(a->c.receipts.log, line->data, line->len)))
        why = strerror(failed);
    if (why && !a->receipts.has_failed) log_at(LOG_WARN, "receipts are not kept: %s", why);
    a->receipts.has_failed = why != NULL;
    pthread_mutex_unlock(&a->receipts.log_lock);
}

static int add_value(struct buf *to, const struct buf *value)
{
    return (to->len && buf_str(to, ",", NULL)) || buf_add(to, value->data, value->len, NULL);
}

static int make(struct job *j, struct receipt *r)
{
    struct job_receipt *own = &j->receipt;
    struct buf text = {0}, prompt = {0};
    struct qn_error e = {0};
    int bad = own->has_failed || receipt_write(&text, r, &e);
    if (!bad && own->wish == RECEIPT_PRIVATE)
        bad = receipt_write_prompt(&prompt, r, &e) || add_value(&own->made_more, &prompt);
    if (!bad && own->wish) bad = add_value(&own->made, &text);
    if (!bad && j->api->c.receipts.log > 0) log_line(j, &text);
    buf_deinit(&text);
    buf_deinit(&prompt);
    return bad;
}

void job_receipt_make(struct job *j)
{
    struct job_receipt *own = &j->receipt;
    struct receipt r;
    if (!own->tokens) return;
    describe(&r, j);
    struct receipt_answer *answers = mem_calloc((size_t)j->params.n, sizeof *answers);
    const char **names = mem_calloc(r.n_call_names + 1, sizeof *names);
    bool bad = !answers || !names;
    for (int i = 0; !bad && i < j->params.n; i++) {
        const struct job_answer *a = &j->answer[j->at * j->params.n + i];
        const struct buf *t = &own->tokens[j->at * j->params.n + i];
        enum receipt_end end = end_of(a);
        answers[i] = (struct receipt_answer){(qn_token *)(void *)t->data, t->len / sizeof(qn_token), end,
                                             end == RECEIPT_TEXT ? a->stop_index : -1};
    }
    for (size_t i = 0; !bad && i < r.n_call_names; i++)
        names[i] = json_string_value(json_array_get(j->params.calls.names, i));
    r.answers = answers;
    r.n_answers = (size_t)j->params.n;
    r.call_names = names;
    if (bad || make(j, &r)) own->has_failed = true;
    if (own->has_failed && own->wish) j->out.failed = true; /* an answer without its receipt would be incomplete */
    mem_free(answers);
    mem_free(names);
}

static void write_values(struct job *j, const char *key, const struct buf *values)
{
    if (j->prompts) json_out_open(&j->out, key, '[');
    json_out_raw(&j->out, j->prompts ? NULL : key, values->data, values->len);
    if (j->prompts) json_out_close(&j->out, ']');
}

void job_receipt_write(struct job *j)
{
    const struct job_receipt *own = &j->receipt;
    if (own->made.len) write_values(j, "receipt", &own->made);
    if (own->made_more.len) write_values(j, "receipt_prompt", &own->made_more);
}
