/* SPDX-License-Identifier: MIT
 *
 * tile.h: 32 weight rows x 256 elements as vpdpbusd wants them, for products with many columns.
 *
 * vpdpbusd multiplies four neighbouring bytes of every 32-bit lane. With lane = row, a register
 * holds 4 consecutive k of 16 rows, and one activation's 4 bytes are broadcast to all lanes. A tile
 * is unpacked once into that order and used for all columns, in groups of up to TILE_COLS: 2 x 6
 * accumulators for the products, as many for the scaled sums, and the rest for operands.
 *
 *   u[g][half][4 * r + j] = u8 code of row 16 * half + r at k = 4 g + j
 *
 * The float accumulators of all columns lie in scratch, 32 to a column, not in y: columns of y are
 * often a power of two apart and would fight for the same few cache sets.
 */
#ifndef QUERN_KERNEL_AVX512_TILE_H
#define QUERN_KERNEL_AVX512_TILE_H

#include "kernel/avx512/lanes.h"
#include "kernel/kernel.h"

#define TILE_ROWS     32
#define TILE_K        256
#define TILE_COLS     6   /* columns in registers at once */
#define TILE_MAX_COLS 768 /* columns per pass over the weights: 96 KiB of accumulators */

typedef uint8_t tile_codes[TILE_K / 4][2][64];

/* Bytes of 16 rows, TILE_K apart, as the 16 elements of number `chunk` in half `half` of u. */
ALWAYS_INLINE void tile_chunk(const uint8_t *bytes, int chunk, int half, tile_codes u)
{
    __m512i out[4];
    transpose_stride(bytes, TILE_K, out);
    for (int i = 0; i < 4; i++) _mm512_store_si512(u[4 * chunk + i][half], out[i]);
}

/* Row-major bytes [TILE_ROWS][TILE_K] -> tile order; only the first n_k of each row. */
ALWAYS_INLINE void tile_transpose(const uint8_t *bytes, int n_k, tile_codes u)
{
    for (int half = 0; half < 2; half++)
        for (int j = 0; j < n_k / 16; j++) tile_chunk(bytes + half * 16 * TILE_K + 16 * j, j, half, u);
}

/* Four activation bytes in every lane. */
ALWAYS_INLINE __m512i broadcast_4(const int8_t *q)
{
    int32_t v;
    __builtin_memcpy(&v, q, 4);
    return _mm512_set1_epi32(v);
}

/* The rows of the tile that starts at r0: those beyond the matrix repeat its last one. */
ALWAYS_INLINE void tile_rows(const struct gemm *g, int r0, const uint8_t *row[TILE_ROWS])
{
    for (int r = 0; r < TILE_ROWS; r++) {
        int i = r0 + r < g->n_rows ? r0 + r : g->n_rows - 1;
        row[r] = g->w + (size_t)i * g->ld_w;
    }
}

/* Groups of at most TILE_COLS columns, as equal as possible: 8 columns are 4 + 4, not 6 + 2. */
ALWAYS_INLINE int tile_group(int n_left)
{
    return (n_left + (n_left - 1) / TILE_COLS) / ((n_left + TILE_COLS - 1) / TILE_COLS);
}

/* acc[n_cols][TILE_ROWS] into columns c0.. and rows r0.. of y. */
ALWAYS_INLINE void tile_store(const struct gemm *g, int r0, int c0, int n_cols, const float *acc)
{
    int n = g->n_rows - r0 < TILE_ROWS ? g->n_rows - r0 : TILE_ROWS;
    __mmask16 m0 = first_lanes(n < 16 ? n : 16), m1 = n > 16 ? first_lanes(n - 16) : 0;
    for (int c = 0; c < n_cols; c++) {
        float *y = g->y + (size_t)(c0 + c) * g->ld_y + r0;
        _mm512_mask_storeu_ps(y, m0, _mm512_load_ps(acc + c * TILE_ROWS));
        if (m1) _mm512_mask_storeu_ps(y + 16, m1, _mm512_load_ps(acc + c * TILE_ROWS + 16));
    }
}

/* The rows of a tile in n columns of y that will soon be written. Columns are far apart, and each write would wait. */
ALWAYS_INLINE void tile_prefetch(const float *y, size_t ld_y, int n)
{
    for (int c = 0; c < n; c++)
        for (int i = 0; i < TILE_ROWS; i += 16) _mm_prefetch((const char *)(y + (size_t)c * ld_y + i), _MM_HINT_T0);
}

/* Prefetches the same rows' next part while this one is unpacked and used, a row or a few per step. It goes into L2: in
 * L1 it would push out the tile, which is used for every column. More than that, a second and longer distance as in
 * stream.h, was slower: its requests to memory hold all the fill buffers, and a load that would find its
 * line in L2 queues after them. */
struct ahead {
    const uint8_t *const *row;
    size_t offset; /* of the next part in its row */
    int bytes;     /* of the next part */
    int n_rows;    /* left */
    int step_rows;
    /* Or lines in the order in which they lie in memory: so many in a step of the product, and while unpacking. */
    const char *line;
    int step_lines, unpack_lines;
};

/* For part `part` of the n_parts of the tile at r0, with `bytes` in each row: a row per step. */
ALWAYS_INLINE struct ahead ahead_of(const struct gemm *g, int r0, const uint8_t *const *row, int part, int n_parts,
                                    int bytes)
{
    bool last = part + 1 == n_parts; /* then the next tile's rows are next */
    return (struct ahead){
        .row = row,
        .offset = last ? TILE_ROWS * g->ld_w : (size_t)(part + 1) * (size_t)bytes,
        .bytes = bytes,
        .n_rows = last && r0 + TILE_ROWS >= g->n_rows ? 0 : TILE_ROWS,
        .step_rows = 1,
    };
}

/* Spreads the rows that unpacking has left over n_steps steps. */
ALWAYS_INLINE void ahead_rest(struct ahead *a, int n_steps) { a->step_rows = (a->n_rows + n_steps - 1) / n_steps; }

ALWAYS_INLINE void ahead_step(struct ahead *a)
{
    for (int i = 0; i < a->unpack_lines; i++, a->line += 64) _mm_prefetch(a->line, _MM_HINT_T1);
    for (int i = 0; i < a->step_rows && a->n_rows > 0; i++, a->row++, a->n_rows--) {
        const char *p = (const char *)*a->row + a->offset;
        for (int j = 0; j < a->bytes; j += 64) _mm_prefetch(p + j, _MM_HINT_T1);
        _mm_prefetch(p + a->bytes - 1, _MM_HINT_T1);
    }
}

/* Whether a step of the product would prefetch anything. */
ALWAYS_INLINE bool ahead_is_left(const struct ahead *a) { return a->step_lines > 0 || a->n_rows > 0; }

/* A step of the product. */
ALWAYS_INLINE void ahead_product(struct ahead *a)
{
    for (int i = 0; i < a->step_lines; i++, a->line += 64) _mm_prefetch(a->line, _MM_HINT_T1);
    ahead_step(a);
}

#endif
