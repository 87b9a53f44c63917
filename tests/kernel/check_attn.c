/* SPDX-License-Identifier: MIT
 *
 * check_attn.c: attention and the storing of keys and values against the reference.
 *
 * The pages end at guard pages, hold 0xff (NaN) in every slot that was not written, and come in
 * sizes below, at and above a chunk. Query rows see different ranges, as in prefill.
 */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SLOTS 1100
#define MAX_PAGES (MAX_SLOTS / 16 + 2)

static const int head_dims[] = {2, 4, 6, 8, 16, 30, 32, 40, 48, 64, 80, 96, 128, 192, 256, 512, 576};
static const int slot_counts[] = {1, 2, 15, 16, 17, 31, 33, 100, 255, 256, 257, 300, 511, 512, 513, 777, 1100};
static const int query_counts[] = {1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 31, 32, 61, 128};
static const int page_sizes[] = {16, 32, 48, 64, 256, 512, 1024};
static const enum xpat patterns[] = {X_NORMAL, X_NORMAL, X_NORMAL, X_CONST, X_SIGNS, X_OUTLIER,
                                     X_WIDE,   X_TIES,   X_ZERO,   X_TINY,  X_INF,   X_NAN};

struct world {
    struct attn a;
    int n_slots, n_pages;
    struct guarded page[MAX_PAGES];
    const uint8_t *pages[MAX_PAGES];
    struct guarded q[ATTN_MAX_Q];
    const float *qs[ATTN_MAX_Q];
    int32_t lo[ATTN_MAX_Q], hi[ATTN_MAX_Q];
    float sink[ATTN_MAX_Q];
};

/* Keys and values of n_slots slots, either kind at the end of the page. */
static void fill_pages(struct world *w, enum xpat kpat, enum xpat vpat)
{
    struct attn *a = &w->a;
    size_t k_bytes = kv_key_bytes(a->type, a->head_dim) * (size_t)(a->page_slots / KV_GROUP);
    size_t v_bytes = kv_value_bytes(a->type, a->head_dim_v) * (size_t)a->page_slots;
    bool keys_last = rnd() & 1;
    a->k_offset = keys_last ? v_bytes : 0;
    a->v_offset = keys_last ? 0 : k_bytes;
    w->n_pages = (w->n_slots + a->page_slots - 1) / a->page_slots;
    for (int p = 0; p < w->n_pages; p++) {
        w->page[p] = guarded_new(k_bytes + v_bytes, 0, AT_END);
        w->pages[p] = w->page[p].p;
    }
    for (int s = 0; s < w->n_slots; s++) {
        float x[ATTN_MAX_DIM];
        uint8_t *page = w->page[s / a->page_slots].p;
        fill_floats(x, a->head_dim, kpat);
        table[CPU_REF].put_key(a->type, x, a->head_dim, page + a->k_offset, s % a->page_slots, NULL);
        fill_floats(x, a->head_dim_v, vpat);
        table[CPU_REF].put_value(a->type, x, a->head_dim_v, page + a->v_offset, s % a->page_slots, NULL);
    }
    a->pages = w->pages;
}

static void fill_queries(struct world *w, enum xpat qpat)
{
    struct attn *a = &w->a;
    bool causal = rnd() & 1, window = rnd_below(3) == 0;
    for (int i = 0; i < a->n_q; i++) {
        w->q[i] = guarded_new((size_t)a->head_dim * 4, 0, AT_END);
        w->qs[i] = (const float *)w->q[i].p;
        fill_floats((float *)w->q[i].p, a->head_dim, qpat);
        w->hi[i] = causal ? w->n_slots - (a->n_q - 1 - i) / 4 : w->n_slots;
        if (w->hi[i] < 1) w->hi[i] = 1;
        w->lo[i] = window ? rnd_below(w->hi[i]) : 0;
        w->sink[i] = 4.0f * rnd_normal();
    }
    a->q = w->qs;
    a->lo = w->lo;
    a->hi = w->hi;
    a->sink = rnd_below(3) == 0 ? w->sink : NULL;
}

