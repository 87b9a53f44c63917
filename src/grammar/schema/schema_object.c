/* SPDX-License-Identifier: MIT
 *
 * schema_object.c: the objects of an alternative: which names they have, and which values.
 *
 * A name is one of those that the schemas mention, or one of the rest. The rest is divided by the patterns of
 * `patternProperties` that a name matches, so that all names of a part have the same values.
 */
#include <stdlib.h>
#include <string.h>

#include "grammar/schema/schema_impl.h"

#define MAX_PATTERNS 64
#define MAX_PARTS    64 /* of the names that are not mentioned */

/* A part of the names that no schema mentions. */
struct part {
    re_id names;
    uint64_t patterns; /* those that they match */
};

struct building {
    struct schema *s;
    const struct alternative *a;
    const struct atom **groups; /* [n_groups] the first one first */
    uint32_t n_groups;
    const char **names; /* [n_names] in order */
    uint32_t *slots;    /* [n_slots] hash table: index of names[] + 1 */
    uint32_t n_names, n_slots;
    const char *patterns[MAX_PATTERNS]; /* which differ */
    re_id pattern_re[MAX_PATTERNS];
    uint32_t n_patterns;
    re_id allowed;    /* the names that `propertyNames` allows; RE_ALL: all */
    uint32_t *claims; /* of one node; there is room for all */
};

/* ---- lists ---- */

static uint32_t length_of(const struct atom *list)
{
    uint32_t n = 0;
    for (; list; list = list->next) n++;
    return n;
}

static bool list_groups(struct building *b)
{
    uint32_t n = length_of(b->a->list[ATOM_GROUP]);
    b->groups = slabs_get(&b->s->slabs, b->s->l, n * sizeof *b->groups);
    b->n_groups = n;
    if (!b->groups) return false;
    for (const struct atom *g = b->a->list[ATOM_GROUP]; g; g = g->next) b->groups[--n] = g;
    return true;
}

static uint32_t hash_text(const char *s)
{
    uint32_t h = 2166136261u;
    for (; *s; s++) h = (h ^ (uint8_t)*s) * 16777619u;
    return h ^ h >> 15;
}

static uint32_t *slot_of(const struct building *b, const char *name)
{
    uint32_t at = hash_text(name) & (b->n_slots - 1);
    while (b->slots[at] && strcmp(b->names[b->slots[at] - 1], name) != 0) at = (at + 1) & (b->n_slots - 1);
    return &b->slots[at];
}

static void add_name(struct building *b, const char *name)
{
    uint32_t *slot = slot_of(b, name);
    if (*slot) return;
    b->names[b->n_names] = name;
    *slot = ++b->n_names;
}

static void add_names_of(struct building *b, const struct atom *last)
{
    uint32_t n = length_of(last);
    const struct atom **list = slabs_get(&b->s->slabs, b->s->l, n * sizeof *list);
    if (!list) return;
    for (uint32_t i = n; last; last = last->next) list[--i] = last;
    for (uint32_t i = 0; i < n; i++) add_name(b, list[i]->name);
}

static bool list_names(struct building *b)
{
    size_t most = length_of(b->a->list[ATOM_HAS]) + length_of(b->a->list[ATOM_VALUE]);
    for (uint32_t i = 0; i < b->n_groups; i++)
        most += json_object_size(json_object_get(b->groups[i]->schema, "properties"));
    for (b->n_slots = 8; b->n_slots < 2 * most;) b->n_slots *= 2;
    b->names = slabs_get(&b->s->slabs, b->s->l, most * sizeof *b->names);
    b->slots = slabs_get(&b->s->slabs, b->s->l, b->n_slots * sizeof *b->slots);
    if (!b->names || !b->slots || !limits_spend(b->s->l, most)) return false;
    for (uint32_t i = 0; i < b->n_groups; i++) {
        json_t *properties = json_object_get(b->groups[i]->schema, "properties");
        for (void *it = json_object_iter(properties); it; it = json_object_iter_next(properties, it))
            add_name(b, json_object_iter_key(it));
    }
    add_names_of(b, b->a->list[ATOM_HAS]);
    add_names_of(b, b->a->list[ATOM_VALUE]);
    if (b->n_names > OBJECT_MAX_NAMES)
        limits_fail(b->s->l, QN_EUNSUP, "an object with more than %d names is not supported", OBJECT_MAX_NAMES);
    return !b->s->l->rc;
}

