/* SPDX-License-Identifier: MIT
 *
 * calls_arguments.c: the arguments of a tool: a JSON object, or one by one (<parameter=KEY>, KEY=VALUE).
 *
 * The reader of parameters (text/chat/tool_xml.c) takes a value as a string if the tool's schema says "string" or does
 * not know the parameter, and as JSON otherwise. So the first kind is written as text, the other as JSON.
 */
#include <string.h>

#include "base/mem.h"
#include "grammar/calls/calls_impl.h"
#include "grammar/regex/decimal.h"
#include "grammar/regex/pattern.h"
#include "grammar/schema/schema.h"
#include "text/chat/tool_schema.h"

#define NODE_ANY 0 /* of all tables: any value (schema.c) */

static const char end_value[] = "\n</parameter>\n", value_mark[] = "</parameter>";

/* ---- parameters ---- */

/* Whether the reader takes a parameter as text. properties: of the tool. */
static bool is_text(const json_t *properties, const char *key, size_t n)
{
    const json_t *property = json_object_getn(properties, key, n);
    const char *type = json_string_value(json_object_get(property, "type"));
    return !property || (type && !strcmp(type, "string"));
}

/* A parameter with its value: a text, or the JSON of a node. */
static uint32_t parameter(struct calls *c, const json_t *tool, const char *key, size_t n, re_id value, uint32_t node,
                          uint32_t next)
{
    static const char *const marks[] = {value_mark};
    re_id end = re_text(c->r, end_value, strlen(end_value));
    if (n == 0 || n > 256 || memchr(key, '\\', n) || memchr(key, '<', n) || memchr(key, '>', n))
        return calls_fail(c, tool, "a parameter's name is empty, too long or has one of the characters \\<> in it");
    re_id head = re_cat(c->r, re_text(c->r, "<parameter=", 11),
                        re_cat(c->r, re_text(c->r, key, n), //
                               re_text(c->r, ">\n", 2)));
    if (!is_text(c->properties, key, n)) return calls_term(c, head, calls_value(c, node, calls_term(c, end, next)));
    re_id one = re_and2(c->r, value, calls_text_without(c, marks, 1));
    if (!re_is_live(c->r, one)) return calls_fail(c, tool, "the values of a parameter cannot be written as text");
    return calls_term(c, re_cat(c->r, head, re_cat(c->r, one, end)), next);
}

/* All parameters of a shape, in their order. */
static uint32_t parameters_of(struct calls *c, const json_t *tool, const struct object_shape *o, uint32_t next)
{
    if (o->counted) return calls_fail(c, tool, "this model's calls cannot have a least or a most number of parameters");
    for (uint32_t i = o->n_names; i-- > 0 && !c->r->l->rc;) {
        const struct object_name *x = &o->names[i];
        if (!x->allowed) continue;
        uint32_t one = parameter(c, tool, x->text, x->n, c->t->nodes[x->node].string, x->node, x->required ? next : 0);
        next = x->required ? one : calls_repeat(c, one, 0, 1, next);
    }
    return next;
}

static uint32_t parameters(struct calls *c, const json_t *tool, uint32_t node, uint32_t next)
{
    uint32_t branches = 0;
    for (uint32_t i = c->t->nodes[node].n_objects; i-- > 0 && !c->r->l->rc;)
        branches = calls_branch(c, parameters_of(c, tool, c->t->nodes[node].objects[i], 0), branches);
    return calls_choice(c, branches, next);
}

/* ---- keywords ---- */

/* Whether the reader takes an argument's name (text/chat/tool_python.c). */
static bool is_keyword(const char *key, size_t n)
{
    bool ok = n > 0 && n <= 256 && key[0] != ' ' && key[n - 1] != ' ';
    for (size_t i = 0; i < n && ok; i++) ok = (uint8_t)key[i] >= 0x20 && !strchr(TOOL_NOT_IN_KEYWORDS, key[i]);
    return ok;
}

