/* SPDX-License-Identifier: MIT
 *
 * api.c: the routes, the workers, and what failures are called. See api.h, api_impl.h.
 *
 * Reading a request takes as long as its text is long (a megabyte of JSON, a template, a tokeniser), and a handler must
 * not keep all other connections waiting: the handlers of POST put it into one queue for a few workers. The queue needs
 * no bound of its own, for each connection has one request at most.
 */
#include "server/api_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/os.h"
#include "server/endpoints.h"

#define MODELS_RETRY_S 5  /* a guess: how long others need their models is theirs to know */
#define WORK_FACTOR    32 /* bytes that a byte of text takes at most on its way to tokens: symbols, candidates */

/* ---- workers ---- */

static void queue(struct api_call *c)
{
    struct api *a = c->api;
    c->next = NULL;
    pthread_mutex_lock(&a->lock);
    *a->last = c;
    a->last = &c->next;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
}

/* The model that was waited for is there, or will not come: back to the workers. In the models' thread. */
static void model_is_ready(struct models_wait *w, struct served *m, const struct fault *why)
{
    struct api_call *c = (struct api_call *)w;
    c->served = m;
    c->load_ms = 1e-6 * (double)(clock_ns() - c->asked_ns);
    if (why) c->fault = *why;
    queue(c);
}

/* From a handler to a worker. The request is the worker's from here on; it counts while it waits for one. */
static void hand_over_call(const struct api_call *call, const char *prefix)
{
    struct fault f;
    struct api_call *c = mem_alloc(sizeof *c);
    struct ticket *t = c ? ticket_new(call->api, call->req, prefix, &f) : NULL;
    if (t) {
        *c = *call;
        c->ticket = t;
        queue(c);
        return;
    }
    if (!c) api_no_memory(&f);
    mem_free(c);
    api_refuse_busy(call->req, &f, 1, call->refuse);
}

static void hand_over(struct api *a, struct http_request *r, api_work *work, api_refuse *refuse, const char *prefix)
{
    hand_over_call(&(struct api_call){.wait.ready = model_is_ready, .api = a, .req = r, .work = work, .refuse = refuse},
                   prefix);
}

/* Work that takes long, but has no body and is not for one model. */
static void hand_over_bare(struct api *a, struct http_request *r, api_work *work)
{
    hand_over_call(&(struct api_call){.api = a, .req = r, .work = work, .refuse = api_refuse_openai, .no_model = true},
                   "");
}

static void call_free(struct api_call *c)
{
    json_decref(c->body);
    models_release(c->served);
    ticket_free(c->ticket);
    mem_free(c);
}

/* The body to its object, whose memory is taken before there is any. */
static int read_body(struct api_call *c)
{
    struct ticket *t = c->ticket;
    struct field_size size;
    size_t n;
    const void *text = http_body(c->req, &n);
    if (field_measure(text, n, &size, &c->fault) ||
        ticket_take(t, size.kept + size.more, "what the body becomes", &c->fault))
        return -1;
    c->body_taken = size.kept;
    c->body = field_parse_body(text, n, &t->cancel, &c->fault);
    ticket_give(t, size.more);
    http_drop_body(c->req);
    t->n_body = 0;
    if (!c->body && !c->fault.code) ticket_fault(t, &c->fault);
    return c->body ? 0 : -1;
}

/* Reads the body and asks for the model that it names: the first field that is looked at, because what the others may
 * say depends on it. */
static enum models_answer find_model(struct api_call *c)
{
    if (read_body(c)) return MODELS_REFUSED;
    const json_t *name = json_object_get(c->body, "model");
    if (name && !json_is_null(name) && !json_is_string(name)) {
        field_wrong_type(&c->fault, "model", "a string", name);
        return MODELS_REFUSED;
    }
    c->asked_ns = clock_ns();
    return models_acquire(c->api->c.models, json_string_value(name), &c->wait, &c->served, &c->fault);
}

/* What a worker does for a call, which is somebody else's or gone when it returns. */
static void run(struct api_call *c)
{
    if (!c->fault.status && ticket_is_over(c->ticket)) ticket_fault(c->ticket, &c->fault);
    if (!c->no_model && !c->served && !c->fault.status && find_model(c) == MODELS_WAIT) return;
    if (!c->fault.status && (c->served || c->no_model)) {
        c->work(c);
    } else {
        ticket_unlist(c->ticket);
        api_refuse_busy(c->req, &c->fault, MODELS_RETRY_S, c->refuse);
    }
    call_free(c);
}

