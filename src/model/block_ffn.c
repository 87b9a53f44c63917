/* SPDX-License-Identifier: MIT
 *
 * block_ffn.c: the gated feed-forward network. Shazeer, "GLU variants improve Transformer", 2020.
 */
#include "model/block.h"

void block_ffn(const struct worker *w, int il, enum act_kind f)
{
    const struct layer *l = &w->s->model->layers[il];
    op_norm(w, il, "ffn_norm", l->ffn_norm, (const struct linear *const[]){&l->gate, &l->up, NULL});
    op_gate_up(w, il, f, &l->gate, &l->up, &l->down);
    op_matmul_add(w, il, "ffn_down", &l->down, &w->s->gate);
}
