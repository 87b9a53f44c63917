/* SPDX-License-Identifier: MIT
 *
 * block_ffn.c: the gated feed-forward network. Shazeer, "GLU variants improve Transformer", 2020.
 */
#include "model/block.h"

void block_ffn(const struct worker *w, int il, enum act_kind f)
{
    struct step *s = w->s;
    const struct layer *l = &s->model->layers[il];
    int n_ff = (int)l->down.w->ne[0];
    op_norm(w, il, "ffn_norm", l->ffn_norm, (const struct linear *const[]){&l->gate, &l->up, NULL});
    op_matmul(w, il, "ffn_gate", &l->gate, s->h, s->gate);
    op_matmul(w, il, "ffn_up", &l->up, s->h, s->up);
    op_act_mul(w, il, f, n_ff);
    op_quant(w, il, "ffn_quant", s->gate, n_ff, (const struct linear *const[]){&l->down, NULL});
    op_matmul_add(w, il, "ffn_down", &l->down, s->gate);
}
