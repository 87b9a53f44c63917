/* SPDX-License-Identifier: MIT
 *
 * schema_negate.c: that a schema does not hold: one of its keywords does not.
 *
 * Each keyword gives options, which are sets of atoms; the value satisfies one of them. A keyword for one type of
 * values holds for all other types, so its options begin with that type.
 */
#include <string.h>

#include "grammar/schema/schema_impl.h"

struct denial {
    struct schema *s;
    const json_t *schema;
    const char *keyword;
    const struct option *options; /* so far */
};

typedef void denier(struct denial *d, const json_t *value);

/* ---- small helpers ---- */

static const struct atom *with(struct denial *d, struct atom atom, const struct atom *next)
{
    return atom_new(d->s, atom, next);
}

static struct atom types(uint32_t set) { return (struct atom){.kind = ATOM_TYPES, .a = set}; }
static struct atom has(const char *name) { return (struct atom){.kind = ATOM_HAS, .name = name}; }

static struct atom claim(const json_t *schema, bool negative)
{
    return (struct atom){.kind = ATOM_SCHEMA, .schema = schema, .negative = negative};
}

static struct atom value_of(const char *name, const json_t *schema, bool negative)
{
    return (struct atom){.kind = ATOM_VALUE, .name = name, .schema = schema, .negative = negative};
}

static void offer(struct denial *d, const struct atom *atoms) { d->options = option_new(d->s, atoms, d->options); }

/* A value of a type, with one more property. */
static void offer_of(struct denial *d, uint32_t set, struct atom atom)
{
    offer(d, with(d, types(set), with(d, atom, NULL)));
}

static void refuse(struct denial *d, uint32_t set)
{
    offer_of(d, set, (struct atom){.kind = ATOM_REFUSE, .schema = d->schema, .name = d->keyword});
}

/* The numbers that do not match. Those with an exponent are left out: two texts of the same value must not differ. */
static struct atom other_number(struct denial *d, re_id re)
{
    return (struct atom){.kind = ATOM_NUMBER, .a = re_and2(d->s->r, d->s->plain, re_not(d->s->r, re))};
}

/* ---- all types ---- */

static void deny_type(struct denial *d, const json_t *value)
{
    uint32_t set;
    bool integer;
    if (!keyword_types(d->s, d->schema, value, &set, &integer)) return;
    if (integer) {
        struct decimal one = {.n_whole = 1, .digits = "1"};
        offer_of(d, TYPE_NUMBER, other_number(d, re_multiple(d->s->r, &one)));
    }
    if (TYPE_ALL & ~set) offer(d, with(d, types(TYPE_ALL & ~set), NULL));
}

static void deny_values(struct denial *d, const json_t *values)
{
    const struct atom *atoms = NULL;
    uint32_t set = 0;
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *v = json_array_get(values, i);
        set |= keyword_type_of(v);
        if (json_is_array(v) || json_is_object(v))
            atoms = with(d, claim(keyword_value_schema(d->s, d->schema, v), true), atoms);
        if (d->s->l->rc) return;
    }
    if (set & TYPE_STRING)
        atoms = with(d, (struct atom){.kind = ATOM_STRING, .a = re_not(d->s->r, scalar_strings(d->s, values))}, atoms);
    if (set & TYPE_NUMBER) atoms = with(d, other_number(d, scalar_loose_numbers(d->s, values)), atoms);
    set &= TYPE_NULL | TYPE_FALSE | TYPE_TRUE;
    offer(d, with(d, types(TYPE_ALL & ~set), atoms));
}

static void deny_enum(struct denial *d, const json_t *value)
{
    if (json_is_array(value)) deny_values(d, value);
}

static void deny_const(struct denial *d, const json_t *value)
{
    json_t *list = json_pack("[O]", value);
    if (list)
        deny_values(d, list);
    else
        limits_fail(d->s->l, QN_ENOMEM, "there is no memory for a schema");
    json_decref(list);
}

/* ---- schemas in the same place ---- */

static void deny_ref(struct denial *d, const json_t *value)
{
    d->s->at = d->schema;
    d->s->keyword = d->keyword;
    const char *ref = json_string_value(value);
    const json_t *to = ref ? schema_doc_follow(&d->s->doc, d->schema, ref, d->keyword[1] == 'd') : NULL;
    if (!ref) schema_fail(d->s, d->schema, d->keyword, QN_EDATA, "it is not a string");
    if (to) offer(d, with(d, claim(to, true), NULL));
}

static void deny_all_of(struct denial *d, const json_t *value)
{
    for (size_t i = json_array_size(value); i-- > 0;) offer(d, with(d, claim(json_array_get(value, i), true), NULL));
}

