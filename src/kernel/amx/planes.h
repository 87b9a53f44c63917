/* SPDX-License-Identifier: MIT
 *
 * planes.h: 32 rows of one 256-element block as bytes whose products need no scales any more.
 *
 * A tile product leaves 256 sums in a register that can only be stored: scales applied to the sums of every 16
 * or 32 elements would cost more than the products. So the integer sub-scales are multiplied into
 * the codes, and the result, up to 14 bits wide, is split into one or two planes of bytes. The sum over a
 * whole block is then, exactly,
 *
 *     S = sum over k of scale[k] * c[k] * q[k] = L + H * 2^shift
 *
 * with L and H the sums of the two planes times q:
 *
 *     SPLIT_NONE   the product is a signed byte: one plane
 *     SPLIT_SCALE  6-bit scales, codes below 32: codes times the low three bits of the scale, codes times the
 *                  high three: unsigned bytes that one 16-bit multiplication makes two at a time
 *     SPLIT_BYTES  16-bit products: low bytes unsigned, high bytes signed
 *
 * The minimums (6 bits at most) times the sums of groups of activations (13 bits) are a product of their own, in bf16:
 * a sum of 13 bits is two bf16 numbers, exactly, so each minimum stands twice.
 */
#ifndef QUERN_KERNEL_AMX_PLANES_H
#define QUERN_KERNEL_AMX_PLANES_H

#include "kernel/amx/tmm.h"
#include "kernel/avx512/rows.h"

enum split { SPLIT_NONE, SPLIT_SCALE, SPLIT_BYTES };

ALWAYS_INLINE enum split split_of(enum dtype t)
{
    switch (t) {
    case DT_Q2_K:
    case DT_TQ1_0:
    case DT_TQ2_0: return SPLIT_NONE;
    case DT_Q4_K:
    case DT_Q5_K: return SPLIT_SCALE;
    default: return SPLIT_BYTES;
    }
}

ALWAYS_INLINE int split_shift(enum split s) { return s == SPLIT_NONE ? 0 : s == SPLIT_SCALE ? 3 : 8; }

struct planes {
    _Alignas(64) uint8_t w[2][2][TILE_K / 4][64]; /* [plane][half][k / 4][4 * row + k % 4] */
    _Alignas(64) uint32_t min[2][16][16];         /* [half][group][row]: the minimum as bf16, twice */
    _Alignas(64) float dw[TILE_ROWS], dmin[TILE_ROWS];
};

/* What unpacking needs besides. */
struct unpacking {
    tile_codes u;
    _Alignas(64) uint8_t bytes[TILE_ROWS * TILE_K];
    struct heads256 heads;
    struct row_scales scales[2];
};

/* All but the codes of the blocks at byte `at` of 16 rows. */
ALWAYS_INLINE void planes_heads(enum dtype type, const uint8_t *const *row, size_t at, int half, struct unpacking *t,
                                struct planes *p)
{
    const struct format256 F = format256_of(type);
    struct row_scales *v = &t->scales[half];
    __m512 d, dmin = _mm512_setzero_ps();
    if (type == DT_Q4_K || type == DT_Q5_K) {
        *v = rows_scales_6bit(row, at, &d, &dmin);
    } else if (type == DT_Q6_K) {
        transpose_rows(row, at + 192, v->scale);
        d = rows_f16(row, at + 208);
    } else {
        for (int r = 0; r < 16; r++) head256(type, row[r] + at, r, &t->heads);
        transpose_stride(t->heads.scale, (size_t)(256 / F.group), v->scale);
        d = load_f16x16(t->heads.d);
        if (F.min) {
            transpose_stride(t->heads.min, (size_t)(256 / F.group), v->min);
            dmin = load_f16x16(t->heads.dmin);
        }
    }
    for (int g = 0; F.min && g < 256 / F.group; g++) {
        __m512i min = _mm512_and_si512(_mm512_srli_epi32(v->min[g / 4], 8 * (unsigned)(g % 4)), _mm512_set1_epi32(255));
        __m512i bits = _mm512_castps_si512(_mm512_cvtepi32_ps(min));
        _mm512_store_si512(p->min[half][g], tmm_bf16_pair(bits, bits));
    }
    _mm512_store_ps(p->dw + 16 * half, _mm512_mul_ps(d, _mm512_set1_ps(F.dw_factor)));
    _mm512_store_ps(p->dmin + 16 * half, dmin);
}

