/* SPDX-License-Identifier: MIT
 *
 * hf_rope.h: the rotation of queries and keys in config.json, as GGUF keys.
 */
#ifndef QUERN_FORMAT_HF_ROPE_H
#define QUERN_FORMAT_HF_ROPE_H

#include "format/hf/hf_config.h"

/* Adds the keys that begin with "ARCH.rope.", and quern.rope_half_split, and computes the divisors in *c. Errors as in
 * hf_config.h. */
int hf_rope_meta(struct hf_config *c, struct meta_build *b, struct qn_error *e);

#endif
