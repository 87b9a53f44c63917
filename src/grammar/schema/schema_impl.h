/* SPDX-License-Identifier: MIT
 *
 * schema_impl.h: what the files of the schema compiler share.
 *
 * A node is a set of claims that a value must satisfy, all of them: a claim is a schema, or that it does not hold. So
 * an intersection of schemas is a union of sets, a complement is a change of sign, and a schema that refers to itself
 * leads back to a node that exists. A node is expanded into alternatives. In an alternative everything is decided:
 * which branch of an `anyOf` holds, which keyword a negated schema breaks. Some values satisfy a node if and only if
 * they satisfy one of its alternatives.
 */
#ifndef QUERN_GRAMMAR_SCHEMA_IMPL_H
#define QUERN_GRAMMAR_SCHEMA_IMPL_H

#include "grammar/schema/formats.h"
#include "grammar/schema/schema.h"
#include "grammar/schema/schema_doc.h"

#define NODE_ANY   0u /* the set without claims */
#define NODE_NEVER 1u

#define CLAIM_NEVER UINT32_MAX /* the only claim of NODE_NEVER */

/* Types of values. */
enum {
    TYPE_NULL = 1,
    TYPE_FALSE = 2,
    TYPE_TRUE = 4,
    TYPE_NUMBER = 8,
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_ALL = 127,
};

/* A schema with `unevaluatedProperties` or `unevaluatedItems`: it asks what the schemas inside it have evaluated. */
struct scope {
    const struct scope *outer;
    const json_t *schema;
};

/* What an alternative says about a value. Those from ATOM_STRING on change it at once, the others are listed in it. */
enum atom_kind {
    ATOM_SCHEMA,      /* the schema holds, or (negative) does not */
    ATOM_GROUP,       /* the schema's keywords for properties hold */
    ATOM_ITEM_GROUP,  /* the schema's keywords for items hold */
    ATOM_HAS,         /* an object has the name */
    ATOM_VALUE,       /* the value of the name, if an object has it, satisfies the schema */
    ATOM_NAMES,       /* all names of an object satisfy the schema */
    ATOM_ITEM,        /* item number a satisfies the schema */
    ATOM_ITEMS,       /* all items do */
    ATOM_CONTAINS,    /* of the items, a to b do */
    ATOM_UNEVALUATED, /* what no schema inside this one evaluates satisfies its keyword (name) */
    ATOM_N_LISTS,
    ATOM_STRING = ATOM_N_LISTS, /* a string matches the expression a */
    ATOM_NUMBER,                /* a number matches the expression a */
    ATOM_TYPES,                 /* the type is one of the set a */
    ATOM_NAME_COUNT,            /* an object has a to b names */
    ATOM_ITEM_COUNT,            /* an array has a to b items */
    ATOM_UNIQUE,                /* no two items are equal */
    ATOM_REFUSE,                /* the keyword `name` of the schema does not hold, which cannot be said */
};

struct atom {
    const struct atom *next;
    const json_t *schema;
    const char *name;
    const struct scope *scope;
    uint32_t a, b;
    uint8_t kind;
    bool negative;
};

struct option {
    const struct option *next;
    const struct atom *atoms; /* all of them */
};

struct decision {
    const struct decision *next;
    const struct option *options; /* at least one of them */
};

struct alternative {
    uint32_t types;
    re_id string, number;
    uint32_t least_names, most_names, least_items, most_items;
    const json_t *unique;                  /* the schema that says that no two items are equal; NULL: none does */
    const struct atom *list[ATOM_N_LISTS]; /* the last one first; ATOM_SCHEMA: those that are not yet applied */
    const struct atom *seen;               /* the schemas that were applied */
    const struct decision *choices;        /* those that are not yet decided */
};

/* Of a json_t that has a number. */
struct schema_entry {
    const json_t *value;
    const json_t *origin; /* of a schema that the compiler made: the one that it was made for */
    const json_t *made;   /* of a value: the schema that only it satisfies; of a schema with `oneOf`: the same without
                             it; NULL: not made yet */
};

enum node_state { NODE_NEW, NODE_OPEN, NODE_EXPANDED };

struct node_info {
    uint8_t state; /* enum node_state */
    uint8_t fits;  /* 0: not known, 1: no value fits, 2: one does, as far as is known, 3: being looked at */
};

struct schema {
    struct limits *l;
    struct regex *r;
    struct json_tables *t;
    struct schema_doc doc;
    struct slabs slabs;   /* what lives until the end of compiling */
    struct word_set sets; /* of each node of this schema: its claims; a claim is twice the number of a schema, and 1 if
                             it is negative */
    struct node_info *info;       /* [cap_info] */
    struct schema_entry *entries; /* [n_entries] */
    uint32_t *slots;              /* [n_slots] hash table of entries by address: number + 1 */
    json_t **made;                /* [n_made] schemas made by the compiler */
    size_t made_bytes;            /* of them, counted in l */
    json_t *patterns;             /* an object: the expressions of patterns that were compiled */
    const json_t *at;             /* the schema that is being read */
    const char *keyword;          /* and its keyword */
    uint32_t n_before;            /* nodes of schemas that were compiled before this one; 0: it is the first one */
    uint32_t shift; /* a node\'s number less that of its claims, except for the two nodes that all schemas have */
    uint32_t cap_info, n_entries, cap_entries, n_slots, cap_slots, n_made, cap_made;
    uint32_t n_alternatives;    /* of the node that is being expanded */
    unsigned depth;             /* expansions inside expansions */
    re_id integer, number;      /* the texts of integers, and of numbers */
    re_id plain;                /* those of numbers without an exponent */
    re_id formats[FORMAT_MOST]; /* the strings of each format; RE_NONE: not made yet */
};

