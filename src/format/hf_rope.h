/* SPDX-License-Identifier: MIT
 *
 * hf_rope.h: how config.json rotates queries and keys.
 */
#ifndef QUERN_FORMAT_HF_ROPE_H
#define QUERN_FORMAT_HF_ROPE_H

#include "format/hf_config.h"

/* Adds the keys that begin with "ARCH.rope." (and quern.rope_half_split), and computes the factors of c. */
int hf_rope_meta(struct hf_config *c, struct meta_build *b, struct qn_error *e);

#endif
