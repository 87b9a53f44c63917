/* SPDX-License-Identifier: MIT
 *
 * responses_items.c: items of earlier responses: what a request continues, what it refers to by id, and what is kept of
 * it for later requests.
 *
 * The id of an item says which response has it (responses.c, write_id()). Kept texts become JSON again, whose memory is
 * taken as that of a body: once for the items and once for the messages made of them. An item that is referred to many
 * times is paid for each time, because it stands in the prompt so many times.
 */
#include "server/api/responses.h"

#include <stdio.h>
#include <string.h>

#include "base/json/json_text.h"

/* The text of all items together may be as long as that of a body, so that reading it takes no longer. */
#define MOST_BYTES ((size_t)16 << 20)

void items_deinit(struct items *it)
{
    json_decref(it->all);
    json_decref(it->known);
}

/* ---- from kept texts to items ---- */

static int take(struct items *it, size_t bytes, struct fault *f)
{
    if (ticket_take(it->ticket, bytes, "what a kept response becomes", f)) return -1;
    it->taken += bytes;
    return 0;
}

/* Counts the text of items that are added. */
static int count(struct items *it, size_t bytes, struct fault *f)
{
    it->n_text += bytes;
    if (it->n_text <= MOST_BYTES) return 0;
    return fault_set(f, 413, "request_too_large", "input",
                     "input: the items of earlier responses have more than %zu bytes together", MOST_BYTES);
}

static json_t *parse(struct items *it, const void *text, size_t n, struct fault *f)
{
    struct field_size size;
    if (field_measure(text, n, &size, f) || take(it, 2 * size.kept, f) ||
        ticket_take(it->ticket, size.more, "a kept response", f))
        return NULL;
    json_t *v = field_parse_body(text, n, &it->ticket->cancel, f);
    ticket_give(it->ticket, size.more);
    return v;
}

/* Reads the items of a member of a kept text; adds them to the list, unless they are only to be known. */
static int read_items(struct items *it, const void *text, size_t n, const char *member, bool add, struct fault *f)
{
    bool bad = false;
    if (add && count(it, n, f)) return -1;
    json_t *whole = parse(it, text, n, f), *list = json_object_get(whole, member);
    if (!whole) return -1;
    if (!it->known) it->known = json_object();
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *item = json_array_get(list, i);
        const char *id = json_string_value(json_object_get(item, "id"));
        if (id) bad = json_object_set(it->known, id, item) || bad;
        if (add) bad = json_array_append(it->all, item) || bad;
    }
    json_decref(whole);
    return bad ? api_no_memory(f) : 0;
}

static int read_output(struct items *it, const struct item_record *r, bool add, struct fault *f)
{
    return read_items(it, r->response, r->n_response, "output", add, f);
}

int items_add_input(struct items *it, const struct item_record *r, struct fault *f)
{
    size_t n = 0;
    int bad = 0;
    if (!it->all) it->all = json_array();
    for (const struct item_record *p = r; p; p = p->previous) n++;
    const struct item_record **chain = mem_alloc(n * sizeof *chain);
    if (!chain || !it->all) bad = api_no_memory(f);
    for (size_t k = n; k > 0 && !bad; r = r->previous) chain[--k] = r;
    for (size_t k = 0; k < n && !bad; k++) {
        bad = read_items(it, chain[k]->input.data, chain[k]->input.len, "data", true, f);
        if (!bad && k + 1 < n) bad = read_output(it, chain[k], true, f);
        if (!bad && ticket_is_over(it->ticket)) bad = ticket_fault(it->ticket, f);
    }
    mem_free(chain);
    return bad;
}

/* ---- a request's own items ---- */

/* The id of the response that has this item: `msg_REQUEST_0` is in `resp_REQUEST`. false: it is none of ours. */
static bool response_of(const char *item, char *id, size_t cap)
{
    const char *from = strchr(item, '_'), *to = strrchr(item, '_');
    if (!from || from == to) return false;
    int n = snprintf(id, cap, "resp%.*s", (int)(to - from < 64 ? to - from : 64), from);
    return n > 0 && (size_t)n < cap;
}

/* Reads the response that has this item. */
static int read_response_of(struct job *j, struct items *it, const char *item, struct fault *f)
{
    char id[48];
    struct item_store *store = j->api->items;
    struct item_record *r = response_of(item, id, sizeof id) ? item_store_find(store, it->ticket->identity, id) : NULL;
    if (!r) return 0;
    int bad = read_output(it, r, false, f) || read_items(it, r->input.data, r->input.len, "data", false, f);
    item_store_release(store, r);
    return bad ? -1 : 0;
}

/* Takes the memory for one more use of an item. */
static int pay(struct items *it, const json_t *item, struct fault *f)
{
    struct buf text = {0};
    struct field_size size = {0};
    struct fault none; /* it has passed before, as a part of a larger text */
    bool bad = json_text_add(&text, item, JSON_COMPACT, "an item", NULL);
    if (!bad) field_measure(text.data, text.len, &size, &none);
    size_t n = text.len;
    buf_deinit(&text);
    if (bad) return api_no_memory(f);
    return count(it, n, f) || take(it, 2 * size.kept, f) ? -1 : 0;
}

struct reference {
    const char *id, *type;
};

