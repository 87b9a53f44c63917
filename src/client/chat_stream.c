/* SPDX-License-Identifier: MIT
 *
 * chat_stream.c: chat_send(): reads a streamed answer event by event.
 *
 * Source: the OpenAI API's chat.completion.chunk. A server may leave out any member except the finish reason: without
 * it, a whole answer looks like one that was cut off. Thoughts are `reasoning_content`; other servers call them
 * `reasoning`.
 */
#include <string.h>

#include "base/json/json_text.h"
#include "client/chat_impl.h"
#include "client/sse.h"
#include "receipt/receipt.h"

#define BODY_MAX ((size_t)64 << 10) /* bytes of a refusal */
#define NOTE_MAX 160

struct answer_stream {
    chat_sink *sink;
    void *arg;
    struct chat_result *result;
    struct sse events;
    struct buf refusal;  /* the body of an answer that is not a stream */
    bool finished, done; /* a finish reason came; so did "[DONE]" */
    int rc;              /* an error that was found in the stream, described in *e; the exchange itself did not fail */
    struct qn_error *e;
};

static int bad(struct answer_stream *s, const char *what)
{
    return error_set(s->e, QN_EDATA, "the server's stream is not as the API has it: %s", what);
}

static int tell(struct answer_stream *s, enum chat_piece kind, const char *text, size_t n)
{
    if (!n || !s->sink(s->arg, kind, text, n)) return 0;
    return error_set(s->e, QN_ECANCEL, "the answer was not read to its end");
}

/* Reads a member of delta that is a text; null counts as absent. */
static int read_text(struct answer_stream *s, const json_t *delta, const char *name, enum chat_piece kind)
{
    const json_t *v = json_object_get(delta, name);
    if (!v || json_is_null(v)) return 0;
    if (!json_is_string(v)) return bad(s, "a piece of text is none");
    return tell(s, kind, json_string_value(v), json_string_length(v));
}

static int read_choice(struct answer_stream *s, const json_t *choice)
{
    const json_t *delta = json_object_get(choice, "delta"), *finish = json_object_get(choice, "finish_reason");
    int rc;
    if (!json_is_object(choice)) return bad(s, "a choice is no object");
    if (chat_number(choice, "index") > 0) return 0; /* only one answer was asked for */
    if (delta && !json_is_null(delta) && !json_is_object(delta)) return bad(s, "delta is no object");
    if (finish && !json_is_null(finish) && !json_is_string(finish)) return bad(s, "finish_reason is no text");
    if ((rc = read_text(s, delta, "reasoning_content", CHAT_REASONING))) return rc;
    if (!json_object_get(delta, "reasoning_content") && (rc = read_text(s, delta, "reasoning", CHAT_REASONING)))
        return rc;
    if ((rc = read_text(s, delta, "content", CHAT_CONTENT))) return rc;
    if (json_is_string(finish) && *json_string_value(finish)) { /* "" is others' null */
        error_clean(s->result->finish, sizeof s->result->finish, json_string_value(finish));
        s->finished = true;
    }
    return 0;
}

static double read_ms(const json_t *object, const char *name, double before)
{
    const json_t *v = json_object_get(object, name);
    return json_is_number(v) && json_number_value(v) >= 0 ? json_number_value(v) : before;
}

