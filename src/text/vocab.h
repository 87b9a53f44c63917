/* SPDX-License-Identifier: MIT
 *
 * vocab.h: text <-> token ids for one model.
 *
 * A vocabulary borrows its strings from the model file: it must not outlive the struct weights
 * it was loaded from. Once loaded it is immutable and may be used by any number of threads.
 */
#ifndef QUERN_TEXT_VOCAB_H
#define QUERN_TEXT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "format/weights.h"
#include "text/origin.h"

struct vocab;

/* Reads the tokenizer.* metadata. QN_EDATA: missing or malformed; QN_EUNSUP: a tokenizer model
 * other than llama, gpt2, gemma4 and char-bpe, or a pre-tokeniser that is not known. Odd but harmless things (an id
 * out of range, duplicate or empty tokens) are logged and survived. */
int vocab_load(struct vocab **out, const struct weights *w, struct qn_error *e);
/* The same with a pre-tokeniser for files that name none, `default`, or one that is not known; pre may be NULL. */
int vocab_load_with(struct vocab **out, const struct weights *w, const char *pre, struct qn_error *e);
void vocab_free(struct vocab *v); /* NULL is fine */

/* ---- what is in it ---- */

int32_t vocab_n_tokens(const struct vocab *v);

/* Ids of tokens with a role; -1 when the model has none. */
enum vocab_role {
    VOCAB_BOS,
    VOCAB_EOS,
    VOCAB_EOT, /* end of a turn */
    VOCAB_EOM, /* end of a message: the model expects a tool's result */
    VOCAB_UNK,
    VOCAB_SEP,
    VOCAB_PAD,
    VOCAB_MASK,
    VOCAB_FIM_PRE,
    VOCAB_FIM_SUF,
    VOCAB_FIM_MID,
    VOCAB_FIM_PAD,
    VOCAB_FIM_REP,
    VOCAB_FIM_SEP,
    VOCAB_N_ROLES
};
qn_token vocab_role(const struct vocab *v, enum vocab_role role);
static inline qn_token vocab_bos(const struct vocab *v) { return vocab_role(v, VOCAB_BOS); }
static inline qn_token vocab_eos(const struct vocab *v) { return vocab_role(v, VOCAB_EOS); }
static inline qn_token vocab_mask(const struct vocab *v) { return vocab_role(v, VOCAB_MASK); }

bool vocab_add_bos(const struct vocab *v); /* the model wants texts to begin with BOS */
bool vocab_add_eos(const struct vocab *v);

/* These take any id; one outside the vocabulary is none of them. */
bool vocab_is_valid(const struct vocab *v, qn_token id);
bool vocab_is_eog(const struct vocab *v, qn_token id);     /* generation ends at this token */
bool vocab_is_control(const struct vocab *v, qn_token id); /* control or unknown: has no text of its own */

/* The id of the token whose stored text is exactly this, of any type; -1 when there is none. */
qn_token vocab_find(const struct vocab *v, const char *text, size_t n);
/* Bytes of the longest token's text: a text of n tokens has at most n times as many. */
size_t vocab_max_token_bytes(const struct vocab *v);
/* The text as the file stores it (byte-mapped for gpt2, U+2581 for spaces for llama). id must be valid. */
struct str vocab_token_text(const struct vocab *v, qn_token id);

/* ---- text -> ids ---- */

enum vocab_flag {
    VOCAB_ADD_BOS = 1,       /* put BOS in front where the model wants it: a text to be continued */
    VOCAB_ADD_EOS = 4,       /* and EOS behind: a text that is complete */
    VOCAB_ADD_SPECIAL = VOCAB_ADD_BOS | VOCAB_ADD_EOS,
    VOCAB_PARSE_SPECIAL = 2, /* the texts of control tokens mean these tokens; never set it for text of a user */
};
/* Any bytes are accepted; those that are not UTF-8 keep their value and count as U+FFFD when text is
 * split into words. *ids returns owned (mem_free; NULL when there are none). Time is linear in n up to
 * a logarithm. QN_EDATA: the vocabulary has no token for some byte, or the text exceeds a matching limit. */
int vocab_encode(const struct vocab *v, const char *text, size_t n, unsigned flags, qn_token **ids, size_t *n_ids,
                 struct qn_error *e);
/* The same as long as it is wanted, and else QN_ECANCEL: cancel is asked every some ten thousand bytes. NULL: always. */
int vocab_encode_wanted(const struct vocab *v, const char *text, size_t n, unsigned flags,
                        const struct qn_cancel *cancel, qn_token **ids, size_t *n_ids, struct qn_error *e);

/* The same for text of mixed origin: control tokens and o->markup are recognised in the trusted bytes alone. BOS is
 * put in front where the model wants it and the text does not begin with it. */
int vocab_encode_chat(const struct vocab *v, const char *text, size_t n, const struct text_origin *o,
                      const struct qn_cancel *cancel, qn_token **ids, size_t *n_ids, struct qn_error *e);

/* ---- ids -> bytes (see detok.h for text as it streams) ---- */

/* Appends the bytes the token stands for; control and unknown tokens are their text when `special`,
 * otherwise nothing. Not always whole UTF-8. id must be valid. */
int vocab_token_bytes(const struct vocab *v, qn_token id, bool special, struct buf *out, struct qn_error *e);

/* Tokens that split text whatever surrounds them: control, unknown and user-defined ones. */
bool vocab_is_special(const struct vocab *v, qn_token id);
/* The encoder puts a space before a text (first), or before what follows a special token. */
bool vocab_adds_space(const struct vocab *v, bool first);

#endif
