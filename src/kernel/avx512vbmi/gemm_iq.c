/* SPDX-License-Identifier: MIT
 *
 * gemm_iq.c: products of the codebook types (IQ1, IQ2, IQ3) with one column, AVX-512 with VNNI and VBMI.
 *
 * A gather fetches entries one after the other. Here the codebook is in registers and in the first cache as planes of
 * bytes (planes.h), and vpermi2b looks 64 indices up at once, in 128 bytes at a time. So the elements come out by
 * plane: register j has element j of 64 entries. Instead of putting them in order, the activations are brought to that
 * order, once for all rows. Four bytes of a register are then four entries, 32 elements of all eight registers (16 of
 * all four where entries have four elements), so a dword of the sum over the registers has one scale:
 *
 *   IQ1_S, IQ2_XXS           64 indices are two blocks, a dword is a group of 32
 *   IQ1_M, IQ2_XS, IQ2_S     the same, but it has two groups of 16: activations with every other group zero keep
 *                            them apart
 *   IQ3_XXS, IQ3_S           64 indices are one block, a dword is half a group of 32
 *
 * Weights are read as one stream (avx512/stream.h). Codes of IQ1 and IQ2 are made unsigned by an offset, and the sums
 * start at -offset * (sum of q); signs of IQ3 are put on q.
 */
#include <assert.h>

#include "kernel/avx512/avx512.h"
#include "kernel/avx512/stream.h"
#include "kernel/avx512vbmi/avx512vbmi.h"
#include "kernel/avx512vbmi/lookup.h"

#define SEGMENT 128 /* blocks of a row: k = 32768 */

/* Activations for 64 indices: q by plane, and what the sums start at. */
struct octets {
    _Alignas(64) uint64_t q[8][8]; /* eight bytes each */
    int32_t start[16];
};
struct quads {
    _Alignas(64) int8_t q[4][64];
};

struct one {
    float t[STREAM_ROWS * SEGMENT + 16];
    union {
        /* [two blocks][groups of 16: first, second]; with an odd number of blocks every second pair of them reaches
         * from the end of a row to the start of the next: twice as many pairs */
        struct octets octets[SEGMENT][2];
        struct quads quads[SEGMENT];
    } x;
    uint16_t d[STREAM_BATCH];
    uint8_t copy[STREAM_COPY];
};
static_assert(sizeof(struct one) <= KERNEL_SCRATCH_BYTES, "scratch");

ALWAYS_INLINE bool has_octets(enum dtype t) { return t != DT_IQ3_XXS && t != DT_IQ3_S; }

/* ---- activations ---- */

/* A block's q by plane: out[i] has, for each of the `width` elements of an entry, those of 64 / width entries. */
static void by_plane(int width, const int8_t *q, uint8_t out[4][64])
{
    uint8_t at[64];
    for (int j = 0; j < 64; j++) at[j] = (uint8_t)(j % (64 / width) * width + j / (64 / width));
    for (int i = 0; i < 4; i++) {
        __m512i v = _mm512_permutexvar_epi8(_mm512_loadu_si512(at), _mm512_loadu_si512(q + 64 * i));
        _mm512_storeu_si512(out[i], v);
    }
}

/* Block b as half `half` of to[0]; with groups of 16 to[0] has the first of each two and to[1] the second. */
static void put_octets(int group, int offset, struct act_q256 x, size_t b, int half, struct octets to[2])
{
    const uint64_t mask = group == 32 ? UINT64_MAX : 0x0000ffff0000ffff;
    uint8_t planes[4][64];
    __m256i sums = _mm256_loadu_si256((const void *)(x.bsum + 16 * b));
    __m256i first = _mm256_srai_epi32(_mm256_slli_epi32(sums, 16), 16), second = _mm256_srai_epi32(sums, 16);
    if (group == 32) first = _mm256_add_epi32(first, second);
    first = _mm256_mullo_epi32(first, _mm256_set1_epi32(-offset));
    second = _mm256_mullo_epi32(second, _mm256_set1_epi32(-offset));
    _mm256_storeu_si256((void *)(to[0].start + 8 * half), first);
    _mm256_storeu_si256((void *)(to[1].start + 8 * half), second);
    by_plane(8, x.q + 256 * b, planes);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 8; j++) {
            uint64_t v = get_u64(planes[i] + 8 * j);
            to[0].q[j][4 * half + i] = v & mask;
            to[1].q[j][4 * half + i] = v & ~mask;
        }
}