/* KEY=VALUE. */
static uint32_t keyword(struct calls *c, const json_t *tool, const char *key, size_t n, uint32_t node, bool is_first,
                        uint32_t next)
{
    if (!is_keyword(key, n))
        return calls_fail(c, tool,
                          "an argument's name is empty, too long, or has a character that a keyword cannot have");
    re_id comma = re_cat(c->r, re_text(c->r, ",", 1), re_repeat(c->r, re_text(c->r, " ", 1), 0, 1));
    re_id head = re_cat(c->r, re_text(c->r, key, n), re_text(c->r, "=", 1));
    return calls_term(c, is_first ? head : re_cat(c->r, comma, head), calls_value(c, node, next));
}

/* The rest of the arguments: after others, and after none. */
struct keywords {
    uint32_t more, first;
};

/* Puts one argument before the others. */
static struct keywords add_keyword(struct calls *c, const json_t *tool, const char *key, size_t n, uint32_t node,
                                   bool required, struct keywords rest)
{
    uint32_t more = keyword(c, tool, key, n, node, false, rest.more);
    uint32_t first = keyword(c, tool, key, n, node, true, rest.more);
    if (required) return (struct keywords){more, first};
    more = calls_choice(c, calls_branch(c, more, calls_branch(c, rest.more, 0)), 0);
    return (struct keywords){more, calls_choice(c, calls_branch(c, first, calls_branch(c, rest.first, 0)), 0)};
}

static uint32_t keywords(struct calls *c, const json_t *tool, uint32_t node, uint32_t next)
{
    uint32_t branches = 0;
    for (uint32_t i = c->t->nodes[node].n_objects; i-- > 0 && !c->r->l->rc;) {
        const struct object_shape *o = c->t->nodes[node].objects[i];
        struct keywords rest = {next, next};
        if (o->counted)
            return calls_fail(c, tool, "this model's calls cannot have a least or a most number of arguments");
        for (uint32_t k = o->n_names; k-- > 0 && !c->r->l->rc;) {
            const struct object_name *x = &o->names[k];
            if (x->allowed) rest = add_keyword(c, tool, x->text, x->n, x->node, x->required, rest);
        }
        branches = calls_branch(c, rest.first, branches);
    }
    return calls_choice(c, branches, 0);
}

/* Those that the tool mentions, in its order and with any values; none of them has to come. */
static uint32_t any_keywords(struct calls *c, const json_t *tool, uint32_t next)
{
    struct keywords rest = {next, next};
    size_t n_keys = 0, n;
    struct str *keys = mem_alloc((json_object_size(c->properties) + 1) * sizeof *keys);
    const char *key;
    json_t *value;
    if (!keys) limits_fail(c->r->l, QN_ENOMEM, "there is no memory for a tool's arguments");
    json_object_keylen_foreach(c->properties, key, n, value)
    {
        if (keys && is_keyword(key, n)) keys[n_keys++] = (struct str){key, n};
    }
    while (n_keys-- > 0 && !c->r->l->rc)
        rest = add_keyword(c, tool, keys[n_keys].p, keys[n_keys].n, NODE_ANY, false, rest);
    mem_free(keys);
    return rest.first;
}

/* ---- names ---- */

/* Whether the reader takes a parameter's name, which is not escaped here. */
static bool is_readable(const char *key)
{
    size_t n = strlen(key);
    for (size_t i = 0; i < n; i++)
        if ((uint8_t)key[i] < 0x20 || strchr("\\<>\"", key[i])) return false;
    return n > 0 && n <= 256;
}

