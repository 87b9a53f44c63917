/* SPDX-License-Identifier: MIT
 *
 * ops_moe.c: the operations of a mixture of experts: routing, and the chosen experts' networks.
 *
 * The rows of the batch are sorted by expert, so that each expert's matrices are read once for all of its rows. The
 * rows are gathered by index and not moved. An expert is too small to be shared by a whole team with a barrier after
 * it. Therefore gate and up are divided into pieces (an expert, some of its outputs), which free members take in the
 * order of the file, and down is shared by outputs, of all experts. The result does not depend on which member computes
 * which piece: no sum is split, and a row's experts are added in ascending order.
 *
 * Sources: Shazeer et al. 2017; Fedus et al., "Switch transformers", 2021; for groups of experts, "DeepSeek-V2", 2024;
 * for the sigmoid, its groups and the bias that only chooses, "DeepSeek-V3 technical report", 2024.
 */
#include "model/pass/op.h"

#include <assert.h>
#include <string.h>

#include "base/os.h"
#include "base/exact_math.h"

#define PIECES_EACH 4          /* pieces for each member, as long as they have kt.row_unit outputs */
#define ROUTER_UNIT 16         /* a member's share of a router, which is small, is a multiple of this */
#define ALONE_ROWS  4          /* at most so many rows are routed by one member, because a barrier would cost more */
#define MIN_SUM     6.1035e-5F /* the least sum of weights that they are divided by to sum to 1 */

/* ---- buffers ---- */

void moe_cut(struct cutter *c, const struct hparams *h, int n, struct moe *m)
{
    if (!h->n_expert) return;
    size_t n_entries = (size_t)n * (size_t)h->n_expert_used, n_experts = (size_t)h->n_expert;
    m->score = cut_rows(c, n, h->n_expert);
    m->chosen = cut_bytes(c, n_entries * sizeof *m->chosen);
    m->weight = cut_bytes(c, n_entries * sizeof *m->weight);
    m->shared_weight = cut_bytes(c, (size_t)n * sizeof *m->shared_weight);
    m->first = cut_bytes(c, (n_experts + 1) * sizeof *m->first);
    m->row = cut_bytes(c, n_entries * sizeof *m->row);
    m->entry_weight = cut_bytes(c, n_entries * sizeof *m->entry_weight);
    m->busy = cut_bytes(c, n_experts * sizeof *m->busy);
    m->gate.f32 = cut_rows(c, (int)n_entries, h->n_ff_exp);
    m->up = cut_rows(c, (int)n_entries, h->n_ff_exp);
    cut_acts(c, (int)n_entries, h->n_ff_exp, &m->gate);
}

/* ---- routing ---- */

/* Turns the router's results into the scores that experts are chosen by and weighted with. */
static void gate_scores(const struct member *me, const struct hparams *h, float *p)
{
    if (h->expert_gate == GATE_SOFTMAX) {
        float sum = me->pass->kt.softmax_exp(p, h->n_expert, p, me->scratch);
        for (int i = 0; i < h->n_expert; i++) p[i] /= sum;
    } else if (h->expert_gate == GATE_SIGMOID) {
        for (int i = 0; i < h->n_expert; i++) p[i] = math_sigmoidf(p[i]);
    }
}

/* Sets all experts to -infinity except those of the best groups. With sigmoids, which are independent of each other, a
 * group counts as the sum of its two best experts (DeepSeek-V3), otherwise as its best one (V2). */
static void mask_groups(const struct member *me, const struct hparams *h, float *p)
{
    int size = h->n_expert / h->n_expert_groups;
    bool is_pair = h->expert_gate == GATE_SIGMOID && size > 1;
    float best[HP_MAX_EXPERTS];
    int32_t kept[HP_MAX_EXPERTS], two[2];
    bool is_kept[HP_MAX_EXPERTS] = {false};
    for (int g = 0; g < h->n_expert_groups; g++) {
        const float *q = p + g * size;
        me->pass->kt.topk(q, size, is_pair ? 2 : 1, two, me->scratch);
        best[g] = is_pair ? q[two[0]] + q[two[1]] : q[two[0]];
    }
    me->pass->kt.topk(best, h->n_expert_groups, h->n_expert_groups_used, kept, me->scratch);
    for (int i = 0; i < h->n_expert_groups_used; i++) is_kept[kept[i]] = true;
    for (int i = 0; i < h->n_expert; i++)
        if (!is_kept[i / size]) p[i] = -__builtin_inff();
}

