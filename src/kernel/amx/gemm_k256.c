/* SPDX-License-Identifier: MIT
 *
 * gemm_k256.c: products of the 256-element block types with several columns, AMX.
 *
 * Of each block the rows of a pass (pass.h) are unpacked once (planes.h), then meet all columns, 16 at a time: tile
 * products into a small buffer, and from there the contract's two float steps (docs/KERNELS.md section 2) in
 * ordinary registers. Fewer than MIN_COLS columns stay with AVX-512: tiles have little to share there.
 */
#include <assert.h>

#include "kernel/amx/amx.h"
#include "kernel/amx/pass.h"
#include "kernel/amx/planes.h"
#include "kernel/avx512vbmi/avx512vbmi.h"

#define MIN_COLS 8

/* The numbers of columns and blocks that the float steps need. For few columns they are made for all blocks at once and
 * serve every pass; for many they are made again for each block of each pass of PASS_TILES tiles. */
#define MAX_SUMS 2048 /* columns times blocks */
static_assert(MAX_SUMS >= PASS_MAX_COLS, "one block of a pass");
struct sums {
    _Alignas(64) uint32_t pair[MAX_SUMS * 8]; /* [column of a block][group]: its sum as two bf16 */
    float d[MAX_SUMS];
};

/* The sums of a group of columns and a tile. */
struct product {
    _Alignas(64) int32_t s[4 * TMM_SUMS]; /* [half][plane][TMM_COLS][16]; with one plane two parts of its sum */
    float min[2 * TMM_SUMS];              /* [half][TMM_COLS][16]: minimums times sums, integers */
};

struct many {
    struct planes tile[PASS_TILES];
    struct unpacking unpacking;
    struct sums sums;
    _Alignas(64) int8_t gathered[TMM_COLS * TILE_K];
    struct product product[2]; /* taking turns */
    _Alignas(64) float acc[PASS_TILES][PASS_MAX_COLS * TILE_ROWS];
};
static_assert(sizeof(struct many) <= KERNEL_SCRATCH_BYTES, "scratch");

ALWAYS_INLINE int n_pairs_of(enum dtype type) { return format256_of(type).min ? 256 / format256_of(type).group : 0; }

ALWAYS_INLINE bool few_columns(enum dtype type, const struct gemm *g, int n)
{
    return n * (g->k / 256) * (n_pairs_of(type) > 8 ? 2 : 1) <= MAX_SUMS;
}

/* Columns c0 .. c0 + n of block b, into the sums from `first` on. */
ALWAYS_INLINE void sums_load(enum dtype type, const struct gemm *g, int b, int c0, int n, struct sums *s, int first)
{
    const struct format256 F = format256_of(type);
    const __mmask16 all = first_lanes(n_pairs_of(type));
    for (int c = 0; c < n; c++) {
        const struct act_q256 x = act_q256_at(gemm_x(g, c0 + c), g->k);
        s->d[first + c] = x.d[b];
        if (!F.min) continue;
        __m256i words = _mm256_loadu_si256((const void *)(x.bsum + 16 * (size_t)b));
        __m512i sum = F.group == 32 ? _mm512_castsi256_si512(_mm256_madd_epi16(words, _mm256_set1_epi16(1)))
                                    : _mm512_cvtepi16_epi32(words);
        /* |sum| <= 32 * 127: seven bits times 32, and the rest */
        __m512i high = _mm512_slli_epi32(_mm512_srai_epi32(_mm512_add_epi32(sum, _mm512_set1_epi32(16)), 5), 5);
        __m512i low = _mm512_sub_epi32(sum, high);
        __m512i pair =
            tmm_bf16_pair(_mm512_castps_si512(_mm512_cvtepi32_ps(high)), _mm512_castps_si512(_mm512_cvtepi32_ps(low)));
        _mm512_mask_storeu_epi32(s->pair + (first + c) * n_pairs_of(type), all, pair);
    }
}