static void random_world(struct world *w, enum kv_type type)
{
    struct attn *a = &w->a;
    *a = (struct attn){.type = type};
    a->head_dim = a->head_dim_v = rnd_of(head_dims, LEN(head_dims));
    if (rnd_below(3) == 0) a->head_dim_v = rnd_of(head_dims, LEN(head_dims));
    if (rnd_below(12) == 0) a->head_dim = 576, a->head_dim_v = 512; /* latent attention: a key is a value and more */
    a->n_q = rnd_of(query_counts, LEN(query_counts));
    a->scale = rnd_below(4) ? 1.0f / (1.0f + (float)rnd_below(16)) : 8.0f; /* the last saturates the softmax */
    a->softcap = rnd_below(4) == 0 ? 30.0f : 0;
    a->page_slots = rnd_of(page_sizes, LEN(page_sizes));
    w->n_slots = rnd_of(slot_counts, LEN(slot_counts));
    if (a->n_q * w->n_slots > 2500 && rnd_below(4)) /* most of the large ones: the reference is slow */
        w->n_slots = 1 + w->n_slots % 40;
    enum xpat qpat = patterns[rnd_below(LEN(patterns))];
    enum xpat kpat = patterns[rnd_below(LEN(patterns))], vpat = patterns[rnd_below(LEN(patterns))];
    fill_pages(w, kpat, vpat);
    fill_queries(w, qpat);
    describe("attn type %d dims %d %d queries %d slots %d page %d patterns %d %d %d scale %g softcap %g sink %d lo %d",
             type, a->head_dim, a->head_dim_v, a->n_q, w->n_slots, a->page_slots, qpat, kpat, vpat, (double)a->scale,
             (double)a->softcap, a->sink != NULL, a->lo[0]);
}

/* Outputs of all rows, each in its own guarded buffer. */
static void run(struct world *w, enum cpu_level l, struct guarded *out)
{
    float *ptr[ATTN_MAX_Q];
    for (int i = 0; i < w->a.n_q; i++) {
        out[i] = guarded_new((size_t)w->a.head_dim_v * 4, 0, AT_END);
        ptr[i] = (float *)out[i].p;
    }
    w->a.out = ptr;
    table[l].attn(&w->a, l == CPU_REF ? NULL : scratch_dirty());
}

static void check_world(struct world *w)
{
    struct guarded want[ATTN_MAX_Q], got[ATTN_MAX_Q];
    run(w, CPU_REF, want);
    FOR_LEVELS(l, attn)
    {
        run(w, (enum cpu_level)l, got);
        for (int i = 0; i < w->a.n_q; i++) {
            check_floats((enum cpu_level)l, "out", (float *)want[i].p, (float *)got[i].p, (size_t)w->a.head_dim_v);
            guarded_free(&got[i]);
        }
    }
    for (int i = 0; i < w->a.n_q; i++) guarded_free(&want[i]);
}

/* Outputs of all rows from the partial results of their chunks, which two calls compute and two merges take. */
static void run_in_parts(struct world *w, enum cpu_level l, struct guarded *out)
{
    struct attn a = w->a;
    const size_t ld = ATTN_PARTIAL_O + ((size_t)a.head_dim_v + 15) / 16 * 16;
    const int first = w->lo[0] / ATTN_CHUNK, n = (w->hi[0] + ATTN_CHUNK - 1) / ATTN_CHUNK - first;
    const int n_calls[] = {rnd_below(n + 1), n}, n_merged = 1 + rnd_below(n);
    struct guarded parts = guarded_new((size_t)n * (size_t)a.n_q * ld * sizeof(float), 0, AT_END);
    float *ptr[ATTN_MAX_Q];
    int32_t lo[ATTN_MAX_Q], hi[ATTN_MAX_Q];
    void *scratch = l == CPU_REF ? NULL : scratch_dirty();
    a.out = ptr, a.lo = lo, a.hi = hi;
    a.ld_partial = (size_t)a.n_q * ld;
    for (int call = 0, from = 0; call < 2; from = n_calls[call++]) {
        if (from == n_calls[call]) continue;
        for (int i = 0; i < a.n_q; i++) {
            int begin = (first + from) * ATTN_CHUNK, end = (first + n_calls[call]) * ATTN_CHUNK;
            lo[i] = begin > w->lo[0] ? begin : w->lo[0];
            hi[i] = end < w->hi[0] ? end : w->hi[0];
            ptr[i] = (float *)parts.p + (size_t)from * a.ld_partial + (size_t)i * ld;
        }
        table[l].attn(&a, scratch);
    }
    for (int i = 0; i < a.n_q; i++) {
        float *p = (float *)parts.p + (size_t)i * ld, *last = p + (size_t)(n_merged - 1) * a.ld_partial;
        struct attn_merge m = {p, n_merged, a.ld_partial, a.head_dim_v, a.sink ? &a.sink[i] : NULL, NULL};
        table[l].attn_merge(&m, scratch);
        memmove(last, p, ld * sizeof *p);
        out[i] = guarded_new((size_t)a.head_dim_v * 4, 0, AT_END);
        m.partial = last, m.n = n - n_merged + 1, m.out = (float *)out[i].p;
        table[l].attn_merge(&m, scratch);
    }
    guarded_free(&parts);
}

