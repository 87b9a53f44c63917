/* SPDX-License-Identifier: MIT
 *
 * gguf.c: reads and checks the header of one GGUF file, versions 2 and 3, little-endian.
 *
 * The file may be a stranger's, so nothing in it is believed. Every count is compared with the bytes that are left
 * before memory is taken for it, every size is computed with overflow checks, and the message of every error names the
 * key or tensor and the number. The result can be used without further checks of place: each value and each tensor lies
 * inside the file, tensors do not overlap, and keys are unique. (That tensor names are unique is checked in weights.c,
 * where the parts of a split model are joined.)
 *
 * Layout, from offset 0, nothing aligned before the data:
 *
 *   "GGUF"  u32 version  i64 n_tensors  i64 n_keys
 *   n_keys    x { string key; i32 type; value }          string = u64 bytes, then the bytes
 *   n_tensors x { string name; u32 n_dims; i64 dim[n_dims]; i32 type; u64 offset }
 *   padding to general.alignment (32 when absent): here offsets count from
 *   tensor data, each tensor's offset a multiple of the alignment
 *
 * Values stay in the file, and meta.c reads them there. Source: the GGUF format document; docs/FORMATS.md says where
 * this reader is stricter or laxer.
 */
#include "format/gguf/gguf.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* The fewest bytes that a key with its value can take, and those of a tensor's entry. */
#define KEY_MIN_BYTES    (8 + 1 + 4 + 1)
#define TENSOR_MIN_BYTES (8 + 1 + 4 + 8 + 4 + 8)

struct reader {
    const uint8_t *data;
    size_t size, pos; /* pos <= size */
    /* What is being read, for messages: "key" 3 of name "general.name". */
    const char *kind;
    size_t index;
    struct str name;
    struct qn_error *e;
};

/* Makes the message of an error in what is being read: "gguf: key 'general.name' has ...". */
__attribute__((format(printf, 3, 4))) static int bad(struct reader *r, int code, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (r->name.n)
        return error_set(r->e, code, "gguf: %s '%.*s' %s", r->kind, (int)(r->name.n < 100 ? r->name.n : 100), r->name.p,
                         text);
    if (r->kind) return error_set(r->e, code, "gguf: %s number %zu %s", r->kind, r->index + 1, text);
    return error_set(r->e, code, "gguf: %s", text);
}

/* Checks that n more bytes are there. Every read goes through here first. The subtraction cannot wrap, because
 * pos <= size, and n is not added to anything before it was checked. `what` names the field in the message. */
static int want(struct reader *r, uint64_t n, const char *what)
{
    size_t left = r->size - r->pos;
    if (n <= left) return 0;
    return bad(r, QN_EDATA, "%s%s at byte %zu takes %" PRIu64 " bytes, the file has %zu more",
               r->kind ? "is cut off: " : "", what, r->pos, n, left);
}

static int get_u32(struct reader *r, uint32_t *out, const char *what)
{
    int rc = want(r, 4, what);
    if (rc) return rc;
    memcpy(out, r->data + r->pos, 4);
    r->pos += 4;
    return 0;
}

static int get_u64(struct reader *r, uint64_t *out, const char *what)
{
    int rc = want(r, 8, what);
    if (rc) return rc;
    memcpy(out, r->data + r->pos, 8);
    r->pos += 8;
    return 0;
}

/* Reads a string. It is borrowed from the file, and its bytes are not looked at. max bounds its length, because a
 * sparse file can hold a string of any length without taking room, and later readers will touch all of it. */
static int get_str(struct reader *r, struct str *out, uint64_t max, const char *what)
{
    uint64_t n;
    int rc = get_u64(r, &n, what);
    if (rc) return rc;
    if (n > max) return bad(r, QN_EDATA, "has a %s of %" PRIu64 " bytes, the most accepted is %" PRIu64, what, n, max);
    if ((rc = want(r, n, what))) return rc;
    *out = (struct str){(const char *)r->data + r->pos, n};
    r->pos += n;
    return 0;
}

/* ---- header ---- */

