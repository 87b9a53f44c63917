/* SPDX-License-Identifier: MIT
 *
 * gemm_k256.c: products with the 256-element block types (K-quants, IQ, TQ), AVX-512 with VNNI.
 *
 * There are two kernels, chosen by the number of columns. Both keep the contract (docs/KERNELS.md section 2): its float
 * part is only t and the ascending chain of acc, because the integers inside a block are exact in any order.
 *
 *   one column    Memory is the limit: stream.h. Each block is unpacked in registers and multiplied with
 *                 the activations, the sums of 16 blocks are reduced together.
 *   more          The integer units are the limit: 32 rows x 256 are unpacked once to the order of
 *                 tile.h, and used for all columns of a panel. A panel is as much of the activations as
 *                 stays in the second-level cache while all rows pass: at most 128 columns, and only
 *                 a part of long rows; between parts the accumulators wait in y. It is copied, in the
 *                 order in which it is used.
 *
 * With one column, sums are packed to 16 bits before they meet the scales. They are sums of four products: 4 * 64 * 127
 * fits, and types with larger codes (IQ4_XS) multiply in 32 bits. Unsigned codes carry an offset, which is taken out
 * again as offset * (sum of scale * bsum), the same product that minimums need.
 *
 * With more, two neighbouring groups are multiplied together. A register of codes has eight rows, in 32-bit lanes that
 * belong to the one group and the other in turn, and so have the activations. What two such registers' products give
 * for 16 rows is packed to 16 bits, if the activations tell that it fits, and one vpdpwssd multiplies both groups' sums
 * with their scales and adds them. The sums start with what takes out the offset.
 */
#include <assert.h>

#include "kernel/avx512/avx512.h"
#include "kernel/avx512/gemm_fused.h"
#include "kernel/avx512/unpack_rows.h"
#include "kernel/avx512/stream.h"

/* ---- one column ---- */

#define SEGMENT 128 /* blocks of a row: k = 32768 */

struct one {
    float t[STREAM_ROWS * SEGMENT + 16];
    /* Activations of a segment, and their sums per group, the first 16 blocks repeated after the last: a
     * batch that goes on in the next row finds its own in one place, too. */
    _Alignas(64) int8_t q[(SEGMENT + STREAM_BATCH) * 256];
    int16_t bsum[(SEGMENT + STREAM_BATCH) * 16];
    struct heads256 heads;
    uint8_t copy[STREAM_COPY];
};
static_assert(sizeof(struct one) <= KERNEL_SCRATCH_BYTES, "scratch");

/* Takes a segment of the activations to scratch. */
ALWAYS_INLINE void one_activations(int group, struct act_q256 x, int b0, int nb, struct one *o)
{
    for (int b = 0; b < nb + STREAM_BATCH; b++) {
        size_t from = (size_t)(b0 + b % nb);
        __m256i v = _mm256_loadu_si256((const void *)(x.bsum + 16 * from));
        memcpy(o->q + 256 * b, x.q + 256 * from, 256);
        if (group == 16)
            _mm256_storeu_si256((void *)(o->bsum + 16 * b), v);
        else
            _mm_storeu_si128((void *)(o->bsum + 8 * b),
                             _mm256_cvtepi32_epi16(_mm256_madd_epi16(v, _mm256_set1_epi16(1))));
    }
}

/* lane i = sum over groups of bytes[i][group] * bsum[i][group] for 16 blocks. */
ALWAYS_INLINE __m512i one_dot(int group, bool is_signed, const uint8_t *bytes, const int16_t *bsum)
{
    __m512i v[8];
    const int n = group == 16 ? 8 : 4; /* registers of 32 products */
    for (int i = 0; i < n; i++) {
        __m256i b = _mm256_loadu_si256((const void *)(bytes + 32 * i));
        __m512i w = is_signed ? _mm512_cvtepi8_epi16(b) : _mm512_cvtepu8_epi16(b);
        v[i] = _mm512_madd_epi16(w, _mm512_loadu_si512(bsum + 32 * i));
    }
    return group == 16 ? reduce_halves(v) : reduce_quarters(v);
}

/* Scale bytes (16, or 8 twice) to the lanes of the sums. A dot product's 128-bit lane l of register i is
 * the group 4 i + l of 16 elements. In 16 bits: s[0] for the packed pair of registers 0 and 1 (in each
 * lane four sums of the one, then four of the other), s[1] for 2 and 3. In 32 bits: s[i] for register i.
 * The shuffle indices are constants; a signed byte goes to the top of its field and is shifted down. */
