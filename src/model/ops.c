/* SPDX-License-Identifier: MIT
 *
 * ops.c: the operations that all blocks are written in: each shares one kernel's work between
 * the members of the team and, when a trace is attached, accounts for it. See step.h.
 *
 * Matrix rows are shared contiguously, so that each member streams its own part of the
 * weights; batch rows likewise.
 */
#include "model/ops.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

#include "base/os.h"
#include "kernel/cost/cost.h"

#define STRIP          256 /* outputs that are passed on while in cache; whole blocks of every activation format */
#define STRIP_MIN_ROWS 64  /* fewer batch rows leave everything in cache without */
#define PIECE_MACS     2e9 /* of a member's multiply-adds between two looks at whether to go on: 5 to 20 ms */

bool step_is_abandoned(const struct worker *w)
{
    struct step *s = w->s;
    if (!s->can_stop) return false;
    if (atomic_load_explicit(&s->is_abandoned, memory_order_relaxed)) return true;
    if (w->ith != 0 || !s->is_cancelled(s->cancel_arg)) return false;
    atomic_store_explicit(&s->is_abandoned, true, memory_order_relaxed);
    return true;
}

void op_share(const struct worker *w, int n, int unit, int *lo, int *hi)
{
    pool_share(n, unit, w->ith, w->nth, lo, hi);
    if (step_is_abandoned(w)) *hi = *lo;
}

void op_sync(const struct worker *w) { pool_barrier(w->s->pool); }

/* ---- accounting ---- */

void op_begin(const struct worker *w, int il, const char *name, int dtype, int64_t n, int64_t k, int64_t cols)
{
    struct trace *t = w->s->trace;
    if (!t || w->ith != 0) return;
    assert(t->n < t->cap);
    t->ops[t->n] = (struct trace_op){.name = name, .layer = il, .dtype = dtype, .n = n, .k = k, .cols = cols};
    if (w->s->kt.is_cost) *(struct cost *)w->scratch = (struct cost){0};
    t->started_ns = clock_ns();
}

void op_end(const struct worker *w)
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

void op_quant_row(const struct worker *w, const struct acts *x, int k, int i, const struct linear *const *users)
{
    bool done[ACT_N] = {[ACT_F32] = true};
    for (; *users; users++) {
        enum act a = kernel_act_of((*users)->w->type);
        if (done[a]) continue;
        w->s->kt.quant[a](rows_at(x->f32, i), 0, k, k, x->q[a] + (size_t)i * x->ld[a], w->scratch);
        done[a] = true;
    }
}

