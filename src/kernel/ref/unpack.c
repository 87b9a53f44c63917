/* SPDX-License-Identifier: MIT
 *
 * unpack.c: one function per quantised type, stored block -> canonical integers.
 *
 * Each function says which bits of which byte make the code of element e, and where its scale is. It is written to be
 * compared with the format's description, element by element, not to be fast. Sources: the GGUF block layouts as in
 * ggml's quantisation code; for the meaning of every field see docs/FORMATS.md.
 *
 * Every code fits an int8, every scale and minimum an int16. Offsets and fractions of the formats
 * are folded in so that the numbers stay integers: IQ2's d * (0.5 + s) / 4 is (d / 8) * (2s + 1),
 * IQ1's grid +- 1/8 is (8 * grid +- 1) / 8. Divisions are by powers of two and lose nothing.
 */
#include "kernel/ref/unpack.h"

#include <string.h>

#include "kernel/iq_grid.h"
#include "kernel/ref/half.h"

/* The nibble codebook of the IQ4 types, and twice the values of FP4 (E2M1). */
static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int8_t fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static int low_or_high(uint8_t byte, int high) { return high ? byte >> 4 : byte & 15; }

static void no_min(struct block256 *b)
{
    memset(b->min, 0, sizeof b->min);
    b->dmin = 0;
}

/* ---- 256 elements: K-quants ---- */

/* Q2_K and Q3_K: each half of 128 has 32 bytes, and byte p holds elements p, 32 + p, 64 + p, 96 + p of it. */
static int two_bits(const uint8_t *qs, int e)
{
    int half = e / 128, quarter = e % 128 / 32, p = e % 32;
    return qs[32 * half + p] >> (2 * quarter) & 3;
}

/* { scale | min << 4: u8[16]; qs[64]; f16 d, dmin } */
static void unpack_q2_k(const uint8_t *w, struct block256 *b)
{
    for (int g = 0; g < 16; g++) {
        b->scale[g] = w[g] & 15;
        b->min[g] = w[g] >> 4;
    }
    for (int e = 0; e < 256; e++) b->code[e] = (int8_t)two_bits(w + 16, e);
    b->dw = load_f16(w + 80);
    b->dmin = load_f16(w + 82);
}

/* { hmask[32]; qs[64]; scales[12]; f16 d }: the third bit is inverted (set: 0, clear: -4). The 16 six-bit scales have
 * their low nibbles in the first 8 bytes, their high two bits in the last 4. */
static void unpack_q3_k(const uint8_t *w, struct block256 *b)
{
    const uint8_t *hmask = w, *qs = w + 32, *s = w + 96;
    for (int g = 0; g < 16; g++) {
        int low = low_or_high(s[g % 8], g / 8), high = s[8 + g % 4] >> (2 * (g / 4)) & 3;
        b->scale[g] = (int16_t)((low | high << 4) - 32);
    }
    for (int e = 0; e < 256; e++) {
        int high = hmask[e % 32] >> (e / 32) & 1;
        b->code[e] = (int8_t)(two_bits(qs, e) - (high ? 0 : 4));
    }
    b->dw = load_f16(w + 108);
    no_min(b);
}

/* The 12 bytes of Q4_K and Q5_K: 8 six-bit scales and 8 six-bit minimums, one of each per 32. Bytes 0-3: scales 0-3,
 * 4-7: minimums 0-3, both with two high bits of numbers 4-7 on top; 8-11: low nibbles of scales | minimums 4-7. */
static void unpack_scales_6bit(const uint8_t *s, struct block256 *b)
{
    for (int j = 0; j < 8; j++) {
        int scale, min;
        if (j < 4) {
            scale = s[j] & 63;
            min = s[j + 4] & 63;
        } else {
            scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
            min = s[j + 4] >> 4 | (s[j] >> 6) << 4;
        }
        b->scale[2 * j] = b->scale[2 * j + 1] = (int16_t)scale;
        b->min[2 * j] = b->min[2 * j + 1] = (int16_t)min;
    }
}

