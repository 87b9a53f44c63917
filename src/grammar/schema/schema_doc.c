/* SPDX-License-Identifier: MIT
 *
 * schema_doc.c: see schema_doc.h. JSON Schema Core 2020-12, sections 8.2 and 9.
 */
#include "grammar/schema/schema_doc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/schema/schema_uri.h"

/* ---- drafts ---- */

static const struct {
    const char *uri; /* without its scheme and '#' */
    enum schema_draft draft;
} drafts[] = {
    {"json-schema.org/draft/2020-12/schema", DRAFT_2020}, {"json-schema.org/draft/2019-09/schema", DRAFT_2019},
    {"json-schema.org/draft-07/schema", DRAFT_7},         {"json-schema.org/draft-06/schema", DRAFT_6},
    {"json-schema.org/draft-04/schema", DRAFT_4},         {"json-schema.org/schema", DRAFT_2020},
};

static bool read_draft(struct schema_doc *d)
{
    const char *uri = json_string_value(json_object_get(d->root, "$schema"));
    d->draft = DRAFT_2020;
    if (!uri) return true;
    const char *p = strncmp(uri, "https://", 8) == 0 ? uri + 8 : strncmp(uri, "http://", 7) == 0 ? uri + 7 : uri;
    size_t n = strcspn(p, "#");
    if (p[n] == '#' && p[n + 1]) n = 0;
    for (size_t i = 0; i < sizeof drafts / sizeof drafts[0]; i++) {
        if (strlen(drafts[i].uri) != n || memcmp(p, drafts[i].uri, n) != 0) continue;
        d->draft = drafts[i].draft;
        return true;
    }
    limits_fail(d->l, QN_EUNSUP, "/$schema: the draft '%.100s' is not known", uri);
    return false;
}

/* ---- identifiers and anchors ---- */

static bool add_resource(struct schema_doc *d, const char *uri, const json_t *root)
{
    struct doc_resource *p = limits_grow(d->l, d->resources, &d->cap_resources, d->n_resources + 1, sizeof *p);
    if (!p || !uri) return false;
    d->resources = p;
    p[d->n_resources++] = (struct doc_resource){uri, root};
    return true;
}

static bool add_anchor(struct schema_doc *d, struct doc_anchor a)
{
    struct doc_anchor *p = limits_grow(d->l, d->anchors, &d->cap_anchors, d->n_anchors + 1, sizeof *p);
    if (!p) return false;
    d->anchors = p;
    p[d->n_anchors++] = a;
    return true;
}

static bool add_base(struct schema_doc *d, const json_t *schema, uint32_t resource)
{
    struct doc_base *p = limits_grow(d->l, d->bases, &d->cap_bases, d->n_bases + 1, sizeof *p);
    if (!p) return false;
    d->bases = p;
    p[d->n_bases++] = (struct doc_base){schema, resource};
    return true;
}

/* Reads the identifier and the anchors of one object. *resource: that of what is around it, then its own. */
static bool read_object(struct schema_doc *d, const json_t *o, uint32_t *resource)
{
    const char *id = json_string_value(json_object_get(o, d->draft == DRAFT_4 ? "id" : "$id"));
    const char *names[] = {json_string_value(json_object_get(o, "$anchor")),
                           json_string_value(json_object_get(o, "$dynamicAnchor"))};
    if (d->draft <= DRAFT_7 && json_object_get(o, "$ref")) id = NULL; /* its siblings mean nothing */
    if (id && *id == '#' && id[1] && !add_anchor(d, (struct doc_anchor){*resource, id + 1, o, false})) return false;
    if (id && *id != '#') {
        const char *uri = uri_join(d->slabs, d->l, d->resources[*resource].uri, id, strcspn(id, "#"));
        if (o == d->root && uri) d->resources[0].uri = uri;
        if (o != d->root && !add_resource(d, uri, o)) return false;
        if (o != d->root) *resource = d->n_resources - 1;
    }
    for (int i = 0; i < 2; i++)
        if (names[i] && !add_anchor(d, (struct doc_anchor){*resource, names[i], o, i == 1})) return false;
    bool refers = json_object_get(o, "$ref") || json_object_get(o, "$dynamicRef");
    return !refers || *resource == 0 || add_base(d, o, *resource);
}

