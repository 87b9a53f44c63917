/* SPDX-License-Identifier: MIT
 *
 * hf_tokenizer.h: the tokenizer of a Hugging Face folder as the metadata of a GGUF file.
 */
#ifndef QUERN_FORMAT_HF_TOKENIZER_H
#define QUERN_FORMAT_HF_TOKENIZER_H

#include <jansson.h>

#include "format/meta_build.h"

#define HF_MAX_TOKENS      (1u << 20) /* ids, and merges: what a GGUF file may have (format/gguf.h) */
#define HF_MAX_TOKEN_BYTES (1u << 16)

/* Puts the keys tokenizer.* into b, of which none may be there, from dir/tokenizer.json and what of
 * tokenizer_config.json, special_tokens_map.json, generation_config.json and chat_template.jinja is there. config:
 * config.json, for vocab_size and the ids that the others do not name; may be NULL. Text that is encoded with the
 * result gives the ids of the original tokenizer. QN_ENOINPUT: no tokenizer.json; QN_EDATA: malformed; QN_EUNSUP: a
 * part of it that the text layer has no equal for, by name. After a failure b is to be given up. */
int hf_tokenizer_meta(struct meta_build *b, const char *dir, const json_t *config, struct qn_error *e);

#endif