/* How many workers have a call of this identity; with the lock. */
static int n_busy_for(const struct api *a, uint64_t identity)
{
    int n = 0;
    for (int i = 0; i < a->n_workers; i++) n += a->busy[i] && a->busy_for[i] == identity;
    return n;
}

/* Takes the next call out of the queue; with the lock. They go in the order they came, but those of an identity that is
 * being worked for after those of others: who sends one large body after the other keeps others waiting for the end of
 * one at most. */
static struct api_call *next_call(struct api *a)
{
    struct api_call **at = &a->first, *c;
    while (*at && n_busy_for(a, (*at)->ticket->identity)) at = &(*at)->next;
    if (!*at) at = &a->first;
    if (!(c = *at)) return NULL;
    *at = c->next;
    if (a->last == &c->next) a->last = at;
    return c;
}

/* The number of a worker that begins. */
static int own_number(struct api *a)
{
    int i = 0;
    while (!pthread_equal(a->worker[i], pthread_self())) i++;
    return i;
}

/* One worker, until there are no calls and the API is taken down. */
static void *work(void *arg)
{
    struct api *a = arg;
    pthread_setname_np(pthread_self(), "worker");
    pthread_mutex_lock(&a->lock);
    int i = own_number(a);
    for (;;) {
        while (!a->first && !a->stopping) pthread_cond_wait(&a->wake, &a->lock);
        struct api_call *c = next_call(a);
        if (!c) break;
        a->busy[i] = true;
        a->busy_for[i] = c->ticket->identity;
        pthread_mutex_unlock(&a->lock);
        run(c);
        pthread_mutex_lock(&a->lock);
        a->busy[i] = false;
        pthread_cond_broadcast(&a->idle);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* ---- routes ---- */

/* A route of a dialect: its handler, and what the worker does. */
#define BEGIN(name, dialect)                                                                                           \
    static void begin_##name(struct api_call *c) { job_begin(c, &dialect); }                                           \
    static void post_##name(struct http_request *r, void *ctx)                                                         \
    {                                                                                                                  \
        hand_over(ctx, r, begin_##name, dialect.refuse, dialect.id_prefix);                                            \
    }
BEGIN(completion, openai_text)
BEGIN(chat, openai_chat)
BEGIN(message, anthropic)
BEGIN(response, responses)

#define POST(name, refuse)                                                                                             \
    static void post_##name(struct http_request *r, void *ctx) { hand_over(ctx, r, endpoint_##name, refuse, ""); }
POST(render, api_refuse_openai)
POST(tokenize, api_refuse_openai)
POST(detokenize, api_refuse_openai)
POST(embeddings, api_refuse_openai)
POST(count_tokens, api_refuse_anthropic)

/* The scheduler answers these between two steps: not in the handler. */
static void get_sessions(struct http_request *r, void *ctx) { hand_over_bare(ctx, r, endpoint_sessions); }
static void delete_sessions(struct http_request *r, void *ctx) { hand_over_bare(ctx, r, endpoint_drop_sessions); }

/* No body and no work: answered in the handler. */
static void post_cancel(struct http_request *r, void *ctx)
{
    struct json_out o = {0};
    if (!ticket_cancel(ctx, http_param(r), who_of(http_identity(r), NULL).identity)) {
        http_error(r, 404, "id", "request_not_found", "you have no request '%s' that is under way", http_param(r));
        return;
    }
    json_out_open(&o, NULL, '{');
    json_out_str(&o, "id", http_param(r));
    json_out_bool(&o, "cancelled", true);
    json_out_close(&o, '}');
    api_send(r, &o);
}

static const struct http_route routes[] = {
    {"GET", "/health", endpoint_health, HTTP_PUBLIC},
    {"GET", "/v1/models", endpoint_models, 0},
    {"POST", "/v1/completions", post_completion, HTTP_JSON_BODY},
    {"POST", "/v1/chat/completions", post_chat, HTTP_JSON_BODY},
    {"POST", "/v1/chat/render", post_render, HTTP_JSON_BODY},
    {"POST", "/v1/embeddings", post_embeddings, HTTP_JSON_BODY},
    {"POST", "/v1/responses", post_response, HTTP_JSON_BODY},
    {"POST", "/v1/messages", post_message, HTTP_JSON_BODY},
    {"POST", "/v1/messages/count_tokens", post_count_tokens, HTTP_JSON_BODY},
    {"POST", "/v1/requests/{id}/cancel", post_cancel, 0},
    {"POST", "/tokenize", post_tokenize, HTTP_JSON_BODY},
    {"POST", "/detokenize", post_detokenize, HTTP_JSON_BODY},
    {"GET", "/metrics", endpoint_metrics, 0},
    {"GET", "/v1/memory", endpoint_memory, 0},
    {"GET", "/v1/status", endpoint_status, 0},
    {"GET", "/v1/sessions", get_sessions, 0},
    {"DELETE", "/v1/sessions", delete_sessions, 0},
    {"DELETE", "/v1/sessions/{id}", delete_sessions, 0},
};

const struct http_route *api_routes(int *n)
{
    *n = (int)(sizeof routes / sizeof routes[0]);
    return routes;
}

const char *const *api_limits(void)
{
    static const char *const limits[] = {"requests", NULL}; /* see ticket_new() */
    return limits;
}

/* ---- failures ---- */

int api_no_memory(struct fault *f) { return fault_set(f, 503, "no_memory", NULL, "not enough memory"); }

int api_fault(struct fault *f, const struct qn_error *e)
{
    switch (e->code) {
    case QN_EUSAGE: return fault_set(f, 400, "invalid_value", NULL, "%s", e->msg);
    case QN_EDATA: return fault_set(f, 400, "invalid_value", NULL, "%s", e->msg);
    case QN_EUNSUP: return fault_set(f, 400, "unsupported_value", NULL, "%s", e->msg);
    case QN_EFULL: return fault_set(f, 400, "context_length_exceeded", NULL, "%s", e->msg);
    case QN_EBUSY: return fault_set(f, 429, "queue_full", NULL, "%s", e->msg);
    case QN_ECANCEL: return fault_set(f, 503, "stopping", NULL, "%s", e->msg);
    case QN_ENOMEM: return fault_set(f, 503, "no_memory", NULL, "%s", e->msg);
    default: return fault_set(f, 500, "internal", NULL, "%s", e->msg);
    }
}

/* at_most: what a template may use, which is more than it ever should; a ledger smaller than that gives its half. */
static int take_work(struct ticket *t, size_t n, size_t at_most, size_t *taken, struct fault *f)
{
    const struct ledger *l = t->api->c.requests;
    size_t bytes = n > SIZE_MAX / WORK_FACTOR ? SIZE_MAX : n * WORK_FACTOR;
    *taken = 0;
    if (l && at_most > l->budget / 2) at_most = l->budget / 2;
    if (bytes < at_most) bytes = at_most;
    if (l && bytes > l->budget / 2)
        return fault_set(f, 413, "request_too_large", NULL, "a text of %zu bytes takes more memory than there is", n);
    if (ticket_take(t, bytes, "a text", f)) return -1;
    *taken = l ? bytes : 0;
    return 0;
}

int api_take_work(struct ticket *t, size_t n, size_t *taken, struct fault *f) { return take_work(t, n, 0, taken, f); }

/* First the template's values, then tokens. */
int api_take_chat_work(struct ticket *t, size_t n, size_t *taken, struct fault *f)
{
    return take_work(t, n, qn_chat_prompt_bytes(n), taken, f);
}

struct dump {
    struct buf *b;
    bool failed;
};

static int add_to_dump(const char *p, size_t n, void *dump)
{
    struct dump *d = dump;
    d->failed = d->failed || buf_add(d->b, p, n, NULL);
    return d->failed ? -1 : 0;
}

/* jansson (2.14) goes on after a failure to write a key, so that what it returns is not enough. */
int api_dump(struct buf *b, const json_t *j)
{
    struct dump d = {b, false};
    return json_dump_callback(j, add_to_dump, &d, JSON_COMPACT) || d.failed ? -1 : 0;
}

void api_refuse_openai(struct http_request *r, const struct fault *f)
{
    http_error(r, f->status, f->param[0] ? f->param : NULL, f->code, "%s", f->message);
}

void api_error_openai(struct json_out *o, const struct fault *f)
{
    json_out_open(o, NULL, '{');
    json_out_open(o, "error", '{');
    json_out_str(o, "message", f->message);
    json_out_str(o, "type", f->status >= 500 ? "server_error" : "invalid_request_error");
    json_out_str(o, "param", f->param[0] ? f->param : NULL);
    json_out_str(o, "code", f->code);
    json_out_close(o, '}');
    json_out_close(o, '}');
}

void api_error_anthropic(struct json_out *o, const struct fault *f)
{
    const char *type = f->status == 429   ? "rate_limit_error"
                       : f->status == 503 ? "overloaded_error"
                       : f->status == 404 ? "not_found_error"
                       : f->status >= 500 ? "api_error"
                                          : "invalid_request_error";
    json_out_open(o, NULL, '{');
    json_out_str(o, "type", "error");
    json_out_open(o, "error", '{');
    json_out_str(o, "type", type);
    json_out_str(o, "message", f->message);
    json_out_str(o, "param", f->param[0] ? f->param : NULL);
    json_out_str(o, "code", f->code);
    json_out_close(o, '}');
    json_out_close(o, '}');
}

static void send(struct http_request *r, int status, struct json_out *o)
{
    if (o->failed) {
        http_set_header(r, "Retry-After", "1");
        http_error(r, 503, NULL, "no_memory", "not enough memory");
    } else {
        http_reply(r, status, "application/json", o->b.data, o->b.len);
    }
    json_out_deinit(o);
}

void api_refuse_anthropic(struct http_request *r, const struct fault *f)
{
    struct json_out o = {0};
    api_error_anthropic(&o, f);
    send(r, f->status, &o);
}

void api_send(struct http_request *r, struct json_out *o) { send(r, 200, o); }

void api_end(struct api_call *c, struct json_out *o)
{
    ticket_unlist(c->ticket);
    api_send(c->req, o);
}

void api_end_refused(struct api_call *c, const struct fault *f)
{
    ticket_unlist(c->ticket);
    api_refuse_busy(c->req, f, 1, c->refuse);
}

void api_refuse_busy(struct http_request *r, const struct fault *f, double retry_s, api_refuse *refuse)
{
    char text[24];
    if (f->status == 429 || f->status == 503) {
        snprintf(text, sizeof text, "%d", retry_s > 1 && retry_s < 3600 ? (int)(retry_s + 0.999) : 1);
        http_set_header(r, "Retry-After", text);
    }
    refuse(r, f);
}

/* ---- life ---- */

/* A worker finds its number under the lock, which is held until all have one. */
static int start_workers(struct api *a, int n, struct qn_error *e)
{
    int rc = 0;
    pthread_mutex_lock(&a->lock);
    for (; a->n_workers < n && !rc; a->n_workers += !rc)
        rc = os_thread_start(&a->worker[a->n_workers], work, a, "requests", e);
    pthread_mutex_unlock(&a->lock);
    return rc;
}

/* Nothing waits for a worker, and none has anything; with the lock. */
static bool is_idle(const struct api *a)
{
    bool busy = a->first != NULL;
    for (int i = 0; i < a->n_workers; i++) busy = busy || a->busy[i];
    return !busy;
}

int api_new(struct api **out, const struct api_config *c, struct qn_error *e)
{
    struct api *a = mem_calloc(1, sizeof *a);
    int n = c->n_workers ? c->n_workers : 2;
    if (!a) return error_nomem(e, "the API", sizeof *a);
    assert(n <= (int)(sizeof a->worker / sizeof a->worker[0]));
    a->c = *c;
    int n_models = models_count(c->models);
    a->hists = mem_calloc((size_t)n_models, sizeof *a->hists);
    if (!a->hists) {
        mem_free(a);
        return error_nomem(e, "histograms", (size_t)n_models * sizeof *a->hists);
    }
    for (int i = 0; i < n_models; i++) pthread_mutex_init(&a->hists[i].lock, NULL);
    a->start_s = (uint64_t)time(NULL);
    a->start_ns = clock_ns();
    a->last = &a->first;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->wake, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&a->idle, &attr);
    pthread_condattr_destroy(&attr);
    int rc = start_workers(a, n, e);
    if (rc) {
        api_free(a);
        return QN_ENOMEM;
    }
    *out = a;
    return 0;
}

bool api_stop(struct api *a, int ms)
{
    uint64_t until = clock_ns() + (uint64_t)ms * 1000000;
    const struct timespec at = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
    bool idle = false;
    a->ending = true;
    pthread_mutex_lock(&a->lock);
    for (int rc = 0; !(idle = is_idle(a)) && rc != ETIMEDOUT;) rc = pthread_cond_timedwait(&a->idle, &a->lock, &at);
    pthread_mutex_unlock(&a->lock);
    return idle;
}

void api_free(struct api *a)
{
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->stopping = true;
    pthread_cond_broadcast(&a->wake);
    pthread_mutex_unlock(&a->lock);
    for (int i = 0; i < a->n_workers; i++) pthread_join(a->worker[i], NULL);
    assert(!a->first && !a->tickets);
    pthread_cond_destroy(&a->wake);
    pthread_cond_destroy(&a->idle);
    for (int i = 0; i < models_count(a->c.models); i++) pthread_mutex_destroy(&a->hists[i].lock);
    mem_free(a->hists);
    pthread_mutex_destroy(&a->lock);
    mem_free(a);
}
