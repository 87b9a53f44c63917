/* SPDX-License-Identifier: MIT
 *
 * hf_pipeline.h: what a tokenizer.json does to text before and after its model: normalizer, pre_tokenizer,
 * post_processor, decoder.
 */
#ifndef QUERN_FORMAT_HF_PIPELINE_H
#define QUERN_FORMAT_HF_PIPELINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Which stretches of text between special tokens get a U+2581 in front. hf_prefix_names has the values of
 * tokenizer.quern.space_prefix. */
enum hf_prefix {
    HF_PREFIX_NONE,
    HF_PREFIX_EACH,    /* every stretch (normalizer Prepend) */
    HF_PREFIX_MISSING, /* every stretch that does not begin with a space (Metaspace "always") */
    HF_PREFIX_FIRST,   /* the same, but only at the beginning of the text (Metaspace "first") */
};
extern const char *const hf_prefix_names[];

#define HF_MAX_AROUND 4

struct hf_pipeline {
    bool byte_level; /* true: bytes as printable characters; false: characters, with U+2581 for spaces */
    bool nfc;
    enum hf_prefix prefix; /* only without byte_level */
    const char *pre;       /* the name of the patterns (text/token/pretok_table.c); static */
    /* The ids of the tokens that the post-processor puts before and after a text. */
    bool has_template;
    int64_t before[HF_MAX_AROUND], after[HF_MAX_AROUND];
    int n_before, n_after;
};

/* Recognises the pipeline of a tokenizer.json. QN_EUNSUP names the part that is not supported, QN_EDATA the part that
 * is malformed. */
int hf_pipeline_read(struct hf_pipeline *p, const json_t *tokenizer, struct qn_error *e);

#endif
