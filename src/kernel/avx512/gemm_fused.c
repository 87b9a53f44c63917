/* SPDX-License-Identifier: MIT
 *
 * gemm_fused.c: products of Q4_K, Q5_K and Q6_K with a few columns, AVX-512 with VNNI.
 *
 * With few columns, to unpack a block takes as long as to multiply it, and both take as long as to read it. Two things
 * bound the computing: the two units that multiply, and stores. A store takes as long as two products (Zen 5: a product
 * reads its third operand through the port of stores).
 *
 * A tile is a block of 32 rows with lane = row, as in tile.h. Q4_K stays packed in it, which halves its stores: nibbles
 * become codes in registers, once for each group of columns, by units that do not multiply. A step multiplies two
 * groups of elements with up to 4 columns. Its 16 sums of products and 8 of scaled products are all in registers. Where
 * the products' sums fit 16 bits, one vpdpwssd multiplies those of both groups with their scales.
 *
 * The next 32 rows are prefetched meanwhile in the order in which they lie in memory, a line or a few between the
 * products of two dwords. Of many lines at once, the processor drops those that find no free buffer.
 *
 * The integers are exact in any order; the float steps are those of docs/KERNELS.md section 2.
 */
#include <assert.h>

#include "kernel/avx512/gemm_fused.h"
#include "kernel/avx512/unpack_rows.h"

#define GROUP_COLS 4  /* columns that are multiplied together */
#define MAX_COLS   64 /* in all */

/* What a type's blocks are made of. */
struct form {
    int bytes;    /* of a block */
    int n_steps;  /* pairs of groups */
    int dwords;   /* of a group */
    int max_code; /* the largest magnitude */
    int max_cols; /* on Intel's processors: avx512_fused_takes() */
    bool has_min;
};

ALWAYS_INLINE struct form form_of(enum dtype t)
{
    switch (t) {
    case DT_Q4_K:
        return (struct form){.bytes = 144, .n_steps = 4, .dwords = 8, .max_code = 15, .max_cols = 8, .has_min = true};
    case DT_Q5_K:
        return (struct form){.bytes = 176, .n_steps = 4, .dwords = 8, .max_code = 31, .max_cols = 16, .has_min = true};
    default:
        return (struct form){.bytes = 210, .n_steps = 8, .dwords = 4, .max_code = 32, .max_cols = 16, .has_min = false};
    }
}

/* Lane = row; [0] for the first 16 rows, [1] for the others. */
typedef __m512i both[2];

/* A block of 32 rows. */
struct tile {
    both v[64];    /* codes, four elements to a lane; Q4_K: packed as stored, eight to a lane */
    both scale[8]; /* of the two groups of a step, 16 bits each */
    both min[4];   /* likewise */
    __m512 d[2], dmin[2];
};

/* A block of a column, next to its q. */
struct column {
    int32_t sums[16]; /* of q over the two groups of a step, 16 bits each; Q6_K: over one, times its offset of -32 */
    float d;
    bool narrow; /* no sum of code * q over a group can leave 16 bits */
};

struct fused {
    struct tile tile;
    _Alignas(64) float acc[MAX_COLS][TILE_ROWS];
    struct column x[]; /* [block][column] */
};

#define MAX_OPERANDS ((KERNEL_SCRATCH_BYTES - sizeof(struct fused)) / sizeof(struct column))

/* ---- activations ---- */

/* With codes that are never negative the positive and the negative q bound a group's sum separately:
 * (sum |q| +- sum q) / 2. */
