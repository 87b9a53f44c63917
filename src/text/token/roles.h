/* SPDX-License-Identifier: MIT
 *
 * roles.h: the tokens that mean something to the engine: BOS, EOS, end of a turn, end of generation.
 */
#ifndef QUERN_TEXT_ROLES_H
#define QUERN_TEXT_ROLES_H

#include "text/token/bpe.h"
#include "text/token/lexicon.h"
#include "text/token/vocab.h"

#define ROLES_MAX_LISTED 40 /* tokens that end generation by their role, or because the file lists them */
#define ROLES_MAX_EOG    64
#define ROLES_MAX_SHOWN  5

struct roles {
    qn_token id[VOCAB_N_ROLES]; /* -1: none */
    qn_token eog[ROLES_MAX_EOG];
    qn_token shown[ROLES_MAX_SHOWN]; /* control tokens that decoded text shows all the same */
    int n_eog, n_shown;
};

/* Reads tokenizer.ggml.*_token_id, and recognises the other roles by the tokens' texts. Changes the type of tokens that
 * end generation, and of those that mark a gap in a text, to control, so call it before anything that depends on types.
 * bpe: NULL for the model `llama`. QN_EDATA: a key is malformed. */
int roles_init(struct roles *r, struct lexicon *lex, const struct bpe *bpe, const struct weights *w,
               struct qn_error *e);

#endif