/* ---- patterns ---- */

static bool add_pattern(struct building *b, const json_t *schema, const char *pattern)
{
    for (uint32_t i = 0; i < b->n_patterns; i++)
        if (strcmp(b->patterns[i], pattern) == 0) return true;
    if (b->n_patterns == MAX_PATTERNS)
        return schema_fail(b->s, schema, "patternProperties", QN_EUNSUP, "more than %d patterns", MAX_PATTERNS);
    b->s->at = schema;
    b->s->keyword = "patternProperties";
    b->patterns[b->n_patterns] = pattern;
    b->pattern_re[b->n_patterns++] = scalar_pattern(b->s, pattern, strlen(pattern));
    return !b->s->l->rc;
}

static bool list_patterns(struct building *b)
{
    for (uint32_t i = 0; i < b->n_groups; i++) {
        json_t *patterns = json_object_get(b->groups[i]->schema, "patternProperties");
        for (void *it = json_object_iter(patterns); it; it = json_object_iter_next(patterns, it))
            if (!add_pattern(b, b->groups[i]->schema, json_object_iter_key(it))) return false;
    }
    return true;
}

/* The patterns that a name matches. */
static uint64_t patterns_of(struct building *b, const char *name)
{
    uint64_t set = 0;
    for (uint32_t i = 0; i < b->n_patterns; i++)
        if (re_matches(b->s->r, b->pattern_re[i], name, strlen(name))) set |= (uint64_t)1 << i;
    return set;
}

/* ---- values ---- */

/* Adds what the group says about the value of a name, which is NULL for names that no schema mentions. Whether it says
 * anything: then the name is evaluated. n NULL: adds nothing. */
static bool add_group_claims(struct building *b, const json_t *group, const char *name, uint64_t patterns, uint32_t *n)
{
    json_t *list = json_object_get(group, "patternProperties");
    const json_t *mine = name ? json_object_get(json_object_get(group, "properties"), name) : NULL;
    const json_t *others = json_object_get(group, "additionalProperties");
    bool evaluated = mine != NULL;
    if (mine && n) claims_add(b->s, b->claims, n, mine, false);
    for (uint32_t i = 0; list && i < b->n_patterns; i++) {
        const json_t *schema = patterns >> i & 1 ? json_object_get(list, b->patterns[i]) : NULL;
        if (schema && n) claims_add(b->s, b->claims, n, schema, false);
        evaluated |= schema != NULL;
    }
    if (!evaluated && others && n) claims_add(b->s, b->claims, n, others, false);
    return evaluated || others;
}

static bool is_within(const struct scope *scope, const json_t *schema)
{
    for (; scope; scope = scope->outer)
        if (scope->schema == schema) return true;
    return false;
}

static bool asks(const struct atom *u) { return strcmp(u->name, "unevaluatedProperties") == 0; }

/* Whether a group inside the schema evaluates the name, or another `unevaluatedProperties` inside it does. */
static bool is_evaluated(struct building *b, const json_t *schema, const char *name, uint64_t patterns)
{
    for (uint32_t i = 0; i < b->n_groups; i++)
        if (is_within(b->groups[i]->scope, schema) && add_group_claims(b, b->groups[i]->schema, name, patterns, NULL))
            return true;
    for (const struct atom *u = b->a->list[ATOM_UNEVALUATED]; u; u = u->next)
        if (u->schema != schema && is_within(u->scope, schema) && asks(u)) return true;
    return false;
}

/* The node of the values of a name, or of a part of the other names. */
static uint32_t value_node(struct building *b, const char *name, uint64_t patterns)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_groups; i++) add_group_claims(b, b->groups[i]->schema, name, patterns, &n);
    for (const struct atom *u = b->a->list[ATOM_UNEVALUATED]; u; u = u->next)
        if (asks(u) && !is_evaluated(b, u->schema, name, patterns))
            claims_add(b->s, b->claims, &n, json_object_get(u->schema, u->name), false);
    for (const struct atom *v = name ? b->a->list[ATOM_VALUE] : NULL; v; v = v->next)
        if (strcmp(v->name, name) == 0) claims_add(b->s, b->claims, &n, v->schema, v->negative);
    return schema_node(b->s, b->claims, n);
}

