/* SPDX-License-Identifier: MIT
 *
 * toml.h: reads a user's configuration file into tables, keys and values.
 *
 * The language is a subset of TOML 1.0: [tables] with dotted names, bare and quoted keys, strings of all four kinds,
 * integers, floats, booleans, arrays. Dates, inline tables, arrays of tables and dotted keys left of '=' are refused by
 * name (QN_EUNSUP), and so is anything beyond the limits below. Everything else has the meaning that TOML 1.0 gives it.
 */
#ifndef QUERN_BASE_TOML_H
#define QUERN_BASE_TOML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define TOML_MAX_BYTES  ((size_t)1 << 20) /* of a document */
#define TOML_MAX_NAMES  4096              /* tables and keys, together */
#define TOML_MAX_ARRAYS 16                /* nested arrays */
#define TOML_MAX_NUMBER 100               /* characters of a number */

enum toml_type { TOML_STRING, TOML_INT, TOML_FLOAT, TOML_BOOL, TOML_ARRAY };

struct toml_value {
    enum toml_type type;
    union {
        const char *string; /* UTF-8; no NUL inside */
        int64_t integer;
        double real; /* may be infinite or NaN, if the document says so */
        bool truth;
        struct {
            struct toml_value *v; /* of any types; NULL when there are none */
            size_t n;
        } array;
    };
};

/* Tables form a tree. Table 0 is the document's top; a parent comes before its children. */
struct toml_table {
    const char *name; /* the last part of the header's name; "" of table 0 */
    int parent;       /* -1 of table 0 */
    int line;         /* of its header, or where it is first named; from 1; 0 of table 0 */
    bool has_header;  /* false: it exists because a table inside of it does */
};

struct toml_entry {
    const char *key;
    struct toml_value value;
    int table;
    int line; /* of the key, from 1 */
};

/* Owns all that it points to. */
struct toml {
    struct toml_table *table; /* [n_tables] */
    int n_tables;
    struct toml_entry *entry; /* [n_entries], in the order of the document, which need not be that of the tables */
    int n_entries;
    char *text; /* all strings and names */
};

/* Reads a document of n bytes. name: the file's name, for errors: "NAME:LINE: ...", with the key or the text in its
 * place. QN_EDATA: it is not TOML; QN_EUNSUP: it is TOML, but not of this subset; QN_ENOMEM. On failure *out does not
 * change.
 */
int toml_parse(struct toml *out, const char *name, const char *text, size_t n, struct qn_error *e);
void toml_deinit(struct toml *t); /* a zeroed one is empty, but has no table 0 */

/* The table of this name inside of another table; -1 when there is none, or when table is -1. */
int toml_child(const struct toml *t, int table, const char *name);
/* The entry of a key in a table; NULL when there is none, or when table is -1. */
const struct toml_entry *toml_find(const struct toml *t, int table, const char *key);

/* What a value of the type is called in messages: "a string", "a whole number", "a number", "true or false", "an
 * array". */
const char *toml_type_name(enum toml_type type);
/* Writes the full name of a table, as its header has it ("persona.reviewer"), cut to fit. Returns its length. */
size_t toml_table_name(const struct toml *t, int table, char *dst, size_t cap);
/* Whether a key can be written without quotes. */
bool toml_is_bare(const char *key);

#endif
