/* SPDX-License-Identifier: MIT
 *
 * ops_latent.c: the operations of latent attention: norms of the compressed vectors, rotation, storing, and products
 * with one matrix for each head. block_latent.c has the formulas.
 *
 * As in all operations, one member computes a whole value, and one kernel call a whole sum.
 */
#include <string.h>

#include "model/pass/op.h"

void latent_cut(struct cutter *c, const struct hparams *h, int n, struct rows q, struct latent_rows *t)
{
    int dim = h->latent_dim_nope + h->n_rot;
    if (!h->n_lora_kv) return;
    t->q = h->latent_is_absorbed ? cut_rows(c, n, h->n_head * dim) : q;
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

static const float (*rotations(const struct pass *pass, int r))[2]
{
    return (const float(*)[2])(pass->cs + (size_t)r * (size_t)pass->rope.n_pairs);
}

/* Row r of the compressed vectors. */
static void latent_norm_row(const struct member *me, int il, int r)
{
    struct pass *pass = me->pass;
    const struct hparams *h = &pass->model->hp;
    const struct layer *l = &pass->model->layers[il];
    struct latent_rows *t = &pass->latent;
    float *kv = rows_at(t->kv, r);
    if (h->n_lora_q) {
        float *q = rows_at(t->low_q.f32, r);
        pass->kt.rms_norm(q, l->q_a_norm, h->norm_eps, h->n_lora_q, q, me->scratch);
        op_quant_row(me, &t->low_q, h->n_lora_q, r, (const struct linear *const[]){&l->wq_b, NULL});
    }
    pass->kt.rope(kv + h->n_lora_kv, rotations(pass, r), pass->rope.n_pairs, h->rope_adjacent, me->scratch);
    if (h->latent_is_absorbed) {
        pass->kt.rms_norm(kv, l->kv_a_norm, h->norm_eps, h->n_lora_kv, kv, me->scratch);
        op_store(me, il, r, 0, kv, kv);
    } else {
        pass->kt.rms_norm(kv, l->kv_a_norm, h->norm_eps, h->n_lora_kv, rows_at(t->low_kv.f32, r), me->scratch);
        op_quant_row(me, &t->low_kv, h->n_lora_kv, r, (const struct linear *const[]){&l->wkv_b, NULL});
    }
}

void op_latent_norm(const struct member *me, int il)
{
    struct pass *pass = me->pass;
    int lo, hi;
    op_begin(me, il, OP_LATENT, "latent_norm", -1, pass->model->hp.n_lora_kv, 1, pass->batch->n);
    op_share(me, pass->batch->n, 1, &lo, &hi);
    for (int r = lo; r < hi; r++) latent_norm_row(me, il, r);
    if (me->ith == 0) atomic_store_explicit(&pass->calls.next, 0, memory_order_relaxed); /* the sync publishes it */
    op_end(me);
    op_sync(me);
}

/* x [m->in] becomes the right-hand side of the matrix of head `head`, row r. */
static void put_head(const struct member *me, const struct experts *m, int r, int head, const float *x)
{
    struct acts *heads = &me->pass->latent.heads;
    int i = r * me->pass->model->hp.n_head + head;
    const struct linear user = {.w = m->w};
    memcpy(rows_at(heads->f32, i), x, (size_t)m->in * sizeof *x);
    op_quant_row(me, heads, m->in, i, (const struct linear *const[]){&user, NULL});
}

/* Rotates the rotated part of q. Absorbed: that part is copied to the query, and the other part is converted for the
 * head's matrix. Expanded: the head's key is put together, and stored with its value. */
static void latent_head(const struct member *me, int il, int r, int head)
{
    struct pass *pass = me->pass;
    const struct hparams *h = &pass->model->hp;
    const struct latent_rows *t = &pass->latent;
    int nope = h->latent_dim_nope, dim = nope + h->n_rot;
    float *q = rows_at(t->q, r) + head * dim;
    const float *k_pe = rows_at(t->kv, r) + h->n_lora_kv;
    pass->kt.rope(q + nope, rotations(pass, r), pass->rope.n_pairs, h->rope_adjacent, me->scratch);
    if (h->latent_is_absorbed) {
        memcpy(rows_at(pass->q, r) + head * h->head_dim + h->n_lora_kv, q + nope, (size_t)h->n_rot * sizeof *q);
        put_head(me, &pass->model->layers[il].wk_b, r, head, q);
        return;
    }
    const float *k_nope = rows_at(t->kv_b, r) + head * (nope + h->latent_dim_v);
    float *k = rows_at(pass->k, r) + head * dim;
    memcpy(k, k_nope, (size_t)nope * sizeof *k);
    memcpy(k + nope, k_pe, (size_t)h->n_rot * sizeof *k);
    op_store(me, il, r, head, k, k_nope + nope);
}

/* Calls f for every head of every row. Members take turns, so that no member alone touches all new pages of the cache.
 */
static void each_head(const struct member *me, int il, void (*f)(const struct member *me, int il, int r, int head))
{
    int n_head = me->pass->model->hp.n_head, end = op_is_abandoned(me) ? 0 : me->pass->batch->n * n_head;
    for (int u = me->ith; u < end; u += me->nth) f(me, il, u / n_head, u % n_head);
}

void op_latent_heads(const struct member *me, int il)
{
    const struct hparams *h = &me->pass->model->hp;
    op_begin(me, il, OP_LATENT, "latent_heads", -1, (int64_t)h->n_head * (h->latent_dim_nope + h->n_rot), 1,
             me->pass->batch->n);
    each_head(me, il, latent_head);
    op_end(me);
    op_sync(me);
}

static void context_head(const struct member *me, int il, int r, int head)
{
    struct pass *pass = me->pass;
    put_head(me, &pass->model->layers[il].wv_b, r, head, rows_at(pass->heads, r) + head * pass->model->hp.head_dim_v);
}

void op_latent_context(const struct member *me, int il)
{
    const struct hparams *h = &me->pass->model->hp;
    op_begin(me, il, OP_LATENT, "latent_context", -1, (int64_t)h->n_head * h->head_dim_v, 1, me->pass->batch->n);
    each_head(me, il, context_head);
    op_end(me);
    op_sync(me);
}

void op_matmul_heads(const struct member *me, int il, const char *name, const struct experts *m, struct rows y,
                     int ld_head)
{
    struct pass *pass = me->pass;
    int n_head = pass->model->hp.n_head, n = pass->batch->n, lo, hi;
    enum act a = kernel_act_of(m->type);
    const struct acts *heads = &pass->latent.heads;
    op_begin(me, il, OP_LATENT, name, m->type, (int64_t)n_head * m->out, m->in, n);
    op_share(me, n_head * m->out, me->pass->kt.row_unit, &lo, &hi);
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
        if (!op_product(me, &one, &x, NULL, n, first, first + end - at, out, y.ld)) break;
    }
    op_end(me);
    op_sync(me);
}
