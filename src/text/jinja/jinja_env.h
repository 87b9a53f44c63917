/* SPDX-License-Identifier: MIT
 *
 * jinja_env.h: what all parts of one compilation or rendering share: memory, limits, and the way out after an error.
 *
 * Memory comes from chunks that are freed together, because values are small and live as long as the rendering. What a
 * turn of a loop took may be given back before (struct jmark). An error leaves by longjmp() to the one place that set
 * `out`. Nothing but this memory is held in between, so nothing can leak, and the parser and the evaluator read like
 * the grammar that they follow. So no function of the template files returns an error: those that fail do not return.
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
    struct jchunk *chunks;                    /* newest first */
    uint8_t *next;                            /* the free bytes of the newest chunk */
    size_t left;                              /* how many there are */
    uint64_t n_blocks;                        /* how many were ever made */
    struct jblock *blocks;                    /* large pieces, each in an allocation of its own; newest first */
    size_t used_bytes, peak_bytes, max_bytes; /* taken from the system: now, the most, the limit */
    uint64_t n_steps, max_steps, look_at;     /* look_at: the number of steps at which the clock is asked next */
    unsigned odd_bytes, odd_looks;            /* fractions of a step: 64ths, 8ths */
    uint64_t cpu_begin_ns, max_cpu_ns;        /* CPU time of this thread */
    uint64_t n_marks;                         /* how many were ever made */
    /* Of the objects that began to point at something new since the last mark, the `born` of the oldest; see jmark. */
    uint64_t oldest;
    uint64_t seed; /* of hashes */
    int depth, max_depth;
    int line;           /* the template's line that is being parsed or evaluated; 0: none yet */
    struct qn_error *e; /* may be NULL */
    int code;           /* of the failure */
    jmp_buf out;
    const struct jinja_input *in; /* rendering only */
    size_t at_ours;               /* how many elements of in->ours were found */
    struct jdict *vars;           /* the context */
    struct jval *key;             /* [JENV_KEYS] the context's keys that were seen last, by a small hash */
};

/* Begins to measure the CPU time of this thread. */
void jenv_start(struct jenv *j);
uint64_t jenv_cpu_ns(const struct jenv *j);
/* Gives all memory back. */
void jenv_deinit(struct jenv *j);
/* 16-byte aligned, not zeroed; never NULL. */
void *jenv_get(struct jenv *j, size_t bytes);
void *jenv_get_n(struct jenv *j, size_t n, size_t size);
/* Makes a piece of `old` bytes larger. It may move, so nothing else may point to it. */
void *jenv_resize(struct jenv *j, void *p, size_t old, size_t bytes);
/* Fails when so many more bytes would exceed the limit on memory. */
void jenv_check_room(struct jenv *j, size_t bytes);
/* Makes sure that the array p of n elements, of `size` bytes each, has room for one more; *cap is its room. It may
 * move. */
void *jenv_grow(struct jenv *j, void *p, size_t n, size_t *cap, size_t size);

/* A mark in the memory. All that was taken after a mark may be given back if nothing older points there. Only
 * namespaces, texts that grow and loops can be changed after they were made. Each of these knows how many marks there
 * were when it was made (`born`), and calls jenv_escapes() when it begins to point at something new. */
struct jmark {
    struct jchunk *chunk;
    uint64_t n_blocks;
    uint8_t *next;
    size_t left;
    uint64_t number, oldest; /* oldest: the value of j->oldest before */
};
struct jmark jenv_mark(struct jenv *j);
/* Notes that an object which was made after `born` marks now points at something new. */
static inline void jenv_escapes(struct jenv *j, uint64_t born)
{
    if (born < j->oldest) j->oldest = born;
}
/* Gives back what was taken after the mark, unless something older points there. */
void jenv_release(struct jenv *j, const struct jmark *m);

/* Leaves with an error: "template line N: ...". */
_Noreturn void jenv_fail(struct jenv *j, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Leaves with QN_EUSAGE and exactly this message. */
_Noreturn void jenv_raise(struct jenv *j, const char *msg);

/* The slow path of jenv_step(): asks the clock, and whether the rendering is still wanted. Leaves when a limit is
 * reached. */
void jenv_step_and_look(struct jenv *j, size_t n);

/* Counts n steps against the limits, before the work is done. A step takes about 50 ns: a node is evaluated, or an item
 * is looked at. */
static inline void jenv_step(struct jenv *j, size_t n)
{
    if (n > j->look_at - j->n_steps)
        jenv_step_and_look(j, n);
    else
        j->n_steps += n;
}

/* Counts bytes that are copied, compared or searched: 64 are a step. */
static inline void jenv_bytes(struct jenv *j, size_t n)
{
    jenv_step(j, n / 64 + (j->odd_bytes + n % 64) / 64);
    j->odd_bytes = (unsigned)((j->odd_bytes + n % 64) % 64);
}

/* Counts characters, names or slots that are looked at one by one: eight are a step. */
static inline void jenv_looks(struct jenv *j, size_t n)
{
    jenv_step(j, n / 8 + (j->odd_looks + n % 8) / 8);
    j->odd_looks = (unsigned)((j->odd_looks + n % 8) % 8);
}

/* Goes one level of nesting deeper, until jenv_leave(). Fails at the limit. */
void jenv_enter(struct jenv *j);
static inline void jenv_leave(struct jenv *j) { j->depth--; }

#endif
