/* SPDX-License-Identifier: MIT
 *
 * gemma2.c: Gemma 2.
 *
 * The gemma layer with a second norm after attention and after the network, before the result is added. Layers 0, 2,
 * 4, ... see a window only. Attention's logits and the final ones are capped: c tanh(z / c).
 *
 * Queries are scaled by 1 / sqrt(head_dim), but in the model of 46 layers (27B) by 1 / sqrt(n_embd / n_head). GGUF
 * files have no key for it; llama.cpp decides by the number of layers, too. Folders have it (attention.scale).
 * Files without a window or caps were written before there were keys for them: 4096, 50 and 30. Gemma team, "Gemma 2:
 * improving open language models at a practical size", 2024.
 */
#include "model/arch/arch.h"

#include <math.h>

#include "model/block.h"

enum { LAYERS_27B = 46, WINDOW = 4096, PERIOD = 2 };

static int gemma2_hparams(struct hparams *h, struct hp_reader *r)
{
    h->rope_adjacent = false;
    h->embd_scale = sqrtf((float)h->n_embd);
    if (h->n_layer == LAYERS_27B && !hp_has(r, "attention.scale"))
        h->attn_scale = 1 / sqrtf((float)(h->n_embd / h->n_head));
    if (!hp_has(r, "attention.sliding_window")) h->n_swa = WINDOW;
    if (!hp_has(r, "attn_logit_softcapping")) h->attn_softcap = 50;
    if (!hp_has(r, "final_logit_softcapping")) h->logit_softcap = 30;
    return hp_windows(r, h, PERIOD);
}

static const struct bind_rule rules[] = {BLOCK_ATTN_RULES, BLOCK_FFN_RULES, BLOCK_POST_NORM_RULES, {0}};
static const char *const keys[] = {"attn_logit_softcapping", "final_logit_softcapping", "attention.scale", NULL};

static void gemma2_layer(const struct member *me, int il)
{
    block_attn_post(me, il);
    block_ffn_post(me, il, ACTIV_GELU);
}

const struct arch arch_gemma2 = {
    .name = "gemma2", .hparams = gemma2_hparams, .rules = rules, .layer = gemma2_layer, .keys = keys};