ALWAYS_INLINE void one_scales(int group, bool is_signed, bool wide, const uint8_t *scale, __m512i s[4])
{
    __m512i all = group == 16 ? _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)scale))
                              : _mm512_set1_epi64((long long)get_u64(scale));
    for (int i = 0; i < (wide ? 4 : 2); i++) {
        uint8_t index[64];
        for (int j = 0; j < 64; j++) {
            int size = wide ? 4 : 2, lane = j / 16, reg = wide ? i : 2 * i + j % 16 / 8;
            int g = 4 * reg + lane; /* of 16 elements: four registers of four lanes */
            int at = is_signed ? size - 1 : 0;
            index[j] = j % size == at ? (uint8_t)(group == 16 ? g : g / 2) : 0x80;
        }
        s[i] = _mm512_shuffle_epi8(all, _mm512_loadu_si512(index));
        if (is_signed) s[i] = wide ? _mm512_srai_epi32(s[i], 24) : _mm512_srai_epi16(s[i], 8);
    }
}

/* 16 partial sums of scale * code * q over one block. Each dword of p is four products; where they are not `wide`,
 * they are below 2^15, and packing with saturation loses nothing. */
ALWAYS_INLINE __m512i one_block(bool wide, const struct codes256 *c, const __m512i s[4], const int8_t *q)
{
    __m512i p[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512i x = _mm512_loadu_si512(q + 64 * i);
        p[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), c->u[i], x);
    }
    if (wide) {
        __m512i a = _mm512_add_epi32(_mm512_mullo_epi32(p[0], s[0]), _mm512_mullo_epi32(p[1], s[1]));
        __m512i b = _mm512_add_epi32(_mm512_mullo_epi32(p[2], s[2]), _mm512_mullo_epi32(p[3], s[3]));
        return _mm512_add_epi32(a, b);
    }
    __m512i a = _mm512_madd_epi16(_mm512_packs_epi32(p[0], p[1]), s[0]);
    return _mm512_dpwssd_epi32(a, _mm512_packs_epi32(p[2], p[3]), s[1]);
}

/* The t of 16 blocks that lie at w; b is the number of the first in its row. */
ALWAYS_INLINE __m512 one_batch(enum dtype type, const uint8_t *w, int b, struct one *o)
{
    const struct format256 F = format256_of(type);
    const bool wide = 4 * F.max_u * 127 > INT16_MAX; /* four products leave 16 bits */
    const int n_groups = 256 / F.group;
    const int16_t *bsum = o->bsum + n_groups * b;
    struct heads256 *h = &o->heads;
    __m512i sum[16];
    for (int i = 0; i < 16; i++) head256(type, w + i * F.bytes, i, h);
        /* a loop that is not unrolled: the body is 60 to 100 instructions, and the scales it reads were
         * stored long enough ago not to stall it */
#pragma GCC unroll 1
    for (int i = 0; i < 16; i++) {
        struct codes256 c;
        __m512i s[4];
        prefetch_stream(w + i * F.bytes, (size_t)F.bytes);
        unpack256(type, w + i * F.bytes, &c);
        one_scales(F.group, F.signed_scale, wide, h->scale + n_groups * i, s);
        sum[i] = one_block(wide, &c, s, o->q + 256 * (b + i));
    }
    __m512 dw = _mm512_mul_ps(load_f16x16(h->d), _mm512_set1_ps(F.dw_factor));
    __m512i s = reduce_16(sum);
    if (F.offset) {
        __m512i shift = one_dot(F.group, F.signed_scale, h->scale, bsum);
        s = _mm512_sub_epi32(s, _mm512_mullo_epi32(shift, _mm512_set1_epi32(F.offset)));
    }
    __m512 t = _mm512_mul_ps(dw, _mm512_cvtepi32_ps(s));
    if (!F.min) return t;
    __m512i m = one_dot(F.group, false, h->min, bsum);
    return _mm512_fnmadd_ps(load_f16x16(h->dmin), _mm512_cvtepi32_ps(m), t);
}

