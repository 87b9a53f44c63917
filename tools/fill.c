/* SPDX-License-Identifier: MIT
 *
 * fill.c: random weights in any stored type, of a chosen size.
 *
 * A quantised block is random bits with a few fields put right afterwards. That is as fast as the random numbers
 * are, needs no quantiser, and uses every code of the format. Put right are the scale, so that the values have the
 * size asked for, and whatever would give them a mean: the matrices of a network are applied one after the other,
 * and a mean of a tenth of the deviation grows into a vector that drowns everything else. So the minimum of a type
 * that has one cancels the mean of its codes, and the scale of the others has a random sign.
 *
 * Layouts: the block tables of the GGUF format (docs/FORMATS.md); the multi-byte fields are little-endian, and so
 * is every machine this runs on.
 *
 * Does not draw from a bell curve: codes are uniform, which costs a kernel exactly the same.
 */
#include "fill.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* For each type: the byte offset of its f16 scale d, and the root mean square of its values for d = 1 and the
 * codes that finish_block() leaves (sub-scales included). Measured with a decoder written from the format. */
static const struct {
    uint8_t scale;
    float unit;
} recipe[DT_N] = {
    [DT_Q4_0] = {0, 4.64f},     [DT_Q4_1] = {0, 4.61f},     [DT_Q5_0] = {0, 9.25f},    [DT_Q5_1] = {0, 9.23f},
    [DT_Q8_0] = {0, 73.6f},     [DT_Q1_0] = {0, 1.0f},      [DT_Q2_0] = {0, 1.22f},    [DT_Q2_K] = {80, 13.1f},
    [DT_Q3_K] = {108, 43.4f},   [DT_Q4_K] = {0, 223.0f},    [DT_Q5_K] = {0, 447.0f},   [DT_Q6_K] = {208, 1366.0f},
    [DT_IQ1_S] = {0, 7.17f},    [DT_IQ1_M] = {0, 7.22f},    [DT_IQ2_XXS] = {0, 53.6f}, [DT_IQ2_XS] = {0, 56.0f},
    [DT_IQ2_S] = {0, 56.2f},    [DT_IQ3_XXS] = {0, 143.0f}, [DT_IQ3_S] = {0, 140.0f},  [DT_IQ4_NL] = {0, 67.4f},
    [DT_IQ4_XS] = {0, 1248.0f}, [DT_TQ1_0] = {52, 0.817f},  [DT_TQ2_0] = {64, 0.707f}, [DT_MXFP4] = {0, 5.85f},
    [DT_NVFP4] = {0, 2.93f},    [DT_I2_S] = {0, 0.707f},
};

/* SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014). */
static uint64_t next_u64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void random_bytes(uint8_t *out, size_t n, uint64_t *state)
{
    uint64_t r;
    size_t i = 0;
    for (; i + sizeof r <= n; i += sizeof r) {
        r = next_u64(state);
        memcpy(out + i, &r, sizeof r);
    }
    r = next_u64(state);
    memcpy(out + i, &r, n - i);
}

/* Round to nearest even. |x| < 65520: weights and their scales are small. */
static uint16_t to_f16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    uint16_t sign = (uint16_t)((u >> 16) & 0x8000);
    if (fabsf(x) < 0x1p-14f) return (uint16_t)(sign | (uint16_t)lrintf(fabsf(x) * 0x1p24f)); /* subnormal */
    u &= 0x7fffffff;
    u += 0xfff + ((u >> 13) & 1);
    return (uint16_t)(sign | ((u >> 13) - (112 << 10)));
}

static uint16_t to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

static void put_f16(uint8_t *p, double x)
{
    uint16_t h = to_f16((float)x);
    memcpy(p, &h, sizeof h);
}

/* The twelve bytes of eight 6-bit scales and eight 6-bit minimums of Q4_K and Q5_K. Scales are in their upper half,
 * as a quantiser leaves them; a minimum is its scale but for the two lowest bits, so that the two fields cancel on
 * average and yet a reader that confuses them is caught. */
static void put_scales6(uint8_t b[12])
{
    uint8_t s[8], m[8];
    for (int j = 0; j < 8; j++) {
        s[j] = 32 | (b[j] & 31);
        m[j] = s[j] ^ (b[j] >> 6);
    }
    for (int j = 0; j < 4; j++) {
        b[j] = (uint8_t)(s[j] | (s[j + 4] >> 4) << 6);
        b[j + 4] = (uint8_t)(m[j] | (m[j + 4] >> 4) << 6);
        b[j + 8] = (uint8_t)((s[j + 4] & 15) | (m[j + 4] & 15) << 4);
    }
}

