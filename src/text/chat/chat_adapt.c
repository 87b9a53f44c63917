/* SPDX-License-Identifier: MIT
 *
 * chat_adapt.c: gives the messages of a request the shape that a template is written for.
 *
 * Templates are written for transformers' apply_chat_template, which passes its arguments on unchanged: content is a
 * string, the arguments of a call are an object. The API differs in details, for every template:
 *
 * - Parts of text are joined by line breaks.
 * - Arguments that are JSON in a string are decoded. Arguments that are not JSON stay a string, because a model wrote
 *   them and must be able to see what it did.
 * - A missing content becomes null next to calls, and an empty string elsewhere.
 * - The role `developer` becomes `system` where the template does not know developers.
 *
 * Some templates want more (enum chat_need), for example no system message, or one call in a message. Each need is a
 * pass over the list, which makes a new list.
 */
#include "text/chat/chat_adapt.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json/json_text.h"
#include "base/short_id.h"
#include "text/chat/chat_tools.h"

/* The messages while they change. After a failure, rc is not 0 and nothing counts. */
struct adapt {
    const struct chat_taste *taste;
    json_t *list, *made; /* before and after the pass */
    unsigned changed;
    int rc;
    /* of the calls that came last: */
    json_t *ids;   /* a list, for results that have no id */
    json_t *names; /* an object: ids and the names of their tools */
    size_t n_results;
};

static bool has_role(const json_t *m, const char *role)
{
    const json_t *r = json_object_get(m, "role");
    return r && strcmp(json_string_value(r), role) == 0;
}

static void add(struct adapt *a, json_t *owned) { a->rc |= json_array_append_new(a->made, owned); }

static bool needs(const struct adapt *a, unsigned need) { return (a->taste->need & need) != 0; }

/* ---- one message ---- */

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
    bool null = calls ? !needs(a, CHAT_NEED_EMPTY | CHAT_NEED_TOOL_TEXT) : !a->taste->known;
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
    bool text = needs(a, CHAT_NEED_TEXT_ARGUMENTS);
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
    if (!needs(a, CHAT_NEED_SHORT_IDS)) return json_incref(given);
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
    if (needs(a, CHAT_NEED_SHORT_IDS) && json_is_string(id)) a->rc |= json_object_set(m, "tool_call_id", id);
    if (needs(a, CHAT_NEED_NAMES) && !json_object_get(m, "name") && json_is_string(id)) {
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
    if (has_role(given, "tool")) name_result(a, m, i);
    if (!a->taste->developer && has_role(given, "developer"))
        a->rc |= json_object_set_new(m, "role", json_string("system"));
    /* gpt-oss has another name for thoughts, and refuses them in a message with content. */
    if (a->taste->calls == CHAT_CALLS_HARMONY && json_is_string(thoughts) && !json_object_get(m, "thinking") &&
        has_calls && is_empty(content))
        a->rc |= json_object_set(m, "thinking", thoughts);
    return m;
}

static void shape(struct adapt *a)
{
    json_t *m;
    size_t i;
    a->ids = json_array();
    a->names = json_object();
    json_array_foreach(a->list, i, m) add(a, make_message(a, m, i));
    json_decref(a->ids);
    json_decref(a->names);
}

/* ---- one call a message ---- */

/* Gives each of the n results at list[from] to the list of its call, by id, or else by its place. */
static json_t *sort_results(struct adapt *a, const json_t *calls, size_t from, size_t n)
{
    json_t *lists = json_array(), *by_id = json_object(), *call;
    size_t i;
    json_array_foreach((json_t *)calls, i, call)
    {
        const json_t *id = json_object_get(call, "id");
        a->rc |= json_array_append_new(lists, json_array());
        if (json_is_string(id))
            a->rc |= json_object_setn_new(by_id, json_string_value(id), json_string_length(id), json_integer((int)i));
    }
    for (i = 0; i < n && a->rc == 0; i++) {
        json_t *m = json_array_get(a->list, from + i), *id = json_object_get(m, "tool_call_id"), *at = NULL;
        if (json_is_string(id)) at = json_object_getn(by_id, json_string_value(id), json_string_length(id));
        size_t k = at ? (size_t)json_integer_value(at) : i, last = json_array_size(calls) - 1;
        a->rc |= json_array_append(json_array_get(lists, k < last ? k : last), m);
    }
    json_decref(by_id);
    return lists;
}

