/* SPDX-License-Identifier: MIT
 *
 * chat_adapt.c: gives the messages of a request the shape that a template is written for.
 *
 * Every message gets the members that templates expect (chat_shape.c). Some templates want more (enum chat_need), for
 * example no system message, or one call in a message. Each need is a pass over the list, which makes a new list.
 */
#include "text/chat/chat_adapt.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "text/chat/chat_shape.h"
#include "text/chat/chat_tools.h"

bool adapt_has_role(const json_t *m, const char *role)
{
    const json_t *r = json_object_get(m, "role");
    return r && strcmp(json_string_value(r), role) == 0;
}

bool adapt_needs(const struct adapt *a, unsigned need) { return (a->taste->need & need) != 0; }

void adapt_add(struct adapt *a, json_t *owned) { a->rc |= json_array_append_new(a->made, owned); }

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
    while (adapt_has_role(json_array_get(a->list, *i + 1 + n), "tool")) n++;
    json_t *lists = sort_results(a, calls, *i + 1, n);
    json_array_foreach((json_t *)calls, k, call)
    {
        json_t *one = json_copy((json_t *)m);
        a->rc |= json_object_set_new(one, "tool_calls", json_pack("[O]", call));
        if (k > 0) {
            a->rc |= json_object_set_new(one, "content", json_string(""));
            json_object_del(one, "reasoning_content");
        }
        adapt_add(a, one);
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
            adapt_add(a, json_incref(m));
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
    if (n == 1 && adapt_has_role(last, role)) {
        adapt_add(a, json_incref(last));
    } else if (n > 0) {
        json_t *one = json_copy(last);
        a->rc |= json_object_set_new(one, "role", json_string(role));
        a->rc |= json_object_set_new(one, "content", join_contents(group));
        adapt_add(a, one);
    }
    a->rc |= json_array_clear(group);
}

/* ---- system messages ---- */

/* Puts system texts that the template does not take before the next user's text. */
static void merge_system(struct adapt *a)
{
    json_t *m, *group = json_array();
    size_t i;
    bool user_last = adapt_has_role(json_array_get(a->list, json_array_size(a->list) - 1), "user");
    bool first = !adapt_needs(a, CHAT_NEED_NO_SYSTEM) && (user_last || !adapt_needs(a, CHAT_NEED_USER_LAST));
    if (!group) a->rc = -1;
    json_array_foreach(a->list, i, m)
    {
        if (adapt_has_role(m, "system")) {
            if (!first || json_array_size(group) > 0) a->changed |= QN_CHAT_SYSTEM_MERGED;
            a->rc |= json_array_append(group, m);
            continue;
        }
        if (first) add_group(a, group, "system");
        first = false;
        if (adapt_has_role(m, "user")) {
            a->rc |= json_array_append(group, m);
            add_group(a, group, "user");
        } else {
            add_group(a, group, "user");
            adapt_add(a, json_incref(m));
        }
    }
    add_group(a, group, first ? "system" : "user");
    json_decref(group);
}

/* ---- turns ---- */

/* Whether two neighbours have to become one. The calls of a message must stay next to their results. */
static bool must_merge(const struct adapt *a, const json_t *before, const json_t *m)
{
    if (!adapt_needs(a, CHAT_NEED_TURNS)) return false;
    if (adapt_has_role(before, "user")) return adapt_has_role(m, "user");
    return adapt_has_role(before, "assistant") && adapt_has_role(m, "assistant") &&
           !json_object_get(before, "tool_calls");
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
        if (adapt_needs(a, CHAT_NEED_ANSWER) && adapt_has_role(before, "tool") && adapt_has_role(m, "user")) {
            adapt_add(a, json_pack("{s:s, s:s}", "role", "assistant", "content", ""));
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
        adapt_add(a, copy);
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

static void write_calls(struct adapt *a, json_t *ours)
{
    json_t *made = a->rc == 0 ? chat_calls_as_python(a->list, ours) : NULL;
    if (!made) a->rc = -1;
    json_decref(a->list);
    a->list = made;
}

json_t *chat_adapt(const json_t *request, const struct chat_taste *taste, const char *ending, unsigned *changed,
                   json_t *ours)
{
    struct adapt a = {.taste = taste, .list = json_incref(json_object_get(request, "messages"))};
    pass(&a, adapt_shape);
    if (adapt_needs(&a, CHAT_NEED_TOOL_TEXT)) write_tools(&a, json_object_get(request, "tools"));
    if (adapt_needs(&a, CHAT_NEED_WRITTEN_CALLS)) write_calls(&a, ours);
    if (adapt_needs(&a, CHAT_NEED_SINGLE_CALLS)) pass(&a, split);
    if (adapt_needs(&a, CHAT_NEED_NO_SYSTEM | CHAT_NEED_FIRST_SYSTEM | CHAT_NEED_USER_LAST)) pass(&a, merge_system);
    if (adapt_needs(&a, CHAT_NEED_TURNS | CHAT_NEED_ANSWER)) pass(&a, take_turns);
    if (ending && a.rc == 0) end_with(&a, ending);
    if (adapt_needs(&a, CHAT_NEED_PARTS)) pass(&a, make_parts);
    *changed = a.changed;
    if (a.rc == 0) return a.list;
    json_decref(a.list);
    return NULL;
}
