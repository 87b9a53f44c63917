/* SPDX-License-Identifier: MIT
 *
 * openai_chat.c: POST /v1/chat/completions: the next message of a conversation.
 *
 * reasoning_content, next to content, has the thoughts before the answer; clients of open models know it by this name.
 * logprobs cover all tokens of the answer, including those of thoughts and calls.
 *
 * Source: the OpenAI API reference, "Chat" and "Streaming".
 */
#include "server/api/api_impl.h"

#include <stdio.h>

static const struct field *const tables[] = {params_chat_fields,   params_thinking_fields, params_openai_fields,
                                             params_shared_fields, params_sampling_fields, NULL};

static int prepare(struct job *j, struct fault *f)
{
    return openai_messages(&j->params, f) || job_prepare_chat(j, f) ? -1 : 0;
}

/* ---- shared with openai_text.c ---- */

/* Writes the usage. As in the API, prompt_tokens include cached ones. */
static void write_usage(struct job *j, const struct qn_usage *u, bool done)
{
    json_out_open(&j->out, "usage", '{');
    json_out_int(&j->out, "prompt_tokens", u->n_prompt);
    json_out_int(&j->out, "completion_tokens", u->n_generated);
    json_out_int(&j->out, "total_tokens", u->n_prompt + u->n_generated);
    if (done) { /* until then it is not known */
        json_out_open(&j->out, "prompt_tokens_details", '{');
        json_out_int(&j->out, "cached_tokens", u->n_cached);
        if (u->n_dropped > 0) json_out_int(&j->out, "dropped_tokens", u->n_dropped);
        json_out_close(&j->out, '}');
    }
    json_out_open(&j->out, "completion_tokens_details", '{');
    json_out_int(&j->out, "reasoning_tokens", job_reasoning_tokens(j));
    json_out_close(&j->out, '}');
    json_out_close(&j->out, '}');
}

static void usage(struct job *j) { write_usage(j, &j->usage, true); }

/* So far, for a chunk. */
static void usage_so_far(struct job *j)
{
    struct qn_usage u = {.n_prompt = (int)j->n_tokens};
    for (int i = 0; j->prompts && i < j->at; i++) u.n_prompt += (int)j->prompts[i].n_tokens;
    for (int i = 0; i < j->n_answers; i++) u.n_generated += j->answer[i].n_tokens;
    write_usage(j, &u, false);
}

/* With include_usage there is one more chunk, which has no choices; clients that index into choices have to expect
 * that. */
void openai_close_stream(struct job *j)
{
    if (j->params.include_usage) {
        job_event(j, NULL);
        j->d->write_head(j);
        json_out_open(&j->out, "choices", '[');
        json_out_close(&j->out, ']');
        usage(j);
        json_out_close(&j->out, '}');
        job_event_end(j);
    }
    job_event(j, NULL);
    json_out_frame(&j->out, "[DONE]");
    job_event_end(j);
}

void openai_error_stream(struct job *j, const struct fault *f)
{
    job_event(j, NULL);
    api_error_openai(&j->out, f);
    job_event_end(j);
}

void openai_open_head(struct job *j, const char *object)
{
    json_out_open(&j->out, NULL, '{');
    json_out_str(&j->out, "id", j->id);
    json_out_str(&j->out, "object", object);
    json_out_int(&j->out, "created", j->created);
    json_out_str(&j->out, "model", j->served->name);
}

void openai_take_list(struct job *j, const char *key, struct json_out *l)
{
    json_out_open(&j->out, key, '[');
    json_out_raw(&j->out, NULL, l->b.data, l->b.len);
    json_out_close(&j->out, ']');
    j->out.failed |= l->failed;
    buf_clear(&l->b);
    l->comma = false;
}

void openai_end_chunk(struct job *j, bool last)
{
    if (j->params.continuous_usage && j->params.include_usage)
        usage_so_far(j);
    else if (j->params.include_usage)
        json_out_str(&j->out, "usage", NULL);
    if (last) job_write_quern(j);
    json_out_close(&j->out, '}');
    job_event_end(j);
}

void openai_end_whole(struct job *j)
{
    usage(j);
    job_write_quern(j);
    json_out_close(&j->out, '}');
}

/* ---- chunks ---- */

/* Writes the logprobs of all tokens since the last chunk: a token whose text is held back is included in a later one.
 */
static void write_logprobs(struct job *j, struct job_answer *a)
{
    if (!j->params.logprobs) {
        json_out_str(&j->out, "logprobs", NULL);
        return;
    }
    json_out_open(&j->out, "logprobs", '{');
    openai_take_list(j, "content", &a->logprobs[0]);
    json_out_close(&j->out, '}');
}

static void write_head(struct job *j) { openai_open_head(j, "chat.completion.chunk"); }

/* Opens a chunk, {..., "choices": [{"index": i, "delta": {, into which the caller writes until close_chunk(). */
static void open_chunk(struct job *j, int i)
{
    job_event(j, NULL);
    write_head(j);
    json_out_open(&j->out, "choices", '[');
    json_out_open(&j->out, NULL, '{');
    json_out_int(&j->out, "index", i);
    json_out_open(&j->out, "delta", '{');
}

static void close_chunk(struct job *j, int i, bool ended, bool last)
{
    json_out_close(&j->out, '}');
    write_logprobs(j, &j->answer[i]);
    json_out_str(&j->out, "finish_reason", ended ? job_finish_reason(j, i) : NULL);
    json_out_close(&j->out, '}');
    json_out_close(&j->out, ']');
    openai_end_chunk(j, last);
}

