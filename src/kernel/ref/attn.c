/* SPDX-License-Identifier: MIT
 *
 * attn.c: attention of a few query rows over one KV head (docs/KERNELS.md section 3).
 *
 * Slots are taken in chunks of 256 that start at multiples of 256 whatever the rows see, each
 * chunk gives its maximum, its sum of exponentials and its weighted sum of values, and the chunks
 * are merged in order: the streaming softmax of Milakov and Gimelshein (2018), with the split
 * made part of the arithmetic. Every query row goes by itself.
 */
#include <assert.h>
#include <string.h>

#include "kernel/ref/half.h"
#include "base/exact_math.h"
#include "kernel/ref/ref.h"

/* A partial result: logits so far have the maximum m, their exp(s - m) sum to l and weigh the values to o. */
struct partial {
    float m, l, o[ATTN_MAX_DIM];
};

/* The query in the Q32 format, dims padded to 32 with zeros. */
struct query_q8 {
    int8_t q[ATTN_MAX_DIM];
    float d[ATTN_MAX_DIM / 32];
};

static void query_quant(struct query_q8 *qq, const float *q, int head_dim)
{
    for (int b = 0; 32 * b < head_dim; b++) {
        float v[32] = {0};
        int n = head_dim - 32 * b < 32 ? head_dim - 32 * b : 32;
        memcpy(v, q + 32 * b, (size_t)n * sizeof *q);
        qq->d[b] = quant_block(v, 32, qq->q + 32 * b);
    }
}

static float dot_key_q8(const struct query_q8 *qq, const uint8_t *group, int lane, int head_dim)
{
    float acc = 0;
    for (int b = 0; 32 * b < head_dim; b++, group += 2 * KV_GROUP + 32 * KV_GROUP) {
        int32_t s = 0;
        for (int i = 0; i < 32; i++)
            s += qq->q[32 * b + i] * (int8_t)group[2 * KV_GROUP + (i / 4 * KV_GROUP + lane) * 4 + i % 4];
        acc = __builtin_fmaf(qq->d[b], load_f16(group + 2 * lane) * (float)s, acc);
    }
    return acc;
}

static float dot_key_float(enum kv_type t, const float *q, const uint8_t *group, int lane, int head_dim)
{
    float acc = 0;
    for (int i = 0; i < head_dim; i++) {
        int at = i * KV_GROUP + lane;
        acc = __builtin_fmaf(q[i], t == KV_F32 ? load_f32(group + 4 * at) : load_f16(group + 2 * at), acc);
    }
    return acc;
}

static float logit(const struct attn *a, int row, const struct query_q8 *qq, int slot)
{
    int in_page = slot % a->page_slots, lane = slot % KV_GROUP;
    const uint8_t *group = a->pages[slot / a->page_slots] + a->k_offset +
                           (size_t)(in_page / KV_GROUP) * kv_key_bytes(a->type, a->head_dim);
    float dot = a->type == KV_Q8_0 ? dot_key_q8(qq, group, lane, a->head_dim)
                                   : dot_key_float(a->type, a->q[row], group, lane, a->head_dim);
    float s = a->scale * dot;
    if (a->softcap != 0) s = a->softcap * math_tanhf(s * (1.0f / a->softcap));
    return s;
}

/* Element i of a stored value. */
static float value_at(enum kv_type t, const uint8_t *v, int i)
{
    if (t == KV_F32) return load_f32(v + 4 * i);
    if (t == KV_F16) return load_f16(v + 2 * i);
    const uint8_t *block = v + i / 32 * 34;
    return load_f16(block) * (float)(int8_t)block[2 + i % 32];
}

/* Slots [lo, hi), or as many of them as are in lo's chunk; returns where it stopped. */
static int chunk(const struct attn *a, int row, const struct query_q8 *qq, int lo, int hi, struct partial *c)
{
    int end = (lo / ATTN_CHUNK + 1) * ATTN_CHUNK;
    if (hi > end) hi = end;
    float p[ATTN_CHUNK], lane[16] = {0};
    c->m = -__builtin_inff();
    memset(c->o, 0, sizeof c->o);
    for (int s = lo; s < hi; s++) {
        p[s - lo] = logit(a, row, qq, s);
        if (p[s - lo] > c->m) c->m = p[s - lo];
    }
    for (int s = lo; s < hi; s++) {
        p[s - lo] = math_expf(p[s - lo] - c->m);
        lane[s % 16] += p[s - lo];
        const uint8_t *v = a->pages[s / a->page_slots] + a->v_offset +
                           (size_t)(s % a->page_slots) * kv_value_bytes(a->type, a->head_dim_v);
        for (int i = 0; i < a->head_dim_v; i++) c->o[i] = __builtin_fmaf(p[s - lo], value_at(a->type, v, i), c->o[i]);
    }
    c->l = lanes16_sum(lane);
    return hi;
}