/* Divides list[*i] into messages with one call each, which their results follow. *i becomes the last result's index. */
static void split_message(struct adapt *a, size_t *i)
{
    const json_t *m = json_array_get(a->list, *i), *calls = json_object_get(m, "tool_calls");
    size_t n = 0, k;
    json_t *call;
    while (has_role(json_array_get(a->list, *i + 1 + n), "tool")) n++;
    json_t *lists = sort_results(a, calls, *i + 1, n);
    json_array_foreach((json_t *)calls, k, call)
    {
        json_t *one = json_copy((json_t *)m);
        a->rc |= json_object_set_new(one, "tool_calls", json_pack("[O]", call));
        if (k > 0) {
            a->rc |= json_object_set_new(one, "content", json_string(""));
            json_object_del(one, "reasoning_content");
        }
        add(a, one);
        a->rc |= json_array_extend(a->made, json_array_get(lists, k));
    }
    json_decref(lists);
    *i += n;
    a->changed |= QN_CHAT_CALLS_SPLIT;
}

static void split(struct adapt *a)
{
    for (size_t i = 0; i < json_array_size(a->list) && a->rc == 0; i++) {
        json_t *m = json_array_get(a->list, i);
        if (json_array_size(json_object_get(m, "tool_calls")) > 1)
            split_message(a, &i);
        else
            add(a, json_incref(m));
    }
}

/* ---- messages that become one ---- */

/* The contents of the messages with blank lines between them. */
static json_t *join_contents(const json_t *messages)
{
    struct buf b = {0};
    size_t i;
    json_t *m;
    int rc = buf_reserve(&b, 1, NULL);
    json_array_foreach((json_t *)messages, i, m)
    {
        const json_t *text = json_object_get(m, "content");
        if (json_string_length(text) == 0) continue;
        if (rc == 0 && b.len > 0) rc = buf_str(&b, "\n\n", NULL);
        if (rc == 0) rc = buf_add(&b, json_string_value(text), json_string_length(text), NULL);
    }
    json_t *joined = rc == 0 ? json_stringn(b.len ? (const char *)b.data : "", b.len) : NULL;
    buf_deinit(&b);
    return joined;
}

/* Adds the messages of a group as one with this role, which is else like the last of them, and empties the group. */
static void add_group(struct adapt *a, json_t *group, const char *role)
{
    const size_t n = json_array_size(group);
    json_t *last = json_array_get(group, n - 1);
    if (n == 1 && has_role(last, role)) {
        add(a, json_incref(last));
    } else if (n > 0) {
        json_t *one = json_copy(last);
        a->rc |= json_object_set_new(one, "role", json_string(role));
        a->rc |= json_object_set_new(one, "content", join_contents(group));
        add(a, one);
    }
    a->rc |= json_array_clear(group);
}

/* ---- system messages ---- */

/* Puts system texts that the template does not take before the next user's text. */
static void merge_system(struct adapt *a)
{
    json_t *m, *group = json_array();
    size_t i;
    bool user_last = has_role(json_array_get(a->list, json_array_size(a->list) - 1), "user");
    bool first = !needs(a, CHAT_NEED_NO_SYSTEM) && (user_last || !needs(a, CHAT_NEED_USER_LAST));
    if (!group) a->rc = -1;
    json_array_foreach(a->list, i, m)
    {
        if (has_role(m, "system")) {
            if (!first || json_array_size(group) > 0) a->changed |= QN_CHAT_SYSTEM_MERGED;
            a->rc |= json_array_append(group, m);
            continue;
        }
        if (first) add_group(a, group, "system");
        first = false;
        if (has_role(m, "user")) {
            a->rc |= json_array_append(group, m);
            add_group(a, group, "user");
        } else {
            add_group(a, group, "user");
            add(a, json_incref(m));
        }
    }
    add_group(a, group, first ? "system" : "user");
    json_decref(group);
}

/* ---- turns ---- */

