/* SPDX-License-Identifier: MIT
 *
 * block_attn.c: softmax attention with grouped KV heads. Vaswani et al. 2017; Ainslie et al. 2023.
 */
#include "model/block.h"

void block_attn(const struct worker *w, int il)
{
    struct step *s = w->s;
    const struct layer *l = &s->model->layers[il];
    op_norm(w, il, "attn_norm", l->attn_norm, (const struct linear *const[]){&l->wq, &l->wk, &l->wv, NULL});
    op_matmul(w, il, "attn_q", &l->wq, &s->h, s->q);
    op_matmul(w, il, "attn_k", &l->wk, &s->h, s->k);
    op_matmul(w, il, "attn_v", &l->wv, &s->h, s->v);
    op_sync(w);
    op_rope_store(w, il);
    op_attend(w, il);
    op_quant_att(w, il, (const struct linear *const[]){&l->wo, NULL});
    op_matmul_add(w, il, "attn_output", &l->wo, &s->att);
}
