/* SPDX-License-Identifier: MIT
 *
 * schema.c: compiles a schema: numbers its parts, makes nodes until there are no new ones, and drops what has no value.
 */
#include "grammar/schema/schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "grammar/schema/schema_impl.h"

#define MAX_DEPTH 20 /* nodes that are expanded while others are */

/* ---- failures ---- */

bool schema_fail(struct schema *s, const json_t *schema, const char *keyword, int code, const char *fmt, ...)
{
    char line[sizeof s->l->error.msg];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (s->l->rc) return false;
    s->at = schema;
    s->keyword = keyword;
    limits_fail(s->l, code, "%s", line);
    return false;
}

static uint32_t slot_of(const struct schema *s, const json_t *value)
{
    uint32_t at = (uint32_t)(((uint64_t)(uintptr_t)value * 0x9E3779B97F4A7C15u) >> 32) & (s->n_slots - 1);
    while (s->slots[at] && s->entries[s->slots[at] - 1].value != value) at = (at + 1) & (s->n_slots - 1);
    return at;
}

static const json_t *origin_of(const struct schema *s, const json_t *schema)
{
    uint32_t i = s->n_slots ? s->slots[slot_of(s, schema)] : 0;
    return i && s->entries[i - 1].origin ? s->entries[i - 1].origin : schema;
}

/* Puts the place before the message of a failure. */
static void add_place(struct schema *s)
{
    char place[300];
    struct qn_error e = s->l->error;
    if (e.msg[0] == '/' || s->l->rc == QN_ENOMEM) return;
    if (!s->at || !schema_doc_place(&s->doc, origin_of(s, s->at), place, sizeof place)) return;
    bool shows_keyword = s->keyword && json_is_object(s->at) && s->at == origin_of(s, s->at);
    if (!shows_keyword && !place[0]) snprintf(place, sizeof place, "/");
    error_set(&s->l->error, e.code, "%s%s%s: %s", place, shows_keyword ? "/" : "", shows_keyword ? s->keyword : "",
              e.msg);
}

/* ---- numbers of values ---- */

static bool grow_slots(struct schema *s)
{
    uint32_t n = s->n_slots ? s->n_slots * 2 : 64;
    uint32_t *p = limits_grow(s->l, s->slots, &s->cap_slots, n, sizeof *p);
    if (!p) return false;
    s->slots = p;
    s->n_slots = n;
    memset(p, 0, n * sizeof *p);
    for (uint32_t i = 0; i < s->n_entries; i++) p[slot_of(s, s->entries[i].value)] = i + 1;
    return true;
}

uint32_t schema_number(struct schema *s, const json_t *value)
{
    if (s->n_entries * 2 >= s->n_slots && !grow_slots(s)) return UINT32_MAX;
    uint32_t at = slot_of(s, value);
    if (s->slots[at]) return s->slots[at] - 1;
    struct schema_entry *p = limits_grow(s->l, s->entries, &s->cap_entries, s->n_entries + 1, sizeof *p);
    if (!p) return UINT32_MAX;
    s->entries = p;
    p[s->n_entries] = (struct schema_entry){.value = value};
    s->slots[at] = ++s->n_entries;
    return s->n_entries - 1;
}

const json_t *schema_keep(struct schema *s, json_t *made, const json_t *origin, const json_t *of)
{
    json_t **p = made ? limits_grow(s->l, s->made, &s->cap_made, s->n_made + 1, sizeof *p) : NULL;
    if (!p) {
        limits_fail(s->l, QN_ENOMEM, "there is no memory for a schema");
        json_decref(made);
        return NULL;
    }
    s->made = p;
    p[s->n_made++] = made;
    uint32_t i = schema_number(s, made), k = schema_number(s, of);
    if (i == UINT32_MAX || k == UINT32_MAX) return NULL;
    s->entries[i].origin = origin_of(s, origin);
    s->entries[k].made = made;
    return made;
}

bool schema_charge(struct schema *s, size_t bytes)
{
    if (!limits_take(s->l, bytes)) return false;
    s->made_bytes += bytes;
    return true;
}

