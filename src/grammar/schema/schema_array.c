/* SPDX-License-Identifier: MIT
 *
 * schema_array.c: the arrays of an alternative: how many items they have, and which.
 */
#include <string.h>

#include "grammar/schema/schema_impl.h"

#define MAX_FIRST 2000 /* items with schemas of their own */

/* ---- the schemas of an item ---- */

/* The schemas of the first items of a group, and that of the others. */
static const json_t *first_items(const json_t *group)
{
    const json_t *list = json_object_get(group, "prefixItems"), *items = json_object_get(group, "items");
    return json_is_array(items) ? items : list;
}

static const json_t *other_items(const json_t *group)
{
    const json_t *items = json_object_get(group, "items");
    return json_is_array(items) ? json_object_get(group, "additionalItems") : items;
}

/* What the group says about item i. */
static const json_t *schema_of_item(const json_t *group, size_t i)
{
    const json_t *first = first_items(group);
    return i < json_array_size(first) ? json_array_get(first, i) : other_items(group);
}

static bool is_within(const struct scope *scope, const json_t *schema)
{
    for (; scope; scope = scope->outer)
        if (scope->schema == schema) return true;
    return false;
}

static bool is_evaluated(const struct alternative *a, const json_t *schema, size_t i)
{
    for (const struct atom *g = a->list[ATOM_ITEM_GROUP]; g; g = g->next)
        if (is_within(g->scope, schema) && schema_of_item(g->schema, i)) return true;
    for (const struct atom *u = a->list[ATOM_UNEVALUATED]; u; u = u->next)
        if (u->schema != schema && is_within(u->scope, schema) && strcmp(u->name, "unevaluatedItems") == 0) return true;
    return false;
}

/* The node of item i; more (may be NULL): one more thing that it satisfies, or (`opposite`) does not. */
static uint32_t item_node(struct schema *s, const struct alternative *a, uint32_t *claims, size_t i,
                          const struct atom *more, bool opposite)
{
    uint32_t n = 0;
    for (const struct atom *g = a->list[ATOM_ITEM_GROUP]; g; g = g->next) {
        const json_t *schema = schema_of_item(g->schema, i);
        if (schema) claims_add(s, claims, &n, schema, false);
    }
    for (const struct atom *x = a->list[ATOM_ITEM]; x; x = x->next)
        if (x->a == i) claims_add(s, claims, &n, x->schema, x->negative);
    for (const struct atom *x = a->list[ATOM_ITEMS]; x; x = x->next) claims_add(s, claims, &n, x->schema, x->negative);
    for (const struct atom *u = a->list[ATOM_UNEVALUATED]; u; u = u->next)
        if (strcmp(u->name, "unevaluatedItems") == 0 && !is_evaluated(a, u->schema, i))
            claims_add(s, claims, &n, json_object_get(u->schema, u->name), false);
    if (more) claims_add(s, claims, &n, more->schema, more->negative != opposite);
    return schema_node(s, claims, n);
}

/* ---- the shape ---- */

static bool count_first(struct schema *s, const struct alternative *a, struct array_shape *o)
{
    size_t n = 0;
    for (const struct atom *g = a->list[ATOM_ITEM_GROUP]; g; g = g->next)
        if (json_array_size(first_items(g->schema)) > n) n = json_array_size(first_items(g->schema));
    for (const struct atom *x = a->list[ATOM_ITEM]; x; x = x->next)
        if (x->a + 1 > n) n = x->a + 1;
    if (n > a->most_items) n = a->most_items;
    if (n > MAX_FIRST) {
        limits_fail(s->l, QN_EUNSUP, "more than %d items with schemas of their own", MAX_FIRST);
        return false;
    }
    o->n_first = (uint32_t)n;
    return true;
}

static uint32_t *fill_items(struct schema *s, const struct alternative *a, const struct array_shape *o,
                            uint32_t *claims, const struct atom *more, bool opposite)
{
    uint32_t *nodes = slabs_get(&s->t->slabs, s->l, (o->n_first + 1) * sizeof *nodes);
    for (uint32_t i = 0; nodes && i <= o->n_first; i++) nodes[i] = item_node(s, a, claims, i, more, opposite);
    return nodes;
}

static bool fill_contains(struct schema *s, const struct alternative *a, struct array_shape *o, uint32_t *claims)
{
    const struct atom *contains = a->list[ATOM_CONTAINS];
    o->most_counted = JSON_NO_MAX;
    if (!contains) return true;
    if (contains->next)
        return schema_fail(s, contains->schema, NULL, QN_EUNSUP, "several `contains` for one array are not supported");
    if (a->unique)
        return schema_fail(s, contains->schema, NULL, QN_EUNSUP, "`contains` with uniqueItems is not supported");
    o->least_counted = contains->a;
    o->most_counted = contains->b;
    o->counted = fill_items(s, a, o, claims, contains, false);
    o->uncounted = contains->b == JSON_NO_MAX ? o->items : fill_items(s, a, o, claims, contains, true);
    return o->counted && o->uncounted;
}

static bool has_only_scalars(struct schema *s, uint32_t node)
{
    if (!schema_expand(s, node) || s->info[node].state != NODE_EXPANDED) return false;
    return s->t->nodes[node].n_objects == 0 && s->t->nodes[node].n_arrays == 0;
}

/* Equal items can be told apart by their texts only if each value has one text. */
static bool check_unique(struct schema *s, const struct alternative *a, struct array_shape *o)
{
    o->unique = a->unique && o->most > 1;
    if (!o->unique) return true;
    if (o->n_first || !has_only_scalars(s, o->items[0])) {
        if (s->l->rc) return false;
        return schema_fail(s, a->unique, "uniqueItems", QN_EUNSUP,
                           "it is supported only for items that are no arrays or objects");
    }
    return true;
}

static bool fill(struct schema *s, const struct alternative *a, struct array_shape *o)
{
    size_t most = 1;
    for (int k = ATOM_GROUP; k < ATOM_N_LISTS; k++)
        for (const struct atom *x = a->list[k]; x; x = x->next) most++;
    uint32_t *claims = slabs_get(&s->slabs, s->l, most * sizeof *claims);
    if (!claims || !count_first(s, a, o)) return false;
    o->least = a->least_items;
    o->most = a->most_items;
    o->items = fill_items(s, a, o, claims, NULL, false);
    return o->items && fill_contains(s, a, o, claims) && check_unique(s, a, o);
}

struct array_shape *array_new(struct schema *s, const struct alternative *a, bool *none)
{
    struct array_shape *o = slabs_get(&s->t->slabs, s->l, sizeof *o);
    *none = true;
    if (!o || a->least_items > a->most_items || !fill(s, a, o)) return NULL;
    *none = false;
    return o;
}
