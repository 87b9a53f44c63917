/* SPDX-License-Identifier: MIT
 *
 * schema_value.c: what the values of keywords mean: types, counts, and values of an enumeration.
 */
#include <string.h>

#include "grammar/schema/schema_impl.h"

#define CONST_BYTES 320 /* of the schema of a constant, as jansson keeps it */

static bool add_type(struct schema *s, const json_t *schema, const json_t *name, uint32_t *set, bool *integer)
{
    static const struct {
        const char *name;
        uint32_t set;
    } table[] = {{"null", TYPE_NULL},     {"boolean", TYPE_FALSE | TYPE_TRUE},
                 {"number", TYPE_NUMBER}, {"integer", TYPE_NUMBER},
                 {"string", TYPE_STRING}, {"array", TYPE_ARRAY},
                 {"object", TYPE_OBJECT}, {"any", TYPE_ALL}};
    size_t n = s->doc.draft == DRAFT_4 ? 8 : 7; /* `any` is older than draft 4, and still found there */
    for (size_t i = 0; json_is_string(name) && i < n; i++) {
        if (strcmp(json_string_value(name), table[i].name) != 0) continue;
        if (i == 3 && !(*set & TYPE_NUMBER))
            *integer = true;
        else if (i != 3 && (table[i].set & TYPE_NUMBER))
            *integer = false;
        *set |= table[i].set;
        return true;
    }
    return schema_fail(s, schema, "type", QN_EDATA, "it is not a type, or a list of types");
}

bool keyword_types(struct schema *s, const json_t *schema, const json_t *value, uint32_t *set, bool *integer)
{
    *set = 0;
    *integer = false;
    if (!json_is_array(value)) return add_type(s, schema, value, set, integer);
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!add_type(s, schema, json_array_get(value, i), set, integer)) return false;
    return true;
}

/* {"const": value}; NULL: there is no memory. */
static json_t *const_schema(json_t *value)
{
    json_t *schema = json_object();
    if (!schema || !json_object_set_nocheck(schema, "const", value)) return schema;
    json_decref(schema);
    return NULL;
}

const json_t *keyword_value_schema(struct schema *s, const json_t *schema_of, const json_t *value)
{
    const json_t *made = schema_made(s, value);
    bool is_object = json_is_object(value);
    if (made || s->l->rc || !schema_charge(s, CONST_BYTES * (1 + json_object_size(value) + json_array_size(value))))
        return made;
    json_t *schema = json_pack("{s:s}", "type", is_object ? "object" : "array"),
           *parts = is_object ? json_object() : json_array();
    json_t *names = json_array();
    int bad = 0;
    for (void *it = json_object_iter((json_t *)value); it; it = json_object_iter_next((json_t *)value, it)) {
        const char *name = json_object_iter_key(it);
        bad |= json_object_set_new(parts, name, const_schema(json_object_iter_value(it)));
        bad |= json_array_append_new(names, json_string(name));
    }
    for (size_t i = 0; i < json_array_size(value); i++)
        bad |= json_array_append_new(parts, const_schema(json_array_get(value, i)));
    if (!is_object) bad |= json_object_set_new(schema, "minItems", json_integer((json_int_t)json_array_size(value)));
    bad |= json_object_set_new(schema, is_object ? "properties" : "prefixItems", parts);
    bad |= json_object_set_new(schema, is_object ? "additionalProperties" : "items", json_false());
    if (is_object) bad |= json_object_set(schema, "required", names);
    json_decref(names);
    if (bad) { /* no memory: with a part missing it would accept more */
        json_decref(schema);
        schema = NULL;
    }
    return schema_keep(s, schema, schema_of, value);
}

uint32_t keyword_type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_NULL: return TYPE_NULL;
    case JSON_FALSE: return TYPE_FALSE;
    case JSON_TRUE: return TYPE_TRUE;
    case JSON_INTEGER:
    case JSON_REAL: return TYPE_NUMBER;
    case JSON_STRING: return TYPE_STRING;
    case JSON_ARRAY: return TYPE_ARRAY;
    default: return TYPE_OBJECT;
    }
}

bool keyword_count(struct schema *s, const json_t *schema, const char *keyword, const json_t *value, uint32_t *n)
{
    double v = json_number_value(value);
    if (!json_is_number(value) || v < 0 || v != (double)(int64_t)v)
        return schema_fail(s, schema, keyword, QN_EDATA, "it is not a whole number from 0 up");
    *n = v < JSON_NO_MAX ? (uint32_t)v : JSON_NO_MAX - 1;
    return true;
}
