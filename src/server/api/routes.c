/* SPDX-License-Identifier: MIT
 *
 * routes.c: the table of routes, and the handlers that hand requests over to the workers.
 */
#include "server/api/api_impl.h"
#include "server/api/endpoints.h"

#include <unistd.h>

/* Defines the handler of a dialect's route, post_NAME(), and the worker's part, begin_NAME(). */
#define BEGIN(name, dialect)                                                                                           \
    static void begin_##name(struct api_call *c) { job_begin(c, &dialect); }                                           \
    static void post_##name(struct http_request *r, void *ctx)                                                         \
    {                                                                                                                  \
        if (resumable_again(ctx, r)) return;                                                                           \
        api_hand_over(ctx, r, begin_##name, dialect.refuse, dialect.id_prefix);                                        \
    }
BEGIN(completion, openai_text)
BEGIN(chat, openai_chat)
BEGIN(message, anthropic)
BEGIN(response, responses)
BEGIN(infill, infill)

/* Defines the handler of a WebSocket's messages, message_NAME(). */
#define MESSAGE(name, dialect)                                                                                         \
    static void message_##name(struct http_request *r, void *ctx)                                                      \
    {                                                                                                                  \
        api_hand_over_message(ctx, r, begin_##name, dialect.refuse, dialect.id_prefix);                                \
    }
MESSAGE(chat, openai_chat)
MESSAGE(response, responses)

/* Defines post_NAME(), the handler of a route whose work is endpoint_NAME(). */
#define POST(name, refuse)                                                                                             \
    static void post_##name(struct http_request *r, void *ctx) { api_hand_over(ctx, r, endpoint_##name, refuse, ""); }
POST(render, api_refuse_openai)
POST(tokenize, api_refuse_openai)
POST(detokenize, api_refuse_openai)
POST(embeddings, api_refuse_openai)
POST(rerank, api_refuse_openai)
POST(score, api_refuse_openai)
POST(count_tokens, api_refuse_anthropic)

/* Not in the handler, because the scheduler answers these between two steps. */
static void get_sessions(struct http_request *r, void *ctx) { api_hand_over_bare(ctx, r, endpoint_sessions); }
static void get_input_items(struct http_request *r, void *ctx) { api_hand_over_bare(ctx, r, endpoint_input_items); }
static void delete_sessions(struct http_request *r, void *ctx) { api_hand_over_bare(ctx, r, endpoint_drop_sessions); }

/* Answered in the handler, because there is neither a body nor work. */
static void post_cancel(struct http_request *r, void *ctx)
{
    struct api *a = ctx;
    struct json_out o = {.ledger = a->c.requests};
    if (!ticket_cancel(a, http_param(r), who_of(http_identity(r), NULL).identity)) {
        http_error(r, 404, "id", "request_not_found", "you have no request '%s' that is under way", http_param(r));
        return;
    }
    json_out_open(&o, NULL, '{');
    json_out_str(&o, "id", http_param(r));
    json_out_bool(&o, "cancelled", true);
    json_out_close(&o, '}');
    api_send(r, &o);
}

/* Only for those who could also stop the daemon, because it costs others what is cached. */
static void post_unload(struct http_request *r, void *ctx)
{
    struct api *a = ctx;
    struct fault f = {0};
    struct json_out o = {.ledger = a->c.requests};
    const struct http_identity *i = http_identity(r);
    if (i->kind != HTTP_LOCAL && !(i->kind == HTTP_UID && i->uid == geteuid())) {
        http_error(r, 403, NULL, "not_allowed", "only the user of this daemon, without an API key, may unload models");
        return;
    }
    if (models_unload(a->c.models, http_param(r), &f)) {
        api_refuse_busy(r, &f, 1, api_refuse_openai);
        return;
    }
    json_out_open(&o, NULL, '{');
    json_out_str(&o, "id", http_param(r));
    json_out_bool(&o, "unloaded", true);
    json_out_close(&o, '}');
    api_send(r, &o);
}

static const struct http_route routes[] = {
    {"GET", "/health", endpoint_health, HTTP_PUBLIC},
    {"GET", "/", endpoint_page, HTTP_PUBLIC},
    {"GET", "/v1/models", endpoint_models, 0},
    {"GET", "/v1/models/{path}", endpoint_model, 0},
    {"POST", "/v1/models/{id}/unload", post_unload, 0},
    {"POST", "/v1/completions", post_completion, HTTP_JSON_BODY},
    {"POST", "/v1/chat/completions", post_chat, HTTP_JSON_BODY},
    {"GET", "/v1/chat/completions", message_chat, HTTP_WEBSOCKET},
    {"POST", "/v1/chat/render", post_render, HTTP_JSON_BODY},
    {"POST", "/v1/embeddings", post_embeddings, HTTP_JSON_BODY},
    {"POST", "/v1/rerank", post_rerank, HTTP_JSON_BODY},
    {"POST", "/rerank", post_rerank, HTTP_JSON_BODY},
    {"POST", "/v1/score", post_score, HTTP_JSON_BODY},
    {"POST", "/v1/responses", post_response, HTTP_JSON_BODY},
    {"GET", "/v1/responses/{id}", endpoint_response, 0},
    {"DELETE", "/v1/responses/{id}", endpoint_drop_response, 0},
    {"GET", "/v1/responses/{id}/input_items", get_input_items, 0},
    {"POST", "/v1/responses/{id}/cancel", endpoint_cancel_response, 0},
    {"POST", "/v1/messages", post_message, HTTP_JSON_BODY},
    {"POST", "/v1/messages/count_tokens", post_count_tokens, HTTP_JSON_BODY},
    {"GET", "/v1/requests", endpoint_requests, 0},
    {"POST", "/v1/requests/{id}/cancel", post_cancel, 0},
    {"POST", "/infill", post_infill, HTTP_JSON_BODY},
    {"GET", "/v1/responses", message_response, HTTP_WEBSOCKET},
    {"GET", "/v1/requests/{id}/events", endpoint_events, HTTP_STREAM},
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
