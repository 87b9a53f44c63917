/* SPDX-License-Identifier: MIT
 *
 * hf_pipeline.h: what a tokenizer.json does to text around its model: normalizer, pre_tokenizer, post_processor,
 * decoder.
 */
#ifndef QUERN_FORMAT_HF_PIPELINE_H
#define QUERN_FORMAT_HF_PIPELINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Where a U+2581 is put in front of a stretch of text between special tokens. The names are the values of
 * tokenizer.quern.space_prefix. */
enum hf_prefix {
    HF_PREFIX_NONE,
    HF_PREFIX_EACH,    /* of each stretch (normalizer Prepend) */
    HF_PREFIX_MISSING, /* of each that does not begin with a space (Metaspace "always") */
    HF_PREFIX_FIRST,   /* of one that does not, at the beginning of the text only (Metaspace "first") */
};
extern const char *const hf_prefix_names[];

#define HF_MAX_AROUND 4

struct hf_pipeline {
    bool byte_level; /* bytes as printable characters; else characters, U+2581 for spaces */
    bool nfc;
    enum hf_prefix prefix; /* of the second kind only */
    const char *pre;       /* the name of the patterns (text/pretok_table.c) */
    /* Tokens that the post-processor puts before and behind a text. */
    bool has_template;
    int64_t before[HF_MAX_AROUND], behind[HF_MAX_AROUND];
    int n_before, n_behind;
};

/* Understands tokenizer.json's pipeline or refuses it: QN_EUNSUP names the part that has no equal here, QN_EDATA what
 * is malformed. */
int hf_pipeline_read(struct hf_pipeline *p, const json_t *tokenizer, struct qn_error *e);

#endif
