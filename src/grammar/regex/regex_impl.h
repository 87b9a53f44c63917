/* SPDX-License-Identifier: MIT
 *
 * regex_impl.h: what the files of the regular expressions share.
 */
#ifndef QUERN_GRAMMAR_REGEX_IMPL_H
#define QUERN_GRAMMAR_REGEX_IMPL_H

#include "grammar/regex/regex.h"

enum re_flag {
    RE_F_NULLABLE = 1,
    RE_F_TEXT = 2,     /* it matches nothing but complete UTF-8 */
    RE_F_LIVE = 4,     /* it is known to match a text */
    RE_F_DEAD = 8,     /* it is known to match none */
    RE_F_TOTAL = 16,   /* it is known that every text can be continued so that it matches */
    RE_F_PARTIAL = 32, /* that is known to be wrong, or hard to find out */
};

#define RE_MEMO 8192 /* derivatives that are remembered; a newer one replaces an older one in the same place */

struct re_memo {
    uint32_t of, derivative;
    uint32_t byte; /* and 256, so that a zeroed one is no derivative; RE_SHORTEST: instead, the length of a text */
};

#define RE_SHORTEST 512

/* Adds the expression with these words, its kind first. */
re_id re_add(struct regex *r, const uint32_t *w, uint32_t n);

/* Frees a list of words that no expression has any more. */
void word_list_drop(struct regex *r, uint32_t i);

/* Puts an operand on the scratch stack; and the union or intersection of those from `from` up, which are taken off. */
bool re_push(struct regex *r, uint32_t x);
re_id re_combine(struct regex *r, enum re_kind kind, uint32_t from);

/* Of RE_WORDS, RE_BOUND and RE_MULTIPLE (regex_leaf.c); w: the words of the expression. */
bool re_leaf_is_nullable(const struct regex *r, const uint32_t *w);
re_id re_leaf_derive(struct regex *r, const uint32_t *w, uint8_t byte);
void re_leaf_bounds(const struct regex *r, const uint32_t *w, uint64_t bits[4]);

static inline void re_set_bound(uint64_t bits[4], unsigned byte)
{
    if (byte < 256) bits[byte / 64] |= (uint64_t)1 << (byte % 64);
}

#endif
