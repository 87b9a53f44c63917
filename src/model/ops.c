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
    if (!s->is_cancelled) return false;
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
        s->kt.dequant(t->type, t->data + (size_t)s->batch->token[r] * t->row_bytes, t->ne[0], rows_at(s->x, r),
                      w->scratch);
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
    op_share(w, s->batch->n, 1, &lo, &hi);
    for (int r = lo; r < hi; r++) {
        s->kt.rms_norm(rows_at(s->x, r), norm, h->norm_eps, h->n_embd, rows_at(s->h.f32, r), w->scratch);
        op_quant_row(w, &s->h, h->n_embd, r, users);
    }
    op_end(w);
    op_sync(w);
}

void op_quant_att(const struct worker *w, int il, const struct linear *const *users)
{
    struct step *s = w->s;
    int k = hp_att_width(&s->model->hp), lo, hi;
    op_begin(w, il, "attn_quant", -1, k, 1, s->batch->n);
    op_share(w, s->batch->n, 1, &lo, &hi);
    for (int r = lo; r < hi; r++) op_quant_row(w, &s->att, k, r, users);
    op_end(w);
    op_sync(w);
}

/* ---- matrices ---- */

/* Matrix rows in one piece of work. Where nobody can cancel, all: a product by itself is a little faster in one. */
static int piece_of(const struct worker *w, int n_cols, int64_t k)
{
    double n = PIECE_MACS / ((double)k * n_cols);
    return !w->s->is_cancelled || n > INT_MAX ? INT_MAX
           : n > OP_ROW_UNIT                  ? (int)n / OP_ROW_UNIT * OP_ROW_UNIT
                                              : OP_ROW_UNIT;
}

/* Outputs [lo, hi) of W times the first n_cols rows of src, into y: output lo of row 0 is y[0]. */
static void product(const struct worker *w, const struct linear *l, const struct acts *src, int n_cols, int lo, int hi,
                    float *y, size_t ld_y)
{
    struct step *s = w->s;
    const struct tensor *t = l->w;
    enum act a = kernel_act_of(t->type);
    struct gemm g = {
        .w = t->data + (size_t)lo * t->row_bytes,
        .ld_w = t->row_bytes,
        .n_rows = hi - lo,
        .k = (int)t->ne[0],
        .x = a == ACT_F32 ? (const uint8_t *)src->f32.p : src->q[a],
        .ld_x = a == ACT_F32 ? src->f32.ld * sizeof(float) : src->ld[a],
        .n_cols = n_cols,
        .y = y,
        .ld_y = ld_y,
    };
    s->kt.gemm[t->type](&g, w->scratch);
    if (!l->b) return;
    for (int c = 0; c < n_cols; c++) s->kt.add(y + (size_t)c * ld_y, l->b + lo, hi - lo, w->scratch);
}

