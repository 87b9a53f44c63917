/* SPDX-License-Identifier: MIT
 *
 * chat_shape.c: one message in the shape that every template expects.
 *
 * Templates are written for transformers' apply_chat_template, which passes its arguments on unchanged: content is a
 * string, the arguments of a call are an object. The API differs in details, for every template:
 *
 * - Parts of text are joined by line breaks.
 * - Arguments that are JSON in a string are decoded. Arguments that are not JSON stay a string, because a model wrote
 *   them and must be able to see what it did.
 * - A missing content becomes null next to calls, and an empty string elsewhere.
 * - The role `developer` becomes `system` where the template does not know developers.
 */
#include "text/chat/chat_shape.h"

#include "base/buf.h"
#include "base/json/json_text.h"
#include "base/short_id.h"

static json_t *join_parts(const json_t *parts)
{
    struct buf b = {0};
    size_t i;
    json_t *part;
    int rc = buf_reserve(&b, 1, NULL);
    json_array_foreach((json_t *)parts, i, part)
    {
        const json_t *text = json_object_get(part, "text");
        if (rc == 0 && i > 0) rc = buf_str(&b, "\n", NULL);
        if (rc == 0) rc = buf_add(&b, json_string_value(text), json_string_length(text), NULL);
    }
    json_t *joined = rc == 0 ? json_stringn((const char *)b.data, b.len) : NULL;
    buf_deinit(&b);
    return joined;
}

/* The content as a string; or null, where the template takes it. */
static json_t *make_content(const struct adapt *a, json_t *content, bool calls)
{
    if (json_is_array(content)) return join_parts(content);
    if (content && !json_is_null(content)) return json_incref(content);
    bool null =
        calls ? !adapt_needs(a, CHAT_NEED_EMPTY | CHAT_NEED_TOOL_TEXT | CHAT_NEED_WRITTEN_CALLS) : !a->taste->known;
    return null ? json_null() : json_string("");
}

static json_t *as_text(const json_t *v)
{
    struct buf b = {0};
    json_t *text = NULL;
    if (json_text_add(&b, v, JSON_ENCODE_ANY, "arguments", NULL) == 0) text = json_stringn((char *)b.data, b.len);
    buf_deinit(&b);
    return text;
}

/* The arguments of a call: an object, or a string if they are not JSON or if the template wants one. */
static json_t *make_arguments(const struct adapt *a, json_t *given)
{
    bool text = adapt_needs(a, CHAT_NEED_TEXT_ARGUMENTS);
    const char *p = json_string_value(given);
    size_t n = json_string_length(given);
    if (!given || (p && n == 0)) return text ? json_string("{}") : json_object();
    if (text) return p ? json_incref(given) : as_text(given);
    json_t *decoded = p ? json_loadb(p, n, JSON_ALLOW_NUL, NULL) : NULL;
    return decoded ? decoded : json_incref(given);
}

/* The id of a call or of a result, as the template wants it; NULL: it has none and needs none. which: the number of the
 * call in its message. */
static json_t *make_id(const struct adapt *a, json_t *given, size_t message, size_t which)
{
    char made[SHORT_ID + 1];
    if (!adapt_needs(a, CHAT_NEED_SHORT_IDS)) return json_incref(given);
    if (json_is_string(given) && is_short_id(json_string_value(given), json_string_length(given)))
        return json_incref(given);
    size_t place[2] = {message, which};
    if (json_is_string(given))
        short_id(made, json_string_value(given), json_string_length(given));
    else
        short_id(made, place, sizeof place);
    return json_string(made);
}

/* A call in the template's shape. Members are replaced in copies, because the request must not change. */
static json_t *make_call(struct adapt *a, const json_t *given, size_t message, size_t which)
{
    json_t *call = json_copy((json_t *)given), *f = json_copy(json_object_get(given, "function"));
    json_t *id = make_id(a, json_object_get(given, "id"), message, which);
    a->rc |= json_object_set_new(f, "arguments", make_arguments(a, json_object_get(f, "arguments")));
    a->rc |= json_object_set_new(call, "function", f);
    if (id) a->rc |= json_object_set(call, "id", id);
    a->rc |= json_array_append(a->ids, id ? id : json_null());
    if (json_is_string(id))
        a->rc |= json_object_setn(a->names, json_string_value(id), json_string_length(id), json_object_get(f, "name"));
    json_decref(id);
    return call;
}

static json_t *make_calls(struct adapt *a, const json_t *given, size_t message)
{
    json_t *calls = json_array(), *call;
    size_t i;
    a->rc |= json_array_clear(a->ids);
    a->n_results = 0;
    json_array_foreach((json_t *)given, i, call) a->rc |= json_array_append_new(calls, make_call(a, call, message, i));
    return calls;
}

/* Gives a result the id and the name that the template needs. */
static void name_result(struct adapt *a, json_t *m, size_t message)
{
    json_t *id = json_object_get(m, "tool_call_id");
    id = id && !json_is_null(id) ? make_id(a, id, message, 0) : json_incref(json_array_get(a->ids, a->n_results));
    a->n_results++;
    if (adapt_needs(a, CHAT_NEED_SHORT_IDS) && json_is_string(id)) a->rc |= json_object_set(m, "tool_call_id", id);
    if (adapt_needs(a, CHAT_NEED_NAMES) && !json_object_get(m, "name") && json_is_string(id)) {
        json_t *name = json_object_getn(a->names, json_string_value(id), json_string_length(id));
        if (name) a->rc |= json_object_set(m, "name", name);
    }
    json_decref(id);
}

static bool is_empty(const json_t *content)
{
    return !content || json_is_null(content) || (json_is_string(content) && json_string_length(content) == 0);
}

static json_t *make_message(struct adapt *a, const json_t *given, size_t i)
{
    json_t *m = json_copy((json_t *)given), *content = json_object_get(given, "content");
    json_t *calls = json_object_get(given, "tool_calls"), *thoughts = json_object_get(given, "reasoning_content");
    bool has_calls = json_array_size(calls) > 0;
    a->rc |= json_object_set_new(m, "content", make_content(a, content, has_calls));
    if (has_calls)
        a->rc |= json_object_set_new(m, "tool_calls", make_calls(a, calls, i));
    else if (calls)
        json_object_del(m, "tool_calls"); /* templates ask whether the member is there */
    if (adapt_has_role(given, "tool")) name_result(a, m, i);
    if (!a->taste->developer && adapt_has_role(given, "developer"))
        a->rc |= json_object_set_new(m, "role", json_string("system"));
    /* gpt-oss has another name for thoughts, and refuses them in a message with content. */
    if (a->taste->calls == CHAT_CALLS_HARMONY && json_is_string(thoughts) && !json_object_get(m, "thinking") &&
        has_calls && is_empty(content))
        a->rc |= json_object_set(m, "thinking", thoughts);
    return m;
}

void adapt_shape(struct adapt *a)
{
    json_t *m;
    size_t i;
    a->ids = json_array();
    a->names = json_object();
    json_array_foreach(a->list, i, m) adapt_add(a, make_message(a, m, i));
    json_decref(a->ids);
    json_decref(a->names);
}
