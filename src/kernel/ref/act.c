/* SPDX-License-Identifier: MIT
 *
 * act.c: gated activation functions and the soft cap (docs/KERNELS.md section 4).
 */
#include "base/exact_math.h"
#include "kernel/ref/ref.h"

void act_mul_silu_ref(const float *gate, const float *up, int n, float *y, void *scratch)
{
    (void)scratch;
    for (int i = 0; i < n; i++) y[i] = math_siluf(gate[i]) * up[i];
}

void act_mul_gelu_ref(const float *gate, const float *up, int n, float *y, void *scratch)
{
    (void)scratch;
    for (int i = 0; i < n; i++) y[i] = math_geluf(gate[i]) * up[i];
}

void act_mul_relu2_ref(const float *gate, const float *up, int n, float *y, void *scratch)
{
    (void)scratch;
    for (int i = 0; i < n; i++) y[i] = math_relu2f(gate[i]) * up[i];
}

void act_mul_sigmoid_ref(const float *gate, const float *up, int n, float *y, void *scratch)
{
    (void)scratch;
    for (int i = 0; i < n; i++) y[i] = math_sigmoidf(gate[i]) * up[i];
}

void act_mul_clamped_ref(const float *gate, const float *up, int n, float *y, void *scratch)
{
    (void)scratch;
    for (int i = 0; i < n; i++) y[i] = math_clampedf(gate[i], up[i]);
}

void softcap_ref(float *y, float cap, int n, void *scratch)
{
    (void)scratch;
    float inv = 1.0f / cap;
    for (int i = 0; i < n; i++) y[i] = cap * math_tanhf(y[i] * inv);
}
