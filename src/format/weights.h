/* SPDX-License-Identifier: MIT
 *
 * weights.h: a model on disk as metadata and named tensors, whatever its format. This is what other layers use.
 *
 * Opening reads and checks the whole header, and the place and size of every tensor. The tensor data stays in the
 * mapped file and is not touched. A struct weights is immutable, and any number of threads may use it. All pointers
 * that it gives out are borrowed until weights_close().
 */
#ifndef QUERN_FORMAT_WEIGHTS_H
#define QUERN_FORMAT_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "format/file/meta.h"
#include "tensor/dtype.h"

struct weights;
struct model_files;

/* Opens and checks a GGUF file (of a split model, part 1 with all others), or a folder with config.json, tokenizer.json
 * and safetensors files. The metadata and tensors of a folder have the names and shapes of a GGUF file. *out is the
 * caller's, to weights_close(). QN_ENOINPUT: a file cannot be opened; QN_EDATA: a file is malformed; QN_EUNSUP: the
 * file is big-endian, of version 1, not a model or of an unknown family; QN_ENOMEM. */
int weights_open(struct weights **out, const char *path, struct qn_error *e);
void weights_close(struct weights *w);
const char *weights_path(const struct weights *w);
/* All files that were opened (format/file/model_files.h). */
const struct model_files *weights_files(const struct weights *w);
uint32_t weights_version(const struct weights *w); /* of the GGUF format: 2 or 3; 0: a folder */
size_t weights_n_parts(const struct weights *w);   /* how many files hold tensors */
/* Whether a part of a file could not be read, and zeros were used in its place (base/os.h). If so, what was computed is
 * wrong. */
bool weights_are_lost(const struct weights *w);

/* ---- metadata (of a split model: of its first part) ---- */
size_t weights_n_meta(const struct weights *w);
const struct meta *weights_meta_at(const struct weights *w, size_t i);
const struct meta *weights_meta(const struct weights *w, const char *key); /* NULL when absent */

/* One value by its key. Return 1 and set *out when the key is there; 0 when it is absent; QN_EDATA when its type or
 * range does not fit (the message names the key and the value). A value that was found before is read with file/meta.h.
 */
int meta_u64(const struct weights *w, const char *key, uint64_t lo, uint64_t hi, uint64_t *out, struct qn_error *e);
int meta_f32(const struct weights *w, const char *key, float *out, struct qn_error *e); /* finite only */
int meta_bool(const struct weights *w, const char *key, bool *out, struct qn_error *e);
int meta_str(const struct weights *w, const char *key, struct str *out, struct qn_error *e);

/* ---- tensors ---- */
/* Says which tensors this process uses, if it is not all of them: the others are neither counted, nor locked, nor
 * entered into the page table ahead. Before any other thread has w; only once. */
int weights_use(struct weights *w, bool (*is_used)(const void *arg, const struct tensor *t), const void *arg,
                struct qn_error *e);
bool weights_is_used(const struct weights *w, size_t i);
size_t weights_n_tensors(const struct weights *w);
const struct tensor *weights_tensor_at(const struct weights *w, size_t i);      /* about in file order */
const struct tensor *weights_tensor(const struct weights *w, const char *name); /* NULL when absent */
/* Where tensor i begins, in bytes from the start of its file. *part: which file that is, from 0; weights_n_parts() for
 * a small tensor of a folder that was made in memory. */
uint64_t weights_tensor_place(const struct weights *w, size_t i, size_t *part);
uint64_t weights_tensor_bytes(const struct weights *w); /* of all tensors that are used */
uint64_t weights_file_bytes(const struct weights *w);   /* of all files that hold tensors */
/* Called after each tensor with the bytes so far; false: stop. */
typedef bool weights_watch(void *arg, uint64_t done, uint64_t total);
/* Reads all tensor data and searches it for NaN and infinity: the scales of every block, and float tensors element by
 * element. QN_EDATA names the tensor and the element of the first one found. */
int weights_check_finite(const struct weights *w, weights_watch *watch, void *arg, struct qn_error *e);
/* Keeps tensors in memory from their first use on: as many as fit into `bytes`, in file order, without `except` (may be
 * NULL). *locked: how many bytes that are. Returns 0, or the errno at which it stopped. Lasts until weights_close(). */
int weights_lock(const struct weights *w, uint64_t bytes, const struct tensor *except, uint64_t *locked);

#endif
