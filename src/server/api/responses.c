/* SPDX-License-Identifier: MIT
 *
 * responses.c: POST /v1/responses, its stateless part: writes answers as items. responses_in.c reads the requests.
 *
 * The items of an answer are the thoughts, the text, and the calls, in this order. The event that ends a stream repeats
 * them all, so their text is kept.
 *
 * Source: the OpenAI API reference ("Responses", "Streaming events").
 */
#include "server/api/responses.h"

#include <stdio.h>
#include <string.h>

enum { NOTHING, REASONING, MESSAGE }; /* the open item of an answer: a->block */

static int prepare(struct job *j, struct fault *f)
{
    return responses_messages(&j->params, f) || job_prepare_chat(j, f) ? -1 : 0;
}

/* ---- items ---- */

/* The id of an item: its kind, the request, and its place in the output. */
static void write_id(struct job *j, const char *key, const char *prefix, int k)
{
    char id[96];
    snprintf(id, sizeof id, "%s_%s_%d", prefix, j->id + sizeof "resp_" - 1, k);
    json_out_str(&j->out, key, id);
}

static const char *item_prefix(int block) { return block == REASONING ? "rs" : "msg"; }

static void write_part(struct job *j, const char *key, int block, const char *text, size_t n)
{
    json_out_open(&j->out, key, '{');
    json_out_str(&j->out, "type", block == REASONING ? "reasoning_text" : "output_text");
    json_out_text(&j->out, "text", text, n);
    if (block == MESSAGE) {
        json_out_open(&j->out, "annotations", '[');
        json_out_close(&j->out, ']');
    }
    json_out_close(&j->out, '}');
}

/* Writes an item. text NULL: the item has just begun. */
static void write_item(struct job *j, const char *key, int block, int index, const struct buf *text)
{
    json_out_open(&j->out, key, '{');
    json_out_str(&j->out, "type", block == REASONING ? "reasoning" : "message");
    write_id(j, "id", item_prefix(block), index);
    json_out_str(&j->out, "status", text ? "completed" : "in_progress");
    if (block == REASONING) {
        json_out_open(&j->out, "summary", '[');
        json_out_close(&j->out, ']');
    } else {
        json_out_str(&j->out, "role", "assistant");
    }
    json_out_open(&j->out, "content", '[');
    if (text) write_part(j, NULL, block, (char *)text->data, text->len);
    json_out_close(&j->out, ']');
    json_out_close(&j->out, '}');
}

static void write_call(struct job *j, const char *key, int index, const struct job_call *c, bool begun)
{
    json_out_open(&j->out, key, '{');
    json_out_str(&j->out, "type", "function_call");
    write_id(j, "id", "fc", index);
    write_id(j, "call_id", "call", index);
    json_out_str(&j->out, "name", c->name);
    json_out_str(&j->out, "arguments", begun ? "" : c->arguments);
    json_out_str(&j->out, "status", begun ? "in_progress" : "completed");
    json_out_close(&j->out, '}');
}

/* ---- the response ---- */

static void write_usage(struct job *j)
{
    const struct qn_usage *u = &j->usage;
    json_out_open(&j->out, "usage", '{');
    json_out_int(&j->out, "input_tokens", u->n_prompt);
    json_out_open(&j->out, "input_tokens_details", '{');
    json_out_int(&j->out, "cached_tokens", u->n_cached);
    json_out_close(&j->out, '}');
    json_out_int(&j->out, "output_tokens", u->n_generated);
    json_out_open(&j->out, "output_tokens_details", '{');
    json_out_int(&j->out, "reasoning_tokens", job_reasoning_tokens(j));
    json_out_close(&j->out, '}');
    json_out_int(&j->out, "total_tokens", u->n_prompt + u->n_generated);
    json_out_close(&j->out, '}');
}