static void put_quads(struct act_q256 x, size_t b, struct quads *to)
{
    uint8_t planes[4][64];
    by_plane(4, x.q + 256 * b, planes);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) memcpy(to->q[j] + 16 * i, planes[i] + 16 * j, 16);
}

/* How many pairs of blocks there are before the first one comes again. */
ALWAYS_INLINE int n_pairs(int nb) { return nb % 2 ? nb : nb / 2; }

/* Takes a segment of the activations to scratch. */
static void one_activations(enum dtype type, struct act_q256 x, int b0, int nb, struct one *o)
{
    const struct format256 F = format256_of(type);
    if (!has_octets(type))
        for (int b = 0; b < nb; b++) put_quads(x, (size_t)(b0 + b), &o->x.quads[b]);
    else
        for (int i = 0; i < 2 * n_pairs(nb); i++)
            put_octets(F.group, F.offset, x, (size_t)(b0 + i % nb), i % 2, o->x.octets[i / 2]);
}

/* ---- codes ---- */

/* Elements 4p .. 4p + 3 of the entries of IQ1 or IQ2 from their plane p: unsigned codes. */
ALWAYS_INLINE void octet_codes(const uint64_t *codes, __m512i plane, __m512i signs01, __m512i signs23, __m512i u[4])
{
    const __m512i low = _mm512_set1_epi8(15);
    /* low nibble: two digits; bits 4 and 5: their signs; vpermb does not look at the others */
    __m512i v01 = _mm512_ternarylogic_epi32(low, plane, signs01, 0xca);
    __m512i v23 = _mm512_ternarylogic_epi32(low, _mm512_srli_epi16(plane, 4), signs23, 0xca);
    u[0] = _mm512_permutexvar_epi8(v01, table(codes));
    u[1] = _mm512_permutexvar_epi8(v01, table(codes + 8));
    u[2] = _mm512_permutexvar_epi8(v23, table(codes));
    u[3] = _mm512_permutexvar_epi8(v23, table(codes + 8));
}

/* ---- sums ---- */

ALWAYS_INLINE void octets_lookup(enum dtype type, const uint8_t *a, const uint8_t *b, struct lookup *l)
{
    switch (type) {
    case DT_IQ1_S: lookup_iq1_s(a, b, l); break;
    case DT_IQ1_M: lookup_iq1_m(a, b, l); break;
    case DT_IQ2_XXS: lookup_iq2_xxs(a, b, l); break;
    case DT_IQ2_XS: lookup_iq2_xs(a, b, l); break;
    case DT_IQ2_S: lookup_iq2_s(a, b, l); break;
    default: __builtin_unreachable();
    }
}

/* plane[p][j]: the bytes of plane p that l[j] names. */
ALWAYS_INLINE void octets_planes(enum dtype type, const struct lookup l[2], __m512i plane[2][2])
{
    if (type == DT_IQ1_S || type == DT_IQ1_M) {
        look_up(iq1s_planes, 2048, l, plane[0]);
        for (int j = 0; j < 2; j++) plane[1][j] = look_up_steps(&l[j]);
        return;
    }
#pragma GCC unroll 2
    for (int p = 0; p < 2; p++) {
        if (type == DT_IQ2_XXS) look_up(iq2xxs_planes + 32 * p, 256, l, plane[p]);
        if (type == DT_IQ2_XS) look_up(iq2xs_planes + 64 * p, 512, l, plane[p]);
        if (type == DT_IQ2_S) look_up(iq2s_planes + 128 * p, 1024, l, plane[p]);
    }
}

