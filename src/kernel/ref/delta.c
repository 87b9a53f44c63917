/* SPDX-License-Identifier: MIT
 *
 * delta.c: the gated delta rule, its convolution, gates and norm (docs/KERNELS.md section 5).
 *
 * "Gated Delta Networks" (Yang, Kautz, Hatamizadeh, 2024), one step after the other. The chunked form of the
 * paper, which makes many steps into matrix products, is another order of the same sums and so has no place here.
 */
#include <assert.h>

#include "base/exact_math.h"
#include "kernel/ref/ref.h"

void conv_silu_ref(const struct conv *c, void *scratch)
{
    (void)scratch;
    assert(c->n_taps >= 2 && c->n_taps <= CONV_MAX_TAPS && c->n_rows >= 1);
    int old = c->n_taps - 1;
    for (int ch = 0; ch < c->n_channels; ch++) {
        float x[CONV_MAX_TAPS];
        for (int i = 0; i < old; i++) x[i] = c->state[(size_t)i * c->ld_state + (size_t)ch];
        for (int t = 0; t < c->n_rows; t++) {
            float u = 0;
            x[old] = c->x[(size_t)t * c->ld_x + (size_t)ch];
            for (int i = 0; i < c->n_taps; i++)
                u = __builtin_fmaf(c->w[(size_t)ch * (size_t)c->n_taps + (size_t)i], x[i], u);
            c->y[(size_t)t * c->ld_y + (size_t)ch] = math_siluf(u);
            for (int i = 0; i < old; i++) x[i] = x[i + 1];
        }
        for (int i = 0; i < old; i++) c->state[(size_t)i * c->ld_state + (size_t)ch] = x[i];
    }
}

static float dot(const float *a, const float *b, int n)
{
    float lane[16] = {0};
    for (int i = 0; i < n; i++) lane[i % 16] = __builtin_fmaf(a[i], b[i], lane[i % 16]);
    return lanes16_sum(lane);
}

void delta_ref(const struct delta *d, void *scratch)
{
    (void)scratch;
    for (int t = 0; t < d->n_rows; t++) {
        const float *q = d->q + (size_t)t * d->ld_qk, *k = d->k + (size_t)t * d->ld_qk;
        float decay = d->decay[(size_t)t * d->ld_gate], beta = d->beta[(size_t)t * d->ld_gate];
        for (int j = 0; j < d->n_dims; j++) {
            float *m = d->m + (size_t)j * (size_t)d->dk;
            float e = beta * __builtin_fmaf(-decay, dot(m, k, d->dk), d->v[(size_t)t * d->ld_v + (size_t)j]);
            for (int i = 0; i < d->dk; i++) m[i] = __builtin_fmaf(k[i], e, decay * m[i]);
            d->o[(size_t)t * d->ld_o + (size_t)j] = dot(m, q, d->dk);
        }
    }
}

void delta_gates_ref(const float *a, const float *b, const float *rate, const float *bias, int n, float *decay,
                     float *beta, void *scratch)
{
    (void)scratch;
    for (int i = 0; i < n; i++) {
        decay[i] = math_expf(rate[i] * math_softplusf(a[i] + bias[i]));
        beta[i] = math_sigmoidf(b[i]);
    }
}

void l2_norm_ref(const float *x, float eps, float scale, int n, float *y, void *scratch)
{
    (void)scratch;
    float r = scale / __builtin_sqrtf(dot(x, x, n) + eps);
    for (int i = 0; i < n; i++) y[i] = x[i] * r;
}
