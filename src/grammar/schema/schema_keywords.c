/* SPDX-License-Identifier: MIT
 *
 * schema_keywords.c: what the keywords of a schema that holds say about a value.
 */
#include <stdlib.h>
#include <string.h>

#include "grammar/schema/schema_impl.h"

#define MAX_TOGETHER 4 /* branches of an `anyOf` that may all hold, where that must be known */

/* What a handler of a keyword works on. */
struct reading {
    struct schema *s;
    struct alternative *a;
    const json_t *schema;
    const struct scope *scope; /* of the schemas inside it */
};

typedef bool handler(struct reading *r, const char *keyword, const json_t *value);

/* ---- small helpers ---- */

static bool malformed(struct reading *r, const char *keyword, const char *wanted)
{
    return schema_fail(r->s, r->schema, keyword, QN_EDATA, "it is not %s", wanted);
}

static bool apply(struct reading *r, struct atom atom) { return atom_apply(r->s, r->a, &atom); }

/* An atom for a schema inside this one, for its place in a list. */
static struct atom claim(struct reading *r, const json_t *schema, bool negative)
{
    return (struct atom){.kind = ATOM_SCHEMA, .schema = schema, .negative = negative, .scope = r->scope};
}

/* Puts a schema among those that wait. */
static bool wait_for(struct reading *r, const json_t *schema, bool negative)
{
    r->a->list[ATOM_SCHEMA] = atom_new(r->s, claim(r, schema, negative), r->a->list[ATOM_SCHEMA]);
    return !r->s->l->rc;
}

static const struct atom *before(struct reading *r, struct atom atom, const struct atom *next)
{
    return atom_new(r->s, atom, next);
}

static struct atom has(const char *name) { return (struct atom){.kind = ATOM_HAS, .name = name}; }
static struct atom types(uint32_t set) { return (struct atom){.kind = ATOM_TYPES, .a = set}; }

static struct atom lacks(const char *name)
{
    return (struct atom){.kind = ATOM_VALUE, .name = name, .schema = json_false()};
}

/* ---- all types ---- */

static bool do_type(struct reading *r, const char *keyword, const json_t *value)
{
    uint32_t set;
    bool integer;
    (void)keyword;
    if (!keyword_types(r->s, r->schema, value, &set, &integer)) return false;
    if (integer && !apply(r, (struct atom){.kind = ATOM_NUMBER, .a = r->s->integer})) return false;
    return apply(r, types(set));
}

static bool do_values(struct reading *r, const json_t *values)
{
    uint32_t set = 0;
    const struct option *options = NULL;
    for (size_t i = 0; i < json_array_size(values); i++) set |= keyword_type_of(json_array_get(values, i));
    if (set & TYPE_STRING)
        if (!apply(r, (struct atom){.kind = ATOM_STRING, .a = scalar_strings(r->s, values)})) return false;
    if (set & TYPE_NUMBER)
        if (!apply(r, (struct atom){.kind = ATOM_NUMBER, .a = scalar_numbers(r->s, values)})) return false;
    if (!(set & (TYPE_ARRAY | TYPE_OBJECT))) return apply(r, types(set));
    for (size_t i = json_array_size(values); i-- > 0;) {
        const json_t *v = json_array_get(values, i);
        if (!json_is_array(v) && !json_is_object(v)) continue;
        const json_t *schema = keyword_value_schema(r->s, r->schema, v);
        if (!schema) return false;
        options = option_new(r->s, before(r, claim(r, schema, false), NULL), options);
    }
    set &= ~(uint32_t)(TYPE_ARRAY | TYPE_OBJECT);
    if (set) options = option_new(r->s, before(r, types(set), NULL), options);
    return decision_add(r->s, r->a, options);
}

static bool do_enum(struct reading *r, const char *keyword, const json_t *value)
{
    if (!json_is_array(value)) return malformed(r, keyword, "a list");
    if (json_array_size(value) > SCHEMA_MAX_ENUM)
        return schema_fail(r->s, r->schema, keyword, QN_EUNSUP, "it has %zu values, at most %d are possible",
                           json_array_size(value), SCHEMA_MAX_ENUM);
    return do_values(r, value);
}

static bool do_const(struct reading *r, const char *keyword, const json_t *value)
{
    (void)keyword;
    json_t *list = json_array();
    bool ok = !json_array_append(list, (json_t *)value);
    if (!ok) limits_fail(r->s->l, QN_ENOMEM, "there is no memory for a schema");
    ok = ok && do_values(r, list);
    json_decref(list);
    return ok;
}

/* ---- schemas in the same place ---- */

static bool do_ref(struct reading *r, const char *keyword, const json_t *value)
{
    if (!json_is_string(value)) return malformed(r, keyword, "a string");
    r->s->at = r->schema;
    r->s->keyword = keyword;
    const json_t *to = schema_doc_follow(&r->s->doc, r->schema, json_string_value(value), keyword[1] == 'd');
    return to && wait_for(r, to, false);
}

