/* SPDX-License-Identifier: MIT
 *
 * spm.h: SentencePiece BPE, the tokenizer model `llama`.
 */
#ifndef QUERN_TEXT_SPM_H
#define QUERN_TEXT_SPM_H

#include "text/lexicon.h"
#include "text/merge.h"

/* Appends the ids of one stretch of text without special tokens. add_space: as if a space stood before it.
 * unk: the id for bytes without a token, -1 for none. The text must be shorter than 2^30 bytes. */
int spm_encode(const struct lexicon *lex, qn_token unk, bool add_space, const char *text, size_t n,
               struct merge *scratch, struct ids *out, struct qn_error *e);

#endif
