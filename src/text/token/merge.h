/* SPDX-License-Identifier: MIT
 *
 * merge.h: the loop that all byte-pair encodings share: join the best adjacent pair until none is left.
 *
 * A text is a list of symbols, at first one for each byte or character. A rule of the encoding says which two
 * neighbours may be joined, and how urgently.
 */
#ifndef QUERN_TEXT_MERGE_H
#define QUERN_TEXT_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/token/wanted.h"

/* A run of bytes of the text that is one symbol at the moment. */
struct sym {
    uint32_t start, bytes; /* bytes 0: the symbol was joined to its left neighbour */
    int32_t next, prev;    /* indexes into merge.sym; -1 at the ends */
    qn_token id;           /* -1: no token has this text */
};

/* The working memory of one encoding, used again for every piece of a text. Zeroed: empty. One thread at a time. */
struct merge {
    struct sym *sym; /* in the order of the text */
    struct merge_pair *heap;
    size_t n_sym, cap_sym, n_heap, cap_heap;
    struct wanted wanted; /* counts every symbol and every merge */
};

/* Whether l and r may be joined. If so, sets *id to the result (never -1) and *rank to its urgency: the lowest rank is
 * joined first, and the leftmost pair among equals. */
typedef bool merge_rule(const void *arg, const struct sym *l, const struct sym *r, uint32_t *rank, qn_token *id);

void merge_deinit(struct merge *m);
void merge_clear(struct merge *m); /* removes all symbols and keeps the memory */
/* Appends a symbol. QN_ENOMEM, QN_ECANCEL. */
int merge_add(struct merge *m, uint32_t start, uint32_t bytes, qn_token id, struct qn_error *e);
/* Joins what the rule allows. The symbols that remain are those from sym[0] along `next`. Does nothing when there are
 * no symbols. QN_ENOMEM, QN_ECANCEL. */
int merge_run(struct merge *m, merge_rule *rule, const void *arg, struct qn_error *e);

/* A growing list of ids. Zeroed: empty. */
struct ids {
    qn_token *id; /* [n], owned: mem_free() */
    size_t n, cap;
};
int ids_push(struct ids *ids, qn_token id, struct qn_error *e);

#endif
