/* SPDX-License-Identifier: MIT
 *
 * detok.h: token ids to text, as they come.
 *
 * A token may end in the middle of a character: the bytes of an unfinished one wait for the next token.
 */
#ifndef QUERN_TEXT_DETOK_H
#define QUERN_TEXT_DETOK_H

#include "text/vocab.h"

enum detok_flag {
    DETOK_SPECIAL = 1,  /* control and unknown tokens appear as their text instead of vanishing */
    DETOK_CONTINUE = 2, /* text went before (a prompt): a leading space belongs to the text and stays */
    DETOK_RAW = 4,      /* bytes as they are: nothing is held back, nothing replaced */
};

struct detok {
    const struct vocab *v; /* borrowed */
    unsigned flags;
    bool drop_space; /* the next byte of text, if a space, was put there by the encoder */
    uint8_t held[4]; /* the beginning of a character */
    unsigned n_held; /* < 4 */
};

void detok_init(struct detok *d, const struct vocab *v, unsigned flags);
/* Appends what became whole with this token, which must be valid. Bytes that cannot be UTF-8 become
 * U+FFFD. After an error (QN_ENOMEM) the state is as before. */
int detok_push(struct detok *d, qn_token id, struct buf *out, struct qn_error *e);
/* End of text: an unfinished character becomes one U+FFFD. */
int detok_flush(struct detok *d, struct buf *out, struct qn_error *e);
/* The two together, for a whole list of ids. Refuses ids outside the vocabulary (QN_EUSAGE). */
int detok_all(const struct vocab *v, const qn_token *ids, size_t n, unsigned flags, struct buf *out,
              struct qn_error *e);

#endif
