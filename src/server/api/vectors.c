/* SPDX-License-Identifier: MIT
 *
 * vectors.c: requests that compute something for each of several texts, from the body to the answer.
 */
#include "server/api/vectors.h"

#include <string.h>
#include <time.h>

static void vectors_free(struct vectors *v)
{
    if (v->kind->deinit) v->kind->deinit(v);
    for (size_t i = 0; i < v->n; i++) qn_free(v->tokens[i]);
    mem_free(v->tokens);
    mem_free(v->n_tokens);
    json_out_deinit(&v->out);
    json_decref(v->body);
    models_release(v->served);
    ticket_free(v->ticket);
    mem_free(v);
}

/* ---- texts ---- */

int vectors_reserve(struct vectors *v, size_t n, const char *what, struct fault *f)
{
    if (n > VECTORS_MAX)
        return fault_set(f, 400, "out_of_range", what, "at most %d texts in %s, not %zu", VECTORS_MAX, what, n);
    v->tokens = mem_calloc(n, sizeof *v->tokens);
    v->n_tokens = mem_calloc(n, sizeof *v->n_tokens);
    v->cap = n;
    return v->tokens && v->n_tokens ? 0 : api_no_memory(f);
}

/* The last text has its tokens: counts them. */
static int added(struct vectors *v, const char *what, struct fault *f)
{
    size_t n = v->n_tokens[v->n++];
    if (n == 0) return fault_set(f, 400, "empty_prompt", what, "%s %zu has no tokens", what, v->n - 1);
    if (n <= (size_t)v->served->n_ctx) return ticket_take(v->ticket, n * sizeof **v->tokens, "tokens", f);
    return fault_set(f, 400, "context_length_exceeded", what, "the context holds %d tokens; %s %zu has %zu",
                     v->served->n_ctx, what, v->n - 1, n);
}

/* Refuses a text that cannot fit before the work of making its tokens, for which it takes memory. */
static int begin_text(struct vectors *v, size_t n, const char *what, size_t *taken, struct fault *f)
{
    *taken = 0;
    if (ticket_is_over(v->ticket)) return ticket_fault(v->ticket, f);
    if (n > qn_model_max_text(v->served->model, v->served->n_ctx))
        return fault_set(f, 400, "context_length_exceeded", what,
                         "%s %zu has %zu bytes, which cannot fit the context of %d tokens", what, v->n, n,
                         v->served->n_ctx);
    return api_take_work(v->ticket, n, taken, f);
}

int vectors_add(struct vectors *v, const json_t *text, const char *what, struct fault *f)
{
    struct qn_error e = {0};
    const qn_model *m = v->served->model;
    qn_token **t = &v->tokens[v->n];
    size_t *n = &v->n_tokens[v->n], taken;
    if (json_is_array(text)) return params_tokens(what, text, qn_model_n_vocab(m), t, n, f) ? -1 : added(v, what, f);
    if (!json_is_string(text)) return field_wrong_type(f, what, "a text, token ids, or an array of either", text);
    if (begin_text(v, json_string_length(text), what, &taken, f)) return -1;
    int rc = qn_tokenize(m, json_string_value(text), json_string_length(text), QN_ADD_BOS | QN_ADD_EOS,
                         &v->ticket->cancel, t, n, &e);
    ticket_give(v->ticket, taken);
    return rc ? ticket_failed(v->ticket, f, &e) : added(v, what, f);
}

int vectors_add_pair(struct vectors *v, const json_t *query, const json_t *document, const char *what, struct fault *f)
{
    struct qn_error e = {0};
    size_t n_query = json_string_length(query), n_document = json_string_length(document), taken;
    if (begin_text(v, n_query + n_document, what, &taken, f)) return -1;
    int rc = qn_rank_prompt(v->served->model, json_string_value(query), n_query, json_string_value(document),
                            n_document, &v->ticket->cancel, &v->tokens[v->n], &v->n_tokens[v->n], &e);
    ticket_give(v->ticket, taken);
    return rc ? ticket_failed(v->ticket, f, &e) : added(v, what, f);
}

