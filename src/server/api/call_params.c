/* SPDX-License-Identifier: MIT
 *
 * call_params.c: reads which tools have to be called, and makes a grammar of it. See call_params.h.
 *
 * Source: the API references of OpenAI (chat completions, responses) and Anthropic.
 */
#include "server/api/call_params.h"

#include <stdio.h>
#include <string.h>

#include "base/json/json_text.h"
#include "base/mem.h"
#include "server/api/api_impl.h"

void call_params_deinit(struct call_params *p)
{
    json_decref(p->names);
    buf_deinit(&p->again);
    *p = (struct call_params){0};
}

int call_add_name(struct call_params *p, const json_t *name, struct fault *f)
{
    if (field_no_nul("tool_choice", name, f)) return -1;
    if (!p->names) p->names = json_array();
    json_t *copy = json_stringn(json_string_value(name), json_string_length(name));
    return json_array_append_new(p->names, copy) ? api_no_memory(f) : 0;
}

/* What a choice says, in an object of its own or not. */
struct tool_choice {
    const json_t *type, *function, *name, *allowed, *mode, *tools;
};

#define MEMBER(field, kind, member)                                                                                    \
    {                                                                                                                  \
        .name = field, .type = kind, .at = offsetof(struct tool_choice, member), .hi = 1024                            \
    }

static const struct field name_rows[] = {MEMBER("name", FIELD_TEXT, name), {0}};
static const struct field function_rows[] = {
    MEMBER("type", FIELD_ANY, type), MEMBER("function", FIELD_OBJECT, function), {0}};
static const struct field mode_rows[] = {MEMBER("mode", FIELD_ANY, mode), MEMBER("tools", FIELD_ARRAY, tools), {0}};
static const struct field allowed_rows[] = {
    MEMBER("type", FIELD_ANY, type), MEMBER("allowed_tools", FIELD_OBJECT, allowed), {0}};

/* Reads the members of v, or those of its member `inside`, if it has that one. */
static int read_choice(struct tool_choice *c, const char *name, const json_t *v, const char *inside,
                       const struct field *outer, const struct field *rows, struct fault *f)
{
    static const struct field type_row[] = {MEMBER("type", FIELD_ANY, type), {0}};
    const json_t *inner = json_object_get(v, inside);
    char prefix[160];
    snprintf(prefix, sizeof prefix, "%s.", name);
    if (!inner) return field_read((const struct field *const[]){type_row, rows, NULL}, prefix, v, c, f);
    if (field_read((const struct field *const[]){outer, NULL}, prefix, v, c, f)) return -1;
    snprintf(prefix, sizeof prefix, "%s.%s.", name, inside);
    return field_read((const struct field *const[]){rows, NULL}, prefix, inner, c, f);
}

static int add_function(struct call_params *p, const char *name, const json_t *v, struct fault *f)
{
    struct tool_choice c = {0};
    if (!field_is(json_object_get(v, "type"), "function"))
        return field_unsupported(f, name, "a tool that is not a function is");
    if (read_choice(&c, name, v, "function", function_rows, name_rows, f)) return -1;
    if (!c.name) return fault_set(f, 400, "invalid_value", name, "%s: the name of the function is missing", name);
    return call_add_name(p, c.name, f);
}

/* {"mode": "auto" or "required", "tools": [...]}, in an object of its own or not. */
static int add_allowed(struct call_params *p, const char *name, const json_t *v, struct fault *f)
{
    struct tool_choice c = {0};
    char element[64];
    if (read_choice(&c, name, v, "allowed_tools", allowed_rows, mode_rows, f)) return -1;
    p->required = field_is(c.mode, "required");
    if (!p->required && !field_is(c.mode, "auto"))
        return fault_set(f, 400, "invalid_value", name, "%s: mode has to be auto or required", name);
    if (json_array_size(c.tools) == 0)
        return fault_set(f, 400, "invalid_value", name, "%s: tools has to be a list of tools", name);
    for (size_t i = 0; i < json_array_size(c.tools); i++) {
        snprintf(element, sizeof element, "%s.tools[%zu]", name, i);
        if (add_function(p, element, json_array_get(c.tools, i), f)) return -1;
    }
    return 0;
}

int call_parse_choice(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    struct answer_params *a = out;
    struct call_params *p = &a->calls;
    (void)field;
    a->no_tools = field_is(v, "none");
    p->required = field_is(v, "required") || field_is(v, "any");
    if (json_text_add(&p->again, v, JSON_COMPACT | JSON_ENCODE_ANY, "a choice", NULL)) return api_no_memory(f);
    if (field_is(v, "auto") || a->no_tools || p->required) return 0;
    if (json_is_string(v)) return field_unsupported(f, name, "anything but auto, none, required and an object is");
    if (!json_is_object(v)) return field_wrong_type(f, name, "\"auto\", \"none\", \"required\" or an object", v);
    if (field_is(json_object_get(v, "type"), "allowed_tools")) return add_allowed(p, name, v, f);
    p->required = true;
    return add_function(p, name, v, f);
}

/* ---- compiling ---- */

static int failed(struct fault *f, int rc, const struct qn_error *e)
{
    const char *param = rc == QN_EUSAGE ? "tool_choice" : "tools";
    switch (rc) {
    case QN_EBUSY: return fault_set(f, 429, "queue_full", param, "%s: %s", param, e->msg);
    case QN_EUNSUP: return fault_set(f, 400, "unsupported_value", param, "%s: %s", param, e->msg);
    case QN_EUSAGE:
    case QN_EDATA: return fault_set(f, 400, "invalid_value", param, "%s: %s", param, e->msg);
    default: return fault_set(f, 503, "no_memory", param, "%s: %s", param, e->msg);
    }
}

static int compile(struct job *j, const char **names, struct fault *f)
{
    const struct call_params *p = &j->params.calls;
    struct qn_grammar_params g;
    struct qn_error e = {0};
    qn_grammar *made = NULL;
    qn_grammar_params_init(&g);
    g.kind = QN_GRAMMAR_TOOL_CALLS;
    g.identity = j->who.identity;
    memcpy(g.salt, j->who.salt, sizeof g.salt);
    g.prompt = j->prompt;
    g.required = p->required;
    g.one_call = j->params.one_call;
    g.n_names = json_array_size(p->names);
    for (size_t i = 0; i < g.n_names; i++) names[i] = json_string_value(json_array_get(p->names, i));
    g.names = names;
    g.form = j->grammar;
    int rc = qn_grammar_new(&made, j->served->model, &g, &e);
    if (rc) return failed(f, rc, &e);
    qn_grammar_free(j->grammar);
    j->grammar = made;
    j->params.calls.is_compiled = true;
    return 0;
}

int call_compile(struct job *j, struct fault *f)
{
    const struct answer_params *a = &j->params;
    const struct call_params *p = &a->calls;
    bool strict = p->strict || j->grammar; /* a form holds for all of the answer */
    if (a->no_tools || !(p->required || p->names || (p->any && strict))) return 0;
    if (a->ignore_eos)
        return fault_set(f, 400, "unsupported_value", "ignore_eos",
                         "ignore_eos: an answer whose tool calls have a form ends where that is complete");
    const char **names = mem_alloc((json_array_size(p->names) + 1) * sizeof *names);
    int rc = names ? compile(j, names, f) : api_no_memory(f);
    mem_free(names);
    return rc;
}
