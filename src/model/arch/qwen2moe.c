/* SPDX-License-Identifier: MIT
 *
 * qwen2moe.c: Qwen1.5-MoE-A2.7B and Qwen2-57B-A14B.
 *
 * The qwen2 layer with a mixture of experts. The experts with the largest probabilities (softmax over all) are weighted
 * by these, which are not made to sum to 1. The expert of all tokens is weighted by the sigmoid of a router of its own.
 * Yang et al., "Qwen2 technical report", 2024.
 */
#include "model/arch/arch.h"
#include "model/block.h"

static int qwen2moe_hparams(struct hparams *h, struct hp_reader *r)
{
    int rc;
    h->rope_adjacent = false;
    if (!h->n_expert) return error_set(r->e, QN_EDATA, "model: key '%s' is missing or 0", hp_key(r, "expert_count"));
    if ((rc = hp_shared_width(r, h))) return rc;
    if ((rc = hp_int(r, "expert_shared_feed_forward_length", 1, HP_MAX_DIM, h->n_ff ? h->n_ff : -1, &h->n_ff_shexp)))
        return rc;
    return hp_routing(r, h, GATE_SOFTMAX, false);
}

static const struct bind_rule rules[] = {
    BLOCK_ATTN_RULES, BLOCK_MOE_RULES, BLOCK_SHARED_EXPERT_RULES, BLOCK_SHARED_ROUTER_RULES, {0}};
static const char *const keys[] = {"expert_count", "expert_used_count", NULL};

static void qwen2moe_layer(const struct member *me, int il)
{
    block_attn(me, il);
    block_moe(me, il, ACTIV_SILU);
}

const struct arch arch_qwen2moe = {
    .name = "qwen2moe", .hparams = qwen2moe_hparams, .rules = rules, .layer = qwen2moe_layer, .keys = keys};
