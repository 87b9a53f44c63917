/* SPDX-License-Identifier: MIT
 *
 * gemm_b32.c: products with the 32-element block types, AVX-512 with VNNI.
 *
 * The two kernels of gemm_k256.c for smaller blocks: a stream of blocks, 16 at a time, for one column; tiles of 32 rows
 * x 256 for more. There are no sub-scales, but a float step for every 32 elements, which limits the tile to about three
 * quarters of the integer peak.
 */
#include <assert.h>

#include "kernel/avx512/avx512.h"
#include "kernel/avx512/stream.h"
#include "kernel/avx512/tile32.h"

/* ---- one column ---- */

#define SEGMENT 512 /* pieces of a row: k = 16384 */

struct one {
    float t[STREAM_ROWS * SEGMENT + 16];
    /* Activations of a segment, the first 16 pieces repeated after the last: a batch that goes on in the
     * next row finds its own in one place, too. */
    _Alignas(64) int8_t q[(SEGMENT + STREAM_BATCH) * 32];
    int32_t sum[SEGMENT + STREAM_BATCH];
    uint8_t copy[STREAM_COPY];
};
static_assert(sizeof(struct one) <= KERNEL_SCRATCH_BYTES, "scratch");

/* NVFP4's sums: registers of two pieces with two groups each -> the pieces' first, or second, groups. */
ALWAYS_INLINE __m512i reduce_groups(const __m512i v[8], bool second)
{
    const __m512i first = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 16, 24, 17, 25, 18, 26, 19, 27);
    __m512i u0 = reduce_in_lanes(v[0], v[1], v[2], v[3]), u1 = reduce_in_lanes(v[4], v[5], v[6], v[7]);
    return _mm512_permutex2var_epi32(u0, _mm512_add_epi32(first, _mm512_set1_epi32(second ? 4 : 0)), u1);
}

/* The t of 16 pieces that lie at w; b is the number of the first in its row. Two pieces share a register,
 * and their eight partial sums each are folded with those of the other seven registers. */
ALWAYS_INLINE __m512 one_batch(enum dtype type, const uint8_t *w, int b, const struct one *o)
{
    const struct format32 F = format32_of(type);
    const __m512i number = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i block = _mm512_srli_epi32(number, (unsigned)__builtin_ctz((unsigned)F.pieces));
    const __m512i at = _mm512_and_si512(number, _mm512_set1_epi32(F.pieces - 1));
    __m512i offset = _mm512_mullo_epi32(block, _mm512_set1_epi32(F.bytes));
    __m512 dw, second = _mm512_setzero_ps();
    __m512i v[8], sum = _mm512_loadu_si512(o->sum + b);
    if (F.halves) offset = _mm512_add_epi32(offset, _mm512_add_epi32(at, at)); /* scale_at() */
    scales32(type, _mm512_i32gather_epi32(offset, w, 1), &dw, &second);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        struct piece p0 = piece_at(type, w, 2 * i), p1 = piece_at(type, w, 2 * i + 1);
        __m512i u = unpack32(type, p0, p1), x = _mm512_loadu_si512(o->q + 32 * (b + 2 * i));
        prefetch_stream(p0.w, (size_t)(2 * F.bytes / F.pieces));
        v[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), u, x);
        if (F.halves) { /* the activations have no sums per 16 */
            const __m512i minus = _mm512_set1_epi8((char)F.offset);
            v[i] = _mm512_sub_epi32(v[i], _mm512_dpbusd_epi32(_mm512_setzero_si512(), minus, x));
        }
    }
    if (F.halves) {
        __m512 t = _mm512_mul_ps(dw, _mm512_cvtepi32_ps(reduce_groups(v, false)));
        return _mm512_fmadd_ps(second, _mm512_cvtepi32_ps(reduce_groups(v, true)), t);
    }
    __m512i s = reduce_halves(v);
    if (F.offset) s = _mm512_sub_epi32(s, _mm512_mullo_epi32(sum, _mm512_set1_epi32(F.offset)));
    __m512 t = _mm512_mul_ps(dw, _mm512_cvtepi32_ps(s));
    return F.min ? _mm512_fmadd_ps(second, _mm512_cvtepi32_ps(sum), t) : t;
}

