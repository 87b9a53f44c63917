/* SPDX-License-Identifier: MIT
 *
 * check_schema.c: compiles a schema and walks through a text of its grammar. See check_schema.h.
 */
#include "cli/models/check_schema.h"

#include <string.h>

#include "base/os.h"
#include "grammar/shelf.h"

#define MAX_BYTES   ((size_t)1 << 20) /* of a schema */
#define MAX_EXAMPLE 2000

/* Reads the next byte of a short text: what ends a value first, or another letter where nothing does. */
static bool step(struct grammar_cursor *c, bool is_inside, struct buf *text)
{
    static const char *const orders[] = {"}],\"ftn0123456789-.:[{eE+", "\"abcdefghijklmnopqrstuvwxyz0123456789-.:@/"};
    const char *order = orders[is_inside];
    int n = (int)strlen(order);
    for (int i = 0; i < n + 256; i++) {
        char byte = i < n ? order[i] : (char)(i - n);
        if (!grammar_commit_bytes(c, &byte, 1, NULL)) return !buf_add(text, &byte, 1, NULL);
    }
    return false;
}

static void find_example(struct grammar *g, struct buf *text)
{
    struct grammar_cursor *c = NULL;
    bool is_inside = false, is_escaped = false; /* a string; the next byte of it */
    if (grammar_cursor_new(&c, g, NULL)) return;
    while (!grammar_is_complete(c)) {
        if (text->len == MAX_EXAMPLE || !step(c, is_inside, text)) {
            buf_clear(text);
            break;
        }
        uint8_t last = text->data[text->len - 1];
        if (last == '"' && !is_escaped) is_inside = !is_inside;
        is_escaped = last == '\\' && !is_escaped;
    }
    grammar_cursor_free(c);
}

int check_schema(const char *path, struct buf *example, struct qn_error *e)
{
    struct buf text = {0};
    struct grammar *g = NULL;
    struct qn_error why;
    json_error_t where;
    int rc = os_read_file(&text, path, MAX_BYTES, e);
    if (rc) return rc;
    json_t *schema =
        json_loadb((char *)text.data, text.len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &where);
    buf_deinit(&text);
    if (!schema) return error_set(e, QN_EDATA, "%s:%d:%d: %s", path, where.line, where.column, where.text);
    rc = grammar_from_schema(&g, schema, &(struct grammar_options){.memory_bytes = SHELF_GRAMMAR_BYTES}, &why);
    json_decref(schema);
    if (rc) return error_set(e, rc, "%s: %s", path, why.msg);
    find_example(g, example);
    grammar_free(g);
    return 0;
}
