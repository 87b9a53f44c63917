/* SPDX-License-Identifier: MIT
 *
 * norm.c: RMS normalisation, softmax and the element-wise sums (docs/KERNELS.md section 4).
 */
#include "base/exact_math.h"
#include "kernel/ref/ref.h"

void rms_norm_ref(const float *x, const float *w, float eps, int n, float *y, void *scratch)
{
    (void)scratch;
    float lane[16] = {0};
    for (int i = 0; i < n; i++) lane[i % 16] = __builtin_fmaf(x[i], x[i], lane[i % 16]);
    float r = 1.0f / __builtin_sqrtf(lanes16_sum(lane) / (float)n + eps);
    for (int i = 0; i < n; i++) y[i] = w ? (x[i] * r) * w[i] : x[i] * r;
}

void add_ref(float *y, const float *x, int n, void *scratch)
{
    (void)scratch;
    for (int i = 0; i < n; i++) y[i] += x[i];
}

void add_scaled_ref(float *y, const float *x, float s, int n, void *scratch)
{
    (void)scratch;
    for (int i = 0; i < n; i++) y[i] = __builtin_fmaf(s, x[i], y[i]);
}

void scale_ref(float *y, float s, int n, void *scratch)
{
    (void)scratch;
    for (int i = 0; i < n; i++) y[i] *= s;
}

float softmax_exp_ref(const float *x, int n, float *y, void *scratch)
{
    (void)scratch;
    float max = -__builtin_inff(), lane[16] = {0};
    for (int i = 0; i < n; i++)
        if (x[i] > max) max = x[i];
    for (int i = 0; i < n; i++) {
        y[i] = math_expf(x[i] - max);
        lane[i % 16] += y[i];
    }
    return lanes16_sum(lane);
}
