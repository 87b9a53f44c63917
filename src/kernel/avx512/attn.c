/* SPDX-License-Identifier: MIT
 *
 * attn.c: attention of the query rows that share a KV head, AVX-512.
 *
 * Chunk by chunk of 256 slots (docs/KERNELS.md section 3), and in a chunk block by block of at most 8
 * query rows, so that keys and values are read from memory once and from cache for every block.
 *
 *   scores   lane = slot: keys lie [dim][16 slots], so an accumulator is 16 scores and the order over
 *            dims is the contract's. Slots that a row does not see are computed and then dropped.
 *   values   lane = dim: o += p[j] * v[j], slots ascending. Slots that only some rows of a block see
 *            (the fringes of a causal mask) are added row by row: an unseen slot must not be touched,
 *            its memory may hold anything.
 */
#include <assert.h>
#include <string.h>

#include "kernel/avx512/init.h"
#include "kernel/avx512/math512.h"
#include "kernel/avx512/quant512.h"

#define BLOCK        8                       /* query rows */
#define GROUPS       (ATTN_CHUNK / KV_GROUP) /* of 16 slots in a chunk */
#define DIM_REGS     (ATTN_MAX_DIM / 16)
#define KEY_Q8_BYTES (2 * KV_GROUP + 32 * KV_GROUP) /* 32 dims of a group of keys */

struct work {
    _Alignas(64) float o[ATTN_MAX_Q][ATTN_MAX_DIM]; /* merged so far */
    _Alignas(64) float chunk_o[BLOCK][ATTN_MAX_DIM];
    _Alignas(64) float p[BLOCK][ATTN_CHUNK]; /* scores, then their exponentials */
    _Alignas(64) int8_t q8[ATTN_MAX_Q][ATTN_MAX_DIM];
    float q8_d[ATTN_MAX_Q][ATTN_MAX_DIM / 32];
    int32_t q8_start[ATTN_MAX_Q][ATTN_MAX_DIM / 32]; /* -128 * sum of 32 q: keys are made unsigned */
    float m[ATTN_MAX_Q], l[ATTN_MAX_Q];
    bool started[ATTN_MAX_Q];
};
static_assert(sizeof(struct work) <= KERNEL_SCRATCH_BYTES, "scratch");

/* Where the slots of the current chunk are. */
struct chunk {
    int start;
    const uint8_t *key[GROUPS], *value[GROUPS];
    size_t value_bytes;
};

static float exp_scalar(float x) { return _mm512_cvtss_f32(exp_512(_mm512_set1_ps(x))); }

/* ---- scores ---- */

/* nq rows from row on times ng groups of float keys; s[q][g] = 16 dot products. */
ALWAYS_INLINE void dot_float(enum kv_type type, int nq, int ng, const struct attn *a, int row,
                             const uint8_t *const *key, __m512 s[BLOCK][4])
{
#pragma GCC unroll 8
    for (int q = 0; q < nq; q++)
#pragma GCC unroll 4
        for (int g = 0; g < ng; g++)
            s[q][g] = _mm512_setzero_ps();
    for (int i = 0; i < a->head_dim; i++) {
        __m512 k[4];
#pragma GCC unroll 4
        for (int g = 0; g < ng; g++) {
            size_t at = (size_t)i * KV_GROUP;
            k[g] = type == KV_F32 ? _mm512_loadu_ps(key[g] + 4 * at) : load_f16x16((const uint16_t *)(key[g] + 2 * at));
        }
#pragma GCC unroll 8
        for (int q = 0; q < nq; q++)
#pragma GCC unroll 4
            for (int g = 0; g < ng; g++)
                s[q][g] = _mm512_fmadd_ps(_mm512_set1_ps(a->q[row + q][i]), k[g], s[q][g]);
    }
}

/* The same for Q8_0 keys and quantised queries: exact integers per 32 dims, then the contract's t and fma.
 * Key bytes are made unsigned by flipping their top bit (+128), which the start value takes out again. */
