/* SPDX-License-Identifier: MIT
 *
 * tmm.h: the tile registers: their shape, and the products that all kernels of this folder use.
 *
 * A tile register holds 16 rows of 64 bytes. TDPB*D adds to a tile of 16 x 16 int32 the product of a tile of
 * bytes (16 rows x 64 k) and a second one that holds 64 k x 16 columns with four neighbouring k side by
 * side. Activations are the first operand, as they lie in memory. Weights are the second, in the order of
 * avx512/tile.h: lane = row. The sums are exact: 64 * 255 * 127 per instruction, a block of 256 stays below 2^24.
 *
 * Four results are worked on in turn (0 to 3): a product takes 16 cycles, but its result is there only after 52. One
 * group of activations (4) meets four tiles of weights (all in 5: the processor renames tiles), and five loads fit in
 * the time of four products.
 *
 * TDPBF16PS does the same with pairs of bf16 and sums in f32. It rounds, so it is used only where every product and
 * every partial sum is an integer below 2^24: those are exact in any order.
 *
 * Source: Intel SDM volume 1 chapter 18, volume 2 (TDPBSSD, TDPBF16PS).
 */
#ifndef QUERN_KERNEL_AMX_TMM_H
#define QUERN_KERNEL_AMX_TMM_H

#include <immintrin.h>
#include <string.h>

#include "kernel/avx512/tile.h"

#define TMM_COLS 16              /* activation columns in a tile */
#define TMM_SUMS (TMM_COLS * 16) /* sums in a tile */

/* Tiles of n_cols activation columns (at most 16) with k bytes each (64 or 32); n_pairs: bf16 pairs of a column for
 * tmm_bf16, or 0. */
ALWAYS_INLINE void tmm_begin(int n_cols, int k, int n_pairs)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t n_rows[16];
    } c;
    memset(&c, 0, sizeof c);
    c.palette = 1;
    for (int i = 0; i < (n_pairs ? 8 : 6); i++) { /* a tile of no bytes a row is an error */
        c.row_bytes[i] = i == 4 ? (uint16_t)k : i == 6 ? (uint16_t)(4 * n_pairs) : 64;
        c.n_rows[i] = i == 5 ? (uint8_t)(k / 4) : i == 7 ? (uint8_t)n_pairs : (uint8_t)n_cols;
    }
    _tile_loadconfig(&c);
}

/* The registers become free, and cost nothing when the thread is switched. */
ALWAYS_INLINE void tmm_end(void) { _tile_release(); }

/* Result tiles to zero. What was written before is in memory for the loads that follow: the compiler's tile
 * loads do not say that they read. */
ALWAYS_INLINE void tmm_zero(void)
{
    __asm__ volatile("" ::: "memory");
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/* Adds to result i the product of activations tile 4 with the weights in a tile register. */
#define TMM_DOT(i, weights, is_signed)                                                                                 \
    do {                                                                                                               \
        if (is_signed)                                                                                                 \
            _tile_dpbssd(i, 4, weights);                                                                               \
        else                                                                                                           \
            _tile_dpbsud(i, 4, weights);                                                                               \
    } while (0)

/* Two planes: activations x, at distance ld_x, times w[0] .. w[3] into results 0 .. 3; only w[1] and w[3] may be
 * signed. */
ALWAYS_INLINE void tmm_multiply_two(const int8_t *x, size_t ld_x, const uint8_t *const w[4], bool signed13)
{
    _tile_loadd(4, x, (long)ld_x);
    _tile_loadd(5, w[0], 64);
    TMM_DOT(0, 5, false);
    _tile_loadd(5, w[1], 64);
    TMM_DOT(1, 5, signed13);
    _tile_loadd(5, w[2], 64);
    TMM_DOT(2, 5, false);
    _tile_loadd(5, w[3], 64);
    TMM_DOT(3, 5, signed13);
}

/* One plane of weights: activations x times w0 (into result 0 or, every second time, 1) and w1 (2 or 3), all signed. */
ALWAYS_INLINE void tmm_multiply_one(bool second, const int8_t *x, size_t ld_x, const uint8_t *w0, const uint8_t *w1)
{
    _tile_loadd(4, x, (long)ld_x);
    _tile_loadd(5, w0, 64);
    if (second)
        TMM_DOT(1, 5, true);
    else
        TMM_DOT(0, 5, true);
    _tile_loadd(5, w1, 64);
    if (second)
        TMM_DOT(3, 5, true);
    else
        TMM_DOT(2, 5, true);
}

/* Two pieces of 32 elements, each its own sums: activations x times weights w[2 pieces][8 k / 4][2 halves][64], all
 * signed, into results 2 * piece + half. */
ALWAYS_INLINE void tmm_multiply_pieces(const int8_t *x, size_t ld_x, const uint8_t (*w)[2][64])
{
    _tile_loadd(4, x, (long)ld_x);
    _tile_loadd(5, w[0][0], 128);
    TMM_DOT(0, 5, true);
    _tile_loadd(5, w[0][1], 128);
    TMM_DOT(1, 5, true);
    _tile_loadd(4, x + 32, (long)ld_x);
    _tile_loadd(5, w[8][0], 128);
    TMM_DOT(2, 5, true);
    _tile_loadd(5, w[8][1], 128);
    TMM_DOT(3, 5, true);
}

/* The upper halves of two f32 in the bits of one dword; the same for all 16. Exact for integers of at most 8 bits times
 * a power of two. */
ALWAYS_INLINE __m512i tmm_bf16_pair(__m512i a, __m512i b)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(a, 16), b);
}

/* out[half][column][16 rows]: columns of bf16 pairs at x times two halves' pairs w[pair][16 rows]. Uses the results 0
 * and 1. */
ALWAYS_INLINE void tmm_bf16(const uint32_t *x, size_t ld_x, const uint32_t *w0, const uint32_t *w1, float *out)
{
    tmm_zero();
    _tile_loadd(6, x, (long)ld_x);
    _tile_loadd(7, w0, 64);
    _tile_dpbf16ps(0, 6, 7);
    _tile_loadd(7, w1, 64);
    _tile_dpbf16ps(1, 6, 7);
    _tile_stored(0, out, 64);
    _tile_stored(1, out + TMM_SUMS, 64);
}

/* The results as s[i][column][16 rows]. */
ALWAYS_INLINE void tmm_store(int32_t *s)
{
    _tile_stored(0, s, 64);
    _tile_stored(1, s + TMM_SUMS, 64);
    _tile_stored(2, s + 2 * TMM_SUMS, 64);
    _tile_stored(3, s + 3 * TMM_SUMS, 64);
}

#endif
