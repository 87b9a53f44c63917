/* SPDX-License-Identifier: MIT
 *
 * tool_schema.c: see tool_schema.h.
 *
 * Source: JSON Schema 2020-12, section 8.2.3.1 (`$ref`); RFC 6901 (JSON pointers).
 */
#include "text/chat/tool_schema.h"

#include <string.h>

#include "base/buf.h"

#define MOST_SCHEMAS 200 /* that are looked at, so that references in a circle end */

/* Appends the next name of a pointer, after its slash, and moves *p to the slash after it, or to the end. */
static int read_name(const char **p, struct buf *name)
{
    int rc = 0;
    for (++*p; **p && **p != '/' && !rc; ++*p) {
        bool escaped = **p == '~' && ((*p)[1] == '0' || (*p)[1] == '1');
        if (escaped) ++*p;
        rc = buf_add(name, escaped ? (**p == '1' ? "/" : "~") : *p, 1, NULL);
    }
    return rc;
}

/* The schema that a reference such as #/$defs/Arguments leads to; NULL: none. */
static const json_t *follow(const json_t *root, const char *ref)
{
    const json_t *at = root;
    struct buf name = {0};
    if (ref[0] != '#') return NULL;
    for (const char *p = ref + 1; *p && at;) {
        buf_clear(&name);
        if (*p != '/' || read_name(&p, &name))
            at = NULL;
        else
            at = json_object_getn(at, name.data ? (char *)name.data : "", name.len);
    }
    buf_deinit(&name);
    return at;
}

/* Adds what the schema names to *all. Returns -1 if there is no memory. */
static int gather(json_t *all, const json_t *root, const json_t *schema, int *left)
{
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    const json_t *list = json_object_get(schema, "allOf");
    json_t *own = json_object_get(schema, "properties");
    if (!json_is_object(schema) || --*left < 0) return 0;
    if (json_is_object(own) && json_object_update_missing(all, own)) return -1;
    if (ref && gather(all, root, follow(root, ref), left)) return -1;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (gather(all, root, json_array_get(list, i), left)) return -1;
    return 0;
}

json_t *tool_properties(const json_t *schema)
{
    int left = MOST_SCHEMAS;
    if (!json_object_get(schema, "$ref") && !json_object_get(schema, "allOf"))
        return json_incref(json_object_get(schema, "properties")); /* most schemas: nothing is copied */
    json_t *all = json_object();
    if (all && gather(all, schema, schema, &left) == 0) return all;
    json_decref(all);
    return NULL;
}
