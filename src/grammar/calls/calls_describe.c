/* SPDX-License-Identifier: MIT
 *
 * calls_describe.c: describes the calls that a reply may have, from a request's tools and the form of its model.
 */
#include <string.h>

#include "base/json/json_text.h"
#include "grammar/calls/calls.h"

static bool is_named(const struct qn_grammar_params *p, const json_t *name)
{
    if (p->n_names == 0) return true;
    for (size_t i = 0; i < p->n_names; i++)
        if (!strcmp(p->names[i], json_string_value(name))) return true;
    return false;
}

/* The functions that may be called, as calls.h has them. Returns NULL if there is no memory. */
static json_t *describe_tools(const struct qn_grammar_params *p, const json_t *tools)
{
    json_t *all = json_array(), *tool;
    size_t i;
    json_array_foreach((json_t *)tools, i, tool)
    {
        json_t *f = json_object_get(tool, "function"), *name = json_object_get(f, "name");
        json_t *parameters = json_object_get(f, "parameters"), *strict = json_object_get(f, "strict");
        if (!is_named(p, name)) continue;
        json_t *held = json_boolean(p->required || json_is_true(strict) || !parameters || json_is_null(parameters));
        if (p->required && json_is_false(strict)) held = json_null();
        json_t *one = json_pack("{s:O,s:o}", "name", name, "held", held);
        if (parameters && one) json_object_set(one, "parameters", parameters);
        if (json_array_append_new(all, one)) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

/* The names of all tools: a text that begins like a call of one of them is read as a call. NULL: there is no memory. */
static json_t *all_names(const json_t *tools)
{
    json_t *names = json_array(), *tool;
    size_t i;
    json_array_foreach((json_t *)tools, i, tool)
        json_array_append(names, json_object_get(json_object_get(tool, "function"), "name"));
    if (json_array_size(names) == json_array_size(tools)) return names;
    json_decref(names);
    return NULL;
}

/* The form of a text in place of calls, as a member of the description. */
static int add_form(json_t *out, const struct qn_grammar_params *form)
{
    switch (form->kind) {
    case QN_GRAMMAR_JSON_OBJECT: return json_object_set_new(out, "object", json_true());
    case QN_GRAMMAR_JSON_SCHEMA:
        return json_object_set_new(out, "schema",
                                   json_loadb(form->text, form->n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL));
    case QN_GRAMMAR_GBNF: return json_object_set_new(out, "gbnf", json_stringn(form->text, form->n));
    case QN_GRAMMAR_REGEX: return json_object_set_new(out, "pattern", json_stringn(form->text, form->n));
    case QN_GRAMMAR_CHOICE:
        return json_object_set_new(out, "choice", json_loadb(form->text, form->n, JSON_ALLOW_NUL, NULL));
    case QN_GRAMMAR_TOOL_CALLS: break;
    }
    return -1;
}

static int check_names(const struct qn_grammar_params *p, const json_t *tools, struct qn_error *e)
{
    for (size_t k = 0; k < p->n_names; k++) {
        bool known = false;
        for (size_t i = 0; i < json_array_size(tools) && !known; i++) {
            const json_t *f = json_object_get(json_array_get(tools, i), "function");
            known = !strcmp(json_string_value(json_object_get(f, "name")), p->names[k]);
        }
        if (!known) return error_set(e, QN_EUSAGE, "no tool has the name '%.100s'", p->names[k]);
    }
    return 0;
}

static int check(const struct qn_grammar_params *p, const json_t *tools, const struct chat_form *form,
                 enum chat_begins begins, const struct qn_grammar_params *answer, struct qn_error *e)
{
    bool has_marks = !chat_form_bare(form->calls) || form->style & (CHAT_STYLE_START | CHAT_STYLE_TAGS);
    bool needs_begin = form->calls == CHAT_CALLS_HARMONY || !has_marks;
    if (json_array_size(tools) == 0) return error_set(e, QN_EUSAGE, "a call cannot come, because there are no tools");
    if (begins == CHAT_BEGIN_CONTENT && needs_begin)
        return error_set(e, QN_EUSAGE,
                         "the last message is continued, and this model's calls cannot come in the middle of one");
    if (answer && answer->kind == QN_GRAMMAR_TOOL_CALLS)
        return error_set(e, QN_EUSAGE, "the form of a text cannot be tool calls");
    return check_names(p, tools, e);
}

int calls_describe(struct buf *out, const struct qn_grammar_params *p, const json_t *tools,
                   const struct chat_form *form, enum chat_begins begins, const struct qn_grammar_params *answer,
                   struct qn_error *e)
{
    int rc = check(p, tools, form, begins, answer, e);
    if (rc) return rc;
    json_t *list = describe_tools(p, tools);
    json_t *all = list ? json_pack("{s:i,s:i,s:o,s:b,s:b}", "calls", (int)form->calls, "style", (int)form->style,
                                   "tools", list, "many", !p->one_call, "text", !p->required)
                       : NULL;
    int bad = all && form->think ? json_object_set_new(all, "think", json_string(form->think)) : 0;
    if (all && answer && !p->required) bad |= add_form(all, answer);
    if (all && !p->required && chat_form_bare(form->calls)) bad |= json_object_set_new(all, "names", all_names(tools));
    rc = !all || bad ? error_nomem(e, "tool calls", 0) : json_text_add(out, all, JSON_COMPACT, "tool calls", e);
    json_decref(all);
    return rc;
}
