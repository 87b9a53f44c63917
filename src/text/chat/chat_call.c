/* SPDX-License-Identifier: MIT
 *
 * chat_call.c: reads tool calls that are written as JSON, from their opening mark to their end.
 *
 * The text of a call is kept until the call is over. If it turns out not to be a call, because its JSON is malformed,
 * its name is missing or the reply ends too early, all of that text comes out as a QN_REPLY_BAD_CALL. The reader then
 * goes on after the form's closing mark; in a form without one it takes the rest of the reply. JSON without a mark
 * (Llama 3) may not be meant as a call: it is one if it has the name of one of the request's tools, and content
 * otherwise.
 */
#include <string.h>

#include "text/chat/chat_state.h"

void chat_begin_call(struct chat_reply *r, size_t n, chat_state *state)
{
    tool_json_deinit(&r->json);
    chat_fail(r, tool_json_init(&r->json, NULL, 0, &r->error));
    buf_clear(&r->raw);
    chat_take(r, n);
    r->begun = r->bare = r->listed = false;
    r->state = state;
}

void chat_name_call(struct chat_reply *r, const void *name, size_t n)
{
    chat_give(r, QN_REPLY_CALL, name, n);
    r->begun = true;
}

/* ---- its end ---- */

/* The state after a call: takes the mark that closes it, if there is one. */
static bool close_call(struct chat_reply *r)
{
    static const char *const marks[] = {
        [CHAT_CALLS_NONE] = "",
        [CHAT_CALLS_TAG] = "</tool_call>",
        [CHAT_CALLS_LLAMA] = ";",
        [CHAT_CALLS_MISTRAL] = "",
        [CHAT_CALLS_HARMONY] = "",
        [CHAT_CALLS_CODE] = "```",
        [CHAT_CALLS_CALLS] = "</tool_calls>",
        [CHAT_CALLS_UPPER] = "</TOOLCALL>",
        [CHAT_CALLS_PYTHON] = "",
    };
    const char *mark = r->python_end ? r->python_end : marks[r->form.calls];
    chat_take_space(r);
    if (chat_left(r) == 0 && !r->last) return false;
    enum chat_match m = chat_match(r, 0, mark);
    if (m == CHAT_PART) return false;
    if (r->form.calls == CHAT_CALLS_CALLS && chat_left(r) > 0 && *chat_text(r) == '{') { /* one more, without a list */
        chat_begin_call(r, 0, chat_call_json);
        return true;
    }
    if (m == CHAT_YES) chat_skip(r, strlen(mark));
    r->python_end = NULL;
    chat_begin(r);
    return true;
}

/* The state after an element of a list of calls. */
static bool next_listed(struct chat_reply *r)
{
    chat_take_space(r);
    if (chat_left(r) == 0 && !r->last) return false;
    char c = *chat_text(r); /* NUL when no text is left */
    if (c == ',') {
        chat_begin_call(r, 1, chat_call_json);
        r->listed = true;
        return true;
    }
    if (c == ']') chat_skip(r, 1);
    r->state = close_call;
    return true;
}

void chat_end_call(struct chat_reply *r)
{
    chat_give(r, QN_REPLY_CALL_END, "", 0);
    r->n_calls++;
    r->state = r->listed ? next_listed : close_call;
}

static bool give_bad(struct chat_reply *r)
{
    chat_give(r, QN_REPLY_BAD_CALL, r->raw.data, r->raw.len);
    if (r->begun) r->n_calls++;
    r->python_end = NULL;
    chat_begin(r);
    return true;
}

/* The state of a bad call: takes the rest of its text. */
static bool bad_call(struct chat_reply *r)
{
    static const char *const marks[] = {
        [CHAT_CALLS_NONE] = NULL,
        [CHAT_CALLS_TAG] = "</tool_call>",
        [CHAT_CALLS_LLAMA] = NULL,
        [CHAT_CALLS_MISTRAL] = NULL,
        [CHAT_CALLS_HARMONY] = "<|end|>",
        [CHAT_CALLS_CODE] = "```",
        [CHAT_CALLS_CALLS] = "</tool_calls>",
        [CHAT_CALLS_UPPER] = "</TOOLCALL>",
        [CHAT_CALLS_PYTHON] = NULL,
    };
    const char *mark = r->python_end ? r->python_end : marks[r->form.calls];
    size_t at;
    if (mark && chat_find(r, mark, &at)) {
        chat_take(r, at + strlen(mark));
        return give_bad(r);
    }
    if (!r->last) return false;
    chat_take(r, chat_left(r));
    return give_bad(r);
}