static void column_load(enum dtype t, const struct act_q256 *x, size_t b, struct column *c)
{
    __m256i sums = _mm256_loadu_si256((const void *)(x->bsum + 16 * b));
    int bound = x->asum[b];
    if (t == DT_Q6_K) {
        __m512i v = _mm512_slli_epi32(_mm512_cvtepi16_epi32(sums), 5);
        _mm512_storeu_si512(c->sums, _mm512_sub_epi32(_mm512_setzero_si512(), v));
    } else {
        __m128i pairs = _mm256_cvtepi32_epi16(_mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
        __m128i low = _mm_minpos_epu16(_mm_sub_epi16(_mm_set1_epi16(-1), _mm_abs_epi16(pairs)));
        _mm_storeu_si128((void *)c->sums, pairs);
        bound = (2 * bound + (0xffff - _mm_extract_epi16(low, 0)) + 1) / 2;
    }
    c->narrow = bound * form_of(t).max_code <= INT16_MAX;
    c->d = x->d[b];
}

static void columns_load(enum dtype t, const struct gemm *g, struct column *to)
{
    const size_t n_blocks = (size_t)g->k / 256, n = (size_t)g->n_cols;
    for (size_t c = 0; c < n; c++) {
        const struct act_q256 x = act_q256_at(gemm_x(g, (int)c), g->k);
        for (size_t b = 0; b < n_blocks; b++) column_load(t, &x, b, to + b * n + c);
    }
}

/* ---- weights ---- */

/* 32 bytes of rows r and r + 4. */
ALWAYS_INLINE __m512i load_two(const uint8_t *w, size_t ld, size_t r)
{
    __m512i low = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)(w + r * ld)));
    return _mm512_inserti64x4(low, _mm256_loadu_si256((const void *)(w + (r + 4) * ld)), 1);
}

/* The 32 bytes at w of 16 rows: v[i][half] = dword i of all of them. That is half the loads of transpose_rows(), which
 * takes 16 bytes: loads are scarce here. */
ALWAYS_INLINE void piece_transpose(const uint8_t *w, size_t ld, int half, both v[8])
{
    __m512i a[4], b[4];
    transpose_quads(load_two(w, ld, 0), load_two(w, ld, 1), load_two(w, ld, 2), load_two(w, ld, 3), a);
    transpose_quads(load_two(w, ld, 8), load_two(w, ld, 9), load_two(w, ld, 10), load_two(w, ld, 11), b);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        v[i][half] = _mm512_shuffle_i32x4(a[i], b[i], 0x88);
        v[4 + i][half] = _mm512_shuffle_i32x4(a[i], b[i], 0xdd);
    }
}

/* The codes of the blocks at byte `at` of 32 rows. */
ALWAYS_INLINE void load_codes(enum dtype t, const uint8_t *const row[TILE_ROWS], size_t at, size_t ld,
                              struct ahead *ahead, struct tile *to)
{
#pragma GCC unroll 1
    for (int half = 0; half < 2; half++) {
        if (t != DT_Q4_K) {
            rows_block256(t, row + 16 * half, at, half, put_codes, to->v, ahead);
            continue;
        }
#pragma GCC unroll 1
        for (size_t i = 0; i < 4; i++) {
            ahead_step(ahead);
            ahead_step(ahead);
            piece_transpose(row[16 * half] + at + 16 + 32 * i, ld, half, to->v + 8 * i);
        }
    }
}

/* Bytes 0 and 1, or 2 and 3, of each dword as words. */
ALWAYS_INLINE __m512i words_of(__m512i v, int i, bool is_signed)
{
    const __m512i first =
        _mm512_broadcast_i32x4(_mm_setr_epi8(-1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13));
    const __m512i second =
        _mm512_broadcast_i32x4(_mm_setr_epi8(-1, 2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15));
    v = _mm512_shuffle_epi8(v, i ? second : first);
    return is_signed ? _mm512_srai_epi16(v, 8) : _mm512_srli_epi16(v, 8);
}

/* Scales and minimums of the blocks at byte `at` of 32 rows. */
ALWAYS_INLINE void load_heads(enum dtype t, const uint8_t *const row[TILE_ROWS], size_t at, struct tile *to)
{
#pragma GCC unroll 1
    for (int half = 0; half < 2; half++) {
        const struct row_scales v = rows_heads(t, row + 16 * half, at, NULL, &to->d[half], &to->dmin[half]);
#pragma GCC unroll 8
        for (int i = 0; i < form_of(t).n_steps; i++) {
            to->scale[i][half] = words_of(v.scale[i / 2], i % 2, t == DT_Q6_K);
            if (form_of(t).has_min) to->min[i][half] = words_of(v.min[i / 2], i % 2, false);
        }
    }
}

/* ---- products ---- */

/* A tile, and a group of columns. */
struct work {
    const struct tile *t;
    const int8_t *const *q; /* of the columns, */
    size_t at;              /* and where the block is in them */
    const struct column *x;
    float (*acc)[TILE_ROWS];
    bool narrow;      /* all columns */
    const char *line; /* what is prefetched next, */
    size_t line_step; /* how far the one after it is away, */
    int n_lines;      /* and how many of them for each dword */
};

