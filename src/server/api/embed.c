/* SPDX-License-Identifier: MIT
 *
 * embed.c: POST /v1/embeddings: vectors of texts.
 *
 * The inputs of a request are submitted one after the other, each when the previous one is done. So a request takes one
 * place in the queue, however many texts it has. Threads and cancelling are the same as in job.c.
 *
 * Source: the OpenAI API reference, "Embeddings".
 */
#include "server/api/endpoints.h"

#include <string.h>

struct embed {
    struct served *served; /* held */
    struct http_request *req;
    struct ticket *ticket;
    struct who who;
    const char *model, *user, *cache_salt;
    const json_t *input;
    bool base64;
    int pooling; /* enum qn_pooling */
    json_t *body;

    qn_token **tokens; /* [n] lists of n_tokens[i] */
    size_t *n_tokens;
    size_t n, at; /* at: the input that is computed */
    struct json_out out;
    int64_t n_prompt;
    bool started; /* the scheduler has sent the first event of input `at` */
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

/* Turns one input into tokens. m->n counts it as soon as there is something to free. */
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
        if (api_take_work(m->ticket, json_string_length(v), &taken, f)) return -1;
        int rc = qn_tokenize(model, json_string_value(v), json_string_length(v), QN_ADD_BOS | QN_ADD_EOS,
                             &m->ticket->cancel, t, n, &e);
        ticket_give(m->ticket, taken);
        if (rc) return ticket_failed(m->ticket, f, &e);
    } else if (json_is_array(v)) {
        if (params_tokens("input", v, qn_model_n_vocab(model), t, n, f)) return -1;
    } else {
        return field_wrong_type(f, "input", "a text, token ids, or an array of either", v);
    }
    m->n++;
    if (*n == 0) return fault_set(f, 400, "empty_prompt", "input", "input %zu has no tokens", m->n - 1);
    if (*n <= (size_t)m->served->n_ctx) return ticket_take(m->ticket, *n * sizeof **t, "tokens", f);
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
    for (size_t i = 0; i < n; i++) {
        if (ticket_is_over(m->ticket)) return ticket_fault(m->ticket, f);
        if (add_input(m, one ? m->input : json_array_get(m->input, i), f)) return -1;
    }
    return 0;
}

/* Frees the body. Members that pointed into it are NULL afterwards. */
static void drop_body(struct embed *m, size_t taken)
{
    m->input = NULL;
    m->model = m->user = m->cache_salt = NULL;
    json_decref(m->body);
    m->body = NULL;
    ticket_give(m->ticket, taken);
}

static void embed_free(struct embed *m)
{
    for (size_t i = 0; m->tokens && i < m->n; i++) qn_free(m->tokens[i]);
    mem_free(m->tokens);
    mem_free(m->n_tokens);
    json_out_deinit(&m->out);
    json_decref(m->body);
    models_release(m->served);
    ticket_free(m->ticket);
    mem_free(m);
}

/* ---- answers ---- */

/* Little-endian floats, as clients decode them. */
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

/* Writes the vector into the answer at once, so that it need not be kept. */
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

static int submit(struct embed *m, double *retry_s, struct fault *f);

/* Input `at` is done: submits the next one, or answers. */
static void on_done(struct embed *m, const struct qn_event *e)
{
    struct fault f = {0};
    double retry_s = 1;
    m->n_prompt += e->usage.n_prompt;
    m->started = false;
    if (e->finish == QN_FINISH_ERROR)
        api_fault(&f, e->error);
    else if (m->out.failed)
        api_no_memory(&f);
    else if (e->finish == QN_FINISH_STOPPED || e->finish == QN_FINISH_CANCELLED || ticket_is_over(m->ticket))
        ticket_fault(m->ticket, &f);
    else if (++m->at < m->n && !submit(m, &retry_s, &f))
        return;
    ticket_unlist(m->ticket);
    if (f.status)
        api_refuse_busy(m->req, &f, retry_s, api_refuse_openai);
    else
        answer(m);
    embed_free(m);
}

static void on_event(void *arg, const struct qn_event *e)
{
    struct embed *m = arg;
    if (!m->started) ticket_started(m->ticket, e->request);
    m->started = true;
    ticket_note(m->ticket, e);
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

/* From the body to the first submission. The body is freed on the way. */
static int begin(struct embed *m, size_t body_taken, double *retry_s, struct fault *f)
{
    static const struct field *const tables[] = {embed_fields, NULL};
    json_out_open(&m->out, NULL, '{');
    json_out_str(&m->out, "object", "list");
    json_out_open(&m->out, "data", '[');
    if (field_read(tables, "", m->body, m, f)) return -1;
    m->who = who_of(http_identity(m->req), m->cache_salt);
    if (read_inputs(m, f)) return -1;
    drop_body(m, body_taken);
    return submit(m, retry_s, f);
}

void endpoint_embeddings(struct api_call *c)
{
    struct fault f = {0};
    double retry_s = 1;
    struct embed *m = mem_calloc(1, sizeof *m);
    if (!m) {
        api_no_memory(&f);
        api_end_refused(c, &f);
        return;
    }
    m->req = c->req;
    m->out.ledger = c->api->c.requests;
    m->served = c->served;
    m->ticket = c->ticket;
    m->ticket->scheduler = m->served->scheduler;
    m->body = c->body;
    m->pooling = (int)qn_model_pooling(m->served->model);
    if (m->pooling == QN_POOL_NONE) m->pooling = QN_POOL_LAST;
    c->served = NULL;
    c->ticket = NULL;
    c->body = NULL;
    if (!begin(m, c->body_taken, &retry_s, &f)) return; /* from here on it belongs to the scheduler's thread */
    ticket_unlist(m->ticket);
    api_refuse_busy(m->req, &f, retry_s, api_refuse_openai);
    embed_free(m);
}