/* Takes a segment of the activations to scratch. */
static void one_activations(struct act_q32 x, int b0, int nb, struct one *o)
{
    for (int b = 0; b < nb + STREAM_BATCH; b++) {
        int from = b0 + b % nb;
        memcpy(o->q + 32 * b, x.q + 32 * (size_t)from, 32);
        o->sum[b] = x.sum[from];
    }
}

ALWAYS_INLINE void one_column(enum dtype type, const struct gemm *g, struct one *o)
{
    const struct format32 F = format32_of(type);
    const struct act_q32 x = act_q32_at(gemm_x(g, 0), g->k);
    const int n_pieces = g->k / 32;
    for (int r0 = 0; r0 < g->n_rows; r0 += STREAM_ROWS) {
        struct stream s = {.ld_w = g->ld_w, .bytes = F.bytes, .pieces = F.pieces};
        __m512 acc = _mm512_setzero_ps();
        s.n_rows = g->n_rows - r0 < STREAM_ROWS ? g->n_rows - r0 : STREAM_ROWS;
        for (int b0 = 0; b0 < n_pieces; b0 += SEGMENT) {
            s.nb = n_pieces - b0 < SEGMENT ? n_pieces - b0 : SEGMENT;
            s.w = g->w + (size_t)r0 * g->ld_w + stream_bytes(&s, b0);
            if (r0 == 0 || n_pieces > SEGMENT) one_activations(x, b0, s.nb, o);
            for (int i = 0; i < s.n_rows * s.nb; i += STREAM_BATCH)
                _mm512_storeu_ps(o->t + i, one_batch(type, stream_batch(&s, i, o->copy), i % s.nb, o));
            acc = stream_chain(o->t, x.d + b0, s.nb, acc);
        }
        _mm512_mask_storeu_ps(g->y + r0, first_lanes(s.n_rows), acc);
    }
}

/* ---- many columns ---- */

struct many {
    struct tile32 tile;
    _Alignas(64) uint8_t bytes[TILE_ROWS * TILE_K];
    _Alignas(64) float acc[TILE_MAX_COLS * TILE_ROWS];
};
static_assert(sizeof(struct many) <= KERNEL_SCRATCH_BYTES, "scratch");

/* One column's share of the tile. */
struct column {
    const int8_t *q;
    const float *d;
    int32_t start[16]; /* -offset * sum of q per piece, or per 16 where there are two scales */
    float sum[TILE_PIECES];
};

/* b is a multiple of TILE_PIECES: sums beyond nb are padding of the row, read and not used. */
static void column_prepare(bool halves, int offset, struct act_q32 x, int b, int nb, struct column *c)
{
    __m256i sum = _mm256_loadu_si256((const void *)(x.sum + b));
    c->q = x.q + 32 * (size_t)b;
    c->d = x.d + b;
    _mm256_storeu_ps(c->sum, _mm256_cvtepi32_ps(sum));
    _mm256_storeu_si256((void *)c->start, _mm256_mullo_epi32(sum, _mm256_set1_epi32(-offset)));
    for (int i = 0; halves && i < 2 * nb; i++) {
        __m128i v = _mm_loadu_si128((const void *)(c->q + 16 * i));
        v = _mm_dpbusd_epi32(_mm_setzero_si128(), _mm_set1_epi8(1), v);
        v = _mm_add_epi32(v, _mm_unpackhi_epi64(v, v));
        c->start[i] = -offset * (_mm_cvtsi128_si32(v) + _mm_extract_epi32(v, 1));
    }
}

/* Which float step ends a piece: t = dw S, with m * sum added, or with the second half's scale and sum. */
enum step { STEP_PLAIN, STEP_MIN, STEP_HALVES };

/* acc[half][c] += d * t of one piece. 8 dot products per register, then a conversion, a multiplication and
 * one or two fused steps: the float part is what keeps these types from the integer peak. */
