/* SPDX-License-Identifier: MIT
 *
 * bitnet.c: BitNet b1.58: weights of -1, 0 and 1 with one scale a matrix.
 *
 *   h = x + Wo RMS(Attn(RoPE(Wq n), RoPE(Wk n), Wv n); attn_sub_norm)          n = RMS(x; attn_norm)
 *   x = h + Wdown RMS(f(Wgate m) * (Wup m); ffn_sub_norm)                      m = RMS(h; ffn_norm)
 *
 * `bitnet` (the 3B reproduction) has f = SiLU; `bitnet-b1.58` (the 2B of 2025) and `bitnet-25`, an older name, have
 * f(g) = max(g, 0)^2. The scale is a tensor next to the matrix, or in its blocks. Ma et al., "The era of 1-bit LLMs",
 * 2024; Ma et al., "BitNet b1.58 2B4T technical report", 2025.
 */
#include "model/arch/arch.h"
#include "model/block.h"

static int bitnet_hparams(struct hparams *h, struct hp_reader *r)
{
    (void)r;
    h->rope_adjacent = false;
    return 0;
}

static const struct bind_rule rules[] = {BLOCK_ATTN_RULES, BLOCK_FFN_RULES, BLOCK_SUB_NORM_RULES, {0}};

static void bitnet_layer(const struct member *me, int il)
{
    block_attn_sub(me, il);
    block_ffn_sub(me, il, ACTIV_SILU);
}

static void bitnet_158_layer(const struct member *me, int il)
{
    block_attn_sub(me, il);
    block_ffn_sub(me, il, ACTIV_RELU2);
}

const struct arch arch_bitnet = {.name = "bitnet", .hparams = bitnet_hparams, .rules = rules, .layer = bitnet_layer};
const struct arch arch_bitnet_158 = {
    .name = "bitnet-b1.58", .hparams = bitnet_hparams, .rules = rules, .layer = bitnet_158_layer};
const struct arch arch_bitnet_25 = {
    .name = "bitnet-25", .hparams = bitnet_hparams, .rules = rules, .layer = bitnet_158_layer};
