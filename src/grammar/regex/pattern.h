/* SPDX-License-Identifier: MIT
 *
 * pattern.h: regular expressions as people write them (ECMA-262), made into those of regex.h.
 *
 * Everything that says which texts match is supported, except what needs memory or looks back: back-references, `\b`
 * and lookbehind. Groups capture nothing, and lazy quantifiers are the same as greedy ones. docs/GRAMMARS.md has the
 * list.
 */
#ifndef QUERN_GRAMMAR_PATTERN_H
#define QUERN_GRAMMAR_PATTERN_H

#include "grammar/regex/regex.h"

#define PATTERN_BYTES 20000 /* the longest */

enum pattern_match {
    PATTERN_WHOLE,  /* the pattern matches the whole text */
    PATTERN_SEARCH, /* it matches somewhere in the text */
};

/* The texts that the pattern matches. Returns RE_NONE after a failure, which names the place: "character 5: ...".
 * QN_EDATA: it is malformed or too long; QN_EUNSUP: a part of it is not supported. */
re_id pattern_compile(struct regex *r, const char *text, size_t n, enum pattern_match match);

#endif
