/* SPDX-License-Identifier: MIT
 *
 * ops_common.h: the operations that all blocks are written in.
 */
#ifndef QUERN_MODEL_PASS_OPS_COMMON_H
#define QUERN_MODEL_PASS_OPS_COMMON_H

#include "model/pass/op.h"

/* x = the embedding rows of the batch's tokens, scaled, and the rotations of its positions. Syncs. */
void op_embed(const struct member *me);
/* x = the row of an embedding table for row r's token, scaled; and the rotations of row r's position. */
void op_begin_row(const struct member *me, const struct tensor *t, int r, float *x);
/* The logits of the rows that want them: output norm and output matrix, scale and soft cap. */
void op_logits(const struct member *me);
/* The same with another norm and the first n_vocab rows of another matrix: pass->logits is [n_out][n_vocab], and h
 * [n_out] has the normalised rows. */
void op_logits_by(const struct member *me, const float *norm, const struct linear *out, int n_vocab);

/* h = RMS(x; norm), and h in the formats of the given matrices (NULL-terminated). Syncs. */
void op_norm(const struct member *me, int il, const char *name, const float *norm, const struct linear *const *users);
/* x in the formats of the given matrices, in `bare`. Syncs. */
void op_quant_x(const struct member *me, int il, const struct linear *const *users);
/* x += residual_scale * RMS(h; norm); h is overwritten. Syncs. */
void op_norm_add(const struct member *me, int il, const char *name, const float *norm);
/* att = RMS(att; norm), and in the formats of the given matrices. Syncs. */
void op_norm_att(const struct member *me, int il, const float *norm, const struct linear *const *users);
/* att in the formats of the given matrices. Syncs. */
void op_quant_att(const struct member *me, int il, const struct linear *const *users);

/* y = s W src + b, src being in W's format. Does not sync. */
void op_matmul(const struct member *me, int il, enum op_class class, const char *name, const struct linear *l,
               const struct acts *src, struct rows y);
/* x += residual_scale * (s W src + b). src is in W's format and is not h, which is overwritten. Syncs. */
void op_matmul_add(const struct member *me, int il, enum op_class class, const char *name, const struct linear *l,
                   const struct acts *src);

/* A gated network: gate = f(Wgate src) * (Wup src). */
struct op_gated {
    enum op_class class;
    enum act_kind f;
    const struct linear *gate, *up;
    const struct linear *down; /* gate is converted to its format, and perhaps to no other */
    const float *norm;         /* gate = RMS(gate; norm) afterwards; NULL: not */
};

void op_gate_up(const struct member *me, int il, const struct op_gated *net, const struct acts *src);

#endif