/* Chooses experts by p[n_expert]; the result is in ascending order. Even if all are NaN, they are all different. */
static void choose(const struct member *me, const struct hparams *h, const float *p, const float *bias, int32_t *chosen)
{
    float q[HP_MAX_EXPERTS];
    bool has_groups = h->n_expert_groups > 1;
    if (bias || has_groups) {
        memcpy(q, p, (size_t)h->n_expert * sizeof *q);
        if (bias) me->pass->kt.add(q, bias, h->n_expert, me->scratch);
        if (has_groups) mask_groups(me, h, q);
        p = q;
    }
    me->pass->kt.topk(p, h->n_expert, h->n_expert_used, chosen, me->scratch);
    for (int i = 1; i < h->n_expert_used; i++)
        for (int j = i; j > 0 && chosen[j - 1] > chosen[j]; j--) {
            int32_t t = chosen[j];
            chosen[j] = chosen[j - 1];
            chosen[j - 1] = t;
        }
}

/* The chosen experts' weights from the scores p. */
static void weigh(const struct member *me, const struct hparams *h, const float *p, const int32_t *chosen,
                  float *weight)
{
    int n = h->n_expert_used;
    float sum = 0;
    for (int i = 0; i < n; i++) weight[i] = p[chosen[i]];
    if (h->expert_gate == GATE_SOFTMAX_OF_CHOSEN) {
        sum = me->pass->kt.softmax_exp(weight, n, weight, me->scratch);
        for (int i = 0; i < n; i++) weight[i] /= sum;
    }
    if (h->expert_norm) {
        sum = 0;
        for (int i = 0; i < n; i++) sum += weight[i];
        if (sum < MIN_SUM) sum = MIN_SUM;
        for (int i = 0; i < n; i++) weight[i] /= sum;
    }
    for (int i = 0; i < n; i++) weight[i] *= h->expert_scale;
}

/* Row r's weight of the expert of all tokens. */
static float weigh_shared(const struct member *me, const float *router, int r)
{
    struct pass *pass = me->pass;
    const int k = pass->model->hp.n_embd;
    const struct op_matrix m = {.type = DT_F32, .data = (const uint8_t *)router, .k = k};
    const int32_t row = r;
    float y = 0;
    op_product(me, &m, &pass->h, &row, 1, 0, 1, &y, 1);
    return math_sigmoidf(y);
}

/* The number of different experts that n rows take if each of them is equally likely. */
static int expected_busy(const struct hparams *h, int n)
{
    double missed = 1; /* probability that no row takes a given expert */
    for (int r = 0; r < n && missed > 1e-9; r++) missed *= 1 - (double)h->n_expert_used / h->n_expert;
    int busy = (int)(h->n_expert * (1 - missed) + 0.5);
    return busy > h->n_expert_used ? busy : h->n_expert_used;
}

static void route_row(const struct member *me, const struct layer *l, int r)
{
    struct pass *pass = me->pass;
    struct moe *m = &pass->moe;
    const struct hparams *h = &pass->model->hp;
    int32_t *chosen = m->chosen + (size_t)r * (size_t)h->n_expert_used;
    float *p = rows_at(m->score, r);
    if (l->shared_router) m->shared_weight[r] = weigh_shared(me, l->shared_router, r);
    if (pass->kt.is_cost) {
        int n_busy = expected_busy(h, pass->batch->n);
        for (int i = 0; i < h->n_expert_used; i++) chosen[i] = (r * h->n_expert_used + i) % n_busy;
        return;
    }
    gate_scores(me, h, p);
    choose(me, h, p, l->router_bias, chosen);
    weigh(me, h, p, chosen, m->weight + (size_t)r * (size_t)h->n_expert_used);
}

