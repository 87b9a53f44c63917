/* SPDX-License-Identifier: MIT
 *
 * step.c: the forward pass: buffers, and the only loop over layers. See step.h.
 */
#include "model/ops.h"

#include <assert.h>
#include <string.h>

/* ---- buffers ---- */

void *cut(struct cutter *c, size_t bytes)
{
    void *p = c->base ? c->base + c->used : NULL;
    c->used += act_round64(bytes);
    return p;
}

struct rows cut_rows(struct cutter *c, int n_rows, int k)
{
    size_t ld = act_row_bytes(ACT_F32, k) / sizeof(float);
    return (struct rows){cut(c, (size_t)n_rows * ld * sizeof(float)), ld};
}

void cut_acts(struct cutter *c, int n_rows, int k, struct acts *x)
{
    for (enum act a = ACT_Q32; a < ACT_N; a++) {
        /* widths that are no multiple of the block never use the format; round up for the size */
        x->ld[a] = act_row_bytes(a, (k + 255) / 256 * 256);
        x->q[a] = cut(c, (size_t)n_rows * x->ld[a]);
    }
}

#define CALLS_EACH 4 /* attention calls for each member, if there are rows for it */
#define LEAST_PART 8 /* query heads worth a call of their own, which reads the keys and values again */

static int max_int(int a, int b) { return a > b ? a : b; }
static int min_int(int a, int b) { return a < b ? a : b; }

/* Rows whose sizes are powers of two would share few sets of a cache: one line more keeps a head's rows apart. */
static struct rows cut_apart(struct cutter *c, int n_rows, int k) { return cut_rows(c, n_rows, k + 16); }

static void cut_delta(struct cutter *c, int n, const struct model *m, struct step *s)
{
    const struct hparams *h = &m->hp;
    int delta_v = h->delta_n_head_v * h->delta_dim_v;
    bool is_grouped = false;
    for (int i = 0; i < h->n_layer; i++) is_grouped |= m->layers[i].delta_in.w != NULL;
    s->delta_qkv = cut_apart(c, n, hp_conv_dim(h));
    s->delta_z = cut_apart(c, n, delta_v);
    s->delta_ba = cut_rows(c, n, 2 * h->delta_n_head_v);
    s->delta_a = cut_rows(c, n, h->delta_n_head_v);
    s->delta_b = cut_rows(c, n, h->delta_n_head_v);
    if (is_grouped) s->delta_in = cut_apart(c, n, hp_conv_dim(h) + delta_v);
}

/* The width of a network of all tokens: the dense one, or the expert that they share. */
static int dense_width(const struct hparams *h)
{
    int n_ff = 0;
    for (int il = 0; il < h->n_layer; il++) n_ff = max_int(n_ff, h->layer[il].has_experts ? h->n_ff_shexp : h->n_ff);
    return n_ff;
}

static size_t cut_all(struct step *s, const struct model *m, int n, int n_threads, uint8_t *base)
{
    const struct hparams *h = &m->hp;
    struct cutter c = {.base = base};
    int q = h->n_head * h->head_dim * (h->has_attn_gate ? 2 : 1), n_ff = dense_width(h);
    int att = max_int(hp_att_width(h), h->delta_n_head_v * h->delta_dim_v);
    s->x = cut_rows(&c, n, h->n_embd);
    s->h.f32 = cut_rows(&c, n, h->n_embd);
    s->q = cut_rows(&c, n, q);
    s->k = cut_rows(&c, n, h->n_head_kv * h->head_dim);
    s->v = cut_rows(&c, n, h->n_head_kv * h->head_dim_v);
    s->gate.f32 = cut_rows(&c, n, n_ff);
    s->up = cut_rows(&c, n, n_ff);
    cut_acts(&c, n, max_int(h->n_embd, att), &s->h);
    cut_acts(&c, n, n_ff, &s->gate);
    s->att = s->h;
    s->att.f32 = cut_rows(&c, n, att);
    if (h->state_bytes) cut_delta(&c, n, m, s);
    s->bare = s->h;
    s->bare.f32 = s->x;
    s->heads = h->latent_is_absorbed ? cut_rows(&c, n, h->n_head * h->head_dim_v) : s->att.f32;
    latent_cut(&c, h, n, s);
    moe_cut(&c, h, n, &s->moe);
    s->cs = cut(&c, (size_t)n * (size_t)(h->n_rot / 2) * sizeof *s->cs);
    if (h->has_local_rope) s->cs_local = cut(&c, (size_t)n * (size_t)(h->n_rot / 2) * sizeof *s->cs_local);
    s->scratch = cut(&c, (size_t)n_threads * KERNEL_SCRATCH_BYTES);
    s->runs = cut(&c, (size_t)n * sizeof *s->runs);
    s->spans = cut(&c, (size_t)n * sizeof *s->spans);
    s->out_rows = cut(&c, (size_t)n * sizeof *s->out_rows);
    return c.used;
}