static void check_parts_of(struct world *w, enum cpu_level l, const struct guarded *want)
{
    struct guarded got[ATTN_MAX_Q];
    run_in_parts(w, l, got);
    for (int i = 0; i < w->a.n_q; i++) {
        check_floats(l, "merged", (float *)want[i].p, (float *)got[i].p, (size_t)w->a.head_dim_v);
        guarded_free(&got[i]);
    }
}

/* Partial results that are merged later give the bits of one call. The reference is slow: it merges only where there
 * are enough chunks to be merged in the wrong order. */
static void check_parts(struct world *w)
{
    struct guarded want[ATTN_MAX_Q];
    for (int i = 1; i < w->a.n_q; i++) w->lo[i] = w->lo[0], w->hi[i] = w->hi[0];
    run(w, CPU_REF, want);
    if (w->hi[0] - w->lo[0] > 2 * ATTN_CHUNK) check_parts_of(w, CPU_REF, want);
    for (int l = first_level; l <= last_level; l++) check_parts_of(w, (enum cpu_level)l, want);
    for (int i = 0; i < w->a.n_q; i++) guarded_free(&want[i]);
}

static void free_world(struct world *w)
{
    for (int i = 0; i < w->a.n_q; i++) guarded_free(&w->q[i]);
    for (int p = 0; p < w->n_pages; p++) guarded_free(&w->page[p]);
}

static void check_put(enum kv_type type, bool key, int head_dim, int slot, enum xpat pat)
{
    describe("put_%s type %d dim %d slot %d pattern %d", key ? "key" : "value", type, head_dim, slot, pat);
    size_t bytes = key ? 3 * kv_key_bytes(type, head_dim) : 3 * KV_GROUP * kv_value_bytes(type, head_dim);
    struct guarded x = guarded_new((size_t)head_dim * 4, 0, AT_END), want = guarded_new(bytes, 0, AT_END);
    fill_floats((float *)x.p, head_dim, pat);
    (key ? table[CPU_REF].put_key : table[CPU_REF].put_value)(type, (float *)x.p, head_dim, want.p, slot, NULL);
    for (int l = first_level; l <= last_level; l++) {
        struct guarded area = guarded_new(bytes, 0, AT_END);
        kv_put_fn *put = key ? table[l].put_key : table[l].put_value;
        put(type, (float *)x.p, head_dim, area.p, slot, scratch_dirty());
        check_bytes((enum cpu_level)l, "area", want.p, area.p, bytes);
        guarded_free(&area);
    }
    guarded_free(&want);
    guarded_free(&x);
}

void check_attn(int rounds)
{
    static struct world w;
    for (int t = 0; t < KV_N; t++) {
        for (int i = 0; wanted("attn") && i < 150 * rounds; i++) {
            random_world(&w, (enum kv_type)t);
            check_world(&w);
            if (i % 2) check_parts(&w);
            free_world(&w);
        }
        for (int i = 0; wanted("put") && i < 200 * rounds; i++)
            check_put((enum kv_type)t, i & 1, rnd_of(head_dims, LEN(head_dims)), rnd_below(48),
                      (enum xpat)rnd_below(X_N));
    }
}
