/* SPDX-License-Identifier: MIT
 *
 * ops_latent.h: the operations of multi-head latent attention and their buffers. block_latent.c has the formulas.
 */
#ifndef QUERN_MODEL_PASS_OPS_LATENT_H
#define QUERN_MODEL_PASS_OPS_LATENT_H

#include "model/model.h"
#include "model/pass/rows.h"

/* The rows that latent attention has in addition to those of struct pass. */
struct latent_rows {
    struct rows q;      /* [n_head][nope + n_rot]; expanded: the same rows as pass.q */
    struct rows kv;     /* [n_lora_kv + n_rot] */
    struct rows kv_b;   /* expanded: [n_head][nope + v] */
    struct acts low_q;  /* [n_lora_q] */
    struct acts low_kv; /* expanded: [n_lora_kv] */
    struct acts heads;  /* absorbed: a row for each head, in the format of act_row_bytes(), one after the other */
};

/* The buffers for n batch rows; q: those of the pass. Models without latent attention need none. */
void latent_cut(struct cutter *c, const struct hparams *h, int n, struct rows q, struct latent_rows *t);

/* latent.low_q = RMS(low_q) and latent.kv = [RMS(c) | RoPE(k_pe)], both in the formats of the next matrices. Absorbed
 * ones are stored. Comes before op_attend(). Syncs. */
void op_latent_norm(const struct member *me, int il);
/* Splits latent.q: the rotated part goes to q's heads, the other part to latent.heads. Expanded: all of it goes to q,
 * and keys and values are stored. Syncs. */
void op_latent_heads(const struct member *me, int il);
/* latent.heads = heads. Syncs. */
void op_latent_context(const struct member *me, int il);
/* y + i * ld_head = W_i latent.heads of each head i. Syncs. */
void op_matmul_heads(const struct member *me, int il, const char *name, const struct experts *m, struct rows y,
                     int ld_head);

#endif
