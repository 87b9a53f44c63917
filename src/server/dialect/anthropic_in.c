/* SPDX-License-Identifier: MIT
 *
 * anthropic_in.c: reads requests of POST /v1/messages and /v1/messages/count_tokens, and turns them into the
 * conversation that a chat template takes: system becomes a message, blocks become texts and tool calls, and a tool's
 * result becomes a message of its own.
 *
 * cache_control changes nothing, because every prefix is cached anyway; it is noted with its place. Images are refused.
 *
 * Source: the Anthropic API reference ("Messages").
 */
#include "server/dialect/anthropic.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_text.h"

#define AT(member) offsetof(struct answer_params, member)

/* ---- blocks ---- */

struct content_block {
    const char *type, *id, *name, *signature, *data;
    const json_t *text, *thinking, *input, *content;
};

/* Where a block stands, for messages: "messages[3].content[0]". */
struct place_name {
    char text[96];
};

#define MEMBER(field, kind)                                                                                            \
    {                                                                                                                  \
        .name = #field, .type = kind, .at = offsetof(struct content_block, field), .hi = 1 << 28                       \
    }

#define NEEDED(field, kind)                                                                                            \
    {                                                                                                                  \
        .name = #field, .type = kind, .at = offsetof(struct content_block, field), .hi = 1 << 28, .required = true     \
    }

static const struct field block_type = {
    .name = "type", .type = FIELD_STRING, .at = offsetof(struct content_block, type), .hi = 64, .required = true};

static const struct {
    const char *type;
    struct field rows[7];
} blocks[] = {
    {"text",
     {NEEDED(text, FIELD_TEXT),
      IGNORED("cache_control", "o"),
      {.name = "citations", .type = FIELD_ONE_OF, .allowed = "[]"}}},
    {"thinking", {NEEDED(thinking, FIELD_TEXT), MEMBER(signature, FIELD_STRING), IGNORED("cache_control", "o")}},
    {"tool_use",
     {NEEDED(id, FIELD_STRING), NEEDED(name, FIELD_STRING), NEEDED(input, FIELD_OBJECT), IGNORED("cache_control", "o"),
      IGNORED("caller", "o"), IGNORED("toolset_name", "s")}},
    {"tool_result",
     {{.name = "tool_use_id",
       .type = FIELD_STRING,
       .at = offsetof(struct content_block, id),
       .hi = 1 << 10,
       .required = true},
      {.name = "content", .type = FIELD_ANY, .at = offsetof(struct content_block, content)},
      IGNORED("is_error", "b"), /* templates have no word for it; the content says it, too */
      IGNORED("toolset_name", "s"),
      IGNORED("cache_control", "o")}},
    {"redacted_thinking", {MEMBER(data, FIELD_STRING), IGNORED("cache_control", "o")}},
};

/* Returns the kind of block, or -1 and *f. */
static int read_block(const json_t *v, const char *name, struct content_block *b, struct fault *f)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    const struct field also[] = {block_type, {0}};
    char prefix[104];
    snprintf(prefix, sizeof prefix, "%s.", name);
    *b = (struct content_block){0};
    if (!json_is_object(v)) return field_wrong_type(f, name, "a block", v);
    for (int i = 0; type && i < (int)(sizeof blocks / sizeof blocks[0]); i++) {
        if (strcmp(blocks[i].type, type)) continue;
        return field_read((const struct field *const[]){blocks[i].rows, also, NULL}, prefix, v, b, f) ? -1 : i;
    }
    return fault_set(f, 400, "unsupported_value", name, "%stype: blocks of type '%s' are not supported", prefix,
                     type ? type : "");
}

enum { TEXT, THINKING, TOOL_USE, TOOL_RESULT, REDACTED };

/* The name of the i-th element of a list. */
static struct place_name element(const char *list, size_t i)
{
    struct place_name p;
    snprintf(p.text, sizeof p.text, "%.70s[%zu]", list, i);
    return p;
}

/* Joins a string, or the texts of text blocks, to an owned JSON string. */
static json_t *text_of(const struct answer_params *a, const json_t *v, const char *name, struct fault *f)
{
    struct content_block b;
    struct buf text = {0};
    bool bad = false;
    if (json_is_string(v)) return json_incref((json_t *)(uintptr_t)v);
    if (!json_is_array(v)) {
        field_wrong_type(f, name, "a text or an array of text blocks", v);
        return NULL;
    }
    for (size_t i = 0; i < json_array_size(v) && !bad; i++) {
        int kind = read_block(json_array_get(v, i), element(name, i).text, &b, f);
        if (kind > TEXT) field_unsupported(f, name, "anything but text blocks is");
        bad = kind != TEXT ||
              (buf_add(&text, json_string_value(b.text), json_string_length(b.text), NULL) && api_no_memory(f)) ||
              params_is_over(a, i, f);
    }
    if (!bad) return params_joined(&text, f);
    buf_deinit(&text);
    return NULL;
}

