/* SPDX-License-Identifier: MIT
 *
 * gemm_float.c: products with F32, F16 and BF16 weights, AVX-512.
 *
 * The contract's 16 lanes are one register per output. Four rows times up to six columns are in
 * flight: 24 independent chains, more than the latency of the two FMA units needs. With few columns
 * the weights are widened as they stream by. With many, 32 rows x 256 are widened once to scratch and
 * used for all columns of a panel, whose partial registers wait in scratch between segments of k.
 */
#include <assert.h>
#include <string.h>

#include "kernel/avx512/avx512.h"
#include "kernel/avx512/math.h"
#include "kernel/avx512/tile.h"

#define QUAD_ROWS  4
#define SEGMENT    256 /* k at once in the tile: 32 KiB of widened weights, a first-level cache's worth */
#define PANEL_COLS 96  /* columns with partial sums in scratch: 192 KiB */

struct floats {
    _Alignas(64) float acc[PANEL_COLS][TILE_ROWS][16];
    _Alignas(64) float w[TILE_ROWS][SEGMENT];
};
static_assert(sizeof(struct floats) <= KERNEL_SCRATCH_BYTES, "scratch");

ALWAYS_INLINE size_t element_bytes(enum dtype t) { return t == DT_F32 ? 4 : 2; }