/* 8 dwords of each of two blocks that sum to its S. */
ALWAYS_INLINE __m512i octets_dot(enum dtype type, __m512i plane0, __m512i plane1, const struct lookup *l,
                                 const struct octets x[2])
{
    __m512i u[8], s[2];
    if (type == DT_IQ1_S || type == DT_IQ1_M) {
        octet_codes(iq1_pair_codes, plane0, l->signs, l->signs, u);
        octet_codes(iq1_pair_codes, plane1, l->signs, l->signs, u + 4);
    } else {
        octet_codes(iq2_pair_codes, plane0, _mm512_slli_epi16(l->signs, 4), _mm512_slli_epi16(l->signs, 2), u);
        octet_codes(iq2_pair_codes, plane1, l->signs, _mm512_srli_epi16(l->signs, 2), u + 4);
    }
    if (format256_of(type).group == 32) { /* two sums, because one would be a chain of eight products */
        s[0] = _mm512_loadu_si512(x->start);
        s[1] = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) s[j / 4] = _mm512_dpbusd_epi32(s[j / 4], u[j], _mm512_load_si512(x->q[j]));
        return _mm512_mullo_epi32(_mm512_add_epi32(s[0], s[1]), l->scale[0]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        s[i] = _mm512_loadu_si512(x[i].start);
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) s[i] = _mm512_dpbusd_epi32(s[i], u[j], _mm512_load_si512(x[i].q[j]));
        s[i] = _mm512_mullo_epi32(s[i], l->scale[i]);
    }
    return _mm512_add_epi32(s[0], s[1]);
}

/* u[p][j]: the magnitudes of element p of the entries that l[j] names. */
ALWAYS_INLINE void quads_codes(enum dtype type, const struct lookup l[2], __m512i u[4][2])
{
    const __m512i low = _mm512_set1_epi8(15);
    if (type == DT_IQ3_XXS) {
#pragma GCC unroll 4
        for (int p = 0; p < 4; p++) look_up(iq3xxs_planes + 32 * p, 256, l, u[p]);
        return;
    }
#pragma GCC unroll 2
    for (int p = 0; p < 2; p++) {
        __m512i v[2];
        look_up(iq3s_planes + 64 * p, 512, l, v);
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            u[2 * p][j] = _mm512_and_si512(v[j], low);
            u[2 * p + 1][j] = _mm512_and_si512(_mm512_srli_epi16(v[j], 4), low);
        }
    }
}

/* 16 dwords that sum to S of a block; j: its place in u. */
ALWAYS_INLINE __m512i quads_dot(int j, const __m512i u[4][2], const struct lookup *l, const struct quads *x)
{
    __m512i s = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int p = 0; p < 4; p++) {
        /* the even index has the low four signs, the odd one the high four */
        __mmask64 minus = _mm512_test_epi8_mask(l->signs, _mm512_set1_epi16((short)(0x1001 << p)));
        __m512i q = _mm512_load_si512(x->q[p]);
        q = _mm512_mask_sub_epi8(q, minus, _mm512_setzero_si512(), q);
        s = _mm512_dpbusd_epi32(s, u[p][j], q);
    }
    return _mm512_mullo_epi32(s, l->scale[0]);
}

/* The d of 16 blocks. */
ALWAYS_INLINE __m512 one_scales(enum dtype type, const uint8_t *w, uint16_t d[STREAM_BATCH])
{
    const struct format256 F = format256_of(type);
    for (int i = 0; i < STREAM_BATCH; i++, w += F.bytes) {
        if (type == DT_IQ1_M)
            d[i] = (uint16_t)_pext_u64(get_u64(w + 48), 0xf000f000f000f000u);
        else
            memcpy(&d[i], w, 2);
    }
    return _mm512_mul_ps(load_f16x16(d), _mm512_set1_ps(F.dw_factor));
}

ALWAYS_INLINE int next_of(int i, int n) { return i + 1 == n ? 0 : i + 1; }

/* The S of 16 blocks that lie at w; i is the number of the first in its segment. */
ALWAYS_INLINE __m512i octets_batch(enum dtype type, const uint8_t *w, int i, int nb, const struct one *o)
{
    const size_t bytes = (size_t)format256_of(type).bytes;
    const int n = n_pairs(nb);
    int pair = i / 2 % n;
    __m512i s[8];
#pragma GCC unroll 1
    for (int j = 0; j < 8; j += 2, w += 4 * bytes) {
        struct lookup l[2];
        __m512i plane[2][2];
        prefetch_stream(w, 4 * bytes);
        octets_lookup(type, w, w + bytes, &l[0]);
        octets_lookup(type, w + 2 * bytes, w + 3 * bytes, &l[1]);
        octets_planes(type, l, plane);
        s[j] = octets_dot(type, plane[0][0], plane[1][0], &l[0], o->x.octets[pair]);
        pair = next_of(pair, n);
        s[j + 1] = octets_dot(type, plane[0][1], plane[1][1], &l[1], o->x.octets[pair]);
        pair = next_of(pair, n);
    }
    return reduce_halves(s);
}

