/* SPDX-License-Identifier: MIT
 *
 * word_set.h: gives equal lists of 32-bit words the same number.
 *
 * Everything that a grammar makes while it is explored (regular expressions, states, stacks, configurations) is such a
 * list, so that two of them are equal if their numbers are. The numbers count up from 0, in the order in which lists
 * are added; list 0 is empty and stands for nothing.
 */
#ifndef QUERN_GRAMMAR_WORD_SET_H
#define QUERN_GRAMMAR_WORD_SET_H

#include "grammar/core/limits.h"

/* Of the hash table. */
struct word_slot {
    uint32_t hash; /* of the list */
    uint32_t list; /* its number; 0: the slot is free */
};

struct word_set {
    uint32_t *words;         /* all lists, one after the other */
    uint32_t *start;         /* [n + 1] list i is words[start[i] .. start[i + 1]) */
    struct word_slot *slots; /* [n_slots] open addressing */
    uint32_t n, n_slots;     /* n_slots is a power of two */
    uint32_t cap_words, cap_start;
};

/* Adds the empty list. False: a failure was noted. */
bool word_set_init(struct word_set *s, struct limits *l);
void word_set_deinit(struct word_set *s, struct limits *l);
/* The number of the list w[0 .. n), which is added if it is new; w must not point into the set. 0 after a failure. */
uint32_t word_set_add(struct word_set *s, struct limits *l, const uint32_t *w, uint32_t n);

/* Takes the list out that was added last. */
void word_set_drop_last(struct word_set *s);
/* Keeps list 0 and the lists that needed[] marks, one byte for each, and gives the memory of the others back. Those
 * that are kept are numbered anew in the same order. Their words may have been changed before if all lists stay
 * different. This needs no memory, so it does not fail. */
void word_set_keep(struct word_set *s, struct limits *l, const uint8_t *needed);

/* List i, of *n words; valid until the next list is added. */
static inline const uint32_t *word_set_get(const struct word_set *s, uint32_t i, uint32_t *n)
{
    static const uint32_t none = 0; /* while no list has words, there is no array */
    *n = s->start[i + 1] - s->start[i];
    return *n ? s->words + s->start[i] : &none;
}

#endif
