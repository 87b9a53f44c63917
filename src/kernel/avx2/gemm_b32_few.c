/* SPDX-License-Identifier: MIT
 *
 * gemm_b32_few.c: matrix products of the types that have a float scale per 32 elements with 1..3 columns.
 *
 * The loop of gemm_k256_few.c with eight blocks of a row at a time, so that their lane sums share one transposed
 * reduction. A last group of fewer than 8 is copied to a padded buffer first: nothing beyond the row is read.
 */
#include "kernel/avx2/few.h"
#include "kernel/avx2/kind32.h"

/* i16 sums of two neighbouring products. |code| <= 128, so abs() as unsigned bytes is right for -128 too. */
VEC_INLINE __m256i multiply(struct kind32 k, __m256i w, __m256i x)
{
    if (k.mode == SIGNED || k.mode == HALVED || k.mode == BIASED)
        return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_maddubs_epi16(w, x);
}

/* i16 pairs to dwords. */
VEC_INLINE __m256i widen(__m256i v) { return _mm256_madd_epi16(v, _mm256_set1_epi16(1)); }

/* t of 8 blocks from the i0-th on, of which n exist, with one column. */
VEC_INLINE __m256 rows_dot(struct kind32 k, int n, const struct blocks32 *b, const struct act_q32 *x, int i0)
{
    __m256i v[8];
    for (int j = 0; j < 8; j++)
        v[j] = j < n ? multiply(k, b->q[j], vec_load(x->q + 32 * (size_t)(i0 + j))) : _mm256_setzero_si256();
    if (k.run < 8)
        for (int j = 0; j < 8; j++) v[j] = widen(v[j]);
    if (k.mode == HALVED) {
        __m256i a = vec_sum4_lanes(v), c = vec_sum4_lanes(v + 4); /* first halves in the low lanes */
        __m256 s0 = _mm256_cvtepi32_ps(_mm256_permute2x128_si256(a, c, 0x20));
        __m256 s1 = _mm256_cvtepi32_ps(_mm256_permute2x128_si256(a, c, 0x31));
        return _mm256_fmadd_ps(b->dw1, s1, _mm256_mul_ps(b->dw, s0));
    }
    __m256i s = k.run < 8 ? vec_sum8(v) : widen(vec_sum8_pairs16(v));
    __m256i sums = vec_load(x->sum + i0); /* of blocks that do not exist too: the array is padded */
    if (k.mode == OFFSET) s = _mm256_sub_epi32(s, _mm256_slli_epi32(sums, k.shift));
    if (k.mode == BIASED) s = _mm256_add_epi32(s, _mm256_slli_epi32(sums, k.shift));
    __m256 t = _mm256_mul_ps(b->dw, _mm256_cvtepi32_ps(s));
    return k.mode == MINIMUM || k.mode == BIASED ? _mm256_fmadd_ps(b->m, _mm256_cvtepi32_ps(sums), t) : t;
}

/* The same for all columns; t of column c to t[c * 8 * SEGMENT]. side: the row's. */
VEC_INLINE void rows_group(struct kind32 k, unpack32_fn *unpack, int n_cols, int n, const uint8_t *w,
                           const struct side *side, const struct act_q32 *x, int i0, float *t)
{
    struct blocks32 b;
    unpack(w, &b);
    if (k.has_side) u32_side(side, i0, n, &b);
    for (int c = 0; c < n_cols; c++) _mm256_storeu_ps(t + (size_t)c * 8 * SEGMENT, rows_dot(k, n, &b, x + c, i0));
}

/* n blocks from the i0-th on of n_rows rows, t of each row SEGMENT after that of the row before. */
VEC_INLINE void rows_streams(struct kind32 k, unpack32_fn *unpack, int n_cols, const struct gemm *g, int r0, int n_rows,
                             const struct act_q32 *x, int i0, int n, float *t)
{
    for (int i = 0; i < n; i += 8) {
        const uint8_t *w = g->w + (size_t)r0 * g->ld_w + bytes_of(k, i0 + i);
        for (int r = 0; r < n_rows; r++, w += g->ld_w) {
            float *p = t + r * SEGMENT + i;
            const struct side side = k.has_side ? side_from(g->side, g->k, r0 + r) : g->side;
            if (n - i < 8) {
                uint8_t padded[MAX_BYTES] = {0};
                memcpy(padded, w, bytes_of(k, n - i));
                rows_group(k, unpack, n_cols, n - i, padded, &side, x, i0 + i, p);
                continue;
            }
            few_prefetch(w, bytes_of(k, 8));
            rows_group(k, unpack, n_cols, 8, w, &side, x, i0 + i, p);
        }
    }
}

VEC_INLINE void gemm_rows(struct kind32 k, unpack32_fn *unpack, int n_cols, const struct gemm *g, float *t)
{
    int n_blocks = g->k / 32;
    struct act_q32 x[MAX_COLUMNS];
    for (int c = 0; c < n_cols; c++) x[c] = act_q32_at(gemm_x(g, c), g->k);
    for (int r0 = 0; r0 < g->n_rows; r0 += 8) {
        int n_rows = g->n_rows - r0 < 8 ? g->n_rows - r0 : 8;
        __m256 acc[MAX_COLUMNS];
        for (int c = 0; c < n_cols; c++) acc[c] = _mm256_setzero_ps();
        for (int i0 = 0; i0 < n_blocks; i0 += SEGMENT) {
            int n = n_blocks - i0 < SEGMENT ? n_blocks - i0 : SEGMENT;
            for (int r = 0; r < n_rows; r += STREAMS)
                rows_streams(k, unpack, n_cols, g, r0 + r, n_rows - r < STREAMS ? n_rows - r : STREAMS, x, i0, n,
                             t + r * SEGMENT);
            for (int c = 0; c < n_cols; c++)
                acc[c] = vec_chain8(t + (size_t)c * 8 * SEGMENT, SEGMENT, x[c].d + i0, n, acc[c]);
        }
        for (int c = 0; c < n_cols; c++) vec_store_n(g->y + (size_t)c * g->ld_y + r0, acc[c], n_rows);
    }
}

/* ---- one function per type and number of columns ---- */

#define ROWS(n, name)                                                                                                  \
    static void rows##n##_##name(const struct gemm *g, void *scratch)                                                  \
    {                                                                                                                  \
        gemm_rows(kind_##name, unpack32_##name, n, g, scratch);                                                        \
    }
#define ROWS_EACH(ID, name, ...)                                                                                       \
    ROWS(1, name)                                                                                                      \
    ROWS(2, name)                                                                                                      \
    ROWS(3, name)
#define ENTRY(ID, name, ...) [DT_##ID] = {rows1_##name, rows2_##name, rows3_##name},

DTYPES_Q32(ROWS_EACH)

gemm_fn *const avx2_rows32[DT_N][MAX_COLUMNS] = {DTYPES_Q32(ENTRY)};