/* Q4_K and Q5_K: 64 elements per 32 bytes, first all low nibbles, then all high ones. */
static int nibble_of_64(const uint8_t *qs, int e) { return low_or_high(qs[e / 64 * 32 + e % 32], e / 32 & 1); }

/* { f16 d, dmin; scales[12]; qs[128] } */
static void unpack_q4_k(const uint8_t *w, struct block256 *b)
{
    unpack_scales_6bit(w + 4, b);
    for (int e = 0; e < 256; e++) b->code[e] = (int8_t)nibble_of_64(w + 16, e);
    b->dw = load_f16(w);
    b->dmin = load_f16(w + 2);
}

/* { f16 d, dmin; scales[12]; qh[32]; qs[128] }: the fifth bit of element e is bit e / 32 of qh[e % 32]. */
static void unpack_q5_k(const uint8_t *w, struct block256 *b)
{
    unpack_scales_6bit(w + 4, b);
    for (int e = 0; e < 256; e++) {
        int high = w[16 + e % 32] >> (e / 32) & 1;
        b->code[e] = (int8_t)(nibble_of_64(w + 48, e) | high << 4);
    }
    b->dw = load_f16(w);
    b->dmin = load_f16(w + 2);
}

/* { ql[128]; qh[64]; i8 scales[16]; f16 d }: of each half of 128, 64 bytes ql (low nibbles: elements 0-63, high:
 * 64-127) and 32 bytes qh (two bits for p, 32 + p, 64 + p, 96 + p). */
static void unpack_q6_k(const uint8_t *w, struct block256 *b)
{
    for (int e = 0; e < 256; e++) {
        int half = e / 128, r = e % 128;
        int low = low_or_high(w[64 * half + r % 64], r / 64);
        b->code[e] = (int8_t)((low | two_bits(w + 128, e) << 4) - 32);
    }
    for (int g = 0; g < 16; g++) b->scale[g] = (int8_t)w[192 + g];
    b->dw = load_f16(w + 208);
    no_min(b);
}

/* ---- 256 elements: codebooks ---- */

/* 8 (4) elements from a grid entry, negated where the mask has a bit. */
static void put_grid(int8_t *code, uint64_t entry, int n, uint32_t signs)
{
    for (int j = 0; j < n; j++) {
        int v = (int8_t)(entry >> (8 * j));
        code[j] = (int8_t)(signs >> j & 1 ? -v : v);
    }
}

/* { f16 d; u16 scales_h; scales_l[4]; qs[128] }: per 32 elements a six-bit scale and 16 bytes, low nibbles first. */
static void unpack_iq4_xs(const uint8_t *w, struct block256 *b)
{
    uint32_t high = load_u16(w + 2);
    for (int k = 0; k < 8; k++) {
        int s = low_or_high(w[4 + k / 2], k & 1) | (int)(high >> (2 * k) & 3) << 4;
        b->scale[2 * k] = b->scale[2 * k + 1] = (int16_t)(s - 32);
    }
    for (int e = 0; e < 256; e++) b->code[e] = iq4_values[low_or_high(w[8 + e / 32 * 16 + e % 16], e / 16 & 1)];
    b->dw = load_f16(w);
    no_min(b);
}

/* { f16 d; per 32: u8 index[4], u32 a }: a = four 7-bit sign indices, scale in the top 4 bits. */
static void unpack_iq2_xxs(const uint8_t *w, struct block256 *b)
{
    for (int k = 0; k < 8; k++) {
        const uint8_t *p = w + 2 + 8 * k;
        uint32_t a = load_u32(p + 4);
        b->scale[2 * k] = b->scale[2 * k + 1] = (int16_t)(2 * (a >> 28) + 1);
        for (int l = 0; l < 4; l++)
            put_grid(b->code + 32 * k + 8 * l, iq2xxs_grid[p[l]], 8, iq_signs(a >> (7 * l) & 127));
    }
    b->dw = load_f16(w) * 0.125f;
    no_min(b);
}

