/* SPDX-License-Identifier: MIT
 *
 * glm4.c: GLM-4-0414 and GLM-Z1, 9B and 32B (dense).
 *
 * The llama layer with a second norm after attention and after the network, before the result is added. Gate (first)
 * and up are one matrix; q, k and v may be. Half of each head is rotated, in adjacent pairs. Files of models that also
 * read images (GLM-4.1V, GLM-OCR) have sections of the rotation, which are all the same for text, and rows whose pairs
 * are half the rotated dims apart. GLM team, "ChatGLM: a family of large language models from GLM-130B to GLM-4", 2024.
 */
#include "model/arch/arch.h"
#include "model/block.h"

static int glm4_hparams(struct hparams *h, struct hp_reader *r)
{
    int64_t v = 0;
    int rc = 0;
    const struct meta *m = weights_meta(r->w, hp_key(r, "rope.dimension_sections"));
    h->rope_adjacent = true;
    for (uint64_t i = 0; m && i < m->n && !rc; i++) {
        rc = meta_elem_i64(m, i, &v, r->e);
        if (v != 0) h->rope_adjacent = false;
    }
    return rc;
}

static const struct bind_rule rules[] = {BLOCK_ATTN_RULES, BLOCK_FFN_FUSED_RULES, BLOCK_POST_NORM_RULES, {0}};

static void glm4_layer(const struct member *me, int il)
{
    block_attn_post(me, il);
    block_ffn_post(me, il, ACTIV_SILU);
}

const struct arch arch_glm4 = {.name = "glm4", .hparams = glm4_hparams, .rules = rules, .layer = glm4_layer};
