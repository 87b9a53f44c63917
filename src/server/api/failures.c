/* SPDX-License-Identifier: MIT
 *
 * failures.c: how the APIs say that a request failed, how answers are sent, and the memory that making tokens takes.
 */
#include "server/api/api_impl.h"

#include <stdio.h>

#define WORK_FACTOR 32 /* the most bytes that a byte of text takes while tokens are made: symbols, candidates */

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
    case QN_EIO: return fault_set(f, 503, "unavailable", NULL, "%s", e->msg); /* other hosts do not answer */
    default: return fault_set(f, 500, "internal", NULL, "%s", e->msg);
    }
}

int api_too_long(struct fault *f, api_refuse *refuse, const char *field, size_t n, int n_ctx)
{
    static const char code[] = "context_length_exceeded";
    if (refuse == api_refuse_anthropic)
        return fault_set(f, 400, code, field, "prompt is too long: %zu tokens > %d maximum", n, n_ctx - 1);
    return fault_set(
        f, 400, code, field,
        "This model's maximum context length is %d tokens, and an answer needs at least one of them. Your %s "
        "resulted in %zu tokens. Please reduce the length of the %s.",
        n_ctx, field, n, field);
}

/* at_most: the most that a template may use, which is more than it ever should. A small ledger gives half of its budget
 * instead. */
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

/* The template's values come first, then the tokens; the larger of the two is taken. */
int api_take_chat_work(struct ticket *t, size_t n, size_t *taken, struct fault *f)
{
    return take_work(t, n, qn_chat_prompt_bytes(n), taken, f);
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

static const char *anthropic_error_type(int status)
{
    switch (status) {
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

void api_error_anthropic(struct json_out *o, const struct fault *f)
{
    const char *type = anthropic_error_type(f->status);
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

void api_error_ollama(struct json_out *o, const struct fault *f)
{
    json_out_open(o, NULL, '{');
    json_out_str(o, "error", f->message);
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
    struct json_out o = {0}; /* small: a fault's texts have a bound */
    api_error_anthropic(&o, f);
    http_outcome(r, f->code);
    send(r, f->status, &o);
}

void api_refuse_ollama(struct http_request *r, const struct fault *f)
{
    struct json_out o = {0};
    api_error_ollama(&o, f);
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