/* A byte of scales per 32: the low nibble for the first 16, the high one for the last. */
static void unpack_scales_iq2(const uint8_t *s, struct block256 *b)
{
    for (int g = 0; g < 16; g++) b->scale[g] = (int16_t)(2 * low_or_high(s[g / 2], g & 1) + 1);
}

/* { f16 d; u16 qs[32]; scales[8] }: per 8 elements a 9-bit grid index and a 7-bit sign index. */
static void unpack_iq2_xs(const uint8_t *w, struct block256 *b)
{
    unpack_scales_iq2(w + 66, b);
    for (int i = 0; i < 32; i++) {
        uint32_t v = load_u16(w + 2 + 2 * i);
        put_grid(b->code + 8 * i, iq2xs_grid[v & 511], 8, iq_signs(v >> 9));
    }
    b->dw = load_f16(w) * 0.125f;
    no_min(b);
}

/* { f16 d; qs[32]; signs[32]; qh[8]; scales[8] }: per 8 elements a 10-bit grid index, two bits of it in qh. */
static void unpack_iq2_s(const uint8_t *w, struct block256 *b)
{
    unpack_scales_iq2(w + 74, b);
    for (int i = 0; i < 32; i++) {
        int high = w[66 + i / 4] >> (2 * (i % 4)) & 3;
        put_grid(b->code + 8 * i, iq2s_grid[w[2 + i] | high << 8], 8, w[34 + i]);
    }
    b->dw = load_f16(w) * 0.125f;
    no_min(b);
}

/* { f16 d; qs[64]; per 32: u32 a }: per 8 elements two entries of 4; a as in IQ2_XXS. */
static void unpack_iq3_xxs(const uint8_t *w, struct block256 *b)
{
    for (int k = 0; k < 8; k++) {
        uint32_t a = load_u32(w + 66 + 4 * k);
        b->scale[2 * k] = b->scale[2 * k + 1] = (int16_t)(2 * (a >> 28) + 1);
        for (int i = 0; i < 8; i++) {
            uint32_t signs = iq_signs(a >> (7 * (i / 2)) & 127);
            put_grid(b->code + 32 * k + 4 * i, iq3xxs_grid[w[2 + 8 * k + i]], 4, signs >> (4 * (i % 2)));
        }
    }
    b->dw = load_f16(w) * 0.25f;
    no_min(b);
}

/* { f16 d; qs[64]; qh[8]; signs[32]; scales[4] }: per 4 elements a 9-bit index, its top bit in qh. */
static void unpack_iq3_s(const uint8_t *w, struct block256 *b)
{
    const uint8_t *qs = w + 2, *qh = w + 66, *signs = w + 74, *s = w + 106;
    for (int g = 0; g < 16; g++) b->scale[g] = (int16_t)(2 * low_or_high(s[g / 4], g / 2 & 1) + 1);
    for (int i = 0; i < 64; i++) {
        int high = qh[i / 8] >> (i % 8) & 1;
        put_grid(b->code + 4 * i, iq3s_grid[qs[i] | high << 8], 4, (uint32_t)signs[i / 2] >> (4 * (i % 2)));
    }
    b->dw = load_f16(w);
    no_min(b);
}

/* 8 elements 8 * grid + delta. */
static void put_iq1(int8_t *code, uint64_t entry, int delta)
{
    for (int j = 0; j < 8; j++) code[j] = (int8_t)(8 * (int8_t)(entry >> (8 * j)) + delta);
}

