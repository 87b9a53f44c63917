/* SPDX-License-Identifier: MIT
 *
 * bench.c: how fast the kernels are, one thread, best of several runs.
 *
 * Products are measured at 1 column from 64 MB of weights (beyond the second-level cache, so that
 * memory is what is measured), at 8 and at 512 columns from a few MB. GB/s counts the bytes of the
 * weights as stored, once per product; GMAC/s multiply-adds. The reference is measured only when
 * asked for with --level ref.
 */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* n bytes, 64-byte aligned, never given back. */
static void *memory(size_t n)
{
    void *p = aligned_alloc(64, (n + 63) & ~(size_t)63);
    if (!p) {
        puts("out of memory");
        exit(1);
    }
    return p;
}

static void bench_gemm_at(enum dtype t, int l, int n_cols, size_t weight_bytes)
{
    static uint8_t *w, *x;
    static float *y, row[K];
    enum { MAX_COLS = 512, MAX_W = 64 << 20 };
    if (!w) {
        w = memory(MAX_W);
        x = memory(MAX_COLS * K * 4);
        y = memory((size_t)MAX_W / 18 * 4 + MAX_COLS * 4096 * 4);
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
        table[CPU_REF].quant[a](row, K, x + (size_t)c * r.g.ld_x, NULL);
    }
    double s = best_time(call_gemm, &r), bytes = (double)r.g.ld_w * r.g.n_rows;
    printf("  %4d: %6.1f GB/s %7.1f GMAC/s", n_cols, 1e-9 * bytes / s, 1e-9 * K * r.g.n_rows * n_cols / s);
    fflush(stdout);
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
            printf("%-14s %-7s", name, cpu_level_name((enum cpu_level)l));
            bench_gemm_at((enum dtype)t, l, 1, slow ? 1 << 20 : 64 << 20);
            bench_gemm_at((enum dtype)t, l, 8, slow ? 1 << 18 : 4 << 20);
            bench_gemm_at((enum dtype)t, l, 512, slow ? 1 << 16 : 1 << 20);
            printf("\n");
        }
    }
}

/* ---- attention ---- */

enum { SLOTS = 4096, DIM = 128, PAGE_SLOTS = 256 };

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

static void bench_attn(void)
{
    static float q[ATTN_MAX_Q][DIM], out[ATTN_MAX_Q][DIM];
    static const float *qs[ATTN_MAX_Q];
    static float *outs[ATTN_MAX_Q];
    static int32_t lo[ATTN_MAX_Q], hi[ATTN_MAX_Q];
    static const uint8_t *pages[SLOTS / PAGE_SLOTS];
    static const char *const names[KV_N] = {"attn F32", "attn F16", "attn Q8_0"};
    static const int counts[] = {1, 4, 32};
    for (int i = 0; i < ATTN_MAX_Q; i++) {
        fill_floats(q[i], DIM, X_NORMAL);
        qs[i] = q[i];
        outs[i] = out[i];
        hi[i] = SLOTS;
    }
    for (int t = 0; t < KV_N; t++) {
        if (!wanted(names[t])) continue;
        size_t k_bytes = kv_key_bytes((enum kv_type)t, DIM) * (PAGE_SLOTS / KV_GROUP);
        size_t v_bytes = kv_value_bytes((enum kv_type)t, DIM) * PAGE_SLOTS;
        for (int s = 0; s < SLOTS; s++) {
            uint8_t *page = s % PAGE_SLOTS ? (uint8_t *)pages[s / PAGE_SLOTS] : memory(k_bytes + v_bytes);
            float x[DIM];
            pages[s / PAGE_SLOTS] = page;
            fill_floats(x, DIM, X_NORMAL);
            table[CPU_REF].put_key((enum kv_type)t, x, DIM, page, s % PAGE_SLOTS, NULL);
            table[CPU_REF].put_value((enum kv_type)t, x, DIM, page + k_bytes, s % PAGE_SLOTS, NULL);
        }
        for (int l = first_level; l <= last_level; l++) {
            if (!cpu_has((enum cpu_level)l)) continue;
            printf("%-14s %-7s", names[t], cpu_level_name((enum cpu_level)l));
            for (int i = 0; i < LEN(counts); i++) {
                struct attn_run r = {.fn = table[l].attn, .scratch = scratch_dirty()};
                r.a = (struct attn){.type = (enum kv_type)t,
                                    .head_dim = DIM,
                                    .head_dim_v = DIM,
                                    .n_q = counts[i],
                                    .q = qs,
                                    .out = outs,
                                    .lo = lo,
                                    .hi = hi,
                                    .scale = 0.1f,
                                    .pages = pages,
                                    .page_slots = PAGE_SLOTS,
                                    .v_offset = k_bytes};
                double s = best_time(call_attn, &r), bytes = (double)(SLOTS / PAGE_SLOTS) * (double)(k_bytes + v_bytes);
                printf("  %4d: %6.1f GB/s %7.1f GMAC/s", counts[i], 1e-9 * bytes / s,
                       1e-9 * 2 * DIM * SLOTS * counts[i] / s);
            }
            printf("\n");
        }
    }
}

/* ---- the small ones: nanoseconds per element of a row of 4096 ---- */

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
    r->k->quant[ACT_Q32](r->x, K, r->row, r->scratch);
}
static void call_q256(void *p)
{
    struct small_run *r = p;
    r->k->quant[ACT_Q256](r->x, K, r->row, r->scratch);
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
    for (int h = 0; h < K / DIM; h++)
        r->k->rope(r->z + h * DIM, (const float(*)[2])r->y, DIM / 2, false, r->scratch);
}

static void bench_small(void)
{
    static const struct {
        const char *name;
        void (*call)(void *);
    } list[] = {
        {"rms_norm", call_rms_norm}, {"add", call_add},       {"silu", call_silu},       {"gelu", call_gelu},
        {"rope", call_rope},         {"quant Q32", call_q32}, {"quant Q256", call_q256}, {"softmax_exp", call_softmax},
        {"argmax", call_argmax},     {"topk 40", call_topk},
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
            printf("%-14s %-7s  %.3f ns/element\n", list[i].name, cpu_level_name((enum cpu_level)l),
                   1e9 * best_time(list[i].call, &r) / K);
        }
    }
}

void bench_all(void)
{
    bench_gemm();
    bench_attn();
    bench_small();
}
