/* SPDX-License-Identifier: MIT
 *
 * gemma.c: Gemma (the first).
 *
 *   x = sqrt(n_embd) E[token]
 *   h = x + Wo Attn(RoPE(Wq n), RoPE(Wk n), Wv n)     n = RMS(x; attn_norm)
 *   x = h + Wdown (GELU(Wgate m) * (Wup m))           m = RMS(h; ffn_norm)
 *
 * GELU is the tanh form. The converter has added the 1 that the original adds to every norm's weights. The output
 * matrix is the embedding, unscaled. Mesnard et al., "Gemma: open models based on Gemini research and technology",
 * 2024.
 */
#include "model/arch/arch.h"

#include <math.h>

#include "model/block.h"

static int gemma_hparams(struct hparams *h, struct hp_reader *r)
{
    (void)r;
    h->rope_adjacent = false;
    h->embd_scale = sqrtf((float)h->n_embd);
    return 0;
}

static const struct bind_rule rules[] = {BLOCK_ATTN_RULES, BLOCK_FFN_RULES, {0}};

static void gemma_layer(const struct member *me, int il)
{
    block_attn(me, il);
    block_ffn(me, il, ACTIV_GELU);
}

const struct arch arch_gemma = {.name = "gemma", .hparams = gemma_hparams, .rules = rules, .layer = gemma_layer};
