/* SPDX-License-Identifier: MIT
 *
 * json_tables.h: which JSON values a grammar allows, as tables that the automaton walks through.
 *
 * A node stands for a set of values: scalars, as expressions over their text, and any of some shapes of objects and
 * arrays. Nodes refer to each other by their numbers, and may do so in a circle.
 */
#ifndef QUERN_GRAMMAR_JSON_TABLES_H
#define QUERN_GRAMMAR_JSON_TABLES_H

#include "grammar/core/slabs.h"
#include "grammar/regex/regex.h"

#define JSON_NO_MAX      UINT32_MAX
#define OBJECT_MAX_NAMES 8192 /* that a shape mentions */

/* A name that an object's schema mentions. */
struct object_name {
    const char *text; /* as JSON writes it, without quotation marks */
    uint32_t n;
    uint32_t node; /* of its value */
    bool required;
    bool allowed; /* some value fits */
};

/* Names that the schema does not mention, and that all have the same kind of values. */
struct object_rest {
    re_id name; /* the text of the name, without escapes */
    uint32_t node;
};

struct object_shape {
    uint32_t hash;             /* of its names and nodes */
    struct object_name *names; /* [n_names] in the order in which they are written */
    uint32_t *sorted;          /* [n_names] indices of names[], by their text */
    struct object_rest *rest;  /* [n_rest] */
    uint32_t n_names, n_rest;
    uint32_t least, most; /* names in the object */
    uint32_t n_required;
    uint32_t *required_from; /* [n_names + 1] how many names from i on are required */
    uint32_t *allowed_from;  /* [n_names + 1] how many are allowed */
    uint32_t n_other;        /* how many names of the rest there are, at most `least` */
    bool counted;            /* `least` or `most` says more than `required` does */
    bool distinct;           /* and names of the rest must differ, so that they count */
    bool all_distinct;       /* names of the rest must differ, however many there are */
};

struct array_shape {
    /* [n_first + 1] the nodes of the first items, then that of all others; and the same for an item that counts for
     * `contains`, and for one that does not. */
    uint32_t *items, *counted, *uncounted; /* the last two: NULL without `contains` */
    uint32_t n_first;
    uint32_t least, most; /* items */
    uint32_t least_counted, most_counted;
    bool unique; /* no two items are equal */
};

struct json_node {
    re_id raw;                     /* null, true, false and numbers, as they are written */
    re_id string;                  /* strings, without quotation marks and escapes */
    struct object_shape **objects; /* [n_objects] */
    struct array_shape **arrays;   /* [n_arrays] */
    uint32_t n_objects, n_arrays;
};

struct json_tables {
    struct json_node *nodes; /* [n_nodes] */
    uint32_t n_nodes, cap_nodes;
    struct slabs slabs; /* everything that the nodes point to */
};

#endif
