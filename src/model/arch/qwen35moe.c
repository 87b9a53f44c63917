/* SPDX-License-Identifier: MIT
 *
 * qwen35moe.c: Qwen3.5 with a mixture of experts, and one of all tokens, in every layer; otherwise qwen35.c.
 */
#include "model/arch/arch.h"
#include "model/block.h"

static int qwen35moe_hparams(struct hparams *h, struct hp_reader *r)
{
    int rc;
    if ((rc = delta_hparams(h, r))) return rc;
    if ((rc = qwen35_head_order(h, r))) return rc;
    return qwen3next_experts(h, r);
}

static const struct bind_rule rules[] = {BLOCK_ATTN_RULES,
                                         BLOCK_HEAD_NORM_RULES,
                                         BLOCK_DELTA_QKV_RULES(RULE),
                                         RULE(MATRIX, "ssm_beta", delta_b, DIM_EMBD, DIM_DELTA_HEADS, IN_RECURRENT),
                                         RULE(MATRIX, "ssm_alpha", delta_a, DIM_EMBD, DIM_DELTA_HEADS, IN_RECURRENT),
                                         BLOCK_DELTA_RULES,
                                         BLOCK_MOE_POST_RULES,
                                         BLOCK_SHARED_EXPERT_RULES,
                                         BLOCK_SHARED_ROUTER_RULES,
                                         {0}};

const struct arch arch_qwen35moe = {.name = "qwen35moe",
                                    .hparams = qwen35moe_hparams,
                                    .rules = rules,
                                    .layer = qwen3next_layer,
                                    .keys = (const char *const[]){"expert_count", "expert_used_count", NULL},
                                    .has_nextn = true};