static void deny_any_of(struct denial *d, const json_t *value)
{
    const struct atom *atoms = NULL;
    for (size_t i = json_array_size(value); i-- > 0;) atoms = with(d, claim(json_array_get(value, i), true), atoms);
    offer(d, atoms);
}

static void deny_one_of(struct denial *d, const json_t *value)
{
    deny_any_of(d, value);
    for (size_t i = 0; i < json_array_size(value); i++)
        for (size_t k = 0; k < i; k++)
            offer(d, with(d, claim(json_array_get(value, k), false),
                          with(d, claim(json_array_get(value, i), false), NULL)));
}

static void deny_not(struct denial *d, const json_t *value) { offer(d, with(d, claim(value, false), NULL)); }

static void deny_if(struct denial *d, const json_t *value)
{
    static const char *const branches[] = {"then", "else"};
    for (int i = 0; i < 2; i++) {
        const json_t *branch = json_object_get(d->schema, branches[i]);
        if (branch) offer(d, with(d, claim(value, i == 1), with(d, claim(branch, true), NULL)));
    }
}

/* ---- strings, numbers, counts ---- */

static void deny_scalar(struct denial *d, const json_t *value)
{
    enum atom_kind kind;
    re_id re;
    d->s->at = d->schema;
    d->s->keyword = d->keyword;
    if (!scalar_keyword(d->s, d->schema, d->keyword, value, &kind, &re)) return;
    if (kind == ATOM_NUMBER)
        offer_of(d, TYPE_NUMBER, other_number(d, re));
    else
        offer_of(d, TYPE_STRING, (struct atom){.kind = ATOM_STRING, .a = re_not(d->s->r, re)});
}

static void deny_count(struct denial *d, const json_t *value)
{
    bool is_object = strstr(d->keyword, "Prop") != NULL, is_least = d->keyword[1] == 'i';
    struct atom atom = {.kind = is_object ? ATOM_NAME_COUNT : ATOM_ITEM_COUNT, .b = JSON_NO_MAX};
    uint32_t n;
    if (!keyword_count(d->s, d->schema, d->keyword, value, &n) || (is_least && n == 0)) return;
    if (is_least)
        atom.b = n - 1;
    else
        atom.a = n + 1;
    offer_of(d, is_object ? TYPE_OBJECT : TYPE_ARRAY, atom);
}

/* ---- objects ---- */

static void deny_required(struct denial *d, const json_t *value)
{
    for (size_t i = json_array_size(value); i-- > 0;) {
        const char *name = json_string_value(json_array_get(value, i));
        if (name) offer_of(d, TYPE_OBJECT, value_of(name, json_false(), false));
    }
}

static void deny_properties(struct denial *d, const json_t *value)
{
    for (void *it = json_object_iter((json_t *)value); it; it = json_object_iter_next((json_t *)value, it)) {
        const char *name = json_object_iter_key(it);
        const struct atom *atoms = with(d, value_of(name, json_object_iter_value(it), true), NULL);
        offer(d, with(d, types(TYPE_OBJECT), with(d, has(name), atoms)));
    }
}

/* Whether the schema holds for every value. */
static bool is_true(const json_t *schema)
{
    return json_is_true(schema) || (json_is_object(schema) && json_object_size(schema) == 0);
}

static void deny_object(struct denial *d, const json_t *value)
{
    if (!is_true(value)) refuse(d, TYPE_OBJECT);
}

static void deny_unevaluated_items(struct denial *d, const json_t *value)
{
    if (!is_true(value)) refuse(d, TYPE_ARRAY);
}

static void deny_unique(struct denial *d, const json_t *value)
{
    if (json_is_true(value)) refuse(d, TYPE_ARRAY);
}

static void deny_dependencies(struct denial *d, const json_t *value)
{
    for (void *it = json_object_iter((json_t *)value); it; it = json_object_iter_next((json_t *)value, it)) {
        const json_t *needed = json_object_iter_value(it);
        struct atom present = has(json_object_iter_key(it));
        for (size_t i = 0; i < json_array_size(needed); i++) {
            const char *name = json_string_value(json_array_get(needed, i));
            const struct atom *atoms = with(d, value_of(name ? name : "", json_false(), false), NULL);
            offer(d, with(d, types(TYPE_OBJECT), with(d, present, atoms)));
        }
        if (!json_is_array(needed))
            offer(d, with(d, types(TYPE_OBJECT), with(d, present, with(d, claim(needed, true), NULL))));
    }
}

/* ---- arrays ---- */

