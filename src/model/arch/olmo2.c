/* SPDX-License-Identifier: MIT
 *
 * olmo2.c: OLMo 2 and 3.
 *
 *   h = x + RMS(Wo Attn(RoPE(RMS(Wq x)), RoPE(RMS(Wk x)), Wv x); attn_post_norm)
 *   x = h + RMS(Wdown (SiLU(Wgate h) * (Wup h)); ffn_post_norm)
 *
 * Norms come only after the blocks; those of q and k are over all heads together. Files of OLMo 3 have a window, which
 * applies to three layers of four; the rotation of these is not scaled. The first files of OLMo 3 have the value of
 * yarn_attn_factor under the name attn_factor. OLMo team, "2 OLMo 2 furious", 2024; "Olmo 3", 2025.
 */
#include "model/arch/arch.h"
#include "model/block.h"

enum { PERIOD = 4 };

static int olmo2_hparams(struct hparams *h, struct hp_reader *r)
{
    int rc;
    h->rope_adjacent = false;
    if ((rc = hp_float(r, "rope.freq_base_swa", 0, 1e30, h->rope_base, &h->rope_base_local))) return rc;
    if ((rc = hp_windows(r, h, PERIOD))) return rc;
    if (h->rope_scaling == ROPE_YARN && h->rope_attn_factor != 1) {
        h->yarn_attn_factor = h->rope_attn_factor;
        h->rope_attn_factor = 1;
    }
    for (int i = 0; i < h->n_layer; i++)
        if (h->layer[i].n_swa) h->layer[i].rope = ROPE_LOCAL;
    return 0;
}

static const struct bind_rule rules[] = {
    BLOCK_ATTN_MATRICES, BLOCK_ROW_NORM_RULES, BLOCK_FFN_MATRICES, BLOCK_POST_NORM_RULES, {0}};
static const char *const keys[] = {"attention.sliding_window_pattern", "rope.freq_base_swa", NULL};

static void olmo2_layer(const struct member *me, int il)
{
    block_attn_bare(me, il);
    block_ffn_bare(me, il, ACTIV_SILU);
}

const struct arch arch_olmo2 = {
    .name = "olmo2", .hparams = olmo2_hparams, .rules = rules, .layer = olmo2_layer, .keys = keys};
