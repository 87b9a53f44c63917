/* SPDX-License-Identifier: MIT
 *
 * ops_delta.c: the operations of gated DeltaNet, and copying and replaying its states.
 *
 * The rows of a sequence depend on each other in order, so the work is shared by heads: a member takes its heads (or
 * strips of their dims) through all rows of all sequences. states.h says when states are copied and rows run again.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "model/pass/op.h"

#define BA_UNIT     8     /* matrix rows a share of the two small projections is a multiple of */
#define DIM_STRIP   16    /* dims of a head that members share if there are too few heads */
#define RULE_ROWS   128   /* rows that a head goes through before it is gated */
#define GATES_AHEAD 4     /* rows whose gates are asked for ahead */
#define L2_EPS      1e-6F /* of keys and queries, as in training; the other norms have an epsilon of their own */

/* n consecutive rows of one sequence in one layer, as the recurrence takes them: row `row` of each and the following.
 */
struct delta_steps {
    struct rows qkv, decay, beta;
    int row, n;
    float *conv, *rule; /* the layer's part of the sequence's state */
};

static struct delta_steps steps_at(const struct member *me, int il, const struct state_span *p)
{
    struct pass *pass = me->pass;
    uint8_t *state = pass->mem[p->seq]->state + pass->model->hp.layer[il].state_offset;
    float *rule = (float *)(state + hp_rule_offset(&pass->model->hp));
    return (struct delta_steps){pass->delta.qkv, pass->delta.a, pass->delta.b, p->row, p->n, (float *)state, rule};
}

/* The first n held rows of the span in layer il, which is the nth_layer-th recurrent one: [qkv][decay][beta]. */
static struct delta_steps steps_kept(const struct member *me, int il, int nth_layer, const struct state_span *p, int n)
{
    struct delta_steps t = steps_at(me, il, p);
    struct rows r = me->pass->states.kept;
    r.p += ((size_t)nth_layer * PASS_MAX_HELD + (size_t)p->kept) * r.ld;
    t.qkv = t.decay = t.beta = r;
    t.decay.p += me->pass->delta.qkv.ld;
    t.beta.p += me->pass->delta.qkv.ld + me->pass->delta.b.ld;
    t.row = 0;
    t.n = n;
    return t;
}

static int recurrent_before(const struct hparams *h, int il)
{
    int n = 0;
    for (int i = h->layer_lo; i < il; i++) n += h->layer[i].is_recurrent;
    return n;
}

/* ---- buffers ---- */

void delta_cut(struct cutter *c, const struct model *m, int n, struct delta_rows *d)
{
    const struct hparams *h = &m->hp;
    int delta_v = h->delta_n_head_v * h->delta_dim_v;
    bool is_grouped = false;
    if (!h->state_bytes) return;
    for (int i = h->layer_lo; i < h->layer_hi; i++) is_grouped |= m->layers[i].delta_in.w != NULL;
    d->qkv = cut_rows_apart(c, n, hp_conv_dim(h));
    d->z = cut_rows_apart(c, n, delta_v);
    d->ba = cut_rows(c, n, 2 * h->delta_n_head_v);
    d->a = cut_rows(c, n, h->delta_n_head_v);
    d->b = cut_rows(c, n, h->delta_n_head_v);
    if (is_grouped) d->in = cut_rows_apart(c, n, hp_conv_dim(h) + delta_v);
}

size_t delta_kept_ld(const struct hparams *h)
{
    struct cutter c = {0};
    return cut_rows_apart(&c, 1, hp_conv_dim(h)).ld + 2 * cut_rows(&c, 1, h->delta_n_head_v).ld;
}

/* ---- projections ---- */

void op_delta_ba(const struct member *me, int il)
{
    struct pass *pass = me->pass;
    const struct layer *l = &pass->model->layers[il];
    const struct linear *b = l->delta_ba.w ? &l->delta_ba : &l->delta_b;
    int n_b = (int)b->w->ne[1], n_a = l->delta_ba.w ? 0 : (int)l->delta_a.w->ne[1], n = pass->batch->n, lo, hi;
    op_begin(me, il, OP_DELTA, "ssm_ba", b->w->type, n_b + n_a, b->w->ne[0], n);
    op_share(me, n_b + n_a, BA_UNIT, &lo, &hi);
    struct rows y = n_a ? pass->delta.b : pass->delta.ba;
    int end = hi < n_b ? hi : n_b, from = lo > n_b ? lo - n_b : 0;
    if (lo < end) op_matmul_part(me, b, &pass->h, n, lo, end, y.p + lo, y.ld);
    if (hi - n_b > from)
        op_matmul_part(me, &l->delta_a, &pass->h, n, from, hi - n_b, pass->delta.a.p + from, pass->delta.a.ld);
    op_end(me);
}

