/* SPDX-License-Identifier: MIT
 *
 * embed.c: POST /v1/embeddings: vectors of texts.
 *
 * The inputs of a request are submitted one after the other, each when the one before is done: a request takes one
 * place of the queue, however many texts it brings. Threads are as in job.c.
 *
 * Source: the OpenAI API reference, "Embeddings".
 */
#include "server/endpoints.h"

#include <string.h>

struct embed {
    const struct api *api;
    struct served *served; /* held */
    struct http_request *req;
    struct who who;
    const char *model, *user, *cache_salt;
    const json_t *input;
    bool base64;
    int pooling; /* enum qn_pooling */
    json_t *body;

    qn_token **tokens; /* [n] lists of n_tokens[i] */
    size_t *n_tokens;
    size_t n, at; /* at: the one that is computed */
    struct json_out out;
    int64_t n_prompt;
    bool watched;
    atomic_bool gone;
    _Atomic uint64_t number;
};

/* ---- fields ---- */

#define AT(member) offsetof(struct embed, member)

static int parse_input(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    (void)field;
    if (!json_is_string(v) && !(json_is_array(v) && json_array_size(v) > 0))
        return field_wrong_type(f, name, "a text, token ids, or an array of either", v);
    ((struct embed *)out)->input = v;
    return 0;
}

static int parse_format(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    const char *s = json_string_value(v);
    (void)field;
    if (!s) return field_wrong_type(f, name, "\"float\" or \"base64\"", v);
    if (!field_is(v, "float") && !field_is(v, "base64"))
        return fault_set(f, 400, "unsupported_value", name, "%s has to be float or base64, not '%s'", name, s);
    ((struct embed *)out)->base64 = !strcmp(s, "base64");
    return 0;
}

static int parse_pooling(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    const char *s = json_string_value(v);
    (void)field;
    if (!s) return field_wrong_type(f, name, "\"mean\" or \"last\"", v);
    if (!field_is(v, "mean") && !field_is(v, "last"))
        return fault_set(f, 400, "unsupported_value", name, "%s has to be mean or last, not '%s'", name, s);
    ((struct embed *)out)->pooling = !strcmp(s, "mean") ? QN_POOL_MEAN : QN_POOL_LAST;
    return 0;
}

const struct field embed_fields[] = {
    {.name = "input", .type = FIELD_PARSE, .parse = parse_input, .required = true},
    {.name = "model", .type = FIELD_STRING, .at = AT(model), .hi = 1024},
    {.name = "user", .type = FIELD_STRING, .at = AT(user), .hi = 1024},
    {.name = "cache_salt", .type = FIELD_STRING, .at = AT(cache_salt), .hi = 1024},
    {.name = "encoding_format", .type = FIELD_PARSE, .parse = parse_format},
    {.name = "pooling", .type = FIELD_PARSE, .parse = parse_pooling},
    {.name = "dimensions", .type = FIELD_ONE_OF, .allowed = "[]"},
    {0},
};

/* ---- inputs ---- */

/* One input to tokens; m->n counts it as soon as there is something to free. */
static int add_input(struct embed *m, const json_t *v, struct fault *f)
{
    struct qn_error e = {0};
    qn_token **t = &m->tokens[m->n];
    size_t *n = &m->n_tokens[m->n];
    const qn_model *model = m->served->model;
    if (json_is_string(v)) {
        if (json_string_length(v) > qn_model_max_text(model, m->served->n_ctx))
            return fault_set(f, 400, "context_length_exceeded", "input",
                             "input %zu has %zu bytes, which cannot fit the context of %d tokens", m->n,
                             json_string_length(v), m->served->n_ctx);
        size_t taken;
        if (api_take_work(m->api, json_string_length(v), &taken, f)) return -1;
        int rc = qn_tokenize(model, json_string_value(v), json_string_length(v), QN_ADD_BOS | QN_ADD_EOS, t, n, &e);
        api_give_work(m->api, taken);
        if (rc) return api_fault(f, &e);
    } else if (json_is_array(v)) {
        if (ask_tokens("input", v, qn_model_n_vocab(model), t, n, f)) return -1;
    } else {
        return field_wrong_type(f, "input", "a text, token ids, or an array of either", v);
    }
    m->n++;
    if (*n == 0) return fault_set(f, 400, "empty_prompt", "input", "input %zu has no tokens", m->n - 1);
    if (*n <= (size_t)m->served->n_ctx) return 0;
    return fault_set(f, 400, "context_length_exceeded", "input", "the context holds %d tokens; input %zu has %zu",
                     m->served->n_ctx, m->n - 1, *n);
}

static int read_inputs(struct embed *m, struct fault *f)
{
    bool one = json_is_string(m->input) || json_is_number(json_array_get(m->input, 0));
    size_t n = one ? 1 : json_array_size(m->input);
    if (n > 2048) return fault_set(f, 400, "out_of_range", "input", "at most 2048 inputs, not %zu", n);
    m->tokens = mem_calloc(n, sizeof *m->tokens);
    m->n_tokens = mem_calloc(n, sizeof *m->n_tokens);
    if (!m->tokens || !m->n_tokens) return api_no_memory(f);
    for (size_t i = 0; i < n; i++)
        if (add_input(m, one ? m->input : json_array_get(m->input, i), f)) return -1;
    return 0;
}

static void embed_free(struct embed *m)
{
    for (size_t i = 0; m->tokens && i < m->n; i++) qn_free(m->tokens[i]);
    mem_free(m->tokens);
    mem_free(m->n_tokens);
    json_out_deinit(&m->out);
    json_decref(m->body);
    models_release(m->served);
    mem_free(m);
}

