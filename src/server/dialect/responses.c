/* SPDX-License-Identifier: MIT
 *
 * responses.c: POST /v1/responses: answers as streams of events, and as a whole. responses_in.c reads the requests,
 * responses_object.c writes the objects.
 *
 * Thoughts, texts and calls become items in the order in which they come; their numbers are a part of their ids. The
 * event that ends a stream repeats them all, so their text is kept. Thoughts are the content of their item; if a
 * summary was asked for, they are its summary instead, because most clients show nothing else.
 *
 * Source: the OpenAI API reference ("Responses", "Streaming events").
 */
#include "server/dialect/responses.h"

#include <string.h>

static int thoughts_of(const struct job *j) { return j->params.summary ? ITEM_SUMMARY : ITEM_REASONING; }

static int prepare(struct job *j, struct fault *f)
{
    size_t n_before;
    if (responses_gather(j, &n_before, f)) return -1;
    const json_t *items = j->params.messages;
    if (responses_messages(&j->params, f) || job_prepare_chat(j, f)) return -1;
    responses_begin_record(j, items, n_before);
    return 0;
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
        [ITEM_REASONING] = {"response.content_part.added", "response.reasoning_text.delta",
                            "response.reasoning_text.done", "response.content_part.done"},
        [ITEM_SUMMARY] = {"response.reasoning_summary_part.added", "response.reasoning_summary_text.delta",
                          "response.reasoning_summary_text.done", "response.reasoning_summary_part.done"},
        [ITEM_MESSAGE] = {"response.content_part.added", "response.output_text.delta", "response.output_text.done",
                          "response.content_part.done"},
    };
    begin(j, names[block][event]);
    responses_write_id(j, "item_id", responses_item_prefix(block), j->answer[0].n_blocks);
    json_out_int(&j->out, "output_index", j->answer[0].n_blocks);
    json_out_int(&j->out, block == ITEM_SUMMARY ? "summary_index" : "content_index", 0);
}

static void start(struct job *j)
{
    if (!j->params.stream) return;
    begin(j, "response.created");
    responses_write(j, "response", false);
    end(j);
    begin(j, "response.in_progress");
    responses_write(j, "response", false);
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
    m->to = m->block == ITEM_MESSAGE ? a->content.len : a->reasoning.len;
    if (j->params.stream) {
        begin_part(j, TEXT_DONE, m->block);
        const char *text = responses_text(j, m, &n);
        json_out_text(&j->out, "text", text, n);
        end(j);
        begin_part(j, DONE, m->block);
        responses_write_part(j, "part", m->block, text, n);
        end(j);
        begin_item(j, "response.output_item.done");
        responses_write_item(j, "item", a->n_blocks, m, false);
        end(j);
    }
    a->block = ITEM_NONE;
    a->n_blocks++;
}

/* Opens an item, whose text begins with the last n bytes. */
static void open_item(struct job *j, int block, size_t n)
{
    struct job_answer *a = &j->answer[0];
    size_t len = block == ITEM_MESSAGE ? a->content.len : a->reasoning.len;
    const struct output_item *m = add_item(j, (struct output_item){block, len - n, len});
    if (!m) return;
    a->block = block;
    if (!j->params.stream) return;
    begin_item(j, "response.output_item.added");
    responses_write_item(j, "item", a->n_blocks, m, true);
    end(j);
    begin_part(j, ADDED, block);
    responses_write_part(j, "part", block, "", 0);
    end(j);
}

static void add_text(struct job *j, int i, enum qn_reply_kind kind, const char *text, size_t n)
{
    struct job_answer *a = &j->answer[i];
    int block = kind == QN_REPLY_REASONING ? thoughts_of(j) : ITEM_MESSAGE;
    if (j->out.failed) return; /* the text may not be there */
    if (a->block && a->block != block) close_item(j);
    if (!a->block) open_item(j, block, n);
    if (!j->params.stream) return;
    begin_part(j, DELTA, block);
    json_out_text(&j->out, "delta", text, n);
    end(j);
}

/* Begins the item of the last call. */
static void call_begin(struct job *j, int i, const struct job_call *c)
{
    struct job_answer *a = &j->answer[i];
    if (a->block) close_item(j);
    const struct output_item *m = add_item(j, (struct output_item){.block = ITEM_CALL, .from = (size_t)(c - a->call)});
    if (!m || !j->params.stream) return;
    begin_item(j, "response.output_item.added");
    responses_write_item(j, "item", a->n_blocks, m, true);
    end(j);
}

static void add_arguments(struct job *j, const char *type, const char *key, const char *text, size_t n)
{
    begin_item(j, type);
    responses_write_id(j, "item_id", "fc", j->answer[0].n_blocks);
    json_out_text(&j->out, key, text, n);
    end(j);
}

static void call_piece(struct job *j, int i, const char *text, size_t n)
{
    (void)i; /* there is one answer */
    if (j->params.stream) add_arguments(j, "response.function_call_arguments.delta", "delta", text, n);
}

static void call_end(struct job *j, int i, const struct job_call *c)
{
    struct job_answer *a = &j->answer[i];
    if (j->out.failed) return; /* the item may not be there */
    if (j->params.stream) {
        add_arguments(j, "response.function_call_arguments.done", "arguments", c->arguments, strlen(c->arguments));
        begin_item(j, "response.output_item.done");
        responses_write_item(j, "item", a->n_blocks, last_item(j), false);
        end(j);
    }
    a->n_blocks++;
}

static void call_stream(struct job *j, int i, const struct job_call *c)
{
    call_begin(j, i, c);
    call_piece(j, i, c->arguments, strlen(c->arguments));
    call_end(j, i, c);
}

static void finish_stream(struct job *j, int i, bool last)
{
    bool cut = j->answer[i].finish == QN_FINISH_LENGTH;
    (void)last; /* there is one answer */
    if (j->answer[i].block) close_item(j);
    begin(j, cut ? "response.incomplete" : "response.completed");
    responses_write_done(j, "response");
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
    responses_write_done(j, NULL);
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
    .call_stream = call_stream,
    .call_begin = call_begin,
    .call_piece = call_piece,
    .call_end = call_end,
    .finish_stream = finish_stream,
    .close_stream = close_stream,
    .error_stream = error_stream,
    .whole = whole,
};
