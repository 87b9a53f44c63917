/* SPDX-License-Identifier: MIT
 *
 * test_answers.c: the same reply in every dialect, whole and as a stream, and how an answer ends early. The argument is
 * a small model with control tokens <|im_start|> and <|im_end|>.
 *
 * The test plays the HTTP server and the scheduler: a request is a body, the answer is collected, and the callback is
 * given the tokens of a reply that is written below, as a scheduler would do it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "server/dialect/ollama.h"

static qn_model *model;
static qn_chat *chat;
static struct hists hists = {.lock = PTHREAD_MUTEX_INITIALIZER};
static struct api api = {.lock = PTHREAD_MUTEX_INITIALIZER, .hists = &hists};

/* ---- the server, played ---- */

struct http_request {
    char body[1024];
    int status; /* of the answer; 0: none yet */
    struct text {
        char *data;
        size_t len;
    } text; /* not by base/mem.h: faults are meant for the code under test */
    bool streams, ended, aborted, full, gone;
    struct http_watch watch;
};

static void collect(struct text *t, const void *p, size_t n)
{
    t->data = realloc(t->data, t->len + n + 1);
    assert_non_null(t->data);
    memcpy(t->data + t->len, p, n);
    t->data[t->len += n] = 0;
}

const uint8_t *http_body(const struct http_request *r, size_t *n)
{
    *n = strlen(r->body);
    return (const uint8_t *)r->body;
}
void http_drop_body(struct http_request *r) { assert_non_null(r); }
size_t http_connection_bytes(const struct http_request *r) { return r ? 1 : 0; }
struct http_refused http_refused(const struct http_request *r) { return (struct http_refused){.full = r != NULL}; }
const char *http_method(const struct http_request *r) { return r ? "GET" : ""; }
const char *http_path(const struct http_request *r) { return r ? "/" : ""; }
const char *http_header(const struct http_request *r, const char *name) { return r && name ? NULL : ""; }
uint64_t http_websocket_id(const struct http_request *r) { return r == NULL; }
int http_set_label(struct http_request *r, const char *name, const char *value) { return !r || !name || !value; }
const char *http_request_id(const struct http_request *r) { return r ? "req-1" : ""; }
const char *http_param(const struct http_request *r) { return r ? "req-1" : ""; }
int http_query(const struct http_request *r, const char *name, char *value, size_t cap)
{
    return r && name && value && cap ? -1 : 0; /* there is none */
}
const struct http_identity *http_identity(const struct http_request *r)
{
    static const struct http_identity i = {.kind = HTTP_LOCAL, .name = "local"};
    return r ? &i : NULL;
}
bool http_count(const struct http_request *r, size_t i, struct http_count *out) { return !r && !i && !out; }
void http_note(struct http_request *r, const char *fmt, ...) { assert_true(r && fmt); }
void http_outcome(struct http_request *r, const char *code) { assert_true(r && code); }
void http_set_header(struct http_request *r, const char *name, const char *value)
{
    assert_true(r && !r->status && name && value);
}
int http_watch(struct http_request *r, const struct http_watch *w)
{
    r->watch = *w;
    return r->gone ? HTTP_GONE : HTTP_OK;
}
void http_reply(struct http_request *r, int status, const char *type, const void *body, size_t n)
{
    assert_int_equal(r->status, 0);
    assert_non_null(type);
    r->status = status;
    r->ended = true;
    collect(&r->text, body, n);
}
void http_error(struct http_request *r, int status, const char *param, const char *code, const char *fmt, ...)
{
    (void)param;
    (void)fmt;
    http_reply(r, status, "application/json", code ? code : "", code ? strlen(code) : 0);
}
int http_stream_open(struct http_request *r, int status, const char *type)
{
    assert_true(!strcmp(type, "text/event-stream") || !strcmp(type, "application/x-ndjson"));
    r->status = status;
    r->streams = true;
    return HTTP_OK;
}
int http_stream_write(struct http_request *r, const void *p, size_t n)
{
    assert_true(r->streams && !r->ended);
    if (r->full) return HTTP_FULL;
    collect(&r->text, p, n);
    return HTTP_OK;
}
void http_stream_end(struct http_request *r) { r->ended = true; }
void http_stream_abort(struct http_request *r) { r->ended = r->aborted = true; }

/* ---- the scheduler, played ---- */

static struct qn_request_params asked;
static bool submitted; /* since it was last set to false */
static int n_cancels;

void qn_request_params_init(struct qn_request_params *p)
{
    *p = (struct qn_request_params){.size = sizeof *p, .max_tokens = -1, .n_answers = 1, .n_top_logprobs = -1};
}
int qn_submit(qn_scheduler *s, const struct qn_request_params *p, uint64_t *id, double *retry_s, struct qn_error *e)
{
    (void)s;
    (void)retry_s;
    (void)e;
    asked = *p;
    submitted = true;
    *id = 5;
    return 0;
}
bool qn_cancel(qn_scheduler *s, uint64_t id)
{
    (void)s;
    assert_int_equal(id, 5);
    n_cancels++;
    return true;
}
int qn_scheduler_stats(qn_scheduler *s, struct qn_scheduler_stats *out)
{
    (void)s;
    (void)out;
    return 0;
}

static void tell(struct qn_event e)
{
    e.request = 5;
    asked.callback(asked.arg, &e);
}

/* ---- the models, played ---- */

#include "../one_model.h"

