/* SPDX-License-Identifier: MIT
 *
 * jinja_value.h: the values of a template, which behave like Python's.
 *
 * A value has 16 bytes and is copied freely. What it points to lives as long as the rendering and never changes once it
 * was made, except for namespaces and for lists of the template's own, which append() and pop() change.
 *
 * Origin: a value has the flag JUSER when it came from the conversation. A text that is partly the template's and
 * partly the user's has one mark for each byte (1: the user's); a text of one origin has none. Containers and numbers
 * of the conversation have the flag too, so that the punctuation and the digits that they are printed with are the
 * user's.
 */
#ifndef QUERN_TEXT_JINJA_VALUE_H
#define QUERN_TEXT_JINJA_VALUE_H

#include "text/jinja/jinja_env.h"

enum jkind {
    JUNDEF,
    JNONE,
    JBOOL,
    JINT,
    JFLOAT,
    JSTR,
    JLIST,
    JTUPLE,
    JDICT,
    JVIEW,  /* keys(), values(), items(): has a length, cannot be indexed */
    JITER,  /* a generator: can be walked once */
    JSPACE, /* namespace() */
    JLOOP,
    JMACRO,
    JFUNC,   /* a built-in function */
    JMETHOD, /* a built-in function with its first argument */
    JABSENT, /* an argument that was not given; a template never sees it */
};

#define JUSER   1u /* it came from the conversation */
#define JMARKUP 2u /* it went through `safe` or `escape`: text that is added to it is escaped */

struct jval {
    uint8_t kind, flags;
    union {
        bool b;
        int64_t i;
        double f;
        struct jstr *s;
        struct jlist *l; /* JLIST, JTUPLE, JVIEW, JITER */
        struct jdict *d; /* JDICT, JSPACE */
        struct jloop *loop;
        struct jmacro *macro;
        const struct jfunc *fn;
        struct jmethod *m;
        struct jmissing *u; /* JUNDEF: the reason; may be NULL */
    };
};

struct jstr {
    const char *p;       /* valid UTF-8 */
    const uint8_t *mark; /* [n]; NULL: all bytes have the origin that the value's flag says */
    size_t n;            /* bytes */
    size_t n_chars;      /* SIZE_MAX: not counted yet */
    struct jtext *tail;  /* the text that it was written to, where it may grow in place; or NULL */
};

struct jlist {
    struct jval *v;
    size_t n;
    size_t at;     /* JITER: the next item */
    uint64_t born; /* for jenv_escapes() */
    struct jroom
        *room; /* NULL, or the array that v begins: when n items of it are in use, more may be added in place */
};

struct jroom {
    size_t n, cap; /* items */
};

struct jpair {
    struct jval key, val;
    uint64_t hash;
};

struct jdict {
    struct jpair *pair; /* in the order of insertion */
    size_t n, cap;
    uint32_t *slot; /* [n_slots] open addressing, index + 1; NULL while small */
    size_t n_slots;
    uint64_t born; /* for jenv_escapes() */
};

/* Why a value is undefined, for the message of an error when it is used. */
struct jmissing {
    enum { JMISS_NAME, JMISS_ATTR, JMISS_ITEM, JMISS_ARG, JMISS_UNSAFE, JMISS_EMPTY } why;
    const char *type; /* of the object it was looked for in */
    struct jval name;
};

struct jargs {
    struct jval *pos;
    size_t n_pos;
    struct jkwarg {
        struct jval name; /* JSTR */
        struct jval val;
    } * kw;
    size_t n_kw;
};

/* A built-in filter, test, method or function. `names` lists the arguments after the first, separated by spaces; the
 * first n_required must be given. arg[] then has one element for each name. With names NULL the function reads `raw`
 * itself. */
struct jfunc {
    const char *name;
    struct jval (*call)(struct jenv *j, struct jval self, const struct jval *arg, const struct jargs *raw);
    int n_required;
    const char *names;
};

/* Begins the definition of such a function, whose first argument is called `self` in its body. */
#define JFUNC(name, self)                                                                                              \
    static struct jval name(struct jenv *j JUNUSED, struct jval self JUNUSED, const struct jval *arg JUNUSED,          \
                            const struct jargs *raw JUNUSED)
#define JUNUSED __attribute__((unused)) /* not every function needs all of these */

struct jmethod {
    const struct jfunc *fn;
    struct jval self;
};

/* ---- making ---- */

static inline struct jval jval_none(void) { return (struct jval){.kind = JNONE}; }
static inline struct jval jval_bool(bool b) { return (struct jval){.kind = JBOOL, .b = b}; }
static inline struct jval jval_int(int64_t i) { return (struct jval){.kind = JINT, .i = i}; }
static inline struct jval jval_float(double f) { return (struct jval){.kind = JFLOAT, .f = f}; }
struct jval jval_missing(struct jenv *j, int why, const char *type, struct jval name);
struct jval jval_str(struct jenv *j, const char *p, size_t n, unsigned flags); /* p is borrowed */
struct jval jval_cstr(struct jenv *j, const char *p);                          /* trusted; p is borrowed */
struct jval jval_list(struct jenv *j, int kind, struct jval *v, size_t n);     /* v is borrowed */
struct jval jval_pair(struct jenv *j, struct jval a, struct jval b);           /* a tuple */
struct jval jval_dict(struct jenv *j, int kind);
/* Makes room for n pairs. */
void jdict_reserve(struct jenv *j, struct jdict *d, size_t n);
static inline struct jval jval_flag(struct jval v, unsigned flags)
{
    v.flags |= (uint8_t)flags;
    return v;
}

/* ---- dictionaries ---- */

/* NULL when the key is not there. Fails when the value cannot be a key. */
struct jval *jdict_find(struct jenv *j, const struct jdict *d, struct jval key);
void jdict_set(struct jenv *j, struct jdict *d, struct jval key, struct jval val);
bool jval_hashable(struct jenv *j, struct jval v);

/* ---- asking ---- */

const char *jval_type(struct jval v); /* Python's name of the type */
bool jval_true(struct jval v);
bool jval_equal(struct jenv *j, struct jval a, struct jval b);
/* <0, 0, >0; 2 when one of them is NaN. Fails when the two have no order; `op` is for the message. */
int jval_compare(struct jenv *j, struct jval a, struct jval b, const char *op);
static inline bool jval_is_int(struct jval v) { return v.kind == JINT || v.kind == JBOOL; }
static inline bool jval_is_number(struct jval v) { return v.kind == JINT || v.kind == JBOOL || v.kind == JFLOAT; }
static inline int64_t jval_as_int(struct jval v) { return v.kind == JBOOL ? v.b : v.i; }
static inline double jval_as_float(struct jval v) { return v.kind == JFLOAT ? v.f : (double)jval_as_int(v); }
/* len(); false: the value has no length. */
bool jval_len(struct jenv *j, struct jval v, size_t *n);
bool jval_iterable(struct jval v);
/* All items in order: a dictionary's keys, a string's characters. A JITER is empty afterwards. Fails when the value
 * cannot be walked. */
struct jlist jval_items(struct jenv *j, struct jval v);
/* Fails with a message that says why this value is undefined. */
_Noreturn void jval_fail_missing(struct jenv *j, struct jval v);

#endif
