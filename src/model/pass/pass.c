/* SPDX-License-Identifier: MIT
 *
 * pass.c: the buffers of a forward pass.
 */
#include "model/pass/pass.h"

#include "base/inline/minmax.h"

/* The width of the network that every token takes: the dense one, or the expert of all tokens. */
static int dense_width(const struct hparams *h)
{
    int n_ff = 0;
    for (int il = h->layer_lo; il < h->layer_hi + (h->layer_hi == h->n_layer && h->n_nextn); il++)
        n_ff = max_int(n_ff, h->layer[il].has_experts ? h->n_ff_shexp : h->n_ff);
    return n_ff;
}

size_t pass_cut(struct pass *p, const struct model *m, int n, int n_threads, uint8_t *base)
{
    const struct hparams *h = &m->hp;
    struct cutter c = {.base = base};
    int q = h->n_head * h->head_dim * (h->has_attn_gate ? 2 : 1), n_ff = dense_width(h);
    int att = max_int(hp_att_width(h), h->delta_n_head_v * h->delta_dim_v);
    p->x = cut_rows_apart(&c, n, h->n_embd);
    p->h.f32 = cut_rows(&c, n, h->n_embd);
    p->q = cut_rows_apart(&c, n, q);
    p->k = cut_rows_apart(&c, n, h->n_head_kv * h->head_dim);
    p->v = cut_rows_apart(&c, n, h->n_head_kv * h->head_dim_v);
    p->gate.f32 = cut_rows(&c, n, n_ff);
    p->up = cut_rows(&c, n, n_ff);
    cut_acts(&c, n, max_int(h->n_embd, att), &p->h);
    cut_acts(&c, n, n_ff, &p->gate);
    p->att = p->h;
    p->att.f32 = cut_rows_apart(&c, n, att);
    delta_cut(&c, m, n, &p->delta);
    p->bare = p->h;
    p->bare.f32 = p->x;
    p->heads = h->latent_is_absorbed ? cut_rows(&c, n, h->n_head * h->head_dim_v) : p->att.f32;
    latent_cut(&c, h, n, p->q, &p->latent);
    moe_cut(&c, h, n, &p->moe);
    p->cs = cut_bytes(&c, (size_t)n * (size_t)(h->n_rot / 2) * sizeof *p->cs);
    if (h->has_local_rope) p->cs_local = cut_bytes(&c, (size_t)n * (size_t)(h->n_rot / 2) * sizeof *p->cs_local);
    p->scratch = cut_bytes(&c, (size_t)n_threads * KERNEL_SCRATCH_BYTES);
    attn_cut(&c, h, n, n_threads, &p->calls);
    states_cut(&c, n, &p->states);
    p->out_rows = cut_bytes(&c, (size_t)n * sizeof *p->out_rows);
    return c.used;
}
