/* SPDX-License-Identifier: MIT
 *
 * ops_common.c: the operations that all blocks are written in.
 *
 * Each shares one kernel's work between the members of the team and, when a trace is attached, accounts for it. Matrix
 * rows are shared contiguously, so that each member streams its own part of the weights; batch rows likewise.
 */
#include "model/pass/ops_common.h"

#include <string.h>

/* ---- rows ---- */

static void rotate_row(struct pass *pass, int r)
{
    rope_at(&pass->rope, pass->batch->pos[r], pass->cs + (size_t)r * (size_t)pass->rope.n_pairs);
    if (pass->cs_local)
        rope_at(&pass->rope_local, pass->batch->pos[r], pass->cs_local + (size_t)r * (size_t)pass->rope_local.n_pairs);
}

void op_begin_row(const struct member *me, const struct tensor *t, int r, float *x)
{
    struct pass *pass = me->pass;
    const struct side side = side_from(t->side, t->ne[0], pass->batch->token[r]);
    pass->kt.dequant(t->type, t->data + (size_t)pass->batch->token[r] * t->row_bytes, &side, t->ne[0], x, me->scratch);
    if (pass->model->hp.embd_scale != 1) pass->kt.scale(x, pass->model->hp.embd_scale, (int)t->ne[0], me->scratch);
    rotate_row(pass, r);
}

/* The same for a row whose residual the stage before has computed. */
static void go_on_row(const struct member *me, int r)
{
    struct pass *pass = me->pass;
    size_t n_embd = (size_t)pass->model->hp.n_embd;
    memcpy(rows_at(pass->x, r), pass->rows_in + (size_t)r * n_embd, n_embd * sizeof *pass->rows_in);
    rotate_row(pass, r);
}

void op_embed(const struct member *me)
{
    struct pass *pass = me->pass;
    const struct tensor *t = pass->model->token_embd;
    int lo, hi;
    op_begin(me, -1, OP_EMBEDDING, "token_embd", t->type, 1, t->ne[0], pass->batch->n);
    op_share(me, pass->batch->n, 1, &lo, &hi);
    for (int r = lo; r < hi; r++) {
        if (model_is_first(pass->model))
            op_begin_row(me, t, r, rows_at(pass->x, r));
        else
            go_on_row(me, r);
    }
    op_end(me);
    op_sync(me);
}

void op_norm(const struct member *me, int il, const char *name, const float *norm, const struct linear *const *users)
{
    struct pass *pass = me->pass;
    const struct hparams *h = &pass->model->hp;
    int lo, hi;
    op_begin(me, il, OP_ELEMENTWISE, name, -1, h->n_embd, 1, pass->batch->n);
    op_share(me, pass->batch->n, 1, &lo, &hi);
    for (int r = lo; r < hi; r++) {
        pass->kt.rms_norm(rows_at(pass->x, r), norm, h->norm_eps, h->n_embd, rows_at(pass->h.f32, r), me->scratch);
        op_quant_row(me, &pass->h, h->n_embd, r, users);
    }
    op_end(me);
    op_sync(me);
}

void op_norm_add(const struct member *me, int il, const char *name, const float *norm)
{
    struct pass *pass = me->pass;
    const struct hparams *h = &pass->model->hp;
    int lo, hi;
    op_begin(me, il, OP_ELEMENTWISE, name, -1, h->n_embd, 1, pass->batch->n);
    op_share(me, pass->batch->n, 1, &lo, &hi);
    for (int r = lo; r < hi; r++) {
        float *y = rows_at(pass->h.f32, r);
        pass->kt.rms_norm(y, norm, h->norm_eps, h->n_embd, y, me->scratch);
        if (h->residual_scale != 1) pass->kt.scale(y, h->residual_scale, h->n_embd, me->scratch);
        pass->kt.add(rows_at(pass->x, r), y, h->n_embd, me->scratch);
    }
    op_end(me);
    op_sync(me);
}

/* Rows of k values: normalised if there is a norm, and converted to the users' formats. */
static void quant_rows(const struct member *me, int il, const char *name, const struct acts *x, int k,
                       const float *norm, const struct linear *const *users)
{
    struct pass *pass = me->pass;
    int lo, hi;
    op_begin(me, il, OP_ELEMENTWISE, name, -1, k, 1, pass->batch->n);
    op_share(me, pass->batch->n, 1, &lo, &hi);
    for (int r = lo; r < hi; r++) {
        float *y = rows_at(x->f32, r);
        if (norm) pass->kt.rms_norm(y, norm, pass->model->hp.norm_eps, k, y, me->scratch);
        op_quant_row(me, x, k, r, users);
    }
    op_end(me);
    op_sync(me);
}

