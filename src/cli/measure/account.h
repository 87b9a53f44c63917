/* SPDX-License-Identifier: MIT
 *
 * account.h: the account of one forward pass, operation by operation.
 *
 * The account is predicted by running the ordinary pass on kernels that only count, and measured by running it on the
 * real ones.
 */
#ifndef QUERN_CLI_ACCOUNT_H
#define QUERN_CLI_ACCOUNT_H

#include "engine/engine.h"

struct account {
    struct trace_op *ops; /* in order of execution; ns only if measured */
    int n;
    uint64_t n_experts; /* experts whose matrices are read, over all operations: the expected or the measured number */
    uint64_t bytes, macs_int8, macs_f32; /* totals */
    uint64_t ns;                         /* time of the whole pass without tracing; 0: not measured */
};

/* Predicts the account of n_rows rows of one sequence at depth `depth`, of which the last n_logits want logits. It
 * needs memory for the tables only. *a is for account_deinit(). */
int account_cost(struct account *a, const struct model *m, enum kv_type kv, int n_rows, int depth, int n_logits,
                 struct qn_error *e);
/* Multiplies the number of experts that are read, and their bytes, by `factor`. */
void account_scale_experts(struct account *a, double factor);
/* Fills in ns and the number of experts that were read: the median of `reps` passes. The engine's context must hold
 * depth + n_rows tokens. */
int account_measure(struct account *a, struct qn_engine *g, int n_rows, int depth, int reps, struct qn_error *e);
/* The time of a pass whose n_rows rows all want logits: the median of `reps` passes. */
int account_time(struct qn_engine *g, int n_rows, int depth, int reps, uint64_t *ns, struct qn_error *e);
/* Releases the operations. */
void account_deinit(struct account *a);

/* Fills a sequence with `depth` slots of small numbers, as if that many tokens were before. The cost of a pass at
 * this depth does not depend on the values. QN_ENOMEM: the machine has no room for everything that m may hold, whatever
 * its budget; then nothing was touched. */
int account_fill(struct kv_seq *m, int depth, struct qn_error *e);

#endif
