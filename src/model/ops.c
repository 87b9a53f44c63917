/* SPDX-License-Identifier: MIT
 *
 * ops.c: the operations that blocks are written in: each shares one kernel's work between
 * the members of the team and, when a trace is attached, accounts for it. See step.h.
 *
 * Matrix rows are shared contiguously, so that each member streams its own part of the
 * weights; batch rows likewise. Attention calls differ in cost, because later rows see more
 * slots than earlier ones: each member takes the next one when it is free, the dearest first.
 */
#include "model/step.h"

#include <assert.h>
#include <string.h>

#include "base/os.h"
#include "kernel/cost/cost.h"

#define ROW_UNIT 32 /* matrix rows a member's share is a multiple of: the tile kernels' height */

void op_sync(const struct worker *w) { pool_barrier(w->s->pool); }

/* ---- accounting ---- */

/* A traced operation begins: member 0 opens its record. */
static void op_begin(const struct worker *w, int il, const char *name, int dtype, int64_t n, int64_t k, int64_t cols)
{
    struct trace *t = w->s->trace;
    if (!t || w->ith != 0) return;
    assert(t->n < t->cap);
    t->ops[t->n] = (struct trace_op){.name = name, .layer = il, .dtype = dtype, .n = n, .k = k, .cols = cols};
    if (w->s->kt.is_cost) *(struct cost *)w->scratch = (struct cost){0};
    t->started_ns = clock_ns();
}

/* It ends: the team lines up so that the time is everybody's, and the record is closed. */
static void op_end(const struct worker *w)
{
    struct trace *t = w->s->trace;
    if (!t) return;
    op_sync(w);
    if (w->ith != 0) return;
    struct trace_op *op = &t->ops[t->n++];
    op->ns = clock_ns() - t->started_ns;
    if (!w->s->kt.is_cost) return;
    const struct cost *c = w->scratch;
    op->bytes = c->bytes;
    op->macs_int8 = c->macs_int8;
    op->macs_f32 = c->macs_f32;
}

/* ---- rows ---- */

static float *row(struct rows r, int i) { return r.p + (size_t)i * r.ld; }

/* Brings f32 row i of src into every format that the users multiply with. */
static void quant_row(const struct worker *w, const float *src, int k, int i, const struct linear *const *users)
{
    struct step *s = w->s;
    bool done[ACT_N] = {[ACT_F32] = true};
    for (; *users; users++) {
        enum act a = kernel_act_of((*users)->w->type);
        if (done[a]) continue;
        s->kt.quant[a](src, k, s->act[a] + (size_t)i * s->act_ld[a], w->scratch);
        done[a] = true;
    }
}

void op_embed(const struct worker *w)
{
    struct step *s = w->s;
    const struct tensor *t = s->model->token_embd;
    int lo, hi;
    op_begin(w, -1, "token_embd", t->type, 1, t->ne[0], s->batch->n);
    pool_share(s->batch->n, 1, w->ith, w->nth, &lo, &hi);
    for (int r = lo; r < hi; r++) {
        s->kt.dequant(t->type, t->data + (size_t)s->batch->token[r] * t->row_bytes, t->ne[0], row(s->x, r), w->scratch);
        rope_at(&s->rope, s->batch->pos[r], s->cs + (size_t)r * (size_t)s->rope.n_pairs);
    }
    op_end(w);
    op_sync(w);
}

void op_norm(const struct worker *w, int il, const char *name, const float *norm, const struct linear *const *users)
{
    struct step *s = w->s;
    const struct hparams *h = &s->model->hp;
    int lo, hi;
    op_begin(w, il, name, -1, h->n_embd, 1, s->batch->n);
    pool_share(s->batch->n, 1, w->ith, w->nth, &lo, &hi);
    for (int r = lo; r < hi; r++) {
        s->kt.rms_norm(row(s->x, r), norm, h->norm_eps, h->n_embd, row(s->h, r), w->scratch);
        quant_row(w, row(s->h, r), h->n_embd, r, users);
    }
    op_end(w);
    op_sync(w);
}

void op_quant(const struct worker *w, int il, const char *name, struct rows src, int k,
              const struct linear *const *users)
{
    struct step *s = w->s;
    int lo, hi;
    op_begin(w, il, name, -1, k, 1, s->batch->n);
    pool_share(s->batch->n, 1, w->ith, w->nth, &lo, &hi);
    for (int r = lo; r < hi; r++) quant_row(w, row(src, r), k, r, users);
    op_end(w);
    op_sync(w);
}

