/* SPDX-License-Identifier: MIT
 *
 * ops_attn.c: the operations of softmax attention: rotation, storing keys and values, attending.
 *
 * Attention calls differ in cost, because later rows see more slots than earlier ones. Each member takes the next call
 * when it is free, and the most expensive calls come first.
 */
#include "model/pass/op.h"

#include "base/inline/minmax.h"

#define CALLS_EACH 4 /* attention calls for each member, if there are rows for it */
#define LEAST_PART 8 /* query heads that justify a call of their own, which reads the keys and values again */

void attn_cut(struct cutter *c, int n, struct attn_calls *a) { a->runs = cut_bytes(c, (size_t)n * sizeof *a->runs); }

/* Long runs read keys and values less often. But every member should get a few calls, because they differ in cost. */
void attn_survey(struct attn_calls *a, const struct hparams *h, const struct batch *b, int n_threads)
{
    int group = h->n_head / h->n_head_kv;
    int most = group < ATTN_MAX_Q ? ATTN_MAX_Q / group : 1;
    int fair = b->n * h->n_head_kv / (CALLS_EACH * n_threads);
    if (most > fair) most = max_int(fair, 1);
    a->n_runs = 0;
    for (int r = 0; r < b->n; r++) {
        struct row_run *last = a->n_runs ? &a->runs[a->n_runs - 1] : NULL;
        if (last && last->n < most && b->seq[last->row] == b->seq[r])
            last->n++;
        else
            a->runs[a->n_runs++] = (struct row_run){r, 1};
    }
    /* If there are fewer KV heads than members, the query heads of each are divided. */
    int n_heads = a->n_runs * h->n_head_kv, wanted = (n_threads + n_heads - 1) / n_heads;
    a->n_parts = max_int((group + ATTN_MAX_Q - 1) / ATTN_MAX_Q, min_int(wanted, group / LEAST_PART));
}

void op_store(const struct member *me, int il, int r, int head, const float *k, const float *v)
{
    struct pass *pass = me->pass;
    const struct kv_seq *mem = pass->mem[pass->batch->seq[r]];
    const struct kv_shape *sh = kv_pool_shape(mem->pool);
    int slot = pass->batch->slot[r], kv = pass->model->hp.layer[il].kv;
    uint8_t *page = mem->pages[slot / sh->page_slots];
    if (k)
        pass->kt.put_key(sh->type, k, sh->head_dim, page + kv_key_offset(mem->pool, kv, head), slot % sh->page_slots,
                         me->scratch);
    if (v)
        pass->kt.put_value(sh->type, v, sh->head_dim_v, page + kv_value_offset(mem->pool, kv, head),
                           slot % sh->page_slots, me->scratch);
}

/* One head of q (head < n_head), k (then n_head_kv) or v (then n_head_kv) of row r. */
static void rope_store_head(const struct member *me, int il, int r, int head)
{
    struct pass *pass = me->pass;
    const struct hparams *h = &pass->model->hp;
    const struct layer *l = &pass->model->layers[il];
    enum rope_use use = h->layer[il].rope;
    float(*table)[2] = use == ROPE_LOCAL ? pass->cs_local : pass->cs;
    const float(*cs)[2] = (const float(*)[2])(table + (size_t)r * (size_t)pass->rope.n_pairs);
    int d = h->head_dim, kv_head = head - h->n_head, v_head = kv_head - h->n_head_kv;
    if (v_head >= 0) {
        op_store(me, il, r, v_head, NULL, rows_at(pass->v, r) + v_head * h->head_dim_v);
        return;
    }
    float *x =
        kv_head < 0 ? rows_at(pass->q, r) + head * d * (h->has_attn_gate ? 2 : 1) : rows_at(pass->k, r) + kv_head * d;
    const float *norm = kv_head < 0 ? l->q_norm : l->k_norm;
    if (norm) pass->kt.rms_norm(x, norm, h->norm_eps, d, x, me->scratch);
    if (use != ROPE_OFF) pass->kt.rope(x, cs, pass->rope.n_pairs, h->rope_adjacent, me->scratch);
    if (kv_head >= 0) op_store(me, il, r, kv_head, x, NULL);
}