ALWAYS_INLINE void one_column(enum dtype type, const struct gemm *g, struct one *o)
{
    const struct format256 F = format256_of(type);
    const struct act_q256 x = act_q256_at(gemm_x(g, 0), g->k);
    const int n_blocks = g->k / 256;
    for (int r0 = 0; r0 < g->n_rows; r0 += STREAM_ROWS) {
        struct stream s = {.ld_w = g->ld_w, .bytes = F.bytes, .pieces = 1};
        __m512 acc = _mm512_setzero_ps();
        s.n_rows = g->n_rows - r0 < STREAM_ROWS ? g->n_rows - r0 : STREAM_ROWS;
        for (int b0 = 0; b0 < n_blocks; b0 += SEGMENT) {
            s.nb = n_blocks - b0 < SEGMENT ? n_blocks - b0 : SEGMENT;
            s.w = g->w + (size_t)r0 * g->ld_w + stream_bytes(&s, b0);
            if (r0 == 0 || n_blocks > SEGMENT) one_activations(F.group, x, b0, s.nb, o);
            for (int i = 0; i < s.n_rows * s.nb; i += STREAM_BATCH)
                _mm512_storeu_ps(o->t + i, one_batch(type, stream_batch(&s, i, o->copy), i % s.nb, o));
            acc = stream_chain(o->t, x.d + b0, s.nb, acc);
        }
        _mm512_mask_storeu_ps(g->y + r0, first_lanes(s.n_rows), acc);
    }
}

/* ---- many columns ---- */

#define GROUP_COLS 4   /* columns in registers at once */
#define PANEL_COLS 128 /* columns with accumulators in scratch */
/* Up to so many columns wait for memory: then the next rows are prefetched as one stream, if they, the rows in use and
 * the activations leave room in L2. */
#define STREAM_COLS  8
#define STREAM_BYTES (512u << 10)
#define PANEL_BLOCKS 1024 /* blocks of activations that are used for all rows in turn */

struct tile256 {
    _Alignas(64) tile_codes u;                 /* two groups in turn */
    _Alignas(64) uint32_t scale[8][TILE_ROWS]; /* of two neighbouring groups, of 16 or 32: a dword per row */
    _Alignas(64) uint32_t min[8][TILE_ROWS];   /* two neighbouring groups' minimums */
    _Alignas(64) float dw[TILE_ROWS], dmin[TILE_ROWS];
};

/* A block of one column's activations. */
struct operand {
    int8_t q[256]; /* four of an even group, then four of the next group, in turn */
    union {
        int16_t sum[16];   /* types with minimums: sums of q over the groups; */
        int32_t start[16]; /* others: -offset times these */
    };
};

struct column {
    float d;
    bool narrow; /* no sum of code * q over a group can leave 16 bits */
};

struct many {
    struct tile256 tile;
    _Alignas(64) uint8_t bytes[TILE_ROWS * TILE_K];
    struct heads256 heads;
    _Alignas(64) struct operand x[PANEL_BLOCKS]; /* [block][column] */
    struct column column[PANEL_BLOCKS];
    _Alignas(64) float acc[PANEL_COLS][TILE_ROWS];
};
static_assert(sizeof(struct many) <= KERNEL_SCRATCH_BYTES, "scratch");

/* Bytes of 16 rows, four groups to a dword, to the pairs of 16-bit words that vpdpwssd multiplies. */
ALWAYS_INLINE void tile_pairs(const __m512i *v, int n_pairs, bool is_signed, int half, uint32_t (*to)[TILE_ROWS])
{
    const __m512i first =
        _mm512_broadcast_i32x4(_mm_setr_epi8(-1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13));
    const __m512i second =
        _mm512_broadcast_i32x4(_mm_setr_epi8(-1, 2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15));
#pragma GCC unroll 8
    for (int i = 0; i < n_pairs; i++) {
        __m512i w = _mm512_shuffle_epi8(v[i / 2], i % 2 ? second : first);
        w = is_signed ? _mm512_srai_epi16(w, 8) : _mm512_srli_epi16(w, 8);
        _mm512_store_si512(to[i] + 16 * half, w);
    }
}

ALWAYS_INLINE void tile_scales(const struct format256 F, const struct row_scales *v, int half, struct tile256 *t)
{
    tile_pairs(v->scale, 128 / F.group, F.signed_scale, half, t->scale);
    if (F.min) tile_pairs(v->min, 128 / F.group, false, half, t->min);
}