/* What the states' copies and the held rows take; sets the rows' size. */
static size_t undo_bytes(const struct model *m, int max_seqs, struct rows *kept)
{
    const struct hparams *h = &m->hp;
    int n_recurrent = 0;
    for (int i = 0; i < h->n_layer; i++) n_recurrent += h->layer[i].is_recurrent;
    struct cutter c = {0};
    size_t qkv = cut_apart(&c, 1, hp_conv_dim(h)).ld, gate = cut_rows(&c, 1, h->delta_n_head_v).ld;
    kept->ld = qkv + 2 * gate;
    return act_round64(h->state_bytes) * (size_t)max_seqs +
           (size_t)n_recurrent * STEP_MAX_HELD * kept->ld * sizeof(float);
}

size_t step_bytes(const struct model *m, int max_rows, int max_seqs, int n_threads)
{
    struct step s;
    size_t undo = m->hp.state_bytes ? undo_bytes(m, max_seqs, &s.kept) : 0;
    return cut_all(&s, m, max_rows, n_threads, NULL) + undo;
}

static int open_undo(struct step *s, struct qn_error *e)
{
    size_t saved = act_round64(s->model->hp.state_bytes) * (size_t)s->max_seqs;
    if (!saved) return 0;
    size_t bytes = undo_bytes(s->model, s->max_seqs, &s->kept);
    int rc = region_open(&s->undo, bytes, bytes, "the copies of recurrent states", e);
    if (rc) return rc;
    s->saved = s->undo.data;
    s->kept.p = (float *)(s->undo.data + saved);
    return 0;
}

struct kv_shape step_kv_shape(const struct model *m, enum kv_type type)
{
    const struct hparams *h = &m->hp;
    return (struct kv_shape){type,          h->n_layer_kv, h->n_head_kv,  h->head_dim,
                             h->head_dim_v, KV_PAGE_SLOTS, h->state_bytes};
}

int step_init(struct step *s, const struct model *m, const struct kernels *kt, struct pool *pool, int max_rows,
              int max_seqs, int n_ctx, struct ledger *l, struct qn_error *e)
{
    struct step cut;
    int threads = pool_n_threads(pool);
    size_t all = step_bytes(m, max_rows, max_seqs, threads), bytes = cut_all(&cut, m, max_rows, threads, NULL);
    const struct hparams *h = &m->hp;
    *s = (struct step){.model = m, .kt = *kt, .pool = pool, .max_rows = max_rows, .max_seqs = max_seqs, .ledger = l};
    int rc = ledger_take(l, all, "the forward pass's buffers", e);
    if (rc) return rc;
    if ((rc = open_undo(s, e))) goto fail;
    if ((rc = region_open(&s->region, bytes, cut_all(&cut, m, 1, threads, NULL), "the forward pass's buffers", e)))
        goto fail;
    const float *factors = m->rope_freqs;
    if (h->rope_scaling == ROPE_LONG) factors = n_ctx > h->rope_ctx_orig ? m->rope_long : m->rope_short;
    rope_init(&s->rope, h, factors);
    if (h->has_local_rope) rope_init_local(&s->rope_local, h);
    return 0;
fail:
    region_close(&s->undo);
    ledger_give(l, all);
    return rc;
}

void step_deinit(struct step *s)
{
    if (!s->region.data) return;
    ledger_give(s->ledger, step_bytes(s->model, s->max_rows, s->max_seqs, pool_n_threads(s->pool)));
    region_close(&s->undo);
    region_close(&s->region);
}

/* ---- the pass ---- */

/* Lists the runs of rows that one attention call may take together, and the rows that want logits. Long runs read
 * keys and values less often; but every member should get a few calls, which differ in cost. */
static void survey(struct step *s)
{
    const struct batch *b = s->batch;
    int group = s->model->hp.n_head / s->model->hp.n_head_kv;
    int most = group < ATTN_MAX_Q ? ATTN_MAX_Q / group : 1;
    int fair = b->n * s->model->hp.n_head_kv / (CALLS_EACH * pool_n_threads(s->pool));
    if (most > fair) most = max_int(fair, 1);
    s->n_runs = s->n_out = 0;
    for (int r = 0; r < b->n; r++) {
        struct run *last = s->n_runs ? &s->runs[s->n_runs - 1] : NULL;
        if (last && last->n < most && b->seq[last->row] == b->seq[r])
            last->n++;
        else
            s->runs[s->n_runs++] = (struct run){r, 1};
        if (b->want_logits[r]) s->out_rows[s->n_out++] = r;
    }
    /* One KV head of many query heads is not one member's work. */
    int n_heads = s->n_runs * s->model->hp.n_head_kv, wanted = (pool_n_threads(s->pool) + n_heads - 1) / n_heads;
    s->n_parts = max_int((group + ATTN_MAX_Q - 1) / ATTN_MAX_Q, min_int(wanted, group / LEAST_PART));
}