/* ---- messages ---- */

/* A message that is being made from blocks. */
struct message_turn {
    const struct answer_params *params;
    json_t *out; /* all messages; results of tools are messages of their own, before this one */
    bool assistant, has_text, has_thoughts;
    struct buf text, thoughts;
    json_t *calls; /* NULL: none */
};

static int add_result(struct message_turn *t, const struct content_block *b, const char *name, struct fault *f)
{
    char place[96];
    snprintf(place, sizeof place, "%.80s.content", name);
    json_t *text = b->content ? text_of(t->params, b->content, place, f) : json_string("");
    if (!text) return b->content ? -1 : api_no_memory(f);
    json_t *m = json_pack("{s:s,s:s,s:o}", "role", "tool", "tool_call_id", b->id, "content", text);
    return json_array_append_new(t->out, m) ? api_no_memory(f) : 0;
}

static int add_use(struct message_turn *t, const struct content_block *b, struct fault *f)
{
    struct buf arguments = {0};
    int bad = json_text_add(&arguments, b->input, JSON_COMPACT, "arguments", NULL);
    if (!t->calls) t->calls = json_array();
    json_t *call = bad ? NULL
                       : json_pack("{s:s,s:s,s:{s:s,s:s%}}", "id", b->id, "type", "function", "function", "name",
                                   b->name, "arguments", (char *)arguments.data, arguments.len);
    bad = json_array_append_new(t->calls, call);
    buf_deinit(&arguments);
    return bad ? api_no_memory(f) : 0;
}

static int add_text(struct buf *to, bool *has, const json_t *text, struct fault *f)
{
    *has = true;
    return buf_add(to, json_string_value(text), json_string_length(text), NULL) ? api_no_memory(f) : 0;
}

static int add_block(struct message_turn *t, const json_t *v, const char *name, struct fault *f)
{
    struct content_block b;
    int kind = read_block(v, name, &b, f);
    if (kind < 0) return -1;
    if (kind == TEXT) return add_text(&t->text, &t->has_text, b.text, f);
    if (t->assistant != (kind != TOOL_RESULT))
        return fault_set(f, 400, "invalid_value", "messages",
                         "messages: a message of the %s has no blocks of type '%s'",
                         t->assistant ? "assistant" : "user", b.type);
    if (kind == THINKING) return add_text(&t->thoughts, &t->has_thoughts, b.thinking, f);
    if (kind == REDACTED) return field_ignore(f, name); /* only the service that wrote it can read it */
    return kind == TOOL_RESULT ? add_result(t, &b, name, f) : add_use(t, &b, f);
}

/* Adds the message that was made from blocks, if there is one, after the tool results that stood among the blocks. */
static int add_turn(struct message_turn *t, const char *role, struct fault *f)
{
    if (!t->has_text && !t->has_thoughts && !t->calls) return 0;
    json_t *m = json_pack("{s:s}", "role", role), *text;
    int bad = 0;
    if (t->has_thoughts)
        bad = !(text = params_joined(&t->thoughts, f)) || json_object_set_new(m, "reasoning_content", text);
    /* Many templates join the content of a message to other text, so it must not be null. */
    bad = bad || !(text = params_joined(&t->text, f)) || json_object_set_new(m, "content", text);
    if (t->calls) bad = bad || json_object_set(m, "tool_calls", t->calls);
    if (!bad) return json_array_append_new(t->out, m) ? api_no_memory(f) : 0;
    json_decref(m);
    return api_no_memory(f);
}

static int add_blocks(const struct answer_params *a, json_t *out, const char *role, const json_t *content,
                      const char *name, struct fault *f)
{
    struct message_turn t = {.params = a, .out = out, .assistant = !strcmp(role, "assistant")};
    int bad = 0;
    for (size_t i = 0; i < json_array_size(content) && !bad; i++)
        bad = add_block(&t, json_array_get(content, i), element(name, i).text, f) || params_is_over(a, i, f);
    bad = bad || add_turn(&t, role, f);
    buf_deinit(&t.text);
    buf_deinit(&t.thoughts);
    json_decref(t.calls);
    return bad ? -1 : 0;
}

