/* SPDX-License-Identifier: MIT
 *
 * format_params.c: reads the form that an answer is to have, in the words of each API. See format_params.h.
 *
 * A schema is kept as its text, because the body of a request does not outlive its prompt. docs/STRUCTURED.md has the
 * list of fields.
 *
 * Source: the OpenAI and Anthropic API references; the documentation of llama-server, vLLM and Ollama.
 */
#include "server/api/format_params.h"

#include <stdio.h>
#include <string.h>

#include "base/json/json_text.h"
#include "grammar/schema/schema.h"
#include "server/api/api_impl.h"

static int no_memory(struct fault *f) { return fault_set(f, 503, "no_memory", NULL, "not enough memory"); }

/* Notes the form that a field asks for. */
static int set(void *out, enum qn_grammar_kind kind, const char *name, struct fault *f)
{
    struct format_params *p = &((struct answer_params *)out)->format;
    if (p->is_set)
        return fault_set(f, 400, "invalid_value", name, "%s: %s gives the answer a form already", name, p->field);
    p->is_set = true;
    p->kind = kind;
    snprintf(p->field, sizeof p->field, "%s", name);
    return 0;
}

static int set_text(void *out, enum qn_grammar_kind kind, const char *name, const json_t *v, struct fault *f)
{
    struct answer_params *a = out;
    if (!json_is_string(v)) return field_wrong_type(f, name, "a string", v);
    if (json_string_length(v) == 0) return 0; /* asks for nothing */
    if (set(out, kind, name, f)) return -1;
    return buf_add(&a->format.text, json_string_value(v), json_string_length(v), NULL) ? no_memory(f) : 0;
}

static int set_json(void *out, enum qn_grammar_kind kind, const char *name, const json_t *v, struct fault *f)
{
    struct answer_params *a = out;
    if (set(out, kind, name, f)) return -1;
    if (!schema_is_small(v)) /* before it is written and read again */
        return fault_set(f, 400, "unsupported_value", name,
                         "%s: the schema has more than %d values, or more than %d in an enum", name, SCHEMA_MAX_VALUES,
                         SCHEMA_MAX_ENUM);
    return json_text_add(&a->format.text, v, JSON_COMPACT | JSON_ENCODE_ANY, "a schema", NULL) ? no_memory(f) : 0;
}

int format_parse_schema(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    (void)field;
    if (json_is_string(v)) return set_text(out, QN_GRAMMAR_JSON_SCHEMA, name, v, f);
    if (!json_is_object(v) && !json_is_boolean(v)) return field_wrong_type(f, name, "a schema", v);
    return json_is_object(v) || json_is_true(v) ? set_json(out, QN_GRAMMAR_JSON_SCHEMA, name, v, f) : 0;
}

int format_parse_grammar(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    (void)field;
    return field_is_empty(v) ? 0 : set_text(out, QN_GRAMMAR_GBNF, name, v, f);
}

int format_parse_regex(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    (void)field;
    return field_is_empty(v) ? 0 : set_text(out, QN_GRAMMAR_REGEX, name, v, f);
}

int format_parse_choice(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    (void)field;
    if (field_is_empty(v)) return 0;
    if (!json_is_array(v)) return field_wrong_type(f, name, "an array of strings", v);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!json_is_string(json_array_get(v, i)))
            return field_wrong_type(f, name, "an array of strings", json_array_get(v, i));
    return set_json(out, QN_GRAMMAR_CHOICE, name, v, f);
}

int format_parse_ollama(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    if (field_is(v, "json")) return set(out, QN_GRAMMAR_JSON_OBJECT, name, f);
    if (field_is(v, "")) return 0; /* no form */
    if (json_is_string(v)) return field_unsupported(f, name, "anything but \"json\" and a schema is");
    if (!json_is_object(v)) return field_wrong_type(f, name, "a text or a schema", v);
    return format_parse_schema(out, field, name, v, f);
}

/* ---- objects with a type ---- */

/* These change nothing: a schema's name and description, and `strict`, because every schema is enforced as a whole. */
static int parse_label(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    (void)out;
    (void)field;
    return json_is_string(v) ? 0 : field_wrong_type(f, name, "a string", v);
}

static int parse_strict(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    (void)out;
    (void)field;
    return json_is_boolean(v) ? 0 : field_wrong_type(f, name, "true or false", v);
}

#define PARSE(field, parser)                                                                                           \
    {                                                                                                                  \
        .name = field, .type = FIELD_PARSE, .parse = parser                                                            \
    }

#define NEEDED(field, parser)                                                                                          \
    {                                                                                                                  \
        .name = field, .type = FIELD_PARSE, .parse = parser, .required = true                                          \
    }

