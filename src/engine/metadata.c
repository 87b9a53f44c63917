/* SPDX-License-Identifier: MIT
 *
 * metadata.c: what a model's file says of itself, for callers of quern.h: its name, its metadata as text, its size.
 */
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "engine/engine.h"

const char *qn_model_name(const qn_model *m) { return m ? m->name : ""; }

size_t qn_model_n_metadata(const qn_model *m) { return m ? weights_n_meta(m->model->weights) : 0; }

bool qn_model_has_template(const qn_model *m)
{
    return m && weights_meta(m->model->weights, "tokenizer.chat_template");
}

/* Appends the string in quotes, with its quotes, backslashes and control characters escaped as in JSON. */
static int add_quoted(struct buf *b, struct str s, struct qn_error *e)
{
    int rc = buf_str(b, "\"", e);
    for (size_t i = 0; i < s.n && !rc; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c < 0x20)
            rc = buf_printf(b, e, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            rc = buf_printf(b, e, "\\%c", c);
        else
            rc = buf_add(b, &c, 1, e);
    }
    return rc ? rc : buf_str(b, "\"", e);
}

/* Appends the number or bool at i of a scalar or array, with as many digits as are necessary to read the same number
 * back. */
static int add_number(struct buf *b, const struct meta *m, uint64_t i, struct qn_error *e)
{
    uint64_t u;
    int64_t n;
    double real;
    if (!meta_elem_i64(m, i, &n, NULL))
        return m->elem == MT_BOOL ? buf_str(b, n ? "true" : "false", e) : buf_printf(b, e, "%" PRId64, n);
    if (!meta_elem_f64(m, i, &real, NULL)) return buf_printf(b, e, "%.*g", m->elem == MT_F32 ? 9 : 17, real);
    memcpy(&u, m->data + i * sizeof u, sizeof u); /* the remaining case: 2^63 and more */
    return buf_printf(b, e, "%" PRIu64, u);
}

static int add_value(struct buf *b, const struct meta *m, struct qn_error *e)
{
    uint64_t cursor = 0;
    struct str s;
    if (m->type == MT_STRING && meta_next_str(m, &cursor, &s)) return buf_add(b, s.p, s.n, e);
    if (m->type != MT_ARRAY) return add_number(b, m, 0, e);
    int rc = buf_str(b, "[", e);
    for (uint64_t i = 0; i < m->n && !rc; i++) {
        if (i) rc = buf_str(b, ", ", e);
        if (rc) break;
        rc = meta_next_str(m, &cursor, &s) ? add_quoted(b, s, e) : add_number(b, m, i, e);
    }
    return rc ? rc : buf_str(b, "]", e);
}

static int value_text(char **out, const struct meta *m, struct qn_error *e)
{
    struct buf b = {0};
    int rc = add_value(&b, m, e);
    if (!rc) rc = buf_add(&b, "", 1, e);
    if (rc)
        buf_deinit(&b);
    else
        *out = (char *)b.data;
    return rc;
}

int qn_model_metadata_at(const qn_model *m, size_t i, char **key, char **value, struct qn_error *e)
{
    char *k = NULL;
    if (!m) return usage_null(e, __func__);
    size_t n = weights_n_meta(m->model->weights);
    if (i >= n) return error_set(e, QN_EUSAGE, "model: metadata entry %zu of %zu", i, n);
    const struct meta *x = weights_meta_at(m->model->weights, i);
    if (key && !(k = mem_dup(x->key.p, x->key.n))) return error_nomem(e, "a key", x->key.n);
    int rc = value ? value_text(value, x, e) : 0;
    if (rc)
        mem_free(k);
    else if (key)
        *key = k;
    return rc;
}

int qn_model_metadata(const qn_model *m, const char *key, char **value, struct qn_error *e)
{
    if (!m || !key || !value) return usage_null(e, __func__);
    const struct meta *x = weights_meta(m->model->weights, key);
    return x ? value_text(value, x, e) : error_set(e, QN_ENOINPUT, "model: no metadata key '%s'", key);
}

enum qn_metadata_type qn_model_metadata_type(const qn_model *m, size_t i)
{
    if (!m || i >= weights_n_meta(m->model->weights)) return QN_METADATA_NONE;
    switch (weights_meta_at(m->model->weights, i)->type) {
    case MT_STRING: return QN_METADATA_STRING;
    case MT_ARRAY: return QN_METADATA_ARRAY;
    case MT_BOOL: return QN_METADATA_BOOL;
    default: return QN_METADATA_NUMBER;
    }
}

/* ---- size ---- */

uint64_t qn_model_file_bytes(const qn_model *m) { return m ? weights_file_bytes(m->model->weights) : 0; }

static uint64_t n_elements(const struct tensor *t)
{
    uint64_t n = 1;
    for (int i = 0; i < t->n_dims; i++) n *= (uint64_t)t->ne[i];
    return n;
}

uint64_t qn_model_n_params(const qn_model *m)
{
    uint64_t n = 0;
    for (size_t i = 0; m && i < weights_n_tensors(m->model->weights); i++)
        n += n_elements(weights_tensor_at(m->model->weights, i));
    return n;
}

const char *qn_model_weight_type(const qn_model *m)
{
    uint64_t n[DT_N] = {0};
    int most = DT_F32;
    for (size_t i = 0; m && i < weights_n_tensors(m->model->weights); i++) {
        const struct tensor *t = weights_tensor_at(m->model->weights, i);
        n[t->type] += n_elements(t);
        if (n[t->type] > n[most]) most = (int)t->type;
    }
    return m ? dtype_get(most)->name : "";
}