void op_embed(const struct worker *w)
{
    struct step *s = w->s;
    const struct tensor *t = s->model->token_embd;
    int lo, hi;
    op_begin(w, -1, "token_embd", t->type, 1, t->ne[0], s->batch->n);
    op_share(w, s->batch->n, 1, &lo, &hi);
    for (int r = lo; r < hi; r++) {
        const struct side side = side_from(t->side, t->ne[0], s->batch->token[r]);
        s->kt.dequant(t->type, t->data + (size_t)s->batch->token[r] * t->row_bytes, &side, t->ne[0], rows_at(s->x, r),
                      w->scratch);
        if (s->model->hp.embd_scale != 1)
            s->kt.scale(rows_at(s->x, r), s->model->hp.embd_scale, (int)t->ne[0], w->scratch);
        rope_at(&s->rope, s->batch->pos[r], s->cs + (size_t)r * (size_t)s->rope.n_pairs);
        if (s->cs_local)
            rope_at(&s->rope_local, s->batch->pos[r], s->cs_local + (size_t)r * (size_t)s->rope_local.n_pairs);
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
    op_share(w, s->batch->n, 1, &lo, &hi);
    for (int r = lo; r < hi; r++) {
        s->kt.rms_norm(rows_at(s->x, r), norm, h->norm_eps, h->n_embd, rows_at(s->h.f32, r), w->scratch);
        op_quant_row(w, &s->h, h->n_embd, r, users);
    }
    op_end(w);
    op_sync(w);
}

void op_norm_add(const struct worker *w, int il, const char *name, const float *norm)
{
    struct step *s = w->s;
    const struct hparams *h = &s->model->hp;
    int lo, hi;
    op_begin(w, il, name, -1, h->n_embd, 1, s->batch->n);
    op_share(w, s->batch->n, 1, &lo, &hi);
    for (int r = lo; r < hi; r++) {
        float *y = rows_at(s->h.f32, r);
        s->kt.rms_norm(y, norm, h->norm_eps, h->n_embd, y, w->scratch);
        if (h->residual_scale != 1) s->kt.scale(y, h->residual_scale, h->n_embd, w->scratch);
        s->kt.add(rows_at(s->x, r), y, h->n_embd, w->scratch);
    }
    op_end(w);
    op_sync(w);
}

/* Rows of k: normalised where there is a norm, and brought into the users' formats. */
static void quant_rows(const struct worker *w, int il, const char *name, const struct acts *x, int k, const float *norm,
                       const struct linear *const *users)
{
    struct step *s = w->s;
    int lo, hi;
    op_begin(w, il, name, -1, k, 1, s->batch->n);
    op_share(w, s->batch->n, 1, &lo, &hi);
    for (int r = lo; r < hi; r++) {
        float *y = rows_at(x->f32, r);
        if (norm) s->kt.rms_norm(y, norm, s->model->hp.norm_eps, k, y, w->scratch);
        op_quant_row(w, x, k, r, users);
    }
    op_end(w);
    op_sync(w);
}


void op_quant_att(const struct worker *w, int il, const struct linear *const *users)
{
    quant_rows(w, il, "attn_quant", &w->s->att, hp_att_width(&w->s->model->hp), NULL, users);
}

void op_norm_att(const struct worker *w, int il, const float *norm, const struct linear *const *users)
{
    quant_rows(w, il, "attn_sub_norm", &w->s->att, hp_att_width(&w->s->model->hp), norm, users);
}

void op_quant_x(const struct worker *w, int il, const struct linear *const *users)
{
    quant_rows(w, il, "quant", &w->s->bare, w->s->model->hp.n_embd, NULL, users);
}

/* ---- matrices ---- */

/* Matrix rows in one piece of work. Where nobody can cancel, all: a product by itself is a little faster in one. */
static int piece_of(const struct worker *w, int n_cols, int64_t k)
{
    double n = PIECE_MACS / ((double)k * n_cols);
    return !w->s->can_stop || n > INT_MAX ? INT_MAX
           : n > OP_ROW_UNIT                  ? (int)n / OP_ROW_UNIT * OP_ROW_UNIT
                                              : OP_ROW_UNIT;
}

/* A piece of op_product(). */
static void product(const struct worker *w, const struct op_matrix *m, const struct acts *src, const int32_t *cols,
                    int n_cols, int lo, int hi, float *y, size_t ld_y)
{
    struct step *s = w->s;
    enum act a = kernel_act_of(m->type);
    struct gemm g = {
        .w = m->data + (size_t)lo * m->row_bytes,
        .ld_w = m->row_bytes,
        .n_rows = hi - lo,
        .k = m->k,
        .x = a == ACT_F32 ? (const uint8_t *)src->f32.p : src->q[a],
        .ld_x = a == ACT_F32 ? src->f32.ld * sizeof(float) : src->ld[a],
        .cols = cols,
        .n_cols = n_cols,
        .y = y,
        .ld_y = ld_y,
        .side = side_from(m->side, m->k, lo),
    };
    s->kt.gemm[m->type](&g, w->scratch);
    for (int c = 0; m->s && c < n_cols; c++) s->kt.scale(y + (size_t)c * ld_y, *m->s, hi - lo, w->scratch);
    if (!m->b) return;
    for (int c = 0; c < n_cols; c++) s->kt.add(y + (size_t)c * ld_y, m->b + lo, hi - lo, w->scratch);
}

bool op_product(const struct worker *w, const struct op_matrix *m, const struct acts *src, const int32_t *cols,
                int n_cols, int lo, int hi, float *y, size_t ld_y)
{
    int piece = piece_of(w, n_cols, m->k);
    for (int at = lo, n; at < hi; at += n) {
        if (step_is_abandoned(w)) return false;
        n = hi - at < piece ? hi - at : piece;
        product(w, m, src, cols, n_cols, at, at + n, y + (at - lo), ld_y);
    }
    return true;
}

bool op_matmul_part(const struct worker *w, const struct linear *l, const struct acts *src, int n_cols, int lo, int hi,
                    float *y, size_t ld_y)
{
    const struct op_matrix m = {l->w->type, l->w->data, l->w->row_bytes, (int)l->w->ne[0], l->b, l->s, l->w->side};
    return op_product(w, &m, src, NULL, n_cols, lo, hi, y, ld_y);
}

void op_matmul(const struct worker *w, int il, const char *name, const struct linear *l, const struct acts *src,
               struct rows y)
{
    int lo, hi;
    op_begin(w, il, name, l->w->type, l->w->ne[1], l->w->ne[0], w->s->batch->n);
    op_share(w, (int)l->w->ne[1], OP_ROW_UNIT, &lo, &hi);
    op_matmul_part(w, l, src, w->s->batch->n, lo, hi, y.p + lo, y.ld);
    op_end(w);
}

int op_strip(int n_cols, int lo, int hi) { return n_cols < STRIP_MIN_ROWS || hi - lo < STRIP ? hi - lo : STRIP; }

/* A member's strips take turns in its part of h, without gaps between their rows. */
void op_matmul_add(const struct worker *w, int il, const char *name, const struct linear *l, const struct acts *src)
{
    struct step *s = w->s;
    int n = s->batch->n, lo, hi;
    op_begin(w, il, name, l->w->type, l->w->ne[1], l->w->ne[0], n);
    op_share(w, (int)l->w->ne[1], OP_ROW_UNIT, &lo, &hi);
    float *y = s->h.f32.p + (size_t)n * (size_t)lo, residual_scale = s->model->hp.residual_scale;
    for (int at = lo, m, strip = op_strip(n, lo, hi); at < hi; at += m) {
        m = hi - at < strip ? hi - at : strip;
        if (!op_matmul_part(w, l, src, n, at, at + m, y, (size_t)m)) break;
        if (residual_scale != 1) s->kt.scale(y, residual_scale, n * m, w->scratch);
        for (int r = 0; r < n; r++) s->kt.add(rows_at(s->x, r) + at, y + (size_t)r * (size_t)m, m, w->scratch);
    }
    op_end(w);
    op_sync(w);
}

/* Outputs [lo, hi) of gate and up, gated, and brought into format a where they lie, in whole blocks: what is between
 * the matrices never leaves the cache. The strips take turns in the member's parts of gate and up. */
static void gate_up_strips(const struct worker *w, enum act_kind f, const struct acts *src, const struct linear *gate,
                           const struct linear *up, enum act a, int lo, int hi)
{
    struct step *s = w->s;
    int n = s->batch->n, n_ff = (int)gate->w->ne[1];
    float *g = s->gate.f32.p + (size_t)n * (size_t)lo, *u = s->up.p + (size_t)n * (size_t)lo;
    for (int at = lo, m, strip = op_strip(n, lo, hi); at < hi; at += m) {
        m = hi - at < strip ? hi - at : strip;
        if (!op_matmul_part(w, gate, src, n, at, at + m, g, (size_t)m)) return;
        if (!op_matmul_part(w, up, src, n, at, at + m, u, (size_t)m)) return;
        for (int r = 0; r < n; r++) {
            float *y = g + (size_t)r * (size_t)m;
            s->kt.act_mul[f](y, u + (size_t)r * (size_t)m, m, y, w->scratch);
            s->kt.quant[a](y, at, m, n_ff, s->gate.q[a] + (size_t)r * s->gate.ld[a], w->scratch);
        }
    }
}

/* Members that share the outputs in whole blocks of the format can bring their own into it. Where that would be
 * unfair, because the blocks are too few, and where a row is normalised first, it is prepared when it is complete. */
void op_gate_up_of(const struct worker *w, int il, enum act_kind f, const struct acts *src, const struct linear *gate,
                   const struct linear *up, const float *norm, const struct linear *down)
{
    struct step *s = w->s;
    enum act a = kernel_act_of(down->w->type);
    int n = s->batch->n, n_ff = (int)gate->w->ne[1], n_blocks = (n_ff + STRIP - 1) / STRIP, lo, hi;
    op_begin(w, il, "ffn_gate_up", gate->w->type, 2 * gate->w->ne[1], gate->w->ne[0], n);
    if (!norm && a != ACT_F32 && (n_blocks % w->nth == 0 || n_blocks >= 8 * w->nth)) {
        op_share(w, n_ff, STRIP, &lo, &hi);
        gate_up_strips(w, f, src, gate, up, a, lo, hi);
    } else {
        op_share(w, n_ff, OP_ROW_UNIT, &lo, &hi);
        bool whole = op_matmul_part(w, gate, src, n, lo, hi, s->gate.f32.p + lo, s->gate.f32.ld) &&
                     op_matmul_part(w, up, src, n, lo, hi, s->up.p + lo, s->up.ld);
        for (int r = 0; r < n && whole; r++) {
            float *y = rows_at(s->gate.f32, r) + lo;
            s->kt.act_mul[f](y, rows_at(s->up, r) + lo, hi - lo, y, w->scratch);
        }
        op_sync(w);
        op_share(w, a == ACT_F32 && !norm ? 0 : n, 1, &lo, &hi);
        for (int r = lo; r < hi; r++) {
            float *y = rows_at(s->gate.f32, r);
            if (norm) s->kt.rms_norm(y, norm, s->model->hp.norm_eps, n_ff, y, w->scratch);
            op_quant_row(w, &s->gate, n_ff, r, (const struct linear *const[]){down, NULL});
        }
    }
    op_end(w);
    op_sync(w);
}

void op_gate_up(const struct worker *w, int il, enum act_kind f, const struct linear *gate, const struct linear *up,
                const struct linear *down)
{
    op_gate_up_of(w, il, f, &w->s->h, gate, up, NULL, down);
}

/* Logits [lo, hi) of every row: scaled and capped, where the model says so. */
static void bend_logits(const struct worker *w, int lo, int hi)
{
    struct step *s = w->s;
    const struct hparams *h = &s->model->hp;
    for (int i = 0; i < s->n_out; i++) {
        float *y = s->logits + (size_t)i * (size_t)h->n_vocab + lo;
        if (h->logit_scale != 1) s->kt.scale(y, h->logit_scale, hi - lo, w->scratch);
        if (h->logit_softcap != 0) s->kt.softcap(y, h->logit_softcap, hi - lo, w->scratch);
    }
}

/* Norms and multiplies the rows that want logits, and only those. */
void op_logits(const struct worker *w)
{
    struct step *s = w->s;
    const struct model *m = s->model;
    const struct linear out = {.w = m->output};
    int n_embd = m->hp.n_embd, lo, hi;
    op_begin(w, -1, "output_norm", -1, n_embd, 1, s->n_out);
    op_share(w, s->n_out, 1, &lo, &hi);
    for (int i = lo; i < hi; i++) {
        s->kt.rms_norm(rows_at(s->x, s->out_rows[i]), m->output_norm, m->hp.norm_eps, n_embd, rows_at(s->h.f32, i),
                       w->scratch);
        op_quant_row(w, &s->h, n_embd, i, (const struct linear *const[]){&out, NULL});
    }
    op_end(w);
    op_sync(w);
    op_begin(w, -1, "output", m->output->type, m->output->ne[1], n_embd, s->n_out);
    op_share(w, (int)m->output->ne[1], OP_ROW_UNIT, &lo, &hi);
    if (op_matmul_part(w, &out, &s->h, s->n_out, lo, hi, s->logits + lo, (size_t)m->hp.n_vocab)) bend_logits(w, lo, hi);
    op_end(w);
}
