/* SPDX-License-Identifier: MIT
 *
 * responses_object.c: the JSON of /v1/responses: items, their parts, and the response object.
 *
 * Source: the OpenAI API reference ("Responses").
 */
#include "server/dialect/responses.h"

#include <stdio.h>
#include <string.h>

/* ---- items ---- */

void responses_write_id(struct job *j, const char *key, const char *prefix, int k)
{
    char id[96];
    snprintf(id, sizeof id, "%s_%s_%d", prefix, j->id + sizeof "resp_" - 1, k);
    json_out_str(&j->out, key, id);
}

const char *responses_item_prefix(int block) { return block == ITEM_MESSAGE ? "msg" : "rs"; }

void responses_write_part(struct job *j, const char *key, int block, const char *text, size_t n)
{
    static const char *const types[] = {
        [ITEM_REASONING] = "reasoning_text", [ITEM_SUMMARY] = "summary_text", [ITEM_MESSAGE] = "output_text"};
    json_out_open(&j->out, key, '{');
    json_out_str(&j->out, "type", types[block]);
    json_out_text(&j->out, "text", text, n);
    if (block == ITEM_MESSAGE) {
        json_out_open(&j->out, "annotations", '[');
        json_out_close(&j->out, ']');
    }
    json_out_close(&j->out, '}');
}

const char *responses_text(const struct job *j, const struct output_item *m, size_t *n)
{
    const struct buf *all = m->block == ITEM_MESSAGE ? &j->answer[0].content : &j->answer[0].reasoning;
    *n = m->to - m->from;
    return (char *)all->data + m->from;
}

/* Writes a list of parts: the one of the item, if it is to have it. */
static void write_parts(struct job *j, const char *key, bool has, const struct output_item *m)
{
    size_t n;
    json_out_open(&j->out, key, '[');
    if (has) {
        const char *text = responses_text(j, m, &n);
        responses_write_part(j, NULL, m->block, text, n);
    }
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
    json_out_str(&j->out, "type", m->block == ITEM_MESSAGE ? "message" : "reasoning");
    responses_write_id(j, "id", responses_item_prefix(m->block), index);
    json_out_str(&j->out, "status", begun ? "in_progress" : end_of_text(j, index));
    if (m->block == ITEM_MESSAGE)
        json_out_str(&j->out, "role", "assistant");
    else
        write_parts(j, "summary", m->block == ITEM_SUMMARY && !begun, m);
    write_parts(j, "content", m->block != ITEM_SUMMARY && !begun, m);
    json_out_close(&j->out, '}');
}

static void write_call(struct job *j, const char *key, int index, const struct job_call *c, bool begun)
{
    char id[SHORT_ID + 1];
    job_call_id(j, 0, index, id);
    json_out_open(&j->out, key, '{');
    json_out_str(&j->out, "type", "function_call");
    responses_write_id(j, "id", "fc", index);
    json_out_str(&j->out, "call_id", id);
    json_out_str(&j->out, "name", c->name);
    json_out_str(&j->out, "arguments", begun ? "" : c->arguments);
    if (begun)
        json_out_str(&j->out, "status", "in_progress");
    else
        json_out_str(&j->out, "status", c->is_cut ? "incomplete" : "completed");
    json_out_close(&j->out, '}');
}

void responses_write_item(struct job *j, const char *key, int index, const struct output_item *m, bool begun)
{
    if (m->block == ITEM_CALL)
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
    if (u->n_dropped > 0) json_out_int(&j->out, "dropped_tokens", u->n_dropped);
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
    if (a->calls.again.len)
        json_out_raw(&j->out, "tool_choice", (char *)a->calls.again.data, a->calls.again.len);
    else
        json_out_str(&j->out, "tool_choice", "auto");
    json_out_raw(&j->out, "tools", tools->len ? (char *)tools->data : "[]", tools->len ? tools->len : 2);
    json_out_num(&j->out, "top_p", (double)a->sampling.top_p);
    json_out_str(&j->out, "truncation", "disabled");
    json_out_open(&j->out, "metadata", '{');
    json_out_close(&j->out, '}');
}

void responses_write(struct job *j, const char *key, bool done)
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
    for (int k = 0; done && k < a->n_blocks; k++) responses_write_item(j, NULL, k, &item[k], false);
    json_out_close(&j->out, ']');
    if (done) {
        write_usage(j);
        job_write_quern(j);
    } else {
        json_out_str(&j->out, "usage", NULL);
    }
    json_out_close(&j->out, '}');
}

void responses_write_done(struct job *j, const char *key)
{
    struct json_out *o = &j->out;
    size_t before = o->b.len;
    bool comma = o->comma;
    responses_write(j, key, true);
    if (!j->record || o->failed) return;
    const char *text = memchr(o->b.data + before, '{', o->b.len - before);
    if (item_store_keep(j->api->items, j->record, text, (size_t)((char *)o->b.data + o->b.len - text))) return;
    item_store_release(j->api->items, j->record);
    j->record = NULL;
    o->b.len = before;
    o->comma = comma;
    responses_write(j, key, true);
}