/* The codes of dword i of the first or second group of a step, in half r of the rows. */
ALWAYS_INLINE __m512i codes_of(enum dtype t, const both *v, int second, int i, int r)
{
    const bool is_packed = t == DT_Q4_K;
    __m512i u = v[is_packed ? i : second * form_of(t).dwords + i][r];
    IN_REGISTER(u);
    if (!is_packed) return u;
    return second ? high_nibbles(u) : low_nibbles(u);
}

/* p[second][half of the rows][column] += codes . q of both groups of a step, which begin at q[column]. */
ALWAYS_INLINE void step_dots(enum dtype t, int nc, struct work *w, const int8_t *const q[GROUP_COLS], const both *v,
                             __m512i p[2][2][GROUP_COLS])
{
    const int dwords = form_of(t).dwords;
    const char *line = w->line;
#pragma GCC unroll 8
    for (int i = 0; i < dwords; i++) {
        for (int l = 0; l < w->n_lines; l++, line += w->line_step) _mm_prefetch(line, _MM_HINT_T1);
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++) {
            const __m512i u0 = codes_of(t, v, k, i, 0), u1 = codes_of(t, v, k, i, 1);
#pragma GCC unroll 4
            for (int c = 0; c < nc; c++) {
                __m512i x = broadcast_4(q[c] + 4 * (k * dwords + i));
                IN_REGISTER(x);
                p[k][0][c] = _mm512_dpbusd_epi32(p[k][0][c], u0, x);
                p[k][1][c] = _mm512_dpbusd_epi32(p[k][1][c], u1, x);
            }
        }
    }
    w->line = line;
}

/* s[half of the rows][column] += the scales of step i times p. */
ALWAYS_INLINE void step_scaled(int nc, bool narrow, const both scale, __m512i p[2][2][GROUP_COLS],
                               __m512i s[2][GROUP_COLS])
{
#pragma GCC unroll 2
    for (int r = 0; r < 2; r++) {
        __m512i low = scale[r], high = _mm512_srai_epi32(low, 16);
        IN_REGISTER(low);
        if (!narrow) low = _mm512_srai_epi32(_mm512_slli_epi32(low, 16), 16);
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++) {
            if (narrow) {
                __m512i v = _mm512_mask_mov_epi16(p[0][r][c], 0xaaaaaaaa, _mm512_slli_epi32(p[1][r][c], 16));
                s[r][c] = _mm512_dpwssd_epi32(s[r][c], v, low);
                IN_REGISTER(s[r][c]);
            } else {
                s[r][c] = _mm512_add_epi32(s[r][c], _mm512_mullo_epi32(p[0][r][c], low));
                s[r][c] = _mm512_add_epi32(s[r][c], _mm512_mullo_epi32(p[1][r][c], high));
            }
        }
    }
}

/* m[half of the rows][column] = the minimums times the sums of q. */
ALWAYS_INLINE void minimums(int nc, const struct work *w, __m512i m[2][GROUP_COLS])
{
#pragma GCC unroll 4
    for (int c = 0; c < nc; c++) m[0][c] = m[1][c] = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512i v0 = w->t->min[i][0], v1 = w->t->min[i][1];
        IN_REGISTER(v0);
        IN_REGISTER(v1);
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++) {
            __m512i x = _mm512_set1_epi32(w->x[c].sums[i]);
            IN_REGISTER(x);
            m[0][c] = _mm512_dpwssd_epi32(m[0][c], v0, x);
            m[1][c] = _mm512_dpwssd_epi32(m[1][c], v1, x);
        }
    }
}

/* The float steps of a block. */
ALWAYS_INLINE void finish(enum dtype t, int nc, const struct work *w, __m512i s[2][GROUP_COLS])
{
    const bool has_min = form_of(t).has_min;
    __m512i m[2][GROUP_COLS];
    if (has_min) minimums(nc, w, m);
#pragma GCC unroll 2
    for (int r = 0; r < 2; r++)
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++) {
            float *acc = w->acc[c] + 16 * r;
            __m512 v = _mm512_mul_ps(w->t->d[r], _mm512_cvtepi32_ps(s[r][c]));
            if (has_min) v = _mm512_fnmadd_ps(w->t->dmin[r], _mm512_cvtepi32_ps(m[r][c]), v);
            _mm512_store_ps(acc, _mm512_fmadd_ps(_mm512_set1_ps(w->x[c].d), v, _mm512_load_ps(acc)));
        }
}