/* Frees the body. Members that pointed into it are NULL afterwards. */
static void drop_body(struct vectors *v, size_t taken)
{
    v->model = v->user = v->cache_salt = NULL;
    json_decref(v->body);
    v->body = NULL;
    ticket_give(v->ticket, taken);
}

/* ---- answers ---- */

void vectors_write_usage(struct vectors *v)
{
    struct json_out *o = &v->out;
    json_out_open(o, "usage", '{');
    json_out_int(o, "prompt_tokens", v->n_prompt);
    json_out_int(o, "total_tokens", v->n_prompt);
    json_out_close(o, '}');
}

static int submit(struct vectors *v, double *retry_s, struct fault *f);

/* Text `at` is done: submits the next one, or answers. */
static void on_done(struct vectors *v, const struct qn_event *e)
{
    struct fault f = {0};
    double retry_s = 1;
    v->n_prompt += e->usage.n_prompt;
    v->n_cached += e->usage.n_cached;
    v->started = false;
    tally_done(v->api, v->served, &e->usage, &e->timings);
    tally_log(v->req, v->served, &(struct qn_usage){.n_prompt = v->n_prompt, .n_cached = v->n_cached});
    if (e->finish == QN_FINISH_ERROR)
        api_fault(&f, e->error);
    else if (v->out.failed)
        api_no_memory(&f);
    else if (e->finish == QN_FINISH_STOPPED || e->finish == QN_FINISH_CANCELLED || ticket_is_over(v->ticket))
        ticket_fault(v->ticket, &f);
    else if (++v->at < v->n && !submit(v, &retry_s, &f))
        return;
    ticket_unlist(v->ticket);
    if (!f.status) v->kind->answer(v);
    if (f.status)
        api_refuse_busy(v->req, &f, retry_s, api_refuse_openai);
    else
        api_send(v->req, &v->out);
    vectors_free(v);
}

static void on_event(void *arg, const struct qn_event *e)
{
    struct vectors *v = arg;
    if (!v->started) ticket_started(v->ticket, e->request);
    v->started = true;
    ticket_note(v->ticket, e);
    if (e->type == QN_EVENT_EMBEDDING) v->kind->take(v, e->embedding, e->n_embedding);
    if (e->type == QN_EVENT_DONE) on_done(v, e);
}

static int submit(struct vectors *v, double *retry_s, struct fault *f)
{
    struct qn_request_params p;
    struct qn_error e = {0};
    uint64_t id;
    qn_request_params_init(&p);
    p.prompt = v->tokens[v->at];
    p.n_prompt = v->n_tokens[v->at];
    p.max_tokens = 0;
    p.identity = v->who.identity;
    p.salt[0] = v->who.salt[0];
    p.salt[1] = v->who.salt[1];
    p.pooling = v->pooling;
    p.callback = on_event;
    p.arg = v;
    return qn_submit(v->served->scheduler, &p, &id, retry_s, &e) ? api_fault(f, &e) : 0;
}

/* From the body to the first submission. The body is freed on the way. */
static int begin(struct vectors *v, size_t body_taken, double *retry_s, struct fault *f)
{
    if (field_read(v->kind->tables, "", v->body, v, f)) return -1;
    v->who = who_of(http_identity(v->req), v->cache_salt);
    if (v->kind->read(v, f)) return -1;
    drop_body(v, body_taken);
    return submit(v, retry_s, f);
}

void vectors_begin(struct api_call *c, const struct vectors_kind *kind)
{
    struct fault f = {0};
    double retry_s = 1;
    struct vectors *v = mem_calloc(1, kind->size);
    if (!v) {
        api_no_memory(&f);
        api_end_refused(c, &f);
        return;
    }
    v->kind = kind;
    v->api = c->api;
    v->req = c->req;
    v->out.ledger = c->api->c.requests;
    v->served = c->served;
    v->ticket = c->ticket;
    v->ticket->scheduler = v->served->scheduler;
    v->body = c->body;
    v->created = (int64_t)time(NULL);
    c->served = NULL;
    c->ticket = NULL;
    c->body = NULL;
    if (!begin(v, c->body_taken, &retry_s, &f)) return; /* from here on it belongs to the scheduler's thread */
    ticket_unlist(v->ticket);
    api_refuse_busy(v->req, &f, retry_s, api_refuse_openai);
    vectors_free(v);
}