static void begin(struct http_request *r, const struct dialect *d)
{
    struct fault f;
    struct api_call c = one_call(&api, r, d->id_prefix, r->body, strlen(r->body), &f);
    c.refuse = d->refuse;
    if (c.body)
        job_begin(&c, d);
    else
        d->refuse(r, &f);
    one_call_done(&c);
}

/* ---- one exchange ---- */

static uint64_t fault_at; /* the allocation of the next exchange that fails; 0: none */

/* What a scheduler tells of a request whose answer has these tokens. */
static void tell_answer(const qn_token *t, size_t n, enum qn_finish finish)
{
    static const struct qn_error error = {QN_ENUMERIC, "all logits are NaN"};
    tell((struct qn_event){.type = QN_EVENT_QUEUED, .token = -1});
    tell((struct qn_event){.type = QN_EVENT_PREFILL, .token = -1, .n_done = 1, .n_total = 1});
    for (size_t i = 0; i < n && !n_cancels; i++) tell((struct qn_event){.type = QN_EVENT_TOKEN, .token = t[i]});
    enum qn_finish how = n_cancels ? QN_FINISH_CANCELLED : finish;
    tell((struct qn_event){.type = QN_EVENT_FINISH, .token = -1, .finish = how});
    tell((struct qn_event){.type = QN_EVENT_DONE,
                           .token = -1,
                           .finish = how,
                           .error = how == QN_FINISH_ERROR ? &error : NULL,
                           .usage = {.n_prompt = 7, .n_cached = 3, .n_generated = (int)n}});
}

/* Sends a request, and gives the reply's tokens and the end to its callback: once for each of its prompts. false: the
 * request was refused. */
static bool try_exchange(struct http_request *r, const struct dialect *d, const char *members, const char *reply,
                         enum qn_finish finish)
{
    qn_token *t = NULL;
    size_t n = 0;
    assert_int_equal(qn_tokenize(model, reply, strlen(reply), QN_PARSE_SPECIAL, NULL, &t, &n, NULL), 0);
    snprintf(r->body, sizeof r->body, "{%s}", members);
    n_cancels = 0;
    mem_fault_set(fault_at);
    begin(r, d);
    if (r->ended) {
        qn_free(t);
        return false;
    }
    do {
        submitted = false;
        tell_answer(t, n, finish);
    } while (submitted);
    qn_free(t);
    assert_true(r->ended && !api.tickets && !one_n_holds);
    return true;
}

static void exchange(struct http_request *r, const struct dialect *d, const char *members, const char *text,
                     enum qn_finish finish)
{
    if (!try_exchange(r, d, members, text, finish)) fail_msg("%s: %s", members, r->text.data);
}

static const char messages[] = "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]";
static const char tools[] = "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"
                            "\"object\"}}}]";
static const char reply[] =
    "<think>\nhmm</think>Let me see.<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"\\u00e4\"}}\n</tool_call>"
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";

/* The whole answer as JSON. */
static json_t *whole(const struct dialect *d, const char *members, const char *text, enum qn_finish finish)
{
    struct http_request r = {0};
    exchange(&r, d, members, text, finish);
    assert_int_equal(r.status, 200);
    json_t *j = json_loadb(r.text.data, r.text.len, JSON_REJECT_DUPLICATES, NULL);
    if (!j) fail_msg("not JSON: %s", r.text.data);
    free(r.text.data);
    return j;
}

/* The lines of a stream of Ollama's. */
static json_t *lines(const struct dialect *d, const char *members, const char *text, enum qn_finish finish)
{
    struct http_request r = {0};
    json_t *all = json_array();
    exchange(&r, d, members, text, finish);
    assert_true(r.status == 200 && r.streams && !r.watch.heartbeat);
    for (char *p = r.text.data, *end; *p; p = end + 1) {
        end = strchr(p, '\n');
        assert_non_null(end);
        json_t *j = json_loadb(p, (size_t)(end - p), JSON_REJECT_DUPLICATES, NULL);
        if (!j) fail_msg("not JSON: %.*s", (int)(end - p), p);
        json_array_append_new(all, j);
    }
    free(r.text.data);
    return all;
}

/* A stream's events as an array. */
static json_t *stream(const struct dialect *d, const char *members, const char *text, enum qn_finish finish)
{
    struct http_request r = {0};
    char more[1024];
    json_t *all = json_array();
    snprintf(more, sizeof more, "%s,\"stream\":true", members);
    exchange(&r, d, more, text, finish);
    assert_true(r.status == 200 && r.streams);
    for (char *p = r.text.data; p && (p = strstr(p, "data: ")); p++) {
        char *end = strstr(p += 6, "\n\n");
        assert_non_null(end);
        if (!strncmp(p, "[DONE]", 6)) break;
        json_t *j = json_loadb(p, (size_t)(end - p), JSON_REJECT_DUPLICATES, NULL);
        if (!j) fail_msg("not JSON: %.*s", (int)(end - p), p);
        json_array_append_new(all, j);
    }
    free(r.text.data);
    return all;
}

/* "choices.0.delta": members and elements on the way; NULL where one is missing. */
static json_t *at(const json_t *j, const char *way)
{
    char part[64];
    for (const char *p = way; *p && j;) {
        size_t n = strcspn(p, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, p);
        j = json_is_array(j) ? json_array_get(j, (size_t)atoi(part)) : json_object_get(j, part);
        p += n + (p[n] == '.');
    }
    return (json_t *)(uintptr_t)j;
}