/* All but the codes of the blocks at byte `at` of 16 rows. */
ALWAYS_INLINE void tile_heads(enum dtype type, const uint8_t *const *row, size_t at, int half, struct heads256 *heads,
                              struct tile256 *t)
{
    const struct format256 F = format256_of(type);
    __m512 d, dmin;
    const struct row_scales v = rows_heads(type, row, at, heads, &d, &dmin);
    tile_scales(F, &v, half, t);
    _mm512_store_ps(t->dw + 16 * half, _mm512_mul_ps(d, _mm512_set1_ps(F.dw_factor)));
    _mm512_store_ps(t->dmin + 16 * half, dmin);
}

/* Puts the codes of an even group and of the next group, dword k4 and dword k4 + n, into 32-bit lanes in turn: those of
 * the first two of each four rows take the place of dword k4, the others that of dword k4 + n. */
ALWAYS_INLINE void put_in_turn(tile_codes u, int n, int k4, int half, __m512i even, __m512i odd)
{
    _mm512_store_si512(u[k4][half], _mm512_unpacklo_epi32(even, odd));
    _mm512_store_si512(u[k4 + n][half], _mm512_unpackhi_epi32(even, odd));
}

/* For types whose unpacking gives dword i of both groups, one after the other. */
struct two_groups {
    uint8_t (*u)[2][64];
    __m512i even;
};

/* A codes_put(). */
static inline void put_two_groups(void *to, int k4, int half, __m512i codes)
{
    struct two_groups *t = to;
    if (k4 % 16 < 8)
        t->even = codes;
    else
        put_in_turn(t->u, 8, k4 - 8, half, t->even, codes);
}

/* For the other types, after unpacking. */
ALWAYS_INLINE void tile_in_turn(int group, tile_codes u)
{
    const int n = group / 4;
    for (int k4 = 0; k4 < TILE_K / 4; k4 += 2 * n)
        for (int i = k4; i < k4 + n; i++)
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++)
                put_in_turn(u, n, i, half, _mm512_load_si512(u[i][half]), _mm512_load_si512(u[i + n][half]));
}

/* Block b of 32 rows into t. */
ALWAYS_INLINE void tile_load(enum dtype type, const uint8_t *const row[TILE_ROWS], int b, struct ahead *ahead,
                             struct many *m, struct tile256 *t)
{
    const size_t at = (size_t)b * (size_t)format256_of(type).bytes;
    for (int half = 0; half < 2; half++) tile_heads(type, row + 16 * half, at, half, &m->heads, t);
    if (type == DT_Q4_K || type == DT_Q5_K) {
        struct two_groups to = {.u = t->u};
        for (int half = 0; half < 2; half++) rows_block256(type, row + 16 * half, at, half, put_two_groups, &to, ahead);
        return;
    }
    if (!rows_can(type))
        rows_unpack(type, row, at, ahead, m->bytes, t->u);
    else
        for (int half = 0; half < 2; half++) rows_block256(type, row + 16 * half, at, half, put_codes, &t->u, ahead);
    tile_in_turn(format256_of(type).group, t->u);
}

/* Block b of a column. With codes that are never negative the positive and the negative q bound a group's sum
 * separately: (sum |q| +- sum q) / 2. */
ALWAYS_INLINE void operand_load(const struct format256 F, struct act_q256 x, int b, struct operand *o,
                                struct column *column)
{
    const __m512i order = F.group == 32 ? _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15)
                                        : _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    __m256i sums = _mm256_loadu_si256((const void *)(x.bsum + 16 * (size_t)b));
    int bound = x.asum[b];
    if (F.group == 32) {
        __m128i pairs = _mm256_cvtepi32_epi16(_mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
        sums = _mm256_zextsi128_si256(pairs);
        bound *= 2;
        if (F.min) {
            __m128i low = _mm_minpos_epu16(_mm_sub_epi16(_mm_set1_epi16(-1), _mm_abs_epi16(pairs)));
            bound = (bound + (0xffff - _mm_extract_epi16(low, 0)) + 1) / 2;
        }
    }
    *column = (struct column){x.d[b], bound * F.max_code <= INT16_MAX};
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512i q = _mm512_loadu_si512(x.q + 256 * (size_t)b + 64 * i);
        _mm512_store_si512(o->q + 64 * i, _mm512_permutexvar_epi32(order, q));
    }
    if (F.min)
        _mm256_store_si256((void *)o->sum, sums);
    else
        _mm512_store_si512(o->start, _mm512_mullo_epi32(_mm512_cvtepi16_epi32(sums), _mm512_set1_epi32(-F.offset)));
}

