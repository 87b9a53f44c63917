/* SPDX-License-Identifier: MIT
 *
 * field.h: reads a JSON object by a table of the members it may have.
 *
 * A member is honoured, refused by name, or taken although it changes nothing. The names of the last kind are noted, so
 * that the answer can list them. A member that is in no table is an error, and so is a value of the wrong type or
 * range. An empty value (null, false, "", [] or {}) asks for nothing. So it is taken where the member is in no table,
 * or where only its other values are unsupported.
 */
#ifndef QUERN_SERVER_FIELD_H
#define QUERN_SERVER_FIELD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <quern.h>

#include "base/buf.h"

#define FIELD_MAX_IGNORED 32

/* The members of a request that were taken although they change nothing. A zeroed struct is an empty list. */
struct field_ignored {
    struct buf names; /* paths such as tools[0].strict, each ended by a NUL byte */
    int n;            /* at most FIELD_MAX_IGNORED; if there were more, the last name is "..." */
};

/* Why a request is refused: the contents of the error object. */
struct fault {
    int status;       /* HTTP */
    const char *code; /* a literal; NULL: none */
    char param[96];   /* the member, "" for none */
    char message[500];
    struct field_ignored *ignored; /* where members that change nothing are noted; borrowed; NULL: nowhere */
};
/* Fills *f, except for `ignored`, and returns -1. The text is made printable, and is cut if it is too long. */
int fault_set(struct fault *f, int status, const char *code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* The type of the member of the filled struct at offset `at`. JSON values are borrowed from the object. */
enum field_type {
    FIELD_BOOL,    /* bool */
    FIELD_INT,     /* int in [lo, hi] */
    FIELD_INT64,   /* int64_t, all of them */
    FIELD_FLOAT,   /* float in [lo, hi] */
    FIELD_STRING,  /* const char *, of lo to hi bytes, none of them 0 */
    FIELD_TEXT,    /* json_t *, a string of lo to hi bytes, which may be 0: texts of people and models */
    FIELD_ARRAY,   /* json_t *, of lo to hi elements */
    FIELD_OBJECT,  /* json_t * */
    FIELD_ANY,     /* json_t *, of any type */
    FIELD_ONE_OF,  /* no member: the value has to be empty or one of `allowed`, none of which changes anything */
    FIELD_IGNORED, /* no member: the value changes nothing, and the name is noted unless the value is empty. `allowed`
                      lists the types that it may have */
    FIELD_PARSE,   /* by `parse` */
};

struct field;
/* Parses a value, which is neither NULL nor null. name: for messages. 0, or -1 and *f. */
typedef int field_parser(void *out, const struct field *field, const char *name, const json_t *value, struct fault *f);

/* There are hundreds of rows, so the small members are next to each other. */
struct field {
    const char *name; /* NULL ends a table */
    double lo, hi;
    /* FIELD_ONE_OF: the values, as a JSON array. FIELD_IGNORED: a letter for each type: s(tring), n(umber), b(oolean),
     * a(rray), o(bject). */
    const char *allowed;
    field_parser *parse;
    enum field_type type;
    uint32_t at;
    uint32_t present; /* offset of a bool that is set if the value is there; 0: none */
    bool required;
    bool exact; /* FIELD_ONE_OF: an empty value asks for something, and is taken only if it is allowed */
};

/* Rows of a table: a field that may only have these values, a JSON array; and one that changes nothing. */
#define ONLY(field, values)                                                                                            \
    {                                                                                                                  \
        .name = field, .type = FIELD_ONE_OF, .allowed = values                                                         \
    }
#define IGNORED(field, types)                                                                                          \
    {                                                                                                                  \
        .name = field, .type = FIELD_IGNORED, .allowed = types                                                         \
    }

/* Fills *out from the members of an object. tables: ended by NULL; rows of earlier tables go first. null means the same
 * as an absent member. prefix: precedes names in messages ("" or "stream_options."). Empty members that are in no table
 * are taken if there is a list in f->ignored to note them. 0, or -1 and *f. */
int field_read(const struct field *const *tables, const char *prefix, const json_t *object, void *out, struct fault *f);

/* Refusals that parsers need too; always -1. */
int field_wrong_type(struct fault *f, const char *name, const char *wanted, const json_t *got);
int field_unsupported(struct fault *f, const char *name, const char *what);

/* Whether the value is null, false, "", [] or {}. */
bool field_is_empty(const json_t *v);
/* Notes that a member changes nothing. A name is noted once. 0; -1 and *f when there is no memory. */
int field_ignore(struct fault *f, const char *name);

/* Whether v is this string, of the same length: a string of a request may go on after a U+0000. */
bool field_is(const json_t *v, const char *text);
/* Refuses a string with U+0000 in it, for names and texts that are searched for. 0, or -1 and *f. */
int field_no_nul(const char *name, const json_t *v, struct fault *f);

#define FIELD_MAX_VALUES   (1 << 20)
#define FIELD_MAX_BRACKETS (1 << 17) /* objects and arrays */

/* The most memory, in bytes, that the object of a text takes: kept for good, and more while it is parsed. */
struct field_size {
    size_t kept, more;
};
/* Counts the values of a text before it is parsed. -1 and *f: there are more than the limits above. */
int field_measure(const void *text, size_t n, struct field_size *size, struct fault *f);

/* Parses the text of a request. Refuses repeated names, malformed UTF-8, nesting beyond 2048 levels, more values than
 * the limits above, and anything but an object. cancel may be NULL; if it ends the parsing, the code in *f is NULL.
 * Returns an object for the caller to json_decref(), or NULL and *f. */
json_t *field_parse_body(const void *text, size_t n, const struct qn_cancel *cancel, struct fault *f);

#endif