static const char *status_of(const struct job *j)
{
    switch (j->answer[0].finish) {
    case QN_FINISH_NONE: return "in_progress";
    case QN_FINISH_LENGTH: return "incomplete";
    case QN_FINISH_CANCELLED: return "cancelled";
    default: return "completed";
    }
}

static void write_asked(struct job *j)
{
    const struct answer_params *a = &j->params;
    const struct buf *tools = &a->tools_again;
    if (a->instructions)
        json_out_text(&j->out, "instructions", json_string_value(a->instructions), json_string_length(a->instructions));
    else
        json_out_str(&j->out, "instructions", NULL);
    if (a->max_tokens < 0)
        json_out_str(&j->out, "max_output_tokens", NULL);
    else
        json_out_int(&j->out, "max_output_tokens", a->max_tokens);
    json_out_bool(&j->out, "parallel_tool_calls", !a->one_call);
    json_out_str(&j->out, "previous_response_id", NULL);
    json_out_bool(&j->out, "store", false);
    json_out_num(&j->out, "temperature", (double)a->sampling.temperature);
    json_out_str(&j->out, "tool_choice", a->no_tools ? "none" : "auto");
    json_out_raw(&j->out, "tools", tools->len ? (char *)tools->data : "[]", tools->len ? tools->len : 2);
    json_out_num(&j->out, "top_p", (double)a->sampling.top_p);
    json_out_str(&j->out, "truncation", "disabled");
    json_out_open(&j->out, "metadata", '{');
    json_out_close(&j->out, '}');
}

/* Writes the response object. It repeats the request's parameters and, once done, has the output. */
static void write_response(struct job *j, const char *key, bool done)
{
    const struct job_answer *a = &j->answer[0];
    int index = 0;
    json_out_open(&j->out, key, '{');
    json_out_str(&j->out, "id", j->id);
    json_out_str(&j->out, "object", "response");
    json_out_int(&j->out, "created_at", j->created);
    json_out_str(&j->out, "status", status_of(j));
    json_out_str(&j->out, "error", NULL);
    if (a->finish == QN_FINISH_LENGTH) {
        json_out_open(&j->out, "incomplete_details", '{');
        json_out_str(&j->out, "reason", "max_output_tokens");
        json_out_close(&j->out, '}');
    } else {
        json_out_str(&j->out, "incomplete_details", NULL);
    }
    json_out_str(&j->out, "model", j->served->name);
    write_asked(j);
    json_out_open(&j->out, "output", '[');
    if (done && a->reasoning.len) write_item(j, NULL, REASONING, index++, &a->reasoning);
    if (done && a->content.len) write_item(j, NULL, MESSAGE, index++, &a->content);
    for (int k = 0; done && k < a->n_calls; k++) write_call(j, NULL, index++, &a->call[k], false);
    json_out_close(&j->out, ']');
    if (done) {
        write_usage(j);
        job_write_quern(j);
    } else {
        json_out_str(&j->out, "usage", NULL);
    }
    json_out_close(&j->out, '}');
}

/* ---- streams ---- */

/* Begins an event. Each has its own name twice, and a number. */
static void begin(struct job *j, const char *type)
{
    job_event(j, type);
    json_out_open(&j->out, NULL, '{');
    json_out_str(&j->out, "type", type);
    json_out_int(&j->out, "sequence_number", j->n_events++);
}

static void end(struct job *j)
{
    json_out_close(&j->out, '}');
    job_event_end(j);
}

/* Begins an event of the open part. */
static void begin_part(struct job *j, const char *type, int block)
{
    begin(j, type);
    write_id(j, "item_id", item_prefix(block), j->answer[0].n_blocks);
    json_out_int(&j->out, "output_index", j->answer[0].n_blocks);
    json_out_int(&j->out, "content_index", 0);
}

static void start(struct job *j)
{
    if (!j->params.stream) return;
    begin(j, "response.created");
    write_response(j, "response", false);
    end(j);
    begin(j, "response.in_progress");
    write_response(j, "response", false);
    end(j);
}

