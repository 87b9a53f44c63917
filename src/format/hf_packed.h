/* SPDX-License-Identifier: MIT
 *
 * hf_packed.h: weights that MLX has packed into words of a few bits an element, with scales and biases beside them.
 */
#ifndef QUERN_FORMAT_HF_PACKED_H
#define QUERN_FORMAT_HF_PACKED_H

#include "format/hf_config.h"
#include "format/names.h"
#include "format/safetensors.h"

struct hf_packed {
    const json_t *config; /* `quantization` of config.json; NULL: nothing is packed */
    const struct st_tensor *const *tensor;
    struct names names; /* of the tensors -> index into tensor */
};

/* Finds out how the n tensors are packed, which must outlive *p. QN_EUNSUP: in a way of which nothing is known here. */
int hf_packed_read(struct hf_packed *p, const struct hf_config *c, const struct st_tensor *const *tensor, size_t n,
                   struct qn_error *e);
void hf_packed_deinit(struct hf_packed *p); /* a zeroed one is fine */

/* Whether this tensor is only part of another one: the scales or biases of packed words. */
bool hf_packed_is_part(const struct hf_packed *p, const char *name);
/* Of packed words w: the type, the length of a row in elements, and what lies beside. 1: it is packed; 0: it is not, and
 * nothing was set; QN_EDATA: something of it is missing, or does not fit. */
int hf_packed_view(const struct hf_packed *p, const struct st_tensor *w, enum dtype *type, int64_t *k,
                   struct side *side, struct qn_error *e);

#endif
