/* SPDX-License-Identifier: MIT
 *
 * jinja_parse.h: the template's text to tokens (jinja_lex.c), and tokens to a tree (jinja_parse.c).
 *
 * The tree and everything that it points to live in the jenv that parsed it. They never change afterwards, so threads
 * may share them.
 */
#ifndef QUERN_TEXT_JINJA_PARSE_H
#define QUERN_TEXT_JINJA_PARSE_H

#include "text/jinja/jinja_value.h"

/* ---- tokens ---- */

enum jtok {
    JT_END, /* of the template */
    JT_DATA,
    JT_VAR_BEGIN,
    JT_VAR_END,
    JT_BLOCK_BEGIN,
    JT_BLOCK_END,
    JT_NAME,
    JT_STR,
    JT_INT,
    JT_FLOAT,
    JT_OP,
};

struct jtoken {
    enum jtok kind;
    int line;
    char op[3];      /* JT_OP: the operator as it is written */
    struct jval val; /* DATA, NAME, STR: text; INT, FLOAT: the number */
};

struct jtokens {
    struct jtoken *v; /* [n], the last is JT_END */
    size_t n, cap;
};

struct jtokens jinja_lex(struct jenv *j, const char *src, size_t n);

/* ---- the tree ---- */

/* Kinds of nodes. The comments say what the members a, b, c, d, list and val mean. A name is a JSTR in val. */
enum jnode_kind {
    /* expressions */
    JN_CONST,   /* val */
    JN_NAME,    /* val */
    JN_LIST,    /* list */
    JN_TUPLE,   /* list */
    JN_DICT,    /* list: key, value, key, value, ... */
    JN_COND,    /* a if b else c (NULL: undefined) */
    JN_OR,      /* a, b */
    JN_AND,     /* a, b */
    JN_NOT,     /* a */
    JN_COMPARE, /* a, then list: JN_OPERAND */
    JN_OPERAND, /* op, a */
    JN_BINARY,  /* op, a, b */
    JN_NEG,     /* a */
    JN_POS,     /* a */
    JN_CONCAT,  /* list */
    JN_ATTR,    /* a . val */
    JN_ITEM,    /* a [b] */
    JN_SLICE,   /* a [b : c : d]; each of these may be NULL */
    JN_CALL,    /* a (list) */
    JN_FILTER,  /* a | val (list); a NULL: the text of a block */
    JN_TEST,    /* a is val (list) */
    JN_KWARG,   /* in the list of a call: val = a */
    JN_STAR,    /* *a */
    JN_STAR2,   /* **a */
    /* statements */
    JN_BLOCK,        /* list */
    JN_TEXT,         /* val */
    JN_PRINT,        /* a */
    JN_FOR,          /* a: target, b: items, c: condition or NULL, body, other; flag: recursive */
    JN_IF,           /* a, body, other (NULL, or a statement) */
    JN_SET,          /* a: target, b */
    JN_SET_BLOCK,    /* a: target, b: filters or NULL, body */
    JN_SPACE_SET,    /* as the target of a set: namespace a, attribute val */
    JN_MACRO,        /* val, list: parameter names, defaults: their defaults, body */
    JN_CALL_BLOCK,   /* a: the call, b: JN_MACRO of the caller */
    JN_FILTER_BLOCK, /* a: filters, body */
    JN_WITH,         /* list: target, value, target, value, ...; body */
    JN_SCOPE,        /* body, in a scope of its own: the statement `generation` */
    JN_BREAK,
    JN_CONTINUE,
};

enum jop {
    JO_ADD,
    JO_SUB,
    JO_MUL,
    JO_DIV,
    JO_FLOORDIV,
    JO_MOD,
    JO_POW,
    JO_EQ,
    JO_NE,
    JO_LT,
    JO_LE,
    JO_GT,
    JO_GE,
    JO_IN,
    JO_NOT_IN
};

struct jnode {
    uint8_t kind; /* enum jnode_kind */
    uint8_t op;   /* enum jop */
    bool flag;
    bool uses_varargs, uses_kwargs, uses_caller; /* JN_MACRO: which of these names its body reads */
    int line;
    struct jval val;
    struct jnode *a, *b, *c, *d;
    struct jnode *body, *other;
    struct jnode **list;
    size_t n_list, cap_list;
    struct jnode **defaults; /* JN_MACRO: [n_list], NULL where there is none */
};

/* The tree of a template of n bytes: a JN_BLOCK. */
struct jnode *jinja_parse(struct jenv *j, const char *src, size_t n);

#endif