static const char *text_at(const json_t *j, const char *way)
{
    const char *s = json_string_value(at(j, way));
    return s ? s : "(none)";
}

/* The strings at one place in all events that have it, joined. */
static char *joined(const json_t *events, const char *way)
{
    static char text[512];
    text[0] = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const char *s = json_string_value(at(json_array_get(events, i), way));
        if (s) snprintf(text + strlen(text), sizeof text - strlen(text), "%s", s);
    }
    return text;
}

/* ---- the same reply in every dialect ---- */

static void test_openai_chat(void **state)
{
    char ask[512];
    (void)state;
    snprintf(ask, sizeof ask, "%s,%s", messages, tools);
    json_t *w = whole(&openai_chat, ask, reply, QN_FINISH_STOP_TOKEN);
    assert_string_equal(text_at(w, "choices.0.message.reasoning_content"), "hmm");
    assert_string_equal(text_at(w, "choices.0.message.content"), "Let me see.");
    assert_string_equal(text_at(w, "choices.0.message.tool_calls.0.function.name"), "f");
    assert_string_equal(text_at(w, "choices.0.finish_reason"), "tool_calls");
    assert_int_equal(json_array_size(at(w, "choices.0.message.tool_calls")), 2);
    json_t *arguments = json_loads(text_at(w, "choices.0.message.tool_calls.0.function.arguments"), 0, NULL);
    assert_string_equal(text_at(arguments, "a"), "\xc3\xa4");
    assert_int_equal(json_integer_value(at(w, "usage.prompt_tokens_details.cached_tokens")), 3);

    json_t *s = stream(&openai_chat, ask, reply, QN_FINISH_STOP_TOKEN);
    assert_string_equal(joined(s, "choices.0.delta.reasoning_content"), "hmm");
    assert_string_equal(joined(s, "choices.0.delta.content"), "Let me see.");
    assert_string_equal(joined(s, "choices.0.delta.tool_calls.0.function.name"), "ff");
    assert_string_equal(joined(s, "choices.0.finish_reason"), "tool_calls");
    json_decref(arguments);
    json_decref(w);
    json_decref(s);
}

static void test_anthropic(void **state)
{
    char ask[512];
    (void)state;
    snprintf(ask, sizeof ask,
             "%s,\"max_tokens\":99,\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\"}}]", messages);
    json_t *w = whole(&anthropic, ask, reply, QN_FINISH_STOP_TOKEN);
    assert_string_equal(text_at(w, "content.0.thinking"), "hmm");
    assert_string_equal(text_at(w, "content.1.text"), "Let me see.");
    assert_string_equal(text_at(w, "content.2.input.a"), "\xc3\xa4");
    assert_string_equal(text_at(w, "content.3.type"), "tool_use");
    assert_string_equal(text_at(w, "stop_reason"), "tool_use");
    assert_int_equal(json_integer_value(at(w, "usage.input_tokens")), 4);

    json_t *s = stream(&anthropic, ask, reply, QN_FINISH_STOP_TOKEN);
    assert_string_equal(joined(s, "content_block.type"), "thinkingtexttool_usetool_use");
    assert_string_equal(joined(s, "delta.thinking"), "hmm");
    assert_string_equal(joined(s, "delta.text"), "Let me see.");
    assert_string_equal(joined(s, "delta.stop_reason"), "tool_use");
    size_t n = json_array_size(s), n_stops = 0;
    for (size_t i = 0; i < n; i++) n_stops += !strcmp(text_at(json_array_get(s, i), "type"), "content_block_stop");
    assert_int_equal(n_stops, 4);
    json_decref(w);
    json_decref(s);
}

static void test_responses(void **state)
{
    static const char ask[] = "\"input\":\"x\",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":{}}]";
    (void)state;
    json_t *w = whole(&responses, ask, reply, QN_FINISH_STOP_TOKEN);
    assert_string_equal(text_at(w, "output.0.content.0.text"), "hmm");
    assert_string_equal(text_at(w, "output.1.content.0.text"), "Let me see.");
    assert_string_equal(text_at(w, "output.3.type"), "function_call");
    assert_string_equal(text_at(w, "status"), "completed");

    json_t *s = stream(&responses, ask, reply, QN_FINISH_STOP_TOKEN);
    const json_t *last = json_array_get(s, json_array_size(s) - 1);
    assert_string_equal(text_at(last, "type"), "response.completed");
    assert_true(json_equal(at(last, "response.output"), at(w, "output")));
    for (size_t i = 0; i < json_array_size(s); i++) {
        const json_t *e = json_array_get(s, i);
        if (strcmp(text_at(e, "type"), "response.output_item.done")) continue;
        char way[32];
        snprintf(way, sizeof way, "output.%d", (int)json_integer_value(at(e, "output_index")));
        assert_true(json_equal(at(e, "item"), at(w, way)));
    }
    json_decref(w);
    json_decref(s);
}

