/* SPDX-License-Identifier: MIT
 *
 * meta.c: reads metadata values by type, from their place in the file.
 *
 * Writers disagree about the width and sign of the same key. So an integer may have any integer type that holds it, and
 * a float may be f32 or f64. Nothing else is converted, because a string in the place of a number means a broken or
 * hostile file. Values are not aligned in the file, so they are copied out; their bounds were checked when the header
 * was read. The callers know which keys exist and which ranges make sense.
 */
#include "format/file/meta.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    uint8_t bytes;
} types[] = {
    [MT_U8] = {"u8", 1},   [MT_I8] = {"i8", 1},   [MT_U16] = {"u16", 2},       [MT_I16] = {"i16", 2},
    [MT_U32] = {"u32", 4}, [MT_I32] = {"i32", 4}, [MT_F32] = {"f32", 4},       [MT_BOOL] = {"bool", 1},
    [MT_U64] = {"u64", 8}, [MT_I64] = {"i64", 8}, [MT_STRING] = {"string", 0}, [MT_ARRAY] = {"array", 0},
    [MT_F64] = {"f64", 8},
};

const char *meta_type_name(enum meta_type t)
{
    assert((unsigned)t <= MT_F64);
    return types[t].name;
}

/* The type was checked when the header was read, so it can be an index here and below. */
size_t meta_type_bytes(enum meta_type t)
{
    assert((unsigned)t <= MT_F64);
    return types[t].bytes;
}

/* The length of a key for "%.*s": a key has no NUL at its end, and may be longer than a line. */
static int key_len(const struct meta *m) { return (int)(m->key.n < 100 ? m->key.n : 100); }

static int wrong_type(const struct meta *m, const char *wanted, struct qn_error *e)
{
    bool array = m->type == MT_ARRAY;
    return error_set(e, QN_EDATA, "gguf: key '%.*s' is %s %s, %s is expected", key_len(m), m->key.p,
                     array ? "an array of" : "of type", types[m->elem].name, wanted);
}

/* An integer as sign and magnitude, because no type holds both u64 and i64. */
struct integer {
    bool negative;
    uint64_t magnitude;
};

static bool load_integer(enum meta_type t, const uint8_t *p, struct integer *out)
{
    uint64_t raw = 0;
    bool is_signed = t == MT_I8 || t == MT_I16 || t == MT_I32 || t == MT_I64;
    if (!is_signed && t != MT_U8 && t != MT_U16 && t != MT_U32 && t != MT_U64) return false;
    unsigned n = types[t].bytes;
    memcpy(&raw, p, n); /* the low bytes: the host is little-endian like the file */
    bool negative = is_signed && (p[n - 1] & 0x80);
    /* Carry the sign into the bytes that the value does not have; then -raw is right for INT64_MIN too. */
    if (negative && n < 8) raw |= ~UINT64_C(0) << (8 * n);
    *out = (struct integer){negative, negative ? -raw : raw};
    return true;
}

static bool load_float(enum meta_type t, const uint8_t *p, double *out)
{
    float f;
    if (t == MT_F32) {
        memcpy(&f, p, 4);
        *out = (double)f;
        return true;
    }
    if (t == MT_F64) memcpy(out, p, 8);
    return t == MT_F64;
}

int meta_get_u64(const struct meta *m, uint64_t lo, uint64_t hi, uint64_t *out, struct qn_error *e)
{
    struct integer v;
    if (!load_integer(m->type, m->data, &v)) return wrong_type(m, "an integer", e);
    if (v.negative || v.magnitude < lo || v.magnitude > hi)
        return error_set(e, QN_EDATA, "gguf: key '%.*s' is %s%" PRIu64 ", it must be %" PRIu64 " to %" PRIu64,
                         key_len(m), m->key.p, v.negative ? "-" : "", v.magnitude, lo, hi);
    *out = v.magnitude;
    return 0;
}

int meta_get_f32(const struct meta *m, float *out, struct qn_error *e)
{
    double v;
    if (!load_float(m->type, m->data, &v)) return wrong_type(m, "a float", e);
    /* Check after the conversion, because a finite f64 may be too large for an f32. */
    if (!isfinite((float)v))
        return error_set(e, QN_EDATA, "gguf: key '%.*s' is %g, it must be a finite f32", key_len(m), m->key.p, v);
    *out = (float)v;
    return 0;
}

int meta_get_bool(const struct meta *m, bool *out, struct qn_error *e)
{
    if (m->type != MT_BOOL) return wrong_type(m, "a bool", e);
    *out = m->data[0] != 0;
    return 0;
}

int meta_get_str(const struct meta *m, struct str *out, struct qn_error *e)
{
    uint64_t cursor = 0;
    if (m->type != MT_STRING) return wrong_type(m, "a string", e);
    meta_next_str(m, &cursor, out);
    return 0;
}

/* The place of element i; NULL, with an error, when there is none. A scalar counts as an array of any length. */
static const uint8_t *element(const struct meta *m, uint64_t i, struct qn_error *e)
{
    if (m->type != MT_ARRAY) i = 0;
    if (i < m->n) return m->data + i * types[m->elem].bytes;
    error_set(e, QN_EDATA, "gguf: key '%.*s' has %" PRIu64 " values, number %" PRIu64 " is missing", key_len(m),
              m->key.p, m->n, i + 1);
    return NULL;
}

int meta_elem_i64(const struct meta *m, uint64_t i, int64_t *out, struct qn_error *e)
{
    struct integer v;
    const uint8_t *p = element(m, i, e);
    if (!p) return QN_EDATA;
    /* Per-layer patterns are written as bools or as numbers. */
    if (m->elem == MT_BOOL) {
        *out = *p != 0;
        return 0;
    }
    if (!load_integer(m->elem, p, &v)) return wrong_type(m, "an integer", e);
    if (!v.negative && v.magnitude > INT64_MAX)
        return error_set(e, QN_EDATA, "gguf: key '%.*s' holds %" PRIu64 " at %" PRIu64 ", which does not fit 63 bits",
                         key_len(m), m->key.p, v.magnitude, i);
    *out = v.negative ? (int64_t)-v.magnitude : (int64_t)v.magnitude;
    return 0;
}

int meta_elem_f64(const struct meta *m, uint64_t i, double *out, struct qn_error *e)
{
    const uint8_t *p = element(m, i, e);
    if (!p) return QN_EDATA;
    if (!load_float(m->elem, p, out)) return wrong_type(m, "a float", e);
    return 0;
}

bool meta_next_str(const struct meta *m, uint64_t *cursor, struct str *out)
{
    uint64_t n; /* in bounds: the strings were walked once, and *cursor only ever stands before one of them */
    if (m->elem != MT_STRING || *cursor >= m->bytes) return false;
    memcpy(&n, m->data + *cursor, 8);
    *out = (struct str){(const char *)m->data + *cursor + 8, n};
    *cursor += 8 + n;
    return true;
}
