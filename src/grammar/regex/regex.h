/* SPDX-License-Identifier: MIT
 *
 * regex.h: regular expressions over bytes, and their derivatives.
 *
 * An expression is a number; equal expressions have the same number. The derivative of an expression by a byte matches
 * what may follow that byte, so an expression is at the same time a state of an automaton: reading a text takes one
 * derivative after the other, and the text matches if the last one matches the empty text. Intersection and complement
 * are as simple as union. Nothing is ever compiled: states are made when they are reached.
 *
 * Source: Brzozowski, "Derivatives of Regular Expressions" (1964); Owens, Reppy, Turon, "Regular-expression derivatives
 * re-examined" (2009), for the classes of bytes that have the same derivative.
 *
 * The functions that make an expression return RE_NONE after a failure, which the struct limits has.
 */
#ifndef QUERN_GRAMMAR_REGEX_H
#define QUERN_GRAMMAR_REGEX_H

#include "grammar/regex/decimal.h"
#include "grammar/core/word_set.h"

typedef uint32_t re_id;

#define RE_NONE    ((re_id)0) /* matches nothing */
#define RE_EMPTY   ((re_id)1) /* matches the empty text */
#define RE_ALL     ((re_id)2) /* matches every sequence of bytes */
#define RE_NO_MAX  UINT32_MAX /* as the most repetitions: any number */
#define RE_COUNTED 100000u    /* the most repetitions otherwise */

enum re_kind {
    RE_IS_EMPTY = 1,
    RE_BYTES, /* one byte of a set: 8 words */
    RE_CAT,   /* one expression after the other */
    RE_OR,    /* any of a list, ascending */
    RE_AND,   /* all of a list, ascending */
    RE_NOT,
    RE_REPEAT, /* an expression, least, most */
    RE_CHARS,  /* any characters of UTF-8: least, most */
    RE_WORDS,  /* what follows the first `depth` bytes in words [lo, hi) of a list, which share these: list, lo, hi,
                  depth */
    RE_BOUND,  /* a number above or below another one (decimal.h) */
    RE_MULTIPLE,
};

/* Strings, sorted by their bytes, without duplicates. */
struct word_list {
    struct str_ref *words; /* [n] owned, in one block with their bytes; NULL: the place of the list is free */
    uint32_t n;
    size_t bytes;   /* of the block */
    bool is_needed; /* found by regex_keep() */
};

struct str_ref {
    const char *p; /* owned by the list */
    uint32_t n;
};

struct regex {
    struct limits *l;
    struct word_set set; /* kind, operands */
    uint8_t *flags;      /* [cap_flags] of each expression */
    struct re_memo *memo;
    struct word_list *lists;  /* [n_lists] */
    struct decimal *numbers;  /* [n_numbers] */
    uint32_t first_free_list; /* no place before it is free */
    uint32_t cap_flags, n_lists, cap_lists, n_numbers, cap_numbers;
    uint32_t round;    /* of a search */
    uint32_t *visited; /* [cap_visited] the round in which a search last saw an expression */
    uint32_t *queue;   /* [cap_queue] expressions of a search, each with the place of the one before it */
    uint32_t cap_visited, cap_queue;
    uint32_t *scratch; /* [n_scratch] operands of expressions that are being made */
    uint32_t n_scratch, cap_scratch;
};

/* Call regex_deinit() also after a failure. *l is borrowed. */
bool regex_init(struct regex *r, struct limits *l);
void regex_deinit(struct regex *r);

/* ---- making expressions ---- */

re_id re_bytes(struct regex *r, const uint32_t set[8]);
re_id re_range(struct regex *r, uint8_t lo, uint8_t hi);
re_id re_cat(struct regex *r, re_id a, re_id b);
re_id re_or(struct regex *r, const re_id *list, uint32_t n);
re_id re_and(struct regex *r, const re_id *list, uint32_t n);
re_id re_or2(struct regex *r, re_id a, re_id b);
re_id re_and2(struct regex *r, re_id a, re_id b);
re_id re_not(struct regex *r, re_id a);
re_id re_repeat(struct regex *r, re_id a, uint32_t least, uint32_t most);
re_id re_chars(struct regex *r, uint32_t least, uint32_t most);
re_id re_text(struct regex *r, const void *p, size_t n); /* exactly this text */
/* Any of the words, whose bytes are copied; they are sorted, and duplicates dropped. */
re_id re_words(struct regex *r, const struct str_ref *words, uint32_t n);
/* Decimal numbers, as JSON writes them without an exponent, that are above (at least) or below (at most) x. The syntax
 * of a number is not checked: intersect it with that. */
re_id re_bound(struct regex *r, const struct decimal *x, enum decimal_order order);
/* Those that are a multiple of x, whose digits make a number of at most DECIMAL_MAX_DIVISOR. */
re_id re_multiple(struct regex *r, const struct decimal *x);
/* Says that the expression matches nothing but complete UTF-8, which is hard to see in a set of byte sequences. */
void re_mark_text(struct regex *r, re_id a);

/* ---- reading ---- */

enum re_kind re_kind(const struct regex *r, re_id a);
/* The operands of an expression, after its kind. */
const uint32_t *re_operands(const struct regex *r, re_id a, uint32_t *n);
bool re_is_nullable(const struct regex *r, re_id a); /* it matches the empty text */
bool re_is_text(const struct regex *r, re_id a);     /* it matches nothing but complete UTF-8 */
re_id re_derive(struct regex *r, re_id a, uint8_t byte);
/* Sets bit b for each byte b whose derivative may differ from that of b - 1. */
void re_bounds(struct regex *r, re_id a, uint64_t bits[4]);
/* Sets the bits for a byte that is unlike those before and after it. */
static inline void re_mark_byte(uint64_t bits[4], unsigned byte)
{
    bits[byte / 64] |= (uint64_t)1 << (byte % 64);
    byte++;
    if (byte < 256) bits[byte / 64] |= (uint64_t)1 << (byte % 64);
}

/* Whether it matches any text. After a failure: false. */
bool re_is_live(struct regex *r, re_id a);
/* The derivative, or RE_NONE if that matches no text. */
re_id re_step(struct regex *r, re_id a, uint8_t byte);
/* Whether every text can be continued so that it matches, as with a pattern that may match anywhere; false also where
 * that is hard to find out. */
bool re_is_total(struct regex *r, re_id a);
bool re_matches(struct regex *r, re_id a, const void *p, size_t n);
/* How many texts it matches, at most `most`. */
uint32_t re_count(struct regex *r, re_id a, uint32_t most);

/* ---- dropping expressions ---- */

/* Marks in needed[], one byte for each expression, all that the marked ones are made of. */
void regex_mark(const struct regex *r, uint8_t *needed);
/* Drops the expressions that regex_mark() has not marked; number[] has the new numbers of the others, which keep their
 * order. This needs no memory. */
void regex_keep(struct regex *r, const uint8_t *needed, const uint32_t *number);

#endif
