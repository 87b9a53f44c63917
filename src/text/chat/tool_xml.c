/* SPDX-License-Identifier: MIT
 *
 * tool_xml.c: reads tool calls of the form <function=NAME><parameter=KEY>value</parameter>...</function> (Qwen3-Coder).
 *
 * The form looks like XML and is not: nothing is escaped, a value ends at the first </parameter> (of JSON: the first
 * one outside of a string), and one line break at either end of it belongs to the form. Values have no type of their
 * own; the tool's schema says which ones are strings. Any other value is passed on as the JSON that it is, or as a
 * string where it is not JSON. Parameters are given out one by one, each as a member of the JSON object of the
 * arguments.
 */
#include <string.h>

#include "base/json/json_text.h"
#include "text/chat/chat_state.h"
#include "text/chat/tool_schema.h"

static chat_state parameter, value;

/* Whether the unread text begins with a name and '>'; *n is the length of the name. *waits: more text may complete it.
 */
static bool read_name(struct chat_reply *r, size_t *n, bool *waits)
{
    bool found = chat_find(r, ">", n);
    *waits = !found && !r->last && chat_left(r) <= CHAT_MAX_NAME;
    if (!found || *n == 0 || *n > CHAT_MAX_NAME) return false;
    const char *p = chat_text(r);
    for (size_t i = 0; i < *n; i++)
        if (p[i] == '<' || (unsigned char)p[i] < 0x20) return false;
    return true;
}

static void set_name(struct chat_reply *r, struct buf *name, size_t n)
{
    buf_clear(name);
    chat_fail(r, buf_add(name, chat_text(r), n, &r->error));
}

bool chat_call_function(struct chat_reply *r)
{
    size_t n;
    bool waits;
    if (!read_name(r, &n, &waits)) return !waits && chat_bad_call(r);
    set_name(r, &r->name, n);
    json_decref(r->keys);
    r->keys = json_object();
    if (!r->keys) chat_fail(r, error_nomem(&r->error, "a call's parameters", 0));
    chat_name_call(r, r->name.data, r->name.len);
    chat_take(r, n + 1);
    r->state = parameter;
    return true;
}

static bool parameter(struct chat_reply *r)
{
    static const char open[] = "<parameter=", end[] = "</function>";
    chat_take_space(r);
    if (chat_left(r) == 0) return chat_need_more(r);
    enum chat_match m = chat_match(r, 0, open), m_end = chat_match(r, 0, end);
    if (m == CHAT_PART || m_end == CHAT_PART) return false;
    if (m_end == CHAT_YES) {
        chat_take(r, strlen(end));
        bool none = json_object_size(r->keys) == 0;
        chat_give(r, QN_REPLY_ARGUMENTS, none ? "{}" : "}", none ? 2 : 1);
        chat_end_call(r);
        return true;
    }
    if (m == CHAT_NO) return chat_bad_call(r);
    if (!memchr(chat_text(r), '>', chat_left(r))) { /* wait: the mark is taken together with the name */
        bool too_long = chat_left(r) > strlen(open) + CHAT_MAX_NAME;
        return too_long || r->last ? chat_bad_call(r) : false;
    }
    chat_take(r, strlen(open));
    size_t n;
    bool waits;
    if (!read_name(r, &n, &waits)) return chat_bad_call(r);
    set_name(r, &r->key, n);
    chat_take(r, n + 1);
    r->state = value;
    return true;
}

/* Whether the parameter is a text: its schema says "string", or there is none. */
static bool is_text(const struct chat_reply *r)
{
    size_t i;
    json_t *tool;
    json_array_foreach((json_t *)r->tools, i, tool)
    {
        json_t *f = json_object_get(tool, "function"), *name = json_object_get(f, "name");
        if (json_string_length(name) != r->name.len || memcmp(json_string_value(name), r->name.data, r->name.len) != 0)
            continue;
        json_t *all = tool_properties(json_object_get(f, "parameters"));
        const json_t *p = json_object_getn(all, (const char *)r->key.data, r->key.len);
        const char *type = json_string_value(json_object_get(p, "type"));
        bool text = !p || (type && strcmp(type, "string") == 0);
        json_decref(all);
        return text;
    }
    return true;
}

/* Whether the text looks like JSON and ends inside of a string. */
static bool is_in_string(const char *p, size_t n)
{
    size_t first = 0;
    bool inside = false;
    while (first < n && (p[first] == '\n' || p[first] == ' ')) first++;
    if (first == n || !strchr("[{\"", p[first])) return false;
    for (size_t i = 0; i < n; i++) {
        if (inside && p[i] == '\\')
            i++;
        else if (p[i] == '"')
            inside = !inside;
    }
    return inside;
}

/* Where the value ends. A string in JSON may have the mark in it; if no end comes after that string, the mark counts.
 */
static bool find_end(struct chat_reply *r, const char *end, size_t *n)
{
    if (!chat_find(r, end, n)) return false;
    const char *p = chat_text(r), *hit = p + *n;
    if (is_text(r)) return true;
    while (hit && is_in_string(p, (size_t)(hit - p)))
        hit = memmem(hit + 1, chat_left(r) - (size_t)(hit + 1 - p), end, strlen(end));
    if (hit) *n = (size_t)(hit - p);
    return hit || r->last;
}

/* Whether the value is JSON and the schema does not want a string. */
static bool is_json(const struct chat_reply *r, const char *p, size_t n)
{
    if (is_text(r)) return false;
    json_t *v = json_loadb(p, n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    json_decref(v);
    return v != NULL;
}

static void give_quoted(struct chat_reply *r, const char *p, size_t n)
{
    struct buf text = {0};
    json_t *s = json_stringn(p, n);
    int rc = json_text_add(&text, s, 0, "a call's parameter", &r->error);
    if (rc)
        chat_fail(r, rc);
    else
        chat_give(r, QN_REPLY_ARGUMENTS, text.data, text.len);
    buf_deinit(&text);
    json_decref(s);
}

static bool value(struct chat_reply *r)
{
    static const char end[] = "</parameter>";
    size_t n;
    if (!find_end(r, end, &n)) return chat_need_more(r);
    const char *p = chat_text(r), *key = (const char *)r->key.data;
    size_t n_all = n + strlen(end);
    json_t *utf8 = json_stringn(p, n); /* NULL for bytes that are not UTF-8, which JSON cannot hold */
    bool bad = !utf8 || json_object_getn(r->keys, key, r->key.len);
    json_decref(utf8);
    if (bad || json_object_setn_new(r->keys, key, r->key.len, json_true()) != 0) return chat_bad_call(r);
    if (n > 0 && p[n - 1] == '\n') n--;
    if (n > 0 && p[0] == '\n') {
        p++;
        n--;
    }
    chat_give(r, QN_REPLY_ARGUMENTS, json_object_size(r->keys) == 1 ? "{" : ", ",
              json_object_size(r->keys) == 1 ? 1 : 2);
    give_quoted(r, key, r->key.len);
    chat_give(r, QN_REPLY_ARGUMENTS, ": ", 2);
    if (is_json(r, p, n))
        chat_give(r, QN_REPLY_ARGUMENTS, p, n);
    else
        give_quoted(r, p, n);
    chat_take(r, n_all);
    r->state = parameter;
    return true;
}
