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
#include "text/wanted.h"

struct pretok;

/* Piece i is text[end[i-1] .. end[i]), with end[-1] = 0; pieces are never empty and cover the text. */
struct pretok_ends {
    uint32_t *end;
    size_t n, cap;
    struct wanted wanted; /* asked while text is split */
};
void pretok_ends_deinit(struct pretok_ends *ends);

/* What else goes with a pre-tokeniser's name: facts about the tokenizers that files do not state. */
enum pretok_flag {
    PRETOK_IGNORE_MERGES = 1, /* a piece that is a token is that token, whatever the merges say */
    PRETOK_ADD_BOS = 2,       /* BOS is added when the file does not say */
    PRETOK_NFC = 4,           /* the original tokenizer normalises its input to NFC */
    PRETOK_NO_BOS = 8,        /* has no BOS token when the file does not name one */
    PRETOK_BY_CHAR = 16,      /* merges join characters, and spaces are U+2581 */
    PRETOK_FORCE_BOS = 32,    /* BOS is added whatever the file says */
};

/* Whether a `tokenizer.ggml.pre` value is in the table. */
bool pretok_is_known(const char *name, size_t name_bytes);
/* Compiles its patterns. Immutable afterwards and shareable. QN_EUNSUP, with the names that are near: it is not in the
 * table. */
int pretok_new(struct pretok **out, const char *name, size_t name_bytes, struct qn_error *e);
void pretok_free(struct pretok *p);
unsigned pretok_flags(const struct pretok *p);

/* Replaces the contents of *ends. n < 2^30. Thread-safe. QN_EDATA when a limit of the regex engine is hit. */
int pretok_split(const struct pretok *p, const char *text, size_t n, struct pretok_ends *ends, struct qn_error *e);

/* Walks the names of the table, for tests and listings; NULL after the last. */
const char *pretok_name(size_t i);

#endif