/* The same in pieces. */
bool op_matmul_part(const struct worker *w, const struct linear *l, const struct acts *src, int n_cols, int lo, int hi,
                    float *y, size_t ld_y)
{
    int piece = piece_of(w, n_cols, l->w->ne[0]);
    for (int at = lo, m; at < hi; at += m) {
        if (step_is_abandoned(w)) return false;
        m = hi - at < piece ? hi - at : piece;
        product(w, l, src, n_cols, at, at + m, y + (at - lo), ld_y);
    }
    return true;
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

/* How many of this member's outputs [lo, hi) are made before the next operation takes them: with many rows few enough
 * to be still in the second-level cache then. */
static int strip_of(const struct worker *w, int lo, int hi)
{
    return w->s->batch->n < STRIP_MIN_ROWS || hi - lo < STRIP ? hi - lo : STRIP;
}

/* A member's strips take turns in its part of h, without gaps between their rows. */
void op_matmul_add(const struct worker *w, int il, const char *name, const struct linear *l, const struct acts *src)
{
    struct step *s = w->s;
    int n = s->batch->n, lo, hi;
    op_begin(w, il, name, l->w->type, l->w->ne[1], l->w->ne[0], n);
    op_share(w, (int)l->w->ne[1], OP_ROW_UNIT, &lo, &hi);
    float *y = s->h.f32.p + (size_t)n * (size_t)lo;
    for (int at = lo, m, strip = strip_of(w, lo, hi); at < hi; at += m) {
        m = hi - at < strip ? hi - at : strip;
        if (!op_matmul_part(w, l, src, n, at, at + m, y, (size_t)m)) break;
        for (int r = 0; r < n; r++) s->kt.add(rows_at(s->x, r) + at, y + (size_t)r * (size_t)m, m, w->scratch);
    }
    op_end(w);
    op_sync(w);
}

/* Outputs [lo, hi) of gate and up, gated, and brought into format a where they lie, in whole blocks: what is between
 * the matrices never leaves the cache. The strips take turns in the member's parts of gate and up. */
static void gate_up_strips(const struct worker *w, enum act_kind f, const struct linear *gate, const struct linear *up,
                           enum act a, int lo, int hi)
{
    struct step *s = w->s;
    int n = s->batch->n, n_ff = (int)gate->w->ne[1];
    float *g = s->gate.f32.p + (size_t)n * (size_t)lo, *u = s->up.p + (size_t)n * (size_t)lo;
    for (int at = lo, m, strip = strip_of(w, lo, hi); at < hi; at += m) {
        m = hi - at < strip ? hi - at : strip;
        if (!op_matmul_part(w, gate, &s->h, n, at, at + m, g, (size_t)m)) return;
        if (!op_matmul_part(w, up, &s->h, n, at, at + m, u, (size_t)m)) return;
        for (int r = 0; r < n; r++) {
            float *y = g + (size_t)r * (size_t)m;
            s->kt.act_mul[f](y, u + (size_t)r * (size_t)m, m, y, w->scratch);
            s->kt.quant[a](y, at, m, n_ff, s->gate.q[a] + (size_t)r * s->gate.ld[a], w->scratch);
        }
    }
}

/* Members that share the outputs in whole blocks of the format can bring their own into it. Where that would be
 * unfair, because the blocks are too few, each row is prepared when it is complete. */
void op_gate_up(const struct worker *w, int il, enum act_kind f, const struct linear *gate, const struct linear *up,
                const struct linear *down)
{
    struct step *s = w->s;
    enum act a = kernel_act_of(down->w->type);
    int n = s->batch->n, n_ff = (int)gate->w->ne[1], n_blocks = (n_ff + STRIP - 1) / STRIP, lo, hi;
    op_begin(w, il, "ffn_gate_up", gate->w->type, 2 * gate->w->ne[1], gate->w->ne[0], n);
    if (a != ACT_F32 && (n_blocks % w->nth == 0 || n_blocks >= 8 * w->nth)) {
        op_share(w, n_ff, STRIP, &lo, &hi);
        gate_up_strips(w, f, gate, up, a, lo, hi);
    } else {
        op_share(w, n_ff, OP_ROW_UNIT, &lo, &hi);
        bool whole = op_matmul_part(w, gate, &s->h, n, lo, hi, s->gate.f32.p + lo, s->gate.f32.ld) &&
                     op_matmul_part(w, up, &s->h, n, lo, hi, s->up.p + lo, s->up.ld);
        for (int r = 0; r < n && whole; r++) {
            float *y = rows_at(s->gate.f32, r) + lo;
            s->kt.act_mul[f](y, rows_at(s->up, r) + lo, hi - lo, y, w->scratch);
        }
        op_sync(w);
        op_share(w, a == ACT_F32 ? 0 : n, 1, &lo, &hi);
        for (int r = lo; r < hi; r++) op_quant_row(w, &s->gate, n_ff, r, (const struct linear *const[]){down, NULL});
    }
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
    op_matmul_part(w, &out, &s->h, s->n_out, lo, hi, s->logits + lo, (size_t)m->hp.n_vocab);
    op_end(w);
}