/* The fixed head of the file: 24 bytes. */
static int read_head(struct reader *r, struct gguf *g)
{
    int rc;
    uint64_t n_tensors, n_meta;
    if (r->size < 4 || memcmp(r->data, "GGUF", 4))
        return bad(r, QN_EDATA, "not a GGUF file: it begins with '%.*s' (%zu bytes in all)",
                   (int)(r->size < 4 ? r->size : 4), r->size ? (const char *)r->data : "", r->size);
    r->pos = 4;
    if ((rc = get_u32(r, &g->version, "header: version"))) return rc;
    if (g->version && !(g->version & 0xffff))
        return bad(r, QN_EUNSUP, "version reads %" PRIu32 ": a big-endian file, only little-endian ones are supported",
                   g->version);
    if (g->version != 2 && g->version != 3)
        return bad(r, QN_EUNSUP, "version %" PRIu32 " is not supported, 2 and 3 are", g->version);

    if ((rc = get_u64(r, &n_tensors, "header: number of tensors"))) return rc;
    if ((rc = get_u64(r, &n_meta, "header: number of keys"))) return rc;
    if (n_tensors > GGUF_MAX_TENSORS)
        return bad(r, QN_EDATA, "header claims %" PRId64 " tensors, accepted are 0 to %d", (int64_t)n_tensors,
                   GGUF_MAX_TENSORS);
    if (n_meta > GGUF_MAX_KEYS)
        return bad(r, QN_EDATA, "header claims %" PRId64 " keys, accepted are 0 to %d", (int64_t)n_meta, GGUF_MAX_KEYS);
    /* Both counts are small by now, so this cannot overflow. */
    uint64_t least = n_meta * KEY_MIN_BYTES + n_tensors * TENSOR_MIN_BYTES;
    if (least > r->size - r->pos)
        return bad(r, QN_EDATA,
                   "header claims %" PRIu64 " keys and %" PRIu64 " tensors, which take at least %" PRIu64
                   " bytes; the file has %zu more",
                   n_meta, n_tensors, least, r->size - r->pos);
    g->n_tensors = n_tensors;
    g->n_meta = n_meta;
    return 0;
}

/* ---- metadata ---- */

/* Finds the end of an array of strings by walking it, because strings have different sizes. */
static int skip_strings(struct reader *r, uint64_t n)
{
    int rc;
    struct str s;
    if (n > GGUF_MAX_ARRAY_STRINGS)
        return bad(r, QN_EDATA, "is an array of %" PRIu64 " strings, the most accepted is %u", n,
                   GGUF_MAX_ARRAY_STRINGS);
    if ((rc = want(r, n * 8, "array of strings"))) return rc;
    for (uint64_t i = 0; i < n; i++)
        if ((rc = get_str(r, &s, GGUF_MAX_ELEMENT_BYTES, "string"))) return rc;
    return 0;
}

/* Reads an array. Numbers are skipped without being touched, however many there are. Arrays of arrays are refused: they
 * would need recursion, to any depth that a file asks for, and no writer makes them. */
static int read_array(struct reader *r, struct meta *m)
{
    uint32_t elem;
    int rc;
    if ((rc = get_u32(r, &elem, "element type"))) return rc;
    if (elem == MT_ARRAY) return bad(r, QN_EDATA, "is an array of arrays, which is not accepted");
    if (elem > MT_F64) return bad(r, QN_EDATA, "has array element type %" PRId32 ", known are 0 to 12", (int32_t)elem);
    if ((rc = get_u64(r, &m->n, "array length"))) return rc;
    m->elem = elem;
    m->data = r->data + r->pos;
    if (elem == MT_STRING) return skip_strings(r, m->n);

    size_t size = meta_type_bytes(elem);
    if (m->n > (r->size - r->pos) / size)
        return bad(r, QN_EDATA, "is an array of %" PRIu64 " values of %zu bytes, the file has %zu bytes more", m->n,
                   size, r->size - r->pos);
    r->pos += m->n * size;
    return 0;
}

/* The file writes the type as an i32. It is read as unsigned, so that one upper bound refuses negative types too. */
static int read_value(struct reader *r, struct meta *m)
{
    uint32_t type;
    struct str s;
    int rc;
    if ((rc = get_u32(r, &type, "value type"))) return rc;
    if (type > MT_F64) return bad(r, QN_EDATA, "has value type %" PRId32 ", known are 0 to 12", (int32_t)type);
    m->type = m->elem = type;
    m->n = 1;
    m->data = r->data + r->pos;
    if (type == MT_ARRAY) {
        rc = read_array(r, m);
    } else if (type == MT_STRING) {
        rc = get_str(r, &s, GGUF_MAX_STRING_BYTES, "string");
    } else {
        size_t size = meta_type_bytes(type);
        rc = want(r, size, "value");
        if (!rc) r->pos += size;
    }
    if (!rc) m->bytes = r->pos - (size_t)(m->data - r->data);
    return rc;
}

