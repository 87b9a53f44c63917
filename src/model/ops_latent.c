/* SPDX-License-Identifier: MIT
 *
 * ops_latent.c: the operations of latent attention between its matrices: norms of what was compressed, rotation of the
 * parts that are rotated, storing, and products with a matrix a head. See block_latent.c.
 *
 * Every value is one member's whole work and every sum one kernel call's, as everywhere.
 */
#include <string.h>

#include "model/ops.h"

void latent_cut(struct cutter *c, const struct hparams *h, int n, struct step *s)
{
    struct latent_rows *t = &s->latent;
    int dim = h->latent_dim_nope + h->n_rot;
    if (!h->n_lora_kv) return;
    t->q = h->latent_is_absorbed ? cut_rows(c, n, h->n_head * dim) : s->q;
    t->kv = cut_rows(c, n, h->n_lora_kv + h->n_rot);
    t->low_q.f32 = cut_rows(c, n, h->n_lora_q);
    cut_acts(c, n, h->n_lora_q, &t->low_q);
    if (h->latent_is_absorbed) {
        int k = h->latent_dim_nope > h->n_lora_kv ? h->latent_dim_nope : h->n_lora_kv;
        t->heads.f32 = cut_rows(c, n * h->n_head, k);
        cut_acts(c, n * h->n_head, k, &t->heads);
    } else {
        t->kv_b = cut_rows(c, n, h->n_head * (h->latent_dim_nope + h->latent_dim_v));
        t->low_kv.f32 = cut_rows(c, n, h->n_lora_kv);
        cut_acts(c, n, h->n_lora_kv, &t->low_kv);
    }
}

static const float (*rotations(const struct step *s, int r))[2]
{
    return (const float(*)[2])(s->cs + (size_t)r * (size_t)s->rope.n_pairs);
}

/* Row r of what was compressed. */
static void latent_norm_row(const struct worker *w, int il, int r)
{
    struct step *s = w->s;
    const struct hparams *h = &s->model->hp;
    const struct layer *l = &s->model->layers[il];
    struct latent_rows *t = &s->latent;
    float *kv = rows_at(t->kv, r);
    if (h->n_lora_q) {
        float *q = rows_at(t->low_q.f32, r);
        s->kt.rms_norm(q, l->q_a_norm, h->norm_eps, h->n_lora_q, q, w->scratch);
        op_quant_row(w, &t->low_q, h->n_lora_q, r, (const struct linear *const[]){&l->wq_b, NULL});
    }
    s->kt.rope(kv + h->n_lora_kv, rotations(s, r), s->rope.n_pairs, h->rope_adjacent, w->scratch);
    if (h->latent_is_absorbed) {
        s->kt.rms_norm(kv, l->kv_a_norm, h->norm_eps, h->n_lora_kv, kv, w->scratch);
        op_store(w, il, r, 0, kv, kv);
    } else {
        s->kt.rms_norm(kv, l->kv_a_norm, h->norm_eps, h->n_lora_kv, rows_at(t->low_kv.f32, r), w->scratch);
        op_quant_row(w, &t->low_kv, h->n_lora_kv, r, (const struct linear *const[]){&l->wkv_b, NULL});
    }
}

void op_latent_norm(const struct worker *w, int il)
{
    struct step *s = w->s;
    int lo, hi;
    op_begin(w, il, "latent_norm", -1, s->model->hp.n_lora_kv, 1, s->batch->n);
    op_share(w, s->batch->n, 1, &lo, &hi);
    for (int r = lo; r < hi; r++) latent_norm_row(w, il, r);
    if (w->ith == 0) atomic_store_explicit(&s->next_attend, 0, memory_order_relaxed); /* the sync publishes it */
    op_end(w);
    op_sync(w);
}

/* x [x->in] is what head `head` of row r multiplies with its matrix. */
static void put_head(const struct worker *w, const struct experts *m, int r, int head, const float *x)
{
    struct acts *heads = &w->s->latent.heads;
    int i = r * w->s->model->hp.n_head + head;
    const struct linear user = {.w = m->w};
    memcpy(rows_at(heads->f32, i), x, (size_t)m->in * sizeof *x);
    op_quant_row(w, heads, m->in, i, (const struct linear *const[]){&user, NULL});
}