/* Counting sort of all entries. */
static void sort_entries(struct pass *pass)
{
    struct moe *m = &pass->moe;
    const struct hparams *h = &pass->model->hp;
    int n_entries = pass->batch->n * h->n_expert_used, at = 0;
    memset(m->first, 0, ((size_t)h->n_expert + 1) * sizeof *m->first);
    for (int i = 0; i < n_entries; i++) m->first[m->chosen[i]]++;
    m->n_busy = 0;
    for (int e = 0; e <= h->n_expert; e++) {
        int n = m->first[e];
        m->first[e] = at;
        at += n;
        if (n) m->busy[m->n_busy++] = e;
    }
    for (int i = 0; i < n_entries; i++) {
        int to = m->first[m->chosen[i]]++;
        m->row[to] = i / h->n_expert_used;
        m->entry_weight[to] = m->weight[i];
    }
    for (int e = h->n_expert; e > 0; e--)
        m->first[e] = m->first[e - 1]; /* the loop above has advanced them by their counts */
    m->first[0] = 0;
}

void op_route(const struct member *me, int il)
{
    struct pass *pass = me->pass;
    const struct layer *l = &pass->model->layers[il];
    const struct tensor *t = l->router.w;
    int n = pass->batch->n, lo, hi;
    op_begin(me, il, OP_EXPERTS, "ffn_router", t->type, t->ne[1], t->ne[0], n);
    op_share(me, (int)t->ne[1], ROUTER_UNIT, &lo, &hi);
    op_matmul_part(me, &l->router, &pass->h, n, lo, hi, pass->moe.score.p + lo, pass->moe.score.ld);
    op_sync(me);
    if (n > ALONE_ROWS) {
        op_share(me, n, 1, &lo, &hi);
        for (int r = lo; r < hi; r++) route_row(me, l, r);
        op_sync(me);
    }
    if (me->ith == 0 && !op_is_abandoned(me)) {
        for (int r = 0; r < n && n <= ALONE_ROWS; r++) route_row(me, l, r);
        sort_entries(pass);
        atomic_store_explicit(&pass->moe.next, 0, memory_order_relaxed); /* the sync publishes it */
    }
    op_end(me);
    op_sync(me);
}

/* ---- experts ---- */

/* Counts the busy experts, whose matrices the operation reads. */
static void count_experts(const struct member *me)
{
    struct pass *pass = me->pass;
    if (me->ith != 0) return;
    pass->n_experts_read += (uint64_t)pass->moe.n_busy;
    if (pass->trace) pass->trace->ops[pass->trace->n].n_experts = pass->moe.n_busy;
}

static struct op_matrix expert_at(const struct experts *x, int e)
{
    const int64_t row = x->w ? (int64_t)e * x->out : 0; /* of the tensor that expert e is in */
    const struct tensor *t = x->w ? x->w : x->each[e];
    return (struct op_matrix){.type = x->type,
                              .data = t->data + (size_t)row * x->row_bytes,
                              .row_bytes = x->row_bytes,
                              .k = x->in,
                              .b = x->b ? x->b + (size_t)e * (size_t)x->out : NULL,
                              .s = x->s ? x->s + e : NULL,
                              .side = side_from(t->side, x->in, row)};
}

/* Rows from number `from` on. */
static struct acts acts_from(const struct acts *x, int from)
{
    struct acts y = *x;
    y.f32.p += (size_t)from * x->f32.ld;
    for (enum act a = ACT_Q32; a < ACT_N; a++) y.q[a] += (size_t)from * x->ld[a];
    return y;
}

/* Outputs [lo, hi) of expert e's gate and up for its rows, into g and u. */
static bool gate_and_up(const struct member *me, const struct layer *l, int e, int lo, int hi, float *g, float *u,
                        size_t ld)
{
    struct pass *pass = me->pass;
    const struct moe *m = &pass->moe;
    const int n_ff = pass->model->hp.n_ff_exp, n = m->first[e + 1] - m->first[e];
    const int32_t *rows = m->row + m->first[e];
    if (l->gate_up_exps.row_bytes) {
        const struct op_matrix both = expert_at(&l->gate_up_exps, e);
        return op_product(me, &both, &pass->h, rows, n, lo, hi, g, ld) &&
               op_product(me, &both, &pass->h, rows, n, n_ff + lo, n_ff + hi, u, ld);
    }
    const struct op_matrix gate = expert_at(&l->gate_exps, e), up = expert_at(&l->up_exps, e);
    return op_product(me, &gate, &pass->h, rows, n, lo, hi, g, ld) &&
           op_product(me, &up, &pass->h, rows, n, lo, hi, u, ld);
}

