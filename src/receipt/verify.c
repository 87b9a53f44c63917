/* SPDX-License-Identifier: MIT
 *
 * verify.c: computes the logits of a receipt's positions, and compares what is drawn from them. See verify.h.
 *
 * Each answer is a request of the engine (engine/request.h) that is fed with rows of a prefill, so penalties, grammars,
 * stop texts and limits are those of the scheduler. The reply to a conversation is read as the server reads it
 * (server/api/job_event.c): its stop texts are looked for in the content, and one call may be enough.
 */
#include "receipt/verify.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "decode/logprob.h"
#include "engine/core/rotate.h"
#include "receipt/verify_impl.h"

#define LOGITS_BYTES ((size_t)64 << 20) /* at most, for the rows of one pass; at least one row */
#define DATE         "strftime_now"     /* with this in a template, a prompt depends on the day */

/* ---- preparation ---- */

void verify_engine(struct qn_engine_params *p, const struct receipt *r, bool is_replay)
{
    size_t longest = 0, n_ctx = (size_t)r->n_ctx;
    for (size_t i = 0; i < r->n_answers; i++)
        if (r->answers[i].n > longest) longest = r->answers[i].n;
    size_t n = r->n_prompt + longest; /* two sequences that share the prompt's whole pages */
    if (r->rotates) n = n_ctx + (r->n_prompt < n_ctx ? r->n_prompt : n_ctx);
    if (r->is_replay) n = n_ctx; /* windows depend on the room that is left */
    n += 4 * KV_PAGE_SLOTS;
    p->n_ctx = r->n_ctx;
    p->kv = r->kv;
    p->kv_tokens = n < INT32_MAX ? (int)n : INT32_MAX;
    p->n_sessions = is_replay && r->n_answers > 2 ? (int)r->n_answers : 2;
}

static int check_tokens(const qn_token *t, size_t n, int n_vocab, const char *what, struct qn_error *e)
{
    for (size_t i = 0; i < n; i++)
        if (t[i] < 0 || t[i] >= n_vocab)
            return error_set(e, QN_EDATA, "receipt: token %zu of %s is %d, but the model's are 0..%d", i, what, t[i],
                             n_vocab - 1);
    return 0;
}

static int check_fit(const struct verification *v, struct qn_error *e)
{
    const struct receipt *r = v->r;
    int n_vocab = v->g->model->hp.n_vocab, rc = check_tokens(r->prompt, r->n_prompt, n_vocab, "the prompt", e);
    for (size_t i = 0; i < r->n_answers && !rc; i++) {
        rc = check_tokens(r->answers[i].tokens, r->answers[i].n, n_vocab, "an answer", e);
        if (!rc && !r->rotates && r->n_prompt + r->answers[i].n > (size_t)v->g->n_ctx)
            rc = error_set(e, QN_EDATA, "receipt: %zu tokens do not fit its context of %d",
                           r->n_prompt + r->answers[i].n, v->g->n_ctx);
    }
    return rc;
}

/* Finds the tokens of the prompt that the context holds. */
static int hold_prompt(struct verification *v, struct qn_error *e)
{
    const struct receipt *r = v->r;
    size_t keep = (size_t)r->n_keep, n = r->rotates ? rotate_dropped(r->n_prompt, r->n_ctx, r->n_keep) : 0;
    v->held = r->prompt;
    v->n_held = r->n_prompt - n;
    if (!n) return 0;
    v->own = mem_alloc(v->n_held * sizeof *v->own);
    if (!v->own) return error_nomem(e, "a prompt", v->n_held * sizeof *v->own);
    memcpy(v->own, r->prompt, keep * sizeof *v->own);
    memcpy(v->own + keep, r->prompt + keep + n, (v->n_held - keep) * sizeof *v->own);
    v->held = v->own;
    return 0;
}

static bool has_date(const qn_model *m)
{
    char *text = NULL;
    bool has = !qn_model_metadata(m, "tokenizer.chat_template", &text, NULL) && strstr(text, DATE);
    qn_free(text);
    return has;
}

/* Compares the prompt of the conversation with the receipt's. The tokens are what counts: where a template writes the
 * day, they differ from those of today. */
