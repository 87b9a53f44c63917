/* SPDX-License-Identifier: MIT
 *
 * pattern_parse.h: a pattern as a tree.
 */
#ifndef QUERN_GRAMMAR_PATTERN_PARSE_H
#define QUERN_GRAMMAR_PATTERN_PARSE_H

#include "grammar/regex/regex.h"

enum pattern_kind {
    PATTERN_EMPTY,
    PATTERN_SET,    /* one character */
    PATTERN_CAT,    /* its children one after the other; they are listed from the last to the first */
    PATTERN_ALT,    /* one of its children */
    PATTERN_REPEAT, /* its child, least to most times */
    PATTERN_BEGIN,  /* ^ */
    PATTERN_END,    /* $ */
    PATTERN_AHEAD,  /* what follows begins with its child */
    PATTERN_NOT_AHEAD,
};

struct pattern_node {
    uint8_t kind;
    bool asserts;         /* it, or a node below it, is one of the last four kinds */
    bool begins;          /* it, or a node below it, is PATTERN_BEGIN */
    uint32_t child, next; /* the first child; the next one of the same parent; 0: none */
    re_id set;            /* of PATTERN_SET */
    uint32_t least, most; /* of PATTERN_REPEAT */
};

struct pattern {
    struct regex *r;
    const uint8_t *text; /* borrowed */
    size_t n, at;
    unsigned depth;
    struct pattern_node *nodes; /* [n_nodes]; node 0 is no node */
    uint32_t n_nodes, cap_nodes;
};

/* Parses the text into p, whose r, text and n are set. Returns the root, 0 after a failure. Call pattern_deinit() in
 * any case. */
uint32_t pattern_parse(struct pattern *p);
void pattern_deinit(struct pattern *p);

#endif
