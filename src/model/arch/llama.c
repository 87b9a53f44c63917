/* SPDX-License-Identifier: MIT
 *
 * llama.c: Llama 2 and 3, Mistral, TinyLlama, SmolLM2, Yi, Mixtral: everything converted as `llama`.
 *
 *   h = x + Wo Attn(RoPE(Wq n), RoPE(Wk n), Wv n)     n = RMS(x; attn_norm)
 *   x = h + Wdown (SiLU(Wgate m) * (Wup m))           m = RMS(h; ffn_norm)
 *
 * The converter to GGUF has permuted the rows of Wq and Wk so that rotation pairs are adjacent; folders have them as
 * they were trained. Biases are applied where the file has them. Mixtral has experts in the place of the network:
 * softmax over the chosen ones' logits, which is softmax over all, made to sum to 1. Touvron et al. 2023; Dubey et al.
 * 2024; Jiang et al., "Mixtral of experts", 2024.
 */
#include "model/arch/arch.h"
#include "model/block.h"

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

static void llama_layer(const struct worker *w, int il)
{
    block_attn(w, il);
    if (w->s->model->hp.layer[il].has_experts)
        block_moe(w, il, ACTIV_SILU);
    else
        block_ffn(w, il, ACTIV_SILU);
}

const struct arch arch_llama = {
    .name = "llama", .hparams = llama_hparams, .rules = rules, .layer = llama_layer, .keys = keys};