ALWAYS_INLINE void piece_columns(int nc, enum step step, const struct tile32 *t, const struct column *col, int i,
                                 __m512 acc[2][TILE_COLS])
{
    __m512i p[2][TILE_COLS];
    __m512 v[2][TILE_COLS];
    const int groups = step == STEP_HALVES ? 2 : 1, n = 8 / groups;
#pragma GCC unroll 2
    for (int g = 0; g < groups; g++) {
#pragma GCC unroll 6
        for (int c = 0; c < nc; c++)
            p[0][c] = p[1][c] =
                step == STEP_MIN ? _mm512_setzero_si512() : _mm512_set1_epi32(col[c].start[groups * i + g]);
#pragma GCC unroll 8
        for (int j = 0; j < n; j++) {
            int at = 8 * i + n * g + j;
            __m512i w0 = _mm512_load_si512(t->u[at][0]), w1 = _mm512_load_si512(t->u[at][1]);
#pragma GCC unroll 6
            for (int c = 0; c < nc; c++) {
                __m512i x = broadcast_4(col[c].q + 4 * at);
                p[0][c] = _mm512_dpbusd_epi32(p[0][c], w0, x);
                p[1][c] = _mm512_dpbusd_epi32(p[1][c], w1, x);
            }
        }
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            __m512 dw = _mm512_load_ps(t->dw[i] + 16 * half), second = _mm512_load_ps(t->second[i] + 16 * half);
#pragma GCC unroll 6
            for (int c = 0; c < nc; c++) {
                __m512 s = _mm512_cvtepi32_ps(p[half][c]);
                v[half][c] = g == 0 ? _mm512_mul_ps(dw, s) : _mm512_fmadd_ps(second, s, v[half][c]);
                if (step == STEP_MIN) v[half][c] = _mm512_fmadd_ps(second, _mm512_set1_ps(col[c].sum[i]), v[half][c]);
            }
        }
    }
#pragma GCC unroll 6
    for (int c = 0; c < nc; c++) {
        __m512 d = _mm512_set1_ps(col[c].d[i]);
        acc[0][c] = _mm512_fmadd_ps(d, v[0][c], acc[0][c]);
        acc[1][c] = _mm512_fmadd_ps(d, v[1][c], acc[1][c]);
    }
}

/* The accumulators before (none: 0) and after a tile; floats between columns. */
struct sums {
    const float *from;
    float *to;
    size_t ld_from, ld_to;
    __mmask16 some;
};

/* One tile times nc columns; the accumulators stay in registers for its 8 pieces. */
ALWAYS_INLINE void tile_columns(int nc, enum step step, const struct tile32 *t, const struct column *col, int nb,
                                struct ahead *ahead, const struct sums *a)
{
    __m512 acc[2][TILE_COLS];
#pragma GCC unroll 6
    for (int c = 0; c < nc; c++) {
        acc[0][c] = _mm512_maskz_loadu_ps(a->some, a->from + (size_t)c * a->ld_from);
        acc[1][c] = _mm512_maskz_loadu_ps(a->some, a->from + (size_t)c * a->ld_from + 16);
    }
    for (int i = 0; i < nb; i++) {
        ahead_step(ahead);
        piece_columns(nc, step, t, col, i, acc);
    }
#pragma GCC unroll 6
    for (int c = 0; c < nc; c++) {
        _mm512_storeu_ps(a->to + (size_t)c * a->ld_to, acc[0][c]);
        _mm512_storeu_ps(a->to + (size_t)c * a->ld_to + 16, acc[1][c]);
    }
}

typedef void columns_fn(const struct tile32 *t, const struct column *col, int nb, struct ahead *a,
                        const struct sums *s);

#define COLUMNS(nc, step)                                                                                              \
    static void columns_##nc##_##step(const struct tile32 *t, const struct column *c, int nb, struct ahead *a,         \
                                      const struct sums *s)                                                            \
    {                                                                                                                  \
        tile_columns(nc, step, t, c, nb, a, s);                                                                        \
    }
#define COLUMNS_EACH(nc) COLUMNS(nc, STEP_PLAIN) COLUMNS(nc, STEP_MIN) COLUMNS(nc, STEP_HALVES)
COLUMNS_EACH(1)
COLUMNS_EACH(2)
COLUMNS_EACH(3)
COLUMNS_EACH(4)
COLUMNS_EACH(5)
COLUMNS_EACH(6)

