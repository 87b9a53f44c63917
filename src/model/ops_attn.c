/* SPDX-License-Identifier: MIT
 *
 * ops_attn.c: the operations of softmax attention: rotation, storing keys and values, attending.
 *
 * Attention calls differ in cost, because later rows see more slots than earlier ones: each member takes the next one
 * when it is free, the dearest first.
 */
#include "model/ops.h"

void op_store(const struct worker *w, int il, int r, int head, const float *k, const float *v)
{
    struct step *s = w->s;
    const struct memory *mem = s->mem[s->batch->seq[r]];
    const struct kv_shape *sh = kv_pool_shape(mem->pool);
    int slot = s->batch->slot[r], kv = s->model->hp.layer[il].kv;
    uint8_t *page = mem->pages[slot / sh->page_slots];
    if (k)
        s->kt.put_key(sh->type, k, sh->head_dim, page + kv_key_offset(mem->pool, kv, head), slot % sh->page_slots,
                      w->scratch);
    if (v)
        s->kt.put_value(sh->type, v, sh->head_dim_v, page + kv_value_offset(mem->pool, kv, head), slot % sh->page_slots,
                        w->scratch);
}

/* One head of q (head < n_head), k (then n_head_kv) or v (then n_head_kv) of row r. */
static void rope_store_head(const struct worker *w, int il, int r, int head)
{
    struct step *s = w->s;
    const struct hparams *h = &s->model->hp;
    const struct layer *l = &s->model->layers[il];
    enum rope_use use = h->layer[il].rope;
    float(*table)[2] = use == ROPE_LOCAL ? s->cs_local : s->cs;
    const float(*cs)[2] = (const float(*)[2])(table + (size_t)r * (size_t)s->rope.n_pairs);
    int d = h->head_dim, kv_head = head - h->n_head, v_head = kv_head - h->n_head_kv;
    if (v_head >= 0) {
        op_store(w, il, r, v_head, NULL, rows_at(s->v, r) + v_head * h->head_dim_v);
        return;
    }
    float *x = kv_head < 0 ? rows_at(s->q, r) + head * d * (h->has_attn_gate ? 2 : 1) : rows_at(s->k, r) + kv_head * d;
    const float *norm = kv_head < 0 ? l->q_norm : l->k_norm;
    if (norm) s->kt.rms_norm(x, norm, h->norm_eps, d, x, w->scratch);
    if (use != ROPE_OFF) s->kt.rope(x, cs, s->rope.n_pairs, h->rope_adjacent, w->scratch);
    if (kv_head >= 0) op_store(w, il, r, kv_head, x, NULL);
}

void op_norm_qk(const struct worker *w, int il)
{
    struct step *s = w->s;
    const struct hparams *h = &s->model->hp;
    const struct layer *l = &s->model->layers[il];
    const int n_q = h->n_head * h->head_dim, n_k = h->n_head_kv * h->head_dim;
    int lo, hi;
    op_begin(w, il, "qk_norm", -1, n_q + n_k, 1, s->batch->n);
    op_share(w, 2 * s->batch->n, 1, &lo, &hi);
    for (int u = lo; u < hi; u++) {
        float *y = rows_at(u % 2 ? s->k : s->q, u / 2);
        s->kt.rms_norm(y, u % 2 ? l->k_row_norm : l->q_row_norm, h->norm_eps, u % 2 ? n_k : n_q, y, w->scratch);
    }
    op_end(w);
    op_sync(w);
}

void op_rope_store(const struct worker *w, int il)
{
    struct step *s = w->s;
    int heads = s->model->hp.n_head + 2 * s->model->hp.n_head_kv;
    op_begin(w, il, "rope_store", -1, (int64_t)heads * s->model->hp.head_dim, 1, s->batch->n);
    /* In turn, so that keys and values, whose pages may be new, are not all one member's. */
    int end = step_is_abandoned(w) ? 0 : s->batch->n * heads;
    for (int u = w->ith; u < end; u += w->nth) rope_store_head(w, il, u / heads, u % heads);
    if (w->ith == 0) atomic_store_explicit(&s->next_attend, 0, memory_order_relaxed); /* the sync publishes it */
    op_end(w);
    op_sync(w);
}

/* The query rows of one run that share KV head `head`, at most ATTN_MAX_Q of them, from query head `first` on. */
static void attend(const struct worker *w, int il, struct run run, int head, int first, int n_heads)
{
    struct step *s = w->s;
    const struct hparams *h = &s->model->hp;
    const struct batch *b = s->batch;
    const struct memory *mem = s->mem[b->seq[run.row]];
    const struct kv_shape *sh = kv_pool_shape(mem->pool);
    const float *q[ATTN_MAX_Q];
    float *out[ATTN_MAX_Q], sink[ATTN_MAX_Q];
    const float *sinks = s->model->layers[il].sinks;
    int32_t lo[ATTN_MAX_Q], hi[ATTN_MAX_Q];
    int n = 0, n_swa = h->layer[il].n_swa, kv = h->layer[il].kv;
    for (int r = run.row; r < run.row + run.n; r++)
        for (int i = first; i < first + n_heads; i++, n++) {
            q[n] = rows_at(s->q, r) + i * h->head_dim * (h->has_attn_gate ? 2 : 1);
            out[n] = rows_at(s->heads, r) + i * h->head_dim_v;
            if (sinks) sink[n] = sinks[i];
            hi[n] = b->slot[r] + 1;
            lo[n] = n_swa && hi[n] > n_swa ? hi[n] - n_swa : 0;
        }
    struct attn a = {
        .type = sh->type,
        .head_dim = sh->head_dim,
        .head_dim_v = sh->head_dim_v,
        .n_q = n,
        .q = q,
        .out = out,
        .lo = lo,
        .hi = hi,
        .sink = sinks ? sink : NULL,
        .scale = h->attn_scale,
        .softcap = h->attn_softcap,
        .pages = (const uint8_t *const *)mem->pages,
        .page_slots = sh->page_slots,
        .k_offset = kv_key_offset(mem->pool, kv, head),
        .v_offset = kv_value_offset(mem->pool, kv, head),
    };
    s->kt.attn(&a, w->scratch);
    for (int i = 0; i < n && h->has_attn_gate; i++) /* a head's gates follow its query */
        s->kt.act_mul[ACTIV_SIGMOID](q[i] + h->head_dim, out[i], h->head_dim_v, out[i], w->scratch);
}

void op_attend(const struct worker *w, int il)
{
    struct step *s = w->s;
    const struct hparams *h = &s->model->hp;
    int group = h->n_head / h->n_head_kv, part = (group + s->n_parts - 1) / s->n_parts;
    int per_run = h->n_head_kv * s->n_parts, n_calls = s->n_runs * per_run, call;
    op_begin(w, il, "attention", -1, h->n_head, h->head_dim, s->batch->n);
    while (!step_is_abandoned(w) &&
           (call = atomic_fetch_add_explicit(&s->next_attend, 1, memory_order_relaxed)) < n_calls) {
        int run = s->n_runs - 1 - call / per_run, head = call % per_run / s->n_parts, first = call % s->n_parts * part;
        int n = group - first < part ? group - first : part;
        if (n > 0) attend(w, il, s->runs[run], head, head * group + first, n);
    }
    op_end(w);
    op_sync(w);
}
