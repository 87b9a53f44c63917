/* SPDX-License-Identifier: MIT
 *
 * weights.h: a model file seen as metadata plus named tensors, whatever its format.
 *
 * Opening reads and checks the whole header and every tensor's place and size; the tensor
 * data stays in the mapping and is not touched. What was opened is immutable and may be
 * shared by threads. Pointers handed out live until weights_close().
 */
#ifndef QUERN_FORMAT_WEIGHTS_H
#define QUERN_FORMAT_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "tensor/dtype.h"

/* GGUF value type ids. */
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

struct str {
    const char *p;
    size_t n;
}; /* borrowed bytes, not NUL-terminated, may hold any byte */

struct meta {
    struct str key;
    enum meta_type type; /* MT_ARRAY for arrays */
    enum meta_type elem; /* element type of an array, else = type */
    uint64_t n;          /* elements of an array, else 1 */
    const uint8_t *data; /* the raw little-endian values in the file (strings: u64 length + bytes each) */
    size_t bytes;        /* of data */
};

struct weights;
struct model_files;

/* Opens a GGUF file (all parts of a split one, starting from part 1) or a folder with config.json, tokenizer.json and
 * safetensors files, and checks it; metadata and tensors of a folder have the names and shapes of a GGUF file.
 * QN_ENOINPUT: cannot be opened; QN_EDATA: malformed; QN_EUNSUP: big-endian, version 1, not a model, no family known. */
int weights_open(struct weights **out, const char *path, struct qn_error *e);
void weights_close(struct weights *w);
const char *weights_path(const struct weights *w);
/* All files that were opened (format/model_files.h). */
const struct model_files *weights_files(const struct weights *w);
uint32_t weights_version(const struct weights *w); /* of the GGUF format: 2 or 3; 0: a folder */
/* Some of it could not be read, and zeros were in its place (base/os.h): what was computed is wrong. */
bool weights_are_lost(const struct weights *w);
size_t weights_n_parts(const struct weights *w);   /* files that hold tensors */
/* The name of part `no` (counted from 0) of n, made from that of any part, for mem_free() in *out: NULL when the path does
 * not end in the pattern for a split of n parts. */
int weights_part_path(char **out, const char *path, uint64_t no, uint64_t n, struct qn_error *e);

/* ---- metadata (of the first part) ---- */
const char *meta_type_name(enum meta_type t); /* "u32" */
size_t weights_n_meta(const struct weights *w);
const struct meta *weights_meta_at(const struct weights *w, size_t i);
const struct meta *weights_meta(const struct weights *w, const char *key); /* NULL when absent */

/* The getters return 1 when the key is there and *out was set, 0 when it is absent (out untouched),
 * or QN_EDATA when it is there with a type or range that does not fit (message names key and value). */
int meta_u64(const struct weights *w, const char *key, uint64_t lo, uint64_t hi, uint64_t *out, struct qn_error *e);
int meta_f32(const struct weights *w, const char *key, float *out, struct qn_error *e); /* finite only */
int meta_bool(const struct weights *w, const char *key, bool *out, struct qn_error *e);
int meta_str(const struct weights *w, const char *key, struct str *out, struct qn_error *e);
/* Element i of an array of integers (i64) or floats (f64), or of a scalar, which stands for an array of equal values. */
int meta_elem_i64(const struct meta *m, uint64_t i, int64_t *out, struct qn_error *e);
int meta_elem_f64(const struct meta *m, uint64_t i, double *out, struct qn_error *e);
/* Walks an array of strings (or a string, as an array of one): start with *cursor = 0; returns
 * false after the last, and at once for any other type. */
bool meta_next_str(const struct meta *m, uint64_t *cursor, struct str *out);

/* ---- tensors ---- */
size_t weights_n_tensors(const struct weights *w);
const struct tensor *weights_tensor_at(const struct weights *w, size_t i);      /* about in file order */
const struct tensor *weights_tensor(const struct weights *w, const char *name); /* NULL when absent */
/* Where tensor i begins, in bytes from the start of its file, and which part that is, from 0: weights_n_parts() for the
 * small ones of a folder that are in no file as they are. */
uint64_t weights_tensor_place(const struct weights *w, size_t i, size_t *part);
/* Bytes that lie beside a tensor's rows (struct side). */
size_t weights_side_bytes(const struct tensor *t);
/* Checks every block scale of every float-scaled type for NaN and infinity, and float tensors
 * element by element; names the tensor and the element of the first one found. */
int weights_check_finite(const struct weights *w, struct qn_error *e);
/* Keeps tensors in memory once they were read: those that fit into `bytes`, in file order, leaving out `except` (may be
 * NULL). *locked: the bytes for which that worked. 0, or the errno at which it ended. Lasts until weights_close(). */
int weights_lock(const struct weights *w, uint64_t bytes, const struct tensor *except, uint64_t *locked);
/* Sum of the tensor bytes; of the file bytes (all parts). */
uint64_t weights_tensor_bytes(const struct weights *w);
uint64_t weights_file_bytes(const struct weights *w);

#endif
