/* SPDX-License-Identifier: MIT
 *
 * tokens.c: POST /tokenize, /detokenize, /v1/chat/render, /v1/messages/count_tokens: show what the model will read,
 * without computing anything. docs/API.md has their shapes.
 */
#include "server/api/endpoints.h"

#include <string.h>

#define ASK_EVERY 4096 /* tokens between two questions whether the answer is still wanted */

struct tokens_ask {
    const char *model;
    const json_t *content, *tokens;
    bool add_special, parse_special, with_pieces;
};

#define AT(member) offsetof(struct tokens_ask, member)

const struct field tokenize_fields[] = {
    {.name = "model", .type = FIELD_STRING, .at = AT(model), .hi = 1024},
    {.name = "content", .type = FIELD_TEXT, .at = AT(content), .hi = 1 << 28, .required = true},
    {.name = "add_special", .type = FIELD_BOOL, .at = AT(add_special)},
    {.name = "parse_special", .type = FIELD_BOOL, .at = AT(parse_special)},
    {.name = "with_pieces", .type = FIELD_BOOL, .at = AT(with_pieces)},
    {0},
};

const struct field detokenize_fields[] = {
    {.name = "model", .type = FIELD_STRING, .at = AT(model), .hi = 1024},
    {.name = "tokens", .type = FIELD_ARRAY, .at = AT(tokens), .hi = 1 << 24, .required = true},
    {0},
};

static void write_tokens(struct json_out *o, const qn_token *t, size_t n)
{
    json_out_int(o, "count", (int64_t)n);
    json_out_open(o, "tokens", '[');
    for (size_t i = 0; i < n; i++) json_out_int(o, NULL, t[i]);
    json_out_close(o, ']');
}

/* The text of each token, as far as the request is still wanted. */
static void write_pieces(struct json_out *o, const qn_model *m, const qn_token *t, size_t n,
                         const struct ticket *ticket)
{
    json_out_open(o, "pieces", '[');
    for (size_t i = 0; i < n && !(i % ASK_EVERY == 0 && ticket_is_over(ticket)); i++) {
        char *bytes = NULL;
        size_t n_bytes = 0;
        if (qn_token_bytes(m, t[i], true, &bytes, &n_bytes, NULL)) o->failed = true;
        json_out_text(o, NULL, bytes, n_bytes);
        qn_free(bytes);
    }
    json_out_close(o, ']');
}

static int read(const struct api_call *c, const struct field *rows, struct tokens_ask *ask, struct fault *f)
{
    return field_read((const struct field *const[]){rows, NULL}, "", c->body, ask, f);
}

/* Sends the text if the request is still wanted; otherwise the text may not be complete. */
static void end(struct api_call *c, struct json_out *o)
{
    struct fault f;
    if (!ticket_is_over(c->ticket)) {
        api_end(c, o);
        return;
    }
    json_out_deinit(o);
    ticket_fault(c->ticket, &f);
    api_end_refused(c, &f);
}

void endpoint_tokenize(struct api_call *c)
{
    const qn_model *m = c->served->model;
    struct tokens_ask ask = {.add_special = true};
    struct fault f = {0};
    struct qn_error e = {0};
    struct json_out o = {.ledger = c->api->c.requests};
    qn_token *t = NULL;
    size_t n = 0;
    int rc = read(c, tokenize_fields, &ask, &f);
    unsigned flags = (ask.add_special ? QN_ADD_BOS : 0) | (ask.parse_special ? QN_PARSE_SPECIAL : 0);
    size_t n_text = json_string_length(ask.content), taken = 0;
    bool bad = rc || api_take_work(c->ticket, n_text, &taken, &f) ||
               (qn_tokenize(m, json_string_value(ask.content), n_text, flags, &c->ticket->cancel, &t, &n, &e) &&
                ticket_failed(c->ticket, &f, &e));
    ticket_give(c->ticket, taken);
    if (bad || ticket_take(c->ticket, n * sizeof *t, "tokens", &f)) {
        qn_free(t);
        api_end_refused(c, &f);
        return;
    }
    json_out_open(&o, NULL, '{');
    write_tokens(&o, t, n);
    if (ask.with_pieces) write_pieces(&o, m, t, n, c->ticket);
    json_out_close(&o, '}');
    qn_free(t);
    end(c, &o);
}