ALWAYS_INLINE void quads_lookup(enum dtype type, const uint8_t *w, struct lookup *l)
{
    if (type == DT_IQ3_XXS)
        lookup_iq3_xxs(w, l);
    else
        lookup_iq3_s(w, l);
}

ALWAYS_INLINE __m512i quads_batch(enum dtype type, const uint8_t *w, int i, int nb, const struct one *o)
{
    const size_t bytes = (size_t)format256_of(type).bytes;
    int b = i % nb;
    __m512i s[16];
#pragma GCC unroll 1
    for (int j = 0; j < 16; j += 2, w += 2 * bytes) {
        struct lookup l[2];
        __m512i u[4][2];
        prefetch_stream(w, 2 * bytes);
        quads_lookup(type, w, &l[0]);
        quads_lookup(type, w + bytes, &l[1]);
        quads_codes(type, l, u);
        s[j] = quads_dot(0, u, &l[0], &o->x.quads[b]);
        b = next_of(b, nb);
        s[j + 1] = quads_dot(1, u, &l[1], &o->x.quads[b]);
        b = next_of(b, nb);
    }
    return reduce_16(s);
}

/* The t of 16 blocks. */
ALWAYS_INLINE __m512 one_batch(enum dtype type, const uint8_t *w, int i, int nb, struct one *o)
{
    __m512 dw = one_scales(type, w, o->d);
    __m512i s = has_octets(type) ? octets_batch(type, w, i, nb, o) : quads_batch(type, w, i, nb, o);
    return _mm512_mul_ps(dw, _mm512_cvtepi32_ps(s));
}

ALWAYS_INLINE void one_column(enum dtype type, const struct gemm *g, struct one *o)
{
    const struct act_q256 x = act_q256_at(gemm_x(g, 0), g->k);
    const int n_blocks = g->k / 256;
    for (int r0 = 0; r0 < g->n_rows; r0 += STREAM_ROWS) {
        struct stream s = {.ld_w = g->ld_w, .bytes = format256_of(type).bytes, .pieces = 1};
        __m512 acc = _mm512_setzero_ps();
        s.n_rows = g->n_rows - r0 < STREAM_ROWS ? g->n_rows - r0 : STREAM_ROWS;
        for (int b0 = 0; b0 < n_blocks; b0 += SEGMENT) {
            s.nb = n_blocks - b0 < SEGMENT ? n_blocks - b0 : SEGMENT;
            s.w = g->w + (size_t)r0 * g->ld_w + stream_bytes(&s, b0);
            if (r0 == 0 || n_blocks > SEGMENT) one_activations(type, x, b0, s.nb, o);
            for (int i = 0; i < s.n_rows * s.nb; i += STREAM_BATCH)
                _mm512_storeu_ps(o->t + i, one_batch(type, stream_batch(&s, i, o->copy), i, s.nb, o));
            acc = stream_chain(o->t, x.d + b0, s.nb, acc);
        }
        _mm512_mask_storeu_ps(g->y + r0, first_lanes(s.n_rows), acc);
    }
}

/* ---- one function a type ---- */

#define GEMM(ID, name, ...)                                                                                            \
    static void gemm_##name(const struct gemm *g, void *scratch)                                                       \
    {                                                                                                                  \
        if (g->n_cols == 1)                                                                                            \
            one_column(DT_##ID, g, scratch);                                                                           \
        else                                                                                                           \
            avx512_gemm_k256(DT_##ID)(g, scratch);                                                                     \
    }
#define ENTRY(ID, name, ...) [DT_##ID] = gemm_##name,

DTYPES_K256_CODEBOOK(GEMM)

static gemm_fn *const by_type[DT_N] = {DTYPES_K256_CODEBOOK(ENTRY)};

gemm_fn *avx512vbmi_gemm_k256(enum dtype t) { return by_type[t] ? by_type[t] : avx512_gemm_k256(t); }

void avx512vbmi_init_gemm_iq(struct kernels *k)
{
    for (int t = 0; t < DT_N; t++)
        if (by_type[t]) k->gemm[t] = by_type[t];
}
