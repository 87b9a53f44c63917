/* SPDX-License-Identifier: MIT
 *
 * openai_chat_in.c: gives the conversation of a chat completion the shape that chat templates take.
 *
 * Templates know parts of one type, "text". Clients that translate between APIs also send input_text and output_text,
 * which mean the same, and an assistant's refusal, which is text that it said. Members that change nothing are noted;
 * all other members go to the template as they are.
 *
 * Source: the OpenAI API reference, "Chat".
 */
#include "server/api/api_impl.h"

#include <stdio.h>

/* A part of a message as it was given (new reference), or the part of type text that means the same. NULL: no memory.
 */
static json_t *part_of(const json_t *given)
{
    const json_t *type = json_object_get(given, "type"), *text = NULL;
    if (field_is(type, "input_text") || field_is(type, "output_text")) text = json_object_get(given, "text");
    if (field_is(type, "refusal")) text = json_object_get(given, "refusal");
    if (!json_is_string(text)) return json_incref((json_t *)(uintptr_t)given);
    return json_pack("{s:s,s:O}", "type", "text", "text", text);
}

/* Notes a member if it asks for something. where: of the object. */
static int note(struct fault *f, const json_t *o, const char *where, const char *member)
{
    char name[96];
    if (field_is_empty(json_object_get(o, member))) return 0;
    snprintf(name, sizeof name, "%s.%s", where, member);
    return field_ignore(f, name);
}

/* Makes the parts of message i. */
static json_t *parts_of(const struct answer_params *a, const json_t *parts, size_t i, struct fault *f)
{
    json_t *out = json_array();
    bool bad = !out && api_no_memory(f);
    char where[72];
    for (size_t k = 0; k < json_array_size(parts) && !bad; k++) {
        const json_t *part = json_array_get(parts, k);
        snprintf(where, sizeof where, "messages[%zu].content[%zu]", i, k);
        bad = (json_array_append_new(out, part_of(part)) && api_no_memory(f)) ||
              note(f, part, where, "cache_control") || note(f, part, where, "prompt_cache_breakpoint") ||
              params_is_over(a, k, f);
    }
    if (!bad) return out;
    json_decref(out);
    return NULL;
}

/* Makes message i: given (new reference), or a copy with another content. NULL and *f: it failed. */
static json_t *message_of(const struct answer_params *a, json_t *given, size_t i, struct fault *f)
{
    json_t *content = json_object_get(given, "content"), *refusal = json_object_get(given, "refusal"), *made = NULL;
    if (json_is_array(content)) {
        if (!(made = parts_of(a, content, i, f))) return NULL;
    } else if (json_is_string(refusal) && field_is_empty(content)) {
        made = json_incref(refusal);
    }
    if (!made) return json_incref(given);
    json_t *copy = json_copy(given);
    if (json_object_set_new(copy, "content", made) == 0) return copy;
    json_decref(copy);
    api_no_memory(f);
    return NULL;
}

static int note_tools(struct answer_params *a, struct fault *f)
{
    const json_t *tools = a->tools;
    char where[40], name[48];
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i), *function = json_object_get(tool, "function");
        const json_t *strict = json_object_get(function, "strict");
        snprintf(where, sizeof where, "tools[%zu]", i);
        snprintf(name, sizeof name, "tools[%zu].strict", i);
        if (strict && !json_is_null(strict) && !json_is_boolean(strict))
            return field_wrong_type(f, name, "true or false", strict);
        a->calls.strict |= json_is_true(strict);
        if (note(f, tool, where, "strict")) return -1;
        if (note(f, tool, where, "cache_control") || note(f, tool, where, "eager_input_streaming")) return -1;
    }
    return 0;
}

int openai_messages(struct answer_params *a, struct fault *f)
{
    size_t n = json_array_size(a->messages);
    const json_t *last = json_array_get(a->messages, n - 1);
    if (a->continue_final && !field_is(json_object_get(last, "role"), "assistant"))
        return fault_set(f, 400, "invalid_value", "continue_final_message",
                         "continue_final_message: the last message has to be the assistant's");
    char where[40];
    json_t *out = params_keep(a, json_array(), f);
    if (!out || note_tools(a, f)) return -1;
    for (size_t i = 0; i < n; i++) {
        json_t *given = json_array_get(a->messages, i), *made = message_of(a, given, i, f);
        if (!made) return -1;
        if (json_array_append_new(out, made)) return api_no_memory(f);
        snprintf(where, sizeof where, "messages[%zu]", i);
        if (note(f, given, where, "cache_control") || params_is_over(a, i, f)) return -1;
    }
    a->messages = out;
    return 0;
}