/* The keywords with schemas in them. Elsewhere nothing is an identifier. */
static const struct {
    const char *name;
    enum { ONE, LIST, MAP } holds; /* a schema or a list of them; an object whose members are schemas */
} keywords[] = {
    {"$defs", MAP},
    {"additionalItems", ONE},
    {"additionalProperties", ONE},
    {"allOf", LIST},
    {"anyOf", LIST},
    {"contains", ONE},
    {"contentSchema", ONE},
    {"definitions", MAP},
    {"dependencies", MAP},
    {"dependentSchemas", MAP},
    {"else", ONE},
    {"if", ONE},
    {"items", ONE},
    {"not", ONE},
    {"oneOf", LIST},
    {"patternProperties", MAP},
    {"prefixItems", LIST},
    {"properties", MAP},
    {"propertyNames", ONE},
    {"then", ONE},
    {"unevaluatedItems", ONE},
    {"unevaluatedProperties", ONE},
};

static bool read_schema(struct schema_doc *d, const json_t *v, uint32_t resource)
{
    if (!limits_spend(d->l, 1)) return false;
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!read_schema(d, json_array_get(v, i), resource)) return false;
    if (!json_is_object(v)) return true;
    if (!read_object(d, v, &resource)) return false;
    for (size_t i = 0; i < sizeof keywords / sizeof keywords[0]; i++) {
        json_t *inner = json_object_get(v, keywords[i].name);
        if (inner && keywords[i].holds != MAP && !read_schema(d, inner, resource)) return false;
        for (void *it = keywords[i].holds == MAP ? json_object_iter(inner) : NULL; it;
             it = json_object_iter_next(inner, it))
            if (!read_schema(d, json_object_iter_value(it), resource)) return false;
    }
    return true;
}

static bool is_too_deep(const json_t *v, unsigned depth)
{
    if (depth > SCHEMA_DEPTH) return true;
    for (size_t i = 0; i < json_array_size(v); i++)
        if (is_too_deep(json_array_get(v, i), depth + 1)) return true;
    for (void *it = json_object_iter((json_t *)v); it; it = json_object_iter_next((json_t *)v, it))
        if (is_too_deep(json_object_iter_value(it), depth + 1)) return true;
    return false;
}

static int by_address(const void *a, const void *b)
{
    const struct doc_base *x = a, *y = b;
    return ((uintptr_t)x->schema > (uintptr_t)y->schema) - ((uintptr_t)x->schema < (uintptr_t)y->schema);
}

bool schema_doc_init(struct schema_doc *d, struct limits *l, struct slabs *slabs, const json_t *root)
{
    *d = (struct schema_doc){.l = l, .slabs = slabs, .root = root};
    if (is_too_deep(root, 0)) {
        limits_fail(l, QN_EDATA, "the schema is nested more than %d deep", SCHEMA_DEPTH);
        d->root = NULL; /* nobody looks for a place in it */
        return false;
    }
    if (!read_draft(d) || !add_resource(d, "", root) || !read_schema(d, root, 0)) return false;
    if (d->n_bases > 1) qsort(d->bases, d->n_bases, sizeof *d->bases, by_address);
    return true;
}

void schema_doc_deinit(struct schema_doc *d)
{
    if (!d->l) return;
    limits_release(d->l, d->resources, d->cap_resources, sizeof *d->resources);
    limits_release(d->l, d->anchors, d->cap_anchors, sizeof *d->anchors);
    limits_release(d->l, d->bases, d->cap_bases, sizeof *d->bases);
    *d = (struct schema_doc){0};
}

/* ---- references ---- */

/* Takes the "~0" and "~1" of a JSON pointer's token out. */
static void decode_tildes(char *s)
{
    char *out = s;
    for (; *s; s++) {
        bool escaped = *s == '~' && (s[1] == '0' || s[1] == '1');
        *out++ = escaped ? (s[1] == '0' ? '~' : '/') : *s;
        if (escaped) s++;
    }
    *out = '\0';
}