/* Computes a piece in place, in the rows' own buffers: for products with floats, or if blocks are converted later. */
static bool piece_in_rows(const struct member *me, const struct layer *l, enum act_kind f, int e, int lo, int hi)
{
    struct moe *m = &me->pass->moe;
    float *g = rows_at(m->gate.f32, m->first[e]) + lo, *u = rows_at(m->up, m->first[e]) + lo;
    if (!gate_and_up(me, l, e, lo, hi, g, u, m->up.ld)) return false;
    for (int i = m->first[e]; i < m->first[e + 1]; i++, g += m->gate.f32.ld, u += m->up.ld)
        me->pass->kt.act_mul[f](g, u, hi - lo, g, me->scratch);
    return true;
}

/* Computes a piece of whole blocks: gates it and converts it to format a while it is in cache. The piece's rows lie
 * without gaps in a part of the buffers that no other piece uses. */
static bool piece_quantised(const struct member *me, const struct layer *l, enum act_kind f, enum act a, int e, int lo,
                            int hi)
{
    struct moe *m = &me->pass->moe;
    const int first = m->first[e], n = m->first[e + 1] - first, n_out = hi - lo;
    const size_t from = (size_t)first * m->up.ld + (size_t)n * (size_t)lo;
    float *g = m->gate.f32.p + from, *u = m->up.p + from;
    if (!gate_and_up(me, l, e, lo, hi, g, u, (size_t)n_out)) return false;
    for (int i = 0; i < n; i++, g += n_out, u += n_out) {
        me->pass->kt.act_mul[f](g, u, n_out, g, me->scratch);
        me->pass->kt.quant[a](g, lo, n_out, l->down_exps.in, m->gate.q[a] + (size_t)(first + i) * m->gate.ld[a],
                              me->scratch);
    }
    return true;
}

/* Outputs in a piece: few enough for all members to have pieces, but whole blocks if those can be shared fairly. */
static int piece_outputs(const struct member *me, int n_ff, int block)
{
    const int unit = me->pass->kt.row_unit, most = me->pass->kt.strip;
    const int n_busy = me->pass->moe.n_busy, n_whole = n_busy * ((n_ff + most - 1) / most);
    if (n_whole >= PIECES_EACH * me->nth || (block > unit && n_whole % me->nth == 0)) return most;
    int n = n_busy * n_ff / (PIECES_EACH * me->nth) / unit * unit;
    if (n < unit) return unit;
    return n > most ? most : n;
}

/* Starts reading the busy experts' matrices from disk, so that the rest arrives while the first are multiplied. */
static void ask_ahead(const struct member *me, const struct layer *l)
{
    const struct moe *m = &me->pass->moe;
    const struct experts *const all[] = {&l->gate_up_exps, &l->gate_exps, &l->up_exps, &l->down_exps};
    for (int b = me->ith; b < m->n_busy; b += me->nth)
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            if (all[i]->row_bytes)
                map_ask_ahead(expert_at(all[i], m->busy[b]).data, (size_t)all[i]->out * all[i]->row_bytes);
}

