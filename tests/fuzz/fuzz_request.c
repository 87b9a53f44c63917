/* SPDX-License-Identifier: MIT
 *
 * fuzz_request.c: libFuzzer entry for what clients send: a body, read by every endpoint that takes one.
 *
 * The input is a byte that chooses the endpoint, then the body. As in unit/test_answers the HTTP server and the
 * scheduler are played here: what is submitted gets an answer of a few tokens. Every request is answered once, with 200
 * or an error of the client's, in JSON that can be read again; nothing is left behind.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "../unit/one_model.h"
#include "server/api/endpoints.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static qn_model *model;
static qn_chat *chat;
static struct hists hists = {.lock = PTHREAD_MUTEX_INITIALIZER};
static struct api api = {.lock = PTHREAD_MUTEX_INITIALIZER, .hists = &hists};
static struct qn_request_params asked;
static bool submitted;

/* ---- the server, played ---- */

struct http_request {
    const uint8_t *body;
    size_t n;
    int status; /* 0: not answered */
    bool streams, ended;
    struct buf text;
};

const uint8_t *http_body(const struct http_request *r, size_t *n)
{
    *n = r->n;
    return r->body;
}
void http_drop_body(struct http_request *r) { (void)r; }
size_t http_connection_bytes(const struct http_request *r) { return r == NULL; }
struct http_refused http_refused(const struct http_request *r) { return (struct http_refused){.full = r == NULL}; }
int http_query(const struct http_request *r, const char *name, char *value, size_t cap)
{
    (void)r;
    (void)name;
    (void)value;
    (void)cap;
    return -1;
}
const char *http_method(const struct http_request *r) { return r ? "POST" : ""; }
const char *http_path(const struct http_request *r) { return r ? "/" : ""; }
const char *http_header(const struct http_request *r, const char *name) { return r && name ? NULL : ""; }
uint64_t http_websocket_id(const struct http_request *r) { return r == NULL; }
int http_set_label(struct http_request *r, const char *name, const char *value) { return !r || !name || !value; }
const char *http_request_id(const struct http_request *r) { return r ? "req-1" : ""; }
const char *http_param(const struct http_request *r) { return r ? "req-1" : ""; }
const struct http_identity *http_identity(const struct http_request *r)
{
    static const struct http_identity i = {.kind = HTTP_LOCAL, .name = "local"};
    return r ? &i : NULL;
}
bool http_count(const struct http_request *r, size_t i, struct http_count *out) { return !r && !i && !out; }
void http_note(struct http_request *r, const char *fmt, ...) { assert(!r->status && fmt); }
void http_outcome(struct http_request *r, const char *code) { assert(r && code); }
void http_set_header(struct http_request *r, const char *name, const char *value)
{
    assert(!r->status && *name && *value);
}
int http_watch(struct http_request *r, const struct http_watch *w)
{
    (void)w;
    return r->ended ? HTTP_GONE : HTTP_OK;
}
void http_reply(struct http_request *r, int status, const char *type, const void *body, size_t n)
{
    json_t *j = json_loadb(body, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    assert(!r->status && type && j);
    r->status = status;
    r->ended = true;
    if (status != 200) assert(json_string_length(json_object_get(json_object_get(j, "error"), "message")) > 0);
    json_decref(j);
}
void http_error(struct http_request *r, int status, const char *param, const char *code, const char *fmt, ...)
{
    (void)param;
    assert(!r->status && fmt && (code || status == 404));
    r->status = status;
    r->ended = true;
}
int http_stream_open(struct http_request *r, int status, const char *type)
{
    assert(!r->status && type);
    r->status = status;
    r->streams = true;
    return HTTP_OK;
}
int http_stream_write(struct http_request *r, const void *p, size_t n)
{
    assert(r->streams && !r->ended);
    buf_add(&r->text, p, n, NULL);
    return HTTP_OK;
}
void http_stream_end(struct http_request *r)
{
    assert(r->streams && !r->ended);
    r->ended = true;
}
void http_stream_abort(struct http_request *r) { assert(!r); } /* nothing is lost here */

/* ---- the scheduler, played ---- */

void qn_request_params_init(struct qn_request_params *p)
{
    *p = (struct qn_request_params){.size = sizeof *p, .max_tokens = -1, .n_answers = 1, .n_top_logprobs = -1};
}
int qn_submit(qn_scheduler *s, const struct qn_request_params *p, uint64_t *id, double *retry_s, struct qn_error *e)
{
    (void)s;
    assert(p->n_prompt > 0 && p->n_answers > 0 && p->n_answers <= PARAMS_MAX_ANSWERS);
    for (size_t i = 0; i < p->n_prompt; i++) assert(p->prompt[i] >= 0 && p->prompt[i] < qn_model_n_vocab(model));
    if (p->pooling) { /* several of these make one answer: another test's */
        *retry_s = 2;
        return error_set(e, QN_EBUSY, "the queue is full");
    }
    asked = *p;
    submitted = true;
    *id = 5;
    return 0;
}
bool qn_cancel(qn_scheduler *s, uint64_t id)
{
    (void)s;
    return id == 5;
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

/* What a scheduler would tell of answers of a few tokens. */
static void answer(void)
{
    static const struct qn_logprob top[QN_MAX_TOP_LOGPROBS] = {{1, -1}, {2, -2}};
    int n_top = asked.n_top_logprobs > 0 ? asked.n_top_logprobs : 0;
    tell((struct qn_event){.type = QN_EVENT_QUEUED, .token = -1});
    static const float vector[4096] = {1};
    if (asked.pooling)
        tell((struct qn_event){.type = QN_EVENT_EMBEDDING,
                               .token = -1,
                               .embedding = vector,
                               .n_embedding = asked.pooling == QN_POOL_RANK ? 1 : qn_model_n_embd(model)});
    for (qn_token t = 0; t < 12 && !asked.pooling; t++)
        for (int i = 0; i < asked.n_answers; i++)
            tell((struct qn_event){.type = QN_EVENT_TOKEN,
                                   .answer = i,
                                   .token = t * 20,
                                   .top = top,
                                   .n_top = n_top,
                                   .text = "a",
                                   .n_text = 1});
    for (int i = 0; i < asked.n_answers; i++)
        tell((struct qn_event){.type = QN_EVENT_FINISH, .answer = i, .token = -1, .finish = QN_FINISH_LENGTH});
    tell((struct qn_event){.type = QN_EVENT_DONE, .token = -1, .finish = QN_FINISH_LENGTH, .usage = {7, 3, 12}});
}

/* Every event's data is JSON, or the mark of the end. */
static void check_stream(const struct buf *b)
{
    static const char data[] = "data: ";
    if (b->len == 0) return;
    const char *p = (const char *)b->data, *end = p + b->len;
    while (p && p < end && (p = memmem(p, (size_t)(end - p), data, sizeof data - 1))) {
        p += sizeof data - 1;
        const char *stop = memmem(p, (size_t)(end - p), "\n\n", 2);
        assert(stop);
        json_t *j = json_loadb(p, (size_t)(stop - p), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
        assert(j || (stop - p == 6 && !memcmp(p, "[DONE]", 6)));
        json_decref(j);
        p = stop;
    }
}

/* ---- the entry ---- */

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct qn_error e;
    (void)argc;
    (void)argv;
    if (qn_model_open(&model, FUZZ_MODEL, &e) || qn_chat_new(&chat, model, NULL, 0, &e) ||
        item_store_new(&api.items, NULL, 1 << 16, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    one_model.model = model;
    one_model.chat = chat;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct dialect *const dialects[] = {&openai_text, &openai_chat, &anthropic, &responses, &infill};
    static api_work *const works[] = {endpoint_tokenize,   endpoint_detokenize, endpoint_render, endpoint_count_tokens,
                                      endpoint_embeddings, endpoint_rerank,     endpoint_score};
    static const struct {
        int dialect, work; /* -1: the other one */
    } ways[] = {{0, -1}, {1, -1}, {2, -1}, {3, -1}, {-1, 0}, {-1, 1},
                {-1, 2}, {-1, 3}, {-1, 4}, {-1, 5}, {-1, 6}, {4, -1}};
    if (size == 0 || !model) return 0;
    struct http_request r = {.body = data + 1, .n = size - 1};
    size_t which = data[0] % (sizeof ways / sizeof ways[0]);
    const struct dialect *d = ways[which].dialect < 0 ? NULL : dialects[ways[which].dialect];
    submitted = false;
    struct fault f;
    struct api_call c = one_call(&api, &r, d ? d->id_prefix : "", r.body, r.n, &f);
    if (!c.body)
        api_refuse_openai(&r, &f);
    else if (d)
        job_begin(&c, d);
    else
        works[ways[which].work](&c);
    one_call_done(&c);
    while (submitted) { /* several prompts come one after the other */
        submitted = false;
        answer();
    }
    assert(r.ended && !api.tickets && !one_n_holds);
    assert(r.status == 200 || (r.status >= 400 && r.status < 500));
    check_stream(&r.text);
    buf_deinit(&r.text);
    return 0;
}
