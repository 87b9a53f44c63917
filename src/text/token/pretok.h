/* SPDX-License-Identifier: MIT
 *
 * pretok.h: cuts text into the pieces that byte-level BPE never merges across.
 */
#ifndef QUERN_TEXT_PRETOK_H
#define QUERN_TEXT_PRETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/token/wanted.h"

struct pretok;

/* Piece i is text[end[i-1] .. end[i]), where end[-1] stands for 0. Pieces are never empty, and they cover the text.
 * Zeroed: no pieces. */
struct pretok_ends {
    uint32_t *end; /* [n], owned */
    size_t n, cap;
    struct wanted wanted; /* counts the bytes that are split */
};
void pretok_ends_deinit(struct pretok_ends *ends);

/* Facts about a tokenizer that its file does not state. They are known from the name of its pre-tokeniser. */
enum pretok_flag {
    PRETOK_IGNORE_MERGES = 1, /* a piece whose text is a token becomes that token without merging */
    PRETOK_ADD_BOS = 2,       /* BOS is added when the file does not say */
    PRETOK_NFC = 4,           /* the original tokenizer normalises its input to NFC */
    PRETOK_NO_BOS = 8,        /* there is no BOS token unless the file names one */
    PRETOK_BY_CHAR = 16,      /* merges join characters, and spaces are U+2581 */
    PRETOK_FORCE_BOS = 32,    /* BOS is added whatever the file says */
};

/* Whether a `tokenizer.ggml.pre` value is in the table. */
bool pretok_is_known(const char *name, size_t name_bytes);
/* Compiles the patterns of a name. The result is immutable, and any number of threads may use it. QN_EUNSUP: the name
 * is not in the table (the message has similar names); QN_ENOMEM. */
int pretok_new(struct pretok **out, const char *name, size_t name_bytes, struct qn_error *e);
void pretok_free(struct pretok *p);
unsigned pretok_flags(const struct pretok *p);

/* Replaces the contents of *ends by the pieces of the text, of n < 2^30 bytes. QN_EDATA: a limit of the regex engine
 * was reached; QN_ECANCEL; QN_ENOMEM. */
int pretok_split(const struct pretok *p, const char *text, size_t n, struct pretok_ends *ends, struct qn_error *e);

/* Name i of the table, for tests and listings; NULL after the last. */
const char *pretok_name(size_t i);

#endif
