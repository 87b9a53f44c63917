/* SPDX-License-Identifier: MIT
 *
 * safetensors.c: parses and checks the header of a safetensors file.
 *
 *   u64 n (little-endian), n bytes of JSON, then the data, from where offsets count:
 *   { "NAME": {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [begin, end]}, ...,
 *     "__metadata__": {"anything": "text"} }
 *
 * The file may be a stranger's. Lengths are compared with the bytes that are left before they are used, products are
 * checked for overflow, and the message of every error names the tensor and the number. A tree of JSON takes many times
 * the memory of its text, so its values are counted first.
 *
 * Source: the description of the format in its repository (huggingface/safetensors). This reader is stricter than the
 * one there: no name may come twice. It is laxer in that the data may have holes.
 */
#include "format/hf/safetensors.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/hf/hf_json.h"

static const struct {
    const char *name;
    int bits, type;
} types[] = {
    {"F64", 64, DT_F64}, {"F32", 32, DT_F32}, {"F16", 16, DT_F16}, {"BF16", 16, DT_BF16}, {"I64", 64, DT_I64},
    {"I32", 32, DT_I32}, {"I16", 16, DT_I16}, {"I8", 8, DT_I8},    {"U64", 64, -1},       {"U32", 32, -1},
    {"U16", 16, -1},     {"U8", 8, -1},       {"BOOL", 8, -1},     {"C64", 64, -1},       {"F8_E4M3", 8, -1},
    {"F8_E5M2", 8, -1},  {"F8_E8M0", 8, -1},  {"F6_E2M3", 6, -1},  {"F6_E3M2", 6, -1},    {"F4", 4, -1},
};

/* How many bytes of a name a message shows: names may be long. */
#define SHOWN 100

static int no_member(const char *name, const char *what, struct qn_error *e)
{
    return error_set(e, QN_EDATA, "safetensors: tensor '%.*s' has no %s", SHOWN, name, what);
}

/* Finds the type by its name; *bits is the size of one element. */
static int read_type(struct st_tensor *t, const json_t *v, int *bits, struct qn_error *e)
{
    if (!json_is_string(v)) return no_member(t->name, "dtype", e);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(types[i].name, json_string_value(v))) continue;
        t->type_name = types[i].name;
        t->type = types[i].type;
        t->is_u32 = strcmp(types[i].name, "U32") == 0;
        *bits = types[i].bits;
        return 0;
    }
    return error_set(e, QN_EDATA, "safetensors: tensor '%.*s' has dtype '%.40s', which is unknown", SHOWN, t->name,
                     json_string_value(v));
}

/* Reads the shape, and computes the bytes of the tensor. No product may overflow. */
static int read_shape(struct st_tensor *t, const json_t *v, int bits, struct qn_error *e)
{
    int64_t n_elements = 1, n_bits;
    if (!json_is_array(v)) return no_member(t->name, "shape", e);
    if (json_array_size(v) > ST_MAX_DIMS)
        return error_set(e, QN_EDATA, "safetensors: tensor '%.*s' has %zu dimensions, the most accepted is %d", SHOWN,
                         t->name, json_array_size(v), ST_MAX_DIMS);
    t->n_dims = (int)json_array_size(v);
    for (int d = 0; d < t->n_dims; d++) {
        const json_t *x = json_array_get(v, (size_t)d);
        if (!json_is_integer(x) || json_integer_value(x) < 0)
            return error_set(e, QN_EDATA, "safetensors: tensor '%.*s': dimension %d is not a number from 0 up", SHOWN,
                             t->name, d);
        t->dim[d] = json_integer_value(x);
        if (__builtin_mul_overflow(n_elements, t->dim[d], &n_elements))
            return error_set(e, QN_EDATA, "safetensors: tensor '%.*s' has more than 2^63 elements at dimension %d",
                             SHOWN, t->name, d);
    }
    if (__builtin_mul_overflow(n_elements, (int64_t)bits, &n_bits))
        return error_set(e, QN_EDATA, "safetensors: tensor '%.*s' of %" PRId64 " elements has too many bytes", SHOWN,
                         t->name, n_elements);
    if (n_bits % 8)
        return error_set(e, QN_EDATA, "safetensors: tensor '%.*s' of %" PRId64 " elements ends inside a byte", SHOWN,
                         t->name, n_elements);
    t->bytes = (size_t)(n_bits / 8);
    return 0;
}