bool chat_bad_call(struct chat_reply *r)
{
    r->state = bad_call;
    r->searched = 0;
    if (!r->bare || r->begun) return true;
    chat_take(r, chat_left(r)); /* it never was a call: all of its text is read again, as content */
    struct buf all = r->raw;
    r->raw = r->in;
    r->in = all;
    r->at = 0;
    r->state = chat_content;
    return true;
}

bool chat_need_more(struct chat_reply *r) { return r->last && chat_bad_call(r); }

/* ---- its beginning and its JSON ---- */

bool chat_is_tool(const struct chat_reply *r, const struct buf *name)
{
    size_t i;
    json_t *tool;
    json_array_foreach((json_t *)r->tools, i, tool)
    {
        json_t *known = json_object_get(json_object_get(tool, "function"), "name");
        if (json_string_length(known) == name->len && memcmp(json_string_value(known), name->data, name->len) == 0)
            return true;
    }
    return false;
}

bool chat_call_json(struct chat_reply *r)
{
    struct tool_json *t = &r->json;
    size_t used;
    if (t->text.len == 0) chat_take_space(r);
    if (chat_left(r) == 0) return chat_need_more(r);
    int rc = tool_json_read(t, chat_text(r), chat_left(r), &used, &r->error);
    if (rc < 0) {
        chat_fail(r, rc);
        return false;
    }
    chat_take(r, used);
    if (t->name.len > 0 && !r->begun) {
        if (r->bare && !chat_is_tool(r, &t->name)) return chat_bad_call(r);
        chat_name_call(r, t->name.data, t->name.len);
    }
    if (r->begun) {
        chat_give(r, QN_REPLY_ARGUMENTS, t->args.data, t->args.len);
        buf_clear(&t->args);
    }
    if (rc == TOOL_JSON_BAD || (rc == TOOL_JSON_DONE && !r->begun)) return chat_bad_call(r);
    if (rc == TOOL_JSON_DONE) chat_end_call(r);
    return true;
}

bool chat_call_tag(struct chat_reply *r)
{
    chat_take_space(r);
    if (chat_left(r) == 0) return chat_need_more(r);
    enum chat_match m = chat_match(r, 0, "<function=");
    if (m == CHAT_PART) return false;
    if (m == CHAT_YES) chat_take(r, strlen("<function="));
    r->state = m == CHAT_YES ? chat_call_function : chat_call_json;
    return true;
}

/* Begins a list of calls, or a single call. In a block of code they may have the shape of Python. */
bool chat_call_code(struct chat_reply *r)
{
    chat_take_space(r);
    if (chat_left(r) == 0) return chat_need_more(r);
    if (*chat_text(r) == '[' && !r->listed) {
        chat_take(r, 1);
        r->listed = true;
        return true; /* this state goes on after the bracket */
    }
    bool is_python = r->form.calls == CHAT_CALLS_CODE && chat_is_name(chat_text(r), 1);
    r->state = is_python ? chat_call_block : chat_call_json;
    return true;
}

bool chat_is_name(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!((p[i] >= 'a' && p[i] <= 'z') || (p[i] >= 'A' && p[i] <= 'Z') || (p[i] >= '0' && p[i] <= '9') ||
              memchr("_-.:/", p[i], 5)))
            return false;
    return n > 0;
}

/* Reads NAME[ARGS], perhaps with [CALL_ID] and an id in between. */
static bool mistral_name(struct chat_reply *r)
{
    size_t at;
    if (!chat_find(r, "[ARGS]", &at)) {
        bool too_long = chat_left(r) > CHAT_MAX_NAME + strlen("[ARGS]");
        return too_long || r->last ? chat_bad_call(r) : false;
    }
    const char *p = chat_text(r), *id = memmem(p, at, "[CALL_ID]", strlen("[CALL_ID]"));
    size_t n = id ? (size_t)(id - p) : at;
    if (at > CHAT_MAX_NAME || !chat_is_name(p, n)) return chat_bad_call(r);
    tool_json_deinit(&r->json);
    chat_fail(r, tool_json_init(&r->json, p, n, &r->error));
    chat_take(r, at + strlen("[ARGS]"));
    r->state = chat_call_json;
    return true;
}

bool chat_call_mistral(struct chat_reply *r)
{
    chat_take_space(r);
    if (chat_left(r) == 0) return chat_need_more(r);
    r->state = *chat_text(r) == '[' ? chat_call_code : mistral_name;
    return true;
}