static const struct field schema_rows[] = {
    PARSE("type", parse_label),
    PARSE("name", parse_label),
    PARSE("description", parse_label),
    PARSE("strict", parse_strict),
    NEEDED("schema", format_parse_schema),
    {0},
};

static int read_rows(void *out, const struct field *rows, const char *name, const json_t *v, struct fault *f)
{
    char prefix[96];
    snprintf(prefix, sizeof prefix, "%s.", name);
    if (!json_is_object(v)) return field_wrong_type(f, name, "an object", v);
    return field_read((const struct field *const[]){rows, NULL}, prefix, v, out, f);
}

static int parse_named(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    (void)field;
    return read_rows(out, schema_rows, name, v, f);
}

/* rows: of an object whose type is json_schema. */
static int parse_typed(void *out, const struct field *rows, const char *name, const json_t *v, struct fault *f)
{
    static const struct field typed[] = {NEEDED("type", parse_label), {0}},
                              /* llama-server takes a schema with this type, too */
        json[] = {PARSE("type", parse_label), PARSE("schema", format_parse_schema), {0}},
                              grammar[] = {PARSE("type", parse_label), NEEDED("grammar", format_parse_grammar), {0}},
                              regex[] = {PARSE("type", parse_label), NEEDED("pattern", format_parse_regex), {0}};
    const json_t *type = json_object_get(v, "type"), *schema = json_object_get(v, "schema");
    char member[96];
    if (field_is_empty(v)) return 0;
    if (!json_is_object(v)) return field_wrong_type(f, name, "an object", v);
    if (!json_is_string(type) || field_is(type, "text")) return read_rows(out, typed, name, v, f);
    if (field_is(type, "json_schema"))
        return read_rows(out, schema && !json_is_null(schema) ? schema_rows : rows, name, v, f);
    if (field_is(type, "grammar")) return read_rows(out, grammar, name, v, f);
    if (field_is(type, "regex")) return read_rows(out, regex, name, v, f);
    if (field_is(type, "json_object"))
        return field_is_empty(schema) && set(out, QN_GRAMMAR_JSON_OBJECT, name, f) ? -1
                                                                                   : read_rows(out, json, name, v, f);
    snprintf(member, sizeof member, "%s.type", name);
    return field_unsupported(f, member, "anything but text, json_object, json_schema, grammar and regex is");
}

int format_parse_response(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    static const struct field rows[] = {
        PARSE("type", parse_label),
        NEEDED("json_schema", parse_named),
        {0},
    };
    (void)field;
    return parse_typed(out, rows, name, v, f);
}

int format_parse_flat(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    (void)field;
    return parse_typed(out, schema_rows, name, v, f);
}

static int parse_any_object(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    (void)field;
    if (!json_is_boolean(v)) return field_wrong_type(f, name, "true or false", v);
    return json_is_true(v) ? set(out, QN_GRAMMAR_JSON_OBJECT, name, f) : 0;
}

int format_parse_structured(void *out, const struct field *field, const char *name, const json_t *v, struct fault *f)
{
    static const struct field rows[] = {
        PARSE("json", format_parse_schema),     PARSE("json_object", parse_any_object),
        PARSE("regex", format_parse_regex),     PARSE("choice", format_parse_choice),
        PARSE("grammar", format_parse_grammar), {0},
    };
    (void)field;
    return field_is_empty(v) ? 0 : read_rows(out, rows, name, v, f);
}

/* ---- compiling ---- */

int format_compile(qn_grammar **out, const struct format_params *p, const qn_model *m, const struct who *w,
                   struct fault *f)
{
    struct qn_grammar_params g;
    struct qn_error e = {0};
    if (!p->is_set) return 0;
    qn_grammar_params_init(&g);
    g.kind = p->kind;
    g.text = p->text.data ? (char *)p->text.data : "";
    g.n = p->text.len;
    g.identity = w->identity;
    g.salt[0] = w->salt[0];
    g.salt[1] = w->salt[1];
    int rc = qn_grammar_new(out, m, &g, &e);
    if (rc == QN_EBUSY) return fault_set(f, 429, "queue_full", p->field, "%s: %s", p->field, e.msg);
    if (rc == QN_EUNSUP) return fault_set(f, 400, "unsupported_value", p->field, "%s: %s", p->field, e.msg);
    if (rc == QN_EDATA) return fault_set(f, 400, "invalid_value", p->field, "%s: %s", p->field, e.msg);
    return rc ? fault_set(f, 503, "no_memory", p->field, "%s: %s", p->field, e.msg) : 0;
}
