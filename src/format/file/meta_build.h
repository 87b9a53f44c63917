/* SPDX-License-Identifier: MIT
 *
 * meta_build.h: builds metadata in memory, in the shape that the header of a GGUF file has.
 *
 * It is for formats that write the same facts differently. What is put here is read with the functions of weights.h. A
 * zeroed struct meta_build is empty. A function that fails changes nothing; an array that was begun stays begun. One
 * thread at a time.
 */
#ifndef QUERN_FORMAT_META_BUILD_H
#define QUERN_FORMAT_META_BUILD_H

#include "base/buf.h"
#include "format/file/names.h"

struct meta_build {
    struct buf bytes;   /* the keys and the values, in order */
    struct buf entries; /* of struct meta_entry */
};

/* Add a key with one value. QN_ENOMEM. The key must be new (meta_build_has()). */
int meta_build_u32(struct meta_build *b, const char *key, uint32_t v, struct qn_error *e);
int meta_build_f32(struct meta_build *b, const char *key, float v, struct qn_error *e);
int meta_build_bool(struct meta_build *b, const char *key, bool v, struct qn_error *e);
int meta_build_str(struct meta_build *b, const char *key, const char *p, size_t n, struct qn_error *e);

/* Begins an array of strings (MT_STRING), numbers (MT_I32, MT_F32) or truth values (MT_BOOL). Until the next key, the
 * functions below add its elements, which must have the array's type. */
int meta_build_array(struct meta_build *b, const char *key, enum meta_type elem, struct qn_error *e);
int meta_build_add_str(struct meta_build *b, const char *p, size_t n, struct qn_error *e);
int meta_build_add_i32(struct meta_build *b, int32_t v, struct qn_error *e);
int meta_build_add_f32(struct meta_build *b, float v, struct qn_error *e);
int meta_build_add_bool(struct meta_build *b, bool v, struct qn_error *e);

bool meta_build_has(const struct meta_build *b, const char *key);
void meta_build_deinit(struct meta_build *b);

/* The metadata once it is built. Immutable. */
struct meta_list {
    struct meta *meta; /* [n] */
    size_t n;
    struct names keys; /* key -> index into meta */
    uint8_t *bytes;    /* owned: keys and values */
};

/* Ends building: *out takes the memory over, and *b is empty. QN_ENOMEM; on failure both are as they were. */
int meta_build_finish(struct meta_build *b, struct meta_list *out, struct qn_error *e);
void meta_list_deinit(struct meta_list *l); /* a zeroed one is fine */

#endif
