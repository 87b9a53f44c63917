/* SPDX-License-Identifier: MIT
 *
 * responses_kept.c: GET, DELETE and POST .../cancel of /v1/responses/{id}, and its input_items.
 *
 * Responses are read as they were kept. The list of items has to be parsed, so it is made by a worker.
 *
 * Source: the OpenAI API reference ("Responses", "List input items").
 */
#include "server/api/endpoints.h"
#include "server/api/responses.h"

#include <stdlib.h>
#include <string.h>

#include "base/json/json_text.h"

#define DEFAULT 20 /* items in one list, unless limit says otherwise */
#define MOST    100

static uint64_t identity_of(struct http_request *r) { return who_of(http_identity(r), NULL).identity; }

static int not_found(const char *id, struct fault *f)
{
    return fault_set(f, 404, "response_not_found", NULL, "Response with id '%s' not found.", id);
}

void endpoint_response(struct http_request *r, void *ctx)
{
    struct api *a = ctx;
    char stream[8];
    struct fault f;
    if (!http_query(r, "stream", stream, sizeof stream) && strcmp(stream, "false") != 0) {
        fault_set(&f, 400, "unsupported_value", "stream", "stream: a response that is kept is sent whole");
        api_refuse_openai(r, &f);
        return;
    }
    struct item_record *found = item_store_find(a->items, identity_of(r), http_param(r));
    if (found) {
        http_reply(r, 200, "application/json", found->response, found->n_response);
    } else {
        not_found(http_param(r), &f);
        api_refuse_openai(r, &f);
    }
    item_store_release(a->items, found);
}

void endpoint_drop_response(struct http_request *r, void *ctx)
{
    struct api *a = ctx;
    struct json_out o = {.ledger = a->c.requests};
    struct fault f;
    if (!item_store_drop(a->items, identity_of(r), http_param(r))) {
        not_found(http_param(r), &f);
        api_refuse_openai(r, &f);
        return;
    }
    json_out_open(&o, NULL, '{');
    json_out_str(&o, "id", http_param(r));
    json_out_str(&o, "object", "response");
    json_out_bool(&o, "deleted", true);
    json_out_close(&o, '}');
    api_send(r, &o);
}

/* Ends a response that is under way. Its own request gets what there is of it. */
void endpoint_cancel_response(struct http_request *r, void *ctx)
{
    struct api *a = ctx;
    struct json_out o = {.ledger = a->c.requests};
    struct fault f;
    const char *id = http_param(r);
    if (strncmp(id, "resp_", 5) != 0 || !ticket_cancel(a, id, identity_of(r))) {
        struct item_record *found = item_store_find(a->items, identity_of(r), id);
        if (found)
            fault_set(&f, 400, "invalid_value", NULL, "Cannot cancel response '%s': it is not under way any more.", id);
        else
            not_found(id, &f);
        item_store_release(a->items, found);
        api_refuse_openai(r, &f);
        return;
    }
    json_out_open(&o, NULL, '{');
    json_out_str(&o, "id", id);
    json_out_str(&o, "object", "response");
    json_out_str(&o, "status", "cancelled");
    json_out_close(&o, '}');
    api_send(r, &o);
}

/* ---- the items of the input ---- */

struct items_part {
    size_t limit;
    bool forward;     /* from the first item to the last; the other way by default */
    char after[1024]; /* the id of the item before the first one; "": none */
};

static int read_part(struct http_request *r, struct items_part *p, struct fault *f)
{
    char limit[16], order[16];
    *p = (struct items_part){.limit = DEFAULT};
    if (!http_query(r, "limit", limit, sizeof limit)) {
        size_t n = strlen(limit);
        p->limit = n && n < 9 && strspn(limit, "0123456789") == n ? (size_t)strtoul(limit, NULL, 10) : 0;
        if (p->limit < 1 || p->limit > MOST)
            return fault_set(f, 400, "out_of_range", "limit", "limit has to be 1 to %d, not '%s'", MOST, limit);
    }
    if (!http_query(r, "order", order, sizeof order)) {
        p->forward = !strcmp(order, "asc");
        if (!p->forward && strcmp(order, "desc") != 0)
            return fault_set(f, 400, "invalid_value", "order", "order has to be asc or desc, not '%s'", order);
    }
    if (http_query(r, "after", p->after, sizeof p->after)) p->after[0] = '\0';
    return 0;
}

static const char *id_at(const json_t *all, size_t i)
{
    return json_string_value(json_object_get(json_array_get(all, i), "id"));
}

/* The place of the item k in the order of the part. */
static size_t place(const struct items_part *p, size_t n, size_t k) { return p->forward ? k : n - 1 - k; }

static int write_part(struct json_out *o, const struct items_part *p, const json_t *all, struct fault *f)
{
    size_t n = json_array_size(all), from = 0;
    while (p->after[0] && from < n && strcmp(id_at(all, place(p, n, from)), p->after) != 0) from++;
    if (p->after[0] && from++ == n)
        return fault_set(f, 404, "item_not_found", "after", "Item with id '%s' not found.", p->after);
    size_t to = n - from > p->limit ? from + p->limit : n;
    json_out_open(o, NULL, '{');
    json_out_str(o, "object", "list");
    json_out_open(o, "data", '[');
    for (size_t k = from; k < to; k++) {
        struct buf text = {0};
        o->failed =
            json_text_add(&text, json_array_get(all, place(p, n, k)), JSON_COMPACT, "an item", NULL) || o->failed;
        json_out_raw(o, NULL, text.data, text.len);
        buf_deinit(&text);
    }
    json_out_close(o, ']');
    json_out_str(o, "first_id", from < to ? id_at(all, place(p, n, from)) : NULL);
    json_out_str(o, "last_id", from < to ? id_at(all, place(p, n, to - 1)) : NULL);
    json_out_bool(o, "has_more", to < n);
    json_out_close(o, '}');
    return 0;
}

/* All items that the response was made from: those of the responses that it continues, too. */
void endpoint_input_items(struct api_call *c)
{
    struct items it = {.ticket = c->ticket};
    struct json_out o = {.ledger = c->api->c.requests};
    struct items_part part;
    struct fault f = {0};
    const char *id = http_param(c->req);
    struct item_record *r = item_store_find(c->api->items, c->ticket->identity, id);
    int bad = r ? read_part(c->req, &part, &f) : not_found(id, &f);
    bad = bad || items_add_input(&it, r, &f) || write_part(&o, &part, it.all, &f);
    items_deinit(&it);
    item_store_release(c->api->items, r);
    if (bad && !f.code) ticket_fault(c->ticket, &f);
    if (bad) {
        json_out_deinit(&o);
        api_end_refused(c, &f);
    } else {
        api_end(c, &o);
    }
}
