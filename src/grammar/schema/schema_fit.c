/* SPDX-License-Identifier: MIT
 *
 * schema_fit.c: which shapes of objects and arrays have values, and which nodes.
 */
#include <string.h>

#include "grammar/schema/schema_impl.h"

/* ---- which objects have values ---- */

/* How many names of the rest there can be, at most `least`. */
static uint32_t count_others(struct schema *s, const struct object_shape *o)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->n_rest && n < o->least; i++)
        if (s->info[o->rest[i].node].fits == 2) n += re_count(s->r, o->rest[i].name, o->least - n);
    return n;
}

static bool object_finish(struct schema *s, struct object_shape *o)
{
    bool has_rest = false;
    o->required_from[o->n_names] = o->allowed_from[o->n_names] = 0;
    for (uint32_t i = o->n_names; i-- > 0;) {
        struct object_name *x = &o->names[i];
        x->allowed = s->info[x->node].fits == 2;
        if (x->required && !x->allowed) return false;
        o->required_from[i] = o->required_from[i + 1] + x->required;
        o->allowed_from[i] = o->allowed_from[i + 1] + x->allowed;
    }
    for (uint32_t i = 0; i < o->n_rest; i++) has_rest |= s->info[o->rest[i].node].fits == 2;
    o->n_required = o->required_from[0];
    o->distinct = o->least > o->n_required && has_rest;
    o->counted = o->least > o->n_required || (o->most != JSON_NO_MAX && (has_rest || o->most < o->n_names));
    o->n_other = o->distinct ? count_others(s, o) : 0;
    return o->n_required <= o->most && (o->least <= o->n_required || o->least <= o->allowed_from[0] + o->n_other);
}

bool object_fits(struct schema *s, const struct object_shape *o)
{
    uint32_t n_required = 0;
    for (uint32_t i = 0; i < o->n_names; i++) {
        n_required += o->names[i].required;
        if (o->names[i].required && !schema_fits(s, o->names[i].node)) return false;
    }
    return n_required <= o->most && (o->n_rest || o->n_names >= o->least);
}

bool object_same(const struct object_shape *a, const struct object_shape *b)
{
    if (a->hash != b->hash || a->n_names != b->n_names || a->n_rest != b->n_rest || a->least != b->least ||
        a->most != b->most)
        return false;
    for (uint32_t i = 0; i < a->n_names; i++) {
        const struct object_name *x = &a->names[i], *y = &b->names[i];
        if (x->node != y->node || x->required != y->required || x->n != y->n || memcmp(x->text, y->text, x->n) != 0)
            return false;
    }
    return a->n_rest == 0 || memcmp(a->rest, b->rest, a->n_rest * sizeof *a->rest) == 0;
}

/* ---- which arrays have values ---- */

/* How many items from the first one on can exist. */
static uint32_t longest(struct schema *s, const struct array_shape *o)
{
    for (uint32_t i = 0; i <= o->n_first; i++)
        if (s->info[o->items[i]].fits != 2) return i;
    return JSON_NO_MAX;
}

/* How many of the items can be any of these nodes. */
static uint32_t n_possible(struct schema *s, const struct array_shape *o, const uint32_t *nodes)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->n_first && i < o->most; i++) n += s->info[nodes[i]].fits == 2;
    if (o->n_first >= o->most || s->info[nodes[o->n_first]].fits != 2) return n;
    return o->most == JSON_NO_MAX ? JSON_NO_MAX : n + (o->most - o->n_first);
}

static bool has_distinct_items(struct schema *s, const struct array_shape *o)
{
    const struct json_node *x = &s->t->nodes[o->items[0]];
    if (!o->unique || o->least < 2) return true;
    uint32_t n = re_count(s->r, x->raw, o->least);
    return n + re_count(s->r, x->string, o->least) >= o->least;
}

static bool array_finish(struct schema *s, struct array_shape *o, bool last)
{
    uint32_t most = longest(s, o);
    if (most < o->least || !has_distinct_items(s, o)) return false;
    if (last && most < o->most) o->most = most;
    if (!o->counted) return true;
    if (o->least_counted > o->most_counted || n_possible(s, o, o->counted) < o->least_counted) return false;
    if (!last || o->most_counted == JSON_NO_MAX) return true;
    uint32_t others = n_possible(s, o, o->uncounted);
    if (others == 0 && o->most > o->most_counted) o->most = o->most_counted;
    if (others != 0 && others < o->most)
        limits_fail(s->l, QN_EUNSUP, "maxContains with first items that all count is not supported");
    return o->least <= o->most;
}

bool array_same(const struct array_shape *a, const struct array_shape *b)
{
    size_t bytes = (a->n_first + 1) * sizeof *a->items;
    if (a->n_first != b->n_first || a->least != b->least || a->most != b->most || a->unique != b->unique) return false;
    if (a->least_counted != b->least_counted || a->most_counted != b->most_counted || !a->counted != !b->counted)
        return false;
    if (a->counted && (memcmp(a->counted, b->counted, bytes) != 0 || memcmp(a->uncounted, b->uncounted, bytes) != 0))
        return false;
    return memcmp(a->items, b->items, bytes) == 0;
}

bool array_fits(struct schema *s, const struct array_shape *o)
{
    for (uint32_t i = 0; i < o->least && i <= o->n_first; i++)
        if (!schema_fits(s, o->items[i])) return false;
    if (!o->counted || o->least_counted == 0) return true;
    for (uint32_t i = 0; i <= o->n_first; i++)
        if (schema_fits(s, o->counted[i])) return true;
    return false;
}

/* ---- nodes ---- */

/* Whether the node has a value, as far as is known now. */
static bool has_value(struct schema *s, struct json_node *x)
{
    if (x->raw || x->string) return true;
    for (uint32_t i = 0; i < x->n_objects; i++)
        if (object_finish(s, x->objects[i])) return true;
    for (uint32_t i = 0; i < x->n_arrays; i++)
        if (array_finish(s, x->arrays[i], false)) return true;
    return false;
}

/* Drops the shapes without values. */
static void drop_empty_shapes(struct schema *s, struct json_node *x)
{
    uint32_t k = 0;
    for (uint32_t i = 0; i < x->n_objects; i++)
        if (object_finish(s, x->objects[i])) x->objects[k++] = x->objects[i];
    x->n_objects = k;
    k = 0;
    for (uint32_t i = 0; i < x->n_arrays; i++)
        if (array_finish(s, x->arrays[i], true)) x->arrays[k++] = x->arrays[i];
    x->n_arrays = k;
}

void schema_find_values(struct schema *s)
{
    for (uint32_t i = s->n_before; i < s->t->n_nodes; i++) s->info[i].fits = 1;
    for (bool changed = true; changed && !s->l->rc;) {
        changed = false;
        for (uint32_t i = s->t->n_nodes; i-- > s->n_before;) {
            if (s->info[i].fits == 2 || !limits_spend(s->l, 1) || !has_value(s, &s->t->nodes[i])) continue;
            s->info[i].fits = 2;
            changed = true;
        }
    }
    for (uint32_t i = s->n_before; i < s->t->n_nodes && !s->l->rc; i++) drop_empty_shapes(s, &s->t->nodes[i]);
}