static void compare_prompt(struct verification *v)
{
    const struct receipt *r = v->r;
    size_t n, i = 0;
    const qn_token *t = qn_prompt_tokens(v->prompt, &n);
    while (i < n && i < r->n_prompt && t[i] == r->prompt[i]) i++;
    if ((i == n && i == r->n_prompt) || has_date(v->g->handle)) return;
    v->out->outcome = VERIFY_PROMPT;
    v->out->at = i;
    v->out->said = i < r->n_prompt ? r->prompt[i] : -1;
    v->out->expected = i < n ? t[i] : -1;
}

static int make_prompt(struct verification *v, const qn_chat *chat, bool is_other, struct qn_error *e)
{
    const struct receipt *r = v->r;
    if (!r->conversation) return 0;
    if (!chat) return error_set(e, QN_EDATA, "receipt: it has a conversation, but the model has no chat template");
    int rc = qn_chat_prompt(&v->prompt, chat, r->conversation, r->n_conversation, NULL, e);
    if (rc == QN_EUSAGE) rc = e ? (e->code = QN_EDATA) : QN_EDATA;
    if (!rc && !is_other) compare_prompt(v);
    return rc;
}

/* Compiles what the text follows, and then what calls follow, as the server does. */
static int make_grammar(struct verification *v, struct qn_error *e)
{
    const struct receipt *r = v->r;
    struct qn_grammar_params p;
    qn_grammar *form = NULL;
    int rc = 0;
    qn_grammar_params_init(&p);
    p.kind = r->form_kind;
    p.text = r->form;
    p.n = r->n_form;
    if (r->has_form) rc = qn_grammar_new(&form, v->g->handle, &p, e);
    v->grammar = form;
    if (rc || !r->has_calls) return rc;
    if (!v->prompt) return error_set(e, QN_EDATA, "receipt: it has 'calls', but no conversation");
    qn_grammar_params_init(&p);
    p.kind = QN_GRAMMAR_TOOL_CALLS;
    p.prompt = v->prompt;
    p.required = r->calls_required;
    p.one_call = r->one_call;
    p.names = (const char **)(uintptr_t)r->call_names;
    p.n_names = r->n_call_names;
    p.form = form;
    rc = qn_grammar_new(&v->grammar, v->g->handle, &p, e);
    if (rc)
        v->grammar = form;
    else
        qn_grammar_free(form);
    return rc == QN_EUSAGE && e ? (e->code = QN_EDATA) : rc;
}

static int make_room(struct verification *v, struct qn_error *e)
{
    size_t n_vocab = (size_t)v->g->model->hp.n_vocab, row = n_vocab * sizeof(float), n = LOGITS_BYTES / row;
    if (n < 1) n = 1;
    if (n > (size_t)v->g->n_batch) n = (size_t)v->g->n_batch;
    size_t bytes = (n + 2) * row + n_vocab / 8 + 8 + KERNEL_SCRATCH_BYTES;
    engine_make_room(v->g, bytes);
    int rc = ledger_take(&v->g->ledger, bytes, "the logits of an answer", e);
    if (rc) return rc;
    v->taken = bytes;
    v->n_rows = (int)n;
    v->first = mem_aligned(64, row);
    v->work = mem_aligned(64, row);
    v->rows = mem_aligned(64, n * row);
    v->mask = mem_calloc(n_vocab / 64 + 1, sizeof *v->mask);
    v->scratch = mem_aligned(64, KERNEL_SCRATCH_BYTES);
    return v->first && v->work && v->rows && v->mask && v->scratch ? 0
                                                                   : error_nomem(e, "the logits of an answer", bytes);
}

/* ---- one answer ---- */

static void on_event(void *arg, const struct qn_event *e)
{
    struct verification *v = arg;
    if (e->type == QN_EVENT_FINISH) v->stop_index = e->finish == QN_FINISH_STOP_STRING ? e->stop_index : -1;
}

