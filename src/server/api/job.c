/* SPDX-License-Identifier: MIT
 *
 * job.c: a request for an answer, in any dialect, from its body to its submission. job_event.c has what follows.
 */
#include "server/api/api_impl.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json/json_text.h"
#include "base/os.h"
#include "base/short_id.h"

void job_free(struct job *j)
{
    for (int i = 0; j->prompts && i < j->n_prompts; i++) {
        qn_free(j->prompts[i].tokens);
        json_decref(j->prompts[i].text);
    }
    mem_free(j->prompts);
    for (int i = 0; j->answer && i < j->n_answers; i++) {
        struct job_answer *a = &j->answer[i];
        qn_reply_free(a->reply);
        buf_deinit(&a->content);
        buf_deinit(&a->reasoning);
        buf_deinit(&a->held);
        buf_deinit(&a->name);
        buf_deinit(&a->arguments);
        buf_deinit(&a->items);
        for (int k = 0; k < JOB_LOGPROB_LISTS; k++) json_out_deinit(&a->logprobs[k]);
        for (int k = 0; k < a->n_calls; k++) {
            mem_free(a->call[k].name);
            mem_free(a->call[k].arguments);
        }
        mem_free(a->call);
    }
    mem_free(j->answer);
    job_receipt_free(j);
    if (j->resumable) resumable_end(j->resumable, false);
    qn_prompt_free(j->prompt);
    qn_grammar_free(j->grammar);
    item_store_release(j->api->items, j->previous);
    item_store_release(j->api->items, j->record);
    params_deinit(&j->params);
    json_out_deinit(&j->out);
    models_release(j->served); /* last, because the objects freed above may refer to it */
    ticket_free(j->ticket);
    mem_free(j);
}

/* ---- what dialects use ---- */

void job_event(struct job *j, const char *name)
{
    if (j->resumable) {
        char id[64];
        snprintf(id, sizeof id, "id: %s:%llu\n", resumable_request(j->resumable), (unsigned long long)++j->n_ids);
        json_out_frame(&j->out, id);
    }
    if (name) {
        json_out_frame(&j->out, "event: ");
        json_out_frame(&j->out, name);
        json_out_frame(&j->out, "\n");
    }
    json_out_frame(&j->out, "data: ");
}

void job_event_end(struct job *j) { json_out_frame(&j->out, "\n\n"); }

const char *job_finish_reason(const struct job *j, int i)
{
    const struct job_answer *a = &j->answer[i];
    switch (a->finish) {
    case QN_FINISH_LENGTH: return "length";
    case QN_FINISH_CANCELLED: return "cancelled";
    default: return a->n_calls && !a->call[a->n_calls - 1].is_cut ? "tool_calls" : "stop";
    }
}

static void write_miss(struct job *j, const char *key, qn_token t)
{
    json_out_open(&j->out, key, '{');
    job_write_token(j, &j->out, t);
    json_out_close(&j->out, '}');
}

