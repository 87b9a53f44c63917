/* SPDX-License-Identifier: MIT
 *
 * hf_packed.h: weights that MLX has packed into words, with a few bits for each element, and scales and biases.
 */
#ifndef QUERN_FORMAT_HF_PACKED_H
#define QUERN_FORMAT_HF_PACKED_H

#include "format/hf/hf_config.h"
#include "format/file/names.h"
#include "format/hf/safetensors.h"

struct hf_packed {
    const json_t *config; /* `quantization` of config.json; NULL: nothing is packed */
    const struct st_tensor *const *tensor;
    struct names names; /* name of a tensor -> index into tensor */
};

/* Finds out how the n tensors are packed; they must outlive *p. QN_EUNSUP: in a way that is not supported; QN_EDATA;
 * QN_ENOMEM. */
int hf_packed_read(struct hf_packed *p, const struct hf_config *c, const struct st_tensor *const *tensor, size_t n,
                   struct qn_error *e);
void hf_packed_deinit(struct hf_packed *p); /* a zeroed one is fine */

/* Whether this tensor is only a part of another one: the scales or biases of packed words. */
bool hf_packed_is_part(const struct hf_packed *p, const char *name);
/* Finds the type of the packed words w, the length k of a row in elements, and the scales and biases (*side). 1: w is
 * packed; 0: it is not, and nothing was set; QN_EDATA: a part of it is missing or does not fit; QN_EUNSUP: a number of
 * bits or a group size that is not supported. */
int hf_packed_view(const struct hf_packed *p, const struct st_tensor *w, enum dtype *type, int64_t *k,
                   struct side *side, struct qn_error *e);

#endif