static bool do_all_of(struct reading *r, const char *keyword, const json_t *value)
{
    if (!json_is_array(value)) return malformed(r, keyword, "a list of schemas");
    for (size_t i = json_array_size(value); i-- > 0;)
        if (!wait_for(r, json_array_get(value, i), false)) return false;
    return true;
}

static bool do_not(struct reading *r, const char *keyword, const json_t *value)
{
    (void)keyword;
    return wait_for(r, value, true);
}

/* Every set of branches that may hold together, so that all that they evaluate is known. */
static bool do_any_of_together(struct reading *r, const char *keyword, const json_t *value)
{
    const struct option *options = NULL;
    size_t n = json_array_size(value);
    if (n > MAX_TOGETHER)
        return schema_fail(r->s, r->schema, keyword, QN_EUNSUP,
                           "more than %d schemas next to an unevaluated... keyword", MAX_TOGETHER);
    for (unsigned set = 1; set < 1u << n; set++) {
        const struct atom *atoms = NULL;
        for (size_t i = n; i-- > 0;)
            if (set >> i & 1) atoms = before(r, claim(r, json_array_get(value, i), false), atoms);
        options = option_new(r->s, atoms, options);
    }
    return decision_add(r->s, r->a, options);
}

static bool do_any_of(struct reading *r, const char *keyword, const json_t *value)
{
    const struct option *options = NULL;
    if (!json_is_array(value)) return malformed(r, keyword, "a list of schemas");
    if (r->scope) return do_any_of_together(r, keyword, value);
    for (size_t i = json_array_size(value); i-- > 0;)
        options = option_new(r->s, before(r, claim(r, json_array_get(value, i), false), NULL), options);
    return decision_add(r->s, r->a, options);
}

/* Whether no value satisfies both, here where `rest` is true too. */
static bool are_apart(struct reading *r, const json_t *a, const json_t *b, const json_t *rest)
{
    uint32_t claims[3], n = 0;
    claims_add(r->s, claims, &n, a, false);
    claims_add(r->s, claims, &n, b, false);
    if (rest) claims_add(r->s, claims, &n, rest, false);
    return !schema_fits(r->s, schema_node(r->s, claims, n));
}

/* The schema without one of its keywords. */
static const json_t *without(struct reading *r, const char *keyword)
{
    const json_t *made = schema_made(r->s, r->schema);
    if (made || r->s->l->rc) return made;
    json_t *rest = json_copy((json_t *)r->schema);
    json_object_del(rest, keyword);
    if (json_object_size(rest) + 1 != json_object_size(r->schema)) { /* the copy had no memory */
        json_decref(rest);
        rest = NULL;
    }
    return schema_keep(r->s, rest, r->schema, r->schema);
}

/* Each branch; and not those of the others that may hold too. */
static bool do_one_of(struct reading *r, const char *keyword, const json_t *value)
{
    const struct option *options = NULL;
    if (!json_is_array(value)) return malformed(r, keyword, "a list of schemas");
    const json_t *rest = without(r, keyword);
    if (!rest) return false;
    for (size_t i = json_array_size(value); i-- > 0;) {
        const json_t *one = json_array_get(value, i);
        const struct atom *atoms = NULL;
        for (size_t k = json_array_size(value); k-- > 0;) {
            const json_t *other = json_array_get(value, k);
            if (k == i || are_apart(r, one, other, NULL) || are_apart(r, one, other, rest)) continue;
            struct atom no = claim(r, other, true);
            no.name = keyword; /* for the message if this cannot be negated */
            atoms = before(r, no, atoms);
        }
        options = option_new(r->s, before(r, claim(r, one, false), atoms), options);
    }
    return decision_add(r->s, r->a, options);
}

static bool do_if(struct reading *r, const char *keyword, const json_t *value)
{
    const json_t *yes = json_object_get(r->schema, "then"), *no = json_object_get(r->schema, "else");
    const struct atom *a = NULL, *b = NULL;
    (void)keyword;
    if (!yes && !no && !r->scope) return true;
    if (yes) a = before(r, claim(r, yes, false), NULL);
    if (no) b = before(r, claim(r, no, false), NULL);
    a = before(r, claim(r, value, false), a);
    b = before(r, claim(r, value, true), b);
    return decision_add(r->s, r->a, option_new(r->s, a, option_new(r->s, b, NULL)));
}

/* ---- strings and numbers ---- */

static bool do_scalar(struct reading *r, const char *keyword, const json_t *value)
{
    enum atom_kind kind;
    re_id re;
    r->s->at = r->schema;
    r->s->keyword = keyword;
    if (!scalar_keyword(r->s, r->schema, keyword, value, &kind, &re)) return !r->s->l->rc;
    return apply(r, (struct atom){.kind = (uint8_t)kind, .a = re});
}

