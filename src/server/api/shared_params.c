/* SPDX-License-Identifier: MIT
 *
 * shared_params.c: fields of requests that other servers and the newer APIs have: whether the model may think, and what
 * changes nothing here. Most of them name a service's storage, routing or accounting.
 *
 * Source: the OpenAI and Anthropic API references; the documentation of llama-server, vLLM, Ollama and OpenRouter.
 */
#include "server/api/answer_params.h"

#include <stdio.h>
#include <string.h>

#define AT(member) offsetof(struct answer_params, member)

/* Whether the model may think, for templates that look at it: true, false or {"type": "enabled"}. How much it may think
 * cannot be told to the model. */
int params_parse_thinking(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    static const struct field rows[] = {
        {.name = "type",
         .type = FIELD_ONE_OF,
         .allowed = "[\"enabled\",\"adaptive\",\"disabled\",\"auto\"]",
         .exact = true},
        {.name = "budget_tokens", .type = FIELD_IGNORED, .allowed = "n"},
        {.name = "display", .type = FIELD_IGNORED, .allowed = "s"},
        {.name = "block_binding", .type = FIELD_IGNORED, .allowed = "so"},
        {0},
    };
    struct answer_params *a = out;
    const json_t *type = json_object_get(v, "type");
    char prefix[64];
    (void)field;
    if (json_is_boolean(v)) {
        a->thinking = json_is_true(v) ? PARAMS_THINKING_ON : PARAMS_THINKING_OFF;
        return 0;
    }
    if (!type) return field_wrong_type(f, name, "an object with a type", v);
    snprintf(prefix, sizeof prefix, "%s.", name);
    if (field_read((const struct field *const[]){rows, NULL}, prefix, v, out, f)) return -1;
    if (field_is(type, "disabled")) a->thinking = PARAMS_THINKING_OFF;
    if (field_is(type, "enabled") || field_is(type, "adaptive")) a->thinking = PARAMS_THINKING_ON;
    return 0;
}

static int parse_switch(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    if (!json_is_boolean(v)) return field_wrong_type(f, name, "true or false", v);
    return params_parse_thinking(out, field, name, v, f);
}

/* true, false, or an effort. */
static int parse_think(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    struct answer_params *a = out;
    if (!json_is_string(v)) return parse_switch(out, field, name, v, f);
    if (!field_is(v, "low") && !field_is(v, "medium") && !field_is(v, "high"))
        return field_unsupported(f, name, "anything but true, false, low, medium and high is");
    a->thinking = PARAMS_THINKING_ON;
    a->reasoning_effort = json_string_value(v);
    return 0;
}

/* How routers write it: {"enabled": true, "effort": "low"}. */
static int parse_reasoning(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    static const struct field rows[] = {
        {.name = "effort", .type = FIELD_STRING, .at = AT(reasoning_effort), .hi = 32},
        {.name = "enabled", .type = FIELD_PARSE, .parse = parse_switch},
        {.name = "max_tokens", .type = FIELD_IGNORED, .allowed = "n"},
        {.name = "exclude", .type = FIELD_IGNORED, .allowed = "b"},
        {.name = "summary", .type = FIELD_IGNORED, .allowed = "s"},
        {0},
    };
    (void)field;
    if (!json_is_object(v)) return field_wrong_type(f, name, "an object", v);
    return field_read((const struct field *const[]){rows, NULL}, "reasoning.", v, out, f);
}

/* Services begin to drop parts of a prompt when it has so many tokens, unless the request says another number. */
#define EDIT_FROM 100000

/* A part of a conversation that services drop when it has become long. It is taken when it cannot happen in this
 * context, or keeps everything. */
static int check_edit(const struct answer_params *a, const char *name, const json_t *edit, struct fault *f)
{
    static const char thoughts[] = "clear_thinking";
    const json_t *keep = json_object_get(edit, "keep"), *trigger = json_object_get(edit, "trigger");
    const json_t *from = json_object_get(edit, "compact_threshold");
    const char *type = json_string_value(json_object_get(edit, "type"));
    if (!type) return field_wrong_type(f, name, "a list of objects with a type", edit);
    if (!strncmp(type, thoughts, sizeof thoughts - 1)) {
        if (field_is(keep, "all") || field_is(json_object_get(keep, "type"), "all")) return 0;
        return field_unsupported(f, name, "what drops thoughts is");
    }
    if (field_is(json_object_get(trigger, "type"), "input_tokens")) from = json_object_get(trigger, "value");
    double n = json_is_number(from) ? json_number_value(from) : field_is_empty(trigger) ? EDIT_FROM : 0;
    if (n >= a->n_ctx) return 0;
    return field_unsupported(f, name, "what drops parts of the conversation is");
}