/* Products that wait for their float steps: of one tile and the columns from `first` of the pass on. */
struct waiting {
    const struct planes *tile;
    const struct product *p;
    const float *d; /* of the same columns */
    float *acc;     /* [columns][TILE_ROWS] */
};

/* The float steps for columns from .. to of them. */
ALWAYS_INLINE void finish(enum dtype type, const struct waiting *v, int from, int to)
{
    const bool has_min = format256_of(type).min;
    const unsigned shift = (unsigned)split_shift(split_of(type));
    __m512 dw[2], dmin[2];
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        dw[half] = _mm512_load_ps(v->tile->dw + 16 * half);
        dmin[half] = _mm512_load_ps(v->tile->dmin + 16 * half);
    }
    for (int c = from; c < to; c++) {
        const __m512 d = _mm512_set1_ps(v->d[c]);
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            float *acc = v->acc + c * TILE_ROWS + 16 * half;
            __m512i s = _mm512_load_si512(v->p->s + 2 * half * TMM_SUMS + 16 * c);
            __m512i high = _mm512_load_si512(v->p->s + (2 * half + 1) * TMM_SUMS + 16 * c);
            s = _mm512_add_epi32(s, _mm512_slli_epi32(high, shift));
            __m512 t = _mm512_mul_ps(dw[half], _mm512_cvtepi32_ps(s));
            if (has_min) t = _mm512_fnmadd_ps(dmin[half], _mm512_load_ps(v->p->min + half * TMM_SUMS + 16 * c), t);
            _mm512_store_ps(acc, _mm512_fmadd_ps(d, t, _mm512_load_ps(acc)));
        }
    }
}

/* A group of columns at x, as many as the tile registers are set up for, with their pairs of sums times a tile.
 * Meanwhile, between the tile products, which leave the vector units idle, the float steps of the n_before columns of
 * the group before, if any. */
ALWAYS_INLINE void group(enum dtype type, const struct planes *p, const int8_t *x, size_t ld_x, const uint32_t *pair,
                         struct product *out, const struct waiting *before, int n_before)
{
    const enum split split = split_of(type);
    const int n_pairs = n_pairs_of(type);
    if (n_pairs) tmm_bf16(pair, 4 * (size_t)n_pairs, p->min[0][0], p->min[1][0], out->min);
    tmm_zero();
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const uint8_t *const w[4] = {p->w[0][0][16 * i], p->w[1][0][16 * i], p->w[0][1][16 * i], p->w[1][1][16 * i]};
        if (split == SPLIT_NONE)
            tmm_multiply_one(i % 2, x + 64 * i, ld_x, w[0], w[2]);
        else
            tmm_multiply_two(x + 64 * i, ld_x, w, split == SPLIT_BYTES);
        if (before) finish(type, before, i * n_before / 4, (i + 1) * n_before / 4);
    }
    tmm_store(out->s);
}

/* One tile times the columns c0 .. c0 + n of block b, n_group at a time, whose sums are those from first_sum on, into
 * acc. */
ALWAYS_INLINE void tile_columns(enum dtype type, const struct gemm *g, const struct planes *p, struct many *m, int b,
                                int c0, int n, int n_group, int first_sum, struct ahead *ahead, float *acc)
{
    const size_t at = 256 * (size_t)b;
    const uint32_t *pair = m->sums.pair + first_sum * n_pairs_of(type);
    const float *d = m->sums.d + first_sum;
    struct waiting before = {.tile = NULL};
    int c = 0, turn = 0;
    for (; c + n_group <= n; c += n_group, turn ^= 1) {
        const struct spread x = spread_at(g, c0 + c, n_group, at, TILE_K, m->gathered);
        struct product *out = &m->product[turn];
        ahead_step(ahead);
        if (before.tile)
            group(type, p, x.x, x.ld, pair + c * n_pairs_of(type), out, &before, n_group);
        else
            group(type, p, x.x, x.ld, pair + c * n_pairs_of(type), out, NULL, 0);
        before = (struct waiting){p, out, d + c, acc + c * TILE_ROWS};
    }
    finish(type, &before, 0, n_group);
    if (c == n) return;
    /* The last group is shorter, but the tiles are not: it starts earlier, and what it repeats is not used. */
    const int first = n - n_group;
    const struct waiting rest = {p, &m->product[0], d + first, acc + first * TILE_ROWS};
    const struct spread x = spread_at(g, c0 + first, n_group, at, TILE_K, m->gathered);
    ahead_step(ahead);
    group(type, p, x.x, x.ld, pair + first * n_pairs_of(type), &m->product[0], NULL, 0);
    finish(type, &rest, c - first, n_group);
}