void verify_describe(struct verification *v, struct qn_request_params *p)
{
    const struct receipt *r = v->r;
    qn_request_params_init(p);
    p->prompt = r->prompt;
    p->n_prompt = r->n_prompt;
    p->sampling = r->sampling;
    p->no_text = v->prompt != NULL;
    if (!v->prompt) {
        p->stop = r->stop;
        p->n_stop = r->n_stop;
    }
    p->stop_tokens = r->stop_tokens;
    p->n_stop_tokens = r->n_stop_tokens;
    p->ignore_eog = r->ignore_eos;
    p->continues = r->continues;
    p->max_tokens = r->max_tokens;
    p->rotates = r->rotates;
    p->n_keep = r->n_keep;
    p->grammar = v->grammar;
    p->grammar_prompt = v->prompt;
    p->draft = QN_DRAFT_OFF;
}

int verify_open_reply(struct verification *v, size_t k, struct qn_error *e)
{
    v->a = &v->r->answers[k];
    v->i = 0;
    v->out->answer = k;
    if (!v->prompt) return 0;
    return qn_reply_new(&v->reply, v->chat, v->prompt, v->r->stop, v->r->n_stop, e);
}

static int open_answer(struct verification *v, size_t k, struct qn_error *e)
{
    struct qn_request_params p;
    int rc = verify_open_reply(v, k, e);
    if (rc) return rc;
    verify_describe(v, &p);
    p.sampling.seed += k;
    p.callback = on_event;
    p.arg = v;
    rc = request_new(&v->request, &p, v->g, e);
    if (rc == QN_EUSAGE || rc == QN_EFULL) return e ? (e->code = QN_EDATA) : QN_EDATA; /* the receipt asks for it */
    if (rc || (rc = request_start(v->request, v->g, e))) return rc;
    kv_seq_fork(&v->request->answers[0].memory, &v->memory);
    return 0;
}

static void close_answer(struct verification *v)
{
    if (v->request) request_release(v->request);
    request_free(v->request);
    qn_reply_free(v->reply);
    v->request = NULL;
    v->reply = NULL;
}

/* Takes the events of the reply. Returns true if its one call is complete. */
static bool has_call(struct verification *v)
{
    struct qn_reply_event e;
    while (qn_reply_next(v->reply, &e))
        if (e.kind == QN_REPLY_CALL_END && v->r->one_call) return true;
    return false;
}

static enum receipt_end stopped_by(struct verification *v, enum receipt_end end)
{
    v->stop_index = qn_reply_stop_index(v->reply);
    return v->stop_index >= 0 ? RECEIPT_TEXT : end;
}

/* Gives the reply a token, and returns whether the answer ends with it. finish: what the scheduler says. */
static int reply_end(struct verification *v, qn_token t, enum qn_finish finish, enum receipt_end *end,
                     struct qn_error *e)
{
    bool stopped = false;
    int rc = qn_reply_push(v->reply, t, &stopped, e);
    if (rc) return rc;
    bool enough = has_call(v);
    if (finish == QN_FINISH_STOP_TOKEN || (finish == QN_FINISH_LENGTH && !stopped && !enough)) {
        if (!enough && (rc = qn_reply_end(v->reply, e))) return rc;
        has_call(v);
        *end = stopped_by(v, finish == QN_FINISH_STOP_TOKEN ? RECEIPT_TOKEN : RECEIPT_LENGTH);
    } else if (stopped || enough) {
        *end = stopped_by(v, RECEIPT_CALL);
    }
    return 0;
}

static enum receipt_end text_end(enum qn_finish f)
{
    switch (f) {
    case QN_FINISH_STOP_TOKEN: return RECEIPT_TOKEN;
    case QN_FINISH_STOP_STRING: return RECEIPT_TEXT;
    case QN_FINISH_LENGTH: return RECEIPT_LENGTH;
    default: return RECEIPT_GOES_ON;
    }
}

/* The probability that the model gives a token, whatever the sampling. */
static double model_p(struct verification *v, const float *logits, qn_token t)
{
    const struct qn_engine *g = v->g;
    return exp((double)logprob_of(&g->forward.pass.kt, logits, g->model->hp.n_vocab, t, NULL, 0, v->work, v->scratch));
}

