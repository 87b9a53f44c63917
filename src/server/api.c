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
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/endpoints.h"

/* ---- workers ---- */

/* From a handler to a worker. The request is the worker's from here on. */
static void hand_over(struct api *a, struct http_request *r, api_work *work)
{
    struct api_task *t = mem_alloc(sizeof *t);
    if (!t) {
        http_error(r, 503, NULL, "no_memory", "not enough memory");
        return;
    }
    *t = (struct api_task){NULL, r, work};
    pthread_mutex_lock(&a->lock);
    *a->last = t;
    a->last = &t->next;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
}

/* One worker: tasks in the order they came, until there are none and the API is taken down. */
static void *work(void *arg)
{
    struct api *a = arg;
    pthread_mutex_lock(&a->lock);
    for (;;) {
        while (!a->first && !a->stopping) pthread_cond_wait(&a->wake, &a->lock);
        struct api_task *t = a->first;
        if (!t) break;
        a->first = t->next;
        if (!a->first) a->last = &a->first;
        pthread_mutex_unlock(&a->lock);
        t->work(a, t->req);
        mem_free(t);
        pthread_mutex_lock(&a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* ---- routes ---- */

/* A route of a dialect: its handler, and what the worker does. */
#define BEGIN(name, dialect)                                                                                           \
    static void begin_##name(struct api *a, struct http_request *r) { job_begin(a, r, &dialect); }                     \
    static void post_##name(struct http_request *r, void *ctx) { hand_over(ctx, r, begin_##name); }
BEGIN(completion, openai_text)
BEGIN(chat, openai_chat)
BEGIN(message, anthropic)
BEGIN(response, responses)

#define POST(name)                                                                                                     \
    static void post_##name(struct http_request *r, void *ctx) { hand_over(ctx, r, endpoint_##name); }
POST(render)
POST(tokenize)
POST(detokenize)
POST(embeddings)
POST(count_tokens)

/* No body and no work: answered in the handler. */
static void post_cancel(struct http_request *r, void *ctx)
{
    struct json_out o = {0};
    if (!job_cancel(ctx, http_param(r), who_of(http_identity(r), NULL).identity)) {
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
};

const struct http_route *api_routes(int *n)
{
    *n = (int)(sizeof routes / sizeof routes[0]);
    return routes;
}

const char *const *api_limits(void)
{
    static const char *const limits[] = {"requests", NULL}; /* see job_list() */
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
    if (o->failed)
        http_error(r, 503, NULL, "no_memory", "not enough memory");
    else
        http_reply(r, status, "application/json", o->b.data, o->b.len);
    buf_deinit(&o->b);
    *o = (struct json_out){0};
}

void api_refuse_anthropic(struct http_request *r, const struct fault *f)
{
    struct json_out o = {0};
    api_error_anthropic(&o, f);
    send(r, f->status, &o);
}

void api_send(struct http_request *r, struct json_out *o) { send(r, 200, o); }

void api_refuse_busy(struct http_request *r, const struct fault *f, double retry_s, api_refuse *refuse)
{
    char text[24];
    if (f->status == 429) {
        snprintf(text, sizeof text, "%d", retry_s > 1 && retry_s < 3600 ? (int)(retry_s + 0.999) : 1);
        http_set_header(r, "Retry-After", text);
    }
    refuse(r, f);
}

int api_check_model(const struct api *a, const char *name, struct fault *f)
{
    if (!name || !strcmp(name, a->c.model_name)) return 0;
    return fault_set(f, 404, "model_not_found", "model", "there is no model '%s' here, only '%s'", name,
                     a->c.model_name);
}

/* ---- life ---- */

int api_new(struct api **out, const struct api_config *c, struct qn_error *e)
{
    struct api *a = mem_calloc(1, sizeof *a);
    int n = c->n_workers ? c->n_workers : 2;
    if (!a) return error_nomem(e, "the API", sizeof *a);
    assert(n <= (int)(sizeof a->worker / sizeof a->worker[0]));
    a->c = *c;
    a->start_s = (uint64_t)time(NULL);
    a->last = &a->first;
    pthread_mutex_init(&a->lock, NULL);
    pthread_mutex_init(&a->hists.lock, NULL);
    pthread_cond_init(&a->wake, NULL);
    for (; a->n_workers < n; a->n_workers++)
        if (pthread_create(&a->worker[a->n_workers], NULL, work, a)) {
            api_free(a);
            return error_set(e, QN_ENOMEM, "api: cannot start %d threads", n);
        }
    *out = a;
    return 0;
}

void api_free(struct api *a)
{
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->stopping = true;
    pthread_cond_broadcast(&a->wake);
    pthread_mutex_unlock(&a->lock);
    for (int i = 0; i < a->n_workers; i++) pthread_join(a->worker[i], NULL);
    assert(!a->first && !a->jobs);
    pthread_cond_destroy(&a->wake);
    pthread_mutex_destroy(&a->hists.lock);
    pthread_mutex_destroy(&a->lock);
    mem_free(a);
}
