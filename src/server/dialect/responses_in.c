/* SPDX-License-Identifier: MIT
 *
 * responses_in.c: reads requests of POST /v1/responses: input items become the messages that a chat template takes.
 *
 * The items of earlier responses come before those of the request and replace references to them
 * (responses_items.c).
 *
 * Source: the OpenAI API reference ("Responses").
 */
#include "server/dialect/responses.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_text.h"

#define AT(member) offsetof(struct answer_params, member)

/* ---- items ---- */

struct item {
    const char *type, *role, *call_id, *name, *id, *status;
    const json_t *text, *arguments, *output, *content, *summary, *annotations;
};

#define STRING(field)                                                                                                  \
    {                                                                                                                  \
        .name = #field, .type = FIELD_STRING, .at = offsetof(struct item, field), .hi = 1 << 28                        \
    }
#define NEEDED(field)                                                                                                  \
    {                                                                                                                  \
        .name = #field, .type = FIELD_STRING, .at = offsetof(struct item, field), .hi = 1 << 28, .required = true      \
    }
#define TEXT(field)                                                                                                    \
    {                                                                                                                  \
        .name = #field, .type = FIELD_TEXT, .at = offsetof(struct item, field), .hi = 1 << 28, .required = true        \
    }
#define CHANGELESS(field)                                                                                              \
    {                                                                                                                  \
        .name = #field, .type = FIELD_STRING, .at = offsetof(struct item, field), .hi = 1024                           \
    }

static const struct field every_item[] = {CHANGELESS(id),        CHANGELESS(status),     CHANGELESS(type),
                                          IGNORED("phase", "s"), IGNORED("caller", "o"), {0}};
static const struct field message_rows[] = {
    NEEDED(role), {.name = "content", .type = FIELD_ANY, .at = offsetof(struct item, content), .required = true}, {0}};
static const struct field call_rows[] = {NEEDED(call_id), NEEDED(name), TEXT(arguments), {0}};
static const struct field output_rows[] = {
    NEEDED(call_id), {.name = "output", .type = FIELD_ANY, .at = offsetof(struct item, output), .required = true}, {0}};
static const struct field reasoning_rows[] = {
    {.name = "content", .type = FIELD_ARRAY, .at = offsetof(struct item, content), .hi = INT_MAX},
    {.name = "summary", .type = FIELD_ARRAY, .at = offsetof(struct item, summary), .hi = INT_MAX},
    IGNORED("encrypted_content", "s"),
    {0}};
static const struct field refusal_rows[] = {
    {.name = "refusal", .type = FIELD_TEXT, .at = offsetof(struct item, text), .hi = 1 << 28, .required = true},
    CHANGELESS(type),
    {0}};
static const struct field text_rows[] = {TEXT(text),
                                         CHANGELESS(type),
                                         IGNORED("cache_control", "o"),
                                         IGNORED("prompt_cache_breakpoint", "o"),
                                         {.name = "annotations", .type = FIELD_ONE_OF, .allowed = "[[]]"},
                                         {.name = "logprobs", .type = FIELD_ONE_OF, .allowed = "[[]]"},
                                         {0}};

/* The members of a part, which is of one of the kinds of text. NULL: it is none. */
static const struct field *rows_of_part(const json_t *part)
{
    static const char *const kinds[] = {"input_text", "output_text", "text", "reasoning_text", "summary_text"};
    const json_t *type = json_object_get(part, "type");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (field_is(type, kinds[i])) return text_rows;
    return field_is(type, "refusal") ? refusal_rows : NULL;
}