void endpoint_detokenize(struct api_call *c)
{
    const qn_model *m = c->served->model;
    struct tokens_ask ask = {0};
    struct fault f = {0};
    struct json_out o = {.ledger = c->api->c.requests};
    struct buf text = {0};
    qn_token *t = NULL;
    qn_text *made = NULL;
    const char *bytes;
    size_t n = 0, n_bytes;
    if (read(c, detokenize_fields, &ask, &f) || params_tokens("tokens", ask.tokens, qn_model_n_vocab(m), &t, &n, &f)) {
        api_end_refused(c, &f);
        return;
    }
    bool bad = qn_text_new(&made, m, false, NULL, 0, NULL) != 0;
    for (size_t i = 0; i < n && !bad; i++)
        bad = (i % ASK_EVERY == 0 && ticket_is_over(c->ticket)) ||
              qn_text_push(made, t[i], &bytes, &n_bytes, NULL, NULL) ||
              buf_add_from(&text, c->api->c.requests, bytes, n_bytes, NULL);
    o.failed = bad || qn_text_end(made, &bytes, &n_bytes, NULL) ||
               buf_add_from(&text, c->api->c.requests, bytes, n_bytes, NULL);
    qn_text_free(made);
    json_out_open(&o, NULL, '{');
    json_out_text(&o, "content", (char *)text.data, text.len);
    json_out_close(&o, '}');
    buf_deinit_from(&text, c->api->c.requests);
    mem_free(t);
    end(c, &o);
}

/* ---- conversations ---- */

/* "quern": {"ignored": [...]}, if fields of the request change nothing. */
static void write_ignored(const struct job *j, struct json_out *o)
{
    if (j->params.ignored.n == 0) return;
    json_out_open(o, "quern", '{');
    job_write_ignored(j, o);
    json_out_close(o, '}');
}

/* The ranges of the prompt that the template did not write, as [first byte, number of bytes]. */
static void write_user_spans(struct json_out *o, const qn_prompt *p)
{
    size_t at, n;
    json_out_open(o, "user_spans", '[');
    for (size_t i = 0; qn_prompt_user_span(p, i, &at, &n) > i; i++) {
        json_out_open(o, NULL, '[');
        json_out_int(o, NULL, (int64_t)at);
        json_out_int(o, NULL, (int64_t)n);
        json_out_close(o, ']');
    }
    json_out_close(o, ']');
}

/* ?with_pieces, with no value, true or false. */
static int read_with_pieces(struct http_request *r, bool *wanted, struct fault *f)
{
    char text[64];
    *wanted = !http_query(r, "with_pieces", text, sizeof text) && strcmp(text, "false") != 0;
    if (!*wanted || !text[0] || !strcmp(text, "true")) return 0;
    return fault_set(f, 400, "invalid_value", "with_pieces", "with_pieces has to be true or false, not '%s'", text);
}

/* The texts of the tokens come only if the query asks for them, because most callers want the count. */
void endpoint_render(struct api_call *c)
{
    struct json_out o = {.ledger = c->api->c.requests};
    size_t n;
    bool with_pieces;
    struct fault f;
    struct http_request *r = c->req;
    if (read_with_pieces(r, &with_pieces, &f)) {
        api_end_refused(c, &f);
        return;
    }
    struct job *j = job_read(c, &openai_chat);
    if (!j) return;
    const char *text = qn_prompt_text(j->prompt, &n);
    json_out_open(&o, NULL, '{');
    json_out_text(&o, "prompt", text, n);
    write_tokens(&o, j->tokens, j->n_tokens);
    write_user_spans(&o, j->prompt);
    if (with_pieces) write_pieces(&o, j->served->model, j->tokens, j->n_tokens, j->ticket);
    write_ignored(j, &o);
    json_out_close(&o, '}');
    ticket_unlist(j->ticket);
    api_send(r, &o);
    job_free(j);
}

void endpoint_count_tokens(struct api_call *c)
{
    struct json_out o = {.ledger = c->api->c.requests};
    struct http_request *r = c->req;
    struct job *j = job_read(c, &anthropic_count);
    if (!j) return;
    json_out_open(&o, NULL, '{');
    json_out_int(&o, "input_tokens", (int64_t)j->n_tokens);
    write_ignored(j, &o);
    json_out_close(&o, '}');
    ticket_unlist(j->ticket);
    api_send(r, &o);
    job_free(j);
}
