/* SPDX-License-Identifier: MIT
 *
 * chat_input.c: checks a request, and makes the variables of a template.
 *
 * Parts that are not text are refused by name. Roles are not checked: the template decides what to do with them.
 * chat_adapt.c gives the messages their shape.
 */
#include "text/chat/chat_input.h"

#include <stdarg.h>
#include <string.h>

#include "text/chat/chat_adapt.h"

static int nomem(struct qn_error *e) { return error_nomem(e, "a chat request", 0); }

/* ---- checks ---- */

static int check_member(const json_t *o, const char *where, const char *key, bool required, json_type type,
                        const char *what, struct qn_error *e)
{
    const json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v)) return required ? error_set(e, QN_EUSAGE, "chat: %s%s is missing", where, key) : 0;
    bool ok = json_typeof(v) == type || (type == JSON_TRUE && json_is_boolean(v));
    return ok ? 0 : error_set(e, QN_EUSAGE, "chat: %s%s is not %s", where, key, what);
}

/* Checks a required string that names something, and so must not contain U+0000. */
static int check_name(const json_t *o, const char *where, const char *key, struct qn_error *e)
{
    const json_t *v = json_object_get(o, key);
    int rc = check_member(o, where, key, true, JSON_STRING, "a string", e);
    if (rc || !memchr(json_string_value(v), 0, json_string_length(v))) return rc;
    return error_set(e, QN_EUSAGE, "chat: %s%s has the character U+0000 in it, which only texts may have", where, key);
}

static int check_content(const json_t *content, const char *where, struct qn_error *e)
{
    size_t i;
    json_t *part;
    if (!content || json_is_null(content) || json_is_string(content)) return 0;
    if (!json_is_array(content))
        return error_set(e, QN_EUSAGE, "chat: %scontent is neither a string nor a list of parts", where);
    json_array_foreach((json_t *)content, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!type) return error_set(e, QN_EUSAGE, "chat: %scontent[%zu] has no type", where, i);
        if (strcmp(type, "text") != 0 || json_string_length(json_object_get(part, "type")) != 4)
            return error_set(e, QN_EUSAGE, "chat: %scontent[%zu] is of type '%s' (only 'text' can be read)", where, i,
                             type);
        if (!json_is_string(json_object_get(part, "text")))
            return error_set(e, QN_EUSAGE, "chat: %scontent[%zu].text is not a string", where, i);
    }
    return 0;
}

static int check_calls(const json_t *calls, const char *where, struct qn_error *e)
{
    size_t i;
    json_t *call;
    char at[96];
    json_array_foreach((json_t *)calls, i, call)
    {
        json_t *f = json_object_get(call, "function");
        snprintf(at, sizeof at, "%stool_calls[%zu].function.", where, i);
        if (!json_is_object(f)) return error_set(e, QN_EUSAGE, "chat: %stool_calls[%zu].function is missing", where, i);
        int rc = check_name(f, at, "name", e);
        if (rc) return rc;
    }
    return 0;
}

static int check_messages(const json_t *messages, struct qn_error *e)
{
    size_t i;
    json_t *m;
    char where[48];
    if (json_array_size(messages) == 0) return error_set(e, QN_EUSAGE, "chat: messages is empty");
    json_array_foreach((json_t *)messages, i, m)
    {
        snprintf(where, sizeof where, "messages[%zu].", i);
        if (!json_is_object(m)) return error_set(e, QN_EUSAGE, "chat: messages[%zu] is not an object", i);
        int rc = check_name(m, where, "role", e);
        if (!rc) rc = check_content(json_object_get(m, "content"), where, e);
        if (!rc) rc = check_member(m, where, "tool_calls", false, JSON_ARRAY, "a list", e);
        if (!rc) rc = check_calls(json_object_get(m, "tool_calls"), where, e);
        if (rc) return rc;
    }
    return 0;
}

/* Notes the name of tool number i in `seen`: a call says which tool it is for by the name alone. */
static int check_new_name(json_t *seen, const json_t *tool, size_t i, struct qn_error *e)
{
    const char *name = json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
    const json_t *before = json_object_get(seen, name);
    if (!before) return json_object_set_new(seen, name, json_integer((json_int_t)i)) ? nomem(e) : 0;
    return error_set(e, QN_EUSAGE, "chat: tools[%zu].function.name: '%.100s' is the name of tools[%lld] already", i,
                     name, (long long)json_integer_value(before));
}

static int check_names(const json_t *tools, struct qn_error *e)
{
    json_t *seen = json_object();
    int rc = seen ? 0 : nomem(e);
    for (size_t i = 0; i < json_array_size(tools) && !rc; i++)
        rc = check_new_name(seen, json_array_get(tools, i), i, e);
    json_decref(seen);
    return rc;
}