/* Joins the texts of a message's content, or of a tool's output, to an owned JSON string. name: of the content. */
static json_t *text_of(const struct answer_params *a, const json_t *content, const char *name, struct fault *f)
{
    struct buf text = {0};
    bool bad = false;
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s.", name);
    if (json_is_string(content)) return json_incref((json_t *)(uintptr_t)content);
    if (!json_is_array(content)) {
        field_wrong_type(f, name, "a text or an array of parts", content);
        return NULL;
    }
    for (size_t i = 0; i < json_array_size(content) && !bad; i++) {
        const json_t *v = json_array_get(content, i);
        const char *type = json_string_value(json_object_get(v, "type"));
        const struct field *rows = rows_of_part(v);
        struct item part = {0};
        if (!rows)
            bad = fault_set(f, 400, "unsupported_value", name, "%s: parts of type '%s' are not supported", name,
                            type ? type : "");
        else
            bad = field_read((const struct field *const[]){rows, NULL}, prefix, v, &part, f) ||
                  (buf_add(&text, json_string_value(part.text), json_string_length(part.text), NULL) &&
                   api_no_memory(f)) ||
                  params_is_over(a, i, f);
    }
    if (!bad) return params_joined(&text, f);
    buf_deinit(&text);
    return NULL;
}

/* The assistant's message that an item belongs to: thoughts, text and calls of one turn are one message. */
static json_t *assistant_turn(json_t *out, const char *unless)
{
    json_t *last = json_array_get(out, json_array_size(out) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    if (role && !strcmp(role, "assistant") && !json_object_get(last, unless)) return last;
    json_array_append_new(out, last = json_pack("{s:s}", "role", "assistant"));
    return json_array_get(out, json_array_size(out) - 1) == last ? last : NULL;
}

/* The messages that are being made from items. */
struct messages {
    const struct answer_params *params;
    json_t *out;
    json_t *thinker; /* the turn that `thoughts` belong to; NULL: none */
    struct buf thoughts;
};

/* A turn may think several times, before and between its calls. */
static int end_thoughts(struct messages *m, struct fault *f)
{
    json_t *turn = m->thinker;
    if (!turn) return 0;
    m->thinker = NULL;
    json_t *text = params_joined(&m->thoughts, f);
    return !text || json_object_set_new(turn, "reasoning_content", text) ? api_no_memory(f) : 0;
}

static int add_thoughts(struct messages *m, const json_t *content, struct fault *f)
{
    if (!content || json_array_size(content) == 0) return 0; /* thoughts without content */
    json_t *turn = assistant_turn(m->out, "content"), *text = text_of(m->params, content, "input.content", f);
    int bad = !text || !turn;
    if (!bad && turn != m->thinker) bad = end_thoughts(m, f);
    m->thinker = turn;
    bad = bad || buf_add(&m->thoughts, json_string_value(text), json_string_length(text), NULL);
    json_decref(text);
    return bad ? (f->status ? -1 : api_no_memory(f)) : 0;
}

static int add_message(const struct answer_params *a, json_t *out, const struct item *m, struct fault *f)
{
    json_t *text = text_of(a, m->content, "input.content", f), *turn;
    const char *role = !strcmp(m->role, "developer") ? "system" : m->role;
    if (!text) return -1;
    if (!strcmp(role, "assistant")) {
        turn = assistant_turn(out, "content");
        return json_object_set_new(turn, "content", text) ? api_no_memory(f) : 0;
    }
    if (!strcmp(role, "user") || !strcmp(role, "system")) {
        turn = json_pack("{s:s,s:o}", "role", role, "content", text);
        return json_array_append_new(out, turn) ? api_no_memory(f) : 0;
    }
    json_decref(text);
    return fault_set(f, 400, "unsupported_value", "input.role", "input.role: '%s' is not supported", m->role);
}

static int add_call(json_t *out, const struct item *c, struct fault *f)
{
    json_t *turn = assistant_turn(out, ""), *calls = json_object_get(turn, "tool_calls");
    if (!calls && json_object_set_new(turn, "tool_calls", calls = json_array())) return api_no_memory(f);
    json_t *call = json_pack("{s:s,s:s,s:{s:s,s:O}}", "id", c->call_id, "type", "function", "function", "name", c->name,
                             "arguments", c->arguments);
    return json_array_append_new(calls, call) ? api_no_memory(f) : 0;
}

static int add_item(struct messages *to, const json_t *v, struct fault *f)
{
    json_t *out = to->out;
    static const struct {
        const char *type;
        const struct field *rows;
    } kinds[] = {{"message", message_rows},
                 {"function_call", call_rows},
                 {"function_call_output", output_rows},
                 {"reasoning", reasoning_rows}};
    enum { MESSAGE, CALL, OUTPUT, REASONING, N_KINDS };
    const char *type = json_string_value(json_object_get(v, "type"));
    struct item m = {0};
    int kind = 0;
    json_t *text;
    if (!json_is_object(v)) return field_wrong_type(f, "input", "a text or an array of items", v);
    while (kind < N_KINDS && type && strcmp(kinds[kind].type, type)) kind++;
    if (kind == N_KINDS)
        return fault_set(f, 400, "unsupported_value", "input.type", "input: items of type '%s' are not supported",
                         type);
    if (field_read((const struct field *const[]){kinds[kind].rows, every_item, NULL}, "input.", v, &m, f)) return -1;
    switch (kind) {
    case MESSAGE: return add_message(to->params, out, &m, f);
    case CALL: return add_call(out, &m, f);
    case OUTPUT:
        if (!(text = text_of(to->params, m.output, "input.output", f))) return -1;
        text = json_pack("{s:s,s:s,s:o}", "role", "tool", "tool_call_id", m.call_id, "content", text);
        return json_array_append_new(out, text) ? api_no_memory(f) : 0;
    default: return add_thoughts(to, json_array_size(m.content) ? m.content : m.summary, f);
    }
}

/* Gives an empty text to turns without one: many templates join the content to other text, so it must not be null. */
static int fill_contents(json_t *out, struct fault *f)
{
    for (size_t i = 0; i < json_array_size(out); i++) {
        json_t *m = json_array_get(out, i);
        if (!json_object_get(m, "content") && json_object_set_new(m, "content", json_string("")))
            return api_no_memory(f);
    }
    return 0;
}

int responses_messages(struct answer_params *a, struct fault *f)
{
    const json_t *input = a->messages;
    json_t *out = params_keep(a, json_array(), f);
    if (!out) return -1;
    if (a->system && json_array_append_new(out, json_pack("{s:s,s:O}", "role", "system", "content", a->system)))
        return api_no_memory(f);
    a->messages = out;
    if (json_array_size(input) == 0) return field_wrong_type(f, "input", "a text or an array of items", input);
    struct messages m = {.params = a, .out = out};
    int bad = 0;
    for (size_t i = 0; i < json_array_size(input) && !bad; i++)
        bad = add_item(&m, json_array_get(input, i), f) || params_is_over(a, i, f);
    bad = bad || end_thoughts(&m, f);
    buf_deinit(&m.thoughts);
    return bad ? -1 : fill_contents(out, f);
}

/* ---- fields ---- */

#define PARSE(field, parser)                                                                                           \
    {                                                                                                                  \
        .name = field, .type = FIELD_PARSE, .parse = parser                                                            \
    }
static int parse_instructions(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    (void)field;
    if (!json_is_string(v)) return field_wrong_type(f, name, "a string", v);
    ((struct answer_params *)out)->system = v;
    ((struct answer_params *)out)->instructions = json_incref((json_t *)(uintptr_t)v);
    return 0;
}

/* Functions are flat in this API; chat templates expect them one level deeper. */
static int parse_tools(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    struct answer_params *a = out;
    char place[48];
    (void)field;
    if (!json_is_array(v)) return field_wrong_type(f, name, "an array", v);
    json_t *all = params_keep(a, json_array(), f);
    for (size_t i = 0; all && i < json_array_size(v); i++) {
        const json_t *one = json_array_get(v, i), *type = json_object_get(one, "type");
        snprintf(place, sizeof place, "tools[%zu].type", i);
        if (!field_is(type, "function"))
            return fault_set(f, 400, "unsupported_value", place, "%s: '%.64s' is not supported, only functions are",
                             place, json_is_string(type) ? json_string_value(type) : "");
        const json_t *strict = json_object_get(one, "strict");
        snprintf(place, sizeof place, "tools[%zu].strict", i);
        if (strict && !json_is_boolean(strict) && !json_is_null(strict))
            return field_wrong_type(f, place, "true or false", strict);
        a->calls.strict |= json_is_true(strict);
        json_t *function = json_copy((json_t *)(uintptr_t)one); /* its members are checked when the prompt is made */
        if (function) json_object_del(function, "type");
        if (json_array_append_new(all, json_pack("{s:s,s:o}", "type", "function", "function", function)))
            return api_no_memory(f);
        if (params_is_over(a, i, f)) return -1;
    }
    a->tools = all;
    if (!all) return -1;
    return json_text_add(&a->tools_again, v, JSON_COMPACT, "tools", NULL) ? api_no_memory(f) : 0;
}

/* The thoughts themselves come as their summary; how long it should be changes nothing. */
static int parse_summary(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    (void)field;
    if (!json_is_string(v)) return field_wrong_type(f, name, "a string", v);
    if (!field_is(v, "auto") && !field_is(v, "concise") && !field_is(v, "detailed"))
        return fault_set(f, 400, "invalid_value", name, "%s has to be auto, concise or detailed", name);
    ((struct answer_params *)out)->summary = true;
    return 0;
}

static int parse_reasoning(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    static const struct field rows[] = {
        {.name = "effort", .type = FIELD_STRING, .at = AT(reasoning_effort), .hi = 32},
        PARSE("summary", parse_summary),
        PARSE("generate_summary", parse_summary),
        ONLY("context", "[\"auto\"]"),
        ONLY("mode", "[\"standard\"]"),
        {0},
    };
    (void)field;
    if (!json_is_object(v)) return field_wrong_type(f, name, "an object", v);
    return field_read((const struct field *const[]){rows, NULL}, "reasoning.", v, out, f);
}

static int parse_previous(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    struct answer_params *a = out;
    (void)field;
    if (!json_is_string(v)) return field_wrong_type(f, name, "a string", v);
    if (json_string_length(v) == 0) return fault_set(f, 400, "invalid_value", name, "%s is empty", name);
    if (field_no_nul(name, v, f)) return -1;
    snprintf(a->continues, sizeof a->continues, "%s", json_string_value(v));
    return 0;
}

static int parse_text(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    static const struct field rows[] = {
        {.name = "format", .type = FIELD_PARSE, .parse = format_parse_flat},
        IGNORED("verbosity", "s"),
        {0},
    };
    (void)field;
    if (!json_is_object(v)) return field_wrong_type(f, name, "an object", v);
    return field_read((const struct field *const[]){rows, NULL}, "text.", v, out, f);
}

const struct field responses_fields[] = {
    {.name = "model", .type = FIELD_STRING, .at = AT(model), .hi = 1024},
    {.name = "input", .type = FIELD_ANY, .at = AT(messages), .required = true},
    PARSE("instructions", parse_instructions),
    {.name = "max_output_tokens", .type = FIELD_INT, .at = AT(max_tokens), .lo = 1, .hi = INT_MAX},
    {.name = "stream", .type = FIELD_BOOL, .at = AT(stream)},
    {.name = "temperature", .type = FIELD_FLOAT, .at = AT(sampling.temperature), .lo = 0, .hi = 2},
    {.name = "top_p", .type = FIELD_FLOAT, .at = AT(sampling.top_p), .lo = 0, .hi = 1},
    PARSE("tools", parse_tools),
    PARSE("tool_choice", call_parse_choice),
    PARSE("parallel_tool_calls", params_parse_parallel),
    PARSE("reasoning", parse_reasoning),
    PARSE("text", parse_text),
    PARSE("stream_options", params_parse_stream_options),
    PARSE("context_management", params_parse_context),
    {.name = "store", .type = FIELD_BOOL, .at = AT(store)},
    ONLY("background", "[]"),
    IGNORED("metadata", "o"),
    IGNORED("truncation", "s"),
    IGNORED("include", "a"),
    PARSE("previous_response_id", parse_previous),
    ONLY("conversation", "[]"),
    ONLY("prompt", "[]"),
    IGNORED("top_logprobs", "n"),
    IGNORED("max_tool_calls", "n"),
    {0},
};
