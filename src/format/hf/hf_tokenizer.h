/* SPDX-License-Identifier: MIT
 *
 * hf_tokenizer.h: the tokenizer of a Hugging Face folder as the metadata of a GGUF file.
 */
#ifndef QUERN_FORMAT_HF_TOKENIZER_H
#define QUERN_FORMAT_HF_TOKENIZER_H

#include <jansson.h>

#include "format/file/meta_build.h"

#define HF_MAX_TOKENS      (1u << 20) /* ids, and merges: what a GGUF file may have (format/gguf/gguf.h) */
#define HF_MAX_TOKEN_BYTES (1u << 16)

/* Puts the keys tokenizer.* into b, which must have none of them yet. Reads dir/tokenizer.json and, as far as they
 * exist, tokenizer_config.json, special_tokens_map.json, generation_config.json and chat_template.jinja. config (may be
 * NULL): config.json, for vocab_size and for ids that the other files do not name. Text that is encoded with the result
 * gives the ids of the original tokenizer. QN_ENOINPUT: there is no tokenizer.json; QN_EDATA: malformed; QN_EUNSUP: a
 * part that the text layer cannot do, by name; QN_ENOMEM. After a failure b can only be freed. */
int hf_tokenizer_meta(struct meta_build *b, const char *dir, const json_t *config, struct qn_error *e);

#endif
