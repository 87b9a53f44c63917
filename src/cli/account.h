/* SPDX-License-Identifier: MIT
 *
 * account.h: the per-operation account of one forward pass: predicted by running the ordinary
 * pass on the costing kernels, and measured by running it on the real ones.
 */
#ifndef QUERN_CLI_ACCOUNT_H
#define QUERN_CLI_ACCOUNT_H

#include "engine/engine.h"

struct account {
    struct trace_op *ops; /* in order of execution; ns only when measured */
    int n;
    uint64_t n_experts; /* of all operations, whose matrices are read: as many as may be expected, or were measured */
    uint64_t bytes, macs_int8, macs_f32; /* totals */
    uint64_t ns;                         /* of the whole pass, without the tracing; 0 when not measured */
};

/* n_rows rows of one sequence at depth `depth`, the last n_logits of them wanting logits. Costs memory
 * for the tables only. */
int account_cost(struct account *a, const struct model *m, enum kv_type kv, int n_rows, int depth, int n_logits,
                 struct qn_error *e);
/* Multiplies the experts that are read, and their bytes. */
void account_scale_experts(struct account *a, double factor);
/* Fills in ns, and how many experts were read: the median of `reps` passes on an engine whose context holds depth +
 * n_rows. */
int account_measure(struct account *a, struct qn_engine *g, int n_rows, int depth, int reps, struct qn_error *e);
void account_deinit(struct account *a);

/* A sequence of `depth` slots full of small numbers, as if that many tokens had gone before: what a
 * pass at this depth costs does not depend on what they are. Refuses (QN_ENOMEM) when the machine has no
 * room for all that m may hold, whatever budget it was given: nothing is touched then. */
int account_fill(struct memory *m, int depth, struct qn_error *e);

#endif
