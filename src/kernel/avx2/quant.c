/* SPDX-License-Identifier: MIT
 *
 * quant.c: activations into the formats of the integer products (docs/KERNELS.md section 1).
 *
 * The largest magnitude is found on the bits of |x|, as the contract says, so that integer
 * comparison orders NaN above infinity above everything. Rounding is the conversion
 * instruction's own: to nearest even, as the reference does by adding and subtracting.
 */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/vec.h"

VEC_INLINE float from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

VEC_INLINE uint32_t largest_bits(__m256i v)
{
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

/* x[0..32) * id as bytes. */
VEC_INLINE __m256i to_bytes(const float *x, __m256 id)
{
    __m256i v[4];
    for (int i = 0; i < 4; i++) v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), id));
    __m256i b = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    return _mm256_permutevar8x32_epi32(b, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)); /* packing went lane by lane */
}

/* n (32 or 256) values to n bytes; returns the scale. */
VEC_INLINE float quant_block(const float *x, int n, int8_t *q)
{
    __m256i largest = _mm256_setzero_si256(), magnitude = _mm256_set1_epi32(0x7fffffff);
    for (int i = 0; i < n; i += 8) largest = _mm256_max_epi32(largest, _mm256_and_si256(vec_load(x + i), magnitude));
    uint32_t bits = largest_bits(largest);
    float amax = from_bits(bits);
    if (bits >= 0x7f800000u || amax < 0x1p-100f) {
        memset(q, 0, (size_t)n);
        return bits >= 0x7f800000u ? from_bits(0x7fc00000u) : 0;
    }
    __m256 id = _mm256_set1_ps(127.0f / amax);
    for (int i = 0; i < n; i += 32) vec_store(q + i, to_bytes(x + i, id));
    return amax / 127.0f;
}

float avx2_quant32(const float *x, int8_t *q) { return quant_block(x, 32, q); }

/* Dword lanes whose sum, per 128-bit lane, is the sum of 16 bytes. */
VEC_INLINE __m256i byte_sums(__m256i q)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(1));
}

static void quant_q32_avx2(const float *x, int from, int n, int k, uint8_t *row, void *scratch)
{
    (void)scratch;
    struct act_q32 a = act_q32_at(row, k);
    int8_t *q = (int8_t *)a.q;
    float *d = (float *)a.d;
    int32_t *sum = (int32_t *)a.sum;
    for (int b = from / 32; b < (from + n) / 32; b++, x += 32) {
        d[b] = quant_block(x, 32, q + 32 * (size_t)b);
        __m256i s = byte_sums(vec_load(q + 32 * (size_t)b));
        __m128i h = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
        h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4e));
        sum[b] = _mm_cvtsi128_si32(_mm_add_epi32(h, _mm_shuffle_epi32(h, 0xb1)));
    }
}

/* The sums of 16 groups of 16 bytes, in order. */
VEC_INLINE __m256i group_sums(const __m256i *q)
{
    __m256i s[8];
    for (int j = 0; j < 8; j++) s[j] = byte_sums(q[j]);
    /* Low lanes hold the even groups, high lanes the odd ones. */
    __m256i v = _mm256_packs_epi32(vec_sum4_lanes(s), vec_sum4_lanes(s + 4));
    __m128i even = _mm256_castsi256_si128(v), odd = _mm256_extracti128_si256(v, 1);
    return vec_pair(_mm_unpacklo_epi16(even, odd), _mm_unpackhi_epi16(even, odd));
}

static void quant_q256_avx2(const float *x, int from, int n, int k, uint8_t *row, void *scratch)
{
    (void)scratch;
    struct act_q256 a = act_q256_at(row, k);
    int8_t *q = (int8_t *)a.q;
    float *d = (float *)a.d;
    int16_t *bsum = (int16_t *)a.bsum;
    uint16_t *asum = (uint16_t *)a.asum;
    for (int b = from / 256; b < (from + n) / 256; b++, x += 256) {
        __m256i v[8];
        d[b] = quant_block(x, 256, q + 256 * (size_t)b);
        for (int j = 0; j < 8; j++) v[j] = vec_load(q + 256 * (size_t)b + 32 * j);
        vec_store(bsum + 16 * (size_t)b, group_sums(v));
        for (int j = 0; j < 8; j++) v[j] = _mm256_abs_epi8(v[j]);
        __m256i mag = group_sums(v);
        __m128i m = _mm_max_epi16(_mm256_castsi256_si128(mag), _mm256_extracti128_si256(mag, 1));
        /* 65535 - m turns the one instruction for a minimum across words into a maximum. */
        m = _mm_minpos_epu16(_mm_xor_si128(m, _mm_set1_epi16(-1)));
        asum[b] = (uint16_t)~_mm_cvtsi128_si32(m);
    }
}

void avx2_init_quant(struct kernels *k)
{
    k->quant[ACT_Q32] = quant_q32_avx2;
    k->quant[ACT_Q256] = quant_q256_avx2;
}
