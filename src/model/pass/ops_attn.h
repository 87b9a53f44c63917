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

/* The attention calls of a layer: one for each run, KV head, and part of that head's query heads.
 *
 * A call that alone would keep a member busy while others wait is divided: its past is cut into spans of a few chunks
 * (ATTN_CHUNK), which members take one after the other. The results of the chunks are partial results, which are merged
 * in the order of the chunks: the bits are those of an undivided call. There is room for the partial results of a
 * stretch of the past, so a long past is divided stretch by stretch. */
struct attn_calls {
    struct row_run *runs; /* [rows] whole ones */
    int n_runs;
    int n_parts;     /* of a KV head's query heads */
    atomic_int next; /* calls that were dealt out since the keys were stored */

    int32_t *divided; /* [rows] rows whose calls are divided */
    int n_divided;
    atomic_int next_span;
    float *partials;   /* [n_partials][query heads][ld_partial]; NULL: no call is ever divided */
    int n_partials;    /* chunks that there is room for */
    size_t ld_partial; /* floats */
};

/* For n rows and n_threads members. */
void attn_cut(struct cutter *c, const struct hparams *h, int n, int n_threads, struct attn_calls *a);
/* Divides the batch into calls for n_threads members. */
void attn_survey(struct attn_calls *a, const struct hparams *h, const struct batch *b, int n_threads);

/* Row r's key and value (either may be NULL) of one KV head into their slot. */
void op_store(const struct member *me, int il, int r, int head, const float *k, const float *v);

/* q, k, v = the products with src of layer il's matrices; then norms of rows or heads (if any) and rotation (if any) of
 * q and k; k and v into their slots. Comes before op_attend(). Syncs. */
void op_project(const struct member *me, int il, const struct acts *src);
/* heads = attention(q, memory), times sigmoid(gate) where queries have gates. Syncs. */
void op_attend(const struct member *me, int il);

#endif
