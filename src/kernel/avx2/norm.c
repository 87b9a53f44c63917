/* SPDX-License-Identifier: MIT
 *
 * norm.c: RMS normalisation, softmax and the element-wise sums (docs/KERNELS.md section 4), 8 elements at a time.
 *
 * The rest at the end goes through a padded copy, so that nothing beyond the arrays is touched. In the two sums (of
 * squares and of exponentials) padding with zeros is exact: no partial sum can be -0 there.
 */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/math.h"

/* The last n % 16 elements belong to lanes 0 ... as every other group of 16 does. */
static void rms_norm_avx2(const float *x, const float *w, float eps, int n, float *y, void *scratch)
{
    (void)scratch;
    __m256 lane[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + 8);
        lane[0] = _mm256_fmadd_ps(a, a, lane[0]);
        lane[1] = _mm256_fmadd_ps(b, b, lane[1]);
    }
    for (int l = 0; i < n; i += 8, l++) {
        __m256 a = n - i < 8 ? vec_load_n(x + i, n - i) : _mm256_loadu_ps(x + i);
        lane[l] = _mm256_fmadd_ps(a, a, lane[l]);
    }
    float r = 1.0f / __builtin_sqrtf(vec_tree16(lane[0], lane[1]) / (float)n + eps);
    for (i = 0; i + 8 <= n; i += 8) {
        __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(r));
        _mm256_storeu_ps(y + i, w ? _mm256_mul_ps(v, _mm256_loadu_ps(w + i)) : v);
    }
    for (; i < n; i++) y[i] = w ? (x[i] * r) * w[i] : x[i] * r;
}

static void add_avx2(float *y, const float *x, int n, void *scratch)
{
    (void)scratch;
    int i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(y + i), _mm256_loadu_ps(x + i)));
    for (; i < n; i++) y[i] += x[i];
}

static void add_scaled_avx2(float *y, const float *x, float s, int n, void *scratch)
{
    (void)scratch;
    int i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_fmadd_ps(_mm256_set1_ps(s), _mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
    for (; i < n; i++) y[i] = __builtin_fmaf(s, x[i], y[i]);
}

static void scale_avx2(float *y, float s, int n, void *scratch)
{
    (void)scratch;
    int i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_loadu_ps(y + i), _mm256_set1_ps(s)));
    for (; i < n; i++) y[i] *= s;
}

static float softmax_exp_avx2(const float *x, int n, float *y, void *scratch)
{
    (void)scratch;
    const __m256 max = _mm256_set1_ps(vec_largest(x, n));
    __m256 lane[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = math_exp8(_mm256_sub_ps(_mm256_loadu_ps(x + i), max));
        _mm256_storeu_ps(y + i, v);
        lane[i / 8 % 2] = _mm256_add_ps(lane[i / 8 % 2], v);
    }
    if (i < n) {
        vec_store_n(y + i, math_exp8(_mm256_sub_ps(vec_load_n(x + i, n - i), max)), n - i);
        lane[i / 8 % 2] = _mm256_add_ps(lane[i / 8 % 2], vec_load_n(y + i, n - i));
    }
    return vec_tree16(lane[0], lane[1]);
}

void avx2_init_norm(struct kernels *k)
{
    k->rms_norm = rms_norm_avx2;
    k->add = add_avx2;
    k->add_scaled = add_scaled_avx2;
    k->scale = scale_avx2;
    k->softmax_exp = softmax_exp_avx2;
}
