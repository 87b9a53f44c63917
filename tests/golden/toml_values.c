/* SPDX-License-Identifier: MIT
 *
 * toml_values.c: what base/toml makes of documents, for peer-toml.
 *
 * Standard input is any number of documents, each behind its length and a line end. For each a line comes out: its top
 * table as JSON, {"t": {...}}, with every value in an object of one member that tells its type (s, i, f, b, a); or
 * {"refused": the line, "unsupported": whether TOML would allow it}. A float is written in hexadecimal. What is
 * accepted is written by base/toml_out and read again before it comes out here.
 */
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "base/toml/toml.h"
#include "base/toml/toml_out.h"

static json_t *to_json(const struct toml_value *v)
{
    char s[64];
    json_t *array;

    switch (v->type) {
    case TOML_STRING: return json_pack("{ss}", "s", v->string);
    case TOML_INT: return json_pack("{sI}", "i", (json_int_t)v->integer);
    case TOML_BOOL: return json_pack("{sb}", "b", v->truth);
    case TOML_FLOAT: snprintf(s, sizeof s, "%a", v->real); return json_pack("{ss}", "f", s);
    case TOML_ARRAY: break;
    }
    array = json_array();
    for (size_t i = 0; i < v->array.n; i++) json_array_append_new(array, to_json(&v->array.v[i]));
    return json_pack("{so}", "a", array);
}

static json_t *table_to_json(const struct toml *t, int table)
{
    json_t *o = json_object();

    for (int i = 0; i < t->n_entries; i++)
        if (t->entry[i].table == table) json_object_set_new(o, t->entry[i].key, to_json(&t->entry[i].value));
    for (int i = 1; i < t->n_tables; i++)
        if (t->table[i].parent == table) json_object_set_new(o, t->table[i].name, table_to_json(t, i));
    return json_pack("{so}", "t", o);
}

static int put_document(struct buf *out, const struct toml *t, struct qn_error *e)
{
    int rc = 0;

    for (int table = 0; table < t->n_tables && !rc; table++) {
        int path[TOML_MAX_NAMES], depth = 0;
        for (int k = table; k > 0; k = t->table[k].parent) path[depth++] = k;
        for (int k = depth; k-- && !rc;) {
            rc = buf_str(out, k == depth - 1 ? "[" : ".", e);
            if (!rc) rc = toml_put_name(out, t->table[path[k]].name, e);
        }
        if (table && !rc) rc = buf_str(out, "]\n", e);
        for (int i = 0; i < t->n_entries && !rc; i++) {
            if (t->entry[i].table != table) continue;
            rc = toml_put_name(out, t->entry[i].key, e);
            if (!rc) rc = buf_str(out, " = ", e);
            if (!rc) rc = toml_put_value(out, &t->entry[i].value, e);
            if (!rc) rc = buf_str(out, "\n", e);
        }
    }
    return rc;
}

/* Writes it and reads it again. */
static int rewrite(struct toml *t, struct qn_error *e)
{
    struct buf text = {0};
    int rc = put_document(&text, t, e);

    toml_deinit(t);
    if (!rc) rc = toml_parse(t, "written", text.len ? (const char *)text.data : "", text.len, e);
    buf_deinit(&text);
    return rc;
}

int main(void)
{
    size_t n;

    while (scanf("%zu", &n) == 1) {
        char *text = malloc(n + 1);
        struct toml t;
        struct qn_error e = {0};
        json_t *out;
        if (!text || getchar() != '\n' || fread(text, 1, n, stdin) != n) return 1;
        int rc = toml_parse(&t, "doc", text, n, &e);
        if (!rc) rc = rewrite(&t, &e);
        if (rc) {
            out = json_pack("{ss, sb}", "refused", e.msg, "unsupported", rc == QN_EUNSUP);
        } else {
            out = table_to_json(&t, 0);
            toml_deinit(&t);
        }
        if (!out || json_dumpf(out, stdout, JSON_COMPACT)) return 1;
        putchar('\n');
        json_decref(out);
        free(text);
    }
    return 0;
}