static int check_tools(const json_t *tools, struct qn_error *e)
{
    size_t i;
    json_t *tool;
    char where[48];
    json_array_foreach((json_t *)tools, i, tool)
    {
        const char *type = json_string_value(json_object_get(tool, "type"));
        snprintf(where, sizeof where, "tools[%zu].function.", i);
        if (!type || strcmp(type, "function") != 0 || json_string_length(json_object_get(tool, "type")) != 8)
            return error_set(e, QN_EUSAGE, "chat: tools[%zu].type is not 'function'", i);
        if (!json_is_object(json_object_get(tool, "function")))
            return error_set(e, QN_EUSAGE, "chat: tools[%zu].function is missing", i);
        int rc = check_name(json_object_get(tool, "function"), where, "name", e);
        if (rc) return rc;
        if (json_string_length(json_object_get(json_object_get(tool, "function"), "name")) == 0)
            return error_set(e, QN_EUSAGE, "chat: %sname is empty", where);
    }
    return check_names(tools, e);
}

static int check(const json_t *request, struct qn_error *e)
{
    static const struct {
        const char *key, *what;
        json_type type;
    } members[] = {
        {"messages", "a list", JSON_ARRAY},
        {"tools", "a list", JSON_ARRAY},
        {"documents", "a list", JSON_ARRAY},
        {"add_generation_prompt", "true or false", JSON_TRUE},
        {"chat_template_kwargs", "an object", JSON_OBJECT},
    };
    const size_t n = sizeof members / sizeof members[0];
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)request, key, v)
    {
        size_t i = 0;
        while (i < n && strcmp(key, members[i].key) != 0) i++;
        if (i == n) return error_set(e, QN_EUSAGE, "chat: %.100s is not known", key);
    }
    for (size_t i = 0; i < n; i++) {
        int rc = check_member(request, "", members[i].key, i == 0, members[i].type, members[i].what, e);
        if (rc) return rc;
    }
    int rc = check_messages(json_object_get(request, "messages"), e);
    return rc ? rc : check_tools(json_object_get(request, "tools"), e);
}

int chat_request_parse(json_t **out, const char *text, size_t n, struct qn_error *e)
{
    json_error_t why;
    json_t *request = json_loadb(text, n, JSON_ALLOW_NUL, &why);
    if (!request) {
        if (json_error_code(&why) == json_error_out_of_memory) return nomem(e);
        return error_set(e, QN_EUSAGE, "chat: the request is not JSON: line %d: %s", why.line, why.text);
    }
    int rc =
        json_is_object(request) ? check(request, e) : error_set(e, QN_EUSAGE, "chat: the request is not an object");
    if (rc) {
        json_decref(request);
        return rc;
    }
    *out = request;
    return 0;
}

/* ---- the template's variables ---- */

/* Some templates build control tokens from a message's role. So the known roles, which are words of the API, count as
 * the template's own text. */
bool chat_vouch(void *arg, const char *key, const char *text, size_t n)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool", "developer"};
    (void)arg;
    if (strcmp(key, "role") != 0) return false;
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (strlen(roles[i]) == n && memcmp(roles[i], text, n) == 0) return true;
    return false;
}

bool chat_is_prefilled(const json_t *request)
{
    const json_t *messages = json_object_get(request, "messages"), *last;
    last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    return strcmp(role, "assistant") == 0 && json_array_size(json_object_get(last, "tool_calls")) == 0;
}

static int set_list(json_t *context, const char *key, json_t *list, const struct chat_taste *taste)
{
    json_t *none = taste->need & CHAT_NEED_LISTS ? json_array() : json_null();
    int rc = json_object_set(context, key, json_array_size(list) > 0 ? list : none);
    json_decref(none);
    return rc;
}

int chat_context(json_t **out, json_t **ours, const json_t *request, const struct chat_taste *taste, const char *ending,
                 unsigned *changed, struct qn_error *e)
{
    json_t *context = json_object(), *parts = json_array(), *kwargs = json_object_get(request, "chat_template_kwargs");
    json_t *generation = json_object_get(request, "add_generation_prompt");
    int rc = json_object_set_new(context, "messages", chat_adapt(request, taste, ending, changed, parts));
    json_t *tools = taste->need & CHAT_NEED_TOOL_TEXT ? NULL : json_object_get(request, "tools");
    rc |= set_list(context, "tools", tools, taste);
    rc |= set_list(context, "documents", json_object_get(request, "documents"), taste);
    rc |= json_object_set_new(context, "add_generation_prompt", json_boolean(!ending && !json_is_false(generation)));
    if (kwargs && !json_is_null(kwargs)) rc |= json_object_update_missing(context, kwargs);
    if (rc || !parts) {
        json_decref(context);
        json_decref(parts);
        return nomem(e);
    }
    *out = context;
    *ours = parts;
    return 0;
}
