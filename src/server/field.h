/* SPDX-License-Identifier: MIT
 *
 * field.h: reading a JSON object by a table of the members it may have. A member is honoured or refused with its name:
 * what no table lists is an error, and so is a value that is not of the row's type or range.
 */
#ifndef QUERN_SERVER_FIELD_H
#define QUERN_SERVER_FIELD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <quern.h>

/* Why a request is not served, as the error object says it. */
struct fault {
    int status;       /* HTTP */
    const char *code; /* a literal; NULL: none */
    char param[96];   /* the member, "" for none */
    char message[500];
};
/* Fills *f and returns -1. Text is made printable and is cut if it is too long. */
int fault_set(struct fault *f, int status, const char *code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* The type of what `at` points to inside of the struct that is filled. JSON values are borrowed from the object. */
enum field_type {
    FIELD_BOOL,   /* bool */
    FIELD_INT,    /* int in [lo, hi] */
    FIELD_INT64,  /* int64_t, all of them */
    FIELD_FLOAT,  /* float in [lo, hi] */
    FIELD_STRING, /* const char *, of lo to hi bytes, none of them 0 */
    FIELD_TEXT,   /* json_t *, a string of lo to hi bytes, which may be 0: what people and models say */
    FIELD_ARRAY,  /* json_t *, of lo to hi elements */
    FIELD_OBJECT, /* json_t * */
    FIELD_ANY,    /* json_t *, of any type */
    FIELD_ONE_OF, /* nothing: the value has to be one of `allowed`, which change nothing */
    FIELD_PARSE,  /* by `parse` */
};

struct field;
/* value is neither NULL nor null. name is how messages call it. */
typedef int field_parser(void *out, const struct field *field, const char *name, const json_t *value, struct fault *f);

struct field {
    const char *name; /* NULL ends a table */
    enum field_type type;
    size_t at;
    double lo, hi;
    const char *allowed; /* ONE_OF: the values, a JSON array */
    field_parser *parse;
    size_t present; /* where a bool is set because the value is there; 0: nowhere */
    bool required;
};

/* Fills *out from the members of an object. tables: ended by NULL; a row of an earlier one goes first. null means the
 * same as being absent. prefix: what stands before names in messages ("" or "stream_options."). 0, or -1 and *f. */
int field_read(const struct field *const *tables, const char *prefix, const json_t *object, void *out, struct fault *f);

/* The refusals that parsers need too. */
int field_wrong_type(struct fault *f, const char *name, const char *wanted, const json_t *got);
int field_unsupported(struct fault *f, const char *name, const char *what);

/* Whether it is this string: of its length too, for one that a request has may go on after a U+0000. */
bool field_is(const json_t *v, const char *text);
/* Refuses a string with U+0000 in it, which is no name and nothing that can be looked for. */
int field_no_nul(const char *name, const json_t *v, struct fault *f);

#define FIELD_MAX_VALUES   (1 << 20)
#define FIELD_MAX_BRACKETS (1 << 17) /* objects and arrays */

/* What the object of a text takes in memory, at most: as it stays, and beside that while it is read. */
struct field_size {
    size_t kept, more;
};
/* Counts, before it is read, what a text may become. -1 and *f: more values than the above. */
int field_measure(const void *text, size_t n, struct field_size *size, struct fault *f);

/* The text of a request to its object. Repeated names, wrong UTF-8, nesting beyond 2048 levels, more values than the
 * above and anything but an object are refused. cancel may be NULL; when it says so, the code in *f is NULL. NULL and
 * *f; else the caller's to json_decref(). */
json_t *field_parse_body(const void *text, size_t n, const struct qn_cancel *cancel, struct fault *f);

#endif
