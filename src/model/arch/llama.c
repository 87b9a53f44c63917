/* SPDX-License-Identifier: MIT
 *
 * llama.c: Llama 2 and 3, Mistral, TinyLlama, SmolLM2, Yi: everything converted as `llama`.
 *
 *   h = x + Wo Attn(RoPE(Wq n), RoPE(Wk n), Wv n)     n = RMS(x; attn_norm)
 *   x = h + Wdown (SiLU(Wgate m) * (Wup m))           m = RMS(h; ffn_norm)
 *
 * The converter to GGUF has permuted the rows of Wq and Wk so that rotation pairs are adjacent; folders have them as
 * they were trained.
 * Biases are applied where the file has them. Touvron et al. 2023; Dubey et al. 2024.
 */
#include "model/arch/arch.h"
#include "model/block.h"

static int llama_hparams(struct hparams *h, struct hp_reader *r)
{
    bool is_half_split = false;
    int rc = meta_bool(r->w, "quern.rope_half_split", &is_half_split, r->e);
    h->rope_adjacent = !is_half_split;
    return rc < 0 ? rc : 0;
}

static const struct bind_rule rules[] = {BLOCK_ATTN_RULES, BLOCK_FFN_RULES, {0}};

static void llama_layer(const struct worker *w, int il)
{
    block_attn(w, il);
    block_ffn(w, il, ACTIV_SILU);
}

const struct arch arch_llama = {.name = "llama", .hparams = llama_hparams, .rules = rules, .layer = llama_layer};
