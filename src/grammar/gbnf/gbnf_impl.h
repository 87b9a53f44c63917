/* SPDX-License-Identifier: MIT
 *
 * gbnf_impl.h: what the parser of GBNF and its checks share.
 */
#ifndef QUERN_GRAMMAR_GBNF_IMPL_H
#define QUERN_GRAMMAR_GBNF_IMPL_H

#include "grammar/gbnf/gbnf.h"

struct gbnf_rule {
    struct str_ref name; /* in the text */
    uint32_t first;      /* its first node; 0: it is the empty text */
    bool defined;
    bool nullable; /* it may read nothing */
    bool ends;     /* some text fits it */
    uint8_t seen;  /* by a search: 1: it is being searched, 2: done */
};

/* A part of a rule: text that matches an expression, and a list of nodes after it; either may be missing. */
struct rule_part {
    re_id re;             /* RE_EMPTY: none */
    uint32_t first, last; /* 0: no nodes */
};

struct gbnf {
    struct rules *g;
    struct regex *r;
    const char *text; /* borrowed */
    size_t n, at;
    unsigned depth;
    struct gbnf_rule *rules; /* [n_rules] */
    uint32_t n_rules, cap_rules;
    struct rule_part *parts; /* [n_parts] of the sequences that are being read */
    uint32_t n_parts, cap_parts;
    char *bytes; /* [cap_bytes] of the text that is being read */
    uint32_t cap_bytes;
};

/* The number of the rule with this name, which is added if it is new. */
uint32_t gbnf_rule(struct gbnf *p, struct str_ref name);

/* Checks that no rule calls itself before it reads anything, and that the rule `root` has a text. Takes out branches
 * that have none. Then makes the calls, which have the number of their rule, lead to its first node. */
bool gbnf_check(struct gbnf *p, uint32_t root);

#endif