static void merge(struct partial *t, const struct partial *c, int n)
{
    if (c->m > t->m) {
        float f = math_expf(t->m - c->m);
        t->l = __builtin_fmaf(t->l, f, c->l);
        for (int i = 0; i < n; i++) t->o[i] = __builtin_fmaf(t->o[i], f, c->o[i]);
        t->m = c->m;
    } else {
        float f = math_expf(c->m - t->m);
        t->l = __builtin_fmaf(c->l, f, t->l);
        for (int i = 0; i < n; i++) t->o[i] = __builtin_fmaf(c->o[i], f, t->o[i]);
    }
}

/* The same as merging a chunk with m = z, l = 1 and no values, without the steps that would only add +-0 to o. */
static void merge_sink(struct partial *t, float z, int n)
{
    if (z > t->m) {
        float f = math_expf(t->m - z);
        t->l = __builtin_fmaf(t->l, f, 1.0f);
        for (int i = 0; i < n; i++) t->o[i] = t->o[i] * f;
    } else {
        t->l = __builtin_fmaf(1.0f, math_expf(z - t->m), t->l);
    }
}

/* The result: the sink, and the division by the sum. */
static void finish(struct partial *t, const float *sink, int n, float *out)
{
    if (sink) merge_sink(t, *sink, n);
    float r = 1.0f / t->l;
    for (int i = 0; i < n; i++) out[i] = t->o[i] * r;
}

static void partial_store(const struct partial *t, int n, float *to)
{
    to[ATTN_PARTIAL_M] = t->m;
    to[ATTN_PARTIAL_L] = t->l;
    memcpy(to + ATTN_PARTIAL_O, t->o, (size_t)n * sizeof *t->o);
}

static void partial_load(struct partial *t, int n, const float *from)
{
    t->m = from[ATTN_PARTIAL_M];
    t->l = from[ATTN_PARTIAL_L];
    memcpy(t->o, from + ATTN_PARTIAL_O, (size_t)n * sizeof *t->o);
}

void attn_merge_ref(const struct attn_merge *m, void *scratch)
{
    struct partial total, c;
    (void)scratch;
    partial_load(&total, m->head_dim_v, m->partial);
    for (int i = 1; i < m->n; i++) {
        partial_load(&c, m->head_dim_v, m->partial + (size_t)i * m->ld_partial);
        merge(&total, &c, m->head_dim_v);
    }
    if (m->out)
        finish(&total, m->sink, m->head_dim_v, m->out);
    else
        partial_store(&total, m->head_dim_v, m->partial);
}

void attn_ref(const struct attn *a, void *scratch)
{
    (void)scratch;
    assert(a->n_q >= 1 && a->n_q <= ATTN_MAX_Q && a->head_dim <= ATTN_MAX_DIM && a->head_dim_v <= ATTN_MAX_DIM);
    for (int row = 0; row < a->n_q; row++) {
        struct query_q8 qq;
        struct partial total, c;
        if (a->type == KV_Q8_0) query_quant(&qq, a->q[row], a->head_dim);
        assert(a->lo[row] >= 0 && a->lo[row] < a->hi[row]);
        if (a->ld_partial) {
            float *to = a->out[row];
            for (int s = a->lo[row]; s < a->hi[row]; to += a->ld_partial) {
                s = chunk(a, row, &qq, s, a->hi[row], &c);
                partial_store(&c, a->head_dim_v, to);
            }
            continue;
        }
        int s = chunk(a, row, &qq, a->lo[row], a->hi[row], &total);
        while (s < a->hi[row]) {
            s = chunk(a, row, &qq, s, a->hi[row], &c);
            merge(&total, &c, a->head_dim_v);
        }
        finish(&total, a->sink ? &a->sink[row] : NULL, a->head_dim_v, a->out[row]);
    }
}
