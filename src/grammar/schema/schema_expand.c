/* SPDX-License-Identifier: MIT
 *
 * schema_expand.c: a set of claims, expanded into its alternatives.
 *
 * Claims are applied to an alternative one after the other. What leaves a choice is put off. When only choices are
 * left, the first one is made in all possible ways, each in a copy of the alternative. The lists of an alternative are
 * never changed, only extended, so a copy costs nothing.
 */
#include <string.h>

#include "grammar/schema/schema_impl.h"

#define MAX_CHOICES      100  /* one after the other */
#define MAX_ALTERNATIVES 5000 /* of one node, those included that turn out to be empty */

/* ---- making atoms ---- */

const struct atom *atom_new(struct schema *s, struct atom atom, const struct atom *next)
{
    struct atom *p = slabs_get(&s->slabs, s->l, sizeof *p);
    if (!p) return NULL;
    *p = atom;
    p->next = next;
    return p;
}

const struct option *option_new(struct schema *s, const struct atom *atoms, const struct option *next)
{
    struct option *p = atoms ? slabs_get(&s->slabs, s->l, sizeof *p) : NULL;
    if (!p) return next;
    *p = (struct option){next, atoms};
    return p;
}

bool decision_add(struct schema *s, struct alternative *a, const struct option *options)
{
    if (!options || s->l->rc) return false;
    struct decision *p = slabs_get(&s->slabs, s->l, sizeof *p);
    if (!p) return false;
    *p = (struct decision){a->choices, options};
    a->choices = p;
    return true;
}

/* ---- applying atoms ---- */

static uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }
static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

static bool apply_schema(struct schema *s, struct alternative *a, const struct atom *atom)
{
    if (json_is_boolean(atom->schema)) return json_is_true(atom->schema) != atom->negative;
    if (!json_is_object(atom->schema))
        return schema_fail(s, atom->schema, NULL, QN_EDATA, "a schema is an object, true or false");
    for (const struct atom *seen = a->seen; seen; seen = seen->next)
        if (seen->schema == atom->schema && seen->negative == atom->negative && seen->scope == atom->scope) return true;
    a->seen = atom_new(s, *atom, a->seen);
    return atom->negative ? keywords_negate(s, a, atom) : keywords_apply(s, a, atom);
}

bool atom_apply(struct schema *s, struct alternative *a, const struct atom *atom)
{
    switch (atom->kind) {
    case ATOM_SCHEMA: return limits_spend(s->l, 2) && apply_schema(s, a, atom);
    case ATOM_STRING: a->string = re_and2(s->r, a->string, atom->a); break;
    case ATOM_NUMBER: a->number = re_and2(s->r, a->number, atom->a); break;
    case ATOM_TYPES: a->types &= atom->a; break;
    case ATOM_NAME_COUNT:
        a->least_names = larger(a->least_names, atom->a);
        a->most_names = smaller(a->most_names, atom->b);
        break;
    case ATOM_ITEM_COUNT:
        a->least_items = larger(a->least_items, atom->a);
        a->most_items = smaller(a->most_items, atom->b);
        break;
    case ATOM_UNIQUE: a->unique = atom->schema; break;
    case ATOM_REFUSE:
        return schema_fail(s, atom->schema, atom->name, QN_EUNSUP, "the opposite of this keyword is not supported");
    default: a->list[atom->kind] = atom_new(s, *atom, a->list[atom->kind]);
    }
    return a->types && !s->l->rc;
}

/* ---- from an alternative to its node ---- */

static void add_scalars(struct schema *s, struct json_node *node, const struct alternative *a)
{
    static const struct str_ref words[] = {{"null", 4}, {"false", 5}, {"true", 4}};
    struct str_ref mine[3];
    uint32_t n = 0;
    for (int i = 0; i < 3; i++)
        if (a->types & (1u << i)) mine[n++] = words[i];
    if (n) node->raw = re_or2(s->r, node->raw, re_words(s->r, mine, n));
    if (a->types & TYPE_NUMBER) {
        re_id number = re_and2(s->r, a->number, s->number);
        if (re_is_live(s->r, number)) node->raw = re_or2(s->r, node->raw, number);
    }
    if (a->types & TYPE_STRING) {
        re_id string = re_is_text(s->r, a->string) ? a->string : re_and2(s->r, a->string, re_chars(s->r, 0, RE_NO_MAX));
        if (re_is_live(s->r, string)) node->string = re_or2(s->r, node->string, string);
    }
}

