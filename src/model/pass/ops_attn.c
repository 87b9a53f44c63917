/* SPDX-License-Identifier: MIT
 *
 * ops_attn.c: the operations of softmax attention: rotation, storing keys and values, attending.
 *
 * Attention calls differ in cost, because later rows see more slots than earlier ones. Each member takes the next call
 * when it is free, and the most expensive calls come first.
 */
#include "model/pass/op.h"

#include "base/inline/minmax.h"

#define CALLS_EACH     4 /* attention calls for each member, if there are rows for it */
#define ROWS_AHEAD     2 /* rows whose heads are asked for ahead: they lie too far apart for the processor to see that */
#define LEAST_PART     8 /* query heads that justify a call of their own, which reads the keys and values again */
#define LEAST_DIVIDED  (3 * ATTN_CHUNK) /* slots that do not justify dividing the past */
#define SPANS_EACH     4                /* spans of a stretch for each member, if there are chunks for it */
#define MOST_SPAN      4                /* chunks */
#define PARTIALS_BYTES (4u << 20)       /* the most that partial results may take */
#ifndef ATTN_MAX_PARTIALS               /* tests have less room, so that a past has many stretches */
#define ATTN_MAX_PARTIALS 64
#endif

/* ---- how calls are made ---- */

void attn_cut(struct cutter *c, const struct hparams *h, int n, int n_threads, struct attn_calls *a)
{
    a->runs = cut_bytes(c, (size_t)n * sizeof *a->runs);
    a->partials = NULL;
    if (n_threads == 1) return;
    a->ld_partial = ATTN_PARTIAL_O + ((size_t)h->head_dim_v + 15) / 16 * 16;
    size_t bytes = (size_t)h->n_head * a->ld_partial * sizeof(float), room = PARTIALS_BYTES / bytes;
    a->n_partials = room < ATTN_MAX_PARTIALS ? max_int((int)room, 2) : ATTN_MAX_PARTIALS;
    a->divided = cut_bytes(c, (size_t)n * sizeof *a->divided);
    a->partials = cut_bytes(c, (size_t)a->n_partials * bytes);
}

static int slots_of(const struct batch *b, struct row_run run) { return b->slot[run.row + run.n - 1] + 1; }

/* Divides the runs of single rows that have more than half of a member's share in one call. There must be room for the
 * partial results of two chunks each. */
static void divide(struct attn_calls *a, const struct hparams *h, const struct batch *b, int n_threads)
{
    int64_t all = 0;
    int n = 0;
    a->n_divided = 0;
    atomic_store_explicit(&a->next_span, 0, memory_order_relaxed);
    if (!a->partials) return;
    for (int i = 0; i < a->n_runs; i++) all += (int64_t)a->runs[i].n * slots_of(b, a->runs[i]) * h->n_head_kv;
    for (int i = 0; i < a->n_runs; i++) {
        int64_t slots = slots_of(b, a->runs[i]);
        if (a->runs[i].n == 1 && slots > LEAST_DIVIDED && 2 * slots * n_threads > all &&
            2 * (a->n_divided + 1) <= a->n_partials)
            a->divided[a->n_divided++] = a->runs[i].row;
        else
            a->runs[n++] = a->runs[i];
    }
    a->n_runs = n;
}

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
    divide(a, h, b, n_threads);
    /* If there are fewer KV heads than members, the query heads of each are divided. */
    int n_heads = max_int(a->n_runs * h->n_head_kv, 1), wanted = (n_threads + n_heads - 1) / n_heads;
    a->n_parts = max_int((group + ATTN_MAX_Q - 1) / ATTN_MAX_Q, min_int(wanted, group / LEAST_PART));
}

/* ---- keys and values ---- */

/* Where a layer's keys and values are: its pages, and its number among the layers in them. */
struct kv_layer {
    uint8_t *const *pages;
    int number;
};

static struct kv_layer layer_in(const struct kv_seq *m, const struct hp_layer *l)
{
    if (!m->windows) return (struct kv_layer){m->pages, l->kv};
    return (struct kv_layer){l->is_windowed ? m->windows : m->pages, l->kv_of_kind};
}

