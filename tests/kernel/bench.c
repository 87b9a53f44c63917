/* SPDX-License-Identifier: MIT
 *
 * bench.c: how fast the kernels are, one thread, best of several runs, each beside its ceiling.
 *
 * Products are measured at 1 column from 64 MB of weights (beyond the second-level cache, so that
 * memory is what is measured), at 8, 32 and 512 columns from a few MB. GB/s counts the bytes of the
 * weights as stored, once per product; GMAC/s multiply-adds. Attention of 1 and 4 queries reads
 * 64 MB of keys and values, of 32 queries 4,096 slots. The reference is measured only when asked
 * for with --level ref.
 *
 * The percentage is that of the ceiling: what the level's probes (kernel/probe.h) reach on this
 * thread in the same run. One column of a product can be no faster than memory is read, many no
 * faster than the peak of multiply-adds; so with the steps of the delta rule, whose state is read
 * and written; attention no faster than either; the small kernels, whose rows are in the first
 * cache, no faster than that is read.
 */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { K = 4096 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Best time of one call: at least 3 calls and 0.25 s. */
static double best_time(void (*call)(void *), void *arg)
{
    double best = 1e30, start = now();
    for (int i = 0; i < 3 || now() - start < 0.25; i++) {
        double t = now();
        call(arg);
        t = now() - t;
        if (t < best) best = t;
    }
    return best;
}

/* n bytes; large pieces in huge pages if there are any, as the engine's own buffers are. */
static void *memory(size_t n)
{
    const size_t huge = 2u << 20, align = n < huge ? 64 : huge;
    n = (n + align - 1) & ~(align - 1);
    void *p = aligned_alloc(align, n);
    if (p && align == huge) madvise(p, n, MADV_HUGEPAGE);
    if (!p) {
        puts("out of memory");
        exit(1);
    }
    return p;
}

/* ---- ceilings ---- */

enum { FAR = 64 << 20, NEAR = 16 << 10 }; /* bytes: from memory, from the first cache */

struct ceilings {
    double read, near, int8, f32;
}; /* bytes/s, bytes/s, multiply-adds/s */

struct probe_run {
    const struct probe *probe;
    const uint8_t *p;
};

static volatile uint32_t sink; /* the probes' results must go somewhere */

static void call_far(void *arg)
{
    struct probe_run *r = arg;
    sink ^= r->probe->read(r->p, FAR);
}
static void call_near(void *arg)
{
    struct probe_run *r = arg;
    for (int i = 0; i < 64; i++) sink ^= r->probe->read(r->p, NEAR);
}
static void call_int8(void *arg)
{
    struct probe_run *r = arg;
    sink ^= r->probe->int8_mac(2000);
}
static void call_f32(void *arg)
{
    struct probe_run *r = arg;
    sink ^= (uint32_t)r->probe->f32_fma(2000);
}

static const struct ceilings *ceilings_of(int l)
{
    static struct ceilings known[CPU_N];
    static uint8_t *p;
    struct ceilings *c = &known[l];
    if (!p) memset(p = memory(FAR), 1, FAR);
    struct probe_run r = {cpu_probe((enum cpu_level)l), p};
    if (c->read == 0)
        *c = (struct ceilings){FAR / best_time(call_far, &r), 64.0 * NEAR / best_time(call_near, &r),
                               2000 * 1024 / best_time(call_int8, &r), 2000 * 256 / best_time(call_f32, &r)};
    return c;
}

/* ---- results ---- */

/* One measurement: what was moved and multiplied in so many seconds. */
struct result {
    const char *kernel;
    int level, cols; /* cols 0: does not apply */
    double bytes, macs, s, floor_s;
};

static bool json;

/* A table has the columns of a kernel side by side. */
static void line_begin(const char *kernel, int l)
{
    if (!json) printf("%-14s %-7s", kernel, cpu_level_name((enum cpu_level)l));
}

static void line_end(void)
{
    if (!json) putchar('\n');
}

static void show(const struct result *r)
{
    const char *level = cpu_level_name((enum cpu_level)r->level);
    double fraction = r->floor_s / r->s;
    if (json)
        printf("{\"kernel\":\"%s\",\"level\":\"%s\",\"columns\":%d,\"us\":%.4f,\"gbs\":%.3f,\"gmacs\":%.3f,"
               "\"fraction\":%.4f}\n",
               r->kernel, level, r->cols, 1e6 * r->s, 1e-9 * r->bytes / r->s, 1e-9 * r->macs / r->s, fraction);
    else if (r->cols)
        printf("  %4d: %6.1f GB/s %7.1f GMAC/s %3.0f%%", r->cols, 1e-9 * r->bytes / r->s, 1e-9 * r->macs / r->s,
               100 * fraction);
    else
        printf("  %.3f ns/element %6.1f GB/s %3.0f%%", 1e9 * r->s / K, 1e-9 * r->bytes / r->s, 100 * fraction);
    fflush(stdout);
}

/* ---- products ---- */

struct gemm_run {
    gemm_fn *fn;
    struct gemm g;
    void *scratch;
};

static void call_gemm(void *arg)
{
    struct gemm_run *r = arg;
    r->fn(&r->g, r->scratch);
}

static void bench_gemm_at(const char *name, enum dtype t, int l, int n_cols, size_t weight_bytes)
{
    static uint8_t *w, *x;
    static float *y, row[K];
    enum { MAX_COLS = 512 };
    if (!w) {
        w = memory(FAR);
        x = memory(MAX_COLS * K * 4);
        y = memory((size_t)FAR / 18 * 4 + MAX_COLS * 4096 * 4);
    }
    enum act a = kernel_act_of(t);
    struct gemm_run r = {.fn = table[l].gemm[t], .scratch = scratch_dirty()};
    r.g = (struct gemm){.w = w, .ld_w = dtype_row_bytes(t, K), .k = K, .x = x, .n_cols = n_cols, .y = y};
    r.g.n_rows = (int)(weight_bytes / r.g.ld_w) & ~15;
    r.g.ld_x = act_row_bytes(a, K);
    r.g.ld_y = (size_t)r.g.n_rows;
    for (int i = 0; i < r.g.n_rows; i++) {
        if (i < 64)
            fill_weights(t, w + (size_t)i * r.g.ld_w, K, W_RANDOM);
        else
            memcpy(w + (size_t)i * r.g.ld_w, w + (size_t)(i % 64) * r.g.ld_w, r.g.ld_w);
    }
    for (int c = 0; c < n_cols; c++) {
        fill_floats(row, K, X_NORMAL);
        table[CPU_REF].quant[a](row, 0, K, K, x + (size_t)c * r.g.ld_x, NULL);
    }
    const struct ceilings *c = ceilings_of(l);
    if (t >= DT_MLX2 && t <= DT_MLX8) { /* as most such models have them */
        static uint16_t *side;
        size_t n = (size_t)FAR / 8 / 2; /* a row of the smallest codes has an eighth of its bytes beside it, twice */
        if (!side) {
            side = memory(2 * n);
            fill_weights(DT_BF16, (uint8_t *)side, K, W_RANDOM);
            for (size_t i = K; i < n; i++) side[i] = side[i % K];
        }
        const uint8_t *p = (const uint8_t *)side;
        r.g.side = (struct side){p, p, DT_BF16, 64};
    }
    struct result res = {name, l, n_cols, (double)r.g.ld_w * r.g.n_rows, (double)K * r.g.n_rows * n_cols, 0, 0};
    res.floor_s = n_cols == 1 ? res.bytes / c->read : res.macs / (a == ACT_F32 ? c->f32 : c->int8);
    res.s = best_time(call_gemm, &r);
    show(&res);
}

static void bench_gemm(void)
{
    for (int t = 0; t < DT_N; t++) {
        char name[64];
        if (!table[CPU_REF].gemm[t]) continue;
        snprintf(name, sizeof name, "gemm %s", dtype_get(t)->name);
        if (!wanted(name)) continue;
        for (int l = first_level; l <= last_level; l++) {
            if (!cpu_has((enum cpu_level)l)) continue;
            bool slow = l == CPU_REF;
            line_begin(name, l);
            bench_gemm_at(name, (enum dtype)t, l, 1, slow ? 1 << 20 : FAR);
            bench_gemm_at(name, (enum dtype)t, l, 8, slow ? 1 << 18 : 4 << 20);
            bench_gemm_at(name, (enum dtype)t, l, 32, slow ? 1 << 18 : 4 << 20);
            bench_gemm_at(name, (enum dtype)t, l, 512, slow ? 1 << 16 : 1 << 20);
            line_end();
        }
    }
}

/* ---- attention ---- */

enum { SLOTS = 4096, DIM = 128, PAGE_SLOTS = 256, MAX_PAGES = FAR / (PAGE_SLOTS * DIM * 2) };

struct attn_run {
    attn_fn *fn;
    struct attn a;
    void *scratch;
};

static void call_attn(void *arg)
{
    struct attn_run *r = arg;
    r->fn(&r->a, r->scratch);
}

/* n pages of PAGE_SLOTS slots: those after the first SLOTS are copies of them. */
static void fill_pages(enum kv_type t, uint8_t **pages, int n, size_t k_bytes, size_t v_bytes)
{
    for (int p = 0; p < n; p++) {
        pages[p] = memory(k_bytes + v_bytes);
        if (p >= SLOTS / PAGE_SLOTS) {
            memcpy(pages[p], pages[p % (SLOTS / PAGE_SLOTS)], k_bytes + v_bytes);
            continue;
        }
        for (int s = 0; s < PAGE_SLOTS; s++) {
            float x[DIM];
            fill_floats(x, DIM, X_NORMAL);
            table[CPU_REF].put_key(t, x, DIM, pages[p], s, NULL);
            table[CPU_REF].put_value(t, x, DIM, pages[p] + k_bytes, s, NULL);
        }
    }
}

static void bench_attn_at(const char *name, int l, struct attn a, int n_q, int n_slots, size_t page_bytes)
{
    static float q[ATTN_MAX_Q][DIM], out[ATTN_MAX_Q][DIM];
    static const float *qs[ATTN_MAX_Q];
    static float *outs[ATTN_MAX_Q];
    static int32_t lo[ATTN_MAX_Q], hi[ATTN_MAX_Q];
    for (int i = 0; i < n_q; i++) {
        fill_floats(q[i], DIM, X_NORMAL);
        qs[i] = q[i];
        outs[i] = out[i];
        hi[i] = n_slots;
    }
    a.q = qs, a.out = outs, a.lo = lo, a.hi = hi, a.n_q = n_q;
    struct attn_run r = {table[l].attn, a, scratch_dirty()};
    const struct ceilings *c = ceilings_of(l);
    double macs = (double)DIM * n_slots * n_q; /* of the keys, and as many of the values */
    struct result res = {name, l, n_q, (double)(n_slots / PAGE_SLOTS) * (double)page_bytes, 2 * macs, 0, 0};
    double read = n_slots > SLOTS ? res.bytes / c->read : 0;
    res.floor_s = macs / (a.type == KV_Q8_0 ? c->int8 : c->f32) + macs / c->f32;
    if (read > res.floor_s) res.floor_s = read;
    res.s = best_time(call_attn, &r);
    show(&res);
}

static void bench_attn(void)
{
    static uint8_t *pages[MAX_PAGES];
    static const char *const names[KV_N] = {"attn F32", "attn F16", "attn Q8_0"};
    for (int t = 0; t < KV_N; t++) {
        if (!wanted(names[t])) continue;
        size_t k_bytes = kv_key_bytes((enum kv_type)t, DIM) * (PAGE_SLOTS / KV_GROUP);
        size_t page_bytes = k_bytes + kv_value_bytes((enum kv_type)t, DIM) * PAGE_SLOTS;
        int n = (int)(FAR / page_bytes);
        fill_pages((enum kv_type)t, pages, n, k_bytes, page_bytes - k_bytes);
        const struct attn a = {.type = (enum kv_type)t,
                               .head_dim = DIM,
                               .head_dim_v = DIM,
                               .scale = 0.1f,
                               .pages = (const uint8_t *const *)pages,
                               .page_slots = PAGE_SLOTS,
                               .v_offset = k_bytes};
        for (int l = first_level; l <= last_level; l++) {
            if (!cpu_has((enum cpu_level)l)) continue;
            int far = l == CPU_REF ? SLOTS : n * PAGE_SLOTS;
            line_begin(names[t], l);
            bench_attn_at(names[t], l, a, 1, far, page_bytes);
            bench_attn_at(names[t], l, a, 4, far, page_bytes);
            bench_attn_at(names[t], l, a, 32, SLOTS, page_bytes);
            bench_attn_at(names[t], l, a, 128, SLOTS, page_bytes);
            line_end();
        }
        for (int p = 0; p < n; p++) free(pages[p]);
    }
}

/* ---- the gated delta rule ---- */

enum { VALUE_HEADS = 32, HEAD_STATE = DIM * DIM, FAR_HEADS = FAR / (HEAD_STATE * 4), STEPS = 64 };

struct delta_run {
    const struct kernels *k;
    struct delta d; /* of the first head */
    struct conv c;
    int n_heads;
    void *scratch;
};

/* As a layer does it: each key head is shared, each value head has its own values and state. */
static void call_delta(void *arg)
{
    struct delta_run *r = arg;
    for (int h = 0; h < r->n_heads; h++) {
        struct delta d = r->d;
        int v = h % VALUE_HEADS * DIM;
        d.m += (size_t)h * HEAD_STATE;
        d.v += v, d.o += v;
        r->k->delta(&d, r->scratch);
    }
}

static void call_conv(void *arg)
{
    struct delta_run *r = arg;
    r->k->conv_silu(&r->c, r->scratch);
}

/* One step from states in memory; many from those of one head, which are near. */
static void bench_delta_at(const char *name, int l, int n_rows, int n_heads)
{
    static float *m, *x, *o;
    enum { WIDE = VALUE_HEADS * DIM };
    if (!m) {
        memset(m = memory(FAR), 0, FAR);
        x = memory(STEPS * WIDE * 4);
        o = memory(STEPS * WIDE * 4);
    }
    fill_floats(x, STEPS * WIDE, X_NORMAL);
    for (int i = 0; i < STEPS * WIDE; i++) x[i] *= 0.088f; /* keys of length 1 */
    static float gate[STEPS];
    for (int i = 0; i < STEPS; i++) gate[i] = 0.9f;
    struct delta_run r = {.k = &table[l], .n_heads = n_heads, .scratch = scratch_dirty()};
    r.d = (struct delta){.dk = DIM,
                         .n_dims = DIM,
                         .n_rows = n_rows,
                         .m = m,
                         .q = x,
                         .k = x + DIM,
                         .v = x,
                         .o = o,
                         .decay = gate,
                         .beta = gate,
                         .ld_qk = WIDE,
                         .ld_v = WIDE,
                         .ld_o = WIDE,
                         .ld_gate = 1};
    const struct ceilings *c = ceilings_of(l);
    double n = (double)HEAD_STATE * n_heads;
    struct result res = {name, l, n_rows, 8 * n, 4 * n * n_rows, 0, 0};
    res.floor_s = n_rows == 1 ? res.bytes / c->read : res.macs / c->f32;
    res.s = best_time(call_delta, &r);
    show(&res);
}

static void bench_conv_at(const char *name, int l, int n_rows)
{
    static float *w, *x, *y, *state;
    enum { CHANNELS = 8192, TAPS = 4 };
    if (!w) {
        w = memory(CHANNELS * TAPS * 4);
        x = memory(STEPS * CHANNELS * 4);
        y = memory(STEPS * CHANNELS * 4);
        state = memory((TAPS - 1) * CHANNELS * 4);
    }
    fill_floats(w, CHANNELS * TAPS, X_NORMAL);
    fill_floats(x, STEPS * CHANNELS, X_NORMAL);
    memset(state, 0, (TAPS - 1) * CHANNELS * 4);
    struct delta_run r = {.k = &table[l], .scratch = scratch_dirty()};
    r.c = (struct conv){.w = w,
                        .n_taps = TAPS,
                        .n_channels = CHANNELS,
                        .n_rows = n_rows,
                        .x = x,
                        .y = y,
                        .ld_x = CHANNELS,
                        .ld_y = CHANNELS,
                        .state = state,
                        .ld_state = CHANNELS};
    double bytes = 4.0 * CHANNELS * (TAPS + 2 * (TAPS - 1) + 2 * n_rows);
    struct result res = {name, l, n_rows, bytes, (double)CHANNELS * TAPS * n_rows, 0, 0};
    res.floor_s = bytes / (n_rows == 1 ? ceilings_of(l)->read : ceilings_of(l)->near);
    res.s = best_time(call_conv, &r);
    show(&res);
}

static void bench_delta(void)
{
    for (int l = first_level; l <= last_level; l++) {
        if (!cpu_has((enum cpu_level)l)) continue;
        if (wanted("delta")) {
            line_begin("delta", l);
            bench_delta_at("delta", l, 1, l == CPU_REF ? 4 : FAR_HEADS);
            bench_delta_at("delta", l, 8, 1);
            bench_delta_at("delta", l, STEPS, 1);
            line_end();
        }
        if (wanted("conv_silu")) {
            line_begin("conv_silu", l);
            bench_conv_at("conv_silu", l, 1);
            bench_conv_at("conv_silu", l, STEPS);
            line_end();
        }
    }
}

/* ---- the small ones: rows of K elements in the first cache ---- */

struct small_run {
    const struct kernels *k;
    float *x, *y, *z;
    uint8_t *row;
    void *scratch;
};

static void call_rms_norm(void *p)
{
    struct small_run *r = p;
    r->k->rms_norm(r->x, r->y, 1e-5f, K, r->z, r->scratch);
}
static void call_add(void *p)
{
    struct small_run *r = p;
    r->k->add(r->z, r->x, K, r->scratch);
}
static void call_silu(void *p)
{
    struct small_run *r = p;
    r->k->act_mul[ACTIV_SILU](r->x, r->y, K, r->z, r->scratch);
}
static void call_gelu(void *p)
{
    struct small_run *r = p;
    r->k->act_mul[ACTIV_GELU](r->x, r->y, K, r->z, r->scratch);
}
static void call_q32(void *p)
{
    struct small_run *r = p;
    r->k->quant[ACT_Q32](r->x, 0, K, K, r->row, r->scratch);
}
static void call_q256(void *p)
{
    struct small_run *r = p;
    r->k->quant[ACT_Q256](r->x, 0, K, K, r->row, r->scratch);
}
static void call_softmax(void *p)
{
    struct small_run *r = p;
    r->k->softmax_exp(r->x, K, r->z, r->scratch);
}
static void call_argmax(void *p)
{
    struct small_run *r = p;
    r->z[0] = (float)r->k->argmax(r->x, K, r->scratch);
}
static void call_topk(void *p)
{
    struct small_run *r = p;
    r->k->topk(r->x, K, 40, (int32_t *)r->z, r->scratch);
}
static void call_rope(void *p)
{
    struct small_run *r = p;
    for (int h = 0; h < K / DIM; h++) r->k->rope(r->z + h * DIM, (const float(*)[2])r->y, DIM / 2, false, r->scratch);
}

static void bench_small(void)
{
    static const struct {
        const char *name;
        void (*call)(void *);
        int bytes; /* read and written for an element */
    } list[] = {
        {"rms_norm", call_rms_norm, 12}, {"add", call_add, 12},
        {"silu", call_silu, 12},         {"gelu", call_gelu, 12},
        {"rope", call_rope, 12},         {"quant Q32", call_q32, 5},
        {"quant Q256", call_q256, 5},    {"softmax_exp", call_softmax, 8},
        {"argmax", call_argmax, 4},      {"topk 40", call_topk, 4},
    };
    struct small_run r = {.x = memory(K * 4), .y = memory(K * 4), .z = memory(K * 4), .row = memory(K * 4)};
    r.scratch = scratch_dirty();
    for (int i = 0; i < LEN(list); i++) {
        if (!wanted(list[i].name)) continue;
        for (int l = first_level; l <= last_level; l++) {
            if (!cpu_has((enum cpu_level)l)) continue;
            fill_floats(r.x, K, X_NORMAL);
            fill_floats(r.y, K, X_NORMAL);
            memset(r.z, 0, K * 4);
            r.k = &table[l];
            struct result res = {list[i].name, l, 0, (double)list[i].bytes * K, 0, best_time(list[i].call, &r), 0};
            res.floor_s = res.bytes / ceilings_of(l)->near;
            line_begin(list[i].name, l);
            show(&res);
            line_end();
        }
    }
}

void bench_all(bool as_json)
{
    json = as_json;
    bench_gemm();
    bench_attn();
    bench_delta();
    bench_small();
}
