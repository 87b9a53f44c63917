/* SPDX-License-Identifier: MIT
 *
 * gemm_k256_one.c: matrix products of the 256-element block types with one column.
 *
 * Weights are streamed once, from four rows in turn, four blocks of each so that their sums across lanes share one
 * reduction. The t of 8 rows (gemm_k256.c) go to scratch, and the ordered chain then runs with lanes = rows. Bound by
 * memory, so it prefetches at two depths, across row ends; AVX-VNNI would not make it faster, and its level takes these
 * functions as they are.
 */
#include "kernel/avx2/stream.h"
#include "kernel/avx2/kind256.h"

/* i16 sums of two neighbouring products: unsigned codes times signed activations, or, for signed codes, |w| times x
 * with the sign of w. */
VEC_INLINE __m256i multiply(struct kind256 k, __m256i w, __m256i x)
{
    if (k.mode == SIGNED) return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_maddubs_epi16(w, x);
}

/* f16 in the low halves of four dwords, as floats. */
VEC_INLINE __m128 low_halves(__m128i v)
{
    v = _mm_and_si128(v, _mm_set1_epi32(0xffff));
    return _mm_cvtph_ps(_mm_packus_epi32(v, v));
}

/* Dword lanes whose sum is S of one block with one column, *m lanes that sum to M. */
VEC_INLINE __m256i rows_dot(struct kind256 k, const struct block256 *b, const int8_t *x, const int16_t *bsum,
                            __m256i *m)
{
    /* Group g's scale is word g; register j needs word 2j in its low lane and 2j + 1 in its high lane. */
    const __m256i words =
        _mm256_setr_epi64x(0x0100010001000100, 0x0100010001000100, 0x0302030203020302, 0x0302030203020302);
    __m256i low = _mm256_permute2x128_si256(b->sc, b->sc, 0x00), high = _mm256_permute2x128_si256(b->sc, b->sc, 0x11);
    __m256i s = _mm256_setzero_si256();
    for (int j = 0; j < 8; j++) {
        __m256i at = _mm256_add_epi8(words, _mm256_set1_epi8((char)(j % 4 * 4)));
        __m256i scale = _mm256_shuffle_epi8(j < 4 ? low : high, at);
        s = _mm256_add_epi32(s, _mm256_madd_epi16(multiply(k, b->q[j], vec_load(x + 32 * j)), scale));
    }
    __m256i sums = vec_load(bsum);
    *m = _mm256_setzero_si256();
    if (k.mode == MINIMUM) *m = _mm256_madd_epi16(b->mn, sums);
    if (k.mode == OFFSET) s = _mm256_sub_epi32(s, _mm256_slli_epi32(_mm256_madd_epi16(b->sc, sums), k.shift));
    return s;
}

/* Stores scales that come back as broadcasts, which cost no shuffle. A compiler that saw through it would take them out
 * of the register one by one instead. */
VEC_INLINE void store_scales(uint32_t scale[8], __m256i sc)
{
    vec_store(scale, sc);
    __asm__("" : "+m"(*(uint32_t(*)[8])scale));
}

/* rows_dot() of a block of IQ1_S as it is looked up. Codes are 8 * grid + delta with one delta for 32 elements, so the
 * sums of the activations are multiplied by it, and the grid has only signs. */
VEC_INLINE __m256i rows_dot_iq1_s(const uint8_t *w, const int8_t *x, const int16_t *bsum, uint32_t *halves)
{
    const __m256i one = _mm256_set1_epi8(1);
    __m128i h8 = vec_load128(w + 34);
    __m128i sc8 = _mm_and_si128(_mm_srli_epi16(h8, 11), _mm_set1_epi16(14)); /* 2s */
    sc8 = _mm_or_si128(sc8, _mm_set1_epi16(1));
    __m256i sc = _mm256_cvtepu16_epi32(sc8);
    sc = _mm256_or_si256(sc, _mm256_slli_epi32(sc, 16)); /* words, two for each 32 elements, as those of bsum */
    uint32_t scale[8];
    store_scales(scale, _mm256_slli_epi16(sc, 3));
    __m256i delta = _mm256_cvtepi16_epi32(_mm_or_si128(_mm_srai_epi16(h8, 15), _mm_set1_epi16(1)));
    delta = _mm256_or_si256(_mm256_and_si256(delta, _mm256_set1_epi32(0xffff)), _mm256_slli_epi32(delta, 16));
    __m256i s = _mm256_madd_epi16(_mm256_sign_epi16(sc, delta), vec_load(bsum));
    for (int j = 0; j < 8; j++) {
        const uint8_t *p = w + 2 + 4 * j;
        uint32_t h = vec_u16(w + 34 + 2 * j);
        __m256i grid = u256_grid8(iq1s_grid, p[0] | (h & 7) << 8, p[1] | (h & 0x38) << 5, p[2] | (h & 0x1c0) << 2,
                                  p[3] | (h >> 1 & 0x700));
        __m256i pairs = _mm256_maddubs_epi16(one, _mm256_sign_epi8(vec_load(x + 32 * j), grid));
        s = _mm256_add_epi32(s, _mm256_madd_epi16(pairs, vec_splat32(scale + j)));
    }
    *halves = vec_u16(w);
    return s;
}