/* ---- matrices ---- */

/* This member's outputs [*lo, *hi) of W times the first n_cols prepared rows, into y. */
static void matmul(const struct worker *w, const struct linear *l, struct rows src, int n_cols, float *y, size_t ld_y,
                   int *lo, int *hi)
{
    struct step *s = w->s;
    const struct tensor *t = l->w;
    enum act a = kernel_act_of(t->type);
    pool_share((int)t->ne[1], ROW_UNIT, w->ith, w->nth, lo, hi);
    if (*lo == *hi) return;
    struct gemm g = {
        .w = t->data + (size_t)*lo * t->row_bytes,
        .ld_w = t->row_bytes,
        .n_rows = *hi - *lo,
        .k = (int)t->ne[0],
        .x = a == ACT_F32 ? (const uint8_t *)src.p : s->act[a],
        .ld_x = a == ACT_F32 ? src.ld * sizeof(float) : s->act_ld[a],
        .n_cols = n_cols,
        .y = y + *lo,
        .ld_y = ld_y,
    };
    s->kt.gemm[t->type](&g, w->scratch);
    if (!l->b) return;
    for (int c = 0; c < n_cols; c++) s->kt.add(y + (size_t)c * ld_y + *lo, l->b + *lo, *hi - *lo, w->scratch);
}

void op_matmul(const struct worker *w, int il, const char *name, const struct linear *l, struct rows src, struct rows y)
{
    int lo, hi;
    op_begin(w, il, name, l->w->type, l->w->ne[1], l->w->ne[0], w->s->batch->n);
    matmul(w, l, src, w->s->batch->n, y.p, y.ld, &lo, &hi);
    op_end(w);
}

void op_matmul_add(const struct worker *w, int il, const char *name, const struct linear *l, struct rows src)
{
    struct step *s = w->s;
    int lo, hi;
    op_begin(w, il, name, l->w->type, l->w->ne[1], l->w->ne[0], s->batch->n);
    matmul(w, l, src, s->batch->n, s->h.p, s->h.ld, &lo, &hi);
    for (int r = 0; r < s->batch->n; r++) s->kt.add(row(s->x, r) + lo, row(s->h, r) + lo, hi - lo, w->scratch);
    op_end(w);
    op_sync(w);
}

void op_act_mul(const struct worker *w, int il, enum act_kind f, int n)
{
    struct step *s = w->s;
    int lo, hi;
    op_begin(w, il, "ffn_act", -1, n, 1, s->batch->n);
    pool_share(n, ROW_UNIT, w->ith, w->nth, &lo, &hi);
    for (int r = 0; r < s->batch->n && lo < hi; r++)
        s->kt.act_mul[f](row(s->gate, r) + lo, row(s->up, r) + lo, hi - lo, row(s->gate, r) + lo, w->scratch);
    op_end(w);
    op_sync(w);
}

/* Norms and multiplies the rows that want logits, and only those. */
void op_logits(const struct worker *w)
{
    struct step *s = w->s;
    const struct model *m = s->model;
    const struct linear out = {m->output, NULL};
    int n_embd = m->hp.n_embd, lo, hi;
    op_begin(w, -1, "output_norm", -1, n_embd, 1, s->n_out);
    pool_share(s->n_out, 1, w->ith, w->nth, &lo, &hi);
    for (int i = lo; i < hi; i++) {
        s->kt.rms_norm(row(s->x, s->out_rows[i]), m->output_norm, m->hp.norm_eps, n_embd, row(s->h, i), w->scratch);
        quant_row(w, row(s->h, i), n_embd, i, (const struct linear *const[]){&out, NULL});
    }
    op_end(w);
    op_sync(w);
    op_begin(w, -1, "output", m->output->type, m->output->ne[1], n_embd, s->n_out);
    matmul(w, &out, s->h, s->n_out, s->logits, (size_t)m->hp.n_vocab, &lo, &hi);
    op_end(w);
}

/* ---- attention ---- */