/* ---- convolution, norms of keys and queries, gates ---- */

/* The channels of head i of n_k query heads, n_k key heads and the value heads. */
static int head_channel(const struct hparams *h, int i, int *n)
{
    int keys = 2 * h->delta_n_head_k;
    *n = i < keys ? h->delta_dim_k : h->delta_dim_v;
    return i < keys ? i * h->delta_dim_k : keys * h->delta_dim_k + (i - keys) * h->delta_dim_v;
}

/* Copies head i (as above), and the gate of a value head, out of rows grouped [q, k, v, z] by key head. */
static void ungroup_head(struct pass *pass, const struct hparams *h, int i, int row, int n)
{
    int n_k = h->delta_n_head_k, dk = h->delta_dim_k, dv = h->delta_dim_v, r = h->delta_n_head_v / n_k, wide;
    int value = i - 2 * n_k, group = i < 2 * n_k ? i % n_k : value / r, to = head_channel(h, i, &wide);
    int from = group * 2 * (dk + r * dv); /* the group's query */
    if (value >= 0)
        from += 2 * dk + value % r * dv;
    else if (i >= n_k)
        from += dk;
    for (int t = row; t < row + n; t++) {
        const float *x = rows_at(pass->delta.in, t) + from;
        memcpy(rows_at(pass->delta.qkv, t) + to, x, (size_t)wide * sizeof *x);
        if (value >= 0) memcpy(rows_at(pass->delta.z, t) + value * dv, x + r * dv, (size_t)dv * sizeof *x);
    }
}

/* Convolves head i (as above) in place, and scales keys and queries to their length. */
static void conv_head(const struct member *me, int il, int i, const struct delta_steps *t)
{
    struct pass *pass = me->pass;
    const struct hparams *h = &pass->model->hp;
    int n_k = h->delta_n_head_k, wide, ch = head_channel(h, i, &wide);
    float *x = rows_at(t->qkv, t->row) + ch, scale = i < n_k ? 1.0f / sqrtf((float)h->delta_dim_k) : 1.0f;
    struct conv c = {.w = pass->model->layers[il].conv + (size_t)ch * (size_t)h->conv_kernel,
                     .n_taps = h->conv_kernel,
                     .n_channels = wide,
                     .n_rows = t->n,
                     .x = x,
                     .y = x,
                     .ld_x = t->qkv.ld,
                     .ld_y = t->qkv.ld,
                     .state = t->conv + ch,
                     .ld_state = (size_t)hp_conv_dim(h)};
    pass->kt.conv_silu(&c, me->scratch);
    for (int j = 0; i < 2 * n_k && j < t->n; j++, x += t->qkv.ld)
        pass->kt.l2_norm(x, L2_EPS, scale, wide, x, me->scratch);
}

static void keep(const struct rows *from, int row, struct rows to, int i, int at, int n)
{
    memcpy(rows_at(to, i) + at, rows_at(*from, row) + at, (size_t)n * sizeof(float));
}

/* Row r's decays and rates replace its a and b. */
static void gates(const struct member *me, int il, int r)
{
    struct pass *pass = me->pass;
    const struct hparams *h = &pass->model->hp;
    const struct layer *l = &pass->model->layers[il];
    float *a = rows_at(pass->delta.a, r), *b = rows_at(pass->delta.b, r);
    int group = h->delta_n_head_v / h->delta_n_head_k;
    for (int i = 0; l->delta_ba.w && i < h->delta_n_head_v; i++) { /* [b, a] of each key head */
        const float *from = rows_at(pass->delta.ba, r) + i / group * 2 * group + i % group;
        b[i] = from[0];
        a[i] = from[group];
    }
    pass->kt.delta_gates(a, b, l->decay, l->dt, h->delta_n_head_v, a, b, me->scratch);
}

