/* SPDX-License-Identifier: MIT
 *
 * vec.h: the register operations that the AVX2 kernels share.
 *
 * Loads of unaligned file bytes, the widening of halves, sums across lanes for several vectors at
 * once, and transposes. Float sums follow the contract's halving tree. Integer sums are exact, so they take the
 * cheapest order.
 */
#ifndef QUERN_KERNEL_AVX2_VEC_H
#define QUERN_KERNEL_AVX2_VEC_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define VEC_AHEAD_MOST (384u << 10) /* bytes */

#define VEC_INLINE static inline __attribute__((always_inline))

VEC_INLINE __m256i vec_load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
VEC_INLINE __m128i vec_load128(const void *p) { return _mm_loadu_si128((const __m128i *)p); }
VEC_INLINE __m128i vec_load64(const void *p) { return _mm_loadl_epi64((const __m128i *)p); }
VEC_INLINE void vec_store(void *p, __m256i v) { _mm256_storeu_si256((__m256i *)p, v); }

VEC_INLINE uint16_t vec_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

VEC_INLINE uint32_t vec_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

VEC_INLINE uint64_t vec_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* The 4 bytes at p in all 8 dwords: a load that costs no shuffle. */
VEC_INLINE __m256i vec_splat32(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

VEC_INLINE __m256i vec_pair(__m128i low, __m128i high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

/* Asks for the line at p + ahead, wherever that is: a prefetch never faults. */
VEC_INLINE void vec_prefetch_l1(const void *p, size_t ahead)
{
    _mm_prefetch((const char *)((uintptr_t)p + ahead), _MM_HINT_T0);
}
VEC_INLINE void vec_prefetch_l2(const void *p, size_t ahead)
{
    _mm_prefetch((const char *)((uintptr_t)p + ahead), _MM_HINT_T1);
}

/* Dword sums of four vectors, per 128-bit lane: those of the low lanes, then those of the high lanes. */
VEC_INLINE __m256i vec_sum4_lanes(const __m256i *v)
{
    __m256i ab = _mm256_add_epi32(_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
    __m256i cd = _mm256_add_epi32(_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));
    return _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
}

/* Dword sums of four vectors: lane i = the sum of the i-th. */
VEC_INLINE __m128i vec_sum4(const __m256i *v)
{
    __m256i s = vec_sum4_lanes(v);
    return _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
}

/* Dword sums of eight vectors: lane i = the sum of the i-th. */
VEC_INLINE __m256i vec_sum8(const __m256i *v)
{
    __m256i a = vec_sum4_lanes(v), b = vec_sum4_lanes(v + 4);
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

/* The same in 16 bits, where they suffice: the two words of dword i sum to the sum of the i-th. */
VEC_INLINE __m256i vec_sum8_pairs16(const __m256i *v)
{
    __m256i a[4], b[2];
    for (int i = 0; i < 4; i++)
        a[i] = _mm256_add_epi16(_mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                                _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
    for (int i = 0; i < 2; i++)
        b[i] = _mm256_add_epi16(_mm256_unpacklo_epi64(a[2 * i], a[2 * i + 1]),
                                _mm256_unpackhi_epi64(a[2 * i], a[2 * i + 1]));
    return _mm256_add_epi16(_mm256_permute2x128_si256(b[0], b[1], 0x20), _mm256_permute2x128_si256(b[0], b[1], 0x31));
}

/* Sums of neighbouring dwords of a, then of b, word by word. */
VEC_INLINE __m256i vec_add_neighbours16(__m256i a, __m256i b)
{
    __m256 even = _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88);
    __m256 odd = _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0xdd);
    __m256i s = _mm256_add_epi16(_mm256_castps_si256(even), _mm256_castps_si256(odd));
    return _mm256_permute4x64_epi64(s, 0xd8);
}

/* The contract's halving tree over 16 lanes, lanes 0-7 in a. */
VEC_INLINE float vec_tree16(__m256 a, __m256 b)
{
    __m256 s = _mm256_add_ps(a, b);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

/* 8 x 8 dwords in place: afterwards v[j] holds element j of each old v[i], i ascending. */
VEC_INLINE void vec_transpose8(__m256i *v)
{
    __m256i t[8], u[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        u[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        u[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        u[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
        v[i + 4] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
    }
}

/* The addresses of n rows, ld apart; from there up to `most` the last one's again. */
VEC_INLINE void vec_rows(const uint8_t *w, size_t ld, int n, int most, const uint8_t **row)
{
    for (int r = 0; r < most; r++) row[r] = w + (size_t)(r < n ? r : n - 1) * ld;
}

VEC_INLINE void vec_prefetch_rows(const uint8_t *const *row, int n, size_t ahead, size_t bytes)
{
    for (int r = 0; r < n; r++)
        for (size_t p = 0; p < bytes; p += 64) vec_prefetch_l1(row[r], ahead + p);
}

/* Lines that will be read later and are asked for between other work, in the order in which they lie in memory, into
 * the second level: a burst of them would find no free buffers, and stop the loads after it. */
struct vec_ahead {
    const uint8_t *at;
    int n;       /* lines in each step; 0: none */
    size_t step; /* bytes from a line to the next one asked for: less than a line where there are few of them */
};

/* `bytes` at p in n_steps equal steps. More than the second level holds next to what is in use are not asked for. */
VEC_INLINE struct vec_ahead vec_ahead_of(const uint8_t *p, size_t bytes, int n_steps)
{
    const int n = ((int)(bytes / 64) + n_steps - 1) / n_steps;
    if (bytes == 0 || bytes > VEC_AHEAD_MOST) return (struct vec_ahead){p, 0, 0};
    return (struct vec_ahead){p, n, bytes / (size_t)(n * n_steps)};
}

VEC_INLINE void vec_ahead_step(struct vec_ahead *a)
{
    for (int i = 0; i < a->n; i++, a->at += a->step) vec_prefetch_l2(a->at, 0);
}

/* The 16 bytes at byte `at` of 8 rows as four registers of 4 bytes each, lanes = rows. The upper halves come with a
 * broadcast and a blend, because an insertion from memory takes the place of a shuffle on some processors. */
VEC_INLINE void vec_columns4(const uint8_t *const *row, size_t at, __m256i *v)
{
    __m256i a[4], b[4];
    for (int r = 0; r < 4; r++)
        a[r] = _mm256_blend_epi32(_mm256_castsi128_si256(vec_load128(row[r] + at)),
                                  _mm256_broadcastsi128_si256(vec_load128(row[r + 4] + at)), 0xf0);
    b[0] = _mm256_unpacklo_epi32(a[0], a[1]);
    b[1] = _mm256_unpackhi_epi32(a[0], a[1]);
    b[2] = _mm256_unpacklo_epi32(a[2], a[3]);
    b[3] = _mm256_unpackhi_epi32(a[2], a[3]);
    v[0] = _mm256_unpacklo_epi64(b[0], b[2]);
    v[1] = _mm256_unpackhi_epi64(b[0], b[2]);
    v[2] = _mm256_unpacklo_epi64(b[1], b[3]);
    v[3] = _mm256_unpackhi_epi64(b[1], b[3]);
}

/* acc = fma(d[i], t[row][i], acc), i ascending; lanes are the 8 rows of t, ld_t apart. Up to 7 values after a row's n
 * are loaded but not used. */
VEC_INLINE __m256 vec_chain8(const float *t, int ld_t, const float *d, int n, __m256 acc)
{
    for (int i = 0; i < n; i += 8) {
        __m256i v[8];
        for (int r = 0; r < 8; r++) v[r] = vec_load(t + r * ld_t + i);
        vec_transpose8(v);
        for (int j = 0; j < 8 && i + j < n; j++)
            acc = _mm256_fmadd_ps(_mm256_set1_ps(d[i + j]), _mm256_castsi256_ps(v[j]), acc);
    }
    return acc;
}

/* The first n <= 8 floats, then zeros. */
VEC_INLINE __m256 vec_load_n(const float *x, int n)
{
    if (n == 8) return _mm256_loadu_ps(x);
    float v[8] = {0};
    memcpy(v, x, (size_t)n * sizeof *x);
    return _mm256_loadu_ps(v);
}

/* The first n <= 8 floats. */
VEC_INLINE void vec_store_n(float *y, __m256 v, int n)
{
    if (n == 8) {
        _mm256_storeu_ps(y, v);
        return;
    }
    float tmp[8];
    _mm256_storeu_ps(tmp, v);
    memcpy(y, tmp, (size_t)n * sizeof *y);
}

/* The largest value that is not NaN; -inf when there is none. */
static inline float vec_largest(const float *x, int n)
{
    float v[8], m = -__builtin_inff();
    __m256 a = _mm256_set1_ps(m), b = a;
    int i = 0;
    for (; i + 16 <= n; i += 16) { /* max gives its second operand when either is NaN */
        a = _mm256_max_ps(_mm256_loadu_ps(x + i), a);
        b = _mm256_max_ps(_mm256_loadu_ps(x + i + 8), b);
    }
    _mm256_storeu_ps(v, _mm256_max_ps(a, b));
    for (int l = 0; l < 8; l++)
        if (v[l] > m) m = v[l];
    for (; i < n; i++)
        if (x[i] > m) m = x[i];
    return m;
}

/* How many of n to take when parts of at most `most` are to be as equal as possible: 8 by 6 are 4 + 4. */
VEC_INLINE int vec_even_part(int n, int most)
{
    int parts = (n + most - 1) / most;
    return (n + parts - 1) / parts;
}

/* acc[n_cols][ld_acc] -> y, n_rows floats of each column. */
VEC_INLINE void vec_store_panel(const float *acc, size_t ld_acc, int n_rows, int n_cols, float *y, size_t ld_y)
{
    for (int c = 0; c < n_cols; c++) memcpy(y + (size_t)c * ld_y, acc + (size_t)c * ld_acc, (size_t)n_rows * sizeof *y);
}

#endif