/* A tile times nc columns. */
ALWAYS_INLINE void group_product(enum dtype t, int nc, struct work *w)
{
    const struct form F = form_of(t);
    const int8_t *q[GROUP_COLS];
    const both *v = w->t->v;
    __m512i s[2][GROUP_COLS];
#pragma GCC unroll 4
    for (int c = 0; c < nc; c++) {
        q[c] = w->q[c] + w->at;
        s[0][c] = s[1][c] = _mm512_setzero_si512();
    }
#pragma GCC unroll 1
    for (int i = 0; i < F.n_steps; i++) {
        __m512i p[2][2][GROUP_COLS];
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++)
#pragma GCC unroll 2
            for (int k = 0; k < 2; k++)
                p[k][0][c] = p[k][1][c] =
                    t == DT_Q6_K ? _mm512_set1_epi32(w->x[c].sums[2 * i + k]) : _mm512_setzero_si512();
        step_dots(t, nc, w, q, v, p);
        if (w->narrow)
            step_scaled(nc, true, w->t->scale[i], p, s);
        else
            step_scaled(nc, false, w->t->scale[i], p, s);
        v += t == DT_Q4_K ? F.dwords : 2 * F.dwords; /* both nibbles of a dword are used */
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++) q[c] += 8 * F.dwords;
    }
    finish(t, nc, w, s);
}

typedef void group_fn(struct work *w);

#define GROUP(t, nc)                                                                                                   \
    static void group_##t##_##nc(struct work *w) { group_product(DT_##t, nc, w); }
#define GROUPS(t) GROUP(t, 2) GROUP(t, 3) GROUP(t, 4)
GROUPS(Q4_K)
GROUPS(Q5_K)
GROUPS(Q6_K)

#define GROUPS_ROW(t)                                                                                                  \
    {                                                                                                                  \
        group_##t##_2, group_##t##_3, group_##t##_4                                                                    \
    }

/* [columns - 2] */
static group_fn *const groups[3][GROUP_COLS - 1] = {GROUPS_ROW(Q4_K), GROUPS_ROW(Q5_K), GROUPS_ROW(Q6_K)};

/* ---- all of it ---- */

/* How the rows after a tile are prefetched. */
struct plan {
    int unpack_lines; /* in each of the UNPACK_STEPS of a block */
    int n_lines;      /* for each dword that a group of columns is multiplied with, */
    size_t line_step; /* with so many bytes between them */
};

#define UNPACK_STEPS 16 /* calls of ahead_step() */
#define BLOCK_DWORDS 32 /* of packed or two of unpacked codes: the steps of a product */

/* Spreads the lines of a block evenly over the time, in cycles. */
static struct plan plan_of(enum dtype t, int n_cols)
{
    const int bytes = TILE_ROWS * form_of(t).bytes, unpack = t == DT_Q4_K ? 190 : 350, column = 77;
    const int n_groups = (n_cols + GROUP_COLS - 1) / GROUP_COLS;
    const int unpack_bytes = bytes * unpack / (unpack + column * n_cols);
    struct plan p = {.unpack_lines = (unpack_bytes + 32 * UNPACK_STEPS) / (64 * UNPACK_STEPS)};
    const int dword = (bytes - 64 * UNPACK_STEPS * p.unpack_lines) / (BLOCK_DWORDS * n_groups);
    p.n_lines = (dword + 63) / 64;
    p.line_step = p.n_lines ? (size_t)((dword + p.n_lines - 1) / p.n_lines) : 0;
    return p;
}

/* Whether the rows after the tile at r0 are prefetched: they are there, and rows follow each other. */
static bool is_ahead(enum dtype t, const struct gemm *g, int r0)
{
    return r0 + 2 * TILE_ROWS <= g->n_rows && g->ld_w == (size_t)g->k / 256 * (size_t)form_of(t).bytes;
}

/* The tile times all columns, in groups as equal as possible. One column whose sums do not fit 16 bits makes its group
 * take the wide way. */