/* Adds one message of the request, which may become several. */
static int add_message(const struct answer_params *a, json_t *out, size_t i, struct fault *f)
{
    const json_t *v = json_array_get(a->messages, i);
    char prefix[48], name[48];
    struct {
        const char *role;
        const json_t *content;
    } m = {0};
    static const struct field rows[] = {
        {.name = "role", .type = FIELD_STRING, .at = 0, .lo = 1, .hi = 64, .required = true},
        {.name = "content", .type = FIELD_ANY, .at = sizeof(char *), .required = true},
        {0},
    };
    if (!json_is_object(v)) return field_wrong_type(f, "messages", "an array of objects", v);
    snprintf(prefix, sizeof prefix, "messages[%zu].", i);
    snprintf(name, sizeof name, "messages[%zu].content", i);
    if (field_read((const struct field *const[]){rows, NULL}, prefix, v, &m, f)) return -1;
    if (strcmp(m.role, "assistant") && strcmp(m.role, "user"))
        return fault_set(f, 400, "unsupported_value", "messages.role", "messages.role has to be user or assistant");
    if (json_is_array(m.content)) return add_blocks(a, out, m.role, m.content, name, f);
    if (!json_is_string(m.content))
        return field_wrong_type(f, "messages.content", "a text or an array of blocks", m.content);
    json_t *made = json_pack("{s:s,s:O}", "role", m.role, "content", m.content);
    return json_array_append_new(out, made) ? api_no_memory(f) : 0;
}

int anthropic_messages(struct answer_params *a, struct fault *f)
{
    json_t *out = params_keep(a, json_array(), f);
    if (!out) return -1;
    if (a->system) {
        json_t *text = text_of(a, a->system, "system", f);
        if (!text) return -1;
        if (json_array_append_new(out, json_pack("{s:s,s:o}", "role", "system", "content", text)))
            return api_no_memory(f);
    }
    for (size_t i = 0; i < json_array_size(a->messages); i++)
        if (add_message(a, out, i, f) || params_is_over(a, i, f)) return -1;
    a->messages = out;
    return 0;
}

/* ---- tools and the rest ---- */

static int parse_tools(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    struct tool {
        const char *name, *description, *type;
        const json_t *schema;
        bool strict, has_strict;
    } t;
    char prefix[32];
    static const struct field rows[] = {
        {.name = "name",
         .type = FIELD_STRING,
         .at = offsetof(struct tool, name),
         .lo = 1,
         .hi = 1024,
         .required = true},
        {.name = "description", .type = FIELD_STRING, .at = offsetof(struct tool, description), .hi = 1 << 20},
        {.name = "input_schema", .type = FIELD_OBJECT, .at = offsetof(struct tool, schema), .required = true},
        {.name = "type", .type = FIELD_ONE_OF, .allowed = "[\"custom\"]"},
        {.name = "defer_loading", .type = FIELD_ONE_OF, .allowed = "[]"},
        {.name = "allowed_callers", .type = FIELD_ONE_OF, .allowed = "[[\"direct\"]]"},
        IGNORED("cache_control", "o"),
        {.name = "strict",
         .type = FIELD_BOOL,
         .at = offsetof(struct tool, strict),
         .present = offsetof(struct tool, has_strict)},
        IGNORED("eager_input_streaming", "b"),
        IGNORED("input_examples", "a"),
        {0},
    };
    struct answer_params *a = out;
    (void)field;
    if (!json_is_array(v)) return field_wrong_type(f, name, "an array", v);
    json_t *all = params_keep(a, json_array(), f);
    for (size_t i = 0; all && i < json_array_size(v); i++) {
        const json_t *one = json_array_get(v, i);
        t = (struct tool){0};
        snprintf(prefix, sizeof prefix, "tools[%zu].", i);
        if (!json_is_object(one)) return field_wrong_type(f, name, "an array of objects", one);
        if (field_read((const struct field *const[]){rows, NULL}, prefix, one, &t, f)) return -1;
        json_t *made = json_pack("{s:s,s:{s:s,s:s,s:O}}", "type", "function", "function", "name", t.name, "description",
                                 t.description ? t.description : "", "parameters", t.schema);
        if (made && t.has_strict)
            json_object_set_new(json_object_get(made, "function"), "strict", json_boolean(t.strict));
        a->calls.strict |= t.strict;
        if (json_array_append_new(all, made)) return api_no_memory(f);
        if (params_is_over(a, i, f)) return -1;
    }
    a->tools = all;
    return all ? 0 : -1;
}