ALWAYS_INLINE void dot_q8(int nq, int ng, const struct attn *a, const struct work *w, int row,
                          const uint8_t *const *key, __m512 s[BLOCK][4])
{
    const __m512i flip = _mm512_set1_epi8((char)0x80);
#pragma GCC unroll 8
    for (int q = 0; q < nq; q++)
#pragma GCC unroll 4
        for (int g = 0; g < ng; g++)
            s[q][g] = _mm512_setzero_ps();
    for (int b = 0; 32 * b < a->head_dim; b++) {
        const size_t at = (size_t)b * KEY_Q8_BYTES;
        __m512i sum[BLOCK][4];
#pragma GCC unroll 8
        for (int q = 0; q < nq; q++)
#pragma GCC unroll 4
            for (int g = 0; g < ng; g++)
                sum[q][g] = _mm512_set1_epi32(w->q8_start[row + q][b]);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
#pragma GCC unroll 4
            for (int g = 0; g < ng; g++) {
                __m512i k = _mm512_xor_si512(_mm512_loadu_si512(key[g] + at + 2 * KV_GROUP + 64 * i), flip);
#pragma GCC unroll 8
                for (int q = 0; q < nq; q++) {
                    int32_t v;
                    memcpy(&v, w->q8[row + q] + 32 * b + 4 * i, 4);
                    sum[q][g] = _mm512_dpbusd_epi32(sum[q][g], k, _mm512_set1_epi32(v));
                }
            }
#pragma GCC unroll 4
        for (int g = 0; g < ng; g++) {
            __m512 d = load_f16x16((const uint16_t *)(key[g] + at));
#pragma GCC unroll 8
            for (int q = 0; q < nq; q++) {
                __m512 t = _mm512_mul_ps(d, _mm512_cvtepi32_ps(sum[q][g]));
                s[q][g] = _mm512_fmadd_ps(_mm512_set1_ps(w->q8_d[row + q][b]), t, s[q][g]);
            }
        }
    }
}

/* The scores of nq rows (number `at` of the block on) for the groups g0 .. g1 of the chunk. */
ALWAYS_INLINE void scores(enum kv_type type, int nq, int ng, const struct attn *a, const struct chunk *c, int row0,
                          int at, int g0, int g1, struct work *w)
{
    const __m512 scale = _mm512_set1_ps(a->scale), cap = _mm512_set1_ps(a->softcap);
    for (int g = g0; g < g1; g += ng) {
        const uint8_t *key[4];
        __m512 s[BLOCK][4];
        for (int i = 0; i < ng; i++) /* missing groups repeat the last: the same scores to the same place */
            key[i] = c->key[g + i < g1 ? g + i : g1 - 1];
        if (type == KV_Q8_0)
            dot_q8(nq, ng, a, w, row0 + at, key, s);
        else
            dot_float(type, nq, ng, a, row0 + at, key, s);
#pragma GCC unroll 8
        for (int q = 0; q < nq; q++)
#pragma GCC unroll 4
            for (int i = 0; i < ng; i++) {
                __m512 v = _mm512_mul_ps(scale, s[q][i]);
                if (a->softcap != 0) {
                    v = tanh_512(_mm512_mul_ps(v, _mm512_set1_ps(1.0f / a->softcap)));
                    v = _mm512_mul_ps(cap, v);
                }
                _mm512_store_ps(w->p[at + q] + KV_GROUP * (g + i < g1 ? g + i : g1 - 1), v);
            }
    }
}

/* All rows of a block. The shapes keep 16 chains going (8 with integer sums beside them); single rows have
 * to do with 4, which is still faster than their keys come from memory. */
ALWAYS_INLINE void scores_block(enum kv_type type, const struct attn *a, const struct chunk *c, int row0, int n, int g0,
                                int g1, struct work *w)
{
    int at = 0;
    if (type != KV_Q8_0)
        for (; at + 8 <= n; at += 8)
            scores(type, 8, 2, a, c, row0, at, g0, g1, w);
    for (; at + 4 <= n; at += 4)
        scores(type, 4, type == KV_Q8_0 ? 2 : 4, a, c, row0, at, g0, g1, w);
    for (; at < n; at++)
        scores(type, 1, 4, a, c, row0, at, g0, g1, w);
}

/* Scores of slots [lo, hi) of the chunk to exponentials, with the maximum and the sum. A chunk starts at a
 * multiple of 16, so a register's lane is the contract's lane (slot mod 16). Outside [lo, hi) stays rubbish. */