/* The parameters that the tool mentions, with any values; none of them has to come. */
static uint32_t any_parameters(struct calls *c, const json_t *tool, uint32_t next)
{
    json_t *value;
    uint32_t first = next, last = 0;
    const char *key;
    json_object_foreach(c->properties, key, value)
    {
        if (!is_readable(key)) continue;
        uint32_t one = parameter(c, tool, key, strlen(key), re_chars(c->r, 0, RE_NO_MAX), NODE_ANY, 0);
        if (c->r->l->rc) break;
        one = calls_repeat(c, one, 0, 1, next);
        if (c->r->l->rc) break;
        if (last)
            c->g->nodes[last].next = one;
        else
            first = one;
        last = one;
    }
    return first;
}

/* ---- schemas ---- */

/* Texts without quotation marks that every reader has room for. Whole numbers have 64 bits. */
static re_id readable(struct calls *c)
{
    static const char pattern[] = "null|true|false|-?[0-9]{1,18}(?:\\.[0-9]{1,18})?(?:[eE][-+]?[0-9]{1,2})?",
                      whole[] = "-?[0-9]{1,19}";
    struct decimal least, most;
    json_t *x = json_integer(INT64_MIN), *y = json_integer(INT64_MAX);
    re_id re = pattern_compile(c->r, pattern, strlen(pattern), PATTERN_WHOLE);
    if (decimal_of(&least, x) && decimal_of(&most, y)) {
        const re_id wide[] = {pattern_compile(c->r, whole, strlen(whole), PATTERN_WHOLE),
                              re_bound(c->r, &least, DECIMAL_AT_LEAST), re_bound(c->r, &most, DECIMAL_AT_MOST)};
        re = re_or2(c->r, re, re_and(c->r, wide, 3));
    }
    json_decref(x);
    json_decref(y);
    return re;
}

/* Adds a number of an enumeration: a fraction may have as many digits as it needs. */
static void list_number(struct calls *c, const json_t *x, re_id *listed)
{
    struct decimal d;
    char text[DECIMAL_DIGITS + 3];
    bool known = decimal_of(&d, x);
    if (!known || (d.n_whole > 18 && !json_is_integer(x)))
        limits_fail(c->r->l, QN_EUNSUP, "the number %g of an enumeration is too large for the arguments of a call",
                    json_number_value(x));
    else if (d.n_fraction > 18)
        *listed = re_or2(c->r, *listed, re_text(c->r, text, decimal_write(&d, text)));
}

/* Adds the numbers of all enumerations in the schema. */
static void list_values(struct calls *c, const json_t *x, re_id *listed)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)x, key, value)
    {
        bool is_enum = !strcmp(key, "enum") && json_is_array(value);
        if (!strcmp(key, "const") && json_is_number(value)) list_number(c, value, listed);
        for (size_t i = 0; is_enum && i < json_array_size(value); i++)
            if (json_is_number(json_array_get(value, i))) list_number(c, json_array_get(value, i), listed);
        if (c->r->l->rc) return;
        list_values(c, value, listed);
    }
    for (size_t i = 0; i < json_array_size(x); i++) list_values(c, json_array_get(x, i), listed);
}

/* Python's words in place of those of JSON. */
static re_id with_words(struct calls *c, re_id raw)
{
    static const char *const words[][2] = {{"true", "True"}, {"false", "False"}, {"null", "None"}};
    for (int i = 0; i < 3; i++) {
        re_id json = re_text(c->r, words[i][0], strlen(words[i][0]));
        if (!re_is_live(c->r, re_and2(c->r, raw, json))) continue;
        raw = re_or2(c->r, re_and2(c->r, raw, re_not(c->r, json)), re_text(c->r, words[i][1], strlen(words[i][1])));
    }
    return raw;
}

/* Numbers that every reader has room for, in nodes from the first one on; and no name twice in an object, which the
 * reader of replies would not take. */