ALWAYS_INLINE void tile_columns(enum dtype t, int n_cols, struct work w)
{
    const int n_groups = (n_cols + GROUP_COLS - 1) / GROUP_COLS, n_more = n_cols % n_groups;
    group_fn *const *fn = groups[t == DT_Q4_K ? 0 : t == DT_Q5_K ? 1 : 2];
    for (int i = 0; i < n_groups; i++) {
        const int nc = n_cols / n_groups + (i < n_more);
        w.narrow = true;
        for (int c = 0; c < nc; c++) w.narrow &= w.x[c].narrow;
        fn[nc - 2](&w);
        w.q += nc;
        w.x += nc;
        w.acc += nc;
    }
}

/* Rows r0 .. r0 + 32. */
ALWAYS_INLINE void rows_product(enum dtype t, const struct gemm *g, int r0, const int8_t *const *q, struct fused *f)
{
    const size_t bytes = (size_t)form_of(t).bytes, n_blocks = (size_t)g->k / 256;
    const struct plan p = is_ahead(t, g, r0) ? plan_of(t, g->n_cols) : (struct plan){0};
    const uint8_t *row[TILE_ROWS];
    tile_rows(g, r0, row);
    memset(f->acc, 0, sizeof *f->acc * (size_t)g->n_cols);
    for (size_t b = 0; b < n_blocks; b++) {
        struct ahead ahead = {.line = (const char *)row[0] + TILE_ROWS * (g->ld_w + b * bytes),
                              .unpack_lines = p.unpack_lines};
        for (int c = (int)b; c < g->n_cols; c += (int)n_blocks) tile_prefetch(g->y + (size_t)c * g->ld_y + r0, 0, 1);
        load_heads(t, row, b * bytes, &f->tile);
        load_codes(t, row, b * bytes, g->ld_w, &ahead, &f->tile);
        tile_columns(t, g->n_cols,
                     (struct work){.t = &f->tile,
                                   .q = q,
                                   .at = 256 * b,
                                   .x = f->x + b * (size_t)g->n_cols,
                                   .acc = f->acc,
                                   .line = ahead.line,
                                   .line_step = p.line_step,
                                   .n_lines = p.n_lines});
    }
    tile_store(g, r0, 0, g->n_cols, f->acc[0]);
}

/* The last tile takes rows again that the one before it had, so that there are 32. */
ALWAYS_INLINE void fused_product(enum dtype t, const struct gemm *g, struct fused *f)
{
    const int8_t *q[MAX_COLS];
    for (size_t i = 0; i < TILE_ROWS * g->ld_w; i += 64) _mm_prefetch((const char *)g->w + i, _MM_HINT_T1);
    for (int c = 0; c < g->n_cols; c++) q[c] = (const int8_t *)gemm_x(g, c);
    columns_load(t, g, f->x);
    for (int r0 = 0; r0 < g->n_rows; r0 += TILE_ROWS)
        rows_product(t, g, r0 + TILE_ROWS <= g->n_rows ? r0 : g->n_rows - TILE_ROWS, q, f);
}

void avx512_gemm_fused(enum dtype t, const struct gemm *g, void *scratch)
{
    assert(avx512_fused_can(t, g));
    if (t == DT_Q4_K)
        fused_product(DT_Q4_K, g, scratch);
    else if (t == DT_Q5_K)
        fused_product(DT_Q5_K, g, scratch);
    else
        fused_product(DT_Q6_K, g, scratch);
}

bool avx512_fused_can(enum dtype t, const struct gemm *g)
{
    return (t == DT_Q4_K || t == DT_Q5_K || t == DT_Q6_K) && g->n_rows >= TILE_ROWS && g->n_cols >= 2 &&
           g->n_cols <= MAX_COLS && (size_t)(g->k / 256) * (size_t)g->n_cols <= MAX_OPERANDS;
}

/* Intel's processors have two units for zmm registers. What makes codes of nibbles, or brings two groups' sums
 * together, takes their time from products, so with more columns the tiles of gemm_k256.c are faster. AMD's (Zen 5)
 * have other units for that, but a store takes as long as two products there, and the tiles have more stores. */
bool avx512_fused_takes(enum dtype t, const struct gemm *g)
{
    return avx512_fused_can(t, g) && (g->n_cols <= form_of(t).max_cols || __builtin_cpu_is("amd"));
}