static void test_items_are_in_the_order_of_the_reply(void **state)
{
    static const char ask[] = "\"input\":\"x\",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":{}}]";
    static const char mixed[] = "One.<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>Two.";
    (void)state;
    json_t *w = whole(&responses, ask, mixed, QN_FINISH_STOP_TOKEN);
    json_t *s = stream(&responses, ask, mixed, QN_FINISH_STOP_TOKEN);
    assert_string_equal(text_at(w, "output.0.content.0.text"), "One.");
    assert_string_equal(text_at(w, "output.1.id"), "fc_req-1_1");
    assert_string_equal(text_at(w, "output.2.content.0.text"), "Two.");
    assert_string_equal(text_at(w, "output.2.id"), "msg_req-1_2");
    assert_true(json_equal(at(json_array_get(s, json_array_size(s) - 1), "response.output"), at(w, "output")));
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(s); i++) {
        const json_t *e = json_array_get(s, i);
        if (strcmp(text_at(e, "type"), "response.output_item.done")) continue;
        assert_true(json_equal(at(e, "item"), json_array_get(at(w, "output"), n)));
        assert_int_equal(json_integer_value(at(e, "output_index")), n++);
    }
    assert_int_equal(n, 3);
    json_decref(w);
    json_decref(s);
}

static void test_thoughts_are_a_summary_when_one_is_asked_for(void **state)
{
    static const char ask[] =
        "\"input\":\"x\",\"reasoning\":{\"summary\":\"auto\"},\"include\":[\"reasoning.encrypted_content\"]";
    (void)state;
    json_t *w = whole(&responses, ask, "<think>\nhmm</think>Yes.", QN_FINISH_STOP_TOKEN);
    assert_string_equal(text_at(w, "output.0.summary.0.type"), "summary_text");
    assert_string_equal(text_at(w, "output.0.summary.0.text"), "hmm");
    assert_int_equal(json_array_size(at(w, "output.0.content")), 0);
    assert_string_equal(text_at(w, "output.1.content.0.text"), "Yes.");
    int64_t n = json_integer_value(at(w, "usage.output_tokens_details.reasoning_tokens"));
    assert_true(n > 0 && n < json_integer_value(at(w, "usage.output_tokens")));

    json_t *s = stream(&responses, ask, "<think>\nhmm</think>Yes.", QN_FINISH_STOP_TOKEN);
    static const char *const events[] = {"response.created",
                                         "response.in_progress",
                                         "response.output_item.added",
                                         "response.reasoning_summary_part.added",
                                         "response.reasoning_summary_text.delta",
                                         "response.reasoning_summary_text.done",
                                         "response.reasoning_summary_part.done",
                                         "response.output_item.done",
                                         "response.output_item.added",
                                         "response.content_part.added",
                                         "response.output_text.delta",
                                         "response.output_text.done",
                                         "response.content_part.done",
                                         "response.output_item.done",
                                         "response.completed"};
    size_t k = 0;
    for (size_t i = 0; i < json_array_size(s); i++) {
        const char *type = text_at(json_array_get(s, i), "type");
        assert_int_equal(json_integer_value(at(json_array_get(s, i), "sequence_number")), i);
        if (k && !strcmp(type, events[k - 1])) continue; /* another piece */
        assert_string_equal(type, events[k++]);
    }
    assert_int_equal(k, sizeof events / sizeof events[0]);
    assert_true(json_equal(at(json_array_get(s, json_array_size(s) - 1), "response.output"), at(w, "output")));
    json_decref(w);
    json_decref(s);
    w = whole(&responses, "\"input\":\"x\"", "Yes.", QN_FINISH_STOP_TOKEN);
    assert_int_equal(json_integer_value(at(w, "usage.output_tokens_details.reasoning_tokens")), 0);
    json_decref(w);
}

static void test_a_response_says_whether_it_is_kept(void **state)
{
    struct item_store *store = api.items, *small = NULL;
    (void)state;
    json_t *w = whole(&responses, "\"input\":\"x\"", "Yes.", QN_FINISH_STOP_TOKEN);
    struct item_record *r =
        item_store_find(api.items, who_of(http_identity(&(struct http_request){0}), NULL).identity, "resp_req-1");
    assert_non_null(r);
    json_t *kept = json_loadb(r->response, r->n_response, 0, NULL);
    assert_true(json_is_true(at(w, "store")) && json_equal(w, kept));
    assert_string_equal(r->input.data, "{\"data\":[{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":"
                                       "\"input_text\",\"text\":\"x\"}],\"id\":\"msg_req-1_i0\"}]}");
    item_store_release(api.items, r);
    json_decref(w);
    json_decref(kept);
    w = whole(&responses, "\"input\":\"x\",\"store\":false", "Yes.", QN_FINISH_STOP_TOKEN);
    assert_true(json_is_false(at(w, "store")));
    json_decref(w);
    /* There is room for the input, but not for the answer. */
    assert_int_equal(item_store_new(&small, NULL, sizeof *r + 600, NULL), 0);
    api.items = small;
    json_t *s = stream(&responses, "\"input\":\"x\"", "Yes.", QN_FINISH_STOP_TOKEN);
    assert_true(json_is_true(at(json_array_get(s, 0), "response.store")));
    assert_true(json_is_false(at(json_array_get(s, json_array_size(s) - 1), "response.store")));
    assert_int_equal(item_store_used(small), 0);
    json_decref(s);
    api.items = store;
    item_store_free(small);
}