void op_store(const struct member *me, int il, int r, int head, const float *k, const float *v)
{
    struct pass *pass = me->pass;
    const struct kv_seq *mem = pass->mem[pass->batch->seq[r]];
    const struct kv_shape *sh = kv_pool_shape(mem->pool);
    int slot = pass->batch->slot[r];
    struct kv_layer at = layer_in(mem, &pass->model->hp.layer[il]);
    uint8_t *page = at.pages[slot / sh->page_slots];
    if (k)
        pass->kt.put_key(sh->type, k, sh->head_dim, page + kv_key_offset(mem->pool, at.number, head),
                         slot % sh->page_slots, me->scratch);
    if (v)
        pass->kt.put_value(sh->type, v, sh->head_dim_v, page + kv_value_offset(mem->pool, at.number, head),
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

/* Each row of q and of k is normalised, all heads together. */
static void norm_qk(const struct member *me, int il)
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

/* Rotates and stores heads whose matrices' outputs are shared by rows of the matrix. */
static void rope_store(const struct member *me, int il)
{
    struct pass *pass = me->pass;
    int heads = pass->model->hp.n_head + 2 * pass->model->hp.n_head_kv;
    op_begin(me, il, OP_ELEMENTWISE, "rope_store", -1, (int64_t)heads * pass->model->hp.head_dim, 1, pass->batch->n);
    /* Members take turns, so that no member alone touches all new pages of the cache. */
    int end = op_is_abandoned(me) ? 0 : pass->batch->n * heads;
    for (int u = me->ith; u < end; u += me->nth) rope_store_head(me, il, u / heads, u % heads);
    op_end(me);
}

/* One of the three matrices; by_head: members take whole heads and finish them. A few heads' outputs of all rows are
 * finished while they are in the second-level cache. */
static void project(const struct member *me, int il, const char *name, const struct linear *l, const struct acts *src,
                    struct rows y, int first_head, int n_heads, bool by_head)
{
    const int n = me->pass->batch->n, n_out = (int)l->w->ne[1], wide = n_out / n_heads;
    int lo, hi;
    op_begin(me, il, OP_ATTENTION_MATRIX, name, l->w->type, n_out, l->w->ne[0], n);
    op_share(me, n_out, by_head ? wide : me->pass->kt.row_unit, &lo, &hi);
    for (int at = lo, m, strip = by_head ? op_strip(me, n, lo, hi) / wide * wide : hi - lo; at < hi; at += m) {
        m = hi - at < strip ? hi - at : max_int(strip, by_head ? wide : 1);
        if (!op_matmul_part(me, l, src, n, at, at + m, y.p + at, y.ld)) break;
        for (int r = 0; by_head && r < n; r++) {
            for (int i = 0; r + ROWS_AHEAD < n && i < m; i += 16)
                __builtin_prefetch(rows_at(y, r + ROWS_AHEAD) + at + i);
            for (int head = at / wide; head < (at + m) / wide; head++) rope_store_head(me, il, r, first_head + head);
        }
    }
    op_end(me);
}

/* Whether members can share n heads fairly, and their matrix without loss. */
static bool is_by_head(const struct member *me, const struct linear *l, int n_heads)
{
    return (n_heads % me->nth == 0 || n_heads >= 8 * me->nth) && l->w->ne[1] / n_heads % me->pass->kt.row_unit == 0;
}

void op_project(const struct member *me, int il, const struct acts *src)
{
    struct pass *pass = me->pass;
    const struct layer *l = &pass->model->layers[il];
    const int n_q = pass->model->hp.n_head, n_kv = pass->model->hp.n_head_kv;
    const bool by_head =
        !l->q_row_norm && is_by_head(me, &l->wq, n_q) && is_by_head(me, &l->wk, n_kv) && is_by_head(me, &l->wv, n_kv);
    project(me, il, "attn_q", &l->wq, src, pass->q, 0, n_q, by_head);
    project(me, il, "attn_k", &l->wk, src, pass->k, n_q, n_kv, by_head);
    project(me, il, "attn_v", &l->wv, src, pass->v, n_q + n_kv, n_kv, by_head);
    if (!by_head) {
        op_sync(me);
        if (l->q_row_norm) norm_qk(me, il);
        rope_store(me, il);
    }
    if (me->ith == 0) atomic_store_explicit(&pass->calls.next, 0, memory_order_relaxed); /* the sync publishes it */
    op_sync(me);
}

/* ---- attention ---- */

/* The query rows of one run that share a KV head, at most ATTN_MAX_Q of them. */
struct attn_call {
    struct attn a;
    const float *q[ATTN_MAX_Q];
    float *out[ATTN_MAX_Q], sink[ATTN_MAX_Q];
    int32_t lo[ATTN_MAX_Q], hi[ATTN_MAX_Q];
};

/* The first slot that a row sees whose last one is hi - 1. */
static int first_slot(const struct hparams *h, int il, int hi)
{
    int n_swa = h->layer[il].n_swa;
    return n_swa && hi > n_swa ? hi - n_swa : 0;
}

/* Query heads `first` on, which share KV head `head`. */
static void describe(const struct member *me, int il, struct row_run run, int head, int first, int n_heads,
                     struct attn_call *c)
{
    struct pass *pass = me->pass;
    const struct hparams *h = &pass->model->hp;
    const struct batch *b = pass->batch;
    const struct kv_seq *mem = pass->mem[b->seq[run.row]];
    const struct kv_shape *sh = kv_pool_shape(mem->pool);
    const float *sinks = pass->model->layers[il].sinks;
    struct kv_layer at = layer_in(mem, &h->layer[il]);
    int n = 0;
    for (int r = run.row; r < run.row + run.n; r++)
        for (int i = first; i < first + n_heads; i++, n++) {
            c->q[n] = rows_at(pass->q, r) + i * h->head_dim * (h->has_attn_gate ? 2 : 1);
            c->out[n] = rows_at(pass->heads, r) + i * h->head_dim_v;
            if (sinks) c->sink[n] = sinks[i];
            c->hi[n] = b->slot[r] + 1;
            c->lo[n] = first_slot(h, il, c->hi[n]);
        }
    c->a = (struct attn){
        .type = sh->type,
        .head_dim = sh->head_dim,
        .head_dim_v = sh->head_dim_v,
        .n_q = n,
        .q = c->q,
        .out = c->out,
        .lo = c->lo,
        .hi = c->hi,
        .sink = sinks ? c->sink : NULL,
        .scale = h->attn_scale,
        .softcap = h->attn_softcap,
        .pages = (const uint8_t *const *)at.pages,
        .page_slots = sh->page_slots,
        .k_offset = kv_key_offset(mem->pool, at.number, head),
        .v_offset = kv_value_offset(mem->pool, at.number, head),
    };
}

/* A head's gates, which follow its query q, times its result. */
static void gate(const struct member *me, const float *q, float *out)
{
    const struct hparams *h = &me->pass->model->hp;
    if (h->has_attn_gate) me->pass->kt.act_mul[ACTIV_SIGMOID](q + h->head_dim, out, h->head_dim_v, out, me->scratch);
}

static void attend(const struct member *me, int il, struct row_run run, int head, int first, int n_heads)
{
    struct attn_call c;
    describe(me, il, run, head, first, n_heads, &c);
    me->pass->kt.attn(&c.a, me->scratch);
    for (int i = 0; i < c.a.n_q; i++) gate(me, c.q[i], c.out[i]);
}

/* The calls of the whole runs, which members take as they become free. */
static void attend_whole(const struct member *me, int il)
{
    struct attn_calls *calls = &me->pass->calls;
    const struct hparams *h = &me->pass->model->hp;
    int group = h->n_head / h->n_head_kv, part = (group + calls->n_parts - 1) / calls->n_parts;
    int per_run = h->n_head_kv * calls->n_parts, n_calls = calls->n_runs * per_run;
    while (!op_is_abandoned(me)) {
        int call = atomic_fetch_add_explicit(&calls->next, 1, memory_order_relaxed);
        if (call >= n_calls) break;
        int run = calls->n_runs - 1 - call / per_run; /* the last rows see most slots */
        int head = call % per_run / calls->n_parts, first = call % calls->n_parts * part;
        int n = group - first < part ? group - first : part;
        if (n > 0) attend(me, il, calls->runs[run], head, head * group + first, n);
    }
}

/* ---- divided calls ---- */

/* The part of a divided row's past in stretch number i: chunks [lo, hi), counted from slot 0. */
struct stretch {
    int first; /* the first chunk that the row sees */
    int lo, hi, end;
};

/* The chunks of a stretch; one more partial result is what the stretches before gave. */
static int stretch_chunks(const struct attn_calls *calls) { return calls->n_partials / calls->n_divided - 1; }

static struct stretch stretch_at(const struct pass *pass, int il, int d, int i)
{
    int slots = pass->batch->slot[pass->calls.divided[d]] + 1, n = stretch_chunks(&pass->calls);
    struct stretch s = {.first = first_slot(&pass->model->hp, il, slots) / ATTN_CHUNK,
                        .end = (slots + ATTN_CHUNK - 1) / ATTN_CHUNK};
    s.lo = s.first + i * n;
    s.hi = min_int(s.lo + n, s.end);
    return s;
}

/* The partial result number i of query head `head`. */
static float *partial_at(const struct pass *pass, int d, int i, int head)
{
    const struct attn_calls *calls = &pass->calls;
    size_t at = (size_t)(d * (calls->n_partials / calls->n_divided) + i);
    return calls->partials + (at * (size_t)pass->model->hp.n_head + (size_t)head) * calls->ld_partial;
}

/* n chunks from `chunk` on of stretch i, for query heads `first` on, which share KV head `head`. */
static void attend_span(const struct member *me, int il, int d, int i, int chunk, int n, int head, int first,
                        int n_heads)
{
    struct pass *pass = me->pass;
    const struct stretch s = stretch_at(pass, il, d, i);
    struct attn_call c;
    n = min_int(n, s.hi - chunk);
    if (n <= 0) return;
    describe(me, il, (struct row_run){pass->calls.divided[d], 1}, head, first, n_heads, &c);
    for (int q = 0; q < n_heads; q++) {
        c.out[q] = partial_at(pass, d, chunk - s.lo + (i > 0), first + q);
        c.lo[q] = max_int(c.lo[q], chunk * ATTN_CHUNK);
        c.hi[q] = min_int(c.hi[q], (chunk + n) * ATTN_CHUNK);
    }
    c.a.ld_partial = (size_t)pass->model->hp.n_head * pass->calls.ld_partial;
    pass->kt.attn(&c.a, me->scratch);
}

/* The spans of stretch i, which members take as they become free. */
static void attend_spans(const struct member *me, int il, int i)
{
    struct attn_calls *calls = &me->pass->calls;
    const struct hparams *h = &me->pass->model->hp;
    int group = h->n_head / h->n_head_kv, n_parts = (group + ATTN_MAX_Q - 1) / ATTN_MAX_Q;
    int part = (group + n_parts - 1) / n_parts, n_heads = calls->n_divided * h->n_head_kv * n_parts;
    int span = min_int(max_int(stretch_chunks(calls) * n_heads / (SPANS_EACH * me->nth), 1), MOST_SPAN);
    int n_spans = (stretch_chunks(calls) + span - 1) / span;
    while (!op_is_abandoned(me)) {
        int at = atomic_fetch_add_explicit(&calls->next_span, 1, memory_order_relaxed);
        if (at >= n_heads * n_spans) break;
        int d = at % calls->n_divided, head = at / calls->n_divided % (h->n_head_kv * n_parts);
        int first = head % n_parts * part, n = min_int(part, group - first);
        const struct stretch s = stretch_at(me->pass, il, d, i);
        head /= n_parts;
        if (n > 0) attend_span(me, il, d, i, s.lo + at / n_heads * span, span, head, head * group + first, n);
    }
}

/* Merges the partial results of stretch i with what came before, and gives the rows' results after the last one. */
static void merge_spans(const struct member *me, int il, int i)
{
    struct pass *pass = me->pass;
    const struct hparams *h = &pass->model->hp;
    const float *sinks = pass->model->layers[il].sinks;
    int lo, hi;
    op_share(me, pass->calls.n_divided * h->n_head, 1, &lo, &hi);
    for (int u = lo; u < hi; u++) {
        int d = u / h->n_head, head = u % h->n_head, r = pass->calls.divided[d];
        const struct stretch s = stretch_at(pass, il, d, i);
        if (s.lo >= s.hi) continue;
        float *out = s.hi == s.end ? rows_at(pass->heads, r) + head * h->head_dim_v : NULL;
        struct attn_merge m = {.partial = partial_at(pass, d, 0, head),
                               .n = s.hi - s.lo + (i > 0),
                               .ld_partial = (size_t)h->n_head * pass->calls.ld_partial,
                               .head_dim_v = h->head_dim_v,
                               .sink = sinks ? &sinks[head] : NULL,
                               .out = out};
        pass->kt.attn_merge(&m, me->scratch);
        if (out) gate(me, rows_at(pass->q, r) + head * h->head_dim * (h->has_attn_gate ? 2 : 1), out);
    }
}

/* Every member lines up as often, whatever has been abandoned. */
static void attend_divided(const struct member *me, int il)
{
    struct attn_calls *calls = &me->pass->calls;
    int n = 0;
    for (int d = 0; d < calls->n_divided; d++) {
        const struct stretch s = stretch_at(me->pass, il, d, 0);
        n = max_int(n, (s.end - s.first + stretch_chunks(calls) - 1) / stretch_chunks(calls));
    }
    for (int i = 0; i < n; i++) {
        attend_spans(me, il, i);
        op_sync(me);
        if (me->ith == 0) atomic_store_explicit(&calls->next_span, 0, memory_order_relaxed); /* a sync publishes it */
        merge_spans(me, il, i);
        if (i + 1 < n) op_sync(me);
    }
}

void op_attend(const struct member *me, int il)
{
    const struct hparams *h = &me->pass->model->hp;
    op_begin(me, il, OP_ATTENTION, "attention", -1, h->n_head, h->head_dim, me->pass->batch->n);
    attend_divided(me, il);
    attend_whole(me, il);
    op_end(me);
    op_sync(me);
}
