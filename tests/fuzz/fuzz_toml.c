/* SPDX-License-Identifier: MIT
 *
 * fuzz_toml.c: libFuzzer entry for configuration files.
 *
 * A refusal is one line that names the file and a line of it. What is accepted is a tree of tables with no name twice,
 * lines that grow, strings of UTF-8, and every entry is found again.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/toml/toml.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *s)
{
    uint32_t cp;
    for (unsigned n; *s; s += n) {
        n = utf8_get((const uint8_t *)s, strnlen(s, 4), &cp);
        assert(n);
    }
}

static void check_value(const struct toml_value *v, int depth)
{
    assert(depth <= TOML_MAX_ARRAYS && *toml_type_name(v->type));
    if (v->type == TOML_STRING) check_text(v->string);
    for (size_t i = 0; v->type == TOML_ARRAY && i < v->array.n; i++) check_value(&v->array.v[i], depth + 1);
}

static void check(const struct toml *t, int n_lines)
{
    char name[100];

    assert(t->n_tables > 0 && t->table[0].parent == -1 && t->n_tables + t->n_entries <= TOML_MAX_NAMES);
    for (int i = 1; i < t->n_tables; i++) {
        const struct toml_table *b = &t->table[i];
        assert(b->parent >= 0 && b->parent < i && b->line >= 1 && b->line <= n_lines);
        assert(toml_child(t, b->parent, b->name) == i && !toml_find(t, b->parent, b->name));
        assert(toml_table_name(t, i, name, sizeof name) == strlen(name));
        check_text(b->name);
    }
    for (int i = 0; i < t->n_entries; i++) {
        const struct toml_entry *x = &t->entry[i];
        assert(x->table >= 0 && x->table < t->n_tables && x->line <= n_lines);
        assert(x->line > (i ? x[-1].line : 0)); /* one a line */
        assert(toml_find(t, x->table, x->key) == x);
        check_text(x->key);
        check_value(&x->value, 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct toml t;
    struct qn_error e = {0};
    int n_lines = 1, line = 0;

    for (size_t i = 0; i < size; i++) n_lines += data[i] == '\n';
    if (toml_parse(&t, "f.toml", (const char *)data, size, &e)) {
        assert(e.code == QN_EDATA || e.code == QN_EUNSUP);
        assert(sscanf(e.msg, "f.toml:%d: ", &line) == 1 && line >= 1 && line <= n_lines && !strchr(e.msg, '\n'));
        return 0;
    }
    check(&t, n_lines);
    toml_deinit(&t);
    return 0;
}