/* {"edits": [...]} or a list of edits. */
int params_parse_context(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    static const struct field rows[] = {{.name = "edits", .type = FIELD_ARRAY, .hi = 1024}, {0}};
    const json_t *edits = v;
    (void)field;
    if (json_is_object(v)) {
        edits = NULL;
        if (field_read((const struct field *const[]){rows, NULL}, "context_management.", v, &edits, f)) return -1;
    }
    if (field_is_empty(edits)) return 0;
    if (!json_is_array(edits)) return field_wrong_type(f, name, "an object with a list of edits", v);
    for (size_t i = 0; i < json_array_size(edits); i++)
        if (check_edit(out, name, json_array_get(edits, i), f)) return -1;
    return field_ignore(f, name);
}

/* The context is set when the model is loaded. A smaller one than that changes nothing. */
static int parse_num_ctx(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    const struct answer_params *a = out;
    double x = json_number_value(v);
    (void)field;
    if (!json_is_number(v)) return field_wrong_type(f, name, "a number", v);
    if (!(x >= 0 && x <= a->n_ctx))
        return fault_set(f, 400, "out_of_range", name, "%s: the context holds %d tokens, not %.17g", name, a->n_ctx, x);
    return field_ignore(f, name);
}

/* What happens when the context is full. */
static int parse_context(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    struct answer_params *a = out;
    const char *text = json_string_value(v);
    (void)field;
    if (text && strlen(text) == json_string_length(v) && context_how_parse(text, &a->context)) {
        a->has_context = true;
        return 0;
    }
    return field_unsupported(f, name, "anything but \"plain\" and \"rotate:KEEP\" is");
}

/* ---- the tables ---- */

const struct field params_thinking_fields[] = {
    {.name = "enable_thinking", .type = FIELD_PARSE, .parse = parse_switch},
    {.name = "think", .type = FIELD_PARSE, .parse = parse_think},
    {.name = "thinking", .type = FIELD_PARSE, .parse = params_parse_thinking},
    {.name = "reasoning", .type = FIELD_PARSE, .parse = parse_reasoning},
    IGNORED("thinking_budget", "n"),
    IGNORED("reasoning_budget", "n"),
    {0},
};

const struct field params_shared_fields[] = {
    {.name = "cache_prompt", .type = FIELD_BOOL, .at = AT(cache_prompt)},
    {.name = "num_ctx", .type = FIELD_PARSE, .parse = parse_num_ctx},
    {.name = "context", .type = FIELD_PARSE, .parse = parse_context},
    ONLY("min_tokens", "[0]"),
    ONLY("use_beam_search", "[]"),
    {.name = "skip_special_tokens", .type = FIELD_ONE_OF, .allowed = "[true]", .exact = true},
    ONLY("options", "[]"),
    IGNORED("service_tier", "s"),
    IGNORED("user", "s"),
    IGNORED("safety_identifier", "s"),
    IGNORED("prompt_cache_key", "s"),
    IGNORED("prompt_cache_retention", "s"),
    IGNORED("prompt_cache_options", "o"),
    IGNORED("client_metadata", "o"),
    IGNORED("verbosity", "s"),
    IGNORED("include_reasoning", "b"),
    IGNORED("reasoning_format", "s"),
    IGNORED("keep_alive", "sn"),
    IGNORED("ttl", "sn"),
    IGNORED("id_slot", "n"),
    IGNORED("timings_per_token", "b"),
    IGNORED("return_progress", "b"),
    IGNORED("provider", "o"),
    IGNORED("transforms", "a"),
    IGNORED("route", "s"),
    IGNORED("models", "a"),
    IGNORED("extra_body", "o"),
    {0},
};
