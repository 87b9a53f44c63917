/* SPDX-License-Identifier: MIT
 *
 * hf_config.h: turns config.json of a Hugging Face folder into the metadata of a GGUF file of the same model.
 */
#ifndef QUERN_FORMAT_HF_CONFIG_H
#define QUERN_FORMAT_HF_CONFIG_H

#include <jansson.h>

#include "format/hf/hf_names.h"
#include "format/file/meta_build.h"

#define HF_MAX_FACTORS 256 /* the most rotated pairs of a head */

struct hf_config {
    const struct hf_family *family;
    const char *arch;   /* static: general.architecture */
    const json_t *main; /* the object that describes the language model: config.json or its text_config */
    const json_t *top;  /* config.json */
    int n_layer, n_mtp; /* layers; blocks that predict further tokens */
    int bias;           /* 1, 0: what WeDLM's attention_bias says of q, k and v; -1: nothing */
    bool is_tied;       /* the embeddings are also the output matrix */
    /* Divisors of the rotation's frequencies, computed from the configuration: freqs for rope_freqs.weight, longs and
     * shorts for rope_factors_long.weight and rope_factors_short.weight. A count of 0: none. */
    int n_freqs, n_long;
    float freqs[HF_MAX_FACTORS], longs[HF_MAX_FACTORS], shorts[HF_MAX_FACTORS];
};

/* All of these: QN_EDATA: missing or malformed; QN_EUNSUP: not supported, by name; QN_ENOMEM. */

/* Reads what is needed to read the tensors. config is borrowed and must outlive *c. */
int hf_config_read(struct hf_config *c, const json_t *config, struct qn_error *e);
/* Adds all keys of a GGUF file but those of its tokenizer, and computes the divisors. has_mtp: the tensors of the
 * c->n_mtp blocks are there. */
int hf_config_meta(struct hf_config *c, struct meta_build *b, bool has_mtp, struct qn_error *e);
/* Adds the keys of the tokenizer that only config.json has. `quern.wedlm`: the model_type is `wedlm`. */
int hf_config_tokens(const struct hf_config *c, struct meta_build *b, struct qn_error *e);

#endif
