/* SPDX-License-Identifier: MIT
 *
 * ops_delta.h: the operations of gated DeltaNet and their buffers.
 */
#ifndef QUERN_MODEL_PASS_OPS_DELTA_H
#define QUERN_MODEL_PASS_OPS_DELTA_H

#include "model/model.h"
#include "model/pass/rows.h"

/* The projections of each batch row. */
struct delta_rows {
    struct rows in;   /* q, k, v and z grouped by key head, where the file has them in one matrix */
    struct rows qkv;  /* [conv_dim] */
    struct rows z;    /* [n_head_v * dim_v] */
    struct rows ba;   /* [2 * n_head_v] b and a grouped by key head, where the file has them in one matrix */
    struct rows a, b; /* [n_head_v] which become decays and rates */
};

/* The buffers for n batch rows. */
void delta_cut(struct cutter *c, const struct model *m, int n, struct delta_rows *d);
/* Floats from one held row's inputs to the recurrence to the next one's: [qkv][decay][beta]. */
size_t delta_kept_ld(const struct hparams *h);

/* The projections to b and a. Does not sync. */
void op_delta_ba(const struct member *me, int il);
/* The convolution of q, k and v, the lengths of q and k, the decays and rates. Syncs. */
void op_delta_conv(const struct member *me, int il);
/* att = the outputs of the gated delta rule, which advances the states. Syncs. */
void op_delta_rule(const struct member *me, int il);
/* att normed, gated, and in the format of the output matrix. Syncs. */
void op_delta_out(const struct member *me, int il);

/* This member's share of copying the states of the spans that have a copy; with `back`, from the copies. */
void delta_copy_states(const struct member *me, bool back);
/* Runs the held rows that stay, n_again of each span, through the recurrence of all layers. */
void delta_replay(const struct member *me);

#endif
