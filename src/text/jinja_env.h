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
struct jblock;
struct jinja_input;
struct jdict;

struct jval;

#define JENV_KEYS 64

struct jenv {
    struct jchunk *chunks; /* newest first */
    uint8_t *next;         /* free bytes of the newest chunk */
    size_t left;
    uint64_t n_blocks;                        /* ever made */
    struct jblock *blocks;                    /* large pieces, each by itself */
    size_t used_bytes, peak_bytes, max_bytes; /* taken from the system */
    uint64_t n_steps, max_steps, look_at;     /* look_at: how many steps there may be before the clock is asked */
    unsigned odd_bytes, odd_looks;            /* parts of a step */
    uint64_t cpu_begin_ns, max_cpu_ns;        /* of this thread */
    uint64_t n_marks;                         /* ever made */
    uint64_t oldest; /* when what began to point at something new since the last mark was made: see jmark */
    uint64_t seed;   /* of hashes */
    int depth, max_depth;
    int line;           /* of what is being parsed or evaluated; 0: nothing yet */
    struct qn_error *e; /* may be NULL */
    int code;           /* of the failure */
    jmp_buf out;
    const struct jinja_input *in; /* rendering only */
    struct jdict *vars;           /* the context */
    struct jval *key;             /* [JENV_KEYS] keys of the context seen last, by a small hash */
};

/* Time counts from here on; the work is done in this thread. */
void jenv_start(struct jenv *j);
uint64_t jenv_cpu_ns(const struct jenv *j);
/* Gives all memory back. */
void jenv_deinit(struct jenv *j);
/* 16-byte aligned, not zeroed; never NULL. */
void *jenv_get(struct jenv *j, size_t bytes);
void *jenv_get_n(struct jenv *j, size_t n, size_t size);
/* The piece p of `old` bytes, with as many as `bytes` now. Nobody else may know where it was. */
void *jenv_resize(struct jenv *j, void *p, size_t old, size_t bytes);
/* Fails when so much more would go beyond the limit on memory. */
void jenv_check_room(struct jenv *j, size_t bytes);
/* The array p of n elements with room for more than n, doubled when full; *cap is the room. It may move. */
void *jenv_grow(struct jenv *j, void *p, size_t n, size_t *cap, size_t size);

/* What was taken since a mark may be given back when nothing that is older points there. Only namespaces, texts that
 * grow and loops are ever changed; each knows how many marks there were when it was made, and tells when it begins to
 * point at something. */
struct jmark {
    struct jchunk *chunk;
    uint64_t n_blocks;
    uint8_t *next;
    size_t left;
    uint64_t number, oldest; /* oldest: j->oldest before */
};
struct jmark jenv_mark(struct jenv *j);
/* Something that was made after `born` marks now points at something new. */
static inline void jenv_escapes(struct jenv *j, uint64_t born)
{
    if (born < j->oldest) j->oldest = born;
}
/* Gives it back, unless something older points there. */
void jenv_release(struct jenv *j, const struct jmark *m);

/* Leaves with "template line N: ...". */
_Noreturn void jenv_fail(struct jenv *j, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Leaves with exactly this message. */
_Noreturn void jenv_raise(struct jenv *j, const char *msg);

/* A step that is one too many for jenv_step: asks the clock and whether the rendering is still wanted, or leaves. */
void jenv_step_and_look(struct jenv *j, size_t n);

/* Counts work against the limits, before it is done. A step is about 50 ns: a node evaluated, an item looked at. */
static inline void jenv_step(struct jenv *j, size_t n)
{
    if (n > j->look_at - j->n_steps)
        jenv_step_and_look(j, n);
    else
        j->n_steps += n;
}

/* Bytes that are copied, compared or searched: 64 are a step. */
static inline void jenv_bytes(struct jenv *j, size_t n)
{
    jenv_step(j, n / 64 + (j->odd_bytes + n % 64) / 64);
    j->odd_bytes = (unsigned)((j->odd_bytes + n % 64) % 64);
}

/* Characters, names or slots looked at one by one: eight are a step. */
static inline void jenv_looks(struct jenv *j, size_t n)
{
    jenv_step(j, n / 8 + (j->odd_looks + n % 8) / 8);
    j->odd_looks = (unsigned)((j->odd_looks + n % 8) % 8);
}

/* One level of nesting more; given back by jenv_leave (or all at once by leaving). */
void jenv_enter(struct jenv *j);
static inline void jenv_leave(struct jenv *j) { j->depth--; }

#endif