/* { f16 d; qs[32]; u16 qh[8] }: qh per 32 = four times 3 index bits, 3-bit scale, sign of the delta. */
static void unpack_iq1_s(const uint8_t *w, struct block256 *b)
{
    for (int k = 0; k < 8; k++) {
        uint32_t h = load_u16(w + 34 + 2 * k);
        b->scale[2 * k] = b->scale[2 * k + 1] = (int16_t)(2 * (h >> 12 & 7) + 1);
        for (int l = 0; l < 4; l++) {
            uint32_t index = w[2 + 4 * k + l] | (h >> (3 * l) & 7) << 8;
            put_iq1(b->code + 32 * k + 8 * l, iq1s_grid[index], h >> 15 ? -1 : 1);
        }
    }
    b->dw = load_f16(w) * 0.125f;
    no_min(b);
}

/* { qs[32]; qh[16]; u16 scales[4] }: a nibble of qh per 8 = 3 index bits, sign of the delta. Each u16 has four 3-bit
 * scales, one per 16 elements, and on top a nibble of d (the lowest first). */
static void unpack_iq1_m(const uint8_t *w, struct block256 *b)
{
    uint32_t d = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t s = load_u16(w + 48 + 2 * i);
        d |= (s >> 12) << (4 * i);
        for (int j = 0; j < 4; j++) b->scale[4 * i + j] = (int16_t)(2 * (s >> (3 * j) & 7) + 1);
    }
    for (int i = 0; i < 32; i++) {
        int h = low_or_high(w[32 + i / 2], i & 1);
        put_iq1(b->code + 8 * i, iq1s_grid[w[i] | (h & 7) << 8], h & 8 ? -1 : 1);
    }
    b->dw = f16_to_f32((uint16_t)d) * 0.125f;
    no_min(b);
}

/* ---- 256 elements: ternary ---- */

/* Digit n (0 = the first) of a byte that holds digits to base 3 as a fraction: byte * 3^n modulo 1, times 3. */
static int8_t trit(uint8_t byte, int n)
{
    static const uint8_t pow3[5] = {1, 3, 9, 27, 81};
    uint8_t rest = (uint8_t)(byte * pow3[n]);
    return (int8_t)((rest * 3 >> 8) - 1);
}

/* { qs[48]; qh[4]; f16 d }: the first digits of 32 bytes, then their second ...; so the next 16, five digits each, and
 * the last 4, four digits each. */
static void unpack_tq1_0(const uint8_t *w, struct block256 *b)
{
    for (int e = 0; e < 160; e++) b->code[e] = trit(w[e % 32], e / 32);
    for (int e = 0; e < 80; e++) b->code[160 + e] = trit(w[32 + e % 16], e / 16);
    for (int e = 0; e < 16; e++) b->code[240 + e] = trit(w[48 + e % 4], e / 4);
    for (int g = 0; g < 16; g++) b->scale[g] = 1;
    b->dw = load_f16(w + 52);
    no_min(b);
}

/* { qs[64]; f16 d } */
static void unpack_tq2_0(const uint8_t *w, struct block256 *b)
{
    for (int e = 0; e < 256; e++) b->code[e] = (int8_t)(two_bits(w, e) - 1);
    for (int g = 0; g < 16; g++) b->scale[g] = 1;
    b->dw = load_f16(w + 64);
    no_min(b);
}

/* { qs[64] }: of each 128, 32 bytes with two bits for each quarter, the first quarter's on top. The scale is the
 * tensor's, not the block's. */
static void unpack_i2_s(const uint8_t *w, struct block256 *b)
{
    for (int e = 0; e < 256; e++) b->code[e] = (int8_t)((w[e / 128 * 32 + e % 32] >> (6 - e / 32 % 4 * 2) & 3) - 1);
    for (int g = 0; g < 16; g++) b->scale[g] = 1;
    b->dw = 1;
    no_min(b);
}

/* ---- 32 elements ---- */

static void one_scale(struct block32 *b, float dw, float m)
{
    b->dw = b->dw1 = dw;
    b->m = m;
}

/* 16 bytes: low nibbles are elements 0-15, high nibbles 16-31. */
static int nibble_of_32(const uint8_t *qs, int e) { return low_or_high(qs[e % 16], e / 16); }

