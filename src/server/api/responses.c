/* SPDX-License-Identifier: MIT
 *
 * responses.c: POST /v1/responses: writes answers as items. responses_in.c reads the requests.
 *
 * Thoughts, texts and calls become items in the order in which they come; their numbers are a part of their ids. The
 * event that ends a stream repeats them all, so their text is kept. Thoughts are the content of their item; if a
 * summary was asked for, they are its summary instead, because most clients show nothing else.
 *
 * Source: the OpenAI API reference ("Responses", "Streaming events").
 */
#include "server/api/responses.h"

#include <stdio.h>
#include <string.h>

enum { NOTHING, REASONING, SUMMARY, MESSAGE, CALL }; /* the open item of an answer: a->block; by its part */

/* An item of an answer; they are in a->items. */
struct output_item {
    int block;
    size_t from, to; /* bytes of the answer's content or thoughts. from: the number of a call */
};

static int prepare(struct job *j, struct fault *f)
{
    size_t n_before;
    if (responses_gather(j, &n_before, f)) return -1;
    const json_t *items = j->params.messages;
    if (responses_messages(&j->params, f) || job_prepare_chat(j, f)) return -1;
    responses_begin_record(j, items, n_before);
    return 0;
}

/* ---- items ---- */

/* The id of an item: its kind, the request, and its place in the output. */
static void write_id(struct job *j, const char *key, const char *prefix, int k)
{
    char id[96];
    snprintf(id, sizeof id, "%s_%s_%d", prefix, j->id + sizeof "resp_" - 1, k);
    json_out_str(&j->out, key, id);
}

static const char *item_prefix(int block) { return block == MESSAGE ? "msg" : "rs"; }

static int thoughts_of(const struct job *j) { return j->params.summary ? SUMMARY : REASONING; }

static void write_part(struct job *j, const char *key, int block, const char *text, size_t n)
{
    static const char *const types[] = {
        [REASONING] = "reasoning_text", [SUMMARY] = "summary_text", [MESSAGE] = "output_text"};
    json_out_open(&j->out, key, '{');
    json_out_str(&j->out, "type", types[block]);
    json_out_text(&j->out, "text", text, n);
    if (block == MESSAGE) {
        json_out_open(&j->out, "annotations", '[');
        json_out_close(&j->out, ']');
    }
    json_out_close(&j->out, '}');
}

/* The text of an item. */
static const char *text_at(const struct job *j, const struct output_item *m, size_t *n)
{
    const struct buf *all = m->block == MESSAGE ? &j->answer[0].content : &j->answer[0].reasoning;
    *n = m->to - m->from;
    return (char *)all->data + m->from;
}

static void write_whole_part(struct job *j, const char *key, const struct output_item *m)
{
    size_t n;
    const char *text = text_at(j, m, &n);
    write_part(j, key, m->block, text, n);
}

/* Writes a list of parts: the one of the item, if it is to have it. */
static void write_parts(struct job *j, const char *key, bool has, const struct output_item *m)
{
    json_out_open(&j->out, key, '[');
    if (has) write_whole_part(j, NULL, m);
    json_out_close(&j->out, ']');
}

/* The status of an item of text that is closed: the limit on tokens may have cut the last one. */
static const char *end_of_text(const struct job *j, int index)
{
    const struct job_answer *a = &j->answer[0];
    bool is_last = (size_t)index + 1 == a->items.len / sizeof(struct output_item);
    return is_last && a->finish == QN_FINISH_LENGTH ? "incomplete" : "completed";
}

/* Writes an item of text. begun: it has just begun. */
static void write_text(struct job *j, const char *key, int index, const struct output_item *m, bool begun)
{
    json_out_open(&j->out, key, '{');
    json_out_str(&j->out, "type", m->block == MESSAGE ? "message" : "reasoning");
    write_id(j, "id", item_prefix(m->block), index);
    json_out_str(&j->out, "status", begun ? "in_progress" : end_of_text(j, index));
    if (m->block == MESSAGE)
        json_out_str(&j->out, "role", "assistant");
    else
        write_parts(j, "summary", m->block == SUMMARY && !begun, m);
    write_parts(j, "content", m->block != SUMMARY && !begun, m);
    json_out_close(&j->out, '}');
}

static void write_call(struct job *j, const char *key, int index, const struct job_call *c, bool begun)
{
    char id[SHORT_ID + 1];
    job_call_id(j, 0, index, id);
    json_out_open(&j->out, key, '{');
    json_out_str(&j->out, "type", "function_call");
    write_id(j, "id", "fc", index);
    json_out_str(&j->out, "call_id", id);
    json_out_str(&j->out, "name", c->name);
    json_out_str(&j->out, "arguments", begun ? "" : c->arguments);
    json_out_str(&j->out, "status", begun ? "in_progress" : "completed");
    json_out_close(&j->out, '}');
}

static void write_item(struct job *j, const char *key, int index, const struct output_item *m, bool begun)
{
    if (m->block == CALL)
        write_call(j, key, index, &j->answer[0].call[m->from], begun);
    else
        write_text(j, key, index, m, begun);
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
    json_out_str(&j->out, "previous_response_id", a->continues[0] ? a->continues : NULL);
    json_out_bool(&j->out, "store", j->record != NULL);
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
    const struct output_item *item = (const struct output_item *)a->items.data;
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
    for (int k = 0; done && k < a->n_blocks; k++) write_item(j, NULL, k, &item[k], false);
    json_out_close(&j->out, ']');
    if (done) {
        write_usage(j);
        job_write_quern(j);
    } else {
        json_out_str(&j->out, "usage", NULL);
    }
    json_out_close(&j->out, '}');
}