void op_delta_conv(const struct member *me, int il)
{
    struct pass *pass = me->pass;
    const struct hparams *h = &pass->model->hp;
    int heads = 2 * h->delta_n_head_k + h->delta_n_head_v, nth_layer = recurrent_before(h, il), lo, hi;
    op_begin(me, il, OP_DELTA, "delta_conv", -1, hp_conv_dim(h), h->conv_kernel, pass->batch->n);
    op_share(me, heads, 1, &lo, &hi);
    for (int p = 0; p < pass->states.n_spans; p++) {
        const struct state_span *span = &pass->states.spans[p];
        struct delta_steps t = steps_at(me, il, span);
        for (int i = lo; i < hi; i++) {
            int wide, ch = head_channel(h, i, &wide);
            if (pass->model->layers[il].delta_in.w) ungroup_head(pass, h, i, span->row, span->n);
            for (int j = 0; span->kept >= 0 && j < span->n; j++)
                keep(&pass->delta.qkv, span->row + j, steps_kept(me, il, nth_layer, span, 0).qkv, j, ch, wide);
            conv_head(me, il, i, &t);
        }
    }
    op_share(me, pass->batch->n, 1, &lo, &hi);
    for (int p = 0; p < pass->states.n_spans; p++) {
        const struct state_span *span = &pass->states.spans[p];
        for (int r = span->row > lo ? span->row : lo; r < hi && r < span->row + span->n; r++) {
            gates(me, il, r);
            if (span->kept < 0) continue;
            struct delta_steps k = steps_kept(me, il, nth_layer, span, 0);
            keep(&pass->delta.a, r, k.decay, r - span->row, 0, h->delta_n_head_v);
            keep(&pass->delta.b, r, k.beta, r - span->row, 0, h->delta_n_head_v);
        }
    }
    op_end(me);
    op_sync(me);
}

/* ---- the rule ---- */

/* Takes dims [j, j + n) of value head `head` through n_rows rows from row on; the outputs replace the values. */
static void rule_dims(const struct member *me, const struct delta_steps *t, int row, int n_rows, int head, int j, int n)
{
    struct pass *pass = me->pass;
    const struct hparams *h = &pass->model->hp;
    int n_k = h->delta_n_head_k, dk = h->delta_dim_k, dv = h->delta_dim_v, wide;
    int key = h->delta_is_grouped ? head / (h->delta_n_head_v / n_k) : head % n_k;
    float *x = rows_at(t->qkv, row), *v = x + head_channel(h, 2 * n_k + head, &wide) + j;
    struct delta d = {.dk = dk,
                      .n_dims = n,
                      .n_rows = n_rows,
                      .m = t->rule + ((size_t)head * (size_t)dv + (size_t)j) * (size_t)dk,
                      .q = x + head_channel(h, key, &wide),
                      .k = x + head_channel(h, n_k + key, &wide),
                      .v = v,
                      .o = v,
                      .decay = rows_at(t->decay, row) + head,
                      .beta = rows_at(t->beta, row) + head,
                      .ld_qk = t->qkv.ld,
                      .ld_v = t->qkv.ld,
                      .ld_o = t->qkv.ld,
                      .ld_gate = t->decay.ld};
    pass->kt.delta(&d, me->scratch);
}

/* Whether members take whole heads, so that they can norm and gate them, too. */
static bool is_by_head(const struct member *me, const struct hparams *h)
{
    return h->delta_n_head_v % me->nth == 0 || h->delta_n_head_v >= 8 * me->nth;
}

/* A value head's output in row r: normed, then gated, into att. */
static void gate_head(const struct member *me, int il, int r, int head)
{
    struct pass *pass = me->pass;
    const struct hparams *h = &pass->model->hp;
    int dv, ch = head_channel(h, 2 * h->delta_n_head_k + head, &dv);
    float *y = rows_at(pass->att.f32, r) + head * dv;
    pass->kt.rms_norm(rows_at(pass->delta.qkv, r) + ch, pass->model->layers[il].delta_norm, h->norm_eps, dv, y,
                      me->scratch);
    pass->kt.act_mul[ACTIV_SILU](rows_at(pass->delta.z, r) + head * dv, y, dv, y, me->scratch);
}

/* The same in rows [row, end), which lie too far apart for the processor to see what comes next. */
static void gate_rows(const struct member *me, int il, int head, int row, int end)
{
    const struct pass *pass = me->pass;
    const int dv = pass->model->hp.delta_dim_v;
    for (int r = row; r < end; r++) {
        for (int i = 0; r + GATES_AHEAD < end && i < dv; i += 16) {
            __builtin_prefetch(rows_at(pass->delta.z, r + GATES_AHEAD) + head * dv + i);
            __builtin_prefetch(rows_at(pass->att.f32, r + GATES_AHEAD) + head * dv + i, 1);
        }
        gate_head(me, il, r, head);
    }
}