const json_t *schema_made(struct schema *s, const json_t *of)
{
    uint32_t i = schema_number(s, of);
    return i == UINT32_MAX ? NULL : s->entries[i].made;
}

/* ---- nodes ---- */

void claims_add(struct schema *s, uint32_t *claims, uint32_t *n, const json_t *schema, bool negative)
{
    if (json_is_boolean(schema) || (json_is_object(schema) && json_object_size(schema) == 0)) {
        bool holds = !json_is_false(schema) != negative;
        if (!holds) claims[(*n)++] = CLAIM_NEVER;
        return;
    }
    uint32_t i = schema_number(s, schema);
    if (i != UINT32_MAX) claims[(*n)++] = i * 2 + negative;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

uint32_t schema_node(struct schema *s, uint32_t *claims, uint32_t n)
{
    uint32_t k = 0;
    if (n > 1) qsort(claims, n, sizeof *claims, by_number);
    for (uint32_t i = 0; i < n; i++) {
        if (claims[i] == CLAIM_NEVER || (k && claims[i] == (claims[k - 1] ^ 1) && (claims[i] & 1))) return NODE_NEVER;
        if (k == 0 || claims[i] != claims[k - 1]) claims[k++] = claims[i];
    }
    uint32_t node = word_set_add(&s->sets, s->l, claims, k);
    if (node > NODE_NEVER) node += s->shift;
    if (node < s->t->n_nodes || s->l->rc) return node;
    struct json_node *nodes = limits_grow(s->l, s->t->nodes, &s->t->cap_nodes, node + 1, sizeof *nodes);
    if (nodes) s->t->nodes = nodes;
    struct node_info *info = nodes ? limits_grow(s->l, s->info, &s->cap_info, node + 1, sizeof *info) : NULL;
    if (!info) return NODE_NEVER;
    s->info = info;
    nodes[node] = (struct json_node){0};
    info[node] = (struct node_info){0};
    s->t->n_nodes = node + 1;
    return node;
}

bool schema_expand(struct schema *s, uint32_t node)
{
    if (s->info[node].state != NODE_NEW) return !s->l->rc;
    uint32_t n = s->n_alternatives;
    s->info[node].state = NODE_OPEN;
    s->depth++;
    bool ok = expand_claims(s, node);
    s->depth--;
    s->n_alternatives = n;
    s->info[node].state = NODE_EXPANDED;
    return ok && !s->l->rc;
}

static bool looks_fitting(struct schema *s, uint32_t node)
{
    const struct json_node *x = &s->t->nodes[node];
    if (x->raw || x->string) return true;
    for (uint32_t i = 0; i < s->t->nodes[node].n_objects; i++)
        if (object_fits(s, s->t->nodes[node].objects[i])) return true;
    for (uint32_t i = 0; i < s->t->nodes[node].n_arrays; i++)
        if (array_fits(s, s->t->nodes[node].arrays[i])) return true;
    return false;
}

bool schema_fits(struct schema *s, uint32_t node)
{
    enum { UNKNOWN, NO, YES, BUSY };
    if (node == NODE_ANY) return true;
    if (s->info[node].fits != UNKNOWN) return s->info[node].fits != NO;
    if (s->info[node].state == NODE_OPEN || (s->info[node].state == NODE_NEW && s->depth > MAX_DEPTH)) return true;
    if (!schema_expand(s, node)) return true;
    s->info[node].fits = BUSY;
    s->depth++;
    bool fits = s->depth > 10 * MAX_DEPTH || looks_fitting(s, node);
    s->depth--;
    s->info[node].fits = fits ? YES : NO;
    return fits;
}

/* ---- all of it ---- */

/* Makes the two nodes that all schemas have, and takes those of earlier schemas as they are. */
static bool make_nodes(struct schema *s)
{
    struct json_tables *t = s->t;
    s->n_before = t->n_nodes;
    s->shift = t->n_nodes ? t->n_nodes - NODE_NEVER - 1 : 0;
    s->info = limits_grow(s->l, NULL, &s->cap_info, t->n_nodes + 16, sizeof *s->info);
    if (!s->info) return false;
    for (uint32_t i = 0; i < t->n_nodes; i++) s->info[i] = (struct node_info){NODE_EXPANDED, 2};
    s->info[NODE_NEVER] = (struct node_info){NODE_EXPANDED, 1};
    if (s->n_before) return true;
    t->nodes = limits_grow(s->l, NULL, &t->cap_nodes, 16, sizeof *t->nodes);
    if (!t->nodes) return false;
    t->nodes[NODE_ANY] = t->nodes[NODE_NEVER] = (struct json_node){0};
    s->info[NODE_ANY] = (struct node_info){0};
    t->n_nodes = 2;
    return true;
}

static bool init(struct schema *s, const json_t *schema)
{
    uint32_t never = CLAIM_NEVER;
    s->patterns = json_object();
    if (!s->patterns) limits_fail(s->l, QN_ENOMEM, "there is no memory for a schema");
    if (!word_set_init(&s->sets, s->l) || !scalar_init(s) || !make_nodes(s)) return false;
    word_set_add(&s->sets, s->l, &never, 1);
    return schema_doc_init(&s->doc, s->l, &s->slabs, schema);
}

/* Counts the values in v, up to `most`. *has_list: there is an `enum` with too many. */
static size_t count_values(const json_t *v, size_t most, bool *has_list)
{
    const char *key;
    json_t *one;
    size_t n = 1;
    *has_list |= json_array_size(json_object_get(v, "enum")) > SCHEMA_MAX_ENUM;
    for (size_t i = 0; i < json_array_size(v) && n <= most; i++)
        n += count_values(json_array_get(v, i), most - n, has_list);
    json_object_foreach((json_t *)v, key, one)
    {
        if (n > most) break;
        n += count_values(one, most - n, has_list);
    }
    return n;
}

bool schema_is_small(const json_t *schema)
{
    bool has_list = false;
    return count_values(schema, SCHEMA_MAX_VALUES, &has_list) <= SCHEMA_MAX_VALUES && !has_list;
}

static bool compile(struct schema *s, const json_t *schema, uint32_t *root)
{
    uint32_t claims[1], n = 0;
    bool has_list = false; /* refused with its place, later */
    if (count_values(schema, SCHEMA_MAX_VALUES, &has_list) > SCHEMA_MAX_VALUES) {
        limits_fail(s->l, QN_EUNSUP, "the schema has more than %d values", SCHEMA_MAX_VALUES);
        return false;
    }
    if (!init(s, schema)) return false;
    s->at = schema;
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return schema_fail(s, schema, NULL, QN_EDATA, "a schema is an object, true or false");
    claims_add(s, claims, &n, schema, false);
    *root = schema_node(s, claims, n);
    for (uint32_t i = s->n_before; i < s->t->n_nodes; i++)
        if (!schema_expand(s, i)) return false;
    schema_find_values(s);
    if (s->l->rc) return false;
    s->at = schema;
    s->keyword = NULL;
    if (s->info[*root].fits != 2) return schema_fail(s, schema, NULL, QN_EDATA, "no value fits the schema");
    return true;
}

bool schema_compile(struct json_tables *t, struct regex *r, const json_t *schema, uint32_t *root)
{
    struct schema s = {.l = r->l, .r = r, .t = t};
    bool ok = compile(&s, schema, root);
    if (!ok) add_place(&s);
    for (uint32_t i = 0; i < s.n_made; i++) json_decref(s.made[i]);
    limits_give(s.l, s.made_bytes);
    json_decref(s.patterns);
    limits_release(s.l, s.made, s.cap_made, sizeof *s.made);
    limits_release(s.l, s.entries, s.cap_entries, sizeof *s.entries);
    limits_release(s.l, s.slots, s.cap_slots, sizeof *s.slots);
    limits_release(s.l, s.info, s.cap_info, sizeof *s.info);
    word_set_deinit(&s.sets, s.l);
    schema_doc_deinit(&s.doc);
    slabs_free(&s.slabs, s.l);
    return ok;
}

void json_tables_deinit(struct json_tables *t, struct limits *l)
{
    limits_release(l, t->nodes, t->cap_nodes, sizeof *t->nodes);
    slabs_free(&t->slabs, l);
    *t = (struct json_tables){0};
}