/* The weights of the mask, of 16, as f32; no other is read. BF16 is the upper half of an f32. */
ALWAYS_INLINE __m512 load_weights(enum dtype t, const uint8_t *w, __mmask16 m)
{
    if (t == DT_F32) return _mm512_maskz_loadu_ps(m, w);
    __m256i h = m == 0xffff ? _mm256_loadu_si256((const void *)w) : _mm256_maskz_loadu_epi16(m, w);
    if (t == DT_F16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* acc[c][r0 + r] += four rows times nc columns over n elements. At the end of a row the lanes that have no
 * element are left alone: adding a zero product would turn a sum that underflowed to -0 into +0.
 * prefetch: the weights come from memory; a little ahead in the same rows to L1, and `ahead` bytes, the
 * next four rows, to L2. */
ALWAYS_INLINE void quad(enum dtype t, int nc, const uint8_t *const w[QUAD_ROWS], const float *const x[], int n,
                        bool prefetch, size_t ahead, float (*acc)[TILE_ROWS][16], int r0)
{
    __m512 a[TILE_COLS][QUAD_ROWS];
    int i = 0;
#pragma GCC unroll 6
    for (int c = 0; c < nc; c++)
#pragma GCC unroll 4
        for (int r = 0; r < QUAD_ROWS; r++) a[c][r] = _mm512_load_ps(acc[c][r0 + r]);
    for (; i + 16 <= n; i += 16) {
        __m512 v[QUAD_ROWS];
#pragma GCC unroll 4
        for (int r = 0; r < QUAD_ROWS; r++) {
            const uint8_t *p = w[r] + (size_t)i * element_bytes(t);
            v[r] = load_weights(t, p, 0xffff);
            if (prefetch) {
                _mm_prefetch((const char *)p + 1024, _MM_HINT_T0);
                _mm_prefetch((const char *)p + ahead, _MM_HINT_T1);
            }
        }
#pragma GCC unroll 6
        for (int c = 0; c < nc; c++)
#pragma GCC unroll 4
            for (int r = 0; r < QUAD_ROWS; r++) a[c][r] = _mm512_fmadd_ps(v[r], _mm512_loadu_ps(x[c] + i), a[c][r]);
    }
    if (i < n) {
        __mmask16 m = first_lanes(n - i);
#pragma GCC unroll 6
        for (int c = 0; c < nc; c++)
#pragma GCC unroll 4
            for (int r = 0; r < QUAD_ROWS; r++) {
                __m512 v = load_weights(t, w[r] + (size_t)i * element_bytes(t), m);
                a[c][r] = _mm512_mask3_fmadd_ps(v, _mm512_maskz_loadu_ps(m, x[c] + i), a[c][r], m);
            }
    }
#pragma GCC unroll 6
    for (int c = 0; c < nc; c++)
#pragma GCC unroll 4
        for (int r = 0; r < QUAD_ROWS; r++) _mm512_store_ps(acc[c][r0 + r], a[c][r]);
}

/* The trees of n_rows <= 32 rows and n columns into y. */
static void floats_store(const struct gemm *g, int r0, int n_rows, int c0, int n, const struct floats *f)
{
    for (int c = 0; c < n; c++)
        for (int r = 0; r < n_rows; r += 16) {
            __m512 v[16];
            for (int i = 0; i < 16; i++) v[i] = _mm512_load_ps(f->acc[c][r + i]);
            float *y = g->y + (size_t)(c0 + c) * g->ld_y + r0 + r;
            _mm512_mask_storeu_ps(y, first_lanes(n_rows - r < 16 ? n_rows - r : 16), halving_sum_16(v));
        }
}

static const float *column(const struct gemm *g, int c) { return (const float *)gemm_x(g, c); }

/* ---- few columns ---- */

ALWAYS_INLINE void few_columns(enum dtype t, int nc, const struct gemm *g, struct floats *f)
{
    const float *x[TILE_COLS];
    for (int c = 0; c < nc; c++) x[c] = column(g, c);
    for (int r0 = 0; r0 < g->n_rows; r0 += 16) {
        const uint8_t *row[TILE_ROWS];
        int n_rows = g->n_rows - r0 < 16 ? g->n_rows - r0 : 16;
        tile_rows(g, r0, row);
        for (int c = 0; c < nc; c++) memset(f->acc[c], 0, 16 * sizeof f->acc[c][0]);
        for (int r = 0; r < n_rows; r += QUAD_ROWS)
            quad(t, nc, row + r, x, g->k, true, QUAD_ROWS * g->ld_w, &f->acc[0], r);
        floats_store(g, r0, n_rows, 0, nc, f);
    }
}

/* ---- many columns ---- */

/* n elements from k0 on of 32 rows to f->w, widened. What lies beyond n in a last partial register is zero
 * and not used. */
ALWAYS_INLINE void widen(enum dtype t, const uint8_t *const row[TILE_ROWS], int k0, int n, struct ahead ahead,
                         struct floats *f)
{
    for (int r = 0; r < TILE_ROWS; r++) {
        ahead_step(&ahead);
        for (int i = 0; i < n; i += 16) {
            __mmask16 m = first_lanes(n - i < 16 ? n - i : 16);
            _mm512_store_ps(f->w[r] + i, load_weights(t, row[r] + (size_t)(k0 + i) * element_bytes(t), m));
        }
    }
}

typedef void segment_fn(const float *const x[], int n, struct floats *f, int c);

/* The segment in f->w times nc columns, number c in the panel on. */
#define SEGMENT_FN(nc)                                                                                                 \
    static void segment_##nc(const float *const x[], int n, struct floats *f, int c)                                   \
    {                                                                                                                  \
        for (int r = 0; r < TILE_ROWS; r += QUAD_ROWS) {                                                               \
            const uint8_t *w[QUAD_ROWS];                                                                               \
            for (int i = 0; i < QUAD_ROWS; i++) w[i] = (const uint8_t *)f->w[r + i];                                   \
            quad(DT_F32, nc, w, x, n, false, 0, &f->acc[c], r);                                                        \
        }                                                                                                              \
    }
SEGMENT_FN(1)
SEGMENT_FN(2)
SEGMENT_FN(3)
SEGMENT_FN(4)
SEGMENT_FN(5)
SEGMENT_FN(6)

static segment_fn *const segment_table[TILE_COLS] = {segment_1, segment_2, segment_3, segment_4, segment_5, segment_6};

ALWAYS_INLINE void many_columns(enum dtype t, const struct gemm *g, struct floats *f)
{
    for (int r0 = 0; r0 < g->n_rows; r0 += TILE_ROWS) {
        const uint8_t *row[TILE_ROWS];
        int n_rows = g->n_rows - r0 < TILE_ROWS ? g->n_rows - r0 : TILE_ROWS;
        tile_rows(g, r0, row);
        for (int c0 = 0; c0 < g->n_cols; c0 += PANEL_COLS) {
            int n = g->n_cols - c0 < PANEL_COLS ? g->n_cols - c0 : PANEL_COLS;
            memset(f->acc, 0, sizeof f->acc[0] * (size_t)n);
            for (int k0 = 0; k0 < g->k; k0 += SEGMENT) {
                int nk = g->k - k0 < SEGMENT ? g->k - k0 : SEGMENT, nc;
                widen(t, row, k0, nk,
                      ahead_of(g, r0, row, k0 / SEGMENT, (g->k + SEGMENT - 1) / SEGMENT,
                               (int)(SEGMENT * element_bytes(t))),
                      f);
                for (int c = 0; c < n; c += nc) {
                    const float *x[TILE_COLS];
                    nc = tile_group(n - c);
                    for (int j = 0; j < nc; j++) x[j] = column(g, c0 + c + j) + k0;
                    segment_table[nc - 1](x, nk, f, c);
                }
            }
            floats_store(g, r0, n_rows, c0, n, f);
        }
    }
}

/* ---- one function a type ---- */

#define FEW(ID, name, nc)                                                                                              \
    static void gemm_##name##_##nc(const struct gemm *g, void *scratch) { few_columns(DT_##ID, nc, g, scratch); }
#define GEMM(ID, name, ...)                                                                                            \
    FEW(ID, name, 1)                                                                                                   \
    FEW(ID, name, 2)                                                                                                   \
    FEW(ID, name, 3)                                                                                                   \
    FEW(ID, name, 4)                                                                                                   \
    FEW(ID, name, 5)                                                                                                   \
    FEW(ID, name, 6)                                                                                                   \
    static void gemm_##name(const struct gemm *g, void *scratch)                                                       \
    {                                                                                                                  \
        static gemm_fn *const few[TILE_COLS] = {gemm_##name##_1, gemm_##name##_2, gemm_##name##_3,                     \
                                                gemm_##name##_4, gemm_##name##_5, gemm_##name##_6};                    \
        if (g->n_cols <= TILE_COLS)                                                                                    \
            few[g->n_cols - 1](g, scratch);                                                                            \
        else                                                                                                           \
            many_columns(DT_##ID, g, scratch);                                                                         \
    }
#define ENTRY(ID, name, ...) k->gemm[DT_##ID] = gemm_##name;

DTYPES_FLOAT(GEMM)

void avx512_init_gemm_float(struct kernels *k) { DTYPES_FLOAT(ENTRY) }