static int add_referred(struct job *j, struct items *it, const json_t *reference, struct fault *f)
{
    static const struct field rows[] = {
        {.name = "id", .type = FIELD_STRING, .at = offsetof(struct reference, id), .hi = 1024, .required = true},
        {.name = "type", .type = FIELD_STRING, .at = offsetof(struct reference, type), .hi = 1024},
        {0}};
    struct reference m = {0};
    if (field_read((const struct field *const[]){rows, NULL}, "input.", reference, &m, f)) return -1;
    json_t *item = json_object_get(it->known, m.id);
    if (!item && read_response_of(j, it, m.id, f)) return -1;
    if (!item) item = json_object_get(it->known, m.id);
    if (!item)
        return fault_set(
            f, 404, "item_not_found", "input",
            "Item with id '%s' not found. The items of a response stay in memory for a while, unless it had "
            "`store` false. Put the item itself into `input` instead.",
            m.id);
    if (pay(it, item, f)) return -1;
    return json_array_append(it->all, item) ? api_no_memory(f) : 0;
}

/* {"type": "item_reference", "id": ...}; the type may be absent. */
static bool is_reference(const json_t *item)
{
    const json_t *type = json_object_get(item, "type");
    if (type && !json_is_null(type)) return field_is(type, "item_reference");
    return json_object_get(item, "id") && !json_object_get(item, "role");
}

static int add_own(struct job *j, struct items *it, const json_t *input, struct fault *f)
{
    if (json_is_string(input)) {
        json_t *item = json_pack("{s:s,s:s,s:O}", "type", "message", "role", "user", "content", input);
        return json_array_append_new(it->all, item) ? api_no_memory(f) : 0;
    }
    if (!json_is_array(input)) return field_wrong_type(f, "input", "a text or an array of items", input);
    if (json_array_size(input) == 0) return fault_set(f, 400, "out_of_range", "input", "input has no items");
    for (size_t i = 0; i < json_array_size(input); i++) {
        json_t *item = json_array_get(input, i);
        if (is_reference(item) ? add_referred(j, it, item, f) : json_array_append(it->all, item))
            return f->status ? -1 : api_no_memory(f);
        if (params_is_over(&j->params, i, f)) return -1;
    }
    return 0;
}

/* Adds the whole conversation of the response that is continued. */
static int add_previous(struct job *j, struct items *it, struct fault *f)
{
    const char *id = j->params.continues;
    if (!id[0]) return 0;
    j->previous = item_store_find(j->api->items, it->ticket->identity, id);
    if (!j->previous)
        return fault_set(
            f, 400, "previous_response_not_found", "previous_response_id",
            "Previous response with id '%s' not found. previous_response_id takes the ids of responses that are "
            "still in memory; those with `store` false never are.",
            id);
    return items_add_input(it, j->previous, f) || read_output(it, j->previous, true, f) ? -1 : 0;
}

int responses_gather(struct job *j, size_t *n_before, struct fault *f)
{
    struct answer_params *a = &j->params;
    struct items it = {.ticket = j->ticket, .all = json_array()};
    int bad = it.all ? add_previous(j, &it, f) : api_no_memory(f);
    *n_before = json_array_size(it.all);
    bad = bad || add_own(j, &it, a->messages, f);
    j->items_taken += it.taken;
    if (!bad && !(a->messages = params_keep(a, json_incref(it.all), f))) bad = -1;
    items_deinit(&it);
    return bad ? -1 : 0;
}

/* ---- what is kept ---- */

static const char *prefix_of(const json_t *item)
{
    static const struct {
        const char *type, *prefix;
    } kinds[] = {{"function_call", "fc"}, {"function_call_output", "fco"}, {"reasoning", "rs"}};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        if (field_is(json_object_get(item, "type"), kinds[k].type)) return kinds[k].prefix;
    return "msg";
}

/* The content of a message that is a text becomes a list with a part, as clients expect it in lists of items. */
static bool make_parts(json_t *item)
{
    json_t *text = json_object_get(item, "content");
    bool said = field_is(json_object_get(item, "role"), "assistant");
    if (!json_is_string(text)) return false;
    json_t *parts = json_pack("[{s:s,s:O}]", "type", said ? "output_text" : "input_text", "text", text);
    if (said && json_object_set_new(json_array_get(parts, 0), "annotations", json_array())) {
        json_decref(parts);
        return true;
    }
    return json_object_set_new(item, "content", parts);
}

/* Adds an item's text, with a type and an id, which is not that of any output. true: there is no memory. */
static bool add_text(struct buf *b, const json_t *item, const char *request, size_t k)
{
    char id[96];
    json_t *all = json_copy((json_t *)(uintptr_t)item);
    snprintf(id, sizeof id, "%s_%s_i%zu", prefix_of(item), request, k);
    bool bad = !all;
    if (!json_is_string(json_object_get(item, "id"))) bad = json_object_set_new(all, "id", json_string(id)) || bad;
    if (!json_is_string(json_object_get(item, "type")))
        bad = json_object_set_new(all, "type", json_string("message")) || bad;
    bad =
        bad || make_parts(all) || (k && buf_str(b, ",", NULL)) || json_text_add(b, all, JSON_COMPACT, "an item", NULL);
    json_decref(all);
    return bad;
}

void responses_begin_record(struct job *j, const json_t *items, size_t n_before)
{
    struct buf text = {0};
    int bad = 0;
    if (!j->params.store || !j->api->items) return;
    bad = buf_str(&text, "{\"data\":[", NULL);
    for (size_t k = n_before; k < json_array_size(items) && !bad; k++)
        bad = add_text(&text, json_array_get(items, k), j->id + sizeof "resp_" - 1, k - n_before);
    bad = bad || buf_str(&text, "]}", NULL);
    if (!bad) j->record = item_store_begin(j->api->items, j->ticket->identity, j->id, j->previous, &text);
    buf_deinit(&text);
}
