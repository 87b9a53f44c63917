/* SPDX-License-Identifier: MIT
 *
 * block_moe.c: a mixture of experts instead of the feed-forward network, and the expert of all tokens if there is one.
 * Shazeer et al., "Outrageously large neural networks", 2017; Dai et al., "DeepSeekMoE", 2024 (shared experts).
 */
#include "model/block.h"
#include "model/pass/ops_common.h"
#include "model/pass/ops_moe.h"

/* One expert's matrix, which has the type of all, for the format that they multiply with. */
static struct linear any_of(const struct experts *x)
{
    return (struct linear){x->w || !x->each ? x->w : x->each[0], NULL, NULL};
}

void block_moe(const struct member *me, int il, enum act_kind f)
{
    struct pass *pass = me->pass;
    const struct layer *l = &pass->model->layers[il];
    const bool is_fused = l->gate_up_exps.row_bytes != 0, is_shared = l->shared_down.w != NULL;
    const struct linear gate = any_of(is_fused ? &l->gate_up_exps : &l->gate_exps);
    const struct linear up = any_of(is_fused ? &l->gate_up_exps : &l->up_exps);
    const struct linear *users[] = {&l->router, &gate, &up, is_shared ? &l->shared_gate : NULL, &l->shared_up, NULL};
    const struct op_gated shared = {OP_EXPERTS, f, &l->shared_gate, &l->shared_up, &l->shared_down, NULL};
    op_norm(me, il, "ffn_norm", l->ffn_norm, users);
    op_route(me, il);
    op_experts_gate_up(me, il, f);
    if (is_shared)
        op_gate_up(me, il, &shared, &pass->h);
    else
        op_sync(me);
    op_experts_down(me, il);
    if (is_shared) op_shared_down(me, il);
    op_sync(me);
}
