/* SPDX-License-Identifier: MIT
 *
 * llama.c: Llama 2 and 3, Mistral, TinyLlama, SmolLM2, Yi, Mixtral: everything converted as `llama`.
 *
 *   h = x + Wo Attn(RoPE(Wq n), RoPE(Wk n), Wv n)     n = RMS(x; attn_norm)
 *   x = h + Wdown (SiLU(Wgate m) * (Wup m))           m = RMS(h; ffn_norm)
 *
 * The converter to GGUF permutes the rows of Wq and Wk so that rotation pairs are adjacent; folders have the original
 * order. Biases are applied if the file has them. Mixtral has experts instead of the network. They are weighted by the
 * softmax over the chosen experts' logits, which equals the softmax over all, divided by the sum of the chosen ones.
 * Touvron et al. 2023; Dubey et al. 2024; Jiang et al., "Mixtral of experts", 2024.
 */
#include "model/arch/arch.h"
#include "model/block.h"
#include "model/pass/op.h"

static int llama_hparams(struct hparams *h, struct hp_reader *r)
{
    bool is_half_split = false;
    int rc = meta_bool(r->w, "quern.rope_half_split", &is_half_split, r->e);
    if (rc < 0) return rc;
    h->rope_adjacent = !is_half_split;
    return h->n_expert ? hp_routing(r, h, GATE_SOFTMAX, true) : 0;
}

static const struct bind_rule rules[] = {BLOCK_ATTN_RULES, BLOCK_FFN_RULES, BLOCK_EXPERT_RULES, {0}};
static const char *const keys[] = {"expert_count", "expert_used_count", NULL};

static void llama_layer(const struct member *me, int il)
{
    block_attn(me, il);
    if (me->pass->model->hp.layer[il].has_experts)
        block_moe(me, il, ACTIV_SILU);
    else
        block_ffn(me, il, ACTIV_SILU);
}

const struct arch arch_llama = {
    .name = "llama", .hparams = llama_hparams, .rules = rules, .layer = llama_layer, .keys = keys};