static void softmax(float *p, int lo, int hi, float *max, float *sum)
{
    __m512 m = _mm512_set1_ps(-__builtin_inff()), l = _mm512_setzero_ps();
    __mmask16 mask[GROUPS] = {0};
    for (int g = lo / 16; g < (hi + 15) / 16; g++) {
        int first = lo > 16 * g ? lo - 16 * g : 0, end = hi - 16 * g < 16 ? hi - 16 * g : 16;
        mask[g] = (__mmask16)(first_lanes(end) & ~first_lanes(first));
        /* the second operand where either is NaN: a NaN is no maximum */
        m = _mm512_mask_max_ps(m, mask[g], _mm512_load_ps(p + 16 * g), m);
    }
    *max = _mm512_reduce_max_ps(m);
    for (int g = lo / 16; g < (hi + 15) / 16; g++) {
        __m512 e = exp_512(_mm512_sub_ps(_mm512_load_ps(p + 16 * g), _mm512_set1_ps(*max)));
        l = _mm512_mask_add_ps(l, mask[g], l, e);
        _mm512_store_ps(p + 16 * g, e);
    }
    *sum = halving_sum(l);
}

/* ---- values ---- */

/* Register z of a value's dims as f32; m: the dims that exist. */
ALWAYS_INLINE __m512 load_value(enum kv_type type, const uint8_t *v, int z, __mmask16 m)
{
    if (type == KV_F32) return _mm512_maskz_loadu_ps(m, v + 64 * z);
    if (type == KV_F16) return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, v + 32 * z));
    const uint8_t *block = v + 34 * (z / 2);
    uint16_t h;
    memcpy(&h, block, 2);
    __m512i q = _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(block + 2 + 16 * (z % 2))));
    return _mm512_mul_ps(_mm512_set1_ps(_cvtsh_ss(h)), _mm512_cvtepi32_ps(q));
}

/* o[q][z0 .. z0 + nz] += p[q][j] * v[j] for the slots j0 <= j < j1 of the chunk. */
ALWAYS_INLINE void weigh(enum kv_type type, int nq, int nz, const struct chunk *c, int j0, int j1, int z0,
                         __mmask16 last, const float (*p)[ATTN_CHUNK], float (*o)[ATTN_MAX_DIM])
{
    __m512 acc[BLOCK][4];
#pragma GCC unroll 8
    for (int q = 0; q < nq; q++)
#pragma GCC unroll 4
        for (int z = 0; z < nz; z++)
            acc[q][z] = _mm512_load_ps(o[q] + 16 * (z0 + z));
    for (int j = j0; j < j1; j++) {
        const uint8_t *at = c->value[j / KV_GROUP] + (size_t)(j % KV_GROUP) * c->value_bytes;
        __m512 v[4];
#pragma GCC unroll 4
        for (int z = 0; z < nz; z++)
            v[z] = load_value(type, at, z0 + z, z == nz - 1 ? last : 0xffff);
#pragma GCC unroll 8
        for (int q = 0; q < nq; q++)
#pragma GCC unroll 4
            for (int z = 0; z < nz; z++)
                acc[q][z] = _mm512_fmadd_ps(_mm512_set1_ps(p[q][j]), v[z], acc[q][z]);
    }
#pragma GCC unroll 8
    for (int q = 0; q < nq; q++)
#pragma GCC unroll 4
        for (int z = 0; z < nz; z++)
            _mm512_store_ps(o[q] + 16 * (z0 + z), acc[q][z]);
}

/* All dims of nq rows, nz registers at a time, then one by one. */
ALWAYS_INLINE void weigh_dims(enum kv_type type, int nq, int nz, const struct chunk *c, int j0, int j1, int n_dims,
                              const float (*p)[ATTN_CHUNK], float (*o)[ATTN_MAX_DIM])
{
    const int n = (n_dims + 15) / 16;
    const __mmask16 last = first_lanes(n_dims - 16 * (n - 1));
    int z = 0;
    if (j0 >= j1) return;
    for (; z + nz <= n; z += nz)
        weigh(type, nq, nz, c, j0, j1, z, z + nz == n ? last : 0xffff, p, o);
    for (; z < n; z++)
        weigh(type, nq, 1, c, j0, j1, z, z + 1 == n ? last : 0xffff, p, o);
}

