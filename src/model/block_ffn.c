/* SPDX-License-Identifier: MIT
 *
 * block_ffn.c: the gated feed-forward network, with norms in the four places that families use. Shazeer, "GLU
 * variants improve Transformer", 2020.
 */
#include "model/block.h"
#include "model/pass/ops_common.h"

/* gate = f(Wgate src) * (Wup src), and normalised if there is a norm. */
static void gate_up(const struct member *me, int il, enum act_kind f, const struct acts *src, const float *norm)
{
    const struct layer *l = &me->pass->model->layers[il];
    op_gate_up(me, il, &(const struct op_gated){OP_FFN, f, &l->gate, &l->up, &l->down, norm}, src);
}

static void norm_gate(const struct member *me, int il, enum act_kind f, const float *sub_norm)
{
    const struct layer *l = &me->pass->model->layers[il];
    op_norm(me, il, "ffn_norm", l->ffn_norm, (const struct linear *const[]){&l->gate, &l->up, NULL});
    gate_up(me, il, f, &me->pass->h, sub_norm);
}

/* Adds the output to x. */
static void down_add(const struct member *me, int il)
{
    op_matmul_add(me, il, OP_FFN, "ffn_down", &me->pass->model->layers[il].down, &me->pass->gate);
}

/* Adds the normalised output to x. */
static void down_post(const struct member *me, int il)
{
    const struct layer *l = &me->pass->model->layers[il];
    op_matmul(me, il, OP_FFN, "ffn_down", &l->down, &me->pass->gate, me->pass->h.f32);
    op_sync(me);
    op_norm_add(me, il, "ffn_post_norm", l->ffn_post_norm);
}

void block_ffn(const struct member *me, int il, enum act_kind f)
{
    norm_gate(me, il, f, NULL);
    down_add(me, il);
}

void block_ffn_post(const struct member *me, int il, enum act_kind f)
{
    norm_gate(me, il, f, NULL);
    down_post(me, il);
}

void block_ffn_bare(const struct member *me, int il, enum act_kind f)
{
    const struct layer *l = &me->pass->model->layers[il];
    op_quant_x(me, il, (const struct linear *const[]){&l->gate, &l->up, NULL});
    gate_up(me, il, f, &me->pass->bare, NULL);
    down_post(me, il);
}

void block_ffn_sub(const struct member *me, int il, enum act_kind f)
{
    norm_gate(me, il, f, me->pass->model->layers[il].ffn_sub_norm);
    down_add(me, il);
}