/* Takes this member's heads or strips through the rows, a few rows at a time, whose keys and queries stay in the
 * second-level cache for all strips. Whole heads are gated in layer il, too; -1: they are not. */
static void rule_share(const struct member *me, const struct delta_steps *t, int il)
{
    const struct hparams *h = &me->pass->model->hp;
    bool by_head = is_by_head(me, h);
    int most = me->pass->kt.is_cost ? t->n : RULE_ROWS; /* the state comes from memory once */
    int dv = h->delta_dim_v, unit = by_head ? dv : DIM_STRIP, strips = (dv + unit - 1) / unit, lo, hi;
    op_share(me, h->delta_n_head_v * strips, 1, &lo, &hi);
    for (int u = lo, n; u < hi; u += n) { /* neighbours of one head together */
        int first = u % strips, j = first * unit, end = t->row + t->n;
        n = strips - first < hi - u ? strips - first : hi - u;
        for (int r = t->row, m; r < end; r += m) {
            m = end - r < most ? end - r : most;
            rule_dims(me, t, r, m, u / strips, j, (first + n) * unit < dv ? n * unit : dv - j);
            if (il >= 0 && by_head) gate_rows(me, il, u, r, r + m);
        }
    }
}

void op_delta_rule(const struct member *me, int il)
{
    struct pass *pass = me->pass;
    const struct hparams *h = &pass->model->hp;
    op_begin(me, il, OP_DELTA, "delta_rule", -1, (int64_t)h->delta_n_head_v * h->delta_dim_v, h->delta_dim_k,
             pass->batch->n);
    for (int p = 0; p < pass->states.n_spans && !op_is_abandoned(me); p++) {
        struct delta_steps t = steps_at(me, il, &pass->states.spans[p]);
        rule_share(me, &t, il);
    }
    op_end(me);
    op_sync(me);
}

void op_delta_out(const struct member *me, int il)
{
    struct pass *pass = me->pass;
    const struct hparams *h = &pass->model->hp;
    int k = h->delta_n_head_v * h->delta_dim_v, lo, hi;
    op_begin(me, il, OP_DELTA, "delta_quant", -1, k, 1, pass->batch->n);
    op_share(me, pass->batch->n, 1, &lo, &hi);
    for (int r = lo; r < hi; r++) {
        for (int i = 0; i < h->delta_n_head_v && !is_by_head(me, h); i++) gate_head(me, il, r, i);
        op_quant_row(me, &pass->att, k, r, (const struct linear *const[]){&pass->model->layers[il].delta_out, NULL});
    }
    op_end(me);
    op_sync(me);
}

/* ---- states that are copied, and rows that are run again ---- */

void delta_copy_states(const struct member *me, bool back)
{
    struct pass *pass = me->pass;
    size_t bytes = pass->model->hp.state_bytes, part = act_round64(bytes / (size_t)me->nth),
           lo = part * (size_t)me->ith;
    size_t hi = me->ith + 1 == me->nth || lo + part > bytes ? bytes : lo + part;
    for (int p = 0; p < pass->states.n_spans && lo < bytes; p++) {
        const struct state_span *span = &pass->states.spans[p];
        if (span->saved < 0) continue;
        uint8_t *copy = pass->states.saved + (size_t)span->saved * act_round64(bytes),
                *state = pass->mem[span->seq]->state;
        memcpy((back ? state : copy) + lo, (back ? copy : state) + lo, hi - lo);
    }
}

void delta_replay(const struct member *me)
{
    struct pass *pass = me->pass;
    const struct hparams *h = &pass->model->hp;
    int heads = 2 * h->delta_n_head_k + h->delta_n_head_v, nth_layer = 0, lo, hi;
    op_share(me, heads, 1, &lo, &hi);
    for (int il = h->layer_lo; il < h->layer_hi; il++) {
        if (!h->layer[il].is_recurrent) continue;
        for (int stage = 0; stage < 2; stage++) {
            for (int p = 0; p < pass->states.n_spans; p++) {
                const struct state_span *span = &pass->states.spans[p];
                if (span->n_again == 0) continue;
                struct delta_steps t = steps_kept(me, il, nth_layer, span, span->n_again);
                for (int i = lo; stage == 0 && i < hi; i++) conv_head(me, il, i, &t);
                if (stage == 1) rule_share(me, &t, -1);
            }
            op_sync(me);
        }
        nth_layer++;
    }
}