static void test_ollama(void **state)
{
    char ask[512];
    (void)state;
    snprintf(ask, sizeof ask, "%s,%s,\"stream\":false,\"keep_alive\":0,\"options\":{\"num_gpu\":9,\"num_ctx\":64}",
             messages, tools);
    json_t *w = whole(&ollama_chat, ask, reply, QN_FINISH_STOP_TOKEN);
    assert_string_equal(text_at(w, "message.role"), "assistant");
    assert_string_equal(text_at(w, "message.thinking"), "hmm");
    assert_string_equal(text_at(w, "message.content"), "Let me see.");
    assert_string_equal(text_at(w, "message.tool_calls.0.function.arguments.a"), "\xc3\xa4");
    assert_int_equal(json_array_size(at(w, "message.tool_calls")), 2);
    assert_true(json_is_true(at(w, "done")));
    assert_string_equal(text_at(w, "done_reason"), "stop");
    assert_int_equal(json_integer_value(at(w, "prompt_eval_count")), 7);
    assert_true(json_integer_value(at(w, "total_duration")) > 0);
    assert_int_equal(json_array_size(at(w, "quern.ignored")), 3);
    assert_string_equal(text_at(w, "quern.ignored.1"), "options.num_gpu");

    snprintf(ask, sizeof ask, "%s,%s", messages, tools);
    json_t *s = lines(&ollama_chat, ask, reply, QN_FINISH_STOP_TOKEN);
    size_t n = json_array_size(s), n_calls = 0;
    assert_string_equal(joined(s, "message.thinking"), "hmm");
    assert_string_equal(joined(s, "message.content"), "Let me see.");
    for (size_t i = 0; i < n; i++) {
        n_calls += json_array_size(at(json_array_get(s, i), "message.tool_calls"));
        assert_int_equal(json_is_true(at(json_array_get(s, i), "done")), i + 1 == n);
    }
    assert_int_equal(n_calls, 2);
    json_decref(w);
    json_decref(s);

    w = whole(&ollama_text, "\"prompt\":\"x\",\"system\":\"y\",\"stream\":false", "Let me see.", QN_FINISH_LENGTH);
    assert_string_equal(text_at(w, "response"), "Let me see.");
    assert_string_equal(text_at(w, "done_reason"), "length");
    json_decref(w);
    s = lines(&ollama_text, "\"prompt\":\"x\"", "<think>\nhmm</think>Let", QN_FINISH_ERROR);
    assert_string_equal(joined(s, "thinking"), "hmm");
    assert_string_equal(joined(s, "response"), "Let");
    assert_string_equal(joined(s, "error"), "all logits are NaN");
    json_decref(s);
}

/* ---- ends ---- */

/* A gap's answer that takes too long still has whole lines. */
static void test_a_late_answer_for_a_gap_ends_with_its_line(void **state)
{
    struct job_answer a = {0};
    struct job j = {.answer = &a, .params.predict_ms = 10, .first_token_ns = clock_ns()};
    struct buf out = {0};
    (void)state;
    j.params.predict_ms = 1000000;
    assert_false(infill.limit(&j, 0, "x\n", 2, &out)); /* in time */
    a.has_line = false;
    j.params.predict_ms = 10;
    j.first_token_ns -= 20000000;
    assert_false(infill.limit(&j, 0, "yz", 2, &out)); /* late, but in its first line */
    assert_true(infill.limit(&j, 0, "w\n", 2, &out));
    j.params.predict_ms = 0;
    assert_false(infill.limit(&j, 0, "v\n", 2, &out)); /* without a limit */
    assert_int_equal(out.len, 8);
    assert_memory_equal(out.data, "x\nyzw\nv\n", 8);
    buf_deinit(&out);
}

static void test_one_call_is_enough_when_asked_for(void **state)
{
    char ask[512];
    (void)state;
    snprintf(ask, sizeof ask, "%s,%s,\"parallel_tool_calls\":false", messages, tools);
    json_t *w = whole(&openai_chat, ask, reply, QN_FINISH_STOP_TOKEN);
    assert_int_equal(json_array_size(at(w, "choices.0.message.tool_calls")), 1);
    assert_string_equal(text_at(w, "choices.0.finish_reason"), "tool_calls");
    assert_int_equal(n_cancels, 1);
    json_decref(w);
}

static void test_what_is_no_call_is_text(void **state)
{
    static const char bad[] = "See: <tool_call>\n{\"name\": oops}\n</tool_call>";
    char ask[512];
    (void)state;
    snprintf(ask, sizeof ask, "%s,%s", messages, tools);
    json_t *w = whole(&openai_chat, ask, bad, QN_FINISH_STOP_TOKEN);
    json_t *s = stream(&openai_chat, ask, bad, QN_FINISH_STOP_TOKEN);
    assert_non_null(strstr(text_at(w, "choices.0.message.content"), "oops"));
    assert_string_equal(joined(s, "choices.0.delta.content"), text_at(w, "choices.0.message.content"));
    assert_string_equal(text_at(w, "choices.0.finish_reason"), "stop");
    json_decref(w);
    json_decref(s);
}

static void test_a_stop_string_ends_the_request(void **state)
{
    char ask[512];
    (void)state;
    snprintf(ask, sizeof ask, "%s,\"stop\":\"me\"", messages);
    json_t *w = whole(&openai_chat, ask, "Let me see.", QN_FINISH_LENGTH);
    assert_string_equal(text_at(w, "choices.0.message.content"), "Let ");
    assert_string_equal(text_at(w, "choices.0.finish_reason"), "stop");
    assert_int_equal(n_cancels, 1);
    json_decref(w);
}