/* A tile and a group of columns, at the block that is multiplied. */
struct work {
    const struct tile256 *t;
    const struct operand *x;
    const struct column *column;
    bool narrow;         /* all of them */
    struct ahead *ahead; /* NULL: nothing is left to prefetch */
    /* The accumulators before (none: 0) and after the block; floats between columns. */
    const float *from;
    float *to;
    size_t ld_from, ld_to;
    __mmask16 some;
};

/* Eight bytes in every 64-bit lane. */
ALWAYS_INLINE __m512i broadcast_8(const void *p)
{
    long long v;
    memcpy(&v, p, 8);
    return _mm512_set1_epi64(v);
}

/* The sums of q of groups 2 i and 2 i + 1 of column c, as words in all lanes. */
ALWAYS_INLINE __m512i sums_pair(const struct work *w, int c, int i)
{
    return broadcast_4((const int8_t *)(w->x[c].sum + 2 * i));
}

/* p[r] = the products of pair i of groups, whose codes begin at u and whose activations begin at q, with nc columns,
 * for the eight rows of register r. */
ALWAYS_INLINE void pair_dots(int nc, int group, bool min, const struct work *w, int i, const uint8_t *u,
                             const int8_t *q, __m512i p[4][GROUP_COLS])
{
    const int n = group / 4;
#pragma GCC unroll 4
    for (int c = 0; c < nc; c++) {
        __m512i start = min ? _mm512_setzero_si512() : broadcast_8(w->x[c].start + 2 * i);
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) p[r][c] = start;
    }
#pragma GCC unroll 8
    for (int j = 0; j < n; j++) {
        __m512i v[4];
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) {
            v[r] = _mm512_load_si512(u + 128 * (r % 2 ? j + n : j) + 64 * (r / 2));
            IN_REGISTER(v[r]);
        }
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++) {
            __m512i x = broadcast_8(q + sizeof *w->x * (size_t)c + 8 * j);
            IN_REGISTER(x);
#pragma GCC unroll 4
            for (int r = 0; r < 4; r++) p[r][c] = _mm512_dpbusd_epi32(p[r][c], v[r], x);
        }
    }
}

/* Lanes of 32 bits: the sums of neighbours of a, and of b, in the order in which a and b are packed. */
ALWAYS_INLINE __m512i add_neighbours(__m512i a, __m512i b)
{
    __m512 x = _mm512_castsi512_ps(a), y = _mm512_castsi512_ps(b);
    return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(x, y, 0x88)),
                            _mm512_castps_si512(_mm512_shuffle_ps(x, y, 0xdd)));
}

/* Adds to s[half of the rows] the sums of pair i times their scales. */
ALWAYS_INLINE void pair_scaled(int nc, bool narrow, const struct work *w, int i, __m512i p[4][GROUP_COLS],
                               __m512i s[2][GROUP_COLS])
{
#pragma GCC unroll 2
    for (int r = 0; r < 2; r++) {
        __m512i scale = _mm512_load_si512(w->t->scale[i] + 16 * r), zero = _mm512_setzero_si512();
        IN_REGISTER(scale);
        const __m512i a = _mm512_srai_epi32(_mm512_unpacklo_epi16(zero, scale), 16);
        const __m512i b = _mm512_srai_epi32(_mm512_unpackhi_epi16(zero, scale), 16);
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++) {
            if (narrow)
                s[r][c] = _mm512_dpwssd_epi32(s[r][c], _mm512_packs_epi32(p[2 * r][c], p[2 * r + 1][c]), scale);
            else
                s[r][c] = _mm512_add_epi32(s[r][c], add_neighbours(_mm512_mullo_epi32(p[2 * r][c], a),
                                                                   _mm512_mullo_epi32(p[2 * r + 1][c], b)));
            IN_REGISTER(s[r][c]);
        }
    }
}