/* Fills in how probable both tokens are. The sampler that drew has taken its token already, so another one is made. */
static int weigh(struct verification *v, const float *logits, struct qn_error *e)
{
    struct verify_result *out = v->out;
    struct qn_sampling s = v->request->p.sampling; /* with the seed of this answer */
    struct sampler *sampler = NULL;
    const struct answer *a = &v->request->answers[0];
    size_t n = (size_t)a->n_tokens - 1; /* without the one that was drawn */
    if (s.temperature <= 0) {
        out->said_p = model_p(v, logits, out->said);
        out->expected_p = model_p(v, logits, out->expected);
        return 0;
    }
    int rc = sampler_new(&sampler, &s, v->g->model->hp.n_vocab, &v->g->forward.pass.kt, e);
    if (!rc) rc = sampler_reserve(sampler, n, e);
    for (size_t i = 0; i < n && !rc; i++) sampler_accept(sampler, a->tokens[i]);
    if (!rc && v->has_mask) sampler_set_mask(sampler, v->mask);
    if (!rc) rc = sampler_probs(sampler, logits, n + (size_t)a->n_dropped, v->work, e);
    if (!rc) {
        out->said_p = (double)v->work[out->said];
        out->expected_p = (double)v->work[out->expected];
    }
    sampler_free(sampler);
    return rc;
}

/* Notes a difference. Returns a positive number, which ends the check. */
int verify_differs(struct verification *v, enum verify_outcome outcome)
{
    v->out->outcome = outcome;
    v->out->at = v->i;
    return 1;
}

/* Compares the end of the answer after token i, which was right, with the receipt's. */
static int check_end(struct verification *v, enum receipt_end end)
{
    const struct receipt_answer *a = v->a;
    bool is_last = v->i + 1 == a->n;
    v->out->end = end;
    v->out->stop_index = v->stop_index;
    if (end != RECEIPT_GOES_ON && !is_last) return verify_differs(v, VERIFY_ENDS);
    if (end == RECEIPT_GOES_ON && is_last && a->end != RECEIPT_CANCELLED) return verify_differs(v, VERIFY_GOES_ON);
    if (end == RECEIPT_GOES_ON) return 0;
    int stop_index = end == RECEIPT_TEXT ? v->stop_index : -1;
    return end == a->end && stop_index == a->stop_index ? 0 : verify_differs(v, VERIFY_END);
}

int verify_took(struct verification *v, qn_token t, enum qn_finish finish, struct qn_error *e)
{
    enum receipt_end end = v->reply ? RECEIPT_GOES_ON : text_end(finish);
    int rc = v->reply ? reply_end(v, t, finish, &end, e) : 0;
    if (rc || (rc = check_end(v, end))) return rc;
    v->i++;
    if (v->watch && v->watch->progress) v->watch->progress(v->watch->arg, ++v->n_done, v->n_total);
    return 0;
}

static void copy_mask(struct verification *v, struct guide *guide)
{
    const uint64_t *mask = guide_mask(guide);
    v->has_mask = mask != NULL;
    if (mask) memcpy(v->mask, mask, ((size_t)v->g->model->hp.n_vocab + 63) / 64 * sizeof *mask);
}

/* Draws from the next row, and compares. Returns 0, an error, or a positive number after a difference. */
static int take_row(void *arg, const float *logits, struct qn_error *e)
{
    struct verification *v = arg;
    struct request *q = v->request;
    struct answer *a = &q->answers[0];
    int n = a->n_tokens, rc = 0;
    if (v->i == v->a->n) return 0; /* the row after a cancelled answer */
    v->stop_index = -1;
    v->has_mask = false;
    if (q->guides) {
        guide_prepare(q->guides[0]->guide);
        if (!guide_failed(q->guides[0]->guide, NULL)) copy_mask(v, q->guides[0]->guide);
    }
    request_next_token(q, 0, -1, NULL, v->g, logits, v->work, v->scratch);
    if (a->n_tokens == n) {
        v->out->why = q->error;
        return verify_differs(v, VERIFY_NOTHING);
    }
    v->out->n_tokens++;
    v->out->said = v->a->tokens[v->i];
    v->out->expected = a->tokens[n];
    if (v->out->said != v->out->expected) return (rc = weigh(v, logits, e)) ? rc : verify_differs(v, VERIFY_TOKEN);
    return verify_took(v, a->tokens[n], a->finish, e);
}