void op_quant_att(const struct member *me, int il, const struct linear *const *users)
{
    quant_rows(me, il, "attn_quant", &me->pass->att, hp_att_width(&me->pass->model->hp), NULL, users);
}

void op_norm_att(const struct member *me, int il, const float *norm, const struct linear *const *users)
{
    quant_rows(me, il, "attn_sub_norm", &me->pass->att, hp_att_width(&me->pass->model->hp), norm, users);
}

void op_quant_x(const struct member *me, int il, const struct linear *const *users)
{
    quant_rows(me, il, "quant", &me->pass->bare, me->pass->model->hp.n_embd, NULL, users);
}

/* ---- matrices ---- */

void op_matmul(const struct member *me, int il, enum op_class class, const char *name, const struct linear *l,
               const struct acts *src, struct rows y)
{
    int lo, hi;
    op_begin(me, il, class, name, l->w->type, l->w->ne[1], l->w->ne[0], me->pass->batch->n);
    op_share(me, (int)l->w->ne[1], me->pass->kt.row_unit, &lo, &hi);
    op_matmul_part(me, l, src, me->pass->batch->n, lo, hi, y.p + lo, y.ld);
    op_end(me);
}

/* A member's strips take turns in its part of h, without gaps between their rows. */
void op_matmul_add(const struct member *me, int il, enum op_class class, const char *name, const struct linear *l,
                   const struct acts *src)
{
    struct pass *pass = me->pass;
    int n = pass->batch->n, lo, hi;
    op_begin(me, il, class, name, l->w->type, l->w->ne[1], l->w->ne[0], n);
    op_share(me, (int)l->w->ne[1], me->pass->kt.row_unit, &lo, &hi);
    float *y = pass->h.f32.p + (size_t)n * (size_t)lo, residual_scale = pass->model->hp.residual_scale;
    for (int at = lo, m, strip = op_strip(me, n, lo, hi); at < hi; at += m) {
        m = hi - at < strip ? hi - at : strip;
        if (!op_matmul_part(me, l, src, n, at, at + m, y, (size_t)m)) break;
        if (residual_scale != 1) pass->kt.scale(y, residual_scale, n * m, me->scratch);
        for (int r = 0; r < n; r++) pass->kt.add(rows_at(pass->x, r) + at, y + (size_t)r * (size_t)m, m, me->scratch);
    }
    op_end(me);
    op_sync(me);
}

/* Outputs [lo, hi) of gate and up, gated and converted to format a in whole blocks, strip by strip: the values between
 * the matrices never leave the cache. The strips take turns in the member's parts of gate and up. */
static void gate_up_strips(const struct member *me, const struct op_gated *net, const struct acts *src, enum act a,
                           int lo, int hi)
{
    struct pass *pass = me->pass;
    int n = pass->batch->n, n_ff = (int)net->gate->w->ne[1];
    float *g = pass->gate.f32.p + (size_t)n * (size_t)lo, *u = pass->up.p + (size_t)n * (size_t)lo;
    for (int at = lo, m, strip = op_strip(me, n, lo, hi); at < hi; at += m) {
        m = hi - at < strip ? hi - at : strip;
        if (!op_matmul_part(me, net->gate, src, n, at, at + m, g, (size_t)m)) return;
        if (!op_matmul_part(me, net->up, src, n, at, at + m, u, (size_t)m)) return;
        for (int r = 0; r < n; r++) {
            float *y = g + (size_t)r * (size_t)m;
            pass->kt.act_mul[net->f](y, u + (size_t)r * (size_t)m, m, y, me->scratch);
            pass->kt.quant[a](y, at, m, n_ff, pass->gate.q[a] + (size_t)r * pass->gate.ld[a], me->scratch);
        }
    }
}