/* Notes a failure at a keyword of a schema; the place is added. Returns false. */
bool schema_fail(struct schema *s, const json_t *schema, const char *keyword, int code, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* ---- schema.c: schemas and nodes ---- */

/* The number of a value. UINT32_MAX after a failure. */
uint32_t schema_number(struct schema *s, const json_t *value);
/* Keeps a schema that the compiler made until the end. origin: the one whose place it has; of: the value that it is
 * made for, for schema_made(). NULL after a failure. */
const json_t *schema_keep(struct schema *s, json_t *made, const json_t *origin, const json_t *of);
/* Counts the bytes of schemas that the compiler is about to make, until the end. False: a failure; there are too many.
 */
bool schema_charge(struct schema *s, size_t bytes);
/* The schema that was kept for the value; NULL: none was. */
const json_t *schema_made(struct schema *s, const json_t *of);
/* Appends a claim to a set of *n claims that has room. */
void claims_add(struct schema *s, uint32_t *claims, uint32_t *n, const json_t *schema, bool negative);
/* The node of a set of claims, which is sorted. */
uint32_t schema_node(struct schema *s, uint32_t *claims, uint32_t n);
/* Whether some value fits the node; true also where that takes too long to find out. */
bool schema_fits(struct schema *s, uint32_t node);
/* Makes the node's alternatives, if that has not been done. */
bool schema_expand(struct schema *s, uint32_t node);

/* ---- schema_expand.c ---- */

/* Expands the claims of a node into it. */
bool expand_claims(struct schema *s, uint32_t node);
/* Adds to an alternative. False: it has no values, or there was a failure. */
bool atom_apply(struct schema *s, struct alternative *a, const struct atom *atom);
/* A copy of an atom before `next`; NULL after a failure. */
const struct atom *atom_new(struct schema *s, struct atom atom, const struct atom *next);
const struct option *option_new(struct schema *s, const struct atom *atoms, const struct option *next);
bool decision_add(struct schema *s, struct alternative *a, const struct option *options);

/* ---- schema_keywords.c and schema_negate.c ---- */

/* A schema that is an object, with all of its keywords. */
bool keywords_apply(struct schema *s, struct alternative *a, const struct atom *atom);
/* That one of its keywords does not hold. */
bool keywords_negate(struct schema *s, struct alternative *a, const struct atom *atom);

/* The types that the keyword `type` lists. *integer: of the numbers, only the integers. */
bool keyword_types(struct schema *s, const json_t *schema, const json_t *value, uint32_t *set, bool *integer);
uint32_t keyword_type_of(const json_t *value);
/* A schema that only the value, an object or an array, satisfies; made for `schema`. */
const json_t *keyword_value_schema(struct schema *s, const json_t *schema, const json_t *value);
/* A whole number from 0 up. */
bool keyword_count(struct schema *s, const json_t *schema, const char *keyword, const json_t *value, uint32_t *n);

/* ---- schema_scalar.c: keywords for strings and numbers ---- */

/* The texts in which the pattern matches. */
re_id scalar_pattern(struct schema *s, const char *pattern, size_t n);
/* The expression of a keyword for strings or numbers, and the kind of its atom. False: it constrains nothing, or there
 * was a failure. */
bool scalar_keyword(struct schema *s, const json_t *schema, const char *keyword, const json_t *value,
                    enum atom_kind *kind, re_id *re);
bool scalar_init(struct schema *s); /* integer, number and plain */
/* The strings and the numbers among the values of an enumeration; RE_NONE where there are none. */
re_id scalar_strings(struct schema *s, const json_t *values);
re_id scalar_numbers(struct schema *s, const json_t *values);
/* The same numbers, in every way that they can be written. */
re_id scalar_loose_numbers(struct schema *s, const json_t *values);

/* ---- schema_object.c, schema_array.c ---- */

/* The objects, or arrays, of an alternative; *none: there are none. */
struct object_shape *object_new(struct schema *s, const struct alternative *a, bool *none);
struct array_shape *array_new(struct schema *s, const struct alternative *a, bool *none);
/* ---- schema_fit.c ---- */

/* Finds out which nodes have values, and drops shapes without any: the least fixed point. Nothing has a value until it
 * is shown that it has, so a schema that requires itself inside itself has none. */
void schema_find_values(struct schema *s);
/* Whether a value has the shape, as far as is known while nodes are being expanded. */
bool object_fits(struct schema *s, const struct object_shape *o);
bool array_fits(struct schema *s, const struct array_shape *a);

/* Whether two shapes are of the same objects, or arrays; false where that is hard to see. */
bool object_same(const struct object_shape *a, const struct object_shape *b);
bool array_same(const struct array_shape *a, const struct array_shape *b);

#endif