/* A key may be long and hold any byte but NUL. It must not come twice: readers differ in which of the two counts, and a
 * file should not be one model to a checker and another to the engine. */
static int read_meta(struct reader *r, struct gguf *g)
{
    int rc;
    r->kind = "key";
    for (size_t i = 0; i < g->n_meta; i++) {
        struct meta *m = &g->meta[i];
        r->index = i;
        r->name = (struct str){0};
        if ((rc = get_str(r, &m->key, GGUF_MAX_KEY_BYTES, "name"))) return rc;
        if (!m->key.n) return bad(r, QN_EDATA, "has an empty name");
        if (memchr(m->key.p, 0, m->key.n)) return bad(r, QN_EDATA, "has a NUL byte in its name '%s'", m->key.p);
        r->name = m->key;
        if (!names_add(&g->keys, m->key, (uint32_t)i)) return bad(r, QN_EDATA, "appears twice");
        if ((rc = read_value(r, m))) return rc;
    }
    return 0;
}

/* ---- tensors ---- */

/* Reads general.alignment. It is known only after all keys, and needed before the first tensor. */
static int read_alignment(struct reader *r, struct gguf *g)
{
    const struct meta *m = gguf_meta(g, "general.alignment");
    g->alignment = 32;
    if (!m) return 0;
    int rc = meta_get_u64(m, 8, 1u << 31, &g->alignment, r->e);
    if (rc) return rc;
    if (g->alignment & (g->alignment - 1))
        return error_set(r->e, QN_EDATA, "gguf: key 'general.alignment' is %" PRIu64 ", not a power of two",
                         g->alignment);
    return 0;
}

/* Reads the dimensions, and computes the bytes of the tensor. No product may overflow, and the number of elements must
 * fit an int64. */
static int read_shape(struct reader *r, struct tensor *t)
{
    uint32_t n_dims, type;
    uint64_t dim, n_elements = 1;
    int rc;
    if ((rc = get_u32(r, &n_dims, "number of dimensions"))) return rc;
    if (n_dims < 1 || n_dims > TENSOR_MAX_DIMS)
        return bad(r, QN_EDATA, "has %" PRIu32 " dimensions, accepted are 1 to %d", n_dims, TENSOR_MAX_DIMS);
    t->n_dims = (int)n_dims;
    for (uint32_t d = 0; d < TENSOR_MAX_DIMS; d++) {
        t->ne[d] = 1;
        if (d >= n_dims) continue;
        if ((rc = get_u64(r, &dim, "dimension"))) return rc;
        if (dim < 1 || dim > INT64_MAX)
            return bad(r, QN_EDATA, "has dimension %" PRIu32 " = %" PRId64 ", it must be at least 1", d, (int64_t)dim);
        if (__builtin_mul_overflow(n_elements, dim, &n_elements) || n_elements > INT64_MAX)
            return bad(r, QN_EDATA, "has more than 2^63 elements at dimension %" PRIu32 " = %" PRIu64, d, dim);
        t->ne[d] = (int64_t)dim;
    }
    if ((rc = get_u32(r, &type, "type"))) return rc;
    const struct dtype_info *info = type < DT_GGUF_N ? dtype_get((int32_t)type) : NULL;
    if (!info) return bad(r, QN_EDATA, "has type %" PRId32 ", which is unknown or was removed", (int32_t)type);
    t->type = (enum dtype)type;
    if (t->ne[0] % info->block)
        return bad(r, QN_EDATA, "has rows of %" PRId64 " elements, not a multiple of %d, the block of %s", t->ne[0],
                   info->block, info->name);
    if (__builtin_mul_overflow((uint64_t)t->ne[0] / info->block, (uint64_t)info->bytes, &t->row_bytes) ||
        __builtin_mul_overflow(t->row_bytes, n_elements / (uint64_t)t->ne[0], &t->bytes) ||
        t->bytes > SIZE_MAX - info->tail)
        return bad(r, QN_EDATA, "of %" PRIu64 " elements of %s takes more than 2^64 bytes", n_elements, info->name);
    return 0;
}

/* Reads one entry. Its data first points to the offset counted from the start of the file. Where the tensor data begins
 * is known after the last entry; place_tensors() then adds it. */
