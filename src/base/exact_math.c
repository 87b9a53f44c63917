/* SPDX-License-Identifier: MIT
 *
 * exact_math.c: exp, tanh, log and the activation functions in f32.
 *
 * The contract's functions, step by step; the coefficients are those of Cephes (S. Moshier, single
 * precision expf, tanhf and logf). No call leaves this file but fma.
 */
#include "base/exact_math.h"

/* Adding and taking away 1.5 * 2^23 leaves the nearest integer, ties to even, for arguments
 * far smaller than that. */
static float round_evenf(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

float math_expf(float x)
{
    if (x != x) return x;
    if (x > MATH_EXP_MAX) return __builtin_inff();
    if (x < MATH_EXP_MIN) return 0;
    float n = round_evenf(x * MATH_EXP_LOG2E);
    float r = __builtin_fmaf(n, MATH_EXP_C1, x);
    r = __builtin_fmaf(n, MATH_EXP_C2, r);
    float p = MATH_EXP_P0;
    p = __builtin_fmaf(p, r, MATH_EXP_P1);
    p = __builtin_fmaf(p, r, MATH_EXP_P2);
    p = __builtin_fmaf(p, r, MATH_EXP_P3);
    p = __builtin_fmaf(p, r, MATH_EXP_P4);
    p = __builtin_fmaf(p, r, MATH_EXP_P5);
    float y = __builtin_fmaf(p, r * r, r) + 1.0f;
    /* n is in -126..128, one more than an exponent field holds: two halves, both exact. */
    int a = (int)n / 2, b = (int)n - a;
    return y * f32_from_bits((uint32_t)(a + 127) << 23) * f32_from_bits((uint32_t)(b + 127) << 23);
}

float math_tanhf(float x)
{
    float a = __builtin_fabsf(x), t;
    if (a > MATH_TANH_MAX) {
        t = 1.0f;
    } else if (a >= MATH_TANH_SPLIT) {
        float e = math_expf(2.0f * a);
        t = (e - 1.0f) / (e + 1.0f);
    } else if (a < MATH_TANH_MIN) {
        t = a;
    } else { /* NaN comes here and stays NaN */
        float z = a * a, p = MATH_TANH_P0;
        p = __builtin_fmaf(p, z, MATH_TANH_P1);
        p = __builtin_fmaf(p, z, MATH_TANH_P2);
        p = __builtin_fmaf(p, z, MATH_TANH_P3);
        p = __builtin_fmaf(p, z, MATH_TANH_P4);
        t = __builtin_fmaf(a * z, p, a);
    }
    return __builtin_copysignf(t, x);
}

float math_siluf(float g) { return g / (1.0f + math_expf(-g)); }

float math_geluf(float g)
{
    float u = MATH_GELU_A * __builtin_fmaf(MATH_GELU_B * g, g * g, g);
    return (0.5f * g) * (1.0f + math_tanhf(u));
}

float math_relu2f(float g)
{
    float r = 0.0f > g ? 0.0f : g; /* this way round NaN stays */
    return r * r;
}

float math_clampedf(float g, float u)
{
    g = MATH_CLAMP < g ? MATH_CLAMP : g; /* NaN stays, in both */
    u = MATH_CLAMP < u ? MATH_CLAMP : u;
    u = -MATH_CLAMP > u ? -MATH_CLAMP : u;
    return g / (1.0f + math_expf(-(MATH_CLAMPED_SLOPE * g))) * (u + 1.0f);
}

float math_sigmoidf(float x) { return 1.0f / (1.0f + math_expf(-x)); }

/* log(x) of a normal x > 0: x = (1 + f) * 2^e. Anything goes in and something comes out, a NaN included. */
static float logf_positive(float x)
{
    uint32_t u = f32_bits(x);
    int e = (int)(u - MATH_LOG_SPLIT) >> 23;
    float f = f32_from_bits(u - ((uint32_t)e << 23)) - 1.0f, z = f * f, n = (float)e;
    float p = MATH_LOG_P0;
    p = __builtin_fmaf(p, f, MATH_LOG_P1);
    p = __builtin_fmaf(p, f, MATH_LOG_P2);
    p = __builtin_fmaf(p, f, MATH_LOG_P3);
    p = __builtin_fmaf(p, f, MATH_LOG_P4);
    p = __builtin_fmaf(p, f, MATH_LOG_P5);
    p = __builtin_fmaf(p, f, MATH_LOG_P6);
    p = __builtin_fmaf(p, f, MATH_LOG_P7);
    p = __builtin_fmaf(p, f, MATH_LOG_P8);
    float y = __builtin_fmaf(n, -MATH_EXP_C2, (f * z) * p);
    y = __builtin_fmaf(-0.5f, z, y);
    return __builtin_fmaf(n, -MATH_EXP_C1, f + y);
}

/* The second term is what 1 + u lost of u, which is all of it where u is small. */
float math_softplusf(float x)
{
    if (x > MATH_SOFTPLUS_MAX) return x;
    float u = math_expf(x), w = 1.0f + u;
    return logf_positive(w) + (u - (w - 1.0f)) / w;
}
