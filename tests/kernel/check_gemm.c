/* SPDX-License-Identifier: MIT
 *
 * check_gemm.c: matrix products and activation formats of every level against the reference.
 *
 * Sizes are odd around the tile sizes that kernels use (rows 8, 16, 32, 64; columns 4, 6, 16, 32; blocks in
 * groups), and rows are as long as in real models. Weights end at a page that faults and start at any
 * address, rows have gaps of garbage, padding of the activations is NaN, and the whole output array is
 * compared, gaps included.
 */
#include "harness.h"
#include "kernel/avx512/gemm_fused.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const int row_sizes[] = {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 100};
static const int col_sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 512};
static const int float_ks[] = {1, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 288, 1000, 4352};
static const int q32_blocks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 17, 33, 34, 136};
static const int q256_blocks[] = {1, 2, 3, 4, 5, 6, 7, 8, 16, 17};
/* The inner sizes of feed-forward networks; 13696 is no whole number of 256s. */
static const int long_ks[] = {6912, 11008, 13696, 17408, MAX_K};

#define X_MATCHED (X_N + 1) /* integers, all as large, whose products with one weight row have the same sign */
#define MAX_COLS  513
/* Multiplications in one case, where the smallest k is not more: the reference is slow. With a sanitizer, which looks
 * for accesses, not for sums, rows are shorter. */
#ifdef FEW_CASES
#define MAX_WORK (1 << 20)
#else
#define MAX_WORK (4 << 20)
#endif

struct gemm_case {
    enum dtype type;
    int n_rows, n_cols, k;
    enum wpat wpat;
    int xpat; /* an xpat, X_MATCHED, or X_N: another one in each column */
};

/* Any that the type can have, up to 4352. */
static int any_k(enum dtype t)
{
    switch (kernel_act_of(t)) {
    case ACT_F32: return rnd_of(float_ks, LEN(float_ks));
    case ACT_Q32: {
        int block = dtype_get(t)->block, k = block * rnd_of(q32_blocks, LEN(q32_blocks));
        return k <= 4352 ? k : 4352 / block * block;
    }
    default: return 256 * rnd_of(q256_blocks, LEN(q256_blocks));
    }
}

static int random_k(const struct gemm_case *c)
{
    int k = any_k(c->type), most = MAX_WORK / (c->n_rows * c->n_cols + 1);
    while (k > most && k > dtype_get(c->type)->block) k = any_k(c->type);
    return k;
}

/* Column i against row i / 2, and every other one against its negative. With one 127 in every block the scale is 1. */
static void matched(const struct gemm_case *c, const struct gemm *g, int i, float size, float *x)
{
    if (c->n_rows == 0) {
        fill_floats(x, c->k, X_SIGNS);
        return;
    }
    const struct side side = side_from(g->side, c->k, i / 2 % c->n_rows);
    dequant_row(c->type, g->w + (size_t)(i / 2 % c->n_rows) * g->ld_w, &side, c->k, x);
    for (int j = 0; j < c->k; j++) x[j] = copysignf(j % 32 == 5 ? 127.0f : size, (x[j] < 0) != (i & 1) ? -1.0f : 1.0f);
}

static void fill_rows(const struct gemm_case *c, const struct gemm *g, int n, uint8_t *x)
{
    float row[MAX_K];
    /* as large as can be, for sums far beyond 16 bits, or less, for sums on either side of where 16 bits end */
    const float size = rnd_below(4) ? (float)(1 + rnd_below(127)) : 127.0f;
    for (int i = 0; i < n; i++) {
        if (c->xpat == X_MATCHED)
            matched(c, g, i, size, row);
        else
            fill_floats(row, c->k, c->xpat == X_N ? (enum xpat)(i % X_N) : (enum xpat)c->xpat);
        table[CPU_REF].quant[kernel_act_of(c->type)](row, 0, c->k, c->k, x + (size_t)i * g->ld_x, NULL);
    }
}

/* Scales and biases beside the rows of an MLX type: of any float type, for groups of any size that divides a row. */
static void fill_side(const struct gemm_case *c, struct gemm *g, struct guarded at[2], enum place place)
{
    static const int types[] = {DT_F32, DT_F16, DT_BF16};
    if (c->type < DT_MLX2 || c->type > DT_MLX8) return;
    g->side.type = (enum dtype)rnd_of(types, LEN(types));
    do g->side.group = 32 << rnd_below(3);
    while (c->k % g->side.group);
    g->side.scale = g->side.bias = g->w; /* so that it counts */
    size_t bytes = side_row_bytes(&g->side, c->k);
    for (int i = 0; i < 2; i++) {
        at[i] = guarded_new(bytes * (size_t)c->n_rows, rnd_below(4) ? 0 : 1, place);
        for (int r = 0; r < c->n_rows; r++)
            fill_weights(g->side.type, at[i].p + (size_t)r * bytes, c->k / g->side.group, c->wpat);
    }
    g->side.scale = at[0].p;
    g->side.bias = at[1].p;
}