static void make_readable(struct calls *c, uint32_t first, re_id listed)
{
    re_id small = re_or2(c->r, readable(c), listed);
    for (uint32_t i = first; i < c->t->n_nodes && !c->r->l->rc; i++) {
        struct json_node *x = &c->t->nodes[i];
        re_id both = x->raw ? re_and2(c->r, x->raw, small) : RE_NONE;
        if (x->raw && re_is_live(c->r, x->raw) && !re_is_live(c->r, both))
            limits_fail(c->r->l, QN_EUNSUP, "a number has to have more digits than the arguments of a call may have");
        if (x->raw) x->raw = c->has_words ? with_words(c, both) : both;
        for (uint32_t k = 0; k < x->n_objects; k++) x->objects[k]->all_distinct = x->objects[k]->n_rest > 0;
    }
}

bool calls_schema(struct calls *c, const json_t *schema, uint32_t *node)
{
    uint32_t first = c->t->n_nodes;
    re_id listed = RE_NONE;
    if (!schema_compile(c->t, c->r, schema, node)) return false;
    list_values(c, schema, &listed);
    make_readable(c, first, listed);
    return !c->r->l->rc;
}

/* The node of the schema's objects. False: it cannot be enforced. */
static bool compile(struct calls *c, const json_t *tool, uint32_t *node)
{
    json_t *schema = json_object_get(tool, "parameters"), *none = NULL;
    struct limits *l = c->r->l;
    if (!schema || json_is_null(schema))
        schema = none = json_pack("{s:s,s:b}", "type", "object", "additionalProperties", 0);
    bool ok = schema && calls_schema(c, schema, node);
    json_decref(none);
    if (!schema) limits_fail(l, QN_ENOMEM, "there is no memory for a schema");
    if (!ok) return false;
    struct json_node objects = c->t->nodes[*node];
    if (objects.n_objects == 0) limits_fail(l, QN_EDATA, "the schema of its arguments allows no object");
    if (l->rc || !(objects.raw || objects.string || objects.n_arrays)) return !l->rc;
    struct json_node *p = limits_grow(l, c->t->nodes, &c->t->cap_nodes, c->t->n_nodes + 1, sizeof *p);
    if (!p) return false;
    objects.raw = objects.string = RE_NONE;
    objects.n_arrays = 0;
    c->t->nodes = p;
    p[c->t->n_nodes] = objects;
    *node = c->t->n_nodes++;
    return true;
}

/* Notes which tool a failure is about. */
static uint32_t name_failure(struct calls *c, const json_t *tool)
{
    struct limits *l = c->r->l;
    struct qn_error e = l->error;
    if (l->rc == QN_ENOMEM) return 0;
    error_set(&l->error, l->rc, "tool '%.100s': %s", json_string_value(json_object_get(tool, "name")), e.msg);
    return 0;
}

uint32_t calls_arguments(struct calls *c, const json_t *tool, uint32_t next)
{
    const json_t *held = json_object_get(tool, "held");
    struct limits *l = c->r->l;
    bool in_parts = chat_form_has_parts(c->form, c->style), is_python = calls_is_python(c);
    uint32_t node = c->any;
    if (l->rc) return 0;
    bool fits = !json_is_false(held) && compile(c, tool, &node);
    bool may_fail = json_is_null(held) && (l->rc == QN_EUNSUP || l->rc == QN_EDATA) && l->work;
    if (l->rc && !may_fail) return name_failure(c, tool);
    l->rc = 0;
    if (!in_parts) return calls_value(c, fits ? node : c->any, next);
    c->properties = tool_properties(json_object_get(tool, "parameters"));
    uint32_t (*all)(struct calls *, const json_t *, uint32_t, uint32_t) = is_python ? keywords : parameters;
    uint32_t (*any)(struct calls *, const json_t *, uint32_t) = is_python ? any_keywords : any_parameters;
    uint32_t first = fits ? all(c, tool, node, next) : any(c, tool, next);
    if (json_is_null(held) && l->rc == QN_EUNSUP && l->work && fits) {
        l->rc = 0;
        first = any(c, tool, next);
    }
    json_decref(c->properties);
    c->properties = NULL;
    return first;
}
