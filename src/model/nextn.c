/* SPDX-License-Identifier: MIT
 *
 * nextn.c: the pass of the block that predicts the token after the next one. See nextn.h.
 */
#include "model/nextn.h"

#include <assert.h>
#include <string.h>

#include "model/pass/ops_common.h"

static const struct layer *block_of(const struct model *m) { return &m->layers[m->hp.n_layer]; }

struct kv_shape nextn_kv_shape(const struct model *m, enum kv_type type)
{
    struct kv_shape s = forward_kv_shape(m, type);
    s.n_layer = 1;
    s.state_bytes = 0;
    return s;
}

/* ---- buffers ---- */

static size_t cut(const struct model *m, int max_rows, uint8_t *base, struct acts *joint)
{
    struct cutter c = {.base = base};
    joint->f32 = cut_rows(&c, max_rows, 2 * m->hp.n_embd);
    cut_acts(&c, max_rows, 2 * m->hp.n_embd, joint);
    return c.used;
}

size_t nextn_bytes(const struct model *m, int max_rows)
{
    struct acts measured;
    return cut(m, max_rows, NULL, &measured);
}

int nextn_init(struct nextn *x, struct forward *f, int max_rows, int n_vocab, struct ledger *l, struct qn_error *e)
{
    static const char what[] = "the buffers of the block that predicts tokens";
    const struct model *m = f->pass.model;
    size_t bytes = nextn_bytes(m, max_rows);
    assert(m->has_nextn && max_rows <= f->max_rows && n_vocab <= m->hp.n_vocab);
    int rc = ledger_take(l, bytes, what, e);
    if (rc) return rc;
    *x = (struct nextn){.forward = f, .ledger = l, .max_rows = max_rows, .n_vocab = n_vocab};
    if ((rc = region_open(&x->region, bytes, bytes, what, e))) {
        ledger_give(l, bytes);
        *x = (struct nextn){0};
        return rc;
    }
    cut(m, max_rows, x->region.data, &x->joint);
    return 0;
}

void nextn_deinit(struct nextn *x)
{
    if (!x->forward) return;
    region_close(&x->region);
    ledger_give(x->ledger, nextn_bytes(x->forward->pass.model, x->max_rows));
    *x = (struct nextn){0};
}

/* ---- the pass ---- */

/* joint = [RMS(embedding) | RMS(hidden row)] of row r. */
static void join_row(const struct member *me, struct nextn *x, int r)
{
    const struct model *m = me->pass->model;
    const struct layer *l = block_of(m);
    float *e = rows_at(x->joint.f32, r), *h = e + m->hp.n_embd;
    op_begin_row(me, l->own_embd.w ? l->own_embd.w : m->token_embd, r, e);
    me->pass->kt.rms_norm(e, l->embd_norm, m->hp.norm_eps, m->hp.n_embd, e, me->scratch);
    if (x->hidden[r])
        me->pass->kt.rms_norm(x->hidden[r], l->hidden_norm, m->hp.norm_eps, m->hp.n_embd, h, me->scratch);
    else
        memset(h, 0, (size_t)m->hp.n_embd * sizeof *h);
    op_quant_row(me, &x->joint, 2 * m->hp.n_embd, r, (const struct linear *const[]){&l->joint, NULL});
}

/* x = W joint of all rows. Syncs. */
static void join(const struct member *me, struct nextn *x)
{
    struct pass *p = me->pass;
    int lo, hi;
    op_begin(me, p->model->hp.n_layer, OP_EMBEDDING, "nextn_norms", -1, 2 * p->model->hp.n_embd, 1, p->batch->n);
    op_share(me, p->batch->n, 1, &lo, &hi);
    for (int r = lo; r < hi; r++) join_row(me, x, r);
    op_end(me);
    op_sync(me);
    op_matmul(me, p->model->hp.n_layer, OP_EMBEDDING, "nextn_joint", &block_of(p->model)->joint, &x->joint, p->x);
    op_sync(me);
}

static void run_block(void *arg, int ith, int nth)
{
    struct nextn *x = arg;
    struct pass *p = &x->forward->pass;
    const struct member me = op_member(p, ith, nth);
    const struct layer *l = block_of(p->model);
    join(&me, x);
    p->model->arch->layer(&me, p->model->hp.n_layer);
    if (!p->n_out) return;
    const struct linear shared = {.w = p->model->output};
    op_logits_by(&me, l->head_norm ? l->head_norm : p->model->output_norm, l->own_head.w ? &l->own_head : &shared,
                 x->n_vocab);
}

void nextn_run(struct nextn *x, const struct batch *b, struct kv_seq *const *mem, const float *const *hidden,
               float *logits)
{
    assert(b->n <= x->max_rows && !x->forward->pass.is_cancelled);
    x->hidden = hidden;
    forward_begin(x->forward, b, mem, logits, false);
    pool_run(x->forward->pass.pool, run_block, x);
}

const float *nextn_hidden(const struct nextn *x, int i) { return rows_at(x->forward->pass.h.f32, i); }
