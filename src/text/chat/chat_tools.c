/* SPDX-License-Identifier: MIT
 *
 * chat_tools.c: writes tools, calls and results as texts.
 */
#include "text/chat/chat_tools.h"

#include <string.h>

#include "base/buf.h"
#include "base/json/json_text.h"

#define FLAGS (JSON_COMPACT | JSON_ENCODE_ANY)

static const char before_tools[] = "You can call functions. Each line here describes one of them in JSON:\n";
static const char after_tools[] =
    "\nTo call a function, write its name and its arguments in this form, and end your reply after it:\n"
    "<tool_call>\n{\"name\": \"NAME\", \"arguments\": {\"KEY\": \"VALUE\"}}\n</tool_call>\n"
    "To call several functions, write several of these blocks. The next message has the results, each between "
    "<tool_response> and </tool_response>. If no function is needed, reply without these blocks.";

/* The buffer's text as a JSON string, or NULL if rc says that something failed. Releases the buffer. */
static json_t *take(struct buf *b, int rc)
{
    json_t *text = rc == 0 ? json_stringn(b->len ? (const char *)b->data : "", b->len) : NULL;
    buf_deinit(b);
    return text;
}

json_t *chat_join(const json_t *a, const json_t *b)
{
    size_t n = json_string_length(a), k = json_string_length(b);
    struct buf text = {0};
    int rc = buf_reserve(&text, n + k + 2, NULL);
    if (rc == 0 && n) rc = buf_add(&text, json_string_value(a), n, NULL);
    if (rc == 0 && n && k) rc = buf_str(&text, "\n\n", NULL);
    if (rc == 0 && k) rc = buf_add(&text, json_string_value(b), k, NULL);
    return take(&text, rc);
}

static json_t *describe(const json_t *tools)
{
    struct buf b = {0};
    size_t i;
    json_t *tool;
    int rc = buf_str(&b, before_tools, NULL);
    json_array_foreach((json_t *)tools, i, tool)
    {
        if (rc == 0) rc = json_text_add(&b, json_object_get(tool, "function"), FLAGS, "a tool", NULL);
        if (rc == 0) rc = buf_str(&b, "\n", NULL);
    }
    if (rc == 0) rc = buf_str(&b, after_tools, NULL);
    return take(&b, rc);
}

static json_t *write_calls(const json_t *calls)
{
    struct buf b = {0};
    size_t i;
    json_t *call;
    int rc = 0;
    json_array_foreach((json_t *)calls, i, call)
    {
        const json_t *f = json_object_get(call, "function");
        if (rc == 0) rc = buf_str(&b, i ? "\n<tool_call>\n{\"name\": " : "<tool_call>\n{\"name\": ", NULL);
        if (rc == 0) rc = json_text_add(&b, json_object_get(f, "name"), FLAGS, "a call", NULL);
        if (rc == 0) rc = buf_str(&b, ", \"arguments\": ", NULL);
        if (rc == 0) rc = json_text_add(&b, json_object_get(f, "arguments"), FLAGS, "a call", NULL);
        if (rc == 0) rc = buf_str(&b, "}\n</tool_call>", NULL);
    }
    return take(&b, rc);
}

/* ---- calls in the shape of Python ---- */

static const char begin_python[] = "<|tool_call_start|>", end_python[] = "<|tool_call_end|>";

static int write_literal(struct buf *b, const json_t *v)
{
    const char *key;
    json_t *one;
    size_t i;
    int rc = 0;
    if (json_is_boolean(v)) return buf_str(b, json_is_true(v) ? "True" : "False", NULL);
    if (json_is_null(v)) return buf_str(b, "None", NULL);
    if (!json_is_array(v) && !json_is_object(v)) return json_text_add(b, v, FLAGS, "a call", NULL);
    rc = buf_str(b, json_is_array(v) ? "[" : "{", NULL);
    json_array_foreach((json_t *)v, i, one)
    {
        if (rc == 0 && i) rc = buf_str(b, ", ", NULL);
        if (rc == 0) rc = write_literal(b, one);
    }
    i = 0;
    json_object_foreach((json_t *)v, key, one)
    {
        json_t *name = json_string(key);
        if (rc == 0 && i++) rc = buf_str(b, ", ", NULL);
        if (rc == 0) rc = json_text_add(b, name, FLAGS, "a call", NULL);
        if (rc == 0) rc = buf_str(b, ": ", NULL);
        if (rc == 0) rc = write_literal(b, one);
        json_decref(name);
    }
    return rc ? rc : buf_str(b, json_is_array(v) ? "]" : "}", NULL);
}

/* Arguments that are no object stay as the model wrote them. */
static int write_arguments(struct buf *b, const json_t *arguments)
{
    const char *key;
    json_t *one;
    int rc = 0, n = 0;
    if (json_is_string(arguments)) return buf_add(b, json_string_value(arguments), json_string_length(arguments), NULL);
    json_object_foreach((json_t *)arguments, key, one)
    {
        if (rc == 0 && n++) rc = buf_str(b, ", ", NULL);
        if (rc == 0) rc = buf_str(b, key, NULL);
        if (rc == 0) rc = buf_str(b, "=", NULL);
        if (rc == 0) rc = write_literal(b, one);
    }
    return rc;
}

