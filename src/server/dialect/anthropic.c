/* SPDX-License-Identifier: MIT
 *
 * anthropic.c: POST /v1/messages: writes answers as blocks. anthropic_in.c reads the requests.
 *
 * input_tokens counts tokens that were computed. Tokens from the cache count as cache_read_input_tokens, as in the API.
 * The signature of a thinking block is empty, because no later request has to prove anything to us.
 *
 * Source: the Anthropic API reference ("Messages", "Streaming").
 */
#include "server/dialect/anthropic.h"

#include <stdio.h>
#include <string.h>

enum { NOTHING, THINKING, TEXT }; /* the open block of an answer: a->block */

static int prepare(struct job *j, struct fault *f)
{
    return anthropic_messages(&j->params, f) || job_prepare_chat(j, f) ? -1 : 0;
}

/* ---- pieces of JSON ---- */

static void begin(struct job *j, const char *type)
{
    job_event(j, type);
    json_out_open(&j->out, NULL, '{');
    json_out_str(&j->out, "type", type);
}

static void end(struct job *j)
{
    json_out_close(&j->out, '}');
    job_event_end(j);
}

static const char *stop_reason(const struct job *j)
{
    const struct job_answer *a = &j->answer[0];
    switch (a->finish) {
    case QN_FINISH_LENGTH: return "max_tokens";
    case QN_FINISH_STOP_STRING: return "stop_sequence";
    case QN_FINISH_CANCELLED: return "cancelled";
    default: return a->n_calls && !a->call[a->n_calls - 1].is_cut ? "tool_use" : "end_turn";
    }
}

static void write_stop(struct job *j)
{
    int i = j->answer[0].stop_index;
    json_out_str(&j->out, "stop_reason", stop_reason(j));
    json_out_str(&j->out, "stop_sequence", i >= 0 ? j->params.stop[i] : NULL);
}

static void write_usage(struct job *j, int n_prompt, int n_cached, int n_generated)
{
    json_out_open(&j->out, "usage", '{');
    json_out_int(&j->out, "input_tokens", n_prompt - n_cached);
    json_out_int(&j->out, "cache_creation_input_tokens", 0);
    json_out_int(&j->out, "cache_read_input_tokens", n_cached);
    json_out_int(&j->out, "output_tokens", n_generated);
    json_out_close(&j->out, '}');
}

static void write_head(struct job *j)
{
    json_out_str(&j->out, "id", j->id);
    json_out_str(&j->out, "type", "message");
    json_out_str(&j->out, "role", "assistant");
    json_out_str(&j->out, "model", j->served->name);
}

/* A block begins with an empty input; its deltas bring it. */
static void write_call(struct job *j, const char *key, int k, const struct job_call *c, bool whole)
{
    char id[SHORT_ID + 1];
    job_call_id(j, 0, k, id);
    json_out_open(&j->out, key, '{');
    json_out_str(&j->out, "type", "tool_use");
    json_out_str(&j->out, "id", id);
    json_out_str(&j->out, "name", c->name);
    json_out_raw(&j->out, "input", whole ? c->arguments : "{}", whole ? strlen(c->arguments) : 2);
    json_out_close(&j->out, '}');
}

/* ---- streams ---- */

/* The number of cached tokens is not known yet; message_delta corrects the usage. */
static void start(struct job *j)
{
    if (!j->params.stream) return;
    begin(j, "message_start");
    json_out_open(&j->out, "message", '{');
    write_head(j);
    json_out_open(&j->out, "content", '[');
    json_out_close(&j->out, ']');
    json_out_str(&j->out, "stop_reason", NULL);
    json_out_str(&j->out, "stop_sequence", NULL);
    write_usage(j, (int)j->n_tokens, 0, 0);
    json_out_close(&j->out, '}');
    end(j);
}

/* Blocks do not interleave: one ends before the next begins, and their indices count up. */
static void close_block(struct job *j)
{
    struct job_answer *a = &j->answer[0];
    begin(j, "content_block_stop");
    json_out_int(&j->out, "index", a->n_blocks++);
    end(j);
    a->block = NOTHING;
}

