/* SPDX-License-Identifier: MIT
 *
 * block_moe.c: a mixture of experts in the place of the feed-forward network, and the expert of all tokens where there
 * is one. Shazeer et al., "Outrageously large neural networks", 2017; Dai et al., "DeepSeekMoE", 2024 (shared experts).
 */
#include "model/block.h"

/* For the format that the experts' activations are wanted in: all have one type. */
static struct linear any_of(const struct experts *x)
{
    return (struct linear){x->w || !x->each ? x->w : x->each[0], NULL, NULL};
}

void block_moe(const struct worker *w, int il, enum act_kind f)
{
    struct step *s = w->s;
    const struct layer *l = &s->model->layers[il];
    const bool is_fused = l->gate_up_exps.row_bytes != 0, is_shared = l->shared_down.w != NULL;
    const struct linear gate = any_of(is_fused ? &l->gate_up_exps : &l->gate_exps);
    const struct linear up = any_of(is_fused ? &l->gate_up_exps : &l->up_exps);
    const struct linear *users[] = {&l->router, &gate, &up, is_shared ? &l->shared_gate : NULL, &l->shared_up, NULL};
    op_norm(w, il, "ffn_norm", l->ffn_norm, users);
    op_route(w, il);
    op_experts_gate_up(w, il, f);
    if (is_shared)
        op_gate_up(w, il, f, &l->shared_gate, &l->shared_up, &l->shared_down);
    else
        op_sync(w);
    op_experts_down(w, il);
    if (is_shared) op_shared_down(w, il);
    op_sync(w);
}
