/* SPDX-License-Identifier: MIT
 *
 * block_ffn.c: the gated feed-forward network, in the four ways that families put norms around it. Shazeer, "GLU
 * variants improve Transformer", 2020.
 */
#include "model/block.h"

static void norm_gate(const struct worker *w, int il, enum act_kind f)
{
    const struct layer *l = &w->s->model->layers[il];
    op_norm(w, il, "ffn_norm", l->ffn_norm, (const struct linear *const[]){&l->gate, &l->up, NULL});
    op_gate_up(w, il, f, &l->gate, &l->up, &l->down);
}

void block_ffn(const struct worker *w, int il, enum act_kind f)
{
    norm_gate(w, il, f);
    op_matmul_add(w, il, "ffn_down", &w->s->model->layers[il].down, &w->s->gate);
}

/* What the network gives, normalised and added. */
static void down_post(const struct worker *w, int il)
{
    const struct layer *l = &w->s->model->layers[il];
    op_matmul(w, il, "ffn_down", &l->down, &w->s->gate, w->s->h.f32);
    op_sync(w);
    op_norm_add(w, il, "ffn_post_norm", l->ffn_post_norm);
}

void block_ffn_post(const struct worker *w, int il, enum act_kind f)
{
    norm_gate(w, il, f);
    down_post(w, il);
}

void block_ffn_bare(const struct worker *w, int il, enum act_kind f)
{
    const struct layer *l = &w->s->model->layers[il];
    op_quant_x(w, il, (const struct linear *const[]){&l->gate, &l->up, NULL});
    op_gate_up_of(w, il, f, &w->s->bare, &l->gate, &l->up, NULL, &l->down);
    down_post(w, il);
}

void block_ffn_sub(const struct worker *w, int il, enum act_kind f)
{
    const struct layer *l = &w->s->model->layers[il];
    op_norm(w, il, "ffn_norm", l->ffn_norm, (const struct linear *const[]){&l->gate, &l->up, NULL});
    op_gate_up_of(w, il, f, &w->s->h, &l->gate, &l->up, l->ffn_sub_norm, &l->down);
    op_matmul_add(w, il, "ffn_down", &l->down, &w->s->gate);
}