/* ---- counts ---- */

static bool do_count(struct reading *r, const char *keyword, const json_t *value)
{
    uint32_t n;
    uint8_t kind = strstr(keyword, "Prop") ? ATOM_NAME_COUNT : ATOM_ITEM_COUNT;
    if (!keyword_count(r->s, r->schema, keyword, value, &n)) return false;
    bool is_least = keyword[1] == 'i';
    return apply(r, (struct atom){.kind = kind, .a = is_least ? n : 0, .b = is_least ? JSON_NO_MAX : n});
}

/* ---- objects ---- */

/* `properties`, `patternProperties` and `additionalProperties` are read together, once. */
static bool do_properties(struct reading *r, const char *keyword, const json_t *value)
{
    static const char *const keywords[] = {"properties", "patternProperties", "additionalProperties"};
    bool is_schema = keyword == keywords[2] || strcmp(keyword, keywords[2]) == 0;
    if (is_schema && !json_is_object(value) && !json_is_boolean(value)) return malformed(r, keyword, "a schema");
    if (!is_schema && !json_is_object(value)) return malformed(r, keyword, "an object");
    for (int i = 0; i < 3; i++) {
        if (!json_object_get(r->schema, keywords[i])) continue;
        if (strcmp(keyword, keywords[i]) != 0) return true; /* another one of them comes first */
        break;
    }
    return apply(r, (struct atom){.kind = ATOM_GROUP, .schema = r->schema, .scope = r->scope});
}

static bool do_required(struct reading *r, const char *keyword, const json_t *value)
{
    if (!json_is_array(value)) return malformed(r, keyword, "a list of names");
    for (size_t i = 0; i < json_array_size(value); i++) {
        const char *name = json_string_value(json_array_get(value, i));
        if (!name) return malformed(r, keyword, "a list of names");
        if (!apply(r, has(name))) return false;
    }
    return true;
}

static bool do_property_names(struct reading *r, const char *keyword, const json_t *value)
{
    (void)keyword;
    return apply(r, (struct atom){.kind = ATOM_NAMES, .schema = value});
}

static bool do_unevaluated(struct reading *r, const char *keyword, const json_t *value)
{
    (void)value;
    return apply(r, (struct atom){.kind = ATOM_UNEVALUATED, .schema = r->schema, .name = keyword, .scope = r->scope});
}

/* The names or the schema that follow if an object has a name. */
static bool do_dependency(struct reading *r, const char *keyword, const char *name, const json_t *value)
{
    const struct atom *then = NULL;
    if (json_is_array(value)) {
        for (size_t i = json_array_size(value); i-- > 0;) {
            const char *needed = json_string_value(json_array_get(value, i));
            if (!needed) return malformed(r, keyword, "a list of names");
            then = before(r, has(needed), then);
        }
    } else if (json_is_object(value) || json_is_boolean(value)) {
        then = before(r, claim(r, value, false), NULL);
    } else {
        return malformed(r, keyword, "a schema or a list of names");
    }
    then = before(r, types(TYPE_OBJECT), before(r, has(name), then));
    const struct option *options = option_new(r->s, then, NULL);
    options = option_new(r->s, before(r, types(TYPE_OBJECT), before(r, lacks(name), NULL)), options);
    if (r->a->types & ~(uint32_t)TYPE_OBJECT)
        options = option_new(r->s, before(r, types(TYPE_ALL & ~TYPE_OBJECT), NULL), options);
    return decision_add(r->s, r->a, options);
}

static bool do_dependencies(struct reading *r, const char *keyword, const json_t *value)
{
    if (!json_is_object(value)) return malformed(r, keyword, "an object");
    for (void *it = json_object_iter((json_t *)value); it; it = json_object_iter_next((json_t *)value, it))
        if (!do_dependency(r, keyword, json_object_iter_key(it), json_object_iter_value(it))) return false;
    return true;
}

/* ---- arrays ---- */

static bool do_items(struct reading *r, const char *keyword, const json_t *value)
{
    static const char *const keywords[] = {"items", "prefixItems"};
    bool is_list = strcmp(keyword, "prefixItems") == 0;
    if (is_list && !json_is_array(value)) return malformed(r, keyword, "a list of schemas");
    if (!json_is_array(value) && !json_is_object(value) && !json_is_boolean(value))
        return malformed(r, keyword, "a schema");
    if (json_object_get(r->schema, keywords[0]) && json_object_get(r->schema, keywords[1]) && is_list) return true;
    return apply(r, (struct atom){.kind = ATOM_ITEM_GROUP, .schema = r->schema, .scope = r->scope});
}

