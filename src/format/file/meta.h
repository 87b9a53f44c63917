/* SPDX-License-Identifier: MIT
 *
 * meta.h: one metadata value of a model file: its type, its place in the file, and how to read it.
 *
 * A value is borrowed from the mapped file, where it is not aligned. Its bounds were checked when the header was read.
 * To read a value by its key, use the functions of weights.h.
 */
#ifndef QUERN_FORMAT_META_H
#define QUERN_FORMAT_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* The ids of GGUF's value types. */
enum meta_type {
    MT_U8 = 0,
    MT_I8 = 1,
    MT_U16 = 2,
    MT_I16 = 3,
    MT_U32 = 4,
    MT_I32 = 5,
    MT_F32 = 6,
    MT_BOOL = 7,
    MT_STRING = 8,
    MT_ARRAY = 9,
    MT_U64 = 10,
    MT_I64 = 11,
    MT_F64 = 12
};

/* Borrowed bytes of any value, without a NUL at the end. */
struct str {
    const char *p;
    size_t n;
};

struct meta {
    struct str key;
    enum meta_type type; /* MT_ARRAY for arrays */
    enum meta_type elem; /* of an array: the type of its elements; else the same as type */
    uint64_t n;          /* of an array: the number of elements; else 1 */
    const uint8_t *data; /* the values in the file, little-endian; a string is a u64 length and its bytes */
    size_t bytes;        /* of data */
};

const char *meta_type_name(enum meta_type t); /* "u32" */
/* How many bytes a value of the type takes in the file; 0 for strings and arrays, whose length differs. */
size_t meta_type_bytes(enum meta_type t);

/* Read a value. QN_EDATA, with the key and the value in the message: its type or range does not fit. */
int meta_get_u64(const struct meta *m, uint64_t lo, uint64_t hi, uint64_t *out, struct qn_error *e);
int meta_get_f32(const struct meta *m, float *out, struct qn_error *e); /* finite only */
int meta_get_bool(const struct meta *m, bool *out, struct qn_error *e);
int meta_get_str(const struct meta *m, struct str *out, struct qn_error *e);
/* Read element i of an array of integers or of floats. A scalar counts as an array of equal values. QN_EDATA as above,
 * or the array is too short. */
int meta_elem_i64(const struct meta *m, uint64_t i, int64_t *out, struct qn_error *e);
int meta_elem_f64(const struct meta *m, uint64_t i, double *out, struct qn_error *e);
/* Walks an array of strings; a single string counts as an array of one. Begin with *cursor = 0. False: there are no
 * more, or the value has another type. */
bool meta_next_str(const struct meta *m, uint64_t *cursor, struct str *out);

#endif
