/* SPDX-License-Identifier: MIT
 *
 * qwen3moe.c: Qwen3 with a mixture of experts in every layer: 30B-A3B, 235B-A22B, Qwen3-Coder.
 *
 * The qwen3 layer with the experts that have the largest probabilities (softmax over all), divided by their sum.
 * Yang et al., "Qwen3 technical report", 2025.
 */
#include "model/arch/arch.h"
#include "model/block.h"

static int qwen3moe_hparams(struct hparams *h, struct hp_reader *r)
{
    int rc;
    h->rope_adjacent = false;
    if (!h->n_expert) return error_set(r->e, QN_EDATA, "model: key '%s' is missing or 0", hp_key(r, "expert_count"));
    if ((rc = hp_shared_width(r, h))) return rc;
    return hp_routing(r, h, GATE_SOFTMAX, true);
}

static const struct bind_rule rules[] = {BLOCK_ATTN_RULES, BLOCK_HEAD_NORM_RULES, BLOCK_MOE_RULES, {0}};
static const char *const keys[] = {"expert_count", "expert_used_count", NULL};

static void qwen3moe_layer(const struct member *me, int il)
{
    block_attn(me, il);
    block_moe(me, il, ACTIV_SILU);
}

const struct arch arch_qwen3moe = {
    .name = "qwen3moe", .hparams = qwen3moe_hparams, .rules = rules, .layer = qwen3moe_layer, .keys = keys};
