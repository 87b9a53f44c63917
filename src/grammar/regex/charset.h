/* SPDX-License-Identifier: MIT
 *
 * charset.h: sets of characters (code points), as sorted ranges.
 */
#ifndef QUERN_GRAMMAR_CHARSET_H
#define QUERN_GRAMMAR_CHARSET_H

#include "grammar/regex/regex.h"

struct char_range {
    uint32_t lo, hi; /* both in the set */
};

/* A zeroed one is empty. */
struct charset {
    struct char_range *ranges; /* [n] owned; ascending, with a gap between each two, after charset_finish() */
    uint32_t n, cap;
};

void charset_deinit(struct charset *s, struct limits *l);
/* Adds a range; code points that are not characters (surrogates) are left out when the set is used. */
bool charset_add(struct charset *s, struct limits *l, uint32_t lo, uint32_t hi);
bool charset_add_set(struct charset *s, struct limits *l, const struct charset *other);
/* Sorts and joins the ranges. */
void charset_finish(struct charset *s);
/* The complement of a finished set, which is finished too. */
bool charset_invert(struct charset *s, struct limits *l);
/* Adds the characters of a class: d, w, s, or one of D, W, S (ECMA-262). */
bool charset_add_class(struct charset *s, struct limits *l, char name);
/* Adds the characters of a Unicode general category, by its short or long name ("Lu", "Letter", "L"). False also: there
 * is no such category, and no failure was noted. */
bool charset_add_category(struct charset *s, struct limits *l, const char *name, size_t n);

/* The characters of a finished set, as UTF-8. */
re_id charset_regex(const struct charset *s, struct regex *r);

#endif