static void deny_first_items(struct denial *d, const json_t *value)
{
    for (size_t i = json_array_size(value); i-- > 0;) {
        struct atom item = {.kind = ATOM_ITEM, .a = (uint32_t)i, .schema = json_array_get(value, i), .negative = true};
        struct atom count = {.kind = ATOM_ITEM_COUNT, .a = (uint32_t)i + 1, .b = JSON_NO_MAX};
        offer(d, with(d, types(TYPE_ARRAY), with(d, count, with(d, item, NULL))));
    }
}

static void deny_items(struct denial *d, const json_t *value)
{
    if (json_is_array(value))
        deny_first_items(d, value);
    else if (json_object_get(d->schema, "prefixItems"))
        deny_object(d, value);
    else if (!is_true(value))
        offer_of(d, TYPE_ARRAY,
                 (struct atom){.kind = ATOM_CONTAINS, .schema = value, .negative = true, .a = 1, .b = JSON_NO_MAX});
}

static void deny_rest_of_items(struct denial *d, const json_t *value)
{
    if (json_is_array(json_object_get(d->schema, "items")) && !is_true(value)) refuse(d, TYPE_ARRAY);
}

static void deny_contains(struct denial *d, const json_t *value)
{
    uint32_t least = 1, most = JSON_NO_MAX;
    const json_t *min = json_object_get(d->schema, "minContains"), *max = json_object_get(d->schema, "maxContains");
    if (min && d->s->doc.draft >= DRAFT_2019 && !keyword_count(d->s, d->schema, "minContains", min, &least)) return;
    if (max && d->s->doc.draft >= DRAFT_2019 && !keyword_count(d->s, d->schema, "maxContains", max, &most)) return;
    if (least == 1) offer_of(d, TYPE_ARRAY, (struct atom){.kind = ATOM_ITEMS, .schema = value, .negative = true});
    if (least > 1) offer_of(d, TYPE_ARRAY, (struct atom){.kind = ATOM_CONTAINS, .schema = value, .b = least - 1});
    if (most != JSON_NO_MAX)
        offer_of(d, TYPE_ARRAY, (struct atom){.kind = ATOM_CONTAINS, .schema = value, .a = most + 1, .b = JSON_NO_MAX});
}

/* ---- the table ---- */

static void deny_unsupported(struct denial *d, const json_t *value)
{
    (void)value;
    refuse(d, TYPE_ALL);
}

static const struct {
    const char *name;
    denier *deny;
} keywords[] = {
    {"$ref", deny_ref},
    {"$dynamicRef", deny_ref},
    {"$recursiveRef", deny_unsupported},
    {"additionalItems", deny_rest_of_items},
    {"additionalProperties", deny_object},
    {"allOf", deny_all_of},
    {"anyOf", deny_any_of},
    {"const", deny_const},
    {"contains", deny_contains},
    {"dependencies", deny_dependencies},
    {"dependentRequired", deny_dependencies},
    {"dependentSchemas", deny_dependencies},
    {"disallow", deny_unsupported},
    {"divisibleBy", deny_unsupported},
    {"enum", deny_enum},
    {"exclusiveMaximum", deny_scalar},
    {"exclusiveMinimum", deny_scalar},
    {"extends", deny_unsupported},
    {"format", deny_scalar},
    {"if", deny_if},
    {"items", deny_items},
    {"maxItems", deny_count},
    {"maxLength", deny_scalar},
    {"maxProperties", deny_count},
    {"maximum", deny_scalar},
    {"minItems", deny_count},
    {"minLength", deny_scalar},
    {"minProperties", deny_count},
    {"minimum", deny_scalar},
    {"multipleOf", deny_scalar},
    {"not", deny_not},
    {"oneOf", deny_one_of},
    {"pattern", deny_scalar},
    {"patternProperties", deny_object},
    {"prefixItems", deny_first_items},
    {"properties", deny_properties},
    {"propertyNames", deny_object},
    {"required", deny_required},
    {"type", deny_type},
    {"unevaluatedItems", deny_unevaluated_items},
    {"unevaluatedProperties", deny_object},
    {"uniqueItems", deny_unique},
};

bool keywords_negate(struct schema *s, struct alternative *a, const struct atom *atom)
{
    struct denial d = {.s = s, .schema = atom->schema};
    bool only_ref = s->doc.draft <= DRAFT_7 && json_object_get(atom->schema, "$ref");
    for (size_t i = sizeof keywords / sizeof keywords[0]; i-- > 0;) {
        const json_t *value = json_object_get(atom->schema, keywords[i].name);
        if (!value || (only_ref && i != 0)) continue;
        d.keyword = keywords[i].name;
        keywords[i].deny(&d, value);
    }
    return decision_add(s, a, d.options);
}
