/* SPDX-License-Identifier: MIT
 *
 * ollama.c: POST /api/chat and /api/generate: writes answers as lines of JSON. ollama_in.c reads the requests.
 *
 * Each line of a stream is an object, and the last one has "done": true with counts and times, which are nanoseconds. A
 * whole answer is the same object as the last line, with all of the text. A stream has no comments, so nothing is sent
 * while a request waits.
 *
 * Source: the API document of Ollama (docs/api.md).
 */
#include "server/dialect/ollama.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/os.h"

/* ---- pieces of JSON ---- */

void ollama_write_time(struct json_out *o, const char *key, int64_t s, long ns)
{
    char text[80];
    time_t t = (time_t)s;
    struct tm tm = {0};
    gmtime_r(&t, &tm);
    size_t n = strftime(text, sizeof text - 16, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text + n, sizeof text - n, ".%09ldZ", ns);
    json_out_str(o, key, text);
}

static void open_object(struct json_out *o, const char *model)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    json_out_open(o, NULL, '{');
    json_out_str(o, "model", model);
    ollama_write_time(o, "created_at", now.tv_sec, now.tv_nsec);
}

void ollama_write_ignored(struct json_out *o, const struct field_ignored *ignored)
{
    if (!ignored->names.len) return;
    json_out_open(o, "quern", '{');
    api_write_ignored(o, ignored);
    json_out_close(o, '}');
}

static bool is_chat(const struct job *j) { return j->d == &ollama_chat; }

/* Arguments are an object here; they are JSON because a call is sent only then. */
static void write_call(struct job *j, int k, const struct job_call *c)
{
    char id[SHORT_ID + 1];
    job_call_id(j, 0, k, id);
    json_out_open(&j->out, NULL, '{');
    json_out_str(&j->out, "id", id);
    json_out_open(&j->out, "function", '{');
    json_out_int(&j->out, "index", k);
    json_out_str(&j->out, "name", c->name);
    json_out_raw(&j->out, "arguments", c->arguments, strlen(c->arguments));
    json_out_close(&j->out, '}');
    json_out_close(&j->out, '}');
}

/* Writes the text and the thoughts, and calls first_call .. of the answer, as both kinds of object have them. */
static void write_text(struct job *j, const struct buf *text, const struct buf *thoughts, int first_call)
{
    struct json_out *o = &j->out;
    const struct job_answer *a = &j->answer[0];
    if (is_chat(j)) {
        json_out_open(o, "message", '{');
        json_out_str(o, "role", "assistant");
    }
    json_out_text(o, is_chat(j) ? "content" : "response", (const char *)text->data, text->len);
    if (thoughts->len) json_out_text(o, "thinking", (const char *)thoughts->data, thoughts->len);
    if (first_call < a->n_calls) {
        json_out_open(o, "tool_calls", '[');
        for (int k = first_call; k < a->n_calls; k++) write_call(j, k, &a->call[k]);
        json_out_close(o, ']');
    }
    if (is_chat(j)) json_out_close(o, '}');
    if (j->params.logprobs) openai_take_list(j, "logprobs", &j->answer[0].logprobs[0]);
}

static const char *done_reason(const struct job *j)
{
    switch (j->answer[0].finish) {
    case QN_FINISH_LENGTH: return "length";
    case QN_FINISH_CANCELLED: return "cancelled";
    default: return "stop";
    }
}

static int64_t ns_of(double ms) { return (int64_t)(ms * 1e6); }

static void write_end(struct job *j)
{
    struct json_out *o = &j->out;
    json_out_bool(o, "done", true);
    json_out_str(o, "done_reason", done_reason(j));
    json_out_int(o, "total_duration", (int64_t)(clock_ns() - j->ticket->arrived_ns));
    json_out_int(o, "load_duration", ns_of(j->load_ms));
    json_out_int(o, "prompt_eval_count", j->usage.n_prompt);
    json_out_int(o, "prompt_eval_duration", ns_of(j->timings.prefill_ms));
    json_out_int(o, "eval_count", j->usage.n_generated);
    json_out_int(o, "eval_duration", ns_of(j->timings.decode_ms));
    job_write_quern(j);
    json_out_close(o, '}');
}

static void logprob(struct job *j, struct job_answer *a, const struct qn_event *e)
{
    openai_write_logprob(j, &a->logprobs[0], e);
}