static void store(const struct worker *w, int il, int r, int head, const float *k, const float *v)
{
    struct step *s = w->s;
    const struct memory *mem = s->mem[s->batch->seq[r]];
    const struct kv_shape *sh = kv_pool_shape(mem->pool);
    int slot = s->batch->slot[r];
    uint8_t *page = mem->pages[slot / sh->page_slots];
    if (k)
        s->kt.put_key(sh->type, k, sh->head_dim, page + kv_key_offset(mem->pool, il, head), slot % sh->page_slots,
                      w->scratch);
    else
        s->kt.put_value(sh->type, v, sh->head_dim, page + kv_value_offset(mem->pool, il, head), slot % sh->page_slots,
                        w->scratch);
}

/* One head of q (head < n_head), k (then n_head_kv) or v (then n_head_kv) of row r. */
static void rope_store_head(const struct worker *w, int il, int r, int head)
{
    struct step *s = w->s;
    const struct hparams *h = &s->model->hp;
    const struct layer *l = &s->model->layers[il];
    const float(*cs)[2] = (const float(*)[2])(s->cs + (size_t)r * (size_t)s->rope.n_pairs);
    int d = h->head_dim, kv_head = head - h->n_head, v_head = kv_head - h->n_head_kv;
    if (v_head >= 0) {
        store(w, il, r, v_head, NULL, row(s->v, r) + v_head * d);
        return;
    }
    float *x = kv_head < 0 ? row(s->q, r) + head * d : row(s->k, r) + kv_head * d;
    const float *norm = kv_head < 0 ? l->q_norm : l->k_norm;
    if (norm) s->kt.rms_norm(x, norm, h->norm_eps, d, x, w->scratch);
    s->kt.rope(x, cs, s->rope.n_pairs, h->rope_adjacent, w->scratch);
    if (kv_head >= 0) store(w, il, r, kv_head, x, NULL);
}

void op_rope_store(const struct worker *w, int il)
{
    struct step *s = w->s;
    int heads = s->model->hp.n_head + 2 * s->model->hp.n_head_kv, lo, hi;
    op_begin(w, il, "rope_store", -1, (int64_t)heads * s->model->hp.head_dim, 1, s->batch->n);
    pool_share(s->batch->n * heads, 1, w->ith, w->nth, &lo, &hi);
    for (int u = lo; u < hi; u++) rope_store_head(w, il, u / heads, u % heads);
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
    float *out[ATTN_MAX_Q];
    int32_t lo[ATTN_MAX_Q], hi[ATTN_MAX_Q];
    int n = 0;
    for (int r = run.row; r < run.row + run.n; r++)
        for (int i = first; i < first + n_heads; i++, n++) {
            q[n] = row(s->q, r) + i * h->head_dim;
            out[n] = row(s->att, r) + i * h->head_dim;
            hi[n] = b->slot[r] + 1;
            lo[n] = h->n_swa && hi[n] > h->n_swa ? hi[n] - h->n_swa : 0;
        }
    struct attn a = {
        .type = sh->type,
        .head_dim = sh->head_dim,
        .head_dim_v = sh->head_dim,
        .n_q = n,
        .q = q,
        .out = out,
        .lo = lo,
        .hi = hi,
        .scale = h->attn_scale,
        .pages = (const uint8_t *const *)mem->pages,
        .page_slots = sh->page_slots,
        .k_offset = kv_key_offset(mem->pool, il, head),
        .v_offset = kv_value_offset(mem->pool, il, head),
    };
    s->kt.attn(&a, w->scratch);
}

void op_attend(const struct worker *w, int il)
{
    struct step *s = w->s;
    const struct hparams *h = &s->model->hp;
    int group = h->n_head / h->n_head_kv,
        parts = (group + ATTN_MAX_Q - 1) / ATTN_MAX_Q; /* of a KV head's query heads */
    int per_run = h->n_head_kv * parts, n_calls = s->n_runs * per_run, call;
    op_begin(w, il, "attention", -1, h->n_head, h->head_dim, s->batch->n);
    while ((call = atomic_fetch_add_explicit(&s->next_attend, 1, memory_order_relaxed)) < n_calls) {
        int run = s->n_runs - 1 - call / per_run, head = call % per_run / parts, first = call % parts * ATTN_MAX_Q;
        int n = group - first < ATTN_MAX_Q ? group - first : ATTN_MAX_Q;
        attend(w, il, s->runs[run], head, head * group + first, n);
    }
    op_end(w);
    op_sync(w);
}