static void read_counts(struct chat_result *r, const json_t *event)
{
    const json_t *usage = json_object_get(event, "usage"), *quern = json_object_get(event, "quern");
    const char *model = json_string_value(json_object_get(event, "model"));
    if (model && !r->model[0]) error_clean(r->model, sizeof r->model, model);
    if (json_is_object(usage)) {
        r->n_prompt = chat_number(usage, "prompt_tokens");
        r->n_generated = chat_number(usage, "completion_tokens");
        r->n_cached = chat_number(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
    }
    if (json_is_object(quern)) r->n_dropped = chat_number(quern, "dropped_tokens");
    if (json_is_integer(json_object_get(quern, "drafted"))) {
        r->n_passes = chat_number(quern, "passes");
        r->n_drafted = chat_number(quern, "drafted");
        r->n_accepted = chat_number(quern, "accepted");
    }
    r->prefill_ms = read_ms(quern, "prefill_ms", r->prefill_ms);
    r->decode_ms = read_ms(quern, "decode_ms", r->decode_ms);
}

/* Gives a document of Quern's server to the sink, if it is there. */
static int read_document(struct answer_stream *s, const json_t *event, const char *name, enum chat_piece kind)
{
    const json_t *v = json_object_get(json_object_get(event, "quern"), name);
    struct buf text = {0};
    if (!json_is_object(v)) return 0;
    int rc = json_text_add(&text, v, RECEIPT_FLAGS, "a receipt", s->e);
    if (!rc) rc = tell(s, kind, (char *)text.data, text.len);
    buf_deinit(&text);
    return rc;
}

static int read_event(struct answer_stream *s, const json_t *event)
{
    const json_t *choices = json_object_get(event, "choices"), *choice, *error = json_object_get(event, "error");
    size_t i;
    int rc = 0;
    if (!json_is_object(event)) return bad(s, "an event is no JSON object");
    if (error && !json_is_null(error)) return chat_refused(event, 0, s->result, s->e);
    if (choices && !json_is_null(choices) && !json_is_array(choices)) return bad(s, "choices is no list");
    read_counts(s->result, event);
    json_array_foreach(choices, i, choice) if (!rc) rc = read_choice(s, choice);
    if (!rc) rc = read_document(s, event, "receipt", CHAT_RECEIPT);
    if (!rc) rc = read_document(s, event, "receipt_prompt", CHAT_PROMPT);
    return rc;
}

static int on_event(void *arg, const char *type, const char *text, size_t n)
{
    struct answer_stream *s = arg;
    char note[NOTE_MAX];
    if (s->done) return 0;
    if (!type) {
        error_clean(note, sizeof note, text);
        return tell(s, CHAT_NOTE, note, strlen(note));
    }
    if (n == 6 && !memcmp(text, "[DONE]", 6)) {
        s->done = true;
        return 0;
    }
    json_t *event = chat_parse(text, n);
    int rc = event ? read_event(s, event) : bad(s, "an event is not JSON");
    json_decref(event);
    return rc;
}

static bool is_stream(const struct client_reply *r)
{
    return r->status >= 200 && r->status < 300 && !strcasecmp(r->type, "text/event-stream");
}

static int on_bytes(void *arg, const struct client_reply *r, const char *bytes, size_t n)
{
    struct answer_stream *s = arg;
    if (is_stream(r)) {
        s->rc = sse_read(&s->events, bytes, n, on_event, s, s->e);
    } else if (s->refusal.len + n <= BODY_MAX) {
        s->rc = buf_add(&s->refusal, bytes, n, s->e);
    } else {
        s->rc = error_set(s->e, QN_EDATA, "the server answers with status %d and more than %zu bytes of '%s'",
                          r->status, BODY_MAX, r->type);
    }
    return s->rc;
}

/* After the exchange: checks whether it was a complete answer. */
static int end(struct answer_stream *s, const struct client_reply *reply)
{
    if (reply->status < 200 || reply->status > 299) {
        json_t *j = chat_parse((char *)s->refusal.data, s->refusal.len);
        int rc = chat_refused(j, reply->status, s->result, s->e);
        json_decref(j);
        return rc;
    }
    if (!is_stream(reply))
        return error_set(s->e, QN_EDATA, "the server answers with '%s', not with a stream of events", reply->type);
    if (!s->finished)
        return error_set(s->e, QN_EDATA, "the server's stream ends before its answer: no finish reason came");
    return 0;
}

/* Writes the request, with the members that make its answer a stream. */
static int write_request(struct buf *out, json_t *request, struct qn_error *e)
{
    json_t *all = json_copy(request);
    int rc = !all || json_object_set_new(all, "stream", json_true()) ||
             json_object_set_new(all, "stream_options", json_pack("{s:b}", "include_usage", 1));
    rc = rc ? error_nomem(e, "a request", 0) : json_text_add(out, all, JSON_COMPACT, "a request", e);
    json_decref(all);
    return rc;
}

int chat_send(struct client *c, json_t *request, chat_sink *sink, void *arg, struct chat_result *result,
              struct qn_error *e)
{
    struct qn_error why;
    struct answer_stream s = {.sink = sink, .arg = arg, .result = result, .e = &why};
    struct client_reply reply;
    struct buf body = {0};
    chat_result_init(result);
    int rc = write_request(&body, request, e);
    if (!rc) {
        rc = client_send(c, "POST", "/v1/chat/completions", (char *)body.data, body.len, on_bytes, &s, &reply, e);
        if (!rc) {
            result->retry_after_s = reply.retry_after_s;
            s.rc = end(&s, &reply);
        }
        if (s.rc && e) *e = why;
        if (s.rc) rc = s.rc;
    }
    sse_deinit(&s.events);
    buf_deinit(&s.refusal);
    buf_deinit(&body);
    return rc;
}
