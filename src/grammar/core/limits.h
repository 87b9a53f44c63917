/* SPDX-License-Identifier: MIT
 *
 * limits.h: the memory and the work that a grammar may take, and the first error.
 *
 * The functions that compile and explore a grammar have no error of their own: they give an empty result, and the
 * failure is noted here, where their callers look once at the end. Work is counted in steps of about 10 to 100 ns, so
 * the same input reaches the limit on every machine.
 */
#ifndef QUERN_GRAMMAR_LIMITS_H
#define QUERN_GRAMMAR_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/mem.h"

/* Where the memory of grammars comes from. Any thread may take from it and give back. */
struct limits_source {
    struct ledger *ledger; /* borrowed */
    /* Called when the ledger has too few bytes left for something that fits its budget: gives some back, and returns
     * false if there is nothing to give. NULL: never. */
    bool (*drop)(void *arg);
    void *arg;
    _Atomic size_t used; /* bytes that were taken and not given back */
};

/* Takes bytes before they are allocated. QN_ENOMEM: there are not enough; the message is that of ledger_take(). */
int limits_source_take(struct limits_source *s, size_t bytes, const char *what, struct qn_error *e);
void limits_source_give(struct limits_source *s, size_t bytes);

struct limits {
    size_t bytes, max_bytes;      /* allocated; the most that may be */
    struct limits_source *source; /* pays for them; borrowed; NULL: nothing does */
    uint64_t work;                /* steps that are left */
    int rc;                       /* 0, or the code of the first failure */
    struct qn_error error;
};

/* Takes steps; false: there was a failure, or the work is used up, which is a failure. */
bool limits_spend(struct limits *l, uint64_t steps);
/* Notes a failure, unless there was one before. */
void limits_fail(struct limits *l, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Bytes that may still be allocated. */
size_t limits_left(const struct limits *l);
/* Counts bytes before they are allocated. False, after noting a failure: there are too many. */
bool limits_take(struct limits *l, size_t bytes);
/* The same without noting a failure, for what can be left out: nothing is dropped for it. */
bool limits_try_take(struct limits *l, size_t bytes);
void limits_give(struct limits *l, size_t bytes);
/* Makes an array of elements of `size` bytes larger until it has `need` of them. Returns it, or NULL after noting a
 * failure; the old one then stays. */
void *limits_grow(struct limits *l, void *p, uint32_t *cap, uint32_t need, size_t size);
/* Gives back what such an array has beyond `need` elements. Returns it. */
void *limits_shrink(struct limits *l, void *p, uint32_t *cap, uint32_t need, size_t size);
/* Frees an array that limits_grow() made. */
void limits_release(struct limits *l, void *p, uint32_t cap, size_t size);
/* Copies the failure to e. Returns its code, 0 if there is none. */
int limits_report(const struct limits *l, struct qn_error *e);

#endif
