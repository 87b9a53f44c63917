/* SPDX-License-Identifier: MIT
 *
 * vocab.h: the tokenizer of one model: text to token ids, and back.
 *
 * A vocabulary borrows its strings from the model file, so the struct weights that it was loaded from must outlive it.
 * It is immutable once it is loaded, and any number of threads may use it.
 */
#ifndef QUERN_TEXT_VOCAB_H
#define QUERN_TEXT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "format/weights.h"
#include "text/token/origin.h"

struct vocab;

/* Reads the tokenizer.* metadata. *out is the caller's, to vocab_free(). QN_EDATA: a key is missing or malformed;
 * QN_EUNSUP: the tokenizer model is not llama, gpt2, gemma4 or char-bpe, or the pre-tokeniser is not known; QN_ENOMEM.
 * Harmless oddities (an id out of range, duplicate or empty tokens) are logged. */
int vocab_load(struct vocab **out, const struct weights *w, struct qn_error *e);
/* The same. pre (may be NULL): the pre-tokeniser to use when the file names none, `default`, or an unknown one. */
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

/* These take any id, and are false for one outside the vocabulary. */
bool vocab_is_valid(const struct vocab *v, qn_token id);
bool vocab_has_text(const struct vocab *v, qn_token id);   /* it is in use, and its text is not empty */
bool vocab_is_eog(const struct vocab *v, qn_token id);     /* generation ends at this token */
const qn_token *vocab_eog(const struct vocab *v, int *n);  /* all tokens of this kind */
bool vocab_is_control(const struct vocab *v, qn_token id); /* a control or unknown token: it has no text of its own */

/* The id of the token, of any type, whose stored text is exactly this; -1 when there is none. */
qn_token vocab_find(const struct vocab *v, const char *text, size_t n);
/* Bytes of the longest token's stored text. */
size_t vocab_max_token_bytes(const struct vocab *v);
/* The token's text as the file stores it (byte-mapped for gpt2, U+2581 for spaces for llama); borrowed. The id must be
 * valid. */
struct str vocab_token_text(const struct vocab *v, qn_token id);

/* ---- text -> ids ---- */

enum vocab_flag {
    VOCAB_ADD_BOS = 1, /* BOS before the text if the model wants it: for a text to be continued */
    VOCAB_ADD_EOS = 4, /* EOS after the text if the model wants it: for a text that is complete */
    VOCAB_ADD_SPECIAL = VOCAB_ADD_BOS | VOCAB_ADD_EOS,
    VOCAB_PARSE_SPECIAL = 2, /* the text of a control token becomes that token; never set it for text of a user */
    VOCAB_PARSE_FIM = 8,     /* the same for the tokens with a role VOCAB_FIM_*, and no others */
    VOCAB_NO_SPACE = 16,     /* no space is put before the text, whatever the model wants: it goes on inside a word */
};
/* Encodes any bytes, at most 2^28 - 1 (QN_EUSAGE). Bytes that are not UTF-8 keep their value, and count as U+FFFD when
 * the text is cut into words. *ids becomes the caller's, to mem_free(); NULL when there are none. The time is linear in
 * n up to a logarithm. QN_EDATA: the vocabulary has no token for some byte, or a pattern reached its match limit;
 * QN_ENOMEM. */
int vocab_encode(const struct vocab *v, const char *text, size_t n, unsigned flags, qn_token **ids, size_t *n_ids,
                 struct qn_error *e);
/* The same, but cancel (may be NULL) is asked after every few ten thousand bytes. QN_ECANCEL: it said yes. */
int vocab_encode_wanted(const struct vocab *v, const char *text, size_t n, unsigned flags,
                        const struct qn_cancel *cancel, qn_token **ids, size_t *n_ids, struct qn_error *e);

/* The same for a text of mixed origin: control tokens and o->markup are recognised only in bytes of the template. BOS
 * is put in front if the model wants it and the text does not begin with it. */
int vocab_encode_chat(const struct vocab *v, const char *text, size_t n, const struct text_origin *o,
                      const struct qn_cancel *cancel, qn_token **ids, size_t *n_ids, struct qn_error *e);

/* ---- ids -> bytes (detok.h makes whole characters of them) ---- */

/* Appends the bytes that the token stands for, which may end inside a character. A control or unknown token stands for
 * its text when `special` is set, and otherwise for nothing. The id must be valid. QN_ENOMEM. */
int vocab_token_bytes(const struct vocab *v, qn_token id, bool special, struct buf *out, struct qn_error *e);

/* Whether the token is cut out of text before encoding: a control, unknown or user-defined one. */
bool vocab_is_special(const struct vocab *v, qn_token id);
/* Whether the encoder puts a space before a text (first), or before the text that follows a special token. */
bool vocab_adds_space(const struct vocab *v, bool first);

#endif
