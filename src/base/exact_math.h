/* SPDX-License-Identifier: MIT
 *
 * exact_math.h: the arithmetic contract's exp, tanh, log and activation functions in f32 (docs/KERNELS.md section 4).
 *
 * They are part of the arithmetic: what a model says depends on every bit of them. Every instruction set computes them
 * by the same steps with the constants below and gives the same bits. Those in double, for tables that are made once,
 * are in base/math.h.
 */
#ifndef QUERN_BASE_EXACT_MATH_H
#define QUERN_BASE_EXACT_MATH_H

#include <stdint.h>
#include <string.h>

#define MATH_EXP_MAX   88.72f  /* above: +inf */
#define MATH_EXP_MIN   -87.33f /* below: +0; down to here the result is no denormal */
#define MATH_EXP_LOG2E 1.44269504f
#define MATH_EXP_C1    -0.693359375f /* -ln 2 in two parts; n times the first is exact */
#define MATH_EXP_C2    2.12194440e-4f
#define MATH_EXP_P0    1.9875691500e-4f
#define MATH_EXP_P1    1.3981999507e-3f
#define MATH_EXP_P2    8.3334519073e-3f
#define MATH_EXP_P3    4.1665795894e-2f
#define MATH_EXP_P4    1.6666665459e-1f
#define MATH_EXP_P5    5.0000001201e-1f

#define MATH_TANH_MAX   10.0f   /* above: 1 */
#define MATH_TANH_MIN   0.0004f /* below: the argument itself */
#define MATH_TANH_SPLIT 0.5f    /* below: the polynomial; from here on exp */
#define MATH_TANH_P0    -5.70498872745e-3f
#define MATH_TANH_P1    2.06390887954e-2f
#define MATH_TANH_P2    -5.37397155531e-2f
#define MATH_TANH_P3    1.33314422036e-1f
#define MATH_TANH_P4    -3.33332819422e-1f

#define MATH_LOG_SPLIT 0x3f3504f3 /* the bits of sqrt(1/2): mantissas are taken from there to sqrt(2) */
#define MATH_LOG_P0    7.0376836292e-2f
#define MATH_LOG_P1    -1.1514610310e-1f
#define MATH_LOG_P2    1.1676998740e-1f
#define MATH_LOG_P3    -1.2420140846e-1f
#define MATH_LOG_P4    1.4249322787e-1f
#define MATH_LOG_P5    -1.6668057665e-1f
#define MATH_LOG_P6    2.0000714765e-1f
#define MATH_LOG_P7    -2.4999993993e-1f
#define MATH_LOG_P8    3.3333331174e-1f

#define MATH_SOFTPLUS_MAX 20.0f /* above: the argument itself */

#define MATH_GELU_A 0.79788456f /* sqrt(2 / pi) */
#define MATH_GELU_B 0.044715f

#define MATH_CLAMP         7.0f /* gpt-oss's activation: the limit of gate and up */
#define MATH_CLAMPED_SLOPE 1.702f

/* A float and its bits. */
static inline uint32_t f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float f32_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Any argument, infinite and NaN included; a NaN gives a NaN. */
float math_expf(float x);
float math_tanhf(float x);
float math_siluf(float g);
float math_geluf(float g);
float math_relu2f(float g);
float math_clampedf(float g, float u); /* gpt-oss: the whole product */
float math_sigmoidf(float x);
float math_softplusf(float x); /* log(1 + exp(x)) */

#endif
