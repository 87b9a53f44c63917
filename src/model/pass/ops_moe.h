/* SPDX-License-Identifier: MIT
 *
 * ops_moe.h: the operations of a mixture of experts and their buffers.
 */
#ifndef QUERN_MODEL_PASS_OPS_MOE_H
#define QUERN_MODEL_PASS_OPS_MOE_H

#include <stdatomic.h>

#include "model/model.h"
#include "model/pass/rows.h"

/* Assigns the rows of the batch to experts. An entry is one row at one expert. Entries are sorted by expert, then by
 * row: those of expert e are first[e] .. first[e + 1]. */
struct moe {
    struct rows score;    /* [rows][n_expert] the router's results */
    int32_t *chosen;      /* [rows][n_expert_used], ascending */
    float *weight;        /* [rows][n_expert_used] of the chosen experts */
    float *shared_weight; /* [rows] of the expert of all tokens */
    int32_t *first;       /* [n_expert + 1] */
    int32_t *row;         /* [entries] */
    float *entry_weight;  /* [entries] */
    int32_t *busy;        /* [n_expert] experts with entries, ascending */
    int n_busy;
    struct acts gate; /* [entries][n_ff_exp] gated */
    struct rows up;   /* [entries][n_ff_exp] */
    atomic_int next;  /* the next piece of work of op_experts_gate_up() */
};

/* The buffers for n batch rows. Models without experts need none. */
void moe_cut(struct cutter *c, const struct hparams *h, int n, struct moe *m);

/* Chooses each row's experts and their weights from the router's product with h, and sorts the entries. Syncs. */
void op_route(const struct member *me, int il);
/* The experts' gate = f(Wgate h) * (Wup h), in the format of their `down`. Does not sync. */
void op_experts_gate_up(const struct member *me, int il, enum act_kind f);
/* x += the sum of weight * (Wdown gate + b) over each row's experts, ascending. A member sees its own part of x only
 * until the next sync. Does not sync. */
void op_experts_down(const struct member *me, int il);
/* The same with the one expert of all tokens, whose gate is in pass.gate. Does not sync. */
void op_shared_down(const struct member *me, int il);

#endif
