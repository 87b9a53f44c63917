/* SPDX-License-Identifier: MIT
 *
 * cost.c: the costing table: every kernel adds up what it would read and compute.
 *
 * It counts the multiply-adds and the bytes that must come from memory each time: weights, keys, values, states. It
 * does not count activations, which are small and in cache. The element-wise kernels count nothing; their time appears
 * as the difference to the computed minimum.
 */
#include "kernel/cost/cost.h"

#include <string.h>

#include "kernel/kernel.h"

static void gemm(const struct gemm *g, void *scratch, bool is_float)
{
    struct cost *c = scratch;
    uint64_t macs = (uint64_t)g->n_rows * (uint64_t)g->k * (uint64_t)g->n_cols;
    c->bytes += (uint64_t)g->n_rows * (g->ld_w + 2 * side_row_bytes(&g->side, g->k));
    *(is_float ? &c->macs_f32 : &c->macs_int8) += macs;
}

static void gemm_int8(const struct gemm *g, void *scratch) { gemm(g, scratch, false); }
static void gemm_f32(const struct gemm *g, void *scratch) { gemm(g, scratch, true); }

static void dequant(enum dtype t, const uint8_t *w, const struct side *side, int64_t k, float *y, void *scratch)
{
    (void)w, (void)y;
    ((struct cost *)scratch)->bytes += dtype_row_bytes(t, k) + (side ? 2 * side_row_bytes(side, k) : 0);
}

/* The rows of a call share their keys and values: each slot that any of them sees is read once. */
static void attn(const struct attn *a, void *scratch)
{
    struct cost *c = scratch;
    int lo = a->lo[0], hi = a->hi[0];
    uint64_t seen = 0;
    for (int i = 0; i < a->n_q; i++) {
        lo = a->lo[i] < lo ? a->lo[i] : lo;
        hi = a->hi[i] > hi ? a->hi[i] : hi;
        seen += (uint64_t)(a->hi[i] - a->lo[i]);
    }
    uint64_t slots = (uint64_t)(hi - lo);
    uint64_t keys = seen * (uint64_t)a->head_dim, values = seen * (uint64_t)a->head_dim_v;
    c->bytes += slots * (kv_key_bytes(a->type, a->head_dim) / KV_GROUP + kv_value_bytes(a->type, a->head_dim_v));
    *(a->type == KV_Q8_0 ? &c->macs_int8 : &c->macs_f32) += keys;
    c->macs_f32 += values;
}

/* Partial results are in cache. */
static void attn_merge(const struct attn_merge *m, void *s) { (void)m, (void)s; }

/* The state is read and written; the rows are in cache. */
static void conv_silu(const struct conv *v, void *scratch)
{
    struct cost *c = scratch;
    uint64_t n = (uint64_t)v->n_channels;
    c->bytes += n * 4 * (uint64_t)(v->n_taps + 2 * (v->n_taps - 1));
    c->macs_f32 += n * (uint64_t)v->n_taps * (uint64_t)v->n_rows;
}

/* In every step each number of the state takes part in two products, the decay and the update. */
static void delta(const struct delta *d, void *scratch)
{
    struct cost *c = scratch;
    uint64_t n = (uint64_t)d->n_dims * (uint64_t)d->dk;
    c->bytes += 2 * 4 * n;
    c->macs_f32 += 4 * n * (uint64_t)d->n_rows;
}

static void delta_gates(const float *a, const float *b, const float *r, const float *i, int n, float *d, float *e,
                        void *s)
{
    (void)a, (void)b, (void)r, (void)i, (void)n, (void)d, (void)e, (void)s;
}
static void l2_norm(const float *x, float eps, float f, int n, float *y, void *s)
{
    (void)x, (void)eps, (void)f, (void)n, (void)y, (void)s;
}
static void quant(const float *x, int from, int n, int k, uint8_t *r, void *s)
{
    (void)x, (void)from, (void)n, (void)k, (void)r, (void)s;
}
static void put(enum kv_type t, const float *x, int d, uint8_t *a, int slot, void *s)
{
    (void)t, (void)x, (void)d, (void)a, (void)slot, (void)s;
}
static void rms_norm(const float *x, const float *w, float eps, int n, float *y, void *s)
{
    (void)x, (void)w, (void)eps, (void)n, (void)y, (void)s;
}
static void add(float *y, const float *x, int n, void *s) { (void)y, (void)x, (void)n, (void)s; }
static void add_scaled(float *y, const float *x, float f, int n, void *s)
{
    (void)y, (void)x, (void)f, (void)n, (void)s;
}
static void scale(float *y, float f, int n, void *s) { (void)y, (void)f, (void)n, (void)s; }
static void act_mul(const float *g, const float *u, int n, float *y, void *s)
{
    (void)g, (void)u, (void)n, (void)y, (void)s;
}
static void rope(float *x, const float (*cs)[2], int n, bool adj, void *s)
{
    (void)x, (void)cs, (void)n, (void)adj, (void)s;
}

void kernels_init_cost(struct kernels *k)
{
    memset(k, 0, sizeof *k);
    k->name = "cost";
    k->is_cost = true;
    k->row_unit = 32;
    k->strip = 256;
    k->quant[ACT_Q32] = k->quant[ACT_Q256] = quant;
    for (int t = 0; t < DT_N; t++) {
        enum act a = kernel_act_of((enum dtype)t);
        if (a != ACT_N) k->gemm[t] = a == ACT_F32 ? gemm_f32 : gemm_int8;
    }
    k->attn = attn;
    k->attn_merge = attn_merge;
    k->put_key = k->put_value = put;
    k->conv_silu = conv_silu;
    k->delta = delta;
    k->delta_gates = delta_gates;
    k->l2_norm = l2_norm;
    k->rms_norm = rms_norm;
    k->add = add;
    k->add_scaled = add_scaled;
    k->scale = scale;
    for (int i = 0; i < ACTIV_N; i++) k->act_mul[i] = act_mul;
    k->softcap = scale;
    k->rope = rope;
    k->dequant = dequant;
}
