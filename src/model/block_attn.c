/* SPDX-License-Identifier: MIT
 *
 * block_attn.c: softmax attention with grouped KV heads, in the four ways that families put norms around it. Vaswani et
 * al. 2017; Ainslie et al. 2023.
 */
#include "model/block.h"

/* q, k and v of src's rows: stored and ready for op_attend(). */
static void project(const struct worker *w, int il, const struct acts *src)
{
    struct step *s = w->s;
    const struct layer *l = &s->model->layers[il];
    op_matmul(w, il, "attn_q", &l->wq, src, s->q);
    op_matmul(w, il, "attn_k", &l->wk, src, s->k);
    op_matmul(w, il, "attn_v", &l->wv, src, s->v);
    op_sync(w);
    if (l->q_row_norm) op_norm_qk(w, il);
    op_rope_store(w, il);
}

static void norm_project(const struct worker *w, int il)
{
    const struct layer *l = &w->s->model->layers[il];
    op_norm(w, il, "attn_norm", l->attn_norm, (const struct linear *const[]){&l->wq, &l->wk, &l->wv, NULL});
    project(w, il, &w->s->h);
}

void block_attn(const struct worker *w, int il)
{
    const struct linear *wo = &w->s->model->layers[il].wo;
    norm_project(w, il);
    op_attend(w, il);
    op_quant_att(w, il, (const struct linear *const[]){wo, NULL});
    op_matmul_add(w, il, "attn_output", wo, &w->s->att);
}

/* What attention gives, normalised and added. */
static void output_post(const struct worker *w, int il)
{
    const struct layer *l = &w->s->model->layers[il];
    op_quant_att(w, il, (const struct linear *const[]){&l->wo, NULL});
    op_matmul(w, il, "attn_output", &l->wo, &w->s->att, w->s->h.f32);
    op_sync(w);
    op_norm_add(w, il, "attn_post_norm", l->attn_post_norm);
}

void block_attn_post(const struct worker *w, int il)
{
    norm_project(w, il);
    op_attend(w, il);
    output_post(w, il);
}

void block_attn_bare(const struct worker *w, int il)
{
    const struct layer *l = &w->s->model->layers[il];
    op_quant_x(w, il, (const struct linear *const[]){&l->wq, &l->wk, &l->wv, NULL});
    project(w, il, &w->s->bare);
    op_attend(w, il);
    output_post(w, il);
}

void block_attn_sub(const struct worker *w, int il)
{
    const struct layer *l = &w->s->model->layers[il];
    norm_project(w, il);
    op_attend(w, il);
    op_norm_att(w, il, l->attn_sub_norm, (const struct linear *const[]){&l->wo, NULL});
    op_matmul_add(w, il, "attn_output", &l->wo, &w->s->att);
}
