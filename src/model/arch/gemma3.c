/* SPDX-License-Identifier: MIT
 *
 * gemma3.c: Gemma 3 (text).
 *
 * The gemma2 layer without caps and with a norm of each head of q and k before the rotation. Of six layers the first
 * five see a window only. They rotate by a base of their own, 10000 unless the file has another, which is never scaled.
 * The sixth sees everything and rotates by the model's base, which may be scaled.
 *
 * Queries are scaled by 1 / sqrt(head_dim), but in the model of 62 layers (27B) by 1 / sqrt(n_embd / n_head): as in
 * gemma2.c. Gemma team, "Gemma 3 technical report", 2025.
 */
#include "model/arch/arch.h"

#include <math.h>

#include "model/block.h"

enum { LAYERS_27B = 62, PERIOD = 6 };

/* Ollama's files had names of their own for the two bases. */
static int read_bases(struct hparams *h, struct hp_reader *r)
{
    int rc;
    if ((rc = hp_float(r, "rope.global.freq_base", 0, 1e30, h->rope_base, &h->rope_base))) return rc;
    if ((rc = hp_float(r, "rope.local.freq_base", 0, 1e30, 10000, &h->rope_base_local))) return rc;
    return hp_float(r, "rope.freq_base_swa", 0, 1e30, h->rope_base_local, &h->rope_base_local);
}

static int gemma3_hparams(struct hparams *h, struct hp_reader *r)
{
    int rc;
    h->rope_adjacent = false;
    h->embd_scale = sqrtf((float)h->n_embd);
    if (h->n_layer == LAYERS_27B && !hp_has(r, "attention.scale"))
        h->attn_scale = 1 / sqrtf((float)(h->n_embd / h->n_head));
    if ((rc = read_bases(h, r))) return rc;
    if ((rc = hp_windows(r, h, PERIOD))) return rc;
    for (int i = 0; i < h->n_layer; i++)
        if (h->layer[i].n_swa) h->layer[i].rope = ROPE_LOCAL;
    return 0;
}

static const struct bind_rule rules[] = {
    BLOCK_ATTN_RULES, BLOCK_HEAD_NORM_RULES, BLOCK_FFN_RULES, BLOCK_POST_NORM_RULES, {0}};
static const char *const keys[] = {"final_logit_softcapping", "attention.scale", NULL};

static void gemma3_layer(const struct member *me, int il)
{
    block_attn_post(me, il);
    block_ffn_post(me, il, ACTIV_GELU);
}

const struct arch arch_gemma3 = {
    .name = "gemma3", .hparams = gemma3_hparams, .rules = rules, .layer = gemma3_layer, .keys = keys};