static int read_tensors(struct reader *r, struct gguf *g)
{
    int rc;
    uint64_t offset;
    r->kind = "tensor";
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct tensor *t = &g->tensors[i];
        struct str name;
        r->index = i;
        r->name = (struct str){0};
        if ((rc = get_str(r, &name, GGUF_NAME_BYTES - 1, "name"))) return rc;
        if (!name.n) return bad(r, QN_EDATA, "has an empty name");
        if (memchr(name.p, 0, name.n)) return bad(r, QN_EDATA, "has a NUL byte in its name '%s'", name.p);
        r->name = name;
        memcpy(g->names[i], name.p, name.n);
        g->names[i][name.n] = 0;
        t->name = g->names[i];
        if ((rc = read_shape(r, t))) return rc;
        if ((rc = get_u64(r, &offset, "offset"))) return rc;
        if (offset > r->size) return bad(r, QN_EDATA, "has offset %" PRIu64 " beyond file size %zu", offset, r->size);
        t->data = r->data + offset;
    }
    return 0;
}

/* Checks that every tensor is inside the file, aligned, and after the one before it. Gaps are harmless, and the padding
 * of the last tensor may be missing. */
static int place_tensors(struct reader *r, struct gguf *g)
{
    uint64_t end = 0; /* of the tensors so far, from data_start */
    size_t data_start = (r->pos + g->alignment - 1) & ~(g->alignment - 1);
    r->name = (struct str){0};
    g->header_bytes = r->pos;
    g->data_start = data_start < r->size ? data_start : r->size;
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct tensor *t = &g->tensors[i];
        uint64_t offset = (uint64_t)(t->data - r->data);
        r->name = (struct str){t->name, strlen(t->name)};
        if (offset % g->alignment)
            return bad(r, QN_EDATA, "has offset %" PRIu64 ", not a multiple of the alignment %" PRIu64, offset,
                       g->alignment);
        if (offset < end)
            return bad(r, QN_EDATA,
                       "has offset %" PRIu64 " before the end of tensor '%s' at %" PRIu64
                       ": they overlap or are out of order",
                       offset, g->tensors[i - 1].name, end);
        uint64_t bytes = t->bytes + dtype_get(t->type)->tail; /* no overflow: read_shape() left room */
        if (data_start > r->size || offset > r->size - data_start || bytes > r->size - data_start - offset)
            return bad(r, QN_EDATA, "of %zu bytes at %" PRIu64 " ends beyond file size %zu", (size_t)bytes,
                       data_start + offset, r->size);
        t->data = r->data + data_start + offset;
        end = offset + bytes;
    }
    return 0;
}

/* ---- entry points ---- */

int gguf_parse(struct gguf *out, const uint8_t *data, size_t size, struct qn_error *e)
{
    struct gguf g = {0}; /* becomes *out when everything is right */
    struct reader r = {.data = data, .size = size, .e = e};
    int rc = read_head(&r, &g);
    if (rc) return rc;

    if ((rc = names_init(&g.keys, g.n_meta, e))) goto fail;
    g.meta = mem_calloc(g.n_meta + 1, sizeof *g.meta);
    g.tensors = mem_calloc(g.n_tensors + 1, sizeof *g.tensors);
    g.names = mem_calloc(g.n_tensors + 1, sizeof *g.names);
    if (!g.meta || !g.tensors || !g.names) {
        rc = error_nomem(e, "the index of a model file",
                         g.n_meta * sizeof *g.meta + g.n_tensors * (sizeof *g.tensors + sizeof *g.names));
        goto fail;
    }
    if ((rc = read_meta(&r, &g))) goto fail;
    if ((rc = read_alignment(&r, &g))) goto fail;
    if ((rc = read_tensors(&r, &g))) goto fail;
    if ((rc = place_tensors(&r, &g))) goto fail;
    *out = g;
    return 0;
fail:
    gguf_deinit(&g);
    return rc;
}

void gguf_deinit(struct gguf *g)
{
    names_deinit(&g->keys);
    mem_free(g->meta);
    mem_free(g->tensors);
    mem_free(g->names);
    *g = (struct gguf){0};
}

const struct meta *gguf_meta(const struct gguf *g, const char *key)
{
    uint32_t i;
    if (!names_find(&g->keys, (struct str){key, strlen(key)}, &i)) return NULL;
    return &g->meta[i];
}
