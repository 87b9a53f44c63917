/* SPDX-License-Identifier: MIT
 *
 * gemm_float.c: matrix products with F32, F16 and BF16 weights.
 *
 * The contract gives every output 16 partial sums: two registers here. A micro kernel carries 2
 * rows x 3 columns of them (or 4 x 1) over a stretch of k; the halving tree comes once, at the end of the row.
 *
 *   few columns   2 (4) weight rows run over all of k, converted on the way: bound by memory
 *   many columns  16 rows x 512 k are converted to scratch once and meet every column of a panel
 *                 while they are in cache; the partial sums wait in scratch between stretches
 *
 * The last k % 16 elements touch only their own lanes. Uses no bf16 instructions: they round
 * differently.
 */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/vec.h"

#define FEW_COLS   8     /* up to here the first shape */
#define BLOCK_ROWS 16    /* rows of a converted block */
#define BLOCK_K    512   /* elements of each of them */
#define PANEL_COLS 96    /* columns whose partial sums are in scratch */
#define AHEAD_L2   32768 /* bytes */

struct lanes {
    __m256 lo, hi; /* lanes 0-7, 8-15 */
};

/* 8 stored weights */
typedef __m256 load_fn(const uint8_t *w);

VEC_INLINE __m256 load_f32(const uint8_t *w) { return _mm256_loadu_ps((const float *)w); }
VEC_INLINE __m256 load_f16(const uint8_t *w) { return _mm256_cvtph_ps(vec_load128(w)); }
VEC_INLINE __m256 load_bf16(const uint8_t *w)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(vec_load128(w)), 16));
}

/* a[r * n_cols + c] += w[r] * x[c] over k elements, a multiple of 16. */
VEC_INLINE void micro(load_fn *load, size_t size, int n_rows, int n_cols, const uint8_t *const *w,
                      const float *const *x, int k, size_t ahead, struct lanes *a)
{
    for (size_t i = 0; i < (size_t)k; i += 16) {
        __m256 v[4];
        for (int r = 0; r < n_rows; r++) {
            v[r] = load(w[r] + i * size);
            if (ahead) vec_prefetch_l2(w[r], i * size + ahead);
        }
        for (int c = 0; c < n_cols; c++)
            for (int r = 0; r < n_rows; r++)
                a[r * n_cols + c].lo = _mm256_fmadd_ps(v[r], _mm256_loadu_ps(x[c] + i), a[r * n_cols + c].lo);
        for (int r = 0; r < n_rows; r++) v[r] = load(w[r] + (i + 8) * size);
        for (int c = 0; c < n_cols; c++)
            for (int r = 0; r < n_rows; r++)
                a[r * n_cols + c].hi = _mm256_fmadd_ps(v[r], _mm256_loadu_ps(x[c] + i + 8), a[r * n_cols + c].hi);
    }
}

/* The last n < 16 elements: lanes from n on keep their bits, which adding zero would not promise. */
VEC_INLINE void last_lanes(load_fn *load, size_t size, const uint8_t *w, const float *x, int n, struct lanes *a)
{
    uint8_t wt[64] = {0};
    float xt[16] = {0};
    int32_t mask[16];
    memcpy(wt, w, (size_t)n * size);
    memcpy(xt, x, (size_t)n * sizeof *x);
    for (int i = 0; i < 16; i++) mask[i] = i < n ? -1 : 0;
    __m256 lo = _mm256_fmadd_ps(load(wt), _mm256_loadu_ps(xt), a->lo);
    __m256 hi = _mm256_fmadd_ps(load(wt + 8 * size), _mm256_loadu_ps(xt + 8), a->hi);
    a->lo = _mm256_blendv_ps(a->lo, lo, _mm256_castsi256_ps(vec_load(mask)));
    a->hi = _mm256_blendv_ps(a->hi, hi, _mm256_castsi256_ps(vec_load(mask + 8)));
}

/* ---- few columns ---- */

/* Up to 2 rows x 3 columns or 4 x 1, from row r0 and column c0 on, over all of k. */
VEC_INLINE void few(load_fn *load, size_t size, int n_rows, int n_cols, const struct gemm *g, int r0, int c0)
{
    struct lanes a[6];
    const uint8_t *w[4];
    const float *x[3];
    int k = g->k & ~15, rest = g->k & 15;
    for (int i = 0; i < n_rows * n_cols; i++) a[i].lo = a[i].hi = _mm256_setzero_ps();
    for (int r = 0; r < n_rows; r++) w[r] = g->w + (size_t)(r0 + r) * g->ld_w;
    for (int c = 0; c < n_cols; c++) x[c] = (const float *)gemm_x(g, c0 + c);
    micro(load, size, n_rows, n_cols, w, x, k, AHEAD_L2, a);
    for (int r = 0; r < n_rows; r++)
        for (int c = 0; c < n_cols; c++) {
            struct lanes *s = &a[r * n_cols + c];
            if (rest) last_lanes(load, size, w[r] + (size_t)k * size, x[c] + k, rest, s);
            g->y[(size_t)(c0 + c) * g->ld_y + (size_t)(r0 + r)] = vec_tree16(s->lo, s->hi);
        }
}