/* chunk_o of n rows whose visible slots are [lo[q], hi[q]): in groups of 8, 4 or 1 rows, of which the
 * slots that all see are done together and those before and after row by row, so that each row's
 * slots ascend. */
ALWAYS_INLINE void values_block(enum kv_type type, const struct chunk *c, int n, const int *lo, const int *hi,
                                int n_dims, struct work *w)
{
    for (int q = 0, n_rows; q < n; q += n_rows) {
        n_rows = n - q >= 8 ? 8 : n - q >= 4 ? 4 : 1;
        int all_lo = lo[q], all_hi = hi[q];
        for (int i = q; i < q + n_rows; i++) {
            all_lo = lo[i] > all_lo ? lo[i] : all_lo;
            all_hi = hi[i] < all_hi ? hi[i] : all_hi;
        }
        if (all_hi < all_lo) all_hi = all_lo;
        for (int i = q; i < q + n_rows; i++)
            weigh_dims(type, 1, 4, c, lo[i], hi[i] < all_lo ? hi[i] : all_lo, n_dims, &w->p[i], &w->chunk_o[i]);
        if (n_rows == 8)
            weigh_dims(type, 8, 2, c, all_lo, all_hi, n_dims, &w->p[q], &w->chunk_o[q]);
        else if (n_rows == 4)
            weigh_dims(type, 4, 4, c, all_lo, all_hi, n_dims, &w->p[q], &w->chunk_o[q]);
        else
            weigh_dims(type, 1, 4, c, all_lo, all_hi, n_dims, &w->p[q], &w->chunk_o[q]);
        for (int i = q; i < q + n_rows; i++)
            weigh_dims(type, 1, 4, c, lo[i] > all_hi ? lo[i] : all_hi, hi[i], n_dims, &w->p[i], &w->chunk_o[i]);
    }
}

/* ---- merging ---- */

/* A row's chunk (m, l, o) into what it has; the first one is taken as it is. */
static void merge(struct work *w, int row, float m, float l, const float *o, int n_dims)
{
    float *total = w->o[row];
    if (!w->started[row]) {
        w->started[row] = true;
        w->m[row] = m;
        w->l[row] = l;
        memcpy(total, o, sizeof *o * (size_t)n_dims);
        return;
    }
    bool higher = m > w->m[row];
    float f = higher ? exp_scalar(w->m[row] - m) : exp_scalar(m - w->m[row]);
    const __m512 factor = _mm512_set1_ps(f);
    w->l[row] = higher ? __builtin_fmaf(w->l[row], f, l) : __builtin_fmaf(l, f, w->l[row]);
    if (higher) w->m[row] = m;
    for (int i = 0; i < n_dims; i += 16) {
        __m512 t = _mm512_load_ps(total + i), v = _mm512_load_ps(o + i);
        _mm512_store_ps(total + i, higher ? _mm512_fmadd_ps(t, factor, v) : _mm512_fmadd_ps(v, factor, t));
    }
}

/* The sink, and the division by the sum. */
static void finish(const struct attn *a, struct work *w, int row)
{
    float l = w->l[row], f = 1.0f;
    bool scaled = false;
    if (a->sink) {
        float z = a->sink[row];
        scaled = z > w->m[row];
        f = scaled ? exp_scalar(w->m[row] - z) : exp_scalar(z - w->m[row]);
        l = scaled ? __builtin_fmaf(l, f, 1.0f) : __builtin_fmaf(1.0f, f, l);
    }
    const __m512 r = _mm512_set1_ps(1.0f / l);
    for (int i = 0; i < a->head_dim_v; i += 16) {
        __m512 o = _mm512_load_ps(w->o[row] + i);
        if (scaled) o = _mm512_mul_ps(o, _mm512_set1_ps(f));
        __mmask16 mask = first_lanes(a->head_dim_v - i < 16 ? a->head_dim_v - i : 16);
        _mm512_mask_storeu_ps(a->out[row] + i, mask, _mm512_mul_ps(o, r));
    }
}

/* ---- the whole ---- */

static void quant_queries(const struct attn *a, struct work *w)
{
    for (int row = 0; row < a->n_q; row++)
        for (int i = 0; i < a->head_dim; i += 32) {
            __m512 v0 = load_padded(a->q[row], i, a->head_dim), v1 = load_padded(a->q[row], i + 16, a->head_dim);
            w->q8_d[row][i / 32] = quant_block_32(v0, v1, w->q8[row] + i);
            w->q8_start[row][i / 32] = -128 * quant_sum_32(w->q8[row] + i);
        }
}