/* The product on a level (fused: by avx512_gemm_fused()) next to what the reference gave. */
static void compare(enum dtype type, enum cpu_level l, bool fused, struct gemm g, const struct guarded *want,
                    enum place place)
{
    struct guarded y = guarded_new(want->bytes, 0, place);
    memset(y.p, 0x5a, y.bytes);
    g.y = (float *)y.p;
    if (fused)
        avx512_gemm_fused(type, &g, scratch_dirty());
    else
        table[l].gemm[type](&g, scratch_dirty());
    check_floats(l, fused ? "y (fused)" : "y", (const float *)want->p, (const float *)y.p, want->bytes / 4);
    guarded_free(&y);
}

static void run_case(const struct gemm_case *c)
{
    size_t row_bytes = dtype_row_bytes(c->type, c->k);
    struct gemm g = {.n_rows = c->n_rows, .k = c->k, .n_cols = c->n_cols};
    g.ld_w = row_bytes + (size_t)(rnd() & 1 ? 0 : rnd_below(40));
    g.ld_x = act_row_bytes(kernel_act_of(c->type), c->k) + (size_t)(64 * rnd_below(2));
    g.ld_y = (size_t)(c->n_rows + (rnd() & 1 ? 0 : rnd_below(20)));
    enum place place = rnd_below(4) ? AT_END : AT_START;
    size_t slack = rnd_below(4) ? 0 : 1; /* all blocks have even sizes: this makes odd addresses */
    size_t w_bytes = c->n_rows ? (size_t)(c->n_rows - 1) * g.ld_w + row_bytes : 0;
    /* one in four gathers its columns from a few more rows, some of them twice, some not at all */
    const int n_x = rnd_below(4) ? c->n_cols : c->n_cols + rnd_below(5);
    int32_t cols[MAX_COLS];
    if (n_x > c->n_cols || rnd_below(16) == 0) g.cols = cols;
    for (int i = 0; g.cols && i < c->n_cols; i++) cols[i] = rnd_below(n_x);
    size_t x_bytes = (size_t)n_x * g.ld_x;
    size_t y_floats = (size_t)(c->n_cols - 1) * g.ld_y + (size_t)c->n_rows;
    describe("gemm %s rows %d cols %d k %d weights %d activations %d ld_w +%zu ld_y +%zu %s slack %zu %s",
             dtype_get(c->type)->name, c->n_rows, c->n_cols, c->k, c->wpat, c->xpat, g.ld_w - row_bytes,
             g.ld_y - (size_t)c->n_rows, place == AT_END ? "end" : "start", slack, g.cols ? "gathered" : "");

    struct guarded w = guarded_new(w_bytes, slack, place), x = guarded_new(x_bytes, 0, place);
    struct guarded want = guarded_new(y_floats * 4, 0, place);
    for (int r = 0; r < c->n_rows; r++) fill_weights(c->type, w.p + (size_t)r * g.ld_w, c->k, c->wpat);
    g.w = w.p;
    g.x = x.p;
    struct guarded side[2] = {0};
    fill_side(c, &g, side, place);
    fill_rows(c, &g, n_x, x.p);
    memset(want.p, 0x5a, want.bytes);
    g.y = (float *)want.p;
    table[CPU_REF].gemm[c->type](&g, NULL);
    FOR_LEVELS(l, gemm[c->type])
    {
        compare(c->type, (enum cpu_level)l, false, g, &want, place);
        /* which of two kernels takes 9 to 64 columns depends on the maker of the processor */
        if (l == CPU_AVX512 && avx512_fused_can(c->type, &g)) compare(c->type, CPU_AVX512, true, g, &want, place);
    }
    for (int i = 0; i < 2 && side[i].map; i++) guarded_free(&side[i]);
    guarded_free(&want);
    guarded_free(&x);
    guarded_free(&w);
}

/* Every number of rows with every number of columns. */
static void check_sizes(struct gemm_case c)
{
    for (int r = 0; r < LEN(row_sizes); r++) {
        for (int i = 0; i < LEN(col_sizes); i++) {
            c.n_rows = row_sizes[r];
            c.n_cols = col_sizes[i];
            c.k = random_k(&c);
            c.wpat = (enum wpat)rnd_below(W_N);
            c.xpat = rnd_below(X_MATCHED + 1);
            run_case(&c);
        }
    }
    if (c.type != DT_Q4_K && c.type != DT_Q8_0) return; /* one of each kind: these are slow on the reference */
    /* more columns, and of them more bytes, than a kernel keeps near */
    c = (struct gemm_case){.type = c.type, .n_rows = 70, .n_cols = 513, .k = 4352, .xpat = X_N};
    c.wpat = (enum wpat)rnd_below(W_N);
    run_case(&c);
}

/* Every pair of patterns, through vector and tile kernels. */
static void check_patterns(struct gemm_case c)
{
    for (int p = 0; p < W_N * (X_MATCHED + 1); p++) {
        c.n_rows = rnd_below(3) ? 33 : 1 + rnd_below(70);
        c.n_cols = rnd() & 1 ? 1 + rnd_below(3) : 4 + rnd_below(32);
        c.wpat = (enum wpat)(p % W_N);
        c.xpat = p / W_N;
        c.k = random_k(&c);
        run_case(&c);
    }
}