/* ---- streams ---- */

static const struct buf nothing;

static void line(struct job *j, const struct buf *text, const struct buf *thoughts, int first_call)
{
    open_object(&j->out, j->served->name);
    write_text(j, text, thoughts, first_call);
    json_out_bool(&j->out, "done", false);
    json_out_close(&j->out, '}');
    json_out_frame(&j->out, "\n");
}

static void text_stream(struct job *j, int i, enum qn_reply_kind kind, const char *text, size_t n)
{
    const struct buf piece = {.data = (uint8_t *)(uintptr_t)text, .len = n};
    bool is_thought = kind == QN_REPLY_REASONING;
    line(j, is_thought ? &nothing : &piece, is_thought ? &piece : &nothing, j->answer[i].n_calls);
}

static void call_stream(struct job *j, int i, const struct job_call *c)
{
    (void)c;
    line(j, &nothing, &nothing, j->answer[i].n_calls - 1);
}

/* There is one answer, whose end is that of the stream. */
static void finish_stream(struct job *j, int i, bool last)
{
    (void)last;
    open_object(&j->out, j->served->name);
    write_text(j, &nothing, &nothing, j->answer[i].n_calls);
    write_end(j);
    json_out_frame(&j->out, "\n");
}

static void close_stream(struct job *j) { (void)j; }

static void error_stream(struct job *j, const struct fault *f)
{
    api_error_ollama(&j->out, f);
    json_out_frame(&j->out, "\n");
}

static void whole(struct job *j)
{
    open_object(&j->out, j->served->name);
    write_text(j, &j->answer[0].content, &j->answer[0].reasoning, 0);
    write_end(j);
}

/* ---- requests that only load the model ---- */

static bool asks_nothing(const json_t *body, const struct dialect *d)
{
    const json_t *v = json_object_get(body, d == &ollama_chat ? "messages" : "prompt");
    if (json_string_length(json_object_get(body, "suffix")) > 0) return false;
    return !v || json_is_null(v) || (json_is_array(v) && !json_array_size(v)) || field_is(v, "");
}

/* The model is there: that was all. */
static void answer_load(struct api_call *c, const struct dialect *d)
{
    struct json_out o = {.ledger = c->api->c.requests};
    struct answer_params a;
    struct fault f = {0};
    params_init(&a, qn_model_n_vocab(c->served->model));
    a.n_ctx = c->served->n_ctx;
    int bad = params_read(&a, d->tables, c->body, &f);
    c->body = NULL;
    if (!bad) {
        open_object(&o, c->served->name);
        if (d == &ollama_chat) {
            json_out_open(&o, "message", '{');
            json_out_str(&o, "role", "assistant");
            json_out_str(&o, "content", "");
            json_out_close(&o, '}');
        } else {
            json_out_str(&o, "response", "");
        }
        json_out_bool(&o, "done", true);
        json_out_str(&o, "done_reason", "load");
        ollama_write_ignored(&o, &a.ignored);
        json_out_close(&o, '}');
        api_end(c, &o);
    } else {
        api_end_refused(c, &f);
    }
    params_deinit(&a);
}

void ollama_begin(struct api_call *c, const struct dialect *d)
{
    if (asks_nothing(c->body, d))
        answer_load(c, d);
    else
        job_begin(c, d);
}

/* ---- the two dialects ---- */

static const struct field *const chat_tables[] = {ollama_chat_fields, ollama_fields, params_sampling_fields, NULL};
static const struct field *const text_tables[] = {ollama_text_fields, ollama_fields, params_sampling_fields, NULL};

#define COMMON                                                                                                         \
    .streams = true, .stream_type = "application/x-ndjson", .refuse = api_refuse_ollama, .text_stream = text_stream,   \
    .call_stream = call_stream, .finish_stream = finish_stream, .close_stream = close_stream,                          \
    .error_stream = error_stream, .whole = whole, .logprob = logprob

const struct dialect ollama_chat = {
    .tables = chat_tables, .id_prefix = "chat-", .prompt_field = "messages", .prepare = ollama_prepare_chat, COMMON};
const struct dialect ollama_text = {
    .tables = text_tables, .id_prefix = "gen-", .prompt_field = "prompt", .prepare = ollama_prepare_text, COMMON};