/* Rows r0 .. r0 + 32 * n_tiles (those beyond the matrix repeat its last) times columns c0 .. c0 + n. */
ALWAYS_INLINE void pass(enum dtype type, const struct gemm *g, int r0, int n_tiles, int c0, int n, struct many *m)
{
    const struct format256 F = format256_of(type);
    const int n_blocks = g->k / 256;
    const uint8_t *row[PASS_TILES][TILE_ROWS];
    for (int i = 0; i < n_tiles; i++) {
        tile_rows(g, r0 + i * TILE_ROWS, row[i]);
        memset(m->acc[i], 0, sizeof(float) * TILE_ROWS * (size_t)n);
    }
    const bool few = few_columns(type, g, n);
    for (int b = 0; few && r0 == 0 && b < n_blocks; b++) sums_load(type, g, b, c0, n, &m->sums, b * n);
    for (int b = 0; b < n_blocks; b++) {
        if (!few) sums_load(type, g, b, c0, n, &m->sums, 0);
        for (int i = 0; i < n_tiles; i++) {
            struct ahead ahead = ahead_in_pass(g, r0, row, n_tiles, i, b, n_blocks, F.bytes);
            planes_load(type, row[i], b, &ahead, &m->unpacking, &m->tile[i]);
            ahead_rest(&ahead, (n + TMM_COLS - 1) / TMM_COLS);
            const int first_sum = few ? b * n : 0;
            if (group_columns(n) == TMM_COLS) /* a constant lets the compiler unroll */
                tile_columns(type, g, &m->tile[i], m, b, c0, n, TMM_COLS, first_sum, &ahead, m->acc[i]);
            else
                tile_columns(type, g, &m->tile[i], m, b, c0, n, group_columns(n), first_sum, &ahead, m->acc[i]);
        }
    }
    for (int i = 0; i < n_tiles; i++) tile_store(g, r0 + i * TILE_ROWS, c0, n, m->acc[i]);
}

/* ---- one function a type ---- */

#define GEMM(ID, name, ...)                                                                                            \
    static void pass_##name(const struct gemm *g, int r0, int n_tiles, int c0, int n, void *scratch)                   \
    {                                                                                                                  \
        pass(DT_##ID, g, r0, n_tiles, c0, n, scratch);                                                                 \
    }                                                                                                                  \
    static void gemm_##name(const struct gemm *g, void *scratch)                                                       \
    {                                                                                                                  \
        if (g->n_cols < MIN_COLS)                                                                                      \
            avx512vbmi_gemm_k256(DT_##ID)(g, scratch);                                                                 \
        else                                                                                                           \
            passes(g, 64, n_pairs_of(DT_##ID), few_columns(DT_##ID, g, g->n_cols) ? 1 : PASS_TILES, group_columns,     \
                   pass_##name, scratch);                                                                              \
    }
#define ENTRY(ID, name, ...) k->gemm[DT_##ID] = gemm_##name;

DTYPES_K256(GEMM)

void amx_init_gemm_k256(struct kernels *k) { DTYPES_K256(ENTRY) }