/* { f16 d; qs[16] } */
static void unpack_q4_0(const uint8_t *row, int i, struct block32 *b)
{
    const uint8_t *w = row + 18 * (size_t)i;
    for (int e = 0; e < 32; e++) b->code[e] = (int8_t)(nibble_of_32(w + 2, e) - 8);
    one_scale(b, load_f16(w), 0);
}

/* { f16 d, m; qs[16] } */
static void unpack_q4_1(const uint8_t *row, int i, struct block32 *b)
{
    const uint8_t *w = row + 20 * (size_t)i;
    for (int e = 0; e < 32; e++) b->code[e] = (int8_t)nibble_of_32(w + 4, e);
    one_scale(b, load_f16(w), load_f16(w + 2));
}

/* { f16 d; u32 qh; qs[16] }: bit e of qh is the fifth bit of element e. */
static void unpack_q5_0(const uint8_t *row, int i, struct block32 *b)
{
    const uint8_t *w = row + 22 * (size_t)i;
    uint32_t high = load_u32(w + 2);
    for (int e = 0; e < 32; e++) b->code[e] = (int8_t)((nibble_of_32(w + 6, e) | (int)(high >> e & 1) << 4) - 16);
    one_scale(b, load_f16(w), 0);
}

/* { f16 d, m; u32 qh; qs[16] } */
static void unpack_q5_1(const uint8_t *row, int i, struct block32 *b)
{
    const uint8_t *w = row + 24 * (size_t)i;
    uint32_t high = load_u32(w + 4);
    for (int e = 0; e < 32; e++) b->code[e] = (int8_t)(nibble_of_32(w + 8, e) | (int)(high >> e & 1) << 4);
    one_scale(b, load_f16(w), load_f16(w + 2));
}

/* { f16 d; i8 qs[32] } */
static void unpack_q8_0(const uint8_t *row, int i, struct block32 *b)
{
    const uint8_t *w = row + 34 * (size_t)i;
    for (int e = 0; e < 32; e++) b->code[e] = (int8_t)w[2 + e];
    one_scale(b, load_f16(w), 0);
}

/* { f16 d; qs[16] } */
static void unpack_iq4_nl(const uint8_t *row, int i, struct block32 *b)
{
    const uint8_t *w = row + 18 * (size_t)i;
    for (int e = 0; e < 32; e++) b->code[e] = iq4_values[nibble_of_32(w + 2, e)];
    one_scale(b, load_f16(w), 0);
}

/* { u8 e; qs[16] }: 2^(e-127) times FP4, so 2^(e-128) times its doubled integers. */
static void unpack_mxfp4(const uint8_t *row, int i, struct block32 *b)
{
    const uint8_t *w = row + 17 * (size_t)i;
    for (int e = 0; e < 32; e++) b->code[e] = fp4_values[nibble_of_32(w + 1, e)];
    uint32_t x = w[0];
    one_scale(b, f32_from_bits(x < 2 ? 0x00200000u << x : (x - 1) << 23), 0);
}

/* Unsigned E4M3: no sign, no infinity, 0x7f is zero. */
static float ue4m3(uint8_t x)
{
    int e = x >> 3 & 15, m = x & 7;
    if (x == 0x7f) return 0;
    return e == 0 ? (float)m * 0x1p-9f : (float)((8 + m) << e) * 0x1p-10f;
}

/* { u8 scales[4]; qs[32] }, 64 elements: per 16 a scale and 8 bytes, low nibbles elements 0-7, high 8-15. */
static void unpack_nvfp4(const uint8_t *row, int i, struct block32 *b)
{
    const uint8_t *w = row + 36 * (size_t)(i / 2), *scale = w + 2 * (i % 2), *qs = w + 4 + 16 * (i % 2);
    for (int e = 0; e < 32; e++) b->code[e] = fp4_values[low_or_high(qs[e / 16 * 8 + e % 8], e / 8 & 1)];
    b->dw = ue4m3(scale[0]) * 0.5f;
    b->dw1 = ue4m3(scale[1]) * 0.5f;
    b->m = 0;
}