/* The float steps of nc columns: t from the exact S, and M from the minimums. */
ALWAYS_INLINE void block_finish(int nc, int group, bool min, const struct work *w, const __m512i s[2][GROUP_COLS])
{
    __m512i m[2][GROUP_COLS];
#pragma GCC unroll 4
    for (int c = 0; c < nc; c++) m[0][c] = m[1][c] = _mm512_setzero_si512();
    if (min)
#pragma GCC unroll 8
        for (int i = 0; i < 128 / group; i++) {
            __m512i v[2];
#pragma GCC unroll 2
            for (int r = 0; r < 2; r++) {
                v[r] = _mm512_load_si512(w->t->min[i] + 16 * r);
                IN_REGISTER(v[r]);
            }
#pragma GCC unroll 4
            for (int c = 0; c < nc; c++) {
                __m512i x = sums_pair(w, c, i);
#pragma GCC unroll 2
                for (int r = 0; r < 2; r++) m[r][c] = _mm512_dpwssd_epi32(m[r][c], v[r], x);
            }
        }
    const float *from = w->from, *x[GROUP_COLS];
    float *to = w->to;
    const size_t ld_from = w->ld_from, ld_to = w->ld_to;
    const __mmask16 some = w->some;
    const struct tile256 *t = w->t;
#pragma GCC unroll 4
    for (int c = 0; c < nc; c++) x[c] = &w->column[c].d;
#pragma GCC unroll 2
    for (int r = 0; r < 2; r++) {
        __m512 dw = _mm512_load_ps(t->dw + 16 * r), dmin = _mm512_load_ps(t->dmin + 16 * r);
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++) {
            __m512 a = _mm512_maskz_loadu_ps(some, from + (size_t)c * ld_from + 16 * r);
            __m512 v = _mm512_mul_ps(dw, _mm512_cvtepi32_ps(s[r][c]));
            if (min) v = _mm512_fnmadd_ps(dmin, _mm512_cvtepi32_ps(m[r][c]), v);
            a = _mm512_fmadd_ps(_mm512_set1_ps(*x[c]), v, a);
            _mm512_storeu_ps(to + (size_t)c * ld_to + 16 * r, a);
        }
    }
}

/* One tile times nc columns. For 64 elements and 16 rows that is 18 instructions on the two units for products, where
 * 16 would be the peak. */
ALWAYS_INLINE void block_columns(int nc, int group, bool min, const struct work *w)
{
    __m512i s[2][GROUP_COLS];
#pragma GCC unroll 4
    for (int c = 0; c < nc; c++) s[0][c] = s[1][c] = _mm512_setzero_si512();
    /* One pointer each, so that every load is at a constant distance from it: the compiler would compute addresses with
     * as many instructions more as there are loads, and the processor starts only four in a cycle. */
    const uint8_t *u = w->t->u[0][0];
    const int8_t *q = w->x[0].q;
#pragma GCC unroll 1
    for (int i = 0; i < 128 / group; i++, u += TILE_ROWS * 2 * group, q += 2 * group) {
        __m512i p[4][GROUP_COLS];
        if (w->ahead) ahead_product(w->ahead);
        pair_dots(nc, group, min, w, i, u, q, p);
        if (w->narrow)
            pair_scaled(nc, true, w, i, p, s);
        else
            pair_scaled(nc, false, w, i, p, s);
    }
    block_finish(nc, group, min, w, s);
}

typedef void columns_fn(const struct work *w);

#define COLUMNS(nc, group, min)                                                                                        \
    static void columns_##nc##_##group##_##min(const struct work *w) { block_columns(nc, group, min, w); }
#define COLUMNS_EACH(nc) COLUMNS(nc, 16, 0) COLUMNS(nc, 16, 1) COLUMNS(nc, 32, 0) COLUMNS(nc, 32, 1)
COLUMNS_EACH(2)
COLUMNS_EACH(3)
COLUMNS_EACH(4)