/* The four UE4M3 scales of an NVFP4 block: the code below d and the next one up, at random. */
static void put_ue4m3(uint8_t b[4], double d)
{
    int e;
    double m = frexp(d, &e); /* d = 2m * 2^(e-1), 2m in [1, 2) */
    int code = e > -6 ? (e + 6) << 3 | (int)(16 * m - 8) : (int)(d * 0x1p9);
    for (int s = 0; s < 4; s++) {
        int c = code + (b[s] & 1);
        b[s] = (uint8_t)(c < 1 ? 1 : c > 0x7e ? 0x7e : c); /* 0x7f is not a number */
    }
}

/* IQ1_M has no field for its scale: the f16 is spread over the top nibbles of its last four 16-bit words. */
static void put_iq1m(uint8_t b[56], double d)
{
    uint16_t h = to_f16((float)d);
    for (int i = 0; i < 4; i++) {
        uint8_t *top = b + 48 + 2 * i + 1;
        *top = (uint8_t)((*top & 15) | ((h >> 4 * i) & 15) << 4);
    }
}

/* b: one block of random bits; r: a random number of its own. Scales vary by a quarter from block to block. */
static void finish_block(enum dtype t, uint8_t *b, double rms, uint64_t r)
{
    double d = rms / recipe[t].unit * (0.75 + 0.5 * (double)(r >> 40) * 0x1p-24);
    double either = r & 1 ? d : -d;

    switch (t) {
    case DT_Q4_1:
    case DT_Q5_1:
        put_f16(b, d);
        put_f16(b + 2, t == DT_Q4_1 ? -7.5 * d : -15.5 * d);
        break;
    case DT_Q2_K:
        for (int i = 0; i < 16; i++) {
            uint8_t scale = 8 | (b[i] & 7);
            b[i] = (uint8_t)(scale | (scale ^ (b[i] >> 7)) << 4);
        }
        put_f16(b + 80, d);
        put_f16(b + 82, 1.5 * d);
        break;
    case DT_Q4_K:
    case DT_Q5_K:
        put_f16(b, d);
        put_f16(b + 2, t == DT_Q4_K ? 7.5 * d : 15.5 * d);
        put_scales6(b + 4);
        break;
    case DT_Q8_0: /* no quantiser writes -128, and some kernels rely on it */
        for (int i = 2; i < 34; i++)
            if (b[i] == 0x80) b[i] = 0x81;
        put_f16(b, either);
        break;
    case DT_TQ2_0: /* three of the four codes are values */
    case DT_I2_S:
        for (int i = 0; i < 64; i++) b[i] &= (uint8_t) ~(((b[i] >> 1) & b[i] & 0x55) << 1);
        if (t == DT_TQ2_0) put_f16(b + 64, either);
        break;
    case DT_IQ1_M: put_iq1m(b, either); break;
    case DT_MXFP4: b[0] = (uint8_t)(128 + (int)lrint(log2(d))); break;
    case DT_NVFP4: put_ue4m3(b, d); break;
    default: put_f16(b + recipe[t].scale, either); break;
    }
}

float fill_tail(enum dtype t, double rms) { return (float)(rms / (double)recipe[t].unit); }

void fill_uniform(float *out, size_t n, float centre, float spread, uint64_t *state)
{
    for (size_t i = 0; i < n; i++) {
        float u = (float)(next_u64(state) >> 40) * 0x1p-23f - 1.0f; /* [-1, 1) */
        out[i] = centre + spread * u;
    }
}

static void fill_floats(uint8_t *out, enum dtype t, size_t n, double rms, uint64_t *state)
{
    float spread = (float)(rms * sqrt(3)); /* a uniform distribution of deviation 1 reaches to sqrt(3) */
    for (size_t i = 0; i < n; i++) {
        float x;
        fill_uniform(&x, 1, 0.0f, spread, state);
        if (t == DT_F32) {
            memcpy(out + 4 * i, &x, sizeof x);
        } else {
            uint16_t h = t == DT_F16 ? to_f16(x) : to_bf16(x);
            memcpy(out + 2 * i, &h, sizeof h);
        }
    }
}

void fill_blocks(uint8_t *out, enum dtype t, size_t n, double rms, uint64_t *state)
{
    if (t == DT_F32 || t == DT_F16 || t == DT_BF16) {
        fill_floats(out, t, n, rms, state);
        return;
    }
    assert(recipe[t].unit > 0);
    size_t bytes = dtype_get(t)->bytes;
    random_bytes(out, n * bytes, state);
    for (size_t i = 0; i < n; i++) finish_block(t, out + i * bytes, rms, next_u64(state));
}
