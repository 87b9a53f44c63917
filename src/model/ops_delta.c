/* SPDX-License-Identifier: MIT
 *
 * ops_delta.c: the operations of gated DeltaNet, and the states that can be put back.
 *
 * The rows of a sequence are steps that follow each other, so the work is shared by heads: a member takes its heads (or
 * strips of their dims) through all rows of all sequences. A pass changes states as it goes. Where it may be abandoned,
 * or its rows taken back, the states are copied before it begins; of rows that may be taken back the recurrence's
 * inputs are kept too, so that those which stay are run again from the copy without any matrix.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "model/ops.h"

#define BA_UNIT 8     /* matrix rows a share of the two small projections is a multiple of */
#define STRIP   16    /* dims of a head that are shared out where heads are too few */
#define L2_EPS  1e-6F /* of keys and queries: what the models were trained with, whatever their other norms have */

/* n steps of one sequence in one layer: from row `row` of each on. */
struct steps {
    struct rows qkv, decay, beta;
    int row, n;
    float *conv, *rule; /* the layer's part of the sequence's state */
    int out;            /* the row of att that the first step's results go to */
};

static struct steps steps_at(const struct worker *w, int il, const struct span *p)
{
    struct step *s = w->s;
    uint8_t *state = s->mem[p->seq]->state + s->model->hp.layer[il].state_offset;
    float *rule = (float *)(state + hp_rule_offset(&s->model->hp));
    return (struct steps){s->delta_qkv, s->delta_a, s->delta_b, p->row, p->n, (float *)state, rule, p->row};
}

/* Row i of what is kept of layer il, the layers being numbered as they are recurrent: [qkv][decay][beta]. */
static struct steps steps_kept(const struct worker *w, int il, int nth_layer, const struct span *p, int n)
{
    struct steps t = steps_at(w, il, p);
    struct rows r = w->s->kept;
    r.p += ((size_t)nth_layer * STEP_MAX_HELD + (size_t)p->kept) * r.ld;
    t.qkv = t.decay = t.beta = r;
    t.decay.p += w->s->delta_qkv.ld;
    t.beta.p += w->s->delta_qkv.ld + w->s->delta_b.ld;
    t.row = 0;
    t.n = n;
    return t;
}

static int recurrent_before(const struct hparams *h, int il)
{
    int n = 0;
    for (int i = 0; i < il; i++) n += h->layer[i].is_recurrent;
    return n;
}

/* ---- projections ---- */

void op_delta_ba(const struct worker *w, int il)
{
    struct step *s = w->s;
    const struct layer *l = &s->model->layers[il];
    const struct linear *b = l->delta_ba.w ? &l->delta_ba : &l->delta_b;
    int n_b = (int)b->w->ne[1], n_a = l->delta_ba.w ? 0 : (int)l->delta_a.w->ne[1], n = s->batch->n, lo, hi;
    op_begin(w, il, "ssm_ba", b->w->type, n_b + n_a, b->w->ne[0], n);
    op_share(w, n_b + n_a, BA_UNIT, &lo, &hi);
    struct rows y = n_a ? s->delta_b : s->delta_ba;
    int end = hi < n_b ? hi : n_b, from = lo > n_b ? lo - n_b : 0;
    if (lo < end) op_matmul_part(w, b, &s->h, n, lo, end, y.p + lo, y.ld);
    if (hi - n_b > from) op_matmul_part(w, &l->delta_a, &s->h, n, from, hi - n_b, s->delta_a.p + from, s->delta_a.ld);
    op_end(w);
}

/* ---- convolution, norms of keys and queries, gates ---- */

/* The channels of head i of n_k query heads, n_k key heads and the value heads. */
static int head_channel(const struct hparams *h, int i, int *n)
{
    int keys = 2 * h->delta_n_head_k;
    *n = i < keys ? h->delta_dim_k : h->delta_dim_v;
    return i < keys ? i * h->delta_dim_k : keys * h->delta_dim_k + (i - keys) * h->delta_dim_v;
}

/* Takes head i (as above), with a value head's gate, out of rows grouped [q, k, v, z] by key head. */
static void ungroup_head(struct step *s, const struct hparams *h, int i, int row, int n)
{
    int n_k = h->delta_n_head_k, dk = h->delta_dim_k, dv = h->delta_dim_v, r = h->delta_n_head_v / n_k, wide;
    int value = i - 2 * n_k, group = i < 2 * n_k ? i % n_k : value / r, to = head_channel(h, i, &wide);
    int from = group * 2 * (dk + r * dv) + (i < n_k ? 0 : i < 2 * n_k ? dk : 2 * dk + value % r * dv);
    for (int t = row; t < row + n; t++) {
        const float *x = rows_at(s->delta_in, t) + from;
        memcpy(rows_at(s->delta_qkv, t) + to, x, (size_t)wide * sizeof *x);
        if (value >= 0) memcpy(rows_at(s->delta_z, t) + value * dv, x + r * dv, (size_t)dv * sizeof *x);
    }
}