static int read_place(struct st_tensor *t, const json_t *v, const uint8_t *data, size_t size, struct qn_error *e)
{
    const json_t *b = json_array_get(v, 0), *end = json_array_get(v, 1); /* NULL when v is no array */
    if (json_array_size(v) != 2 || !json_is_integer(b) || !json_is_integer(end))
        return no_member(t->name, "data_offsets of two numbers", e);
    int64_t at = json_integer_value(b), stop = json_integer_value(end);
    if (at < 0 || stop < at)
        return error_set(e, QN_EDATA, "safetensors: tensor '%.*s' lies from %" PRId64 " to %" PRId64, SHOWN, t->name,
                         at, stop);
    if ((uint64_t)stop > size)
        return error_set(e, QN_EDATA, "safetensors: tensor '%.*s' ends at byte %" PRId64 " of the data, there are %zu",
                         SHOWN, t->name, stop, size);
    if ((uint64_t)(stop - at) != t->bytes)
        return error_set(e, QN_EDATA, "safetensors: tensor '%.*s' has %" PRId64 " bytes, its shape and type make %zu",
                         SHOWN, t->name, stop - at, t->bytes);
    t->data = data + at;
    return 0;
}

static int read_tensor(struct st_tensor *t, const char *name, const json_t *v, const uint8_t *data, size_t size,
                       struct qn_error *e)
{
    int rc, bits = 0;
    *t = (struct st_tensor){.name = name};
    if (!*name) return error_set(e, QN_EDATA, "safetensors: a tensor has an empty name");
    if (!json_is_object(v))
        return error_set(e, QN_EDATA, "safetensors: tensor '%.*s' is not described by an object", SHOWN, name);
    if ((rc = read_type(t, json_object_get(v, "dtype"), &bits, e)) ||
        (rc = read_shape(t, json_object_get(v, "shape"), bits, e)))
        return rc;
    return read_place(t, json_object_get(v, "data_offsets"), data, size, e);
}

/* Compares by place. An empty tensor comes before the one that begins at the same place, so that an overlap is always
 * between neighbours. */
static int compare_places(const void *a, const void *b)
{
    const struct st_tensor *s = a, *t = b;
    if (s->data != t->data) return s->data < t->data ? -1 : 1;
    return (s->bytes > t->bytes) - (s->bytes < t->bytes);
}

static int check_overlaps(const struct safetensors *s, struct qn_error *e)
{
    for (size_t i = 1; i < s->n; i++) {
        const struct st_tensor *a = &s->tensor[i - 1], *b = &s->tensor[i];
        if (a->data + a->bytes > b->data)
            return error_set(e, QN_EDATA, "safetensors: tensors '%.*s' and '%.*s' overlap", SHOWN, a->name, SHOWN,
                             b->name);
    }
    return 0;
}

/* Reads the length of the header, and checks it against the file and the format. */
static int read_length(const uint8_t *data, size_t size, size_t *n, struct qn_error *e)
{
    uint64_t length;
    if (size < 8) return error_set(e, QN_EDATA, "safetensors: the file has %zu bytes, no header", size);
    memcpy(&length, data, 8);
    if (length > ST_MAX_HEADER_BYTES)
        return error_set(e, QN_EDATA, "safetensors: header of %" PRIu64 " bytes, the most accepted is %zu", length,
                         ST_MAX_HEADER_BYTES);
    if (length > size - 8)
        return error_set(e, QN_EDATA, "safetensors: header of %" PRIu64 " bytes, the file has %zu more", length,
                         size - 8);
    *n = (size_t)length;
    return 0;
}

/* Counts values without parsing: every value but the last of its list or object is followed by a comma, and every list
 * or object has a bracket. */
static int check_values(const uint8_t *text, size_t n, struct qn_error *e)
{
    size_t n_values = 0;
    for (size_t i = 0; i < n; i++) n_values += text[i] == ',' || text[i] == '[' || text[i] == '{';
    if (n_values > ST_MAX_VALUES)
        return error_set(e, QN_EDATA, "safetensors: header of %zu values, the most accepted is %zu", n_values,
                         ST_MAX_VALUES);
    return 0;
}

int safetensors_parse(struct safetensors *out, const uint8_t *data, size_t size, struct qn_error *e)
{
    struct safetensors s = {0};
    const char *name;
    json_t *v;
    size_t n = 0;
    int rc = read_length(data, size, &n, e);
    if (rc || (rc = check_values(data + 8, n, e))) return rc;
    if ((rc = hf_json_parse(&s.header, "safetensors: header", (const char *)data + 8, n, e))) return rc;
    s.tensor = mem_calloc(json_object_size(s.header) + 1, sizeof *s.tensor);
    if (!s.tensor) {
        rc = error_nomem(e, "a list of tensors", json_object_size(s.header) * sizeof *s.tensor);
        goto fail;
    }
    json_object_foreach(s.header, name, v)
    {
        if (!strcmp(name, "__metadata__")) continue;
        if ((rc = read_tensor(&s.tensor[s.n], name, v, data + 8 + n, size - 8 - n, e))) goto fail;
        s.n++;
    }
    qsort(s.tensor, s.n, sizeof *s.tensor, compare_places);
    if ((rc = check_overlaps(&s, e))) goto fail;
    *out = s;
    return 0;
fail:
    safetensors_deinit(&s);
    return rc;
}

void safetensors_deinit(struct safetensors *s)
{
    json_decref(s->header);
    mem_free(s->tensor);
    *s = (struct safetensors){0};
}