void op_norm_qk(const struct member *me, int il)
{
    struct pass *pass = me->pass;
    const struct hparams *h = &pass->model->hp;
    const struct layer *l = &pass->model->layers[il];
    const int n_q = h->n_head * h->head_dim, n_k = h->n_head_kv * h->head_dim;
    int lo, hi;
    op_begin(me, il, OP_ELEMENTWISE, "qk_norm", -1, n_q + n_k, 1, pass->batch->n);
    op_share(me, 2 * pass->batch->n, 1, &lo, &hi);
    for (int u = lo; u < hi; u++) {
        float *y = rows_at(u % 2 ? pass->k : pass->q, u / 2);
        pass->kt.rms_norm(y, u % 2 ? l->k_row_norm : l->q_row_norm, h->norm_eps, u % 2 ? n_k : n_q, y, me->scratch);
    }
    op_end(me);
    op_sync(me);
}

void op_rope_store(const struct member *me, int il)
{
    struct pass *pass = me->pass;
    int heads = pass->model->hp.n_head + 2 * pass->model->hp.n_head_kv;
    op_begin(me, il, OP_ELEMENTWISE, "rope_store", -1, (int64_t)heads * pass->model->hp.head_dim, 1, pass->batch->n);
    /* Members take turns, so that no member alone touches all new pages of the cache. */
    int end = op_is_abandoned(me) ? 0 : pass->batch->n * heads;
    for (int u = me->ith; u < end; u += me->nth) rope_store_head(me, il, u / heads, u % heads);
    if (me->ith == 0) atomic_store_explicit(&pass->calls.next, 0, memory_order_relaxed); /* the sync publishes it */
    op_end(me);
    op_sync(me);
}

/* The query rows of one run that share KV head `head`, at most ATTN_MAX_Q of them, from query head `first` on. */
static void attend(const struct member *me, int il, struct row_run run, int head, int first, int n_heads)
{
    struct pass *pass = me->pass;
    const struct hparams *h = &pass->model->hp;
    const struct batch *b = pass->batch;
    const struct kv_seq *mem = pass->mem[b->seq[run.row]];
    const struct kv_shape *sh = kv_pool_shape(mem->pool);
    const float *q[ATTN_MAX_Q];
    float *out[ATTN_MAX_Q], sink[ATTN_MAX_Q];
    const float *sinks = pass->model->layers[il].sinks;
    int32_t lo[ATTN_MAX_Q], hi[ATTN_MAX_Q];
    int n = 0, n_swa = h->layer[il].n_swa, kv = h->layer[il].kv;
    for (int r = run.row; r < run.row + run.n; r++)
        for (int i = first; i < first + n_heads; i++, n++) {
            q[n] = rows_at(pass->q, r) + i * h->head_dim * (h->has_attn_gate ? 2 : 1);
            out[n] = rows_at(pass->heads, r) + i * h->head_dim_v;
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
    pass->kt.attn(&a, me->scratch);
    for (int i = 0; i < n && h->has_attn_gate; i++) /* a head's gates follow its query */
        pass->kt.act_mul[ACTIV_SIGMOID](q[i] + h->head_dim, out[i], h->head_dim_v, out[i], me->scratch);
}

void op_attend(const struct member *me, int il)
{
    struct pass *pass = me->pass;
    struct attn_calls *calls = &pass->calls;
    const struct hparams *h = &pass->model->hp;
    int group = h->n_head / h->n_head_kv, part = (group + calls->n_parts - 1) / calls->n_parts;
    int per_run = h->n_head_kv * calls->n_parts, n_calls = calls->n_runs * per_run;
    op_begin(me, il, OP_ATTENTION, "attention", -1, h->n_head, h->head_dim, pass->batch->n);
    while (!op_is_abandoned(me)) {
        int call = atomic_fetch_add_explicit(&calls->next, 1, memory_order_relaxed);
        if (call >= n_calls) break;
        int run = calls->n_runs - 1 - call / per_run; /* the last rows see most slots */
        int head = call % per_run / calls->n_parts, first = call % calls->n_parts * part;
        int n = group - first < part ? group - first : part;
        if (n > 0) attend(me, il, calls->runs[run], head, head * group + first, n);
    }
    op_end(me);
    op_sync(me);
}
