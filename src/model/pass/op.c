/* SPDX-License-Identifier: MIT
 *
 * op.c: shares of work, accounting, and products in pieces.
 */
#include "model/pass/op.h"

#include <assert.h>
#include <limits.h>

#include "base/os.h"
#include "kernel/cost/cost.h"

#define STRIP_MIN_ROWS 64  /* fewer batch rows leave everything in cache without strips */
#define PIECE_MACS     2e9 /* a member's multiply-adds before it looks again whether to go on: 5 to 20 ms */

struct member op_member(struct pass *p, int ith, int nth)
{
    return (struct member){p, ith, nth, p->scratch + (size_t)ith * KERNEL_SCRATCH_BYTES};
}

/* ---- the team ---- */

bool op_is_abandoned(const struct member *me)
{
    struct pass *pass = me->pass;
    if (me->ith == 0 && pass->tend) pass->tend(pass->cancel_arg);
    if (!pass->can_stop) return false;
    if (atomic_load_explicit(&pass->is_abandoned, memory_order_relaxed)) return true;
    if (me->ith != 0 || !pass->is_cancelled(pass->cancel_arg)) return false;
    atomic_store_explicit(&pass->is_abandoned, true, memory_order_relaxed);
    return true;
}

void op_share(const struct member *me, int n, int unit, int *lo, int *hi)
{
    pool_share(n, unit, me->ith, me->nth, lo, hi);
    if (op_is_abandoned(me)) *hi = *lo;
}

void op_sync(const struct member *me) { pool_barrier(me->pass->pool); }

/* ---- accounting ---- */

void op_begin(const struct member *me, int il, enum op_class class, const char *name, int dtype, int64_t n, int64_t k,
              int64_t cols)
{
    struct trace *t = me->pass->trace;
    if (!t || me->ith != 0) return;
    assert(t->n < t->cap);
    t->ops[t->n] =
        (struct trace_op){.name = name, .class = class, .layer = il, .dtype = dtype, .n = n, .k = k, .cols = cols};
    if (me->pass->kt.is_cost) *(struct cost *)me->scratch = (struct cost){0};
    t->started_ns = clock_ns();
}

void op_end(const struct member *me)
{
    struct trace *t = me->pass->trace;
    if (!t) return;
    op_sync(me);
    if (me->ith != 0) return;
    struct trace_op *op = &t->ops[t->n++];
    op->ns = clock_ns() - t->started_ns;
    if (!me->pass->kt.is_cost) return;
    const struct cost *c = me->scratch;
    op->bytes = c->bytes;
    op->macs_int8 = c->macs_int8;
    op->macs_f32 = c->macs_f32;
}

/* ---- products ---- */

void op_quant_row(const struct member *me, const struct acts *x, int k, int i, const struct linear *const *users)
{
    bool done[ACT_N] = {[ACT_F32] = true};
    for (; *users; users++) {
        enum act a = kernel_act_of((*users)->w->type);
        if (done[a]) continue;
        me->pass->kt.quant[a](rows_at(x->f32, i), 0, k, k, x->q[a] + (size_t)i * x->ld[a], me->scratch);
        done[a] = true;
    }
}

/* Matrix rows in one piece of work: all of them if the pass cannot be cancelled, because one call is a little faster.
 */
static int piece_of(const struct member *me, int n_cols, int64_t k)
{
    double n = PIECE_MACS / ((double)k * n_cols);
    int unit = me->pass->kt.row_unit;
    if (!me->pass->can_stop || n > INT_MAX) return INT_MAX;
    return n > unit ? (int)n / unit * unit : unit;
}

/* A piece of op_product(). */
static void product(const struct member *me, const struct op_matrix *m, const struct acts *src, const int32_t *cols,
                    int n_cols, int lo, int hi, float *y, size_t ld_y)
{
    struct pass *pass = me->pass;
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
    pass->kt.gemm[m->type](&g, me->scratch);
    for (int c = 0; m->s && c < n_cols; c++) pass->kt.scale(y + (size_t)c * ld_y, *m->s, hi - lo, me->scratch);
    if (!m->b) return;
    for (int c = 0; c < n_cols; c++) pass->kt.add(y + (size_t)c * ld_y, m->b + lo, hi - lo, me->scratch);
}

bool op_product(const struct member *me, const struct op_matrix *m, const struct acts *src, const int32_t *cols,
                int n_cols, int lo, int hi, float *y, size_t ld_y)
{
    int piece = piece_of(me, n_cols, m->k);
    for (int at = lo, n; at < hi; at += n) {
        if (op_is_abandoned(me)) return false;
        n = hi - at < piece ? hi - at : piece;
        product(me, m, src, cols, n_cols, at, at + n, y + (at - lo), ld_y);
    }
    return true;
}

bool op_matmul_part(const struct member *me, const struct linear *l, const struct acts *src, int n_cols, int lo, int hi,
                    float *y, size_t ld_y)
{
    const struct op_matrix m = {l->w->type, l->w->data, l->w->row_bytes, (int)l->w->ne[0], l->b, l->s, l->w->side};
    return op_product(me, &m, src, NULL, n_cols, lo, hi, y, ld_y);
}

int op_strip(const struct member *me, int n_cols, int lo, int hi)
{
    int strip = me->pass->kt.strip;
    return n_cols < STRIP_MIN_ROWS || hi - lo < strip ? hi - lo : strip;
}
