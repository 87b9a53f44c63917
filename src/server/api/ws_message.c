/* SPDX-License-Identifier: MIT
 *
 * ws_message.c: requests that come as messages of a WebSocket. A message has the fields of the request that would be
 * sent with POST, and members around them: `type`, and `stream_id`, which is repeated in all messages that answer it.
 *
 * Source: the OpenAI API reference ("Responses", "WebSocket events").
 */
#include "server/api/api_impl.h"

#include <string.h>

#define CANCEL_BYTES 1024 /* a longer message does not cancel: handlers read no more than this */

struct cancel_message {
    const char *type, *id, *response_id, *stream_id;
};

#define NAME(member)                                                                                                   \
    {                                                                                                                  \
        .name = #member, .type = FIELD_STRING, .at = offsetof(struct cancel_message, member), .lo = 1, .hi = 256       \
    }
static const struct field cancel_rows[] = {NAME(type), NAME(id), NAME(response_id), NAME(stream_id), {0}};

static void cancel(struct api *a, struct http_request *r, const struct cancel_message *m)
{
    const char *id = m->id ? m->id : m->response_id;
    bool found;
    if (!id == !m->stream_id) {
        http_error(r, 400, NULL, "missing_field", "response.cancel has either id or stream_id");
        return;
    }
    if (id)
        found = ticket_cancel(a, id, who_of(http_identity(r), NULL).identity);
    else
        found = ticket_cancel_stream(a, http_websocket_id(r), m->stream_id);
    if (found)
        http_reply(r, 204, NULL, "", 0); /* the end of the cancelled one is the answer */
    else
        http_error(r, 404, id ? "id" : "stream_id", "request_not_found", "you have no request '%s' that is under way",
                   id ? id : m->stream_id);
}

bool message_cancels(struct api *a, struct http_request *r)
{
    struct cancel_message m = {0};
    struct fault f = {0};
    size_t n;
    const void *text = http_body(r, &n);
    if (n > CANCEL_BYTES || !memmem(text, n, "response.cancel", strlen("response.cancel"))) return false;
    json_t *body = field_parse_body(text, n, NULL, &f);
    bool is_cancel = field_is(json_object_get(body, "type"), "response.cancel");
    if (is_cancel && field_read((const struct field *const[]){cancel_rows, NULL}, "", body, &m, &f))
        api_refuse_openai(r, &f);
    else if (is_cancel)
        cancel(a, r, &m);
    json_decref(body);
    return is_cancel; /* what cannot be parsed is refused by a worker */
}

/* Keeps the client's name for the request, for its answer and for those who cancel it. */
static int take_stream_id(struct api_call *c, const json_t *v)
{
    struct ticket *t = c->ticket;
    size_t n = json_string_length(v);
    if (!v || json_is_null(v)) return 0;
    if (!json_is_string(v)) return field_wrong_type(&c->fault, "stream_id", "a string", v);
    if (n == 0 || n >= sizeof t->stream_id)
        return fault_set(&c->fault, 400, "out_of_range", "stream_id", "stream_id has %zu bytes; 1 to %zu are allowed",
                         n, sizeof t->stream_id - 1);
    if (field_no_nul("stream_id", v, &c->fault)) return -1;
    pthread_mutex_lock(&c->api->lock);
    memcpy(t->stream_id, json_string_value(v), n);
    pthread_mutex_unlock(&c->api->lock);
    return http_set_label(c->req, "stream_id", json_string_value(v)) ? api_no_memory(&c->fault) : 0;
}

int message_open(struct api_call *c)
{
    json_t *body = c->body, *stream = json_object_get(body, "stream"), *type = json_object_get(body, "type");
    if (take_stream_id(c, json_object_get(body, "stream_id"))) return -1;
    if (type && !json_is_null(type) && !field_is(type, "response.create"))
        return fault_set(&c->fault, 400, "unsupported_value", "type",
                         "a message's type is response.create or, in %d bytes at most, response.cancel", CANCEL_BYTES);
    if (stream && !json_is_null(stream) && !json_is_true(stream))
        return fault_set(&c->fault, 400, "unsupported_value", "stream", "answers on a WebSocket are streams");
    json_object_del(body, "type");
    json_object_del(body, "stream_id");
    return json_object_set_new(body, "stream", json_true()) ? api_no_memory(&c->fault) : 0;
}