/* The first chunk of each choice has the role, before any token is there. */
static void start(struct job *j)
{
    for (int i = 0; i < j->params.n && j->params.stream; i++) {
        open_chunk(j, i);
        json_out_str(&j->out, "role", "assistant");
        json_out_str(&j->out, "content", "");
        close_chunk(j, i, false, false);
    }
}

static void text_stream(struct job *j, int i, enum qn_reply_kind kind, const char *text, size_t n)
{
    open_chunk(j, i);
    json_out_text(&j->out, kind == QN_REPLY_REASONING ? "reasoning_content" : "content", text, n);
    close_chunk(j, i, false, false);
}

/* Writes a call. In streams it has an index. */
static void write_call(struct job *j, int i, int index, const struct job_call *c)
{
    char id[SHORT_ID + 1];
    job_call_id(j, i, index, id);
    json_out_open(&j->out, NULL, '{');
    if (j->params.stream) json_out_int(&j->out, "index", index);
    json_out_str(&j->out, "id", id);
    json_out_str(&j->out, "type", "function");
    json_out_open(&j->out, "function", '{');
    json_out_str(&j->out, "name", c->name);
    json_out_str(&j->out, "arguments", c->arguments);
    json_out_close(&j->out, '}');
    json_out_close(&j->out, '}');
}

static void call_stream(struct job *j, int i, const struct job_call *c)
{
    open_chunk(j, i);
    json_out_open(&j->out, "tool_calls", '[');
    write_call(j, i, j->answer[i].n_calls - 1, c);
    json_out_close(&j->out, ']');
    close_chunk(j, i, false, false);
}

/* The first chunk of a call in pieces has its name, */
static void call_begin(struct job *j, int i, const struct job_call *c) { call_stream(j, i, c); }

/* the others have parts of its arguments. */
static void call_piece(struct job *j, int i, const char *text, size_t n)
{
    open_chunk(j, i);
    json_out_open(&j->out, "tool_calls", '[');
    json_out_open(&j->out, NULL, '{');
    json_out_int(&j->out, "index", j->answer[i].n_calls - 1);
    json_out_open(&j->out, "function", '{');
    json_out_text(&j->out, "arguments", text, n);
    json_out_close(&j->out, '}');
    json_out_close(&j->out, '}');
    json_out_close(&j->out, ']');
    close_chunk(j, i, false, false);
}

static void call_end(struct job *j, int i, const struct job_call *c) { (void)j, (void)i, (void)c; }

/* The last chunk of a choice has the finish reason and an empty delta. */
static void finish_stream(struct job *j, int i, bool last)
{
    open_chunk(j, i);
    close_chunk(j, i, true, last);
}

/* Adds {"id", "token", "bytes", "logprob", "top_logprobs": [...]}. The bytes are there because a token need not be
 * whole UTF-8. */
void openai_write_logprob(struct job *j, struct json_out *l, const struct qn_event *e)
{
    json_out_open(l, NULL, '{');
    job_write_token(j, l, e->token);
    json_out_num(l, "logprob", e->logprob);
    json_out_open(l, "top_logprobs", '[');
    for (int i = 0; i < e->n_top; i++) {
        json_out_open(l, NULL, '{');
        job_write_token(j, l, e->top[i].token);
        json_out_num(l, "logprob", e->top[i].logprob);
        json_out_close(l, '}');
    }
    json_out_close(l, ']');
    json_out_close(l, '}');
}

static void logprob(struct job *j, struct job_answer *a, const struct qn_event *e)
{
    openai_write_logprob(j, &a->logprobs[0], e);
}

/* ---- whole answers ---- */

/* content is null only next to calls; an answer without tokens has the empty text. */
static void write_message(struct job *j, int i)
{
    struct job_answer *a = &j->answer[i];
    json_out_open(&j->out, "message", '{');
    json_out_str(&j->out, "role", "assistant");
    if (a->n_calls && a->content.len == 0)
        json_out_str(&j->out, "content", NULL);
    else
        json_out_text(&j->out, "content", (char *)a->content.data, a->content.len);
    json_out_str(&j->out, "refusal", NULL);
    if (a->reasoning.len) json_out_text(&j->out, "reasoning_content", (char *)a->reasoning.data, a->reasoning.len);
    if (a->n_calls) {
        json_out_open(&j->out, "tool_calls", '[');
        for (int k = 0; k < a->n_calls; k++) write_call(j, i, k, &a->call[k]);
        json_out_close(&j->out, ']');
    }
    json_out_close(&j->out, '}');
}

static void whole(struct job *j)
{
    openai_open_head(j, "chat.completion");
    json_out_open(&j->out, "choices", '[');
    for (int i = 0; i < j->params.n; i++) {
        json_out_open(&j->out, NULL, '{');
        json_out_int(&j->out, "index", i);
        write_message(j, i);
        write_logprobs(j, &j->answer[i]);
        json_out_str(&j->out, "finish_reason", job_finish_reason(j, i));
        json_out_close(&j->out, '}');
    }
    json_out_close(&j->out, ']');
    openai_end_whole(j);
}

const struct dialect openai_chat = {
    .tables = tables,
    .id_prefix = "chatcmpl-",
    .prompt_field = "messages",
    .keeps_places = true,
    .refuse = api_refuse_openai,
    .prepare = prepare,
    .start = start,
    .text_stream = text_stream,
    .call_stream = call_stream,
    .call_begin = call_begin,
    .call_piece = call_piece,
    .call_end = call_end,
    .finish_stream = finish_stream,
    .close_stream = openai_close_stream,
    .error_stream = openai_error_stream,
    .whole = whole,
    .logprob = logprob,
    .write_head = write_head,
};