static bool do_contains(struct reading *r, const char *keyword, const json_t *value)
{
    uint32_t least = 1, most = JSON_NO_MAX;
    const json_t *min = json_object_get(r->schema, "minContains"), *max = json_object_get(r->schema, "maxContains");
    for (const struct scope *k = r->scope; k; k = k->outer)
        if (json_object_get(k->schema, "unevaluatedItems"))
            return schema_fail(r->s, r->schema, keyword, QN_EUNSUP, "it is not supported next to unevaluatedItems");
    if (min && r->s->doc.draft >= DRAFT_2019 && !keyword_count(r->s, r->schema, "minContains", min, &least))
        return false;
    if (max && r->s->doc.draft >= DRAFT_2019 && !keyword_count(r->s, r->schema, "maxContains", max, &most))
        return false;
    if (least == 0 && most == JSON_NO_MAX) return true;
    return apply(r, (struct atom){.kind = ATOM_CONTAINS, .schema = value, .a = least, .b = most});
}

static bool do_unique(struct reading *r, const char *keyword, const json_t *value)
{
    if (!json_is_boolean(value)) return malformed(r, keyword, "true or false");
    return json_is_false(value) || apply(r, (struct atom){.kind = ATOM_UNIQUE, .schema = r->schema});
}

/* ---- the table ---- */

static bool do_refuse(struct reading *r, const char *keyword, const json_t *value)
{
    (void)value;
    return schema_fail(r->s, r->schema, keyword, QN_EUNSUP, "this keyword is not supported");
}

/* By name. A keyword that is not here says nothing about values: it is an annotation, or is read with another one. */
static const struct {
    const char *name;
    handler *apply;
} keywords[] = {
    {"$dynamicRef", do_ref},
    {"$recursiveRef", do_refuse},
    {"$ref", do_ref},
    {"additionalProperties", do_properties},
    {"allOf", do_all_of},
    {"anyOf", do_any_of},
    {"const", do_const},
    {"contains", do_contains},
    {"dependencies", do_dependencies},
    {"dependentRequired", do_dependencies},
    {"dependentSchemas", do_dependencies},
    {"disallow", do_refuse}, /* of draft 3, as the next two */
    {"divisibleBy", do_refuse},
    {"enum", do_enum},
    {"exclusiveMaximum", do_scalar},
    {"exclusiveMinimum", do_scalar},
    {"extends", do_refuse},
    {"format", do_scalar},
    {"if", do_if},
    {"items", do_items},
    {"maxItems", do_count},
    {"maxLength", do_scalar},
    {"maxProperties", do_count},
    {"maximum", do_scalar},
    {"minItems", do_count},
    {"minLength", do_scalar},
    {"minProperties", do_count},
    {"minimum", do_scalar},
    {"multipleOf", do_scalar},
    {"not", do_not},
    {"oneOf", do_one_of},
    {"pattern", do_scalar},
    {"patternProperties", do_properties},
    {"prefixItems", do_items},
    {"properties", do_properties},
    {"propertyNames", do_property_names},
    {"required", do_required},
    {"type", do_type},
    {"unevaluatedItems", do_unevaluated},
    {"unevaluatedProperties", do_unevaluated},
    {"uniqueItems", do_unique},
};

static int by_name(const void *key, const void *row) { return strcmp(key, *(const char *const *)row); }

static const struct scope *scope_of(struct schema *s, const struct atom *atom)
{
    bool asks =
        json_object_get(atom->schema, "unevaluatedProperties") || json_object_get(atom->schema, "unevaluatedItems");
    for (const struct scope *k = atom->scope; k && asks; k = k->outer)
        if (k->schema == atom->schema) asks = false;
    if (!asks) return atom->scope;
    struct scope *inner = slabs_get(&s->slabs, s->l, sizeof *inner);
    if (inner) *inner = (struct scope){atom->scope, atom->schema};
    return inner;
}

bool keywords_apply(struct schema *s, struct alternative *a, const struct atom *atom)
{
    struct reading r = {s, a, atom->schema, scope_of(s, atom)};
    const json_t *ref = s->doc.draft <= DRAFT_7 ? json_object_get(atom->schema, "$ref") : NULL;
    if (ref) return do_ref(&r, "$ref", ref);
    for (void *it = json_object_iter((json_t *)atom->schema); it;
         it = json_object_iter_next((json_t *)atom->schema, it)) {
        const char *name = json_object_iter_key(it);
        const void *row = bsearch(name, keywords, sizeof keywords / sizeof keywords[0], sizeof keywords[0], by_name);
        if (!row) continue;
        size_t i = (size_t)((const char *)row - (const char *)keywords) / sizeof keywords[0];
        if (!keywords[i].apply(&r, keywords[i].name, json_object_iter_value(it)) || s->l->rc) return false;
    }
    return true;
}
