/* SPDX-License-Identifier: MIT
 *
 * planes.h: 32 rows of one 256-element block as bytes that already contain their integer scales.
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
#include "kernel/avx512/unpack_rows.h"

enum split { SPLIT_NONE, SPLIT_SCALE, SPLIT_BYTES };

ALWAYS_INLINE enum split split_of(enum dtype t)
{
    const struct format256 F = format256_of(t);
    if (F.max_code * F.max_scale <= INT8_MAX) return SPLIT_NONE;
    if (!F.offset && !F.signed_scale && F.max_scale < 64 && F.max_code < 32) return SPLIT_SCALE;
    return SPLIT_BYTES;
}

ALWAYS_INLINE int split_shift(enum split s) { return s == SPLIT_NONE ? 0 : s == SPLIT_SCALE ? 3 : 8; }

struct planes {
    _Alignas(64) uint8_t w[2][2][TILE_K / 4][64]; /* [plane][half][k / 4][4 * row + k % 4] */
    _Alignas(64) uint32_t min[2][16][16];         /* [half][group][row]: the minimum as bf16, twice */
    _Alignas(64) float dw[TILE_ROWS], dmin[TILE_ROWS];
};

/* The factors of group g's codes, for 16 rows. */
struct factors {
    __m512i a[16]; /* SPLIT_SCALE: the scale's low three bits; else the scale */
    __m512i b[16]; /* SPLIT_SCALE: its high three; else the codes' offset times the scale */
};

/* Working memory of unpacking. */
struct unpacking {
    tile_codes u;
    _Alignas(64) uint8_t bytes[TILE_ROWS * TILE_K];
    struct heads256 heads;
    struct factors factors; /* of 16 rows */
};

/* All but the codes of the blocks at byte `at` of 16 rows; scales and minimums into v. */
ALWAYS_INLINE void planes_heads(enum dtype type, const uint8_t *const *row, size_t at, int half, struct heads256 *heads,
                                struct row_scales *v, struct planes *p)
{
    const struct format256 F = format256_of(type);
    __m512 d, dmin;
    *v = rows_heads(type, row, at, heads, &d, &dmin);
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

ALWAYS_INLINE void factors_load(enum dtype type, const struct row_scales *v, struct factors *f)
{
    const struct format256 F = format256_of(type);
#pragma GCC unroll 16
    for (int g = 0; g < 256 / F.group; g++) {
        const __m512i scale = scale_words(v, g, F.signed_scale);
        if (split_of(type) == SPLIT_SCALE) {
            _mm512_store_si512(&f->a[g], _mm512_and_si512(scale, _mm512_set1_epi16(7)));
            _mm512_store_si512(&f->b[g], _mm512_srli_epi16(scale, 3));
        } else {
            _mm512_store_si512(&f->a[g], scale);
            _mm512_store_si512(&f->b[g], _mm512_mullo_epi16(scale, _mm512_set1_epi16((short)F.offset)));
        }
    }
}

/* Four codes of 16 rows times their scale, into the planes. */
ALWAYS_INLINE void planes_store(enum split split, __m512i u, __m512i a, __m512i b, uint8_t *w0, uint8_t *w1)
{
    const __m512i low = _mm512_set1_epi16(255);
    if (split == SPLIT_SCALE) { /* no product of a byte reaches the next one: 31 * 7 < 256 */
        _mm512_store_si512(w0, _mm512_mullo_epi16(u, a));
        _mm512_store_si512(w1, _mm512_mullo_epi16(u, b));
        return;
    }
    __m512i even = _mm512_mullo_epi16(_mm512_and_si512(u, low), a);
    __m512i odd = _mm512_mullo_epi16(_mm512_srli_epi16(u, 8), a);
    even = _mm512_sub_epi16(even, b);
    odd = _mm512_sub_epi16(odd, b);
    _mm512_store_si512(w0, _mm512_ternarylogic_epi32(_mm512_slli_epi16(odd, 8), even, low, 0xf8));
    if (split == SPLIT_BYTES)
        _mm512_store_si512(w1, _mm512_ternarylogic_epi32(odd, _mm512_srli_epi16(even, 8), low, 0xd8));
}

/* Where the codes of 16 rows go: codes_put() functions, one for each split. */
struct planes_out {
    const struct factors *f;
    int group_shift; /* k / 4 to the number of its group */
    struct planes *p;
};

ALWAYS_INLINE void planes_put(enum split split, void *to, int k4, int half, __m512i u)
{
    const struct planes_out *o = to;
    const int g = k4 >> o->group_shift;
    planes_store(split, u, _mm512_load_si512(&o->f->a[g]), _mm512_load_si512(&o->f->b[g]), o->p->w[0][half][k4],
                 o->p->w[1][half][k4]);
}
static inline void put_none(void *to, int k4, int half, __m512i u) { planes_put(SPLIT_NONE, to, k4, half, u); }
static inline void put_scale(void *to, int k4, int half, __m512i u) { planes_put(SPLIT_SCALE, to, k4, half, u); }
static inline void put_bytes(void *to, int k4, int half, __m512i u) { planes_put(SPLIT_BYTES, to, k4, half, u); }

/* Block b of 32 rows. */
ALWAYS_INLINE void planes_load(enum dtype type, const uint8_t *const row[TILE_ROWS], int b, struct ahead *ahead,
                               struct unpacking *t, struct planes *p)
{
    const struct format256 F = format256_of(type);
    const enum split split = split_of(type);
    const size_t at = (size_t)b * (size_t)F.bytes;
    codes_put *const put = split == SPLIT_NONE ? put_none : split == SPLIT_SCALE ? put_scale : put_bytes;
    struct planes_out out = {&t->factors, F.group == 32 ? 3 : 2, p};
    if (!rows_can(type)) rows_unpack(type, row, at, ahead, t->bytes, t->u);
    for (int half = 0; half < 2; half++) {
        const uint8_t *const *const half_row = row + 16 * half;
        struct row_scales v;
        planes_heads(type, half_row, at, half, &t->heads, &v, p);
        factors_load(type, &v, &t->factors);
        if (rows_can(type))
            rows_block256(type, half_row, at, half, put, &out, ahead);
        else
            for (int k4 = 0; k4 < TILE_K / 4; k4++) put(&out, k4, half, _mm512_load_si512(t->u[k4][half]));
    }
}

#endif
