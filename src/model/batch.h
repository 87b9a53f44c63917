/* SPDX-License-Identifier: MIT
 *
 * batch.h: one unit of work for the forward pass.
 *
 * Decode is one row, prefill is many, a verified draft is a few, concurrent streams are rows
 * of several sequences: there is no other shape of work. Arrays of length n, owned by the caller.
 */
#ifndef QUERN_MODEL_BATCH_H
#define QUERN_MODEL_BATCH_H

#include <stdint.h>

#include <quern.h>

struct batch {
    int n;
    const qn_token *token;
    const int32_t *pos;  /* logical position: rotations use this */
    const int32_t *slot; /* where the row's key and value go; the row sees slots up to its own */
    const int32_t *seq;  /* which sequence's memory; rows of one sequence have ascending slots */
    const uint8_t *want_logits;
    /* Rows that step_accept() may take back, NULL: none. Of a sequence's rows all are held or none; STEP_MAX_HELD in
     * all. Only what has a recurrent state needs it: keys and values are taken back by forgetting their slots. */
    const uint8_t *held;
};

#endif
