/* SPDX-License-Identifier: MIT
 *
 * jinja_env.h: what all parts of one compilation or rendering share: memory, limits, and the way out.
 *
 * Memory only grows, in chunks that are given back together: values are small and live as long as the rendering. An
 * error leaves through longjmp to the one place that set `out`: as nothing but this memory is held in between, nothing
 * can leak, and the parser and the evaluator read like the grammar they follow.
 */
#ifndef QUERN_TEXT_JINJA_ENV_H
#define QUERN_TEXT_JINJA_ENV_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct jchunk;
struct jinja_input;
struct jdict;

struct jenv {
    struct jchunk *chunks; /* newest first */
    uint8_t *next;         /* free bytes of the newest chunk */
    size_t left;
    size_t used_bytes, max_bytes;
    uint64_t n_steps, max_steps;
    int depth, max_depth;
    int line;           /* of what is being parsed or evaluated; 0: nothing yet */
    struct qn_error *e; /* may be NULL */
    int code;           /* of the failure */
    jmp_buf out;
    const struct jinja_input *in; /* rendering only */
    struct jdict *vars;           /* the context */
};

/* Gives all memory back. */
void jenv_deinit(struct jenv *j);
/* 16-byte aligned, not zeroed; never NULL. */
void *jenv_get(struct jenv *j, size_t bytes);
void *jenv_get_n(struct jenv *j, size_t n, size_t size);
/* The array p of n elements with room for more than n, doubled when full; *cap is the room. */
void *jenv_grow(struct jenv *j, void *p, size_t n, size_t *cap, size_t size);

/* Leaves with "template line N: ...". */
_Noreturn void jenv_fail(struct jenv *j, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Leaves with exactly this message. */
_Noreturn void jenv_raise(struct jenv *j, const char *msg);

/* Counts work against the limit on steps. */
void jenv_step(struct jenv *j, size_t n);
/* One level of nesting more; given back by jenv_leave (or all at once by leaving). */
void jenv_enter(struct jenv *j);
static inline void jenv_leave(struct jenv *j) { j->depth--; }

#endif
