/* SPDX-License-Identifier: MIT
 *
 * forward.c: the forward pass, with the only loop over layers.
 */
#include "model/forward.h"

#include <assert.h>

#include "base/os.h"
#include "model/pass/ops_common.h"

struct kv_shape forward_kv_shape(const struct model *m, enum kv_type type)
{
    const struct hparams *h = &m->hp;
    if (!h->n_layer_kv) /* pages that nobody writes to; they have a size, so that each has an address */
        return (struct kv_shape){.type = type,
                                 .n_layer = 1,
                                 .n_head_kv = 1,
                                 .head_dim = 1,
                                 .head_dim_v = 1,
                                 .page_slots = KV_PAGE_SLOTS,
                                 .state_bytes = h->state_bytes};
    return (struct kv_shape){.type = type,
                             .n_layer = h->n_layer_kv,
                             .n_head_kv = h->n_head_kv,
                             .head_dim = h->head_dim,
                             .head_dim_v = h->head_dim_v,
                             .page_slots = KV_PAGE_SLOTS,
                             .state_bytes = h->state_bytes};
}

struct kv_shape forward_window_shape(const struct model *m, enum kv_type type)
{
    const struct hparams *h = &m->hp;
    struct kv_shape s = forward_kv_shape(m, type);
    if (!h->n_layer_win || h->state_bytes) return s; /* states have cuts of their own */
    s.n_layer -= h->n_layer_win;
    s.n_layer_win = h->n_layer_win;
    s.window = h->n_swa;
    return s;
}

/* ---- buffers ---- */

static size_t region_bytes(const struct model *m, int n_rows, int n_threads)
{
    struct pass measured;
    return pass_cut(&measured, m, n_rows, n_threads, NULL);
}

size_t forward_bytes(const struct model *m, int max_rows, int max_seqs, int n_threads)
{
    return region_bytes(m, max_rows, n_threads) + states_bytes(m, max_seqs);
}

static void init_ropes(struct pass *p, int n_ctx)
{
    const struct model *m = p->model;
    const float *factors = m->rope_freqs;
    if (m->hp.rope_scaling == ROPE_LONG) factors = n_ctx > m->hp.rope_ctx_orig ? m->rope_long : m->rope_short;
    rope_init(&p->rope, &m->hp, factors);
    if (m->hp.has_local_rope) rope_init_local(&p->rope_local, &m->hp);
}

int forward_init(struct forward *f, const struct model *m, const struct kernels *kt, struct pool *pool, int max_rows,
                 int max_seqs, int n_ctx, struct ledger *l, struct qn_error *e)
{
    int threads = pool_n_threads(pool);
    size_t all = forward_bytes(m, max_rows, max_seqs, threads), bytes = region_bytes(m, max_rows, threads);
    *f = (struct forward){
        .pass = {.model = m, .kt = *kt, .pool = pool}, .ledger = l, .max_rows = max_rows, .max_seqs = max_seqs};
    int rc = ledger_take(l, all, "the forward pass's buffers", e);
    if (rc) return rc;
    if ((rc = states_open(&f->pass.states, m, max_seqs, e))) goto fail;
    if ((rc = region_open(&f->region, bytes, region_bytes(m, 1, threads), "the forward pass's buffers", e))) goto fail;
    init_ropes(&f->pass, n_ctx);
    return 0;
fail:
    states_close(&f->pass.states);
    ledger_give(l, all);
    return rc;
}

void forward_deinit(struct forward *f)
{
    if (!f->region.data) return;
    int threads = pool_n_threads(f->pass.pool);
    ledger_give(f->ledger, forward_bytes(f->pass.model, f->max_rows, f->max_seqs, threads));
    states_close(&f->pass.states);
    region_close(&f->region);
}

size_t forward_buffer_bytes(const struct forward *f) { return f->region.size + f->pass.states.undo.size; }

/* ---- the pass ---- */