/* Closes the item with three events, each of which repeats the text. */
static void close_item(struct job *j)
{
    struct job_answer *a = &j->answer[0];
    int block = a->block;
    const struct buf *text = block == REASONING ? &a->reasoning : &a->content;
    begin_part(j, block == REASONING ? "response.reasoning_text.done" : "response.output_text.done", block);
    json_out_text(&j->out, "text", (char *)text->data, text->len);
    end(j);
    begin_part(j, "response.content_part.done", block);
    write_part(j, "part", block, (char *)text->data, text->len);
    end(j);
    begin(j, "response.output_item.done");
    json_out_int(&j->out, "output_index", a->n_blocks);
    write_item(j, "item", block, a->n_blocks, text);
    end(j);
    a->block = NOTHING;
    a->n_blocks++;
}

static void open_item(struct job *j, int block)
{
    struct job_answer *a = &j->answer[0];
    begin(j, "response.output_item.added");
    json_out_int(&j->out, "output_index", a->n_blocks);
    write_item(j, "item", block, a->n_blocks, NULL);
    end(j);
    begin_part(j, "response.content_part.added", block);
    write_part(j, "part", block, "", 0);
    end(j);
    a->block = block;
}

static void text_stream(struct job *j, int i, enum qn_reply_kind kind, const char *text, size_t n)
{
    struct job_answer *a = &j->answer[i];
    int block = kind == QN_REPLY_REASONING ? REASONING : MESSAGE;
    if (a->block && a->block != block) close_item(j);
    if (!a->block) open_item(j, block);
    begin_part(j, block == REASONING ? "response.reasoning_text.delta" : "response.output_text.delta", block);
    json_out_text(&j->out, "delta", text, n);
    end(j);
}

static void call_stream(struct job *j, int i, const struct job_call *c)
{
    static const char *const steps[] = {"response.output_item.added", "response.function_call_arguments.delta",
                                        "response.function_call_arguments.done", "response.output_item.done"};
    struct job_answer *a = &j->answer[i];
    if (a->block) close_item(j);
    for (int k = 0; k < 4; k++) {
        begin(j, steps[k]);
        json_out_int(&j->out, "output_index", a->n_blocks);
        if (k == 0 || k == 3) {
            write_call(j, "item", a->n_blocks, c, k == 0);
        } else {
            write_id(j, "item_id", "fc", a->n_blocks);
            json_out_str(&j->out, k == 1 ? "delta" : "arguments", c->arguments);
        }
        end(j);
    }
    a->n_blocks++;
}

static void finish_stream(struct job *j, int i, bool last)
{
    bool cut = j->answer[i].finish == QN_FINISH_LENGTH;
    (void)last; /* there is one answer */
    if (j->answer[i].block) close_item(j);
    begin(j, cut ? "response.incomplete" : "response.completed");
    write_response(j, "response", true);
    end(j);
}

/* The last event says that it is the last one; there is no [DONE]. */
static void close_stream(struct job *j) { (void)j; }

static void error_stream(struct job *j, const struct fault *f)
{
    begin(j, "error");
    json_out_str(&j->out, "code", f->code);
    json_out_str(&j->out, "message", f->message);
    json_out_str(&j->out, "param", f->param[0] ? f->param : NULL);
    end(j);
}

static void whole(struct job *j) { write_response(j, NULL, true); }

static const struct field *const tables[] = {responses_fields, params_shared_fields, params_sampling_fields, NULL};

const struct dialect responses = {
    .tables = tables,
    .id_prefix = "resp_",
    .prompt_field = "input",
    .keeps_text = true,
    .refuse = api_refuse_openai,
    .prepare = prepare,
    .start = start,
    .text_stream = text_stream,
    .call_stream = call_stream,
    .finish_stream = finish_stream,
    .close_stream = close_stream,
    .error_stream = error_stream,
    .whole = whole,
};
