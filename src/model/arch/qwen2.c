/* SPDX-License-Identifier: MIT
 *
 * qwen2.c: Qwen2 and Qwen2.5 (dense).
 *
 * The llama layer with biases on q, k and v and rotation pairs that are half a head apart.
 * Yang et al., "Qwen2 technical report", 2024.
 */
#include "model/arch/arch.h"
#include "model/block.h"

static int qwen2_hparams(struct hparams *h, struct hp_reader *r)
{
    (void)r;
    h->rope_adjacent = false;
    return 0;
}

static const struct bind_rule rules[] = {BLOCK_ATTN_RULES, BLOCK_FFN_RULES, {0}};

static void qwen2_layer(const struct member *me, int il)
{
    block_attn(me, il);
    block_ffn(me, il, ACTIV_SILU);
}

const struct arch arch_qwen2 = {.name = "qwen2", .hparams = qwen2_hparams, .rules = rules, .layer = qwen2_layer};