/* { f16 d; bits[16] }, 128 elements */
static void unpack_q1_0(const uint8_t *row, int i, struct block32 *b)
{
    const uint8_t *w = row + 18 * (size_t)(i / 4), *bits = w + 2 + 4 * (i % 4);
    for (int e = 0; e < 32; e++) b->code[e] = bits[e / 8] >> (e % 8) & 1 ? 1 : -1;
    one_scale(b, load_f16(w), 0);
}

/* { f16 d; qs[16] }, 64 elements */
static void unpack_q2_0(const uint8_t *row, int i, struct block32 *b)
{
    const uint8_t *w = row + 18 * (size_t)(i / 2), *qs = w + 2 + 8 * (i % 2);
    for (int e = 0; e < 32; e++) b->code[e] = (int8_t)((qs[e / 4] >> (2 * (e % 4)) & 3) - 1);
    one_scale(b, load_f16(w), 0);
}

/* ---- MLX: codes of some bits one after the other, the lowest bits of the first byte first ---- */

static void unpack_bits(const uint8_t *row, int i, int bits, struct block32 *b)
{
    const uint8_t *w = row + (size_t)i * (size_t)bits * 4;
    for (int e = 0; e < 32; e++) {
        int at = e * bits, shift = at % 8, code = w[at / 8] >> shift;
        if (shift + bits > 8) code |= w[at / 8 + 1] << (8 - shift);
        b->code[e] = (int16_t)(code & ((1 << bits) - 1));
    }
}

static void unpack_mlx2(const uint8_t *row, int i, struct block32 *b) { unpack_bits(row, i, 2, b); }
static void unpack_mlx3(const uint8_t *row, int i, struct block32 *b) { unpack_bits(row, i, 3, b); }
static void unpack_mlx4(const uint8_t *row, int i, struct block32 *b) { unpack_bits(row, i, 4, b); }
static void unpack_mlx5(const uint8_t *row, int i, struct block32 *b) { unpack_bits(row, i, 5, b); }
static void unpack_mlx6(const uint8_t *row, int i, struct block32 *b) { unpack_bits(row, i, 6, b); }
static void unpack_mlx8(const uint8_t *row, int i, struct block32 *b) { unpack_bits(row, i, 8, b); }

static float side_value(enum dtype t, const uint8_t *p, size_t i)
{
    return t == DT_F32 ? load_f32(p + 4 * i) : t == DT_F16 ? load_f16(p + 2 * i) : bf16_to_f32(load_u16(p + 2 * i));
}

void unpack_side(const struct side *row, int i, struct block32 *b)
{
    size_t group = (size_t)i * 32 / (size_t)row->group;
    one_scale(b, side_value(row->type, row->scale, group), side_value(row->type, row->bias, group));
}

/* ---- by type ---- */

#define ENTRY(ID, name, ...) [DT_##ID] = unpack_##name,

unpack256_fn *unpack256_of(enum dtype t)
{
    static unpack256_fn *const fn[DT_N] = {DTYPES_K256(ENTRY)};
    return fn[t];
}

unpack32_fn *unpack32_of(enum dtype t)
{
    static unpack32_fn *const fn[DT_N] = {DTYPES_Q32(ENTRY)};
    return fn[t];
}

bool unpack_has_min(enum dtype t)
{
#define MIN(ID, name, id, block, bytes, tail, floats, at0, at1, low, high, min, ...) [DT_##ID] = (min),
    static const bool has_min[DT_N] = {DTYPES_Q32(MIN) DTYPES_K256(MIN)};
#undef MIN
    return has_min[t];
}

bool unpack_has_halves(enum dtype t)
{
#define HALVES(ID, ...) [DT_##ID] = true,
    static const bool has_halves[DT_N] = {DTYPES_B32_HALVES(HALVES)};
#undef HALVES
    return has_halves[t];
}
