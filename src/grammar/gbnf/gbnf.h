/* SPDX-License-Identifier: MIT
 *
 * gbnf.h: grammars in the language of llama.cpp, as nodes that the automaton walks through.
 */
#ifndef QUERN_GRAMMAR_GBNF_H
#define QUERN_GRAMMAR_GBNF_H

#include "grammar/regex/regex.h"

enum rule_kind {
    RULE_END,    /* node 0: the end of a rule, or of a part of one */
    RULE_TERM,   /* text that matches `re` */
    RULE_CALL,   /* the rule that begins at node `first` */
    RULE_CHOICE, /* one of the branches `first`, its `other`, that one's `other`, ... */
    RULE_BRANCH, /* the sequence that begins at `first` */
    RULE_VALUE,  /* a JSON value: node `first` of the tables (json_tables.h) */
    RULE_REPEAT, /* the sequence that begins at `first`, least to most times */
};

struct rule_node {
    uint8_t kind;
    uint32_t next; /* what comes after it; 0: nothing */
    uint32_t first;
    uint32_t other;
    re_id re;
    uint32_t least, most; /* most: RE_NO_MAX is any number */
};

struct rules {
    struct rule_node *nodes; /* [n] */
    uint32_t n, cap;
};

/* Parses a grammar; *root: the node of the rule `root`. Call rules_deinit() also after a failure. QN_EDATA: it is
 * malformed, or a rule calls itself before it reads anything; the message begins with the line. */
bool gbnf_parse(struct rules *g, struct regex *r, const char *text, size_t n, uint32_t *root);
void rules_deinit(struct rules *g, struct limits *l);

#endif