/* The same, if a row can be normalised or converted only after all members have computed their parts of it. */
static void gate_up_rows(const struct member *me, const struct op_gated *net, const struct acts *src, enum act a)
{
    struct pass *pass = me->pass;
    int n = pass->batch->n, n_ff = (int)net->gate->w->ne[1], lo, hi;
    op_share(me, n_ff, me->pass->kt.row_unit, &lo, &hi);
    bool whole = op_matmul_part(me, net->gate, src, n, lo, hi, pass->gate.f32.p + lo, pass->gate.f32.ld) &&
                 op_matmul_part(me, net->up, src, n, lo, hi, pass->up.p + lo, pass->up.ld);
    for (int r = 0; r < n && whole; r++) {
        float *y = rows_at(pass->gate.f32, r) + lo;
        pass->kt.act_mul[net->f](y, rows_at(pass->up, r) + lo, hi - lo, y, me->scratch);
    }
    op_sync(me);
    op_share(me, a == ACT_F32 && !net->norm ? 0 : n, 1, &lo, &hi);
    for (int r = lo; r < hi; r++) {
        float *y = rows_at(pass->gate.f32, r);
        if (net->norm) pass->kt.rms_norm(y, net->norm, pass->model->hp.norm_eps, n_ff, y, me->scratch);
        op_quant_row(me, &pass->gate, n_ff, r, (const struct linear *const[]){net->down, NULL});
    }
}

/* Members convert their own outputs if they share them in whole blocks of the format, and if there are enough blocks
 * to share them fairly. */
void op_gate_up(const struct member *me, int il, const struct op_gated *net, const struct acts *src)
{
    const struct tensor *w = net->gate->w;
    enum act a = kernel_act_of(net->down->w->type);
    int n_ff = (int)w->ne[1], strip = me->pass->kt.strip, n_blocks = (n_ff + strip - 1) / strip, lo, hi;
    op_begin(me, il, net->class, "ffn_gate_up", w->type, 2 * w->ne[1], w->ne[0], me->pass->batch->n);
    if (!net->norm && a != ACT_F32 && (n_blocks % me->nth == 0 || n_blocks >= 8 * me->nth)) {
        op_share(me, n_ff, strip, &lo, &hi);
        gate_up_strips(me, net, src, a, lo, hi);
    } else {
        gate_up_rows(me, net, src, a);
    }
    op_end(me);
    op_sync(me);
}

/* Scales and caps logits [lo, hi) of every row of n_vocab, if the model says so. */
static void bend_logits(const struct member *me, int n_vocab, int lo, int hi)
{
    struct pass *pass = me->pass;
    const struct hparams *h = &pass->model->hp;
    for (int i = 0; i < pass->n_out; i++) {
        float *y = pass->logits + (size_t)i * (size_t)n_vocab + lo;
        if (h->logit_scale != 1) pass->kt.scale(y, h->logit_scale, hi - lo, me->scratch);
        if (h->logit_softcap != 0) pass->kt.softcap(y, h->logit_softcap, hi - lo, me->scratch);
    }
}

void op_logits(const struct member *me)
{
    const struct model *m = me->pass->model;
    op_logits_by(me, m->output_norm, &(struct linear){.w = m->output}, m->hp.n_vocab);
}

/* Only the rows that want logits are normalised and multiplied. */
void op_logits_by(const struct member *me, const float *norm, const struct linear *out, int n_vocab)
{
    struct pass *pass = me->pass;
    int n_embd = pass->model->hp.n_embd, lo, hi;
    op_begin(me, -1, OP_OUTPUT, "output_norm", -1, n_embd, 1, pass->n_out);
    op_share(me, pass->n_out, 1, &lo, &hi);
    for (int i = lo; i < hi; i++) {
        pass->kt.rms_norm(rows_at(pass->x, pass->out_rows[i]), norm, pass->model->hp.norm_eps, n_embd,
                          rows_at(pass->h.f32, i), me->scratch);
        op_quant_row(me, &pass->h, n_embd, i, (const struct linear *const[]){out, NULL});
    }
    op_end(me);
    op_sync(me);
    op_begin(me, -1, OP_OUTPUT, "output", out->w->type, n_vocab, n_embd, pass->n_out);
    op_share(me, n_vocab, me->pass->kt.row_unit, &lo, &hi);
    if (op_matmul_part(me, out, &pass->h, pass->n_out, lo, hi, pass->logits + lo, (size_t)n_vocab))
        bend_logits(me, n_vocab, lo, hi);
    op_end(me);
}