#define COLUMNS_ROW(nc)                                                                                                \
    {                                                                                                                  \
        columns_##nc##_STEP_PLAIN, columns_##nc##_STEP_MIN, columns_##nc##_STEP_HALVES                                 \
    }
static columns_fn *const columns_table[TILE_COLS][3] = {COLUMNS_ROW(1), COLUMNS_ROW(2), COLUMNS_ROW(3),
                                                        COLUMNS_ROW(4), COLUMNS_ROW(5), COLUMNS_ROW(6)};

/* The tile in m, of the rows from r0 on, which is pieces b .. b + nb, times the columns c0 .. c0 + n. If it has all
 * rows, the results of the last tile go to y at once. */
static void many_pieces(const struct gemm *g, enum step step, int offset, struct many *m, int r0, int b, int nb, int c0,
                        int n, struct ahead *ahead)
{
    const bool last = g->n_rows - r0 >= TILE_ROWS && b + nb == g->k / 32;
    struct sums s = {.from = m->acc,
                     .to = last ? g->y + (size_t)c0 * g->ld_y + r0 : m->acc,
                     .ld_from = TILE_ROWS,
                     .ld_to = last ? g->ld_y : TILE_ROWS,
                     .some = b > 0 ? 0xffff : 0};
    int nc;
    for (int c = 0; c < n; c += nc) {
        struct column col[TILE_COLS];
        nc = tile_group(n - c);
        for (int j = 0; j < nc; j++) {
            struct act_q32 x = act_q32_at(gemm_x(g, c0 + c + j), g->k);
            column_prepare(step == STEP_HALVES, offset, x, b, nb, &col[j]);
        }
        if (last && n - c >= 3 * TILE_COLS) tile_prefetch(s.to + 2 * (size_t)nc * g->ld_y, g->ld_y, nc);
        columns_table[nc - 1][step](&m->tile, col, nb, ahead, &s);
        s.from += (size_t)nc * s.ld_from;
        s.to += (size_t)nc * s.ld_to;
    }
}

ALWAYS_INLINE void many_columns(enum dtype type, const struct gemm *g, struct many *m)
{
    const struct format32 F = format32_of(type);
    const enum step step = F.min ? STEP_MIN : F.halves ? STEP_HALVES : STEP_PLAIN;
    const int n_blocks = g->k / 32;
    for (int r0 = 0; r0 < g->n_rows; r0 += TILE_ROWS) {
        const uint8_t *row[TILE_ROWS];
        tile_rows(g, r0, row);
        for (int c0 = 0; c0 < g->n_cols; c0 += TILE_MAX_COLS) {
            int n = g->n_cols - c0 < TILE_MAX_COLS ? g->n_cols - c0 : TILE_MAX_COLS;
            const int steps = (n + TILE_COLS - 1) / TILE_COLS * TILE_PIECES;
            for (int b = 0; b < n_blocks; b += TILE_PIECES) {
                int nb = n_blocks - b < TILE_PIECES ? n_blocks - b : TILE_PIECES;
                struct ahead ahead = ahead_of(g, r0, row, b / TILE_PIECES, (n_blocks + TILE_PIECES - 1) / TILE_PIECES,
                                              TILE_PIECES / F.pieces * F.bytes);
                tile32_load(type, false, row, b, nb, &ahead, m->bytes, &m->tile);
                ahead_rest(&ahead, steps);
                many_pieces(g, step, F.offset, m, r0, b, nb, c0, n, &ahead);
            }
            if (g->n_rows - r0 < TILE_ROWS) tile_store(g, r0, c0, n, m->acc);
        }
    }
}

/* ---- one function a type ---- */

DTYPES_B32(AVX512_GEMM)
DTYPES_B32_HALVES(AVX512_GEMM)

static gemm_fn *const by_type[DT_N] = {DTYPES_B32(AVX512_GEMM_ENTRY) DTYPES_B32_HALVES(AVX512_GEMM_ENTRY)};

gemm_fn *avx512_gemm_b32(enum dtype t) { return by_type[t]; }

void avx512_init_gemm_b32(struct kernels *k)
{
    for (int t = 0; t < DT_N; t++)
        if (by_type[t]) k->gemm[t] = by_type[t];
}