/* Rotates q's part that is rotated. Absorbed: it joins the query, and the other is made ready for the head's matrix.
 * Expanded: the head's key is put together and stored, and its value. */
static void latent_head(const struct worker *w, int il, int r, int head)
{
    struct step *s = w->s;
    const struct hparams *h = &s->model->hp;
    const struct latent_rows *t = &s->latent;
    int nope = h->latent_dim_nope, dim = nope + h->n_rot;
    float *q = rows_at(t->q, r) + head * dim;
    const float *k_pe = rows_at(t->kv, r) + h->n_lora_kv;
    s->kt.rope(q + nope, rotations(s, r), s->rope.n_pairs, h->rope_adjacent, w->scratch);
    if (h->latent_is_absorbed) {
        memcpy(rows_at(s->q, r) + head * h->head_dim + h->n_lora_kv, q + nope, (size_t)h->n_rot * sizeof *q);
        put_head(w, &s->model->layers[il].wk_b, r, head, q);
        return;
    }
    const float *k_nope = rows_at(t->kv_b, r) + head * (nope + h->latent_dim_v);
    float *k = rows_at(s->k, r) + head * dim;
    memcpy(k, k_nope, (size_t)nope * sizeof *k);
    memcpy(k + nope, k_pe, (size_t)h->n_rot * sizeof *k);
    op_store(w, il, r, head, k, k_nope + nope);
}

/* f of every head of every row, in turn: pages that keys and values go to may be new, and are not all one member's. */
static void each_head(const struct worker *w, int il, void (*f)(const struct worker *w, int il, int r, int head))
{
    int n_head = w->s->model->hp.n_head, end = step_is_abandoned(w) ? 0 : w->s->batch->n * n_head;
    for (int u = w->ith; u < end; u += w->nth) f(w, il, u / n_head, u % n_head);
}

void op_latent_heads(const struct worker *w, int il)
{
    const struct hparams *h = &w->s->model->hp;
    op_begin(w, il, "latent_heads", -1, (int64_t)h->n_head * (h->latent_dim_nope + h->n_rot), 1, w->s->batch->n);
    each_head(w, il, latent_head);
    op_end(w);
    op_sync(w);
}

static void context_head(const struct worker *w, int il, int r, int head)
{
    struct step *s = w->s;
    put_head(w, &s->model->layers[il].wv_b, r, head, rows_at(s->heads, r) + head * s->model->hp.head_dim_v);
}

void op_latent_context(const struct worker *w, int il)
{
    const struct hparams *h = &w->s->model->hp;
    op_begin(w, il, "latent_context", -1, (int64_t)h->n_head * h->head_dim_v, 1, w->s->batch->n);
    each_head(w, il, context_head);
    op_end(w);
    op_sync(w);
}

void op_matmul_heads(const struct worker *w, int il, const char *name, const struct experts *m, struct rows y,
                     int ld_head)
{
    struct step *s = w->s;
    int n_head = s->model->hp.n_head, n = s->batch->n, lo, hi;
    enum act a = kernel_act_of(m->type);
    const struct acts *heads = &s->latent.heads;
    op_begin(w, il, name, m->type, (int64_t)n_head * m->out, m->in, n);
    op_share(w, n_head * m->out, OP_ROW_UNIT, &lo, &hi);
    for (int at = lo, end; at < hi; at = end) {
        int head = at / m->out, first = at % m->out;
        end = (head + 1) * m->out < hi ? (head + 1) * m->out : hi;
        const struct op_matrix one = {.type = m->type,
                                      .data = m->w->data + (size_t)head * (size_t)m->out * m->row_bytes,
                                      .row_bytes = m->row_bytes,
                                      .k = m->in};
        struct acts x = {.f32 = {rows_at(heads->f32, head), heads->f32.ld * (size_t)n_head}};
        if (a != ACT_F32) {
            x.q[a] = heads->q[a] + (size_t)head * heads->ld[a];
            x.ld[a] = heads->ld[a] * (size_t)n_head;
        }
        float *out = y.p + head * ld_head + first;
        if (!op_product(w, &one, &x, NULL, n, first, first + end - at, out, y.ld)) break;
    }
    op_end(w);
    op_sync(w);
}
