/* SPDX-License-Identifier: MIT
 *
 * detok.h: token ids to text, one token at a time.
 *
 * A token may end in the middle of a character. The bytes of an unfinished character are held back until the next token
 * comes. A struct detok owns no memory; one thread at a time may use it.
 */
#ifndef QUERN_TEXT_DETOK_H
#define QUERN_TEXT_DETOK_H

#include "text/token/vocab.h"

enum detok_flag {
    DETOK_SPECIAL = 1,  /* control and unknown tokens appear as their text; without this they give nothing */
    DETOK_CONTINUE = 2, /* a prompt comes before this text, so a leading space belongs to the text and stays */
    DETOK_RAW = 4,      /* bytes as they are: nothing is held back, nothing is replaced */
};

struct detok {
    const struct vocab *v; /* borrowed */
    unsigned flags;
    bool drop_space; /* the next byte of text, if a space, was put there by the encoder */
    uint8_t held[4]; /* the beginning of a character */
    unsigned n_held; /* < 4 */
};

void detok_init(struct detok *d, const struct vocab *v, unsigned flags);
/* Appends the characters that this token completes. The id must be valid. Bytes that cannot be UTF-8 become U+FFFD.
 * QN_ENOMEM; after a failure neither *d nor *out has changed. */
int detok_push(struct detok *d, qn_token id, struct buf *out, struct qn_error *e);
/* Ends the text: an unfinished character becomes one U+FFFD. QN_ENOMEM. */
int detok_flush(struct detok *d, struct buf *out, struct qn_error *e);
/* Ends the text before a character that is unfinished. */
static inline void detok_cut(struct detok *d) { d->n_held = 0; }
/* Appends the text of a whole list of ids. QN_EUSAGE: an id is outside the vocabulary; QN_ENOMEM. */
int detok_all(const struct vocab *v, const qn_token *ids, size_t n, unsigned flags, struct buf *out,
              struct qn_error *e);

#endif