static void run_layers(void *arg, int ith, int nth)
{
    struct pass *p = arg;
    const struct member me = op_member(p, ith, nth);
    if (p->states.n_saved) delta_copy_states(&me, false); /* op_embed() lines up before anyone changes them */
    op_embed(&me);
    const struct hparams *h = &p->model->hp;
    for (int il = h->layer_lo; il < h->layer_hi; il++) p->model->arch->layer(&me, il);
    if (!p->n_out || !model_is_last(p->model)) return;
    if (ith == 0) p->head_ns = clock_ns();
    op_logits(&me);
}

static void put_back(void *arg, int ith, int nth)
{
    const struct member me = op_member(arg, ith, nth);
    delta_copy_states(&me, true);
}

static void run_again(void *arg, int ith, int nth)
{
    const struct member me = op_member(arg, ith, nth);
    delta_copy_states(&me, true);
    op_sync(&me);
    delta_replay(&me);
}

static void list_out_rows(struct pass *p)
{
    p->n_out = 0;
    for (int r = 0; r < p->batch->n; r++)
        if (p->batch->want_logits[r]) p->out_rows[p->n_out++] = r;
}

void forward_begin(struct forward *f, const struct batch *b, struct kv_seq *const *mem, float *logits, bool has_state)
{
    struct pass *p = &f->pass;
    int threads = pool_n_threads(p->pool);
    assert(b->n >= 1 && b->n <= f->max_rows);
    p->batch = b;
    p->mem = mem;
    p->logits = logits;
    atomic_store_explicit(&p->is_abandoned, false, memory_order_relaxed); /* pool_run publishes it */
    /* The buffers are packed for the batch's rows: a pass of one row stays in the region's small pages. */
    pass_cut(p, p->model, b->n, threads, f->region.data);
    p->can_stop = p->is_cancelled != NULL;
    list_out_rows(p);
    attn_survey(&p->calls, &p->model->hp, b, threads);
    states_survey(&p->states, b, has_state, &p->can_stop);
}

bool forward_run(struct forward *f, const struct batch *b, struct kv_seq *const *mem, float *logits)
{
    assert(model_is_first(f->pass.model) && model_is_last(f->pass.model));
    return forward_run_stage(f, b, mem, NULL, logits);
}

bool forward_run_stage(struct forward *f, const struct batch *b, struct kv_seq *const *mem, const float *in,
                       float *logits)
{
    struct pass *p = &f->pass;
    assert(model_is_first(p->model) || in);
    p->rows_in = in;
    forward_begin(f, b, mem, logits, p->model->hp.state_bytes != 0);
    pool_run(p->pool, run_layers, p);
    if (!atomic_load_explicit(&p->is_abandoned, memory_order_relaxed)) return true;
    if (p->states.n_saved) pool_run(p->pool, put_back, p);
    return false;
}

void forward_accept(struct forward *f, const int32_t *n_accepted)
{
    struct pass *p = &f->pass;
    assert(!p->is_abandoned);
    p->can_stop = false;
    if (states_accept(&p->states, n_accepted)) pool_run(p->pool, run_again, p);
    states_forget(&p->states);
}

void forward_take_back(struct forward *f)
{
    struct pass *p = &f->pass;
    assert(p->can_stop && !p->is_abandoned);
    if (p->states.n_saved) pool_run(p->pool, put_back, p);
}

const float *forward_row(const struct forward *f, int r)
{
    assert(!f->pass.is_abandoned && r >= 0 && r < f->max_rows);
    return rows_at(f->pass.x, r);
}

void forward_hidden(const struct forward *f, int r, float *out)
{
    const struct pass *p = &f->pass;
    const struct hparams *h = &p->model->hp;
    assert(!p->is_abandoned && r >= 0 && r < f->max_rows && model_is_last(p->model));
    p->kt.rms_norm(rows_at(p->x, r), p->model->output_norm, h->norm_eps, h->n_embd, out, p->scratch);
}