/* [columns - 1][group == 32][has minimums]; groups of two and more columns have at least two */
#define COLUMNS_ROW(nc)                                                                                                \
    {                                                                                                                  \
        {columns_##nc##_16_0, columns_##nc##_16_1}, { columns_##nc##_32_0, columns_##nc##_32_1 }                       \
    }
static columns_fn *const columns_table[GROUP_COLS][2][2] = {[1] = COLUMNS_ROW(2), COLUMNS_ROW(3), COLUMNS_ROW(4)};

/* n things in as few equal parts of at most `most` as possible: the size of one. */
static int part_size(int n, int most)
{
    int parts = (n + most - 1) / most;
    return (n + parts - 1) / parts;
}

/* Columns c0 .. c0 + n and blocks b0 .. b0 + nb of the activations, used for all rows before the next. */
struct panel {
    int c0, n, b0, nb;
};

/* The tile in m, of the rows from r0 on, times block b of the panel. One column of a group whose sums do not fit makes
 * the whole group take the wide way. The accumulators are in scratch, but the last block's go to y, and between panels
 * of the same columns they wait there. */
static void panel_block(const struct format256 F, const struct gemm *g, const struct panel *p, int r0, int b,
                        struct many *m, struct ahead *ahead)
{
    const int n_groups = (p->n + GROUP_COLS - 1) / GROUP_COLS, less = p->n / n_groups, n_more = p->n % n_groups;
    const bool whole = g->n_rows - r0 >= TILE_ROWS, last = whole && b + 1 == p->b0 + p->nb;
    float *y = g->y + (size_t)p->c0 * g->ld_y + r0;
    struct work w = {.t = &m->tile,
                     .x = m->x + (b - p->b0) * p->n,
                     .column = m->column + (b - p->b0) * p->n,
                     .from = m->acc[0],
                     .to = m->acc[0],
                     .ld_from = TILE_ROWS,
                     .ld_to = TILE_ROWS,
                     .some = b > 0 ? 0xffff : 0};
    if (whole && b == p->b0 && b > 0) {
        w.from = y;
        w.ld_from = g->ld_y;
    }
    if (last) {
        w.to = y;
        w.ld_to = g->ld_y;
    }
    for (int i = 0; i < n_groups; i++) {
        const int nc = i < n_more ? less + 1 : less;
        w.narrow = true;
        for (int j = 0; j < nc; j++) w.narrow &= w.column[j].narrow;
        w.ahead = ahead_is_left(ahead) ? ahead : NULL;
        if (last && i + 2 < n_groups) tile_prefetch(w.to + (size_t)(2 * nc) * g->ld_y, g->ld_y, nc);
        columns_table[nc - 1][F.group == 32][F.min](&w);
        w.x += nc;
        w.column += nc;
        w.from += (size_t)nc * w.ld_from;
        w.to += (size_t)nc * w.ld_to;
    }
}

/* The accumulators of a tile with less than TILE_ROWS rows, from y. */
static void panel_resume(const struct gemm *g, const struct panel *p, int r0, struct many *m)
{
    int n = g->n_rows - r0;
    __mmask16 m0 = first_lanes(n < 16 ? n : 16), m1 = n > 16 ? first_lanes(n - 16) : 0;
    for (int c = 0; c < p->n; c++) {
        const float *y = g->y + (size_t)(p->c0 + c) * g->ld_y + r0;
        _mm512_store_ps(m->acc[c], _mm512_maskz_loadu_ps(m0, y));
        _mm512_store_ps(m->acc[c] + 16, _mm512_maskz_loadu_ps(m1, y + 16));
    }
}

/* Prefetching of the next block: of the same rows, without its first line, which came with this block; or the panel's
 * first block of the next rows. */
static struct ahead ahead_block(int bytes, const struct gemm *g, const struct panel *p, int r0, int b,
                                const uint8_t *const *row)
{
    const size_t size = (size_t)bytes;
    struct ahead a = {.row = row, .n_rows = TILE_ROWS, .step_rows = 1};
    if (b + 1 < p->b0 + p->nb) {
        a.offset = (size_t)(b + 1) * size + 63;
        a.bytes = bytes - 63;
        return a;
    }
    a.offset = TILE_ROWS * g->ld_w + (size_t)p->b0 * size;
    a.bytes = bytes;
    if (r0 + TILE_ROWS >= g->n_rows) a.n_rows = 0;
    return a;
}

/* Whether the next rows are prefetched as one stream, block by block of these: whole rows that follow each other. It is
 * long before they are needed, so the processor never waits for the last of them. Two or three columns with short
 * groups take too little time for the steps (Q6_K). */
static bool is_stream(const struct gemm *g, const struct panel *p, int bytes, int group)
{
    size_t row = (size_t)p->nb * (size_t)bytes;
    return p->n <= STREAM_COLS && p->n * group >= 64 && row == g->ld_w &&
           2 * TILE_ROWS * row + (size_t)(p->n * g->k) <= STREAM_BYTES;
}

static struct ahead ahead_stream(int bytes, const struct gemm *g, int r0, int b, int n_steps)
{
    const size_t size = TILE_ROWS * (size_t)bytes;
    const uint8_t *next = g->w + (size_t)(r0 + TILE_ROWS) * g->ld_w;
    struct ahead a = {.line = (const char *)next + (size_t)b * size};
    if (r0 + TILE_ROWS < g->n_rows) a.step_lines = ((int)size / 64 + n_steps - 1) / n_steps;
    return a;
}

/* The rows of the first tile, at once. */
static void fetch_first(const struct gemm *g)
{
    const size_t n = g->n_rows < TILE_ROWS ? (size_t)g->n_rows : TILE_ROWS;
    for (size_t i = 0; i < n * g->ld_w; i += 64) _mm_prefetch((const char *)g->w + i, _MM_HINT_T1);
}

ALWAYS_INLINE void panel_rows(enum dtype type, const struct gemm *g, const struct panel *p, struct many *m)
{
    const struct format256 F = format256_of(type);
    const int steps = (p->n + GROUP_COLS - 1) / GROUP_COLS * (128 / F.group);
    const bool stream = is_stream(g, p, F.bytes, F.group);
    for (int c = 0; c < p->n; c++)
        for (int b = 0; b < p->nb; b++)
            operand_load(F, act_q256_at(gemm_x(g, p->c0 + c), g->k), p->b0 + b, &m->x[b * p->n + c],
                         &m->column[b * p->n + c]);
    if (stream) fetch_first(g);
    for (int r0 = 0; r0 < g->n_rows; r0 += TILE_ROWS) {
        const uint8_t *row[TILE_ROWS];
        tile_rows(g, r0, row);
        const bool whole = g->n_rows - r0 >= TILE_ROWS;
        if (!whole && p->b0 > 0) panel_resume(g, p, r0, m);
        for (int b = p->b0; b < p->b0 + p->nb; b++) {
            struct ahead ahead =
                stream ? ahead_stream(F.bytes, g, r0, b, steps) : ahead_block(F.bytes, g, p, r0, b, row);
            tile_load(type, row, b, &ahead, m, &m->tile);
            ahead_rest(&ahead, steps);
            panel_block(F, g, p, r0, b, m, &ahead);
        }
        if (!whole) tile_store(g, r0, p->c0, p->n, m->acc[0]);
    }
}

ALWAYS_INLINE void many_columns(enum dtype type, const struct gemm *g, struct many *m)
{
    if ((type == DT_Q4_K || type == DT_Q5_K || type == DT_Q6_K) && avx512_fused_takes(type, g)) {
        avx512_gemm_fused(type, g, m);
        return;
    }
    const int n_blocks = g->k / 256, cols = part_size(g->n_cols, PANEL_COLS);
    const int blocks = part_size(n_blocks, PANEL_BLOCKS / cols);
    struct panel p;
    for (p.c0 = 0; p.c0 < g->n_cols; p.c0 += cols) {
        p.n = g->n_cols - p.c0 < cols ? g->n_cols - p.c0 : cols;
        for (p.b0 = 0; p.b0 < n_blocks; p.b0 += blocks) {
            p.nb = n_blocks - p.b0 < blocks ? n_blocks - p.b0 : blocks;
            panel_rows(type, g, &p, m);
        }
    }
}

/* ---- one function a type ---- */

DTYPES_K256_BITS(AVX512_GEMM)

/* One column of a codebook type: gemm_iq.c. */
#define CODEBOOK(ID, name, ...)                                                                                        \
    static void gemm_##name##_n(const struct gemm *g, void *scratch) { many_columns(DT_##ID, g, scratch); }            \
    static void gemm_##name(const struct gemm *g, void *scratch)                                                       \
    {                                                                                                                  \
        if (g->n_cols == 1)                                                                                            \
            avx512_gemm_iq_one[DT_##ID](g, scratch);                                                                   \
        else                                                                                                           \
            gemm_##name##_n(g, scratch);                                                                               \
    }
DTYPES_K256_CODEBOOK(CODEBOOK)

static gemm_fn *const by_type[DT_N] = {DTYPES_K256(AVX512_GEMM_ENTRY)};

gemm_fn *avx512_gemm_k256(enum dtype t) { return by_type[t]; }

void avx512_init_gemm_k256(struct kernels *k)
{
    for (int t = 0; t < DT_N; t++)
        if (by_type[t]) k->gemm[t] = by_type[t];
}
