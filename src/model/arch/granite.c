/* SPDX-License-Identifier: MIT
 *
 * granite.c: Granite 3 and 4 (dense).
 *
 * The llama layer, with rows permuted by the converter as in llama files, and four numbers from the file. The embedding
 * is multiplied by embedding_scale, the result of each block by residual_scale, and q k by attention.scale instead of
 * 1 / sqrt(head_dim). The logits are divided by logit_scale. A file with rope.scaling.finetuned = false has no
 * rotation. IBM, "Granite 3.0 language models", 2024.
 */
#include "model/arch/arch.h"
#include "model/block.h"

static int granite_hparams(struct hparams *h, struct hp_reader *r)
{
    bool is_rotated;
    int rc = hp_flag(r, "rope.scaling.finetuned", true, &is_rotated);
    if (rc) return rc;
    h->rope_adjacent = true;
    h->logit_scale = 1 / h->logit_scale;
    for (int i = 0; i < h->n_layer && !is_rotated; i++) h->layer[i].rope = ROPE_OFF;
    return 0;
}

static const struct bind_rule rules[] = {BLOCK_ATTN_RULES, BLOCK_FFN_RULES, {0}};
static const char *const keys[] = {"embedding_scale", "residual_scale", "attention.scale", "logit_scale", NULL};

static void granite_layer(const struct member *me, int il)
{
    block_attn(me, il);
    block_ffn(me, il, ACTIV_SILU);
}

const struct arch arch_granite = {
    .name = "granite", .hparams = granite_hparams, .rules = rules, .layer = granite_layer, .keys = keys};
