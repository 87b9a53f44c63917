/* SPDX-License-Identifier: MIT
 *
 * gguf.h: one GGUF file in memory, parsed and checked.
 *
 * Other layers use weights.h. This is the part below it that needs no file, so that tests and fuzzers can feed it
 * bytes.
 */
#ifndef QUERN_FORMAT_GGUF_H
#define QUERN_FORMAT_GGUF_H

#include "format/file/names.h"
#include "tensor/dtype.h"

/* Limits of a header: far above any real file, and low enough that the index of a hostile one stays below 8 MiB. */
#define GGUF_MAX_KEYS          4096
#define GGUF_MAX_TENSORS       32768
#define GGUF_MAX_KEY_BYTES     65535      /* the format's own limit */
#define GGUF_MAX_STRING_BYTES  (1u << 26) /* of one value; a real tokenizer.huggingface.json has 33 MB */
#define GGUF_MAX_ARRAY_STRINGS (1u << 20) /* strings in an array, which must be walked */
#define GGUF_MAX_ELEMENT_BYTES (1u << 16) /* of one string in an array */
#define GGUF_NAME_BYTES        64         /* of a tensor's name, with its NUL */

/* The keys of a file that has the weights of some layers only, with holes in place of the others (gguf_holes.h): the
 * numbers of the first and the last of them. Every part of a split model has them. They are Quern's own. */
#define GGUF_FIRST_LAYER "quern.layers.first"
#define GGUF_LAST_LAYER  "quern.layers.last"

struct gguf {
    uint32_t version;
    uint64_t alignment;  /* bytes */
    size_t header_bytes; /* up to the end of the last tensor's entry, from the start of the file */
    size_t data_start;   /* the place in the file from which tensor offsets count */
    struct meta *meta;   /* [n_meta], in file order */
    size_t n_meta;
    struct names keys;      /* key -> index into meta */
    struct tensor *tensors; /* [n_tensors], in file order = ascending offsets */
    size_t n_tensors;
    char (*names)[GGUF_NAME_BYTES]; /* [n_tensors] */
};

/* Parses the file image [data, data + size), which must outlive *g, because values, strings and tensors point into it.
 * Tensor data is not read. QN_EDATA: malformed; QN_EUNSUP: big-endian, another version, not a model; QN_ENOMEM. On
 * failure *g does not change. */
int gguf_parse(struct gguf *g, const uint8_t *data, size_t size, struct qn_error *e);
void gguf_deinit(struct gguf *g);
const struct meta *gguf_meta(const struct gguf *g, const char *key); /* NULL when absent */

#endif