/* Also when the text looked like the beginning of a call to the end. */
static void test_the_stop_string_that_came_is_named(void **state)
{
    char ask[512];
    (void)state;
    snprintf(ask, sizeof ask, "%s,\"max_tokens\":9,\"stop_sequences\":[\"zzz\",\"me\",\"see\"]", messages);
    json_t *w = whole(&anthropic, ask, "Let me see.", QN_FINISH_LENGTH);
    assert_string_equal(text_at(w, "content.0.text"), "Let ");
    assert_string_equal(text_at(w, "stop_reason"), "stop_sequence");
    assert_string_equal(text_at(w, "stop_sequence"), "me");
    json_decref(w);
    w = whole(&anthropic, ask, "Let us go.", QN_FINISH_LENGTH);
    assert_string_equal(text_at(w, "stop_reason"), "max_tokens");
    assert_string_equal(text_at(w, "stop_sequence"), "(none)");
    json_decref(w);
    snprintf(
        ask, sizeof ask,
        "%s,\"max_tokens\":9,\"stop_sequences\":[\"zzz\",\"<tool\"],\"tools\":[{\"name\":\"f\",\"input_schema\":{}}]",
        messages);
    w = whole(&anthropic, ask, "Let us <tool", QN_FINISH_LENGTH);
    assert_string_equal(text_at(w, "content.0.text"), "Let us ");
    assert_string_equal(text_at(w, "stop_reason"), "stop_sequence");
    assert_string_equal(text_at(w, "stop_sequence"), "<tool");
    json_decref(w);
}