static size_t most_claims(const struct building *b)
{
    return (size_t)b->n_groups * (b->n_patterns + 2) + length_of(b->a->list[ATOM_VALUE]) +
           length_of(b->a->list[ATOM_UNEVALUATED]) + 1;
}

/* ---- names ---- */

/* As JSON writes it, with the escapes that are necessary. */
static const char *escape(struct building *b, const char *name, uint32_t *n)
{
    static const char hex[] = "0123456789abcdef", shorts[] = "\bb\tt\nn\ff\rr\"\"\\\\";
    char *text = slabs_get(&b->s->t->slabs, b->s->l, 6 * strlen(name) + 1), *p = text;
    for (; text && *name; name++) {
        const char *k = shorts;
        while (*k && *k != *name) k += 2;
        if (*k) {
            *p++ = '\\';
            *p++ = k[1];
        } else if ((uint8_t)*name < 0x20) {
            memcpy(p, "\\u00", 4);
            p[4] = hex[*name >> 4];
            p[5] = hex[*name & 15];
            p += 6;
        } else {
            *p++ = *name;
        }
    }
    *n = (uint32_t)(p - text);
    return text;
}

static bool fill_names(struct building *b, struct object_shape *o)
{
    for (uint32_t i = 0; i < b->n_names; i++) {
        const char *name = b->names[i];
        struct object_name *x = &o->names[i];
        bool refused = b->allowed != RE_ALL && !re_matches(b->s->r, b->allowed, name, strlen(name));
        x->node = refused ? NODE_NEVER : value_node(b, name, patterns_of(b, name));
        x->text = escape(b, name, &x->n);
        if (!x->text || !limits_spend(b->s->l, 4 + b->n_groups)) return false;
    }
    for (const struct atom *h = b->a->list[ATOM_HAS]; h; h = h->next)
        o->names[*slot_of(b, h->name) - 1].required = true;
    o->n_names = b->n_names;
    return true;
}

