/* SPDX-License-Identifier: MIT
 *
 * stream.h: one column of activations times weights that are read once, as one stream of blocks.
 *
 * Memory is the limit, and it is fastest when read in order. So rows are not read side by side: 16 pieces at a time are
 * taken in the order of the file, across row ends. (A piece is 32 or 256 elements, for which the contract has one float
 * step.) Their integer sums are reduced together, lane = piece, and their t kept. After 16 rows the chains acc = fma(d,
 * t, acc) run with lane = row.
 *
 * A segment is the part of 16 rows whose t fit in scratch: whole rows, unless they are very long.
 */
#ifndef QUERN_KERNEL_AVX512_STREAM_H
#define QUERN_KERNEL_AVX512_STREAM_H

#include <string.h>

#include "kernel/avx512/lanes.h"
#include "kernel/kernel.h"

#define STREAM_ROWS  16
#define STREAM_BATCH 16         /* pieces */
#define STREAM_COPY  (16 * 210) /* the largest batch in bytes */

/* A batch is 16 pieces: 16 blocks of 256 elements, fewer blocks where one holds several pieces of 32. */
#define FITS(ID, name, id, block, bytes, ...)                                                                          \
    _Static_assert((bytes)*STREAM_BATCH <= STREAM_COPY * ((block) == 256 ? 1 : (block) / 32), "a batch fits: " #ID);
DTYPES_K256(FITS)
DTYPES_B32(FITS)
DTYPES_B32_HALVES(FITS)
#undef FITS

struct stream {
    const uint8_t *w; /* the segment's first block in its first row */
    size_t ld_w;
    int n_rows, nb;    /* rows, and pieces per row */
    int bytes, pieces; /* of a stored block: its size, and the pieces in it */
};

/* Stored bytes of n pieces, n a multiple of s->pieces. */
ALWAYS_INLINE size_t stream_bytes(const struct stream *s, int n) { return (size_t)(n / s->pieces) * (size_t)s->bytes; }

/* Where the 16 pieces from number i of the segment on lie one after the other: in the file, or, when
 * they are in several places or are not that many, collected in copy. The last block fills up. */
ALWAYS_INLINE const uint8_t *stream_batch(const struct stream *s, int i, uint8_t *copy)
{
    int n = s->n_rows * s->nb, r = i / s->nb, b = i % s->nb;
    bool joined = s->ld_w == stream_bytes(s, s->nb); /* rows follow each other */
    if (i + STREAM_BATCH <= n && (b + STREAM_BATCH <= s->nb || joined))
        return s->w + (size_t)r * s->ld_w + stream_bytes(s, b);
    for (int j = 0; j < STREAM_BATCH; j += s->pieces) {
        int at = i + j < n ? i + j : n - s->pieces;
        const uint8_t *block = s->w + (size_t)(at / s->nb) * s->ld_w + stream_bytes(s, at % s->nb);
        memcpy(copy + stream_bytes(s, j), block, (size_t)s->bytes);
    }
    return copy;
}

/* acc = fma(d, t, acc) over the pieces of a segment; t[row][piece], read in whole quads. */
ALWAYS_INLINE __m512 stream_chain(const float *t, const float *d, int nb, __m512 acc)
{
    for (int b = 0; b < nb; b += 4) {
        __m512i v[4];
        transpose_stride(t + b, (size_t)nb * 4, v);
        for (int i = 0; i < 4 && b + i < nb; i++)
            acc = _mm512_fmadd_ps(_mm512_set1_ps(d[b + i]), _mm512_castsi512_ps(v[i]), acc);
    }
    return acc;
}

#endif
