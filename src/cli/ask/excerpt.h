/* SPDX-License-Identifier: MIT
 *
 * excerpt.h: keeps the head of a text, its tail, or both in bounded memory, and cuts them.
 *
 * A cut keeps at most k bytes, in whole lines; if a line is too long for that, in whole characters. A larger k keeps
 * at least as much.
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
    size_t cap;     /* most bytes to keep of each end */
    uint64_t total; /* bytes of the text so far */
    bool open_end;  /* the text goes on, and its length is not known */
    struct buf head, tail;
    size_t at; /* when tail is full it is a ring, and its oldest byte is here */
};

/* Starts an empty excerpt. A zeroed one may be released too. */
void excerpt_init(struct excerpt *x, enum excerpt_ends ends, size_t cap_bytes);
void excerpt_deinit(struct excerpt *x);
/* Adds whole characters. */
int excerpt_add(struct excerpt *x, const char *text, size_t n, struct qn_error *e);
/* Whether nothing that comes after this would be kept. */
bool excerpt_is_full(const struct excerpt *x);
/* Ends the text; cuts can be made after this. more: the text went on. */
int excerpt_end(struct excerpt *x, bool more, struct qn_error *e);

struct excerpt_cut {
    const char *head, *tail; /* something is missing between them if left_out is not 0 */
    size_t n_head, n_tail;
    uint64_t left_out; /* bytes; UINT64_MAX: not known */
};

/* The most bytes that a cut can keep. */
size_t excerpt_most(const struct excerpt *x);
/* Makes the cut that keeps at most k bytes, after excerpt_end(). *c points into x. */
void excerpt_cut(const struct excerpt *x, size_t k, struct excerpt_cut *c);

#endif
