/* SPDX-License-Identifier: MIT
 *
 * roles.h: which tokens mean something to the engine: BOS, EOS, end of turn, end of generation.
 */
#ifndef QUERN_TEXT_ROLES_H
#define QUERN_TEXT_ROLES_H

#include "text/bpe.h"
#include "text/lexicon.h"
#include "text/vocab.h"

#define ROLES_MAX_LISTED 40 /* ends with a role and those that the file lists */
#define ROLES_MAX_EOG    64
#define ROLES_MAX_SHOWN  5

struct roles {
    qn_token id[VOCAB_N_ROLES]; /* -1: none */
    qn_token eog[ROLES_MAX_EOG];
    qn_token shown[ROLES_MAX_SHOWN]; /* control tokens that appear in decoded text nonetheless */
    int n_eog, n_shown;
};

/* Reads tokenizer.ggml.*_token_id and recognises the rest by text. Changes the type of tokens that end generation to
 * control, so it comes before whatever depends on types. bpe is NULL for the model `llama`. */
int roles_init(struct roles *r, struct lexicon *lex, const struct bpe *bpe, const struct weights *w,
               struct qn_error *e);

#endif
