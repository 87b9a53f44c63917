/* SPDX-License-Identifier: MIT
 *
 * tile32.h: the tile of the 32-element block types: codes in the order of tile.h, and the scales of its pieces.
 *
 * The product instructions differ in which operand they take as signed: vpdpbusd wants the codes unsigned, as
 * unpack32.h makes them, and the offset's share is taken from the sum; AMX tiles take signed ones.
 */
#ifndef QUERN_KERNEL_AVX512_TILE32_H
#define QUERN_KERNEL_AVX512_TILE32_H

#include "kernel/avx512/unpack_rows.h"

#define TILE_PIECES (TILE_K / 32)

struct tile32 {
    _Alignas(64) tile_codes u;
    _Alignas(64) float dw[TILE_PIECES][TILE_ROWS], second[TILE_PIECES][TILE_ROWS];
};

/* Pieces b .. b + nb of 32 rows, nb <= TILE_PIECES; is_signed: codes without their offset. bytes: scratch of TILE_ROWS
 * * TILE_K. */
ALWAYS_INLINE void tile32_load(enum dtype type, bool is_signed, const uint8_t *const row[TILE_ROWS], int b, int nb,
                               struct ahead *ahead, uint8_t *bytes, struct tile32 *t)
{
    const struct format32 F = format32_of(type);
    const bool subtract = is_signed && F.offset;
    const __m512i minus = _mm512_set1_epi8((char)F.offset);
    /* not by gather: entries.h */
    for (int half = 0; half < TILE_ROWS; half += 16) {
        for (int i = 0; i < nb; i++) {
            const size_t at = (size_t)((b + i) / F.pieces * F.bytes) + scale_at(type, (b + i) % F.pieces);
            __m512 dw, second = _mm512_setzero_ps();
            __m512i v[4]; /* 16 bytes of each row's block, which every type has there */
            transpose_rows(row + half, at, v);
            scales32(type, v[0], &dw, &second);
            _mm512_store_ps(t->dw[i] + half, dw);
            if (F.min || F.halves) _mm512_store_ps(t->second[i] + half, second);
        }
    }
    if (rows_can(type)) {
        for (int i = 0; i < nb; i++) {
            for (int half = 0; half < 2; half++)
                rows_block32(type, row + 16 * half, (size_t)(b + i) * (size_t)F.bytes, half, i, put_codes, &t->u,
                             ahead);
            for (int j = 8 * i; subtract && j < 8 * i + 8; j++)
                for (int half = 0; half < 2; half++)
                    _mm512_store_si512(t->u[j][half], _mm512_sub_epi8(_mm512_load_si512(t->u[j][half]), minus));
        }
        return;
    }
    for (int r = 0; r < TILE_ROWS; r++) {
        ahead_step(ahead);
        for (int i = 0; i < nb; i += 2) {
            struct piece p0 = piece_at(type, row[r], b + i), p1 = piece_at(type, row[r], b + (i + 1 < nb ? i + 1 : i));
            __m512i u = unpack32(type, p0, p1);
            _mm512_store_si512(bytes + r * TILE_K + 32 * i, subtract ? _mm512_sub_epi8(u, minus) : u);
        }
    }
    tile_transpose(bytes, 32 * nb, t->u);
}

#endif
