/* SPDX-License-Identifier: MIT
 *
 * batch.h: the rows that one forward pass computes.
 *
 * Decode is one row, prefill is many, a verified draft is a few, and concurrent streams are rows of several sequences.
 * There is no other shape of work.
 */
#ifndef QUERN_MODEL_PASS_BATCH_H
#define QUERN_MODEL_PASS_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include <quern.h>

#include "base/error.h"

/* Its arrays have room for `cap` rows and belong to it. */
struct batch {
    int n, cap;
    qn_token *token;
    int32_t *pos;  /* logical position, which rotations use */
    int32_t *slot; /* where the row's key and value go; the row sees slots up to its own */
    int32_t *seq;  /* index of the sequence's memory; rows of one sequence have ascending slots */
    uint8_t *want_logits;
    /* Rows that forward_accept() may take back. Either all rows of a sequence are held or none; there are at most
     * PASS_MAX_HELD in all. Only sequences with a recurrent state need it: keys and values are taken back by forgetting
     * their slots. */
    uint8_t *held;
};

/* An empty batch with room for cap rows. */
int batch_init(struct batch *b, int cap, struct qn_error *e);
void batch_deinit(struct batch *b);
void batch_clear(struct batch *b);
/* Appends a row, which is not held, of sequence seq. Its slot is its position. There has to be room. */
void batch_add(struct batch *b, qn_token token, int pos, int seq, bool want_logits);

#endif