/* Convolves head i (as above) in place, and makes keys and queries as long as they have to be. */
static void conv_head(const struct worker *w, int il, int i, const struct steps *t)
{
    struct step *s = w->s;
    const struct hparams *h = &s->model->hp;
    int n_k = h->delta_n_head_k, wide, ch = head_channel(h, i, &wide);
    float *x = rows_at(t->qkv, t->row) + ch, scale = i < n_k ? 1.0f / sqrtf((float)h->delta_dim_k) : 1.0f;
    struct conv c = {.w = s->model->layers[il].conv + (size_t)ch * (size_t)h->conv_kernel,
                     .n_taps = h->conv_kernel,
                     .n_channels = wide,
                     .n_rows = t->n,
                     .x = x,
                     .y = x,
                     .ld_x = t->qkv.ld,
                     .ld_y = t->qkv.ld,
                     .state = t->conv + ch,
                     .ld_state = (size_t)hp_conv_dim(h)};
    s->kt.conv_silu(&c, w->scratch);
    for (int j = 0; i < 2 * n_k && j < t->n; j++, x += t->qkv.ld) s->kt.l2_norm(x, L2_EPS, scale, wide, x, w->scratch);
}

static void keep(const struct rows *from, int row, struct rows to, int i, int at, int n)
{
    memcpy(rows_at(to, i) + at, rows_at(*from, row) + at, (size_t)n * sizeof(float));
}

/* Row r's decays and rates, over its a and b. */
static void gates(const struct worker *w, int il, int r)
{
    struct step *s = w->s;
    const struct hparams *h = &s->model->hp;
    const struct layer *l = &s->model->layers[il];
    float *a = rows_at(s->delta_a, r), *b = rows_at(s->delta_b, r);
    int group = h->delta_n_head_v / h->delta_n_head_k;
    for (int i = 0; l->delta_ba.w && i < h->delta_n_head_v; i++) { /* [b, a] of each key head */
        const float *from = rows_at(s->delta_ba, r) + i / group * 2 * group + i % group;
        b[i] = from[0];
        a[i] = from[group];
    }
    s->kt.delta_gates(a, b, l->decay, l->dt, h->delta_n_head_v, a, b, w->scratch);
}

void op_delta_conv(const struct worker *w, int il)
{
    struct step *s = w->s;
    const struct hparams *h = &s->model->hp;
    int heads = 2 * h->delta_n_head_k + h->delta_n_head_v, nth_layer = recurrent_before(h, il), lo, hi;
    op_begin(w, il, "delta_conv", -1, hp_conv_dim(h), h->conv_kernel, s->batch->n);
    op_share(w, heads, 1, &lo, &hi);
    for (int p = 0; p < s->n_spans; p++) {
        const struct span *span = &s->spans[p];
        struct steps t = steps_at(w, il, span);
        for (int i = lo; i < hi; i++) {
            int wide, ch = head_channel(h, i, &wide);
            if (s->model->layers[il].delta_in.w) ungroup_head(s, h, i, span->row, span->n);
            for (int j = 0; span->kept >= 0 && j < span->n; j++)
                keep(&s->delta_qkv, span->row + j, steps_kept(w, il, nth_layer, span, 0).qkv, j, ch, wide);
            conv_head(w, il, i, &t);
        }
    }
    op_share(w, s->batch->n, 1, &lo, &hi);
    for (int p = 0; p < s->n_spans; p++) {
        const struct span *span = &s->spans[p];
        for (int r = span->row > lo ? span->row : lo; r < hi && r < span->row + span->n; r++) {
            gates(w, il, r);
            if (span->kept < 0) continue;
            struct steps k = steps_kept(w, il, nth_layer, span, 0);
            keep(&s->delta_a, r, k.decay, r - span->row, 0, h->delta_n_head_v);
            keep(&s->delta_b, r, k.beta, r - span->row, 0, h->delta_n_head_v);
        }
    }
    op_end(w);
    op_sync(w);
}

/* ---- the rule ---- */

/* Dims [j, j + n) of value head `head` through all steps. */
static void rule_dims(const struct worker *w, const struct steps *t, int head, int j, int n)
{
    struct step *s = w->s;
    const struct hparams *h = &s->model->hp;
    int n_k = h->delta_n_head_k, dk = h->delta_dim_k, dv = h->delta_dim_v, wide;
    int key = h->delta_is_grouped ? head / (h->delta_n_head_v / n_k) : head % n_k;
    const float *x = rows_at(t->qkv, t->row);
    struct delta d = {.dk = dk,
                      .n_dims = n,
                      .n_rows = t->n,
                      .m = t->rule + ((size_t)head * (size_t)dv + (size_t)j) * (size_t)dk,
                      .q = x + head_channel(h, key, &wide),
                      .k = x + head_channel(h, n_k + key, &wide),
                      .v = x + head_channel(h, 2 * n_k + head, &wide) + j,
                      .o = rows_at(s->att.f32, t->out) + head * dv + j,
                      .decay = rows_at(t->decay, t->row) + head,
                      .beta = rows_at(t->beta, t->row) + head,
                      .ld_qk = t->qkv.ld,
                      .ld_v = t->qkv.ld,
                      .ld_o = s->att.f32.ld,
                      .ld_gate = t->decay.ld};
    s->kt.delta(&d, w->scratch);
}