static int parse_tool_choice(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    struct choice {
        const char *type;
        const json_t *name;
        bool one;
    } c = {0};
    static const struct field rows[] = {
        {.name = "type", .type = FIELD_STRING, .at = offsetof(struct choice, type), .hi = 64, .required = true},
        {.name = "name", .type = FIELD_TEXT, .at = offsetof(struct choice, name), .hi = 1024},
        {.name = "disable_parallel_tool_use", .type = FIELD_BOOL, .at = offsetof(struct choice, one)},
        {0},
    };
    struct answer_params *a = out;
    (void)field;
    if (!json_is_object(v)) return field_wrong_type(f, name, "an object", v);
    if (field_read((const struct field *const[]){rows, NULL}, "tool_choice.", v, &c, f)) return -1;
    a->no_tools = !strcmp(c.type, "none");
    a->one_call = c.one;
    if (a->no_tools || !strcmp(c.type, "auto")) return 0;
    a->calls.required = true;
    if (!strcmp(c.type, "any")) return 0;
    if (strcmp(c.type, "tool"))
        return field_unsupported(f, "tool_choice.type", "anything but auto, any, tool and none is");
    if (!c.name)
        return fault_set(f, 400, "missing_field", "tool_choice.name",
                         "tool_choice.name: the name of the tool is missing");
    return call_add_name(&a->calls, c.name, f);
}

/* How much the model may think, and in which form it answers. */
static int parse_output(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    static const struct field rows[] = {
        {.name = "effort", .type = FIELD_STRING, .at = AT(reasoning_effort), .hi = 32},
        {.name = "format", .type = FIELD_PARSE, .parse = format_parse_flat},
        IGNORED("task_budget", "o"),
        {0},
    };
    (void)field;
    if (!json_is_object(v)) return field_wrong_type(f, name, "an object", v);
    return field_read((const struct field *const[]){rows, NULL}, "output_config.", v, out, f);
}

static int parse_stops(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    if (!json_is_array(v)) return field_wrong_type(f, name, "an array of strings", v);
    return params_parse_stop(out, field, name, v, f);
}

const struct field anthropic_count_fields[] = {
    {.name = "model", .type = FIELD_STRING, .at = AT(model), .hi = 1024},
    {.name = "messages", .type = FIELD_ARRAY, .at = AT(messages), .lo = 1, .hi = 1 << 20, .required = true},
    {.name = "system", .type = FIELD_ANY, .at = AT(system)},
    {.name = "tools", .type = FIELD_PARSE, .parse = parse_tools},
    {.name = "tool_choice", .type = FIELD_PARSE, .parse = parse_tool_choice},
    {.name = "thinking", .type = FIELD_PARSE, .parse = params_parse_thinking},
    {.name = "output_config", .type = FIELD_PARSE, .parse = parse_output},
    {.name = "output_format", .type = FIELD_PARSE, .parse = format_parse_flat},
    {.name = "context_management", .type = FIELD_PARSE, .parse = params_parse_context},
    {.name = "mcp_servers", .type = FIELD_ONE_OF, .allowed = "[]"},
    IGNORED("cache_control", "o"),
    IGNORED("speed", "s"),
    {0},
};

const struct field anthropic_fields[] = {
    {.name = "max_tokens", .type = FIELD_INT, .at = AT(max_tokens), .lo = 1, .hi = INT_MAX, .required = true},
    {.name = "stream", .type = FIELD_BOOL, .at = AT(stream)},
    {.name = "temperature", .type = FIELD_FLOAT, .at = AT(sampling.temperature), .lo = 0, .hi = 1},
    {.name = "top_p", .type = FIELD_FLOAT, .at = AT(sampling.top_p), .lo = 0, .hi = 1},
    {.name = "stop_sequences", .type = FIELD_PARSE, .parse = parse_stops},
    IGNORED("metadata", "o"),
    IGNORED("inference_geo", "s"),
    IGNORED("diagnostics", "o"),
    IGNORED("billing_policy", "o"),
    IGNORED("fallbacks", "ao"),
    IGNORED("fallback_credit_token", "so"),
    {.name = "container", .type = FIELD_ONE_OF, .allowed = "[]"},
    {0},
};
