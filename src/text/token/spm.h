/* SPDX-License-Identifier: MIT
 *
 * spm.h: SentencePiece BPE, the tokenizer model `llama`. Merges the pair whose token has the highest score.
 */
#ifndef QUERN_TEXT_SPM_H
#define QUERN_TEXT_SPM_H

#include "text/token/lexicon.h"
#include "text/token/merge.h"

/* Appends the ids of one stretch of text, 0 < n < 2^30 bytes. add_space: encodes it as if a space stood before it.
 * unk: the id for a byte without a token, -1 for none. QN_EDATA: there is neither a token for a byte nor an unknown
 * token; QN_ECANCEL; QN_ENOMEM. */
int spm_encode(const struct lexicon *lex, qn_token unk, bool add_space, const char *text, size_t n,
               struct merge *scratch, struct ids *out, struct qn_error *e);

#endif
