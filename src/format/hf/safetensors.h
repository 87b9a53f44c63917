/* SPDX-License-Identifier: MIT
 *
 * safetensors.h: the header of one safetensors file in memory, parsed and checked.
 *
 * It needs no file, so that tests and fuzzers can feed it bytes. hf_shards.h joins several files.
 */
#ifndef QUERN_FORMAT_SAFETENSORS_H
#define QUERN_FORMAT_SAFETENSORS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "tensor/dtype.h"

#define ST_MAX_HEADER_BYTES ((size_t)100 << 20) /* the format's own limit */
#define ST_MAX_VALUES       ((size_t)4 << 20)   /* names, numbers, lists and objects of a header */
#define ST_MAX_DIMS         8

/* One tensor of the file. */
struct st_tensor {
    const char *name;         /* NUL-terminated; lives as long as the header */
    const char *type_name;    /* static: "BF16" */
    int type;                 /* the enum dtype of the same layout; -1: there is none (U8, F8_E4M3, ...) */
    bool is_u32;              /* U32, the type of packed weights */
    int n_dims;               /* 0: a single element */
    int64_t dim[ST_MAX_DIMS]; /* as written: the last one is contiguous; none is 0 when bytes is not */
    const uint8_t *data;
    size_t bytes;
};

struct safetensors {
    json_t *header;           /* owns the names */
    struct st_tensor *tensor; /* [n], by their place in the file */
    size_t n;
};

/* Parses the file image [data, data + size), which must outlive *s. Tensor data is not read. The result needs no
 * further checks of place: each tensor lies inside the file, has as many bytes as its type and shape say, and overlaps
 * no other. Bytes that belong to no tensor are tolerated. QN_EDATA: malformed; QN_ENOMEM. On failure *s does not
 * change. */
int safetensors_parse(struct safetensors *s, const uint8_t *data, size_t size, struct qn_error *e);
void safetensors_deinit(struct safetensors *s); /* a zeroed one is fine */

#endif