static int by_text(const void *a, const void *b, void *names)
{
    const struct object_name *x = (struct object_name *)names + *(const uint32_t *)a;
    const struct object_name *y = (struct object_name *)names + *(const uint32_t *)b;
    int c = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

/* ---- the rest ---- */

/* Whether no other names are possible, which saves looking at all parts of them. */
static bool is_closed(const struct building *b)
{
    for (uint32_t i = 0; i < b->n_groups; i++)
        if (json_is_false(json_object_get(b->groups[i]->schema, "additionalProperties")) &&
            json_object_size(json_object_get(b->groups[i]->schema, "patternProperties")) == 0)
            return true;
    return false;
}

/* All names that are not mentioned. */
static re_id other_names(struct building *b)
{
    struct str_ref *words = slabs_get(&b->s->slabs, b->s->l, b->n_names * sizeof *words);
    re_id any = re_chars(b->s->r, 0, RE_NO_MAX);
    if (!words) return RE_NONE;
    for (uint32_t i = 0; i < b->n_names; i++) words[i] = (struct str_ref){b->names[i], (uint32_t)strlen(b->names[i])};
    re_id named = b->n_names ? re_words(b->s->r, words, b->n_names) : RE_NONE;
    return re_and(b->s->r, (const re_id[]){any, b->allowed, re_not(b->s->r, named)}, 3);
}

/* Divides each part by a pattern. */
static bool divide(struct building *b, struct part *parts, uint32_t *n, uint32_t pattern)
{
    uint32_t before = *n;
    re_id matches = b->pattern_re[pattern], others = re_not(b->s->r, matches);
    for (uint32_t i = 0; i < before; i++) {
        struct part in = {re_and2(b->s->r, parts[i].names, matches), parts[i].patterns | (uint64_t)1 << pattern};
        struct part out = {re_and2(b->s->r, parts[i].names, others), parts[i].patterns};
        bool has_in = re_is_live(b->s->r, in.names), has_out = re_is_live(b->s->r, out.names);
        if (has_in && has_out && *n == MAX_PARTS)
            return schema_fail(b->s, b->groups[0]->schema, "patternProperties", QN_EUNSUP, "too many patterns overlap");
        if (has_in)
            parts[i] = in;
        else
            parts[i].names = out.names;
        if (has_in && has_out) parts[(*n)++] = out;
        if (!has_in && !has_out) parts[i].names = RE_NONE;
    }
    return !b->s->l->rc;
}

static bool fill_rest(struct building *b, struct object_shape *o)
{
    struct part parts[MAX_PARTS] = {{.patterns = 0}};
    uint32_t n = 1;
    if (is_closed(b)) return true;
    parts[0].names = other_names(b);
    if (!re_is_live(b->s->r, parts[0].names)) return !b->s->l->rc;
    for (uint32_t i = 0; i < b->n_patterns; i++)
        if (!divide(b, parts, &n, i)) return false;
    o->rest = slabs_get(&b->s->t->slabs, b->s->l, n * sizeof *o->rest);
    for (uint32_t i = 0; i < n && o->rest; i++) {
        uint32_t node = parts[i].names ? value_node(b, NULL, parts[i].patterns) : NODE_NEVER;
        if (node != NODE_NEVER) o->rest[o->n_rest++] = (struct object_rest){parts[i].names, node};
    }
    return !b->s->l->rc;
}

/* ---- the shape ---- */

static bool find_allowed(struct building *b)
{
    uint32_t n = 0, node;
    b->allowed = RE_ALL;
    if (!b->a->list[ATOM_NAMES]) return true;
    uint32_t *claims = slabs_get(&b->s->slabs, b->s->l, length_of(b->a->list[ATOM_NAMES]) * sizeof *claims);
    if (!claims) return false;
    for (const struct atom *x = b->a->list[ATOM_NAMES]; x; x = x->next)
        claims_add(b->s, claims, &n, x->schema, x->negative);
    node = schema_node(b->s, claims, n);
    if (b->s->l->rc || !schema_expand(b->s, node)) return false;
    if (b->s->info[node].state == NODE_OPEN)
        return schema_fail(b->s, b->a->list[ATOM_NAMES]->schema, NULL, QN_EUNSUP, "propertyNames refers to itself");
    b->allowed = b->s->t->nodes[node].string;
    return true;
}

static bool fill(struct building *b, struct object_shape *o)
{
    struct slabs *c = &b->s->t->slabs;
    if (!list_groups(b) || !list_names(b) || !list_patterns(b) || !find_allowed(b)) return false;
    b->claims = slabs_get(&b->s->slabs, b->s->l, most_claims(b) * sizeof *b->claims);
    o->names = slabs_get(c, b->s->l, b->n_names * sizeof *o->names);
    o->sorted = slabs_get(c, b->s->l, b->n_names * sizeof *o->sorted);
    o->required_from = slabs_get(c, b->s->l, (b->n_names + 1) * sizeof *o->required_from);
    o->allowed_from = slabs_get(c, b->s->l, (b->n_names + 1) * sizeof *o->allowed_from);
    if (!b->claims || !o->names || !o->sorted || !o->required_from || !o->allowed_from) return false;
    if (!fill_names(b, o) || !fill_rest(b, o)) return false;
    for (uint32_t i = 0; i < o->n_names; i++) o->sorted[i] = i;
    qsort_r(o->sorted, o->n_names, sizeof *o->sorted, by_text, o->names);
    return true;
}

struct object_shape *object_new(struct schema *s, const struct alternative *a, bool *none)
{
    struct building b = {.s = s, .a = a};
    struct object_shape *o = slabs_get(&s->t->slabs, s->l, sizeof *o);
    *none = true;
    if (!o || a->least_names > a->most_names || !fill(&b, o)) return NULL;
    o->least = a->least_names;
    o->most = a->most_names;
    o->hash = o->n_rest;
    for (uint32_t i = 0; i < o->n_names; i++)
        o->hash = (o->hash ^ o->names[i].node ^ (uint32_t)o->names[i].required << 31) * 16777619u;
    *none = false;
    return o;
}
