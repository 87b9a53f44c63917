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
    if (!h->n_expert) return error_set(r->e, QN_EDATA, "model: key '%s' is missing or 0", hp_key(r, "expert_count"));
    if ((rc = hp_int(r, "expert_shared_feed_forward_length", 1, HP_MAX_DIM, -1, &h->n_ff_shexp))) return rc;
    return hp_routing(r, h, GATE_SOFTMAX, true);
}

static const struct bind_rule rules[] = {BLOCK_ATTN_RULES,
                                         BLOCK_HEAD_NORM_RULES,
                                         BLOCK_DELTA_QKV_RULES(RULE),
                                         RULE(MATRIX, "ssm_beta", delta_b, DIM_EMBD, DIM_DELTA_HEADS, IN_RECURRENT),
                                         RULE(MATRIX, "ssm_alpha", delta_a, DIM_EMBD, DIM_DELTA_HEADS, IN_RECURRENT),
                                         BLOCK_DELTA_RULES,
                                         RULE(VECTOR, "post_attention_norm", ffn_norm, DIM_EMBD, DIM_NONE, IN_ALL),
                                         BLOCK_EXPERT_RULES,
                                         BLOCK_SHARED_EXPERT_RULES,
                                         BLOCK_SHARED_ROUTER_RULES,
                                         {0}};

static void qwen35moe_layer(const struct worker *w, int il)
{
    if (w->s->model->hp.layer[il].is_recurrent)
        block_delta(w, il);
    else
        block_attn(w, il);
    block_moe(w, il, ACTIV_SILU);
}

const struct arch arch_qwen35moe = {.name = "qwen35moe",
                                    .hparams = qwen35moe_hparams,
                                    .rules = rules,
                                    .layer = qwen35moe_layer,
                                    .keys = (const char *const[]){"expert_count", "expert_used_count", NULL}};
