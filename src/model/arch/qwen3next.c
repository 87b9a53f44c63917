/* SPDX-License-Identifier: MIT
 *
 * qwen3next.c: Qwen3-Next and Qwen3-Coder-Next: three layers of gated DeltaNet, then one with gated attention; a
 * mixture of experts, and one of all tokens, in every layer.
 *
 * Value heads are grouped: head h reads key head h / r. Older files have DeltaNet's four projections in one matrix with
 * the rows of each key head together, as in training. Newer files have them in separate matrices.
 */
#include <stdio.h>

#include "model/arch/arch.h"
#include "model/block.h"

/* Checks that every recurrent layer has its projections in one of the two forms, which rules cannot express. */
static int check_projections(const struct hparams *h, struct hp_reader *r)
{
    for (int i = 0; i < h->n_layer; i++) {
        static const char *const names[] = {"ssm_in", "attn_qkv", "attn_gate"};
        bool has[3];
        char name[64];
        if (!h->layer[i].is_recurrent) continue;
        for (int j = 0; j < 3; j++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", i, names[j]);
            has[j] = weights_tensor(r->w, name) != NULL;
        }
        if (has[0] && (has[1] || has[2]))
            return error_set(r->e, QN_EDATA,
                             "model: tensors 'blk.%d.ssm_in.weight' and 'blk.%d.%s.weight' are both there", i, i,
                             names[has[1] ? 1 : 2]);
        if (!has[0] && !(has[1] && has[2]))
            return error_set(r->e, QN_EDATA, "model: tensor 'blk.%d.%s.weight' is missing", i, names[has[1] ? 2 : 1]);
    }
    return 0;
}

int qwen3next_experts(struct hparams *h, struct hp_reader *r)
{
    if (!h->n_expert) return error_set(r->e, QN_EDATA, "model: key '%s' is missing or 0", hp_key(r, "expert_count"));
    int rc = hp_int(r, "expert_shared_feed_forward_length", 1, HP_MAX_DIM, -1, &h->n_ff_shexp);
    return rc ? rc : hp_routing(r, h, GATE_SOFTMAX, true);
}

static int qwen3next_hparams(struct hparams *h, struct hp_reader *r)
{
    int rc;
    if ((rc = delta_hparams(h, r))) return rc;
    h->delta_is_grouped = true;
    if ((rc = qwen3next_experts(h, r))) return rc;
    return check_projections(h, r);
}

static const struct bind_rule rules[] = {
    BLOCK_ATTN_RULES,
    BLOCK_HEAD_NORM_RULES,
    RULE_OPTIONAL(MATRIX, "ssm_in", delta_in, DIM_EMBD, DIM_DELTA_IN, IN_RECURRENT),
    BLOCK_DELTA_QKV_RULES(RULE_OPTIONAL),
    RULE(MATRIX, "ssm_ba", delta_ba, DIM_EMBD, DIM_DELTA_BA, IN_RECURRENT),
    BLOCK_DELTA_RULES,
    BLOCK_MOE_POST_RULES,
    BLOCK_SHARED_EXPERT_RULES,
    BLOCK_SHARED_ROUTER_RULES,
    {0}};

void qwen3next_layer(const struct member *me, int il)
{
    block_hybrid(me, il);
    block_moe(me, il, ACTIV_SILU);
}

const struct arch arch_qwen3next = {.name = "qwen3next",
                                    .hparams = qwen3next_hparams,
                                    .rules = rules,
                                    .layer = qwen3next_layer,
                                    .keys = (const char *const[]){"expert_count", "expert_used_count", NULL},
                                    .has_nextn = true};
