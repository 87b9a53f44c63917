/* SPDX-License-Identifier: MIT
 *
 * block_attn.c: softmax attention with grouped KV heads, with norms in the four places that families use. Vaswani et
 * al. 2017; Ainslie et al. 2023.
 */
#include "model/block.h"
#include "model/pass/ops_attn.h"
#include "model/pass/ops_common.h"

static void norm_project(const struct member *me, int il)
{
    const struct layer *l = &me->pass->model->layers[il];
    op_norm(me, il, "attn_norm", l->attn_norm, (const struct linear *const[]){&l->wq, &l->wk, &l->wv, NULL});
    op_project(me, il, &me->pass->h);
}

void block_attn(const struct member *me, int il)
{
    const struct linear *wo = &me->pass->model->layers[il].wo;
    norm_project(me, il);
    op_attend(me, il);
    op_quant_att(me, il, (const struct linear *const[]){wo, NULL});
    op_matmul_add(me, il, OP_ATTENTION_MATRIX, "attn_output", wo, &me->pass->att);
}

/* Adds the normalised output to x. */
static void output_post(const struct member *me, int il)
{
    const struct layer *l = &me->pass->model->layers[il];
    op_quant_att(me, il, (const struct linear *const[]){&l->wo, NULL});
    op_matmul(me, il, OP_ATTENTION_MATRIX, "attn_output", &l->wo, &me->pass->att, me->pass->h.f32);
    op_sync(me);
    op_norm_add(me, il, "attn_post_norm", l->attn_post_norm);
}

void block_attn_post(const struct member *me, int il)
{
    norm_project(me, il);
    op_attend(me, il);
    output_post(me, il);
}

void block_attn_bare(const struct member *me, int il)
{
    const struct layer *l = &me->pass->model->layers[il];
    op_quant_x(me, il, (const struct linear *const[]){&l->wq, &l->wk, &l->wv, NULL});
    op_project(me, il, &me->pass->bare);
    op_attend(me, il);
    output_post(me, il);
}

void block_attn_sub(const struct member *me, int il)
{
    const struct layer *l = &me->pass->model->layers[il];
    norm_project(me, il);
    op_attend(me, il);
    op_norm_att(me, il, l->attn_sub_norm, (const struct linear *const[]){&l->wo, NULL});
    op_matmul_add(me, il, OP_ATTENTION_MATRIX, "attn_output", &l->wo, &me->pass->att);
}