/* Adds a pointer to a list whose length is a power of two when it is full. */
static void *add_pointer(struct schema *s, void *list, uint32_t *n, void *p)
{
    void **q = list;
    if ((*n & (*n - 1)) == 0) {
        q = slabs_get(&s->t->slabs, s->l, (*n ? 2 * (size_t)*n : 1) * sizeof *q);
        if (!q) return list;
        if (*n) memcpy(q, list, *n * sizeof *q);
    }
    q[(*n)++] = p;
    return q;
}

static bool add_alternative(struct schema *s, uint32_t i, const struct alternative *a)
{
    bool no_objects = !(a->types & TYPE_OBJECT), no_arrays = !(a->types & TYPE_ARRAY);
    struct object_shape *object = no_objects ? NULL : object_new(s, a, &no_objects);
    struct array_shape *array = no_arrays || s->l->rc ? NULL : array_new(s, a, &no_arrays);
    struct json_node *node = &s->t->nodes[i];
    if (!limits_spend(s->l, 20 + node->n_objects / 32 + node->n_arrays / 8)) return false;
    add_scalars(s, node, a);
    for (uint32_t k = 0; k < node->n_objects && !no_objects; k++) no_objects = object_same(node->objects[k], object);
    for (uint32_t k = 0; k < node->n_arrays && !no_arrays; k++) no_arrays = array_same(node->arrays[k], array);
    if (!no_objects) node->objects = add_pointer(s, node->objects, &node->n_objects, object);
    if (!no_arrays) node->arrays = add_pointer(s, node->arrays, &node->n_arrays, array);
    return !s->l->rc;
}

/* ---- decisions ---- */

/* Applies what is waiting. False: there are no values, or there was a failure. */
static bool apply_waiting(struct schema *s, struct alternative *a)
{
    while (a->list[ATOM_SCHEMA]) {
        const struct atom *atom = a->list[ATOM_SCHEMA];
        a->list[ATOM_SCHEMA] = atom->next;
        if (!atom_apply(s, a, atom)) return false;
    }
    return true;
}

/* Schemas wait for their turn, the first one in front; everything else is applied at once. */
static bool apply_option(struct schema *s, struct alternative *a, const struct option *o)
{
    const struct atom *last_first = NULL;
    for (const struct atom *atom = o->atoms; atom; atom = atom->next) {
        if (atom->kind == ATOM_SCHEMA)
            last_first = atom_new(s, *atom, last_first);
        else if (!atom_apply(s, a, atom))
            return false;
    }
    for (; last_first; last_first = last_first->next)
        a->list[ATOM_SCHEMA] = atom_new(s, *last_first, a->list[ATOM_SCHEMA]);
    return !s->l->rc;
}

static bool decide(struct schema *s, uint32_t node, struct alternative *a, unsigned depth)
{
    if (!apply_waiting(s, a)) return !s->l->rc;
    if (!a->choices) return add_alternative(s, node, a);
    if (depth > MAX_CHOICES) {
        limits_fail(s->l, QN_EUNSUP, "more than %d choices at once", MAX_CHOICES);
        return false;
    }
    const struct decision *c = a->choices;
    a->choices = c->next;
    for (const struct option *o = c->options; o; o = o->next) {
        struct alternative copy = *a;
        if (s->n_alternatives++ > MAX_ALTERNATIVES)
            limits_fail(s->l, QN_EUNSUP, "its conditions have more than %d combinations", MAX_ALTERNATIVES);
        if (apply_option(s, &copy, o) && !decide(s, node, &copy, depth + 1)) return false;
        if (s->l->rc) return false;
    }
    return true;
}

bool expand_claims(struct schema *s, uint32_t node)
{
    struct alternative a = {
        .types = TYPE_ALL, .string = RE_ALL, .number = RE_ALL, .most_names = JSON_NO_MAX, .most_items = JSON_NO_MAX};
    uint32_t n, set = node > NODE_NEVER ? node - s->shift : node;
    word_set_get(&s->sets, set, &n);
    for (uint32_t i = n; i-- > 0;) {
        uint32_t claim = word_set_get(&s->sets, set, &n)[i];
        if (claim == CLAIM_NEVER) return true;
        struct atom atom = {.kind = ATOM_SCHEMA, .schema = s->entries[claim / 2].value, .negative = claim & 1};
        a.list[ATOM_SCHEMA] = atom_new(s, atom, a.list[ATOM_SCHEMA]);
    }
    s->n_alternatives = 0;
    return decide(s, node, &a, 0);
}
