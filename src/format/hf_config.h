/* SPDX-License-Identifier: MIT
 *
 * hf_config.h: config.json of a Hugging Face folder, as the metadata that a GGUF file of the same model has.
 */
#ifndef QUERN_FORMAT_HF_CONFIG_H
#define QUERN_FORMAT_HF_CONFIG_H

#include <jansson.h>

#include "format/hf_names.h"
#include "format/meta_build.h"

#define HF_MAX_FACTORS 256 /* pairs of a head */

struct hf_config {
    const struct hf_family *family;
    const char *arch;   /* static: general.architecture */
    const json_t *main; /* the object that describes the language model: config.json or its text_config */
    const json_t *top;  /* config.json */
    int n_layer, n_mtp; /* layers; blocks that predict further tokens */
    bool is_tied;       /* the output matrix is the embeddings */
    /* Divisors of the rotation's frequencies, computed from the configuration: rope_freqs.weight; rope_factors_long and
     * _short.weight. Count 0: none. */
    int n_freqs, n_long;
    float freqs[HF_MAX_FACTORS], longs[HF_MAX_FACTORS], shorts[HF_MAX_FACTORS];
};

/* Reads the part that says how to read the tensors. config stays the caller's, and must outlive *c. */
int hf_config_read(struct hf_config *c, const json_t *config, struct qn_error *e);
/* Adds the keys that a GGUF file has beside those of its tokenizer, and computes the factors. has_mtp: the tensors of
 * the c->n_mtp blocks are there. */
int hf_config_meta(struct hf_config *c, struct meta_build *b, bool has_mtp, struct qn_error *e);
/* Adds those of the tokenizer that stand in config.json only. */
int hf_config_tokens(const struct hf_config *c, struct meta_build *b, struct qn_error *e);

#endif