static json_t *write_python(const json_t *calls)
{
    struct buf b = {0};
    size_t i;
    json_t *call;
    int rc = buf_str(&b, begin_python, NULL);
    if (rc == 0) rc = buf_str(&b, "[", NULL);
    json_array_foreach((json_t *)calls, i, call)
    {
        const json_t *f = json_object_get(call, "function"), *name = json_object_get(f, "name");
        if (rc == 0 && i) rc = buf_str(&b, ", ", NULL);
        if (rc == 0) rc = buf_add(&b, json_string_value(name), json_string_length(name), NULL);
        if (rc == 0) rc = buf_str(&b, "(", NULL);
        if (rc == 0) rc = write_arguments(&b, json_object_get(f, "arguments"));
        if (rc == 0) rc = buf_str(&b, ")", NULL);
    }
    if (rc == 0) rc = buf_str(&b, "]", NULL);
    if (rc == 0) rc = buf_str(&b, end_python, NULL);
    return take(&b, rc);
}

/* ---- messages ---- */

/* A copy of the message with its calls as text, which are the last *n bytes of its content. */
static json_t *with_calls(const json_t *m, json_t *(*write)(const json_t *calls), size_t *n)
{
    json_t *copy = json_copy((json_t *)m), *text = write(json_object_get(m, "tool_calls"));
    int rc = json_object_set_new(copy, "content", text ? chat_join(json_object_get(m, "content"), text) : NULL);
    *n = json_string_length(text);
    json_decref(text);
    json_object_del(copy, "tool_calls");
    if (rc == 0) return copy;
    json_decref(copy);
    return NULL;
}

static bool has_role(const json_t *m, const char *role)
{
    return m && strcmp(json_string_value(json_object_get(m, "role")), role) == 0;
}

/* The results of list[*i] and of the results after it, in one message. *i becomes the index of the last one. */
static json_t *write_results(const json_t *list, size_t *i)
{
    struct buf b = {0};
    int rc = 0;
    size_t k = *i;
    for (; has_role(json_array_get(list, k), "tool"); k++) {
        const json_t *text = json_object_get(json_array_get(list, k), "content");
        if (rc == 0) rc = buf_str(&b, k > *i ? "\n<tool_response>\n" : "<tool_response>\n", NULL);
        if (rc == 0 && json_is_string(text)) rc = buf_add(&b, json_string_value(text), json_string_length(text), NULL);
        if (rc == 0) rc = buf_str(&b, "\n</tool_response>", NULL);
    }
    *i = k - 1;
    json_t *text = take(&b, rc);
    return text ? json_pack("{s:s, s:o}", "role", "user", "content", text) : NULL;
}

json_t *chat_tools_as_text(const json_t *messages, const json_t *tools, bool *any)
{
    json_t *list = json_array(), *prompt = json_array_size(tools) > 0 ? describe(tools) : json_null();
    int rc = list && prompt ? 0 : -1;
    bool system = has_role(json_array_get(messages, 0), "system");
    size_t n;
    *any = json_is_string(prompt);
    if (*any && !system)
        rc |= json_array_append_new(list, json_pack("{s:s, s:O}", "role", "system", "content", prompt));
    for (size_t i = 0; i < json_array_size(messages) && rc == 0; i++) {
        json_t *m = json_array_get(messages, i), *made;
        if (i == 0 && system && json_is_string(prompt)) {
            made = json_copy(m);
            rc |= json_object_set_new(made, "content", chat_join(json_object_get(m, "content"), prompt));
        } else if (has_role(m, "tool")) {
            made = write_results(messages, &i);
            *any = true;
        } else if (json_object_get(m, "tool_calls")) {
            made = with_calls(m, write_calls, &n);
            *any = true;
        } else {
            made = json_incref(m);
        }
        rc |= json_array_append_new(list, made);
    }
    json_decref(prompt);
    if (rc == 0) return list;
    json_decref(list);
    return NULL;
}

/* Notes n bytes of a string. */
static int note(json_t *ours, json_t *string, size_t at, size_t n)
{
    return json_array_append(ours, string) | json_array_append_new(ours, json_integer((json_int_t)at)) |
           json_array_append_new(ours, json_integer((json_int_t)n));
}

json_t *chat_calls_as_python(const json_t *messages, json_t *ours)
{
    json_t *list = json_array(), *m;
    size_t i, n = 0;
    int rc = list ? 0 : -1;
    json_array_foreach((json_t *)messages, i, m)
    {
        bool calls = json_object_get(m, "tool_calls") != NULL;
        json_t *made = calls ? with_calls(m, write_python, &n) : json_incref(m);
        json_t *content = json_object_get(made, "content");
        size_t end = json_string_length(content);
        if (calls && made) {
            rc |= note(ours, content, end - n, strlen(begin_python));
            rc |= note(ours, content, end - strlen(end_python), strlen(end_python));
        }
        rc |= json_array_append_new(list, made);
    }
    if (rc == 0) return list;
    json_decref(list);
    return NULL;
}