/* Whether two neighbours have to become one. The calls of a message must stay next to their results. */
static bool must_merge(const struct adapt *a, const json_t *before, const json_t *m)
{
    if (!needs(a, CHAT_NEED_TURNS)) return false;
    if (has_role(before, "user")) return has_role(m, "user");
    return has_role(before, "assistant") && has_role(m, "assistant") && !json_object_get(before, "tool_calls");
}

static void take_turns(struct adapt *a)
{
    json_t *m, *group = json_array();
    size_t i;
    const json_t *before = NULL;
    if (!group) a->rc = -1;
    json_array_foreach(a->list, i, m)
    {
        if (must_merge(a, before, m)) {
            a->changed |= QN_CHAT_TURNS_MERGED;
        } else if (before) {
            add_group(a, group, json_string_value(json_object_get(before, "role")));
        }
        if (needs(a, CHAT_NEED_ANSWER) && has_role(before, "tool") && has_role(m, "user")) {
            add(a, json_pack("{s:s, s:s}", "role", "assistant", "content", ""));
            a->changed |= QN_CHAT_TURN_ADDED;
        }
        a->rc |= json_array_append(group, m);
        before = m;
    }
    if (before) add_group(a, group, json_string_value(json_object_get(before, "role")));
    json_decref(group);
}

/* ---- the whole ---- */

static void end_with(struct adapt *a, const char *ending)
{
    const json_t *last = json_array_get(a->list, json_array_size(a->list) - 1);
    const char *text = json_string_value(json_object_get(last, "content"));
    json_t *m = json_copy((json_t *)last);
    struct buf b = {0};
    int rc = buf_str(&b, "", NULL);
    if (rc == 0 && text) rc = buf_add(&b, text, json_string_length(json_object_get(last, "content")), NULL);
    if (rc == 0) rc = buf_str(&b, ending, NULL);
    a->rc |= json_object_set_new(m, "content", rc == 0 ? json_stringn((char *)b.data, b.len) : NULL);
    a->rc |= json_array_set_new(a->list, json_array_size(a->list) - 1, m);
    buf_deinit(&b);
}

static void make_parts(struct adapt *a)
{
    json_t *m;
    size_t i;
    json_array_foreach(a->list, i, m)
    {
        json_t *copy = json_copy(m), *text = json_object_get(m, "content");
        if (json_is_string(text))
            a->rc |= json_object_set_new(copy, "content", json_pack("[{s:s, s:O}]", "type", "text", "text", text));
        add(a, copy);
    }
}

static void pass(struct adapt *a, void (*run)(struct adapt *a))
{
    if (a->rc) return;
    a->made = json_array();
    if (!a->made) a->rc = -1;
    if (a->rc == 0) run(a);
    json_decref(a->list);
    a->list = a->made;
}

static void write_tools(struct adapt *a, const json_t *tools)
{
    bool any = false;
    json_t *made = a->rc == 0 ? chat_tools_as_text(a->list, tools, &any) : NULL;
    if (!made) a->rc = -1;
    if (any) a->changed |= QN_CHAT_TOOLS_AS_TEXT;
    json_decref(a->list);
    a->list = made;
}

json_t *chat_adapt(const json_t *request, const struct chat_taste *taste, const char *ending, unsigned *changed)
{
    struct adapt a = {.taste = taste, .list = json_incref(json_object_get(request, "messages"))};
    pass(&a, shape);
    if (needs(&a, CHAT_NEED_TOOL_TEXT)) write_tools(&a, json_object_get(request, "tools"));
    if (needs(&a, CHAT_NEED_SINGLE_CALLS)) pass(&a, split);
    if (needs(&a, CHAT_NEED_NO_SYSTEM | CHAT_NEED_FIRST_SYSTEM | CHAT_NEED_USER_LAST)) pass(&a, merge_system);
    if (needs(&a, CHAT_NEED_TURNS | CHAT_NEED_ANSWER)) pass(&a, take_turns);
    if (ending && a.rc == 0) end_with(&a, ending);
    if (needs(&a, CHAT_NEED_PARTS)) pass(&a, make_parts);
    *changed = a.changed;
    if (a.rc == 0) return a.list;
    json_decref(a.list);
    return NULL;
}