static void text_stream(struct job *j, int i, enum qn_reply_kind kind, const char *text, size_t n)
{
    struct job_answer *a = &j->answer[i];
    int block = kind == QN_REPLY_REASONING ? THINKING : TEXT;
    if (a->block && a->block != block) close_block(j);
    if (!a->block) {
        begin(j, "content_block_start");
        json_out_int(&j->out, "index", a->n_blocks);
        json_out_open(&j->out, "content_block", '{');
        json_out_str(&j->out, "type", block == TEXT ? "text" : "thinking");
        json_out_str(&j->out, block == TEXT ? "text" : "thinking", "");
        if (block == THINKING) json_out_str(&j->out, "signature", "");
        json_out_close(&j->out, '}');
        end(j);
        a->block = block;
    }
    begin(j, "content_block_delta");
    json_out_int(&j->out, "index", a->n_blocks);
    json_out_open(&j->out, "delta", '{');
    json_out_str(&j->out, "type", block == TEXT ? "text_delta" : "thinking_delta");
    json_out_text(&j->out, block == TEXT ? "text" : "thinking", text, n);
    json_out_close(&j->out, '}');
    end(j);
}

static void call_begin(struct job *j, int i, const struct job_call *c)
{
    struct job_answer *a = &j->answer[i];
    if (a->block) close_block(j);
    begin(j, "content_block_start");
    json_out_int(&j->out, "index", a->n_blocks);
    write_call(j, "content_block", a->n_calls - 1, c, false);
    end(j);
}

static void call_piece(struct job *j, int i, const char *text, size_t n)
{
    begin(j, "content_block_delta");
    json_out_int(&j->out, "index", j->answer[i].n_blocks);
    json_out_open(&j->out, "delta", '{');
    json_out_str(&j->out, "type", "input_json_delta");
    json_out_text(&j->out, "partial_json", text, n);
    json_out_close(&j->out, '}');
    end(j);
}

static void call_end(struct job *j, int i, const struct job_call *c)
{
    (void)i, (void)c;
    close_block(j);
}

static void call_stream(struct job *j, int i, const struct job_call *c)
{
    call_begin(j, i, c);
    call_piece(j, i, c->arguments, strlen(c->arguments));
    call_end(j, i, c);
}

static void finish_stream(struct job *j, int i, bool last)
{
    (void)last; /* there is one answer */
    if (j->answer[i].block) close_block(j);
    begin(j, "message_delta");
    json_out_open(&j->out, "delta", '{');
    write_stop(j);
    json_out_close(&j->out, '}');
    write_usage(j, j->usage.n_prompt, j->usage.n_cached, j->usage.n_generated);
    job_write_quern(j);
    end(j);
}

static void close_stream(struct job *j)
{
    begin(j, "message_stop");
    end(j);
}

static void error_stream(struct job *j, const struct fault *f)
{
    job_event(j, "error");
    api_error_anthropic(&j->out, f);
    job_event_end(j);
}

/* ---- whole answers ---- */

/* Writes a block unless its text is empty. */
static void write_block(struct job *j, const char *type, const struct buf *text)
{
    if (text->len == 0) return;
    json_out_open(&j->out, NULL, '{');
    json_out_str(&j->out, "type", type);
    json_out_text(&j->out, type, (char *)text->data, text->len);
    if (type[1] == 'h') json_out_str(&j->out, "signature", "");
    json_out_close(&j->out, '}');
}

static void whole(struct job *j)
{
    const struct job_answer *a = &j->answer[0];
    json_out_open(&j->out, NULL, '{');
    write_head(j);
    json_out_open(&j->out, "content", '[');
    write_block(j, "thinking", &a->reasoning);
    write_block(j, "text", &a->content);
    for (int k = 0; k < a->n_calls; k++) write_call(j, NULL, k, &a->call[k], true);
    json_out_close(&j->out, ']');
    write_stop(j);
    write_usage(j, j->usage.n_prompt, j->usage.n_cached, j->usage.n_generated);
    job_write_quern(j);
    json_out_close(&j->out, '}');
}

static const struct field *const tables[] = {anthropic_count_fields, anthropic_fields, params_shared_fields,
                                             params_sampling_fields, NULL};
static const struct field *const count_tables[] = {anthropic_count_fields, NULL};

const struct dialect anthropic = {
    .tables = tables,
    .id_prefix = "msg_",
    .prompt_field = "messages",
    .refuse = api_refuse_anthropic,
    .prepare = prepare,
    .start = start,
    .text_stream = text_stream,
    .call_stream = call_stream,
    .call_begin = call_begin,
    .call_piece = call_piece,
    .call_end = call_end,
    .finish_stream = finish_stream,
    .close_stream = close_stream,
    .error_stream = error_stream,
    .whole = whole,
};

const struct dialect anthropic_count = {
    .tables = count_tables,
    .id_prefix = "msg_",
    .prompt_field = "messages",
    .refuse = api_refuse_anthropic,
    .prepare = prepare,
};