/* Groups g0 .. g1 of the chunk: a page holds whole groups, so 16 keys (values) are always together. */
static void locate(const struct attn *a, int start, int g0, int g1, struct chunk *c)
{
    c->start = start;
    c->value_bytes = kv_value_bytes(a->type, a->head_dim_v);
    for (int g = g0; g < g1; g++) {
        int slot = start + KV_GROUP * g, in_page = slot % a->page_slots;
        const uint8_t *page = a->pages[slot / a->page_slots];
        c->key[g] = page + a->k_offset + (size_t)(in_page / KV_GROUP) * kv_key_bytes(a->type, a->head_dim);
        c->value[g] = page + a->v_offset + (size_t)in_page * c->value_bytes;
    }
}

/* Rows row0 .. row0 + n, n <= BLOCK, over the chunk that starts at `start`. */
ALWAYS_INLINE void block_chunk(enum kv_type type, const struct attn *a, int start, int row0, int n, struct work *w)
{
    struct chunk c;
    int lo[BLOCK], hi[BLOCK], first = ATTN_CHUNK, end = 0;
    float m[BLOCK], l[BLOCK];
    for (int q = 0; q < n; q++) {
        lo[q] = a->lo[row0 + q] > start ? a->lo[row0 + q] - start : 0;
        hi[q] = a->hi[row0 + q] - start < ATTN_CHUNK ? a->hi[row0 + q] - start : ATTN_CHUNK;
        if (lo[q] >= hi[q]) {
            lo[q] = hi[q] = 0; /* sees nothing here */
            continue;
        }
        first = lo[q] < first ? lo[q] : first;
        end = hi[q] > end ? hi[q] : end;
    }
    if (first >= end) return;
    locate(a, start, first / KV_GROUP, (end + KV_GROUP - 1) / KV_GROUP, &c);
    scores_block(type, a, &c, row0, n, first / KV_GROUP, (end + KV_GROUP - 1) / KV_GROUP, w);
    for (int q = 0; q < n; q++)
        if (hi[q] > lo[q]) softmax(w->p[q], lo[q], hi[q], &m[q], &l[q]);
    memset(w->chunk_o, 0, sizeof w->chunk_o[0] * (size_t)n);
    values_block(type, &c, n, lo, hi, a->head_dim_v, w);
    for (int q = 0; q < n; q++)
        if (hi[q] > lo[q]) merge(w, row0 + q, m[q], l[q], w->chunk_o[q], a->head_dim_v);
}

/* Chunks outside, blocks of rows inside: what the first block brought into cache, the others use. */
ALWAYS_INLINE void attend(enum kv_type type, const struct attn *a, struct work *w)
{
    int first = a->lo[0], end = a->hi[0];
    for (int q = 0; q < a->n_q; q++) {
        assert(a->lo[q] >= 0 && a->lo[q] < a->hi[q]);
        first = a->lo[q] < first ? a->lo[q] : first;
        end = a->hi[q] > end ? a->hi[q] : end;
        w->started[q] = false;
    }
    for (int start = first / ATTN_CHUNK * ATTN_CHUNK; start < end; start += ATTN_CHUNK)
        for (int q = 0; q < a->n_q; q += BLOCK)
            block_chunk(type, a, start, q, a->n_q - q < BLOCK ? a->n_q - q : BLOCK, w);
    for (int q = 0; q < a->n_q; q++)
        finish(a, w, q);
}

static void attn(const struct attn *a, void *scratch)
{
    struct work *w = scratch;
    assert(a->n_q >= 1 && a->n_q <= ATTN_MAX_Q && a->head_dim <= ATTN_MAX_DIM && a->head_dim_v <= ATTN_MAX_DIM);
    if (a->type == KV_F32) {
        attend(KV_F32, a, w);
    } else if (a->type == KV_F16) {
        attend(KV_F16, a, w);
    } else {
        quant_queries(a, w);
        attend(KV_Q8_0, a, w);
    }
}

void avx512_init_attn(struct kernels *k) { k->attn = attn; }