/* ---- answers ---- */

/* Little-endian floats, as clients that ask for it decode them. */
static void write_base64(struct json_out *o, const float *v, int n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = (const unsigned char *)v;
    size_t n_bytes = (size_t)n * sizeof *v, k = 0;
    char *text = mem_alloc((n_bytes + 2) / 3 * 4);
    if (!text) {
        o->failed = true;
        return;
    }
    for (size_t i = 0; i < n_bytes; i += 3) {
        size_t left = n_bytes - i;
        uint32_t x = (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) | (left > 2 ? p[i + 2] : 0u);
        text[k++] = digits[x >> 18];
        text[k++] = digits[x >> 12 & 63];
        text[k++] = left > 1 ? digits[x >> 6 & 63] : '=';
        text[k++] = left > 2 ? digits[x & 63] : '=';
    }
    json_out_text(o, "embedding", text, k);
    mem_free(text);
}

/* Into the answer at once: nothing of the vector is kept. */
static void write_embedding(struct embed *m, const struct qn_event *e)
{
    struct json_out *o = &m->out;
    json_out_open(o, NULL, '{');
    json_out_str(o, "object", "embedding");
    json_out_int(o, "index", (int64_t)m->at);
    if (m->base64) {
        write_base64(o, e->embedding, e->n_embedding);
    } else {
        json_out_open(o, "embedding", '[');
        for (int i = 0; i < e->n_embedding; i++) json_out_num(o, NULL, (double)e->embedding[i]);
        json_out_close(o, ']');
    }
    json_out_close(o, '}');
}

static void answer(struct embed *m)
{
    struct json_out *o = &m->out;
    json_out_close(o, ']');
    json_out_str(o, "model", m->served->name);
    json_out_open(o, "usage", '{');
    json_out_int(o, "prompt_tokens", m->n_prompt);
    json_out_int(o, "total_tokens", m->n_prompt);
    json_out_close(o, '}');
    json_out_close(o, '}');
    api_send(m->req, o);
}

static void on_hangup(void *arg)
{
    struct embed *m = arg;
    m->gone = true;
    qn_cancel(m->served->scheduler, m->number);
}

static int submit(struct embed *m, double *retry_s, struct fault *f);

/* Once input `at` is done: the next one, or the answer. */
static void on_done(struct embed *m, const struct qn_event *e)
{
    struct fault f = {0};
    double retry_s = 1;
    m->n_prompt += e->usage.n_prompt;
    if (e->finish == QN_FINISH_ERROR)
        api_fault(&f, e->error);
    else if (m->out.failed)
        api_no_memory(&f);
    else if (e->finish == QN_FINISH_STOPPED || e->finish == QN_FINISH_CANCELLED || m->gone)
        fault_set(&f, 503, "stopping", NULL, "the request was ended");
    else if (++m->at < m->n && !submit(m, &retry_s, &f))
        return;
    if (f.status)
        api_refuse_busy(m->req, &f, retry_s, api_refuse_openai);
    else
        answer(m);
    embed_free(m);
}

static void on_event(void *arg, const struct qn_event *e)
{
    struct embed *m = arg;
    m->number = e->request;
    if (!m->watched) {
        m->watched = true;
        if (http_watch(m->req, &(struct http_watch){.on_hangup = on_hangup, .arg = m}) == HTTP_GONE) m->gone = true;
    }
    if (m->gone) qn_cancel(m->served->scheduler, e->request);
    if (e->type == QN_EVENT_EMBEDDING) write_embedding(m, e);
    if (e->type == QN_EVENT_DONE) on_done(m, e);
}

static int submit(struct embed *m, double *retry_s, struct fault *f)
{
    struct qn_request_params p;
    struct qn_error e = {0};
    uint64_t id;
    qn_request_params_init(&p);
    p.prompt = m->tokens[m->at];
    p.n_prompt = m->n_tokens[m->at];
    p.max_tokens = 0;
    p.identity = m->who.identity;
    p.salt[0] = m->who.salt[0];
    p.salt[1] = m->who.salt[1];
    p.pooling = (enum qn_pooling)m->pooling;
    p.callback = on_event;
    p.arg = m;
    return qn_submit(m->served->scheduler, &p, &id, retry_s, &e) ? api_fault(f, &e) : 0;
}

void endpoint_embeddings(struct api_call *c)
{
    struct fault f = {0};
    double retry_s = 1;
    struct http_request *r = c->req;
    struct embed *m = mem_calloc(1, sizeof *m);
    if (!m) {
        api_no_memory(&f);
        api_refuse_busy(r, &f, retry_s, api_refuse_openai);
        return;
    }
    m->api = c->api;
    m->req = r;
    m->served = c->served;
    m->body = c->body;
    c->served = NULL;
    c->body = NULL;
    m->pooling = (int)qn_model_pooling(m->served->model);
    if (m->pooling == QN_POOL_NONE) m->pooling = QN_POOL_LAST;
    json_out_open(&m->out, NULL, '{');
    json_out_str(&m->out, "object", "list");
    json_out_open(&m->out, "data", '[');
    if (!field_read((const struct field *const[]){embed_fields, NULL}, "", m->body, m, &f) && !read_inputs(m, &f)) {
        m->who = who_of(http_identity(r), m->cache_salt);
        if (!submit(m, &retry_s, &f)) return; /* it is the scheduler's thread's now */
    }
    api_refuse_busy(r, &f, retry_s, api_refuse_openai);
    embed_free(m);
}
