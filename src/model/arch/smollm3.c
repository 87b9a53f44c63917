/* SPDX-License-Identifier: MIT
 *
 * smollm3.c: SmolLM3.
 *
 * The llama layer, but every fourth layer does not rotate q and k. Yang et al., "RoPE to NoPE and back again", 2025;
 * Hugging Face, "SmolLM3: smol, multilingual, long-context reasoner", 2025.
 */
#include "model/arch/arch.h"
#include "model/block.h"

enum { PERIOD = 4 };

static int smollm3_hparams(struct hparams *h, struct hp_reader *r)
{
    (void)r;
    h->rope_adjacent = true;
    for (int i = PERIOD - 1; i < h->n_layer; i += PERIOD) h->layer[i].rope = ROPE_OFF;
    return 0;
}

static const struct bind_rule rules[] = {BLOCK_ATTN_RULES, BLOCK_FFN_RULES, {0}};
static const char *const keys[] = {"attention.scale", NULL};

static void smollm3_layer(const struct member *me, int il)
{
    block_attn(me, il);
    block_ffn(me, il, ACTIV_SILU);
}

const struct arch arch_smollm3 = {
    .name = "smollm3", .hparams = smollm3_hparams, .rules = rules, .layer = smollm3_layer, .keys = keys};