/* Neither the request's id nor the rest is enough: a client may give all requests of a conversation the same id. */
void job_call_id(const struct job *j, int answer, int call, char out[SHORT_ID + 1])
{
    char text[160];
    int n = snprintf(text, sizeof text, "%d %d %zu %s", answer, call, j->n_tokens, j->id);
    short_id(out, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

/* The names of what the template's needs have changed, if anything. */
static void write_changes(struct json_out *o, unsigned changed)
{
    const char *name;
    if (!changed) return;
    json_out_open(o, "changed", '[');
    for (int i = 0; (name = qn_chat_change_name(1 << i)); i++)
        if (changed >> i & 1) json_out_str(o, NULL, name);
    json_out_close(o, ']');
}

/* The rate is that of all answers together, counted from the first token: without a second one there is none. */
void job_write_quern(struct job *j)
{
    struct json_out *o = &j->out;
    const struct qn_timings *t = &j->timings;
    json_out_open(o, "quern", '{');
    json_out_num(o, "load_ms", j->load_ms);
    json_out_num(o, "queue_ms", t->queue_ms);
    json_out_num(o, "prefill_ms", t->prefill_ms);
    json_out_num(o, "decode_ms", t->decode_ms);
    if (t->paused_ms > 0) json_out_num(o, "paused_ms", t->paused_ms);
    if (j->usage.n_generated > j->params.n && t->decode_ms > 0)
        json_out_num(o, "tokens_per_second", j->usage.n_generated * 1000.0 / t->decode_ms);
    else
        json_out_str(o, "tokens_per_second", NULL);
    json_out_int(o, "cached_tokens", j->usage.n_cached);
    if (j->usage.n_drafted > 0) {
        json_out_int(o, "passes", j->usage.n_passes);
        json_out_int(o, "drafted", j->usage.n_drafted);
        json_out_int(o, "accepted", j->usage.n_accepted);
    }
    if (j->usage.n_unverified > 0) {
        json_out_str(o, "decoder", "wedlm_unverified");
        if (!j->usage.n_drafted) json_out_int(o, "passes", j->usage.n_passes);
        json_out_int(o, "rows", j->usage.n_pass_rows);
    }
    if (j->usage.n_dropped > 0) {
        json_out_int(o, "dropped_tokens", j->usage.n_dropped);
        json_out_int(o, "rotations", j->usage.n_rotations);
    }
    if (j->served->is_rounded) json_out_str(o, "wire", "bf16");
    json_out_str(o, "cache_miss", t->miss);
    if (t->miss) json_out_int(o, "cache_miss_position", t->miss_position);
    if (t->miss && !strcmp(t->miss, "differs")) {
        write_miss(j, "cache_miss_asked", t->miss_asked);
        write_miss(j, "cache_miss_stored", t->miss_stored);
    }
    job_write_ignored(j, o);
    write_changes(o, qn_prompt_changes(j->prompt));
    job_receipt_write(j);
    json_out_close(o, '}');
}

void job_write_ignored(const struct job *j, struct json_out *o) { api_write_ignored(o, &j->params.ignored); }

void api_write_ignored(struct json_out *o, const struct field_ignored *ignored)
{
    const struct buf *names = &ignored->names;
    if (names->len == 0) return;
    json_out_open(o, "ignored", '[');
    for (size_t at = 0; at < names->len; at += strlen((char *)names->data + at) + 1)
        json_out_str(o, NULL, (char *)names->data + at);
    json_out_close(o, ']');
}

int job_reasoning_tokens(const struct job *j)
{
    int n = 0;
    for (int i = 0; i < j->n_answers; i++) n += j->answer[i].n_reasoning;
    return n;
}

void job_write_token(struct job *j, struct json_out *o, qn_token t)
{
    char *bytes = NULL;
    size_t n = 0;
    if (qn_token_bytes(j->served->model, t, true, &bytes, &n, NULL)) {
        o->failed = true;
        return;
    }
    json_out_int(o, "id", t);
    json_out_text(o, "token", bytes, n);
    json_out_open(o, "bytes", '[');
    for (size_t i = 0; i < n; i++) json_out_int(o, NULL, (unsigned char)bytes[i]);
    json_out_close(o, ']');
    qn_free(bytes);
}

/* ---- from the body to tokens ---- */

/* Switches have one of two names in templates. What chat_template_kwargs says goes first. */
static int add_switches(const struct answer_params *a, json_t *kwargs)
{
    static const char *const names[] = {"enable_thinking", "thinking"};
    int thinking = a->thinking, bad = 0;
    if (a->reasoning_effort) {
        bad |= json_object_set_new(kwargs, "reasoning_effort", json_string(a->reasoning_effort));
        if (!thinking && !strcmp(a->reasoning_effort, "none")) thinking = PARAMS_THINKING_OFF;
    }
    for (int i = 0; i < 2 && thinking; i++)
        if (!json_object_get(kwargs, names[i]))
            bad |= json_object_set_new(kwargs, names[i], json_boolean(thinking == PARAMS_THINKING_ON));
    return bad;
}

/* A failure to make the prompt. Its message begins with the member that is wrong, "chat: messages[2].role is ...". In
 * other dialects than OpenAI's chat, messages have other places, so only the name of the list is told. */
static int prompt_failed(const struct job *j, struct fault *f, const struct qn_error *e)
{
    static const char mark[] = "chat: ";
    int rc = ticket_failed(j->ticket, f, e);
    if (f->param[0] || strncmp(e->msg, mark, strlen(mark)) != 0) return rc;
    const char *member = e->msg + strlen(mark);
    size_t n = strspn(member, "abcdefghijklmnopqrstuvwxyz_"), all = strcspn(member, " :");
    if (n == 0 || (member[n] != '[' && n != all)) return rc;
    if (strncmp(member, "messages", n) != 0 && strncmp(member, "tools", n) != 0) return rc;
    snprintf(f->param, sizeof f->param, "%.*s", (int)(j->d->keeps_places ? all : n), member);
    return rc;
}

/* Makes the object that qn_chat_prompt() takes, which checks everything inside of messages and tools. */
int job_prepare_chat(struct job *j, struct fault *f)
{
    struct answer_params *a = &j->params;
    struct qn_error e = {0};
    struct buf text = {0};
    if (!j->served->chat)
        return fault_set(f, 400, "no_chat_template", "messages",
                         "the model has no chat template, so it only continues texts");
    json_t *kwargs = json_object();
    int bad = 0;
    if (a->template_kwargs) bad |= json_object_update(kwargs, (json_t *)(uintptr_t)a->template_kwargs);
    bad |= add_switches(a, kwargs);
    json_t *all = json_pack("{s:O,s:b,s:o}", "messages", a->messages, "add_generation_prompt", a->add_generation_prompt,
                            "chat_template_kwargs", kwargs);
    a->calls.any = json_array_size(a->tools) > 0 && !a->no_tools;
    if (a->calls.any) bad |= json_object_set(all, "tools", (json_t *)(uintptr_t)a->tools);
    if (a->documents) bad |= json_object_set(all, "documents", (json_t *)(uintptr_t)a->documents);
    bool made = all && !bad && !json_text_add(&text, all, JSON_COMPACT, "a conversation", NULL);
    json_decref(all);
    size_t taken = 0;
    bool room = made && !api_take_chat_work(j->ticket, text.len, &taken, f);
    int rc =
        room ? qn_chat_prompt(&j->prompt, j->served->chat, (char *)text.data, text.len, &j->ticket->cancel, &e) : 0;
    ticket_give(j->ticket, taken);
    if (job_wants_receipt(j))
        j->receipt.conversation = text;
    else
        buf_deinit(&text);
    if (!room) return made ? -1 : api_no_memory(f);
    if (rc) return prompt_failed(j, f, &e);
    j->tokens = qn_prompt_tokens(j->prompt, &j->n_tokens);
    return 0;
}

/* Refuses a prompt that leaves no room for an answer. An answer that is asked to be longer than its room ends there. */
static int check_room(const struct job *j, size_t n_tokens, struct fault *f)
{
    bool answers = j->params.max_tokens != 0;
    if (n_tokens == 0)
        return fault_set(f, 400, "empty_prompt", j->d->prompt_field, "%s: the prompt has no tokens",
                         j->d->prompt_field);
    if (n_tokens + answers <= (size_t)j->served->n_ctx || j->params.context.rotates) return 0;
    return api_too_long(f, j->d->refuse, j->d->prompt_field, n_tokens, j->served->n_ctx);
}

static int check_rooms(const struct job *j, struct fault *f)
{
    if (!j->prompts) return check_room(j, j->n_tokens, f);
    for (int i = 0; i < j->n_prompts; i++)
        if (check_room(j, j->prompts[i].n_tokens, f)) return -1;
    return 0;
}

/* The memory of all prompts, and of the records of many answers. */
static size_t prompt_bytes(const struct job *j)
{
    size_t n =
        j->prompts ? (size_t)j->n_prompts * (size_t)j->params.n * sizeof *j->answer : j->n_tokens * sizeof *j->tokens;
    for (int i = 0; j->prompts && i < j->n_prompts; i++)
        n += j->prompts[i].n_tokens * sizeof *j->tokens + sizeof *j->prompts + json_string_length(j->prompts[i].text);
    return n;
}

/* What looks at all tokens of the prompt cannot do without some. It has the daemon's usual context only if that is
 * plain. */
static int settle_context(struct job *j, struct fault *f)
{
    struct answer_params *a = &j->params;
    bool echoes = a->echo && a->logprobs;
    if (!a->has_context && !echoes) a->context = j->served->context;
    if (!a->context.rotates) return 0;
    if (echoes)
        return fault_set(f, 400, "unsupported_value", "context",
                         "context: logprobs of an echo are not supported with a context that rotates");
    if (a->context.n_keep <= j->served->n_ctx / 2) return 0;
    return fault_set(f, 400, "out_of_range", "context", "context: rotate:%d keeps more than half of the context of %d",
                     a->context.n_keep, j->served->n_ctx);
}

/* Reads the parameters as the dialect says, and turns them into tokens. It keeps nothing of the body except what the
 * answer needs. */
static int read_params(struct job *j, json_t *body, size_t body_taken, struct fault *f)
{
    struct ticket *t = j->ticket;
    size_t kept, n_text = 0;
    params_init(&j->params, qn_model_n_vocab(j->served->model));
    j->params.n_ctx = j->served->n_ctx;
    j->params.cancel = &t->cancel;
    j->params.stream = j->d->streams;
    if (params_read(&j->params, j->d->tables, body, f) || settle_context(j, f)) return -1;
    if (j->params.deadline_ms > 0) t->deadline_ns = t->arrived_ns + (uint64_t)j->params.deadline_ms * 1000000;
    if (ticket_is_over(t)) return ticket_fault(t, f);
    j->who = who_of(http_identity(j->req), j->params.cache_salt);
    if (!j->params.cache_prompt) j->who.salt[0] = qn_random_seed(); /* nothing is stored under it */
    /* As much again as the document takes: for messages made of it, and for their text. */
    if (ticket_take(t, body_taken, "a conversation", f)) return -1;
    if (j->d->prepare(j, f) || params_let_go(&j->params, &kept, f)) return -1;
    ticket_give(t, 2 * body_taken + j->items_taken);
    if (j->prompt) qn_prompt_text(j->prompt, &n_text);
    kept += j->receipt.conversation.len;
    kept += qn_prompt_user_span(j->prompt, 0, NULL, NULL) * 2 * sizeof(size_t);
    return ticket_take(t, kept + n_text + prompt_bytes(j), "a prompt", f);
}

struct job *job_read(struct api_call *c, const struct dialect *d)
{
    struct fault f = {0};
    struct job *j = mem_calloc(1, sizeof *j);
    if (!j) {
        api_no_memory(&f);
        api_end_refused(c, &f);
        return NULL;
    }
    j->api = c->api;
    j->out.ledger = c->api->c.requests;
    j->req = c->req;
    j->d = d;
    j->load_ms = c->load_ms;
    j->served = c->served;
    c->served = NULL;
    j->ticket = c->ticket;
    j->id = j->ticket->id;
    j->ticket->model = j->served->name;
    json_t *body = c->body;
    c->body = NULL;
    j->created = (int64_t)time(NULL);
    j->told_phase = -1;
    if (read_params(j, body, c->body_taken, &f)) {
        if (!f.code) ticket_fault(j->ticket, &f);
        api_end_refused(c, &f);
        j->ticket = NULL; /* it stays the call's */
        job_free(j);
        return NULL;
    }
    c->ticket = NULL;
    return j;
}

/* Makes the record of a stream that can be resumed. */
static int make_resumable(struct job *j, struct fault *f)
{
    if (!j->ticket->resume_s) return 0;
    if (!j->params.stream)
        return fault_set(f, 400, "invalid_value", "Quern-Resume", "Quern-Resume is for streams: 'stream' is not true");
    if (j->d->stream_type)
        return fault_set(f, 400, "unsupported_value", "Quern-Resume",
                         "Quern-Resume is for server-sent events, and this stream is %s", j->d->stream_type);
    j->resumable = resumable_new(j->ticket);
    return j->resumable ? 0 : api_no_memory(f);
}

/* Makes the answers. The reply to a conversation is parsed here; a continued text is sent as the scheduler gives it. */
static int make_answers(struct job *j, struct fault *f)
{
    struct qn_error e = {0};
    int n = j->params.n * (j->prompts ? j->n_prompts : 1);
    j->answer = mem_calloc((size_t)n, sizeof *j->answer);
    if (!j->answer) return api_no_memory(f);
    j->n_answers = n;
    for (int i = 0; i < n; i++) {
        j->answer[i].stop_index = -1;
        for (int k = 0; k < JOB_LOGPROB_LISTS; k++) j->answer[i].logprobs[k].ledger = j->out.ledger;
        if (j->prompt &&
            qn_reply_new(&j->answer[i].reply, j->served->chat, j->prompt, j->params.stop, (size_t)j->params.n_stop, &e))
            return api_fault(f, &e);
    }
    return 0;
}

/* ---- submission ---- */

/* The ms that are left of the request's time, at least 1. If the deadline is over, the scheduler will say so. */
static int left_ms(uint64_t deadline_ns)
{
    uint64_t now = clock_ns();
    return deadline_ns > now + 1000000 ? (int)((deadline_ns - now) / 1000000) : 1;
}

int job_submit(struct job *j, double *retry_s, struct fault *f)
{
    struct qn_request_params p;
    struct qn_error e = {0};
    uint64_t id;
    const struct answer_params *a = &j->params;
    if (j->prompts) {
        j->tokens = j->prompts[j->at].tokens;
        j->n_tokens = j->prompts[j->at].n_tokens;
    }
    int room = a->context.rotates ? INT_MAX : j->served->n_ctx - (int)j->n_tokens;
    qn_request_params_init(&p);
    p.prompt = j->tokens;
    p.n_prompt = j->n_tokens;
    if (j->prompt) p.boundaries = qn_prompt_boundaries(j->prompt, &p.n_boundaries);
    p.sampling = a->sampling;
    p.sampling.seed = a->has_seed ? (uint64_t)a->seed : qn_random_seed();
    if (!j->prompt) { /* for a conversation, the reply looks for stop texts in the content */
        p.stop = a->stop;
        p.n_stop = (size_t)a->n_stop;
    }
    p.no_text = j->prompt != NULL; /* of a conversation, the reply makes it */
    p.stop_tokens = a->stop_tokens;
    p.n_stop_tokens = a->n_stop_tokens;
    p.ignore_eog = a->ignore_eos;
    p.continues = !j->prompt && j->n_tokens > 0;
    p.max_tokens = a->max_tokens > room ? room : a->max_tokens;
    p.n_answers = a->n;
    p.grammar = j->grammar;
    p.grammar_prompt = j->prompt;
    p.n_top_logprobs = a->logprobs ? a->n_top : -1;
    p.prompt_logprobs = a->echo && a->logprobs;
    p.priority = a->priority;
    p.draft = a->draft;
    p.wedlm = a->wedlm;
    p.rotates = a->context.rotates;
    p.n_keep = a->context.n_keep;
    if (j->ticket->deadline_ns) p.deadline_ms = left_ms(j->ticket->deadline_ns);
    p.identity = j->who.identity;
    p.salt[0] = j->who.salt[0];
    p.salt[1] = j->who.salt[1];
    p.callback = job_on_event;
    p.arg = j;
    j->ticket->scheduler = j->served->scheduler;
    job_receipt_submitted(j, &p);
    return qn_submit(j->served->scheduler, &p, &id, retry_s, &e) ? api_fault(f, &e) : 0;
}

void job_begin(struct api_call *c, const struct dialect *d)
{
    struct fault f = {0};
    double retry_s = 1;
    struct http_request *r = c->req;
    struct job *j = job_read(c, d);
    if (!j) return;
    /* Once it is submitted, it belongs to the scheduler's thread. */
    if (!check_rooms(j, &f) && !format_compile(&j->grammar, &j->params.format, j->served->model, &j->who, &f) &&
        !call_compile(j, &f) && !make_answers(j, &f) && !job_receipt_open(j, &f) && !make_resumable(j, &f) &&
        !job_submit(j, &retry_s, &f))
        return;
    ticket_unlist(j->ticket);
    api_refuse_busy(r, &f, retry_s, d->refuse);
    job_free(j);
}