void op_experts_gate_up(const struct member *me, int il, enum act_kind f)
{
    struct pass *pass = me->pass;
    struct moe *m = &pass->moe;
    const struct layer *l = &pass->model->layers[il];
    const struct experts *gate = l->gate_up_exps.row_bytes ? &l->gate_up_exps : &l->gate_exps;
    const enum act a = kernel_act_of(l->down_exps.type);
    const int n_ff = l->down_exps.in, block = a == ACT_Q256 ? 256 : 32,
              n_entries = pass->batch->n * pass->model->hp.n_expert_used;
    const int n_out = piece_outputs(me, n_ff, block), n_pieces = (n_ff + n_out - 1) / n_out;
    const bool quantise = a != ACT_F32 && n_out % block == 0;
    op_begin(me, il, OP_EXPERTS, "experts_gate_up", gate->type, 2 * (int64_t)n_ff, gate->in, n_entries);
    count_experts(me);
    if (pass->is_streaming && !op_is_abandoned(me)) ask_ahead(me, l);
    for (bool go_on = true; go_on && !op_is_abandoned(me);) {
        int i = atomic_fetch_add_explicit(&m->next, 1, memory_order_relaxed);
        if (i >= m->n_busy * n_pieces) break;
        int e = m->busy[i / n_pieces], lo = i % n_pieces * n_out, hi = lo + n_out < n_ff ? lo + n_out : n_ff;
        go_on = quantise ? piece_quantised(me, l, f, a, e, lo, hi) : piece_in_rows(me, l, f, e, lo, hi);
    }
    if (a != ACT_F32 && !quantise) {
        int lo, hi;
        op_sync(me);
        op_share(me, n_entries, 1, &lo, &hi);
        for (int i = lo; i < hi; i++)
            pass->kt.quant[a](rows_at(m->gate.f32, i), 0, n_ff, n_ff, m->gate.q[a] + (size_t)i * m->gate.ld[a],
                              me->scratch);
    }
    op_end(me);
}

/* As in op_matmul_add(), a member's products take turns in its part of h. */
void op_experts_down(const struct member *me, int il)
{
    struct pass *pass = me->pass;
    const struct moe *m = &pass->moe;
    const struct experts *down = &pass->model->layers[il].down_exps;
    int lo, hi;
    op_begin(me, il, OP_EXPERTS, "experts_down", down->type, down->out, down->in,
             (int64_t)pass->batch->n * pass->model->hp.n_expert_used);
    count_experts(me);
    op_share(me, down->out, me->pass->kt.row_unit, &lo, &hi);
    float *y = pass->h.f32.p + (size_t)pass->batch->n * (size_t)lo;
    for (int b = 0; b < m->n_busy && lo < hi; b++) { /* the entries of an abandoned pass are undefined */
        const int e = m->busy[b], first = m->first[e], n = m->first[e + 1] - first;
        const struct op_matrix matrix = expert_at(down, e);
        const struct acts src = acts_from(&m->gate, first);
        for (int at = lo, n_out, strip = op_strip(me, n, lo, hi); at < hi; at += n_out) {
            n_out = hi - at < strip ? hi - at : strip;
            if (!op_product(me, &matrix, &src, NULL, n, at, at + n_out, y, (size_t)n_out)) break;
            for (int i = 0; i < n; i++)
                pass->kt.add_scaled(rows_at(pass->x, m->row[first + i]) + at, y + (size_t)i * (size_t)n_out,
                                    m->entry_weight[first + i], n_out, me->scratch);
        }
    }
    op_end(me);
}

void op_shared_down(const struct member *me, int il)
{
    struct pass *pass = me->pass;
    const struct layer *l = &pass->model->layers[il];
    const struct linear *down = &l->shared_down;
    int n = pass->batch->n, lo, hi;
    op_begin(me, il, OP_EXPERTS, "shared_down", down->w->type, down->w->ne[1], down->w->ne[0], n);
    op_share(me, (int)down->w->ne[1], me->pass->kt.row_unit, &lo, &hi);
    float *y = pass->h.f32.p + (size_t)n * (size_t)lo;
    for (int at = lo, n_out, strip = op_strip(me, n, lo, hi); at < hi; at += n_out) {
        n_out = hi - at < strip ? hi - at : strip;
        if (!op_matmul_part(me, down, &pass->gate, n, at, at + n_out, y, (size_t)n_out)) break;
        for (int r = 0; r < n; r++)
            pass->kt.add_scaled(rows_at(pass->x, r) + at, y + (size_t)r * (size_t)n_out,
                                l->shared_router ? pass->moe.shared_weight[r] : 1, n_out, me->scratch);
    }
    op_end(me);
}