/* An earlier span of the same sequence. */
static const struct span *earlier(const struct step *s, const struct span *p)
{
    for (const struct span *q = s->spans; q < p; q++)
        if (q->seq == p->seq) return q;
    return NULL;
}

/* Lists the spans, and which states have to be copied: those of sequences with held rows, and, of a pass that may be
 * abandoned, all; where there is no room for them it cannot be. */
static void survey_states(struct step *s)
{
    const struct batch *b = s->batch;
    bool is_single = true;
    int n_seqs = 0;
    s->n_spans = s->n_saved = s->n_kept = 0;
    if (!s->model->hp.state_bytes) return;
    for (int r = 0; r < b->n; r++) {
        struct span *last = s->n_spans ? &s->spans[s->n_spans - 1] : NULL;
        if (last && b->seq[last->row] == b->seq[r])
            last->n++;
        else
            s->spans[s->n_spans++] = (struct span){r, 1, b->seq[r], -1, -1, 0};
    }
    for (int i = 0; i < s->n_spans; i++) {
        bool is_first = !earlier(s, &s->spans[i]);
        n_seqs += is_first;
        is_single &= is_first && s->spans[i].n == 1;
    }
    s->can_stop &= !is_single && n_seqs <= s->max_seqs;
    for (int i = 0; i < s->n_spans; i++) {
        struct span *p = &s->spans[i];
        bool is_held = b->held && b->held[p->row];
        if (is_held) {
            p->kept = s->n_kept;
            s->n_kept += p->n;
        }
        if ((is_held || s->can_stop) && !earlier(s, p)) p->saved = s->n_saved++;
    }
    assert(s->n_kept <= STEP_MAX_HELD && s->n_saved <= s->max_seqs);
}

static struct worker worker_of(struct step *s, int ith, int nth)
{
    return (struct worker){s, ith, nth, s->scratch + (size_t)ith * KERNEL_SCRATCH_BYTES};
}

static void member(void *arg, int ith, int nth)
{
    struct step *s = arg;
    const struct worker w = worker_of(s, ith, nth);
    if (s->n_saved) delta_copy_states(&w, false); /* op_embed() lines up before anyone changes them */
    op_embed(&w);
    for (int il = 0; il < s->model->hp.n_layer; il++) s->model->arch->layer(&w, il);
    if (s->n_out) op_logits(&w);
}

static void put_back(void *arg, int ith, int nth)
{
    const struct worker w = worker_of(arg, ith, nth);
    delta_copy_states(&w, true);
}

static void run_again(void *arg, int ith, int nth)
{
    const struct worker w = worker_of(arg, ith, nth);
    delta_copy_states(&w, true);
    op_sync(&w);
    delta_replay(&w);
}

bool step_run(struct step *s, const struct batch *b, struct memory *const *mem, float *logits)
{
    assert(b->n >= 1 && b->n <= s->max_rows);
    s->batch = b;
    s->mem = mem;
    s->logits = logits;
    atomic_store_explicit(&s->is_abandoned, false, memory_order_relaxed); /* pool_run publishes it */
    /* Packed for the rows there are: a pass of one row stays in the region's small pages. */
    cut_all(s, s->model, b->n, pool_n_threads(s->pool), s->region.data);
    s->can_stop = s->is_cancelled != NULL;
    survey(s);
    survey_states(s);
    pool_run(s->pool, member, s);
    if (!atomic_load_explicit(&s->is_abandoned, memory_order_relaxed)) return true;
    if (s->n_saved) pool_run(s->pool, put_back, s);
    return false;
}

void step_accept(struct step *s, const int32_t *n_accepted)
{
    bool any = false;
    assert(!s->is_abandoned);
    for (int i = 0; i < s->n_spans; i++) {
        struct span *p = &s->spans[i];
        int left = n_accepted[p->seq], n = 0;
        for (int j = 0; j < s->n_spans; j++) {
            if (s->spans[j].seq != p->seq) continue;
            if (j < i) left -= s->spans[j].n;
            n += s->spans[j].n;
        }
        bool is_cut = p->kept >= 0 && n_accepted[p->seq] < n;
        if (!is_cut) p->saved = -1; /* as it is */
        p->n_again = !is_cut || left < 0 ? 0 : left < p->n ? left : p->n;
        any |= is_cut;
    }
    s->can_stop = false;
    if (any) pool_run(s->pool, run_again, s);
    for (int i = 0; i < s->n_spans; i++) s->spans[i].kept = -1; /* once */
}

void step_hidden(const struct step *s, int r, float *out)
{
    const struct hparams *h = &s->model->hp;
    assert(!s->is_abandoned && r >= 0 && r < s->max_rows);
    s->kt.rms_norm(s->x.p + (size_t)r * s->x.ld, s->model->output_norm, h->norm_eps, h->n_embd, out, s->scratch);
}
