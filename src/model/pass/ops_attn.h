/* SPDX-License-Identifier: MIT
 *
 * ops_attn.h: the operations of softmax attention, and how a batch is divided into attention calls.
 */
#ifndef QUERN_MODEL_PASS_OPS_ATTN_H
#define QUERN_MODEL_PASS_OPS_ATTN_H

#include <stdatomic.h>

#include "model/pass/batch.h"
#include "model/model.h"
#include "model/pass/rows.h"

/* Consecutive batch rows of one sequence that one attention call takes together. */
struct row_run {
    int row, n;
};

/* The attention calls of a layer: one for each run, KV head, and part of that head's query heads. */
struct attn_calls {
    struct row_run *runs; /* [rows] */
    int n_runs;
    int n_parts;     /* of a KV head's query heads */
    atomic_int next; /* calls that were dealt out since the keys were stored */
};

void attn_cut(struct cutter *c, int n, struct attn_calls *a);
/* Divides the batch into calls for n_threads members. */
void attn_survey(struct attn_calls *a, const struct hparams *h, const struct batch *b, int n_threads);

/* Row r's key and value (either may be NULL) of one KV head into their slot. */
void op_store(const struct member *me, int il, int r, int head, const float *k, const float *v);

/* Each row of q and of k is normalised, all heads together. Syncs. */
void op_norm_qk(const struct member *me, int il);
/* Norms of heads (if any) and rotation (if any) of q and k; k and v into their slots. Comes before op_attend(). Syncs.
 */
void op_rope_store(const struct member *me, int il);
/* heads = attention(q, memory), times sigmoid(gate) where queries have gates. Syncs. */
void op_attend(const struct member *me, int il);

#endif
