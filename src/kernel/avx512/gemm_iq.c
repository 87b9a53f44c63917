/* SPDX-License-Identifier: MIT
 *
 * gemm_iq.c: products of the codebook types (IQ1, IQ2, IQ3) with one column, AVX-512 with VNNI.
 *
 * Codes come out by their place in an entry (entries.h). The activations are brought to that order, once for all rows.
 * A dword of the sum over the registers is
 *
 *   IQ1, IQ2   two entries of eight: a group of 16
 *   IQ3        two entries of four: half a group of 16; a block has two sums
 *
 * Weights are read as one stream (stream.h). The sums start at -offset * (sum of q). With VBMI there is a faster form:
 * avx512vbmi/gemm_iq.c.
 */
#include <assert.h>

#include "kernel/avx512/avx512.h"
#include "kernel/avx512/entries.h"
#include "kernel/avx512/stream.h"

#define SEGMENT 128 /* blocks of a row: k = 32768 */

/* A block of activations: [IQ3: half of the block][element of half an entry], and what the sums start at. */
struct operand {
    _Alignas(64) int8_t q[4][64];
    int32_t start[2][16];
};

struct one {
    float t[STREAM_ROWS * SEGMENT + 16];
    struct operand x[SEGMENT];
    struct ring ring;
    uint16_t d[STREAM_BATCH];
    uint8_t copy[STREAM_COPY];
};
static_assert(sizeof(struct one) <= KERNEL_SCRATCH_BYTES, "scratch");

/* ---- activations ---- */

static void operand_load(enum dtype t, struct act_q256 x, size_t b, struct operand *to)
{
    const __m512i minus = _mm512_set1_epi32(-format256_of(t).offset);
    __m256i sums = _mm256_loadu_si256((const void *)(x.bsum + 16 * b));
    __m512i v[4];
    for (int i = 0; i < 4; i++) v[i] = _mm512_loadu_si512(x.q + 256 * b + 64 * (size_t)i);
    if (!is_iq3(t)) {
        _mm512_storeu_si512(to->start[0], _mm512_mullo_epi32(_mm512_cvtepi16_epi32(sums), minus));
        for (unsigned j = 0; j < 4; j++)
            for (int i = 0; i < 4; i++)
                _mm_store_si128((void *)(to->q[j] + 16 * i), _mm512_cvtepi32_epi8(_mm512_srli_epi32(v[i], 8 * j)));
        return;
    }
    for (int h = 0; h < 2; h++) {
        __m512i s = _mm512_cvtepi16_epi64(h ? _mm256_extracti128_si256(sums, 1) : _mm256_castsi256_si128(sums));
        _mm512_storeu_si512(to->start[h], _mm512_maskz_mullo_epi32(0x5555, s, minus));
        for (unsigned j = 0; j < 2; j++)
            for (int i = 0; i < 2; i++)
                _mm256_store_si256((void *)(to->q[2 * h + (int)j] + 32 * i),
                                   _mm512_cvtepi16_epi8(_mm512_srli_epi16(v[2 * h + i], 8 * j)));
    }
}

/* ---- sums ---- */

/* 16 dwords that sum to S of the block at w. words: IQ1. */
ALWAYS_INLINE __m512i block_dot(enum dtype t, const uint8_t *w, const uint16_t *words, const struct operand *x)
{
    __m512i u[4], scale[2], s[2];
    codebook_codes(t, w, words, u, scale);
    s[0] = _mm512_loadu_si512(x->start[0]);
    if (is_iq3(t)) s[1] = _mm512_loadu_si512(x->start[1]);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        const int i = is_iq3(t) ? j / 2 : 0;
        s[i] = _mm512_dpbusd_epi32(s[i], u[j], _mm512_load_si512(x->q[j]));
    }
    s[0] = _mm512_mullo_epi32(s[0], scale[0]);
    return is_iq3(t) ? _mm512_add_epi32(s[0], _mm512_mullo_epi32(s[1], scale[1])) : s[0];
}

/* The d of 16 blocks. */
ALWAYS_INLINE __m512 one_scales(enum dtype t, const uint8_t *w, uint16_t d[STREAM_BATCH])
{
    const struct format256 F = format256_of(t);
    for (int i = 0; i < STREAM_BATCH; i++, w += F.bytes) {
        if (t == DT_IQ1_M)
            d[i] = (uint16_t)_pext_u64(get_u64(w + 48), 0xf000f000f000f000u);
        else
            memcpy(&d[i], w, 2);
    }
    return _mm512_mul_ps(load_f16x16(d), _mm512_set1_ps(F.dw_factor));
}

/* The t of 16 blocks that lie at w; b is the number of the first in its row's segment of nb. */
ALWAYS_INLINE __m512 one_batch(enum dtype t, const uint8_t *w, int b, int nb, struct one *o)
{
    const size_t bytes = (size_t)format256_of(t).bytes;
    const __m512 dw = one_scales(t, w, o->d);
    __m512i s[STREAM_BATCH];
    const uint8_t *const first = w;
#pragma GCC unroll 1
    for (int i = 0; i < STREAM_BATCH; i++, w += bytes) {
        prefetch_stream(w, bytes);
        if (is_iq1(t)) ring_step(t, &first, bytes, i, STREAM_BATCH, &o->ring);
        s[i] = block_dot(t, w, o->ring.words[i % RING], &o->x[b]);
        b = b + 1 == nb ? 0 : b + 1;
    }
    return _mm512_mul_ps(dw, _mm512_cvtepi32_ps(reduce_16(s)));
}

ALWAYS_INLINE void one_column(enum dtype t, const struct gemm *g, struct one *o)
{
    const struct act_q256 x = act_q256_at(gemm_x(g, 0), g->k);
    const int n_blocks = g->k / 256;
    for (int r0 = 0; r0 < g->n_rows; r0 += STREAM_ROWS) {
        struct stream s = {.ld_w = g->ld_w, .bytes = format256_of(t).bytes, .pieces = 1};
        __m512 acc = _mm512_setzero_ps();
        s.n_rows = g->n_rows - r0 < STREAM_ROWS ? g->n_rows - r0 : STREAM_ROWS;
        for (int b0 = 0; b0 < n_blocks; b0 += SEGMENT) {
            s.nb = n_blocks - b0 < SEGMENT ? n_blocks - b0 : SEGMENT;
            s.w = g->w + (size_t)r0 * g->ld_w + stream_bytes(&s, b0);
            for (int b = 0; (r0 == 0 || n_blocks > SEGMENT) && b < s.nb; b++)
                operand_load(t, x, (size_t)(b0 + b), &o->x[b]);
            for (int i = 0; i < s.n_rows * s.nb; i += STREAM_BATCH)
                _mm512_storeu_ps(o->t + i, one_batch(t, stream_batch(&s, i, o->copy), i % s.nb, s.nb, o));
            acc = stream_chain(o->t, x.d + b0, s.nb, acc);
        }
        _mm512_mask_storeu_ps(g->y + r0, first_lanes(s.n_rows), acc);
    }
}

/* ---- one function a type ---- */

#define ONE(ID, name, ...)                                                                                             \
    static void one_##name(const struct gemm *g, void *scratch) { one_column(DT_##ID, g, scratch); }
#define ENTRY(ID, name, ...) [DT_##ID] = one_##name,

DTYPES_K256_CODEBOOK(ONE)

gemm_fn *const avx512_gemm_iq_one[DT_N] = {DTYPES_K256_CODEBOOK(ENTRY)};