VEC_INLINE void gemm_few(load_fn *load, size_t size, const struct gemm *g)
{
    int r = 0, c;
    /* More rows side by side than registers need: memory delivers more from several pages at once. */
    for (; g->n_cols == 1 && r + 4 <= g->n_rows; r += 4) few(load, size, 4, 1, g, r, 0);
    for (; r + 2 <= g->n_rows; r += 2) {
        for (c = 0; c + 3 <= g->n_cols; c += 3) few(load, size, 2, 3, g, r, c);
        if (g->n_cols - c == 2) few(load, size, 2, 2, g, r, c);
        if (g->n_cols - c == 1) few(load, size, 2, 1, g, r, c);
    }
    if (r < g->n_rows)
        for (c = 0; c < g->n_cols; c++) few(load, size, 1, 1, g, r, c);
}

/* ---- many columns ---- */

struct blocked {
    float w[BLOCK_ROWS][BLOCK_K];
    struct lanes a[PANEL_COLS][BLOCK_ROWS];
};
_Static_assert(sizeof(struct blocked) <= KERNEL_SCRATCH_BYTES,
               "a block of weights and a panel of sums fit the scratch memory");

/* Two rows of the block with n_cols columns over n elements. */
VEC_INLINE void blocked_pair(struct blocked *b, int n_cols, int r, int c0, const float *const *x, int n)
{
    struct lanes a[6];
    const uint8_t *w[2] = {(const uint8_t *)b->w[r], (const uint8_t *)b->w[r + 1]};
    for (int i = 0; i < n_cols; i++) {
        a[i] = b->a[c0 + i][r];
        a[n_cols + i] = b->a[c0 + i][r + 1];
    }
    micro(load_f32, 4, 2, n_cols, w, x, n, 0, a);
    for (int i = 0; i < n_cols; i++) {
        b->a[c0 + i][r] = a[i];
        b->a[c0 + i][r + 1] = a[n_cols + i];
    }
}

VEC_INLINE void blocked_columns(struct blocked *b, int n_cols, const struct gemm *g, int c0, int c, int k0, int n,
                                int n_rows)
{
    const float *x[3];
    for (int i = 0; i < n_cols; i++) x[i] = (const float *)gemm_x(g, c0 + c + i) + k0;
    for (int r = 0; r < n_rows; r += 2) /* a row too many at most: it exists in the block */
        blocked_pair(b, n_cols, r, c, x, n);
}

/* n_rows <= BLOCK_ROWS rows from r0 on, n_cols <= PANEL_COLS columns from c0 on. */
VEC_INLINE void blocked_panel(load_fn *load, size_t size, const struct gemm *g, int r0, int n_rows, int c0, int n_cols,
                              struct blocked *b)
{
    int k = g->k & ~15, rest = g->k & 15;
    memset(b->a, 0, (size_t)n_cols * sizeof b->a[0]);
    if (n_rows % 2) memset(b->w[n_rows], 0, sizeof b->w[0]);
    for (int k0 = 0; k0 < k; k0 += BLOCK_K) {
        int n = k - k0 < BLOCK_K ? k - k0 : BLOCK_K, c = 0;
        for (int r = 0; r < n_rows; r++) {
            const uint8_t *w = g->w + (size_t)(r0 + r) * g->ld_w + (size_t)k0 * size;
            for (size_t i = 0; i < (size_t)n; i += 8) _mm256_storeu_ps(b->w[r] + i, load(w + i * size));
        }
        for (; c + 3 <= n_cols; c += 3) blocked_columns(b, 3, g, c0, c, k0, n, n_rows);
        for (; c < n_cols; c++) blocked_columns(b, 1, g, c0, c, k0, n, n_rows);
    }
    for (int c = 0; c < n_cols; c++)
        for (int r = 0; r < n_rows; r++) {
            struct lanes *s = &b->a[c][r];
            const uint8_t *w = g->w + (size_t)(r0 + r) * g->ld_w + (size_t)k * size;
            if (rest) last_lanes(load, size, w, (const float *)gemm_x(g, c0 + c) + k, rest, s);
            g->y[(size_t)(c0 + c) * g->ld_y + (size_t)(r0 + r)] = vec_tree16(s->lo, s->hi);
        }
}

VEC_INLINE void gemm_float(load_fn *load, size_t size, const struct gemm *g, void *scratch)
{
    if (g->n_cols <= FEW_COLS) {
        gemm_few(load, size, g);
        return;
    }
    for (int c = 0; c < g->n_cols; c += PANEL_COLS)
        for (int r = 0; r < g->n_rows; r += BLOCK_ROWS)
            blocked_panel(load, size, g, r, g->n_rows - r < BLOCK_ROWS ? g->n_rows - r : BLOCK_ROWS, c,
                          g->n_cols - c < PANEL_COLS ? g->n_cols - c : PANEL_COLS, scratch);
}

#define GEMM(ID, name, id, block, bytes, ...)                                                                          \
    static void gemm_##name(const struct gemm *g, void *scratch) { gemm_float(load_##name, bytes, g, scratch); }
#define ENTRY(ID, name, ...) k->gemm[DT_##ID] = gemm_##name;

DTYPES_FLOAT(GEMM)

void avx2_init_gemm_float(struct kernels *k) { DTYPES_FLOAT(ENTRY) }
