/* SPDX-License-Identifier: MIT
 *
 * gpt_oss.c: gpt-oss-20b and gpt-oss-120b.
 *
 *   h = x + Wo Attn(RoPE(Wq n), RoPE(Wk n), Wv n) + b     n = RMS(x; attn_norm)
 *   x = h + the sum of weight * expert(m)                 m = RMS(h; post_attention_norm)
 *
 * Every matrix has a bias, those of the experts included. Each attention head has a logit that takes part in the
 * softmax and has no value (a sink). Layers 0, 2, 4, ... see a window only. The experts with the largest logits are
 * weighted by the softmax of these logits. Their network clamps its factors (docs/KERNELS.md).
 *
 * YaRN ramps from pair 8.0928 to 17.3980 and not between whole pairs, because the models were trained that way
 * (`truncate` is false in their config.json). GGUF files have no key for it. OpenAI, "gpt-oss-120b & gpt-oss-20b model
 * card", 2025, and its torch implementation.
 */
#include "model/arch/arch.h"
#include "model/block.h"

enum { PERIOD = 2 };

static int gpt_oss_hparams(struct hparams *h, struct hp_reader *r)
{
    int rc;
    h->rope_adjacent = false;
    if (!weights_meta(r->w, HP_YARN_TRUNCATE)) h->yarn_exact_range = true;
    if (!h->n_expert) return error_set(r->e, QN_EDATA, "model: key '%s' is missing or 0", hp_key(r, "expert_count"));
    if (!hp_has(r, "attention.sliding_window")) return error_set(r->e, QN_EDATA, "model: key '%s' is missing", r->key);
    if ((rc = hp_windows(r, h, PERIOD))) return rc;
    return hp_routing(r, h, GATE_SOFTMAX_OF_CHOSEN, false);
}

static const struct bind_rule rules[] = {
    BLOCK_ATTN_RULES,
    BLOCK_SINK_RULES,
    BLOCK_EXPERT_RULES,
    RULE(VECTOR, "post_attention_norm", ffn_norm, DIM_EMBD, DIM_NONE, IN_ALL),
    {0},
};
static const char *const keys[] = {"expert_count", "expert_used_count", "attention.sliding_window_pattern", NULL};

static void gpt_oss_layer(const struct member *me, int il)
{
    block_attn(me, il);
    block_moe(me, il, ACTIV_CLAMPED);
}

const struct arch arch_gpt_oss = {
    .name = "gpt-oss", .hparams = gpt_oss_hparams, .rules = rules, .layer = gpt_oss_layer, .keys = keys};
