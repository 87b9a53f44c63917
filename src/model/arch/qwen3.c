/* SPDX-License-Identifier: MIT
 *
 * qwen3.c: Qwen3 (dense); WeDLM-8B has the same network.
 *
 * The qwen2 layer without biases, with an RMS norm of each head of q and k before the rotation;
 * the head dimension is given by the file. Yang et al., "Qwen3 technical report", 2025.
 */
#include "model/arch/arch.h"
#include "model/block.h"

static int qwen3_hparams(struct hparams *h, struct hp_reader *r)
{
    (void)r;
    h->rope_adjacent = false;
    return 0;
}

static const struct bind_rule rules[] = {BLOCK_ATTN_RULES, BLOCK_HEAD_NORM_RULES, BLOCK_FFN_RULES, {0}};

static void qwen3_layer(const struct member *me, int il)
{
    block_attn(me, il);
    block_ffn(me, il, ACTIV_SILU);
}

const struct arch arch_qwen3 = {.name = "qwen3", .hparams = qwen3_hparams, .rules = rules, .layer = qwen3_layer};
