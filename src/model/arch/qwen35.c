/* SPDX-License-Identifier: MIT
 *
 * qwen35.c: Qwen3.5 (dense): three layers of gated DeltaNet, then one with attention.
 *
 * Attention's queries come with a gate for its output; q and k have head norms, and the first quarter of a head is
 * rotated (text has one position, so the sections of the rotation are all the same). GGUF files have the value heads in
 * an order in which head h reads key head h % n_head_k; a folder of safetensors keeps them grouped, h / r, and says so,
 * as may a file of Ollama's converter.
 * A block after the last layer may predict the token after the next one (nextn.h).
 */
#include "model/arch/arch.h"
#include "model/block.h"

int qwen35_head_order(struct hparams *h, struct hp_reader *r)
{
    bool is_reordered = true; /* the key of Ollama's files */
    int rc = hp_flag(r, "ssm.v_head_reordered", true, &is_reordered);
    if (rc) return rc;
    h->delta_is_grouped = !is_reordered;
    rc = meta_bool(r->w, "quern.value_heads_grouped", &h->delta_is_grouped, r->e);
    return rc < 0 ? rc : 0;
}

static int qwen35_hparams(struct hparams *h, struct hp_reader *r)
{
    int rc = delta_hparams(h, r);
    return rc ? rc : qwen35_head_order(h, r);
}

static const struct bind_rule rules[] = {BLOCK_ATTN_RULES,
                                         BLOCK_HEAD_NORM_RULES,
                                         BLOCK_DELTA_QKV_RULES(RULE),
                                         RULE(MATRIX, "ssm_beta", delta_b, DIM_EMBD, DIM_DELTA_HEADS, IN_RECURRENT),
                                         RULE(MATRIX, "ssm_alpha", delta_a, DIM_EMBD, DIM_DELTA_HEADS, IN_RECURRENT),
                                         BLOCK_DELTA_RULES,
                                         BLOCK_FFN_POST_RULES,
                                         {0}};

static void qwen35_layer(const struct member *me, int il)
{
    block_hybrid(me, il);
    block_ffn(me, il, ACTIV_SILU);
}

const struct arch arch_qwen35 = {
    .name = "qwen35", .hparams = qwen35_hparams, .rules = rules, .layer = qwen35_layer, .has_nextn = true};