/* Writes the response object once it is done, and keeps it. If there is no room for it, it is written again, because it
 * says whether it is kept. */
static void write_done(struct job *j, const char *key)
{
    struct json_out *o = &j->out;
    size_t before = o->b.len;
    bool comma = o->comma;
    write_response(j, key, true);
    if (!j->record || o->failed) return;
    const char *text = memchr(o->b.data + before, '{', o->b.len - before);
    if (item_store_keep(j->api->items, j->record, text, (size_t)((char *)o->b.data + o->b.len - text))) return;
    item_store_release(j->api->items, j->record);
    j->record = NULL;
    o->b.len = before;
    o->comma = comma;
    write_response(j, key, true);
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

/* The events of a part, in order. */
enum part_event { ADDED, DELTA, TEXT_DONE, DONE };

/* Begins an event of the open part. */
static void begin_part(struct job *j, enum part_event event, int block)
{
    static const char *const names[][4] = {
        [REASONING] = {"response.content_part.added", "response.reasoning_text.delta", "response.reasoning_text.done",
                       "response.content_part.done"},
        [SUMMARY] = {"response.reasoning_summary_part.added", "response.reasoning_summary_text.delta",
                     "response.reasoning_summary_text.done", "response.reasoning_summary_part.done"},
        [MESSAGE] = {"response.content_part.added", "response.output_text.delta", "response.output_text.done",
                     "response.content_part.done"},
    };
    begin(j, names[block][event]);
    write_id(j, "item_id", item_prefix(block), j->answer[0].n_blocks);
    json_out_int(&j->out, "output_index", j->answer[0].n_blocks);
    json_out_int(&j->out, block == SUMMARY ? "summary_index" : "content_index", 0);
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

/* Begins an event of the item that is the last one. */
static void begin_item(struct job *j, const char *type)
{
    begin(j, type);
    json_out_int(&j->out, "output_index", j->answer[0].n_blocks);
}

static struct output_item *last_item(struct job *j)
{
    return (struct output_item *)j->answer[0].items.data + j->answer[0].n_blocks;
}

/* Adds an item. NULL: there is no memory. */
static struct output_item *add_item(struct job *j, struct output_item m)
{
    if (buf_add(&j->answer[0].items, &m, sizeof m, NULL)) {
        j->out.failed = true;
        return NULL;
    }
    return last_item(j);
}

/* Closes the item; in a stream with three events, each of which repeats the text. */
static void close_item(struct job *j)
{
    struct job_answer *a = &j->answer[0];
    struct output_item *m = last_item(j);
    size_t n;
    m->to = m->block == MESSAGE ? a->content.len : a->reasoning.len;
    if (j->params.stream) {
        begin_part(j, TEXT_DONE, m->block);
        const char *text = text_at(j, m, &n);
        json_out_text(&j->out, "text", text, n);
        end(j);
        begin_part(j, DONE, m->block);
        write_whole_part(j, "part", m);
        end(j);
        begin_item(j, "response.output_item.done");
        write_item(j, "item", a->n_blocks, m, false);
        end(j);
    }
    a->block = NOTHING;
    a->n_blocks++;
}

/* Opens an item, whose text begins with the last n bytes. */
static void open_item(struct job *j, int block, size_t n)
{
    struct job_answer *a = &j->answer[0];
    size_t len = block == MESSAGE ? a->content.len : a->reasoning.len;
    const struct output_item *m = add_item(j, (struct output_item){block, len - n, len});
    if (!m) return;
    a->block = block;
    if (!j->params.stream) return;
    begin_item(j, "response.output_item.added");
    write_item(j, "item", a->n_blocks, m, true);
    end(j);
    begin_part(j, ADDED, block);
    write_part(j, "part", block, "", 0);
    end(j);
}

static void add_text(struct job *j, int i, enum qn_reply_kind kind, const char *text, size_t n)
{
    struct job_answer *a = &j->answer[i];
    int block = kind == QN_REPLY_REASONING ? thoughts_of(j) : MESSAGE;
    if (j->out.failed) return; /* the text may not be there */
    if (a->block && a->block != block) close_item(j);
    if (!a->block) open_item(j, block, n);
    if (!j->params.stream) return;
    begin_part(j, DELTA, block);
    json_out_text(&j->out, "delta", text, n);
    end(j);
}

static void add_call(struct job *j, int i, const struct job_call *c)
{
    static const char *const steps[] = {"response.output_item.added", "response.function_call_arguments.delta",
                                        "response.function_call_arguments.done", "response.output_item.done"};
    struct job_answer *a = &j->answer[i];
    if (a->block) close_item(j);
    const struct output_item *m = add_item(j, (struct output_item){.block = CALL, .from = (size_t)(c - a->call)});
    if (!m) return;
    for (int k = 0; k < 4 && j->params.stream; k++) {
        begin_item(j, steps[k]);
        if (k == 0 || k == 3) {
            write_item(j, "item", a->n_blocks, m, k == 0);
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
    write_done(j, "response");
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

static void whole(struct job *j)
{
    if (j->answer[0].block) close_item(j);
    write_done(j, NULL);
}

static const struct field *const tables[] = {responses_fields, params_shared_fields, params_sampling_fields, NULL};

const struct dialect responses = {
    .tables = tables,
    .id_prefix = "resp_",
    .prompt_field = "input",
    .keeps_text = true,
    .sees_whole = true,
    .refuse = api_refuse_openai,
    .prepare = prepare,
    .start = start,
    .text_stream = add_text,
    .call_stream = add_call,
    .finish_stream = finish_stream,
    .close_stream = close_stream,
    .error_stream = error_stream,
    .whole = whole,
};
