/* SPDX-License-Identifier: MIT
 *
 * gemm_b32_one.c: matrix products of the types that have a float scale per 32 elements with one column.
 *
 * The loop of gemm_k256_one.c with eight blocks of a row at a time, so that their lane sums share one transposed
 * reduction. A last group of fewer than 8 is copied to a padded buffer first: nothing beyond the row is read.
 */
#include "kernel/avx2/stream.h"
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

/* t of 8 blocks with one column. */
VEC_INLINE __m256 rows_dot(struct kind32 k, const struct blocks32 *b, const int8_t *x, const int32_t *sum)
{
    __m256i v[8];
    for (int j = 0; j < 8; j++) v[j] = multiply(k, b->q[j], vec_load(x + 32 * j));
    if (k.run < 8)
        for (int j = 0; j < 8; j++) v[j] = widen(v[j]);
    if (k.mode == HALVED) {
        __m256i a = vec_sum4_lanes(v), c = vec_sum4_lanes(v + 4); /* first halves in the low lanes */
        __m256 s0 = _mm256_cvtepi32_ps(_mm256_permute2x128_si256(a, c, 0x20));
        __m256 s1 = _mm256_cvtepi32_ps(_mm256_permute2x128_si256(a, c, 0x31));
        return _mm256_fmadd_ps(b->dw1, s1, _mm256_mul_ps(b->dw, s0));
    }
    __m256i s = k.run < 8 ? vec_sum8(v) : widen(vec_sum8_pairs16(v));
    __m256i sums = vec_load(sum);
    if (k.mode == OFFSET) s = _mm256_sub_epi32(s, _mm256_slli_epi32(sums, k.shift));
    if (k.mode == BIASED) s = _mm256_add_epi32(s, _mm256_slli_epi32(sums, k.shift));
    __m256 t = _mm256_mul_ps(b->dw, _mm256_cvtepi32_ps(s));
    return k.mode == MINIMUM || k.mode == BIASED ? _mm256_fmadd_ps(b->m, _mm256_cvtepi32_ps(sums), t) : t;
}

/* n blocks from the i0-th on of n_rows rows with the column x, t of each row SEGMENT after that of the row before.
 * tail: the last x->q, padded with zeros, for a group of fewer than 8 blocks. The sums of blocks that do not exist are
 * loaded too: the array is padded. */
VEC_INLINE void rows_streams(struct kind32 k, unpack32_fn *unpack, const struct gemm *g, int r0, int n_rows,
                             const struct act_q32 *x, const int8_t *tail, int i0, int n, float *t)
{
    const size_t group_bytes = bytes_of(k, 8);
    for (int i = 0; i < n; i += 8) {
        const uint8_t *w = g->w + (size_t)r0 * g->ld_w + bytes_of(k, i0 + i);
        const int n_group = n - i < 8 ? n - i : 8;
        const int8_t *q = n_group < 8 ? tail : x->q + 32 * (size_t)(i0 + i);
        for (int r = 0; r < n_rows; r++, w += g->ld_w) {
            uint8_t padded[MAX_BYTES];
            const uint8_t *from = w;
            if (n_group < 8) {
                memset(padded, 0, sizeof padded);
                from = memcpy(padded, w, bytes_of(k, n_group));
            } else {
                stream_prefetch(w, group_bytes);
            }
            struct blocks32 b;
            unpack(from, &b);
            if (k.has_side) {
                const struct side side = side_from(g->side, g->k, r0 + r);
                u32_side(&side, i0 + i, n_group, &b);
            }
            _mm256_storeu_ps(t + r * SEGMENT + i, rows_dot(k, &b, q, x->sum + i0 + i));
        }
    }
}

VEC_INLINE void gemm_rows(struct kind32 k, unpack32_fn *unpack, const struct gemm *g, float *t)
{
    const int n_blocks = g->k / 32, whole = g->k / 256 * 256;
    const struct act_q32 x = act_q32_at(gemm_x(g, 0), g->k);
    int8_t tail[256] = {0};
    memcpy(tail, x.q + whole, (size_t)(g->k - whole));
    for (int r0 = 0; r0 < g->n_rows; r0 += 8) {
        int n_rows = g->n_rows - r0 < 8 ? g->n_rows - r0 : 8;
        __m256 acc = _mm256_setzero_ps();
        for (int i0 = 0; i0 < n_blocks; i0 += SEGMENT) {
            int n = n_blocks - i0 < SEGMENT ? n_blocks - i0 : SEGMENT;
            for (int r = 0; r < n_rows; r += STREAMS)
                rows_streams(k, unpack, g, r0 + r, n_rows - r < STREAMS ? n_rows - r : STREAMS, &x, tail, i0, n,
                             t + r * SEGMENT);
            acc = vec_chain8(t, SEGMENT, x.d + i0, n, acc);
        }
        vec_store_n(g->y + r0, acc, n_rows);
    }
}

/* ---- one function per type ---- */

#define ROWS(ID, name, ...)                                                                                            \
    static void rows_##name(const struct gemm *g, void *scratch)                                                       \
    {                                                                                                                  \
        gemm_rows(kind_##name, unpack32_##name, g, scratch);                                                           \
    }
#define ENTRY(ID, name, ...) [DT_##ID] = rows_##name,

DTYPES_Q32(ROWS)

gemm_fn *const avx2_rows32[DT_N] = {DTYPES_Q32(ENTRY)};