/* A conversation without a necessary member is the client's fault, and the member is named. */
static void test_blocks_that_lack_a_member_are_refused(void **state)
{
    static const struct {
        const char *block, *code;
    } cases[] = {
        {"{\"type\":\"tool_use\",\"id\":\"i\",\"input\":{}}", "missing_field"},
        {"{\"type\":\"tool_use\",\"id\":\"i\",\"name\":\"f\"}", "missing_field"},
        {"{\"type\":\"text\"}", "missing_field"},
        {"{\"type\":\"thinking\",\"signature\":\"\"}", "missing_field"},
        {"{\"type\":\"tool_use\",\"id\":\"i\",\"name\":\"f\",\"input\":{}}", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct http_request r = {0};
        char ask[512];
        snprintf(
            ask, sizeof ask,
            "\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":"
            "[%s]},{\"role\":\"user\",\"content\":\"y\"}]",
            cases[i].block);
        try_exchange(&r, &anthropic, ask, "Let", QN_FINISH_LENGTH);
        assert_int_equal(r.status, cases[i].code ? 400 : 200);
        if (cases[i].code) assert_non_null(strstr(r.text.data, cases[i].code));
        free(r.text.data);
    }
}

static void test_failures_are_said(void **state)
{
    const struct dialect *const dialects[] = {&openai_text, &openai_chat, &anthropic, &responses};
    const char *const asks[] = {"\"prompt\":\"x\"", messages,
                                "\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]",
                                "\"input\":\"x\""};
    const struct {
        enum qn_finish finish;
        int status;
        const char *code;
    } ends[] = {{QN_FINISH_ERROR, 500, "internal"},
                {QN_FINISH_DEADLINE, 504, "deadline_exceeded"},
                {QN_FINISH_STOPPED, 503, "stopping"}};
    (void)state;
    for (int d = 0; d < 4; d++)
        for (int k = 0; k < 3; k++) {
            struct http_request r = {0};
            exchange(&r, dialects[d], asks[d], "Let", ends[k].finish);
            assert_int_equal(r.status, ends[k].status);
            assert_non_null(strstr(r.text.data, ends[k].code));
            free(r.text.data);
            json_t *s = stream(dialects[d], asks[d], "Let", ends[k].finish);
            const json_t *last = json_array_get(s, json_array_size(s) - 1);
            const char *code = text_at(last, dialects[d] == &responses ? "code" : "error.code");
            assert_string_equal(code, ends[k].code);
            json_decref(s);
        }
}

static void test_a_client_that_cannot_be_reached_ends_the_request(void **state)
{
    struct http_request slow = {.full = true}, gone = {.gone = true}, late = {0};
    char ask[512];
    (void)state;
    snprintf(ask, sizeof ask, "%s,\"stream\":true", messages);
    exchange(&slow, &openai_chat, ask, "Let me see.", QN_FINISH_LENGTH);
    assert_true(n_cancels > 0 && slow.aborted && slow.text.len == 0);
    /* A request whose client has left while it is read is not even submitted. */
    snprintf(gone.body, sizeof gone.body, "{%s}", ask);
    asked.callback = NULL;
    begin(&gone, &openai_chat);
    assert_true(gone.ended && gone.status == 503 && !asked.callback && !api.tickets && !one_n_holds);
    free(gone.text.data);
    /* A client that leaves between the submission and the first event. */
    snprintf(late.body, sizeof late.body, "{%s}", ask);
    n_cancels = 0;
    begin(&late, &openai_chat);
    late.gone = true;
    tell((struct qn_event){.type = QN_EVENT_QUEUED, .token = -1});
    assert_int_equal(n_cancels, 1);
    tell((struct qn_event){.type = QN_EVENT_DONE, .token = -1, .finish = QN_FINISH_CANCELLED});
    assert_true(late.ended && !api.tickets && !one_n_holds);
    free(late.text.data);
}

static void test_silence_is_filled_and_a_hang_up_cancels(void **state)
{
    struct http_request r = {0};
    char text[256];
    (void)state;
    snprintf(r.body, sizeof r.body, "{%s,\"stream\":true}", messages);
    n_cancels = 0;
    begin(&r, &openai_chat);
    tell((struct qn_event){.type = QN_EVENT_QUEUED, .token = -1, .place = 0});
    text[r.watch.heartbeat(r.watch.arg, text, sizeof text)] = 0;
    assert_string_equal(text, ": queued, 0 before\n\n");
    tell((struct qn_event){.type = QN_EVENT_PREFILL, .token = -1, .n_done = 512, .n_total = 2000});
    text[r.watch.heartbeat(r.watch.arg, text, sizeof text)] = 0;
    assert_string_equal(text, ": prefill 512/2000\n\n");
    for (int i = 0; i < 9; i++) assert_int_equal(r.watch.heartbeat(r.watch.arg, text, sizeof text), 0);
    assert_int_equal(r.watch.heartbeat(r.watch.arg, text, sizeof text), strlen(": prefill 512/2000\n\n"));
    assert_int_equal(n_cancels, 0);
    r.watch.on_hangup(r.watch.arg);
    assert_int_equal(n_cancels, 1);
    tell((struct qn_event){.type = QN_EVENT_DONE, .token = -1, .finish = QN_FINISH_CANCELLED});
    assert_true(r.ended && !api.tickets && !one_n_holds);
    free(r.text.data);
}

static void test_a_job_is_cancelled_by_its_owner_only(void **state)
{
    struct http_request r = {0};
    uint64_t mine = who_of(http_identity(&r), NULL).identity;
    (void)state;
    snprintf(r.body, sizeof r.body, "{%s}", messages);
    n_cancels = 0;
    begin(&r, &openai_chat);
    assert_false(ticket_cancel(&api, "req-1", mine + 1));
    assert_false(ticket_cancel(&api, "req-2", mine));
    assert_true(ticket_cancel(&api, "chatcmpl-req-1", mine));
    assert_int_equal(n_cancels, 0); /* it has no number yet */
    tell((struct qn_event){.type = QN_EVENT_QUEUED, .token = -1});
    assert_int_equal(n_cancels, 1);
    assert_true(ticket_cancel(&api, "req-1", mine));
    assert_int_equal(n_cancels, 2);
    tell((struct qn_event){.type = QN_EVENT_DONE, .token = -1, .finish = QN_FINISH_CANCELLED});
    assert_false(ticket_cancel(&api, "req-1", mine));
    assert_non_null(strstr(r.text.data, "\"finish_reason\":\"cancelled\""));
    free(r.text.data);
}

static void tell_tokens(int answer, const char *text)
{
    qn_token *t = NULL;
    size_t n = 0;
    assert_int_equal(qn_tokenize(model, text, strlen(text), 0, NULL, &t, &n, NULL), 0);
    for (size_t i = 0; i < n; i++) tell((struct qn_event){.type = QN_EVENT_TOKEN, .answer = answer, .token = t[i]});
    qn_free(t);
}

static void test_cancelling_changes_nothing_of_an_answer_that_has_ended(void **state)
{
    struct http_request r = {0};
    (void)state;
    snprintf(r.body, sizeof r.body, "{%s,\"n\":2,\"stop\":\"me\"}", messages);
    n_cancels = 0;
    begin(&r, &openai_chat);
    tell((struct qn_event){.type = QN_EVENT_QUEUED, .token = -1});
    tell_tokens(0, "Let me see.");
    tell_tokens(1, "Let");
    assert_int_equal(n_cancels, 0); /* the other one goes on */
    assert_true(ticket_cancel(&api, "req-1", who_of(http_identity(&r), NULL).identity));
    for (int i = 0; i < 2; i++)
        tell((struct qn_event){.type = QN_EVENT_FINISH, .answer = i, .token = -1, .finish = QN_FINISH_CANCELLED});
    tell((struct qn_event){.type = QN_EVENT_DONE, .token = -1, .finish = QN_FINISH_CANCELLED});
    json_t *w = json_loadb(r.text.data, r.text.len, 0, NULL);
    assert_string_equal(text_at(w, "choices.0.finish_reason"), "stop");
    assert_string_equal(text_at(w, "choices.0.message.content"), "Let ");
    assert_string_equal(text_at(w, "choices.1.finish_reason"), "cancelled");
    assert_string_equal(text_at(w, "choices.1.message.content"), "Let");
    json_decref(w);
    free(r.text.data);
}

static void test_several_prompts_are_asked_one_after_the_other(void **state)
{
    static const char ask[] = "\"prompt\":[\"x\",[5,6,7],\"y\"],\"user\":\"u\"";
    (void)state;
    json_t *w = whole(&openai_text, ask, "Let", QN_FINISH_LENGTH);
    assert_int_equal(json_array_size(at(w, "choices")), 3);
    assert_int_equal(json_integer_value(at(w, "choices.2.index")), 2);
    assert_int_equal(json_integer_value(at(w, "usage.prompt_tokens")), 21);
    assert_int_equal(json_integer_value(at(w, "usage.prompt_tokens_details.cached_tokens")), 9);
    assert_string_equal(text_at(w, "quern.ignored.0"), "user");
    json_decref(w);
    json_t *s = stream(&openai_text, ask, "Let", QN_FINISH_LENGTH);
    assert_string_equal(joined(s, "choices.0.finish_reason"), "lengthlengthlength");
    json_decref(s);
    /* One that fails ends the request. */
    struct http_request r = {0};
    exchange(&r, &openai_text, ask, "Let", QN_FINISH_ERROR);
    assert_int_equal(r.status, 500);
    free(r.text.data);
}

static void test_tokens_of_thoughts_are_counted(void **state)
{
    (void)state;
    json_t *w = whole(&openai_chat, messages, "<think>\nhmm</think>Let me see.", QN_FINISH_STOP_TOKEN);
    json_t *all = whole(&openai_chat, messages, "<think>\nhmm", QN_FINISH_LENGTH);
    json_t *none = whole(&openai_chat, messages, "Let me <think> see.", QN_FINISH_LENGTH);
    static const char way[] = "usage.completion_tokens_details.reasoning_tokens";
    json_int_t n = json_integer_value(at(w, way)), n_all = json_integer_value(at(all, way));
    assert_true(n_all > 0 && n > n_all && n < json_integer_value(at(w, "usage.completion_tokens")));
    assert_int_equal(n_all, json_integer_value(at(all, "usage.completion_tokens")));
    assert_int_equal(json_integer_value(at(none, way)), 0);
    json_decref(w);
    json_decref(all);
    json_decref(none);
}

/* Every allocation fails in turn: the answer is whole, or says that there was no memory, or the connection breaks. */
static void test_without_memory_nothing_is_half_said(void **state)
{
    const struct dialect *const dialects[] = {&openai_text, &openai_chat, &anthropic,
                                              &responses,   &openai_text, &ollama_chat};
    const char *const asks[] = {"\"logprobs\":1,\"echo\":true,\"prompt\":\"x\"",
                                "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true}}],"
                                "\"logprobs\":true,\"messages\":[{\"role\":\"user\",\"content\":"
                                "[{\"type\":\"input_text\",\"text\":\"x\"}]}]",
                                "\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]",
                                "\"input\":\"x\"",
                                "\"echo\":true,\"user\":\"u\",\"prompt\":[\"x\",[5,6]]",
                                "\"logprobs\":true,\"keep_alive\":1,\"messages\":["
                                "{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]},"
                                "{\"role\":\"tool\",\"tool_name\":\"f\",\"content\":\"x\"}],"
                                "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"};
    (void)state;
    for (int k = 0; k < 12; k++) {
        char ask[512];
        bool streamed = k >= 6;
        snprintf(ask, sizeof ask, "%s%s", asks[k % 6], streamed ? ",\"stream\":true" : ",\"stream\":false");
        for (uint64_t n = 1, hit = 1; hit; n++) {
            struct http_request r = {0};
            fault_at = n;
            try_exchange(&r, dialects[k % 6], ask, reply, QN_FINISH_STOP_TOKEN);
            hit = (uint64_t)mem_fault_hit();
            mem_fault_set(0);
            assert_true(r.ended && !api.tickets && !one_n_holds);
            if (r.streams)
                assert_true(r.aborted || strstr(r.text.data, "\"quern\""));
            else
                assert_true(r.status == 200 || r.status == 503 || r.status == 500);
            if (!hit) assert_true(r.status == 200 && !r.aborted);
            free(r.text.data);
        }
    }
    fault_at = 0;
}

int main(int argc, char **argv)
{
    /* A template that shows the form of thoughts and calls; its text does not matter. */
    static const char template[] =
        "<tool_call> </think> {% for m in messages %}{{ m.content }}{% endfor %}<|im_start|>";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_openai_chat),
        cmocka_unit_test(test_anthropic),
        cmocka_unit_test(test_responses),
        cmocka_unit_test(test_items_are_in_the_order_of_the_reply),
        cmocka_unit_test(test_thoughts_are_a_summary_when_one_is_asked_for),
        cmocka_unit_test(test_a_response_says_whether_it_is_kept),
        cmocka_unit_test(test_a_late_answer_for_a_gap_ends_with_its_line),
        cmocka_unit_test(test_ollama),
        cmocka_unit_test(test_one_call_is_enough_when_asked_for),
        cmocka_unit_test(test_what_is_no_call_is_text),
        cmocka_unit_test(test_a_stop_string_ends_the_request),
        cmocka_unit_test(test_the_stop_string_that_came_is_named),
        cmocka_unit_test(test_blocks_that_lack_a_member_are_refused),
        cmocka_unit_test(test_failures_are_said),
        cmocka_unit_test(test_a_client_that_cannot_be_reached_ends_the_request),
        cmocka_unit_test(test_silence_is_filled_and_a_hang_up_cancels),
        cmocka_unit_test(test_a_job_is_cancelled_by_its_owner_only),
        cmocka_unit_test(test_cancelling_changes_nothing_of_an_answer_that_has_ended),
        cmocka_unit_test(test_several_prompts_are_asked_one_after_the_other),
        cmocka_unit_test(test_tokens_of_thoughts_are_counted),
        cmocka_unit_test(test_without_memory_nothing_is_half_said),
    };
    struct qn_error e;
    if (argc != 2 || qn_model_open(&model, argv[1], &e) ||
        qn_chat_new(&chat, model, template, sizeof template - 1, &e) || item_store_new(&api.items, NULL, 1 << 16, &e)) {
        print_error("%s\n", argc == 2 ? e.msg : "a model file is wanted");
        return 1;
    }
    one_model.model = model;
    one_model.chat = chat;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    item_store_free(api.items);
    qn_chat_free(chat);
    qn_model_close(model);
    return failed;
}