static const json_t *follow_pointer(const json_t *v, char *pointer)
{
    for (char *p = pointer; v && p;) {
        char *token = p + 1, *end = strchr(token, '/'), *rest;
        if (end) *end = '\0';
        p = end;
        decode_tildes(token);
        if (json_is_array(v)) {
            unsigned long i = strtoul(token, &rest, 10);
            v = *token && !*rest ? json_array_get(v, i) : NULL;
        } else {
            v = json_object_get(v, token);
        }
    }
    return v;
}

static uint32_t base_of(const struct schema_doc *d, const json_t *schema)
{
    struct doc_base key = {schema, 0};
    const struct doc_base *b = NULL;
    if (d->n_bases) b = bsearch(&key, d->bases, d->n_bases, sizeof key, by_address);
    return b ? b->resource : 0;
}

static const json_t *follow_anchor(struct schema_doc *d, uint32_t resource, const char *name, bool dynamic)
{
    const json_t *found = NULL;
    uint32_t n_dynamic = 0;
    bool is_dynamic = false;
    for (uint32_t i = 0; i < d->n_anchors; i++) {
        if (strcmp(d->anchors[i].name, name) != 0) continue;
        n_dynamic += d->anchors[i].dynamic;
        if (d->anchors[i].resource != resource || found) continue;
        found = d->anchors[i].schema;
        is_dynamic = d->anchors[i].dynamic;
    }
    if (found && dynamic && is_dynamic && n_dynamic > 1) {
        limits_fail(d->l, QN_EUNSUP, "$dynamicRef with several targets is not supported");
        return NULL;
    }
    return found;
}

const json_t *schema_doc_follow(struct schema_doc *d, const json_t *schema, const char *ref, bool dynamic)
{
    size_t n = strcspn(ref, "#");
    uint32_t resource = base_of(d, schema);
    const char *uri = uri_join(d->slabs, d->l, d->resources[resource].uri, ref, n);
    char *fragment = uri_copy(d->slabs, d->l, ref[n] ? ref + n + 1 : "", ref[n] ? strlen(ref + n + 1) : 0);
    const json_t *found = NULL;
    if (!uri || !fragment) return NULL;
    if (n) {
        for (resource = 0; resource < d->n_resources && strcmp(d->resources[resource].uri, uri) != 0;) resource++;
        if (resource == d->n_resources) {
            limits_fail(d->l, QN_EUNSUP, "'%.200s' is in another document", ref);
            return NULL;
        }
    }
    uri_decode(fragment);
    if (*fragment && *fragment != '/') {
        found = follow_anchor(d, resource, fragment, dynamic);
    } else {
        char *again = uri_copy(d->slabs, d->l, fragment, strlen(fragment));
        found = *fragment ? follow_pointer(d->resources[resource].root, fragment) : d->resources[resource].root;
        /* Tools give identifiers to all parts of a schema, and mean the document all the same. */
        if (!found && again && n == 0) found = follow_pointer(d->root, again);
    }
    if (!found) limits_fail(d->l, QN_EDATA, "'%.200s' leads nowhere", ref);
    return found;
}

/* ---- places ---- */

static size_t add_token(char *out, size_t at, size_t cap, const char *token)
{
    if (at + 1 < cap) out[at++] = '/';
    for (; *token && at + 2 < cap; token++) {
        if (*token == '~' || *token == '/') {
            out[at++] = '~';
            out[at++] = *token == '~' ? '0' : '1';
        } else {
            out[at++] = *token;
        }
    }
    return at;
}

static bool find(const json_t *v, const json_t *wanted, char *out, size_t at, size_t cap)
{
    char index[24];
    out[at] = '\0';
    if (v == wanted) return true;
    for (size_t i = 0; i < json_array_size(v); i++) {
        snprintf(index, sizeof index, "%zu", i);
        if (find(json_array_get(v, i), wanted, out, add_token(out, at, cap, index), cap)) return true;
    }
    if (!json_is_object(v)) return false;
    for (void *it = json_object_iter((json_t *)v); it; it = json_object_iter_next((json_t *)v, it))
        if (find(json_object_iter_value(it), wanted, out, add_token(out, at, cap, json_object_iter_key(it)), cap))
            return true;
    return false;
}

bool schema_doc_place(const struct schema_doc *d, const json_t *value, char *out, size_t cap)
{
    return d->root && find(d->root, value, out, 0, cap);
}
