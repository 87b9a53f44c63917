/* SPDX-License-Identifier: MIT
 *
 * excerpt.h: what is kept of a text of any length in bounded memory, its head, its tail or both, and cuts of that.
 *
 * A cut keeps at most k bytes, whole lines; where a line is too long for that, whole characters. The more k, the more
 * is kept.
 */
#ifndef QUERN_CLI_EXCERPT_H
#define QUERN_CLI_EXCERPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

enum excerpt_ends { EXCERPT_HEAD, EXCERPT_TAIL, EXCERPT_BOTH };

struct excerpt {
    enum excerpt_ends ends;
    size_t cap;     /* bytes kept of each end */
    uint64_t total; /* of the text, in bytes */
    bool open_end;  /* the text goes on, nobody knows how far */
    struct buf head, tail;
    size_t at; /* tail is a ring once it is full: where its oldest byte is */
};

/* A zeroed excerpt may be freed. */
void excerpt_init(struct excerpt *x, enum excerpt_ends ends, size_t cap_bytes);
void excerpt_deinit(struct excerpt *x);
/* Whole characters. */
int excerpt_add(struct excerpt *x, const char *text, size_t n, struct qn_error *e);
/* Nothing of what comes now would be kept. */
bool excerpt_is_full(const struct excerpt *x);
/* No more comes: cuts can be made. more: the text went on. */
int excerpt_end(struct excerpt *x, bool more, struct qn_error *e);

struct excerpt_cut {
    const char *head, *tail; /* between them something is left out, when left_out is not 0 */
    size_t n_head, n_tail;
    uint64_t left_out; /* bytes; UINT64_MAX: not known how many */
};

/* The most that a cut can keep. */
size_t excerpt_most(const struct excerpt *x);
void excerpt_cut(const struct excerpt *x, size_t k, struct excerpt_cut *c);

#endif