/* t of four blocks from their sums: dw * S (- dmin * M), lanes = blocks. */
VEC_INLINE void rows_terms(struct kind256 k, const uint32_t *halves, __m128i s, __m128i m, float *t)
{
    __m128i h = _mm_setr_epi32((int)halves[0], (int)halves[1], (int)halves[2], (int)halves[3]);
    __m128 dw = low_halves(h);
    if (k.factor != 1) dw = _mm_mul_ps(dw, _mm_set1_ps(k.factor));
    __m128 v = _mm_mul_ps(dw, _mm_cvtepi32_ps(s));
    if (k.mode == MINIMUM) v = _mm_fnmadd_ps(low_halves(_mm_srli_epi32(h, 16)), _mm_cvtepi32_ps(m), v);
    _mm_storeu_ps(t, v);
}

/* t of n <= 4 blocks of one row from the i-th on. */
VEC_INLINE void rows_group(struct kind256 k, unpack256_fn *unpack, int n, const uint8_t *w, const struct act_q256 *x,
                           int i, float *t)
{
    __m256i s[4], m[4];
    uint32_t halves[4] = {0};
    stream_prefetch(w, 4 * k.bytes);
    for (int u = 0; u < 4; u++) {
        if (u >= n) {
            s[u] = m[u] = _mm256_setzero_si256();
            continue;
        }
        struct block256 b;
        unpack(w + (size_t)u * k.bytes, &b);
        halves[u] = b.halves;
        s[u] = rows_dot(k, &b, x->q + (size_t)(i + u) * 256, x->bsum + (size_t)(i + u) * 16, &m[u]);
    }
    rows_terms(k, halves, vec_sum4(s), vec_sum4(m), t);
}

/* The same for codebooks, whose entries take so long to look up that a call for the four blocks costs nothing. */
VEC_INLINE void rows_group_codebook(struct kind256 k, int n, const uint8_t *w, const struct act_q256 *x, int i,
                                    float *t)
{
    __m256i s[4], m[4];
    uint32_t halves[4] = {0};
    struct block256 b[4];
    const uint8_t *const block[4] = {w, w + k.bytes, w + 2 * k.bytes, w + 3 * k.bytes};
    stream_prefetch(w, 4 * k.bytes);
    if (k.type != DT_IQ1_S) avx2_unpack256[k.type](block, 0, n, b);
    for (int u = 0; u < 4; u++) {
        const int8_t *q = x->q + (size_t)(i + u) * 256;
        const int16_t *bsum = x->bsum + (size_t)(i + u) * 16;
        s[u] = m[u] = _mm256_setzero_si256();
        if (u >= n) continue;
        if (k.type == DT_IQ1_S) {
            s[u] = rows_dot_iq1_s(block[u], q, bsum, &halves[u]);
            continue;
        }
        halves[u] = b[u].halves;
        s[u] = rows_dot(k, &b[u], q, bsum, &m[u]);
    }
    rows_terms(k, halves, vec_sum4(s), vec_sum4(m), t);
}

/* The same for four blocks of Q4_K or Q5_K: the 6-bit numbers of two blocks are taken apart together, and the scales
 * come back from memory as broadcasts, which cost no arithmetic port. */