/* Scale g of 16 rows in both 16-bit halves of every lane, sign-extended if it is signed. */
ALWAYS_INLINE __m512i scale_words(const struct row_scales *v, int g, bool is_signed)
{
    const __m512i lane = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    const char b = (char)(g % 4);
    if (!is_signed)
        return _mm512_shuffle_epi8(v->scale[g / 4], _mm512_or_si512(lane, _mm512_set1_epi16((short)(0x8000 | b))));
    __m512i high = _mm512_shuffle_epi8(v->scale[g / 4], _mm512_or_si512(lane, _mm512_set1_epi16((short)(b << 8 | b))));
    return _mm512_srai_epi16(high, 8);
}

/* Four codes of 16 rows times their scale, into the planes. offset: the codes' offset times the scale. */
ALWAYS_INLINE void planes_store(enum split split, __m512i u, __m512i scale, __m512i offset, uint8_t *w0, uint8_t *w1)
{
    const __m512i low = _mm512_set1_epi16(255);
    if (split == SPLIT_SCALE) { /* no product of a byte reaches the next one: 31 * 7 < 256 */
        _mm512_store_si512(w0, _mm512_mullo_epi16(u, _mm512_and_si512(scale, _mm512_set1_epi16(7))));
        _mm512_store_si512(w1, _mm512_mullo_epi16(u, _mm512_srli_epi16(scale, 3)));
        return;
    }
    __m512i even = _mm512_mullo_epi16(_mm512_and_si512(u, low), scale);
    __m512i odd = _mm512_mullo_epi16(_mm512_srli_epi16(u, 8), scale);
    even = _mm512_sub_epi16(even, offset);
    odd = _mm512_sub_epi16(odd, offset);
    _mm512_store_si512(w0, _mm512_ternarylogic_epi32(_mm512_slli_epi16(odd, 8), even, low, 0xf8));
    if (split == SPLIT_BYTES)
        _mm512_store_si512(w1, _mm512_ternarylogic_epi32(odd, _mm512_srli_epi16(even, 8), low, 0xd8));
}

/* Half `half` of the planes from half `from` of the codes. */
ALWAYS_INLINE void planes_scale(enum dtype type, int half, int from, const struct unpacking *t, struct planes *p)
{
    const struct format256 F = format256_of(type);
#pragma GCC unroll 16
    for (int g = 0; g < 256 / F.group; g++) {
        __m512i scale = scale_words(&t->scales[half], g, F.signed_scale);
        __m512i offset = _mm512_mullo_epi16(scale, _mm512_set1_epi16((short)F.offset));
        for (int i = g * F.group / 4; i < (g + 1) * F.group / 4; i++)
            planes_store(split_of(type), _mm512_load_si512(t->u[i][from]), scale, offset, p->w[0][half][i],
                         p->w[1][half][i]);
    }
}

/* Block b of 32 rows. */
ALWAYS_INLINE void planes_load(enum dtype type, const uint8_t *const row[TILE_ROWS], int b, struct ahead *ahead,
                               struct unpacking *t, struct planes *p)
{
    const struct format256 F = format256_of(type);
    const size_t at = (size_t)b * (size_t)F.bytes;
    const __m512i offset = _mm512_set1_epi8((char)F.offset);
    for (int half = 0; half < 2; half++) planes_heads(type, row + 16 * half, at, half, t, p);
    if (rows_can(type)) {
        for (int half = 0; half < 2; half++) {
            rows_block256(type, row + 16 * half, at, 0, t->u, ahead); /* the same place for both: it stays in L1 */
            planes_scale(type, half, 0, t, p);
        }
        return;
    }
    for (int r = 0; r < TILE_ROWS; r++) {
        struct codes256 c;
        ahead_step(ahead);
        unpack256(type, row[r] + at, &c);
        for (int i = 0; i < 4; i++) {
            __m512i u = c.u[i];
            if (F.magnitude) u = _mm512_mask_sub_epi8(_mm512_add_epi8(offset, u), c.negative[i], offset, u);
            _mm512_store_si512(t->bytes + r * TILE_K + 64 * i, u);
        }
    }
    tile_transpose(t->bytes, TILE_K, t->u);
    for (int half = 0; half < 2; half++) planes_scale(type, half, half, t, p);
}

#endif