/* Long rows: what is kept from one block to the next must hold out, and is largest where all signs agree. */
static void check_long(struct gemm_case c)
{
    static const int rows[] = {1, 15, 17, 33}, cols[] = {1, 2, 5, 9, 17, 33};
    for (int i = 0; i < 3 * LEN(long_ks); i++) {
        c.k = long_ks[i / 3];
        if (c.k % dtype_get(c.type)->block) continue;
        if (c.k == MAX_K && i % 3 != 0) continue; /* with one column only: the others take a while */
        c.n_rows = rnd_of(rows, LEN(rows));
        c.n_cols = i % 3 == 0 ? 1 : rnd_of(cols, LEN(cols));
        c.wpat = i % 3 == 2 ? (enum wpat)rnd_below(W_N) : W_FIELDS;
        c.xpat = i % 3 == 2 ? rnd_below(X_N) : X_MATCHED;
        run_case(&c);
    }
}

static void check_type(enum dtype t, int rounds)
{
    const struct gemm_case c = {.type = t};
    for (int round = 0; round < rounds; round++) {
        check_sizes(c);
        check_patterns(c);
        check_long(c);
    }
}

void check_gemm(int rounds)
{
    for (int t = 0; t < DT_N; t++) {
        char name[64];
        if (!table[CPU_REF].gemm[t]) continue;
        snprintf(name, sizeof name, "gemm %s", dtype_get(t)->name);
        if (!wanted(name)) continue;
        int failed = n_failed;
        check_type((enum dtype)t, rounds);
        if (n_failed > failed) printf("     %s: %d failures\n", name, n_failed - failed);
    }
}

/* ---- activation formats ---- */

static void compare_q32(enum cpu_level l, const uint8_t *want, const uint8_t *got, int k)
{
    struct act_q32 a = act_q32_at(want, k), b = act_q32_at(got, k);
    check_bytes(l, "q", a.q, b.q, (size_t)k);
    check_floats(l, "d", a.d, b.d, (size_t)k / 32);
    check_bytes(l, "sum", a.sum, b.sum, (size_t)k / 32 * 4);
}

static void compare_q256(enum cpu_level l, const uint8_t *want, const uint8_t *got, int k)
{
    struct act_q256 a = act_q256_at(want, k), b = act_q256_at(got, k);
    check_bytes(l, "q", a.q, b.q, (size_t)k);
    check_floats(l, "d", a.d, b.d, (size_t)k / 256);
    check_bytes(l, "bsum", a.bsum, b.bsum, (size_t)k / 16 * 2);
    check_bytes(l, "asum", a.asum, b.asum, (size_t)k / 256 * 2);
}

/* The levels do the row in two parts, the later one first: a range of a row is what it is in the whole row. */
static void check_quant_case(enum act a, int k, enum xpat pat)
{
    const int block = a == ACT_F32 ? 1 : a == ACT_Q32 ? 32 : 256, cut = rnd_below(k / block + 1) * block;
    describe("quant %d k %d in parts at %d pattern %d", a, k, cut, pat);
    struct guarded x = guarded_new((size_t)k * 4, 0, AT_END);
    struct guarded want = guarded_new(act_row_bytes(a, k), 0, AT_END);
    fill_floats((float *)x.p, k, pat);
    table[CPU_REF].quant[a]((float *)x.p, 0, k, k, want.p, NULL);
    FOR_LEVELS(l, quant[a])
    {
        struct guarded row = guarded_new(act_row_bytes(a, k), 0, AT_END);
        table[l].quant[a]((float *)x.p + cut, cut, k - cut, k, row.p, scratch_dirty());
        table[l].quant[a]((float *)x.p, 0, cut, k, row.p, scratch_dirty());
        if (a == ACT_F32)
            check_bytes((enum cpu_level)l, "x", want.p, row.p, (size_t)k * 4);
        else if (a == ACT_Q32)
            compare_q32((enum cpu_level)l, want.p, row.p, k);
        else
            compare_q256((enum cpu_level)l, want.p, row.p, k);
        guarded_free(&row);
    }
    guarded_free(&want);
    guarded_free(&x);
}

void check_quant(int rounds)
{
    if (!wanted("quant")) return;
    for (int round = 0; round < 4 * rounds; round++) {
        for (int p = 0; p < X_N; p++) {
            for (int n = 1; n <= 9; n++) {
                check_quant_case(ACT_F32, 7 * n, (enum xpat)p);
                check_quant_case(ACT_Q32, 32 * n, (enum xpat)p);
                check_quant_case(ACT_Q256, 256 * n, (enum xpat)p);
            }
            int k = rnd_of(long_ks, LEN(long_ks));
            check_quant_case(ACT_Q32, k, (enum xpat)p);
            check_quant_case(ACT_Q256, k / 256 * 256, (enum xpat)p);
        }
    }
}