VEC_INLINE void rows_group_6bit(struct kind256 k, unpack256_fn *unpack, const uint8_t *w, const struct act_q256 *x,
                                int i, float *t)
{
    uint32_t halves[4], scale[2][2][8]; /* [pair][scales 0-3, 4-7][4 of the first block, 4 of the second] */
    __m256i s[4], min[2], m[2];
    for (int h = 0; h < 2; h++) {
        const uint8_t *p = w + 2 * (size_t)h * k.bytes;
        __m256i six = u256_six_bits(vec_pair(vec_load128(p), vec_load128(p + k.bytes)));
        __m256i words = _mm256_unpacklo_epi8(six, _mm256_setzero_si256());
        vec_store(scale[h][0], _mm256_unpacklo_epi16(words, words));
        vec_store(scale[h][1], _mm256_unpackhi_epi16(words, words));
        min[h] = _mm256_unpackhi_epi8(six, _mm256_setzero_si256());
    }
    stream_prefetch(w, 4 * k.bytes);
    for (int u = 0; u < 4; u++) {
        struct block256 b;
        unpack(w + (size_t)u * k.bytes, &b);
        halves[u] = b.halves;
        const int8_t *q = x->q + (size_t)(i + u) * 256;
        s[u] = _mm256_setzero_si256();
        for (int j = 0; j < 8; j++) {
            __m256i p = _mm256_maddubs_epi16(b.q[j], vec_load(q + 32 * j));
            p = _mm256_madd_epi16(p, vec_splat32(&scale[u / 2][j / 4][u % 2 * 4 + j % 4]));
            s[u] = _mm256_add_epi32(s[u], p);
        }
    }
    const int16_t *bsum = x->bsum + (size_t)i * 16;
    for (int h = 0; h < 2; h++, bsum += 32) { /* 8 sums of 32 of each of two blocks */
        __m256i sums = _mm256_hadd_epi16(vec_load(bsum), vec_load(bsum + 16));
        m[h] = _mm256_madd_epi16(min[h], _mm256_permute4x64_epi64(sums, 0xd8));
    }
    __m256i v = _mm256_hadd_epi32(m[0], m[1]); /* blocks 0, 0, 2, 2 | 1, 1, 3, 3 */
    v = _mm256_hadd_epi32(v, v);
    __m128i all = _mm_unpacklo_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    rows_terms(k, halves, vec_sum4(s), all, t);
}

/* n blocks from the i0-th on of n_rows rows, t of each row SEGMENT after that of the row before. unpack: NULL for a
 * codebook. */
VEC_INLINE void rows_streams(struct kind256 k, unpack256_fn *unpack, const struct gemm *g, int r0, int n_rows,
                             const struct act_q256 *x, int i0, int n, float *t)
{
    for (int i = 0; i < n; i += 4) {
        const uint8_t *w = g->w + (size_t)r0 * g->ld_w + (size_t)(i0 + i) * k.bytes;
        for (int r = 0; r < n_rows; r++, w += g->ld_w) {
            float *p = t + r * SEGMENT + i;
            if (!unpack)
                rows_group_codebook(k, n - i < 4 ? n - i : 4, w, x, i0 + i, p);
            else if (n - i < 4)
                rows_group(k, unpack, n - i, w, x, i0 + i, p);
            else if (k.mode == MINIMUM && k.group == 32)
                rows_group_6bit(k, unpack, w, x, i0 + i, p);
            else
                rows_group(k, unpack, 4, w, x, i0 + i, p);
        }
    }
}

VEC_INLINE void gemm_rows(struct kind256 k, unpack256_fn *unpack, const struct gemm *g, float *t)
{
    const int n_blocks = g->k / 256;
    const struct act_q256 x = act_q256_at(gemm_x(g, 0), g->k);
    for (int r0 = 0; r0 < g->n_rows; r0 += 8) {
        int n_rows = g->n_rows - r0 < 8 ? g->n_rows - r0 : 8;
        __m256 acc = _mm256_setzero_ps();
        for (int i0 = 0; i0 < n_blocks; i0 += SEGMENT) {
            int n = n_blocks - i0 < SEGMENT ? n_blocks - i0 : SEGMENT;
            for (int r = 0; r < n_rows; r += STREAMS)
                rows_streams(k, unpack, g, r0 + r, n_rows - r < STREAMS ? n_rows - r : STREAMS, &x, i0, n,
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
        gemm_rows(kind_##name, unpack256_##name, g, scratch);                                                          \
    }
#define CODEBOOK(ID, name, ...)                                                                                        \
    static void rows_##name(const struct gemm *g, void *scratch) { gemm_rows(kind_##name, NULL, g, scratch); }
#define ENTRY(ID, name, ...) [DT_##ID] = rows_##name,

DTYPES_K256_BITS(ROWS)
DTYPES_K256_CODEBOOK(CODEBOOK)

gemm_fn *const avx2_rows256[DT_N] = {DTYPES_K256(ENTRY)};
