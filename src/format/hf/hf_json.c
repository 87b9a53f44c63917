/* SPDX-License-Identifier: MIT
 *
 * hf_json.c: reads the JSON files of a folder as trees.
 *
 * jansson limits how deep a tree nests. This file limits how long the text is. A name that comes twice in an object is
 * refused: readers differ in which of the two counts, and a folder should not be one model to a checker and another to
 * the engine.
 */
#include "format/hf/hf_json.h"

#include <string.h>

#include "base/os.h"

char *hf_path(const char *dir, const char *name, struct qn_error *e)
{
    size_t n = strlen(dir), m = strlen(name);
    char *path = mem_alloc(n + m + 2);
    if (!path) {
        error_nomem(e, "a path", n + m + 2);
        return NULL;
    }
    memcpy(path, dir, n);
    if (n && path[n - 1] != '/') path[n++] = '/';
    memcpy(path + n, name, m + 1);
    return path;
}

int hf_json_parse(json_t **out, const char *what, const char *p, size_t n, struct qn_error *e)
{
    json_error_t why;
    json_t *j = json_loadb(p, n, JSON_REJECT_DUPLICATES, &why);
    /* The library refuses integers of more than 63 bits. Here such a number is read, and refused where it is used. */
    if (!j && json_error_code(&why) == json_error_numeric_overflow)
        j = json_loadb(p, n, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &why);
    if (!j && !why.text[0]) return error_nomem(e, what, n);
    if (!j) return error_set(e, QN_EDATA, "%s: line %d: %s", what, why.line, why.text);
    if (!json_is_object(j)) {
        json_decref(j);
        return error_set(e, QN_EDATA, "%s: not a JSON object", what);
    }
    *out = j;
    return 0;
}

int hf_text_read(struct buf *out, bool *found, const char *dir, const char *name, size_t limit, struct qn_error *e)
{
    char *path = hf_path(dir, name, e);
    if (!path) return QN_ENOMEM;
    *found = os_exists(path);
    int rc = *found ? os_read_file(out, path, limit, e) : 0;
    mem_free(path);
    return rc;
}

int hf_json_read(json_t **out, const char *dir, const char *name, size_t limit, bool required, struct qn_error *e)
{
    struct buf text = {0};
    bool found;
    int rc = hf_text_read(&text, &found, dir, name, limit, e);
    *out = NULL;
    if (!rc && !found && required) rc = error_set(e, QN_ENOINPUT, "the folder has no %s", name);
    if (!rc && found) rc = hf_json_parse(out, name, (const char *)text.data, text.len, e);
    buf_deinit(&text);
    return rc;
}
