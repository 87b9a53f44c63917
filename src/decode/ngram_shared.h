/* SPDX-License-Identifier: MIT
 *
 * ngram_shared.h: a table of fixed size with the tokens that sequences said, by identity.
 *
 * The table is a ring of segments. Each has tokens of one sequence, of one identity; the oldest is overwritten. A
 * look-up compares the identity and every token, so no hash can bring the text of one identity to another.
 */
#ifndef QUERN_DECODE_NGRAM_SHARED_H
#define QUERN_DECODE_NGRAM_SHARED_H

#include <stddef.h>

#include "decode/drafter.h"

#define SHARED_RUNS  2 /* lengths of runs that are looked up: */
#define SHARED_LONG  6
#define SHARED_SHORT 3

struct ngram_shared;

/* Where a sequence adds its tokens. Zeroed at its beginning. */
struct shared_cursor {
    uint32_t segment, serial; /* serial 0: it has no segment */
};

/* Makes a table of at most `bytes`; *out is NULL if they are too few for one. The caller frees it with mem_free().
 * QN_ENOMEM. */
int shared_new(size_t bytes, struct ngram_shared **out, struct qn_error *e);
void shared_empty(struct ngram_shared *s);
/* The sequence said tokens[at]. hash: of the SHARED_LONG and SHARED_SHORT tokens before it; 0: there are not so many.
 */
void shared_add(struct ngram_shared *s, struct shared_cursor *c, uint64_t identity, const qn_token *tokens, int at,
                const uint64_t hash[SHARED_RUNS]);
/* Sets *follow to what followed the last tokens before `end` and returns how many tokens that are; 0: nothing is known.
 * The tokens stay until the next call of shared_add() or shared_empty(). */
int shared_find(const struct ngram_shared *s, uint64_t identity, const qn_token *tokens, int end,
                const uint64_t hash[SHARED_RUNS], const qn_token **follow);

#endif
