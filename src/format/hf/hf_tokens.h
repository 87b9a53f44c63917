/* SPDX-License-Identifier: MIT
 *
 * hf_tokens.h: the list of a Hugging Face folder's tokens by id, and the keys that are made from it.
 */
#ifndef QUERN_FORMAT_HF_TOKENS_H
#define QUERN_FORMAT_HF_TOKENS_H

#include "format/hf/hf_pipeline.h"
#include "format/hf/hf_tokenizer.h"

/* The parsed files. All but tokenizer may be NULL. */
struct hf_files {
    json_t *tokenizer, *config, *special_map, *generation; /* config is tokenizer_config.json */
    const json_t *model_config;                            /* config.json; borrowed */
};

enum { HF_STRIP_LEFT = 1, HF_STRIP_RIGHT = 2 };

struct hf_token {
    struct str text; /* p NULL: no token has this id */
    uint8_t type;    /* of tokenizer.ggml.token_type */
    uint8_t strip;   /* HF_STRIP_*: on which sides white space belongs to the token */
};

struct hf_tokens {
    struct hf_token *id; /* [n]; texts borrowed from the files */
    uint32_t n;
    uint32_t max_bytes; /* of the longest text */
    struct names index; /* text -> id */
};

/* Reads model.vocab and the added tokens. The list has all ids up to vocab_size, also those that nothing names. Call
 * hf_tokens_deinit() also after a failure. QN_EDATA, QN_EUNSUP, QN_ENOMEM. */
int hf_tokens_read(struct hf_tokens *t, const struct hf_files *f, const struct hf_pipeline *p, struct qn_error *e);
void hf_tokens_deinit(struct hf_tokens *t);
int64_t hf_tokens_find(const struct hf_tokens *t, const char *p, size_t n); /* -1: no such token */

/* Puts tokenizer.ggml.{bos,eos,...}_token_id, .add_bos_token, .add_eos_token, and the tokens that end generation. */
int hf_roles_put(struct meta_build *b, const struct hf_tokens *t, const struct hf_files *f, const struct hf_pipeline *p,
                 struct qn_error *e);
/* Puts tokenizer.chat_template, and the templates with a name. */
int hf_templates_put(struct meta_build *b, const char *dir, const struct hf_files *f, struct qn_error *e);

/* As hf_tokenizer_meta(), from files that were read already. */
int hf_tokenizer_put(struct meta_build *b, const char *dir, const struct hf_files *f, struct qn_error *e);

#endif
