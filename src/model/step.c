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
    int q = h->n_head * h->head_dim, att = hp_att_width(h), n_ff = dense_width(h);
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
    s->bare = s->h;
    s->bare.f32 = s->x;
    s->heads = h->latent_is_absorbed ? cut_rows(&c, n, h->n_head * h->head_dim_v) : s->att.f32;
    latent_cut(&c, h, n, s);
    moe_cut(&c, h, n, &s->moe);
    s->cs = cut(&c, (size_t)n * (size_t)(h->n_rot / 2) * sizeof *s->cs);
    if (h->has_local_rope) s->cs_local = cut(&c, (size_t)n * (size_t)(h->n_rot / 2) * sizeof *s->cs_local);
    s->scratch = cut(&c, (size_t)n_threads * KERNEL_SCRATCH_BYTES);
    s->runs = cut(&c, (size_t)n * sizeof *s->runs);
    s->out_rows = cut(&c, (size_t)n * sizeof *s->out_rows);
    return c.used;
}

size_t step_bytes(const struct model *m, int max_rows, int n_threads)
{
    struct step s;
    return cut_all(&s, m, max_rows, n_threads, NULL);
}

struct kv_shape step_kv_shape(const struct model *m, enum kv_type type)
{
    const struct hparams *h = &m->hp;
    return (struct kv_shape){type,          h->n_layer_kv, h->n_head_kv,  h->head_dim,
                             h->head_dim_v, KV_PAGE_SLOTS, h->state_bytes};
}

int step_init(struct step *s, const struct model *m, const struct kernels *kt, struct pool *pool, int max_rows,
              int n_ctx, struct ledger *l, struct qn_error *e)
{
    size_t bytes = step_bytes(m, max_rows, pool_n_threads(pool)), one_row = step_bytes(m, 1, pool_n_threads(pool));
    const struct hparams *h = &m->hp;
    *s = (struct step){.model = m, .kt = *kt, .pool = pool, .max_rows = max_rows, .ledger = l};
    int rc = ledger_take(l, bytes, "the forward pass's buffers", e);
    if (rc) return rc;
    if ((rc = region_open(&s->region, bytes, one_row, "the forward pass's buffers", e))) {
        ledger_give(l, bytes);
        return rc;
    }
    const float *factors = m->rope_freqs;
    if (h->rope_scaling == ROPE_LONG) factors = n_ctx > h->rope_ctx_orig ? m->rope_long : m->rope_short;
    rope_init(&s->rope, h, factors);
    if (h->has_local_rope) rope_init_local(&s->rope_local, h);
    return 0;
}

void step_deinit(struct step *s)
{
    if (!s->region.data) return;
    ledger_give(s->ledger, s->region.size);
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

static void member(void *arg, int ith, int nth)
{
    struct step *s = arg;
    const struct worker w = {s, ith, nth, s->scratch + (size_t)ith * KERNEL_SCRATCH_BYTES};
    op_embed(&w);
    for (int il = 0; il < s->model->hp.n_layer; il++) s->model->arch->layer(&w, il);
    if (s->n_out) op_logits(&w);
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
    survey(s);
    pool_run(s->pool, member, s);
    return !atomic_load_explicit(&s->is_abandoned, memory_order_relaxed);
}

void step_hidden(const struct step *s, int r, float *out)
{
    const struct hparams *h = &s->model->hp;
    assert(!s->is_abandoned && r >= 0 && r < s->max_rows);
    s->kt.rms_norm(s->x.p + (size_t)r * s->x.ld, s->model->output_norm, h->norm_eps, h->n_embd, out, s->scratch);
}
