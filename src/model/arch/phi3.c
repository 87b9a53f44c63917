/* SPDX-License-Identifier: MIT
 *
 * phi3.c: Phi-3, Phi-3.5 and Phi-4 (dense).
 *
 * The llama layer with rotation pairs half the rotated part apart, q, k and v in one matrix, and gate (first) and up in
 * one. Phi-4-mini rotates a part of each head only. The models for long contexts divide the frequencies by one of two
 * tables (LongRoPE); files carry the tables and the multiplier of cos and sin, but not always `longrope` as the type.
 *
 * The window in the files is not applied, because converters wrote values from which the layers that have it cannot be
 * known; llama.cpp does not apply it either. Abdin et al., "Phi-3 technical report", 2024.
 */
#include "model/arch/arch.h"
#include "model/block.h"

static int phi3_hparams(struct hparams *h, struct hp_reader *r)
{
    h->rope_adjacent = false;
    for (int i = 0; i < h->n_layer; i++) h->layer[i].n_swa = 0;
    if (!weights_tensor(r->w, "rope_factors_long.weight") && !weights_tensor(r->w, "rope_factors_short.weight"))
        return 0;
    if (h->rope_scaling != ROPE_NONE && h->rope_scaling != ROPE_LONG)
        return error_set(r->e, QN_EUNSUP, "model: rope_factors_long and '%s' that is not longrope",
                         hp_key(r, "rope.scaling.type"));
    h->rope_scaling = ROPE_LONG;
    return 0;
}

static const struct bind_rule rules[] = {BLOCK_ATTN_RULES, BLOCK_FFN_FUSED_RULES, {0}};

static void phi3_layer(const struct member *me, int il)
{
    block_attn(me, il);
    block_ffn(me, il, ACTIV_SILU);
}

const struct arch arch_phi3 = {.name = "phi3", .hparams = phi3_hparams, .rules = rules, .layer = phi3_layer};