/* Whether members take whole heads, which they can also norm and gate. */
static bool is_by_head(const struct worker *w, const struct hparams *h)
{
    return h->delta_n_head_v % w->nth == 0 || h->delta_n_head_v >= 8 * w->nth;
}

/* This member's heads or strips through the steps. */
static void rule_share(const struct worker *w, const struct steps *t)
{
    const struct hparams *h = &w->s->model->hp;
    int dv = h->delta_dim_v, unit = is_by_head(w, h) ? dv : STRIP, strips = (dv + unit - 1) / unit, lo, hi;
    op_share(w, h->delta_n_head_v * strips, 1, &lo, &hi);
    for (int u = lo, n; u < hi; u += n) { /* neighbours of one head together */
        int first = u % strips, j = first * unit;
        n = strips - first < hi - u ? strips - first : hi - u;
        rule_dims(w, t, u / strips, j, (first + n) * unit < dv ? n * unit : dv - j);
    }
}

/* A value head's output in row r: normed, then gated. */
static void gate_head(const struct worker *w, int il, int r, int head)
{
    struct step *s = w->s;
    const struct hparams *h = &s->model->hp;
    int dv = h->delta_dim_v;
    float *o = rows_at(s->att.f32, r) + head * dv;
    s->kt.rms_norm(o, s->model->layers[il].delta_norm, h->norm_eps, dv, o, w->scratch);
    s->kt.act_mul[ACTIV_SILU](rows_at(s->delta_z, r) + head * dv, o, dv, o, w->scratch);
}

void op_delta_rule(const struct worker *w, int il)
{
    struct step *s = w->s;
    const struct hparams *h = &s->model->hp;
    int lo, hi;
    op_begin(w, il, "delta_rule", -1, (int64_t)h->delta_n_head_v * h->delta_dim_v, h->delta_dim_k, s->batch->n);
    for (int p = 0; p < s->n_spans && !step_is_abandoned(w); p++) {
        struct steps t = steps_at(w, il, &s->spans[p]);
        rule_share(w, &t);
        if (!is_by_head(w, h)) continue;
        op_share(w, h->delta_n_head_v, 1, &lo, &hi);
        for (int r = t.row; r < t.row + t.n; r++)
            for (int head = lo; head < hi; head++) gate_head(w, il, r, head);
    }
    op_end(w);
    op_sync(w);
}

void op_delta_out(const struct worker *w, int il)
{
    struct step *s = w->s;
    const struct hparams *h = &s->model->hp;
    int k = h->delta_n_head_v * h->delta_dim_v, lo, hi;
    op_begin(w, il, "delta_quant", -1, k, 1, s->batch->n);
    op_share(w, s->batch->n, 1, &lo, &hi);
    for (int r = lo; r < hi; r++) {
        for (int i = 0; i < h->delta_n_head_v && !is_by_head(w, h); i++) gate_head(w, il, r, i);
        op_quant_row(w, &s->att, k, r, (const struct linear *const[]){&s->model->layers[il].delta_out, NULL});
    }
    op_end(w);
    op_sync(w);
}

/* ---- states that are put back ---- */

void delta_copy_states(const struct worker *w, bool back)
{
    struct step *s = w->s;
    size_t bytes = s->model->hp.state_bytes, part = act_round64(bytes / (size_t)w->nth), lo = part * (size_t)w->ith;
    size_t hi = w->ith + 1 == w->nth || lo + part > bytes ? bytes : lo + part;
    for (int p = 0; p < s->n_spans && lo < bytes; p++) {
        const struct span *span = &s->spans[p];
        if (span->saved < 0) continue;
        uint8_t *copy = s->saved + (size_t)span->saved * act_round64(bytes), *state = s->mem[span->seq]->state;
        memcpy((back ? state : copy) + lo, (back ? copy : state) + lo, hi - lo);
    }
}

void delta_replay(const struct worker *w)
{
    struct step *s = w->s;
    const struct hparams *h = &s->model->hp;
    int heads = 2 * h->delta_n_head_k + h->delta_n_head_v, nth_layer = 0, lo, hi;
    op_share(w, heads, 1, &lo, &hi);
    for (int il = 0; il < h->n_layer; il++) {
        if (!h->layer[il].is_recurrent) continue;
        for (int pass = 0; pass < 2; pass++) {
            for (int p = 0; p < s->n_spans; p++) {
                const struct span *span = &s->spans[p];
                if (span->n_again == 0) continue;
                struct steps t = steps_kept(w, il, nth_layer, span, span->n_again);
                for (int i = lo; pass == 0 && i < hi; i++) conv_head(w, il, i, &t);
                if (pass == 1) rule_share(w, &t);
            }
            op_sync(w);
        }
        nth_layer++;
    }
}
