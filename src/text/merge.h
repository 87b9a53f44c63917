/* SPDX-License-Identifier: MIT
 *
 * merge.h: the loop that all byte-pair encodings share: join the best adjacent pair until none is left.
 */
#ifndef QUERN_TEXT_MERGE_H
#define QUERN_TEXT_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/wanted.h"

/* A run of the text that is one symbol at the moment. */
struct sym {
    uint32_t start, bytes; /* bytes 0: was joined to its left neighbour */
    int32_t next, prev;    /* indexes; -1 at the ends */
    qn_token id;           /* -1: no token has this text */
};

/* Working memory of one encoding; zeroed = empty. Reused for every piece of a text. */
struct merge {
    struct sym *sym; /* in the order of the text */
    struct merge_pair *heap;
    size_t n_sym, cap_sym, n_heap, cap_heap;
    struct wanted wanted; /* asked for every symbol and every merge */
};

/* May l and r be joined? Then *id is the result (never -1) and *rank its urgency: the lowest goes first, the
 * leftmost among equals. */
typedef bool merge_rule(const void *arg, const struct sym *l, const struct sym *r, uint32_t *rank, qn_token *id);

void merge_deinit(struct merge *m);
void merge_clear(struct merge *m); /* no symbols; the memory stays */
int merge_add(struct merge *m, uint32_t start, uint32_t bytes, qn_token id, struct qn_error *e);
/* Afterwards the symbols from sym[0] along `next` are what remains. Does nothing on no symbols. */
int merge_run(struct merge *m, merge_rule *rule, const void *arg, struct qn_error *e);

/* A growing list of ids. */
struct ids {
    qn_token *id;
    size_t n, cap;
};
int ids_push(struct ids *ids, qn_token id, struct qn_error *e);

#endif