/* An answer without a token ends before its first one. */
int verify_empty(struct verification *v)
{
    v->out->end = v->r->max_tokens == 0 ? RECEIPT_LENGTH : RECEIPT_GOES_ON;
    if (v->r->max_tokens == 0 && v->a->n) return verify_differs(v, VERIFY_ENDS);
    if (v->a->end == RECEIPT_CANCELLED) return 0;
    if (v->r->max_tokens == 0) return v->a->end == RECEIPT_LENGTH ? 0 : verify_differs(v, VERIFY_END);
    return verify_differs(v, VERIFY_GOES_ON);
}

/* Drops what a context that is full drops, and reads the rest as a prompt, as the scheduler does. */
static int rotate(struct verification *v, struct qn_error *e)
{
    struct answer *a = &v->request->answers[0];
    kv_seq_truncate(&a->memory, 0);
    request_rotate(v->request, a);
    int rc = engine_append(v->g, &a->memory, a->tokens, (size_t)a->n_tokens, v->rows, e);
    return rc ? rc : take_row(v, v->rows, e);
}

/* Reads as many of the answer's tokens as there is room for. */
static int read_on(struct verification *v, struct qn_error *e)
{
    struct answer *a = &v->request->answers[0];
    size_t n = v->a->n - v->i, room = (size_t)(request_slots(v->request) - a->n_tokens);
    if (n > (size_t)v->n_rows) n = (size_t)v->n_rows;
    if (n > room) n = room;
    if (!n) return verify_differs(v, VERIFY_ENDS); /* there is no room for more */
    return engine_append_all(v->g, &a->memory, v->a->tokens + v->i - 1, n, 1, v->rows, take_row, v, e);
}

static int check_answer(struct verification *v, size_t k, struct qn_error *e)
{
    int rc = open_answer(v, k, e);
    if (!rc && (v->r->max_tokens == 0 || v->a->n == 0)) {
        rc = verify_empty(v);
    } else if (!rc) {
        rc = take_row(v, v->first, e);
        while (!rc && v->i < v->a->n)
            rc = request_is_full(v->request, &v->request->answers[0]) ? rotate(v, e) : read_on(v, e);
    }
    close_answer(v);
    return rc;
}

/* ---- the whole ---- */

/* Reads the prompt, and then each answer. */
static int check_by_reading(struct verification *v, struct qn_error *e)
{
    int rc = make_room(v, e);
    if (rc || (rc = kv_seq_init(&v->memory, v->g->kv, v->g->n_ctx, e))) return rc;
    rc = engine_append(v->g, &v->memory, v->held, v->n_held, v->first, e);
    v->n_done = v->n_held;
    for (size_t k = 0; k < v->r->n_answers && !rc; k++) rc = check_answer(v, k, e);
    return rc;
}

static int check_all(struct verification *v, bool is_other, bool is_replay, struct qn_error *e)
{
    const struct receipt *r = v->r;
    int rc = check_fit(v, e);
    if (!rc) rc = make_prompt(v, v->chat, is_other, e);
    if (rc || v->out->outcome != VERIFY_SAME) return rc;
    if ((rc = make_grammar(v, e)) || (rc = hold_prompt(v, e))) return rc;
    v->n_total = v->n_held;
    for (size_t k = 0; k < r->n_answers; k++) v->n_total += r->answers[k].n;
    rc = is_replay ? verify_by_replay(v, e) : check_by_reading(v, e);
    return rc < 0 ? rc : 0;
}

int verify(struct verify_result *out, const struct receipt *r, qn_engine *g, const qn_chat *chat, bool is_other,
           bool is_replay, const struct verify_watch *watch, struct qn_error *e)
{
    struct verification v = {.r = r, .g = g, .chat = chat, .watch = watch, .out = out};
    *out = (struct verify_result){.said = -1, .expected = -1, .stop_index = -1};
    int rc = check_all(&v, is_other, is_replay, e);
    kv_seq_deinit(&v.memory);
    qn_grammar_free(v.grammar);
    qn_prompt_free(v.prompt);
    mem_free(v.own);
    mem_free(v.first);
    mem_free(v.rows);
    mem_free(v.work);
    mem_free(v.mask);
    mem_free(v.scratch);
    ledger_give(&g->ledger, v.taken);
    return rc;
}
