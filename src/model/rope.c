/* SPDX-License-Identifier: MIT
 *
 * rope.c: frequency tables for the plain, linear, YaRN and factor-table forms.
 *
 * Every form is `angle = position * freq[i]`. They differ in freq and in one multiplier of cos and sin. The
 * factor-table forms (Llama 3, LongRoPE) divide by a table in the file. docs/FAMILIES.md compares the families' use of
 * YaRN.
 */
#include "model/rope.h"

#include <assert.h>
#include <math.h>

#include "base/math.h"

static const double two_pi = 6.283185307179586476925;

/* The index, not rounded, of the pair that makes `beta` turns in the original context. */
static double yarn_pair(const struct hparams *h, double beta)
{
    return h->n_rot * math_log(h->rope_ctx_orig / (beta * two_pi)) / (2 * math_log(h->rope_base));
}

/* 1 for pairs that turn too slowly to be extrapolated (interpolate them), 0 for fast ones. */
static double yarn_slow(double low, double high, int i)
{
    double y = (i - low) / fmax(0.001, high - low);
    return fmin(1, fmax(0, y));
}

/* The pairs between which the ramp rises. Most models were trained with whole numbers. */
static void yarn_range(const struct hparams *h, double *low, double *high)
{
    *low = yarn_pair(h, h->yarn_beta_fast);
    *high = yarn_pair(h, h->yarn_beta_slow);
    if (!h->yarn_exact_range) {
        *low = floor(*low);
        *high = ceil(*high);
    }
    *low = fmax(0, *low);
    *high = fmin(h->n_rot - 1, *high);
}

/* The multiplier of cos and sin: the file's, or the one that follows from the factor. A file with a multiplier of the
 * logarithm corrects the attention's scale instead. */
static double yarn_attn(const struct hparams *h)
{
    if (h->yarn_attn_factor != 0) return h->yarn_attn_factor;
    return h->yarn_log_mul != 0 || h->rope_factor <= 1 ? 1 : 1 + 0.1 * math_log(h->rope_factor);
}

void rope_init(struct rope *r, const struct hparams *h, const float *factors)
{
    assert(h->n_rot % 2 == 0 && h->n_rot <= HP_MAX_HEAD_DIM);
    double interpolate = h->rope_scaling == ROPE_LINEAR || h->rope_scaling == ROPE_YARN ? 1 / h->rope_factor : 1;
    double low = 0, high = 0;
    r->n_pairs = h->n_rot / 2;
    r->scale = h->rope_attn_factor;
    if (h->rope_scaling == ROPE_YARN) {
        yarn_range(h, &low, &high);
        r->scale *= yarn_attn(h);
    }
    for (int i = 0; i < r->n_pairs; i++) {
        double f = math_pow(h->rope_base, -2.0 * i / h->n_rot) / (factors ? factors[i] : 1);
        double keep = h->rope_scaling == ROPE_YARN ? (1 - yarn_slow(low, high, i)) * h->yarn_ext_factor : 0;
        r->freq[i] = f * (interpolate * (1 - keep) + keep);
    }
}

void rope_init_local(struct rope *r, const struct hparams *h)
{
    r->n_pairs = h->n_rot / 2;
    r->scale = 1;
    for (int i = 0; i < r->n_pairs; i++) r->freq[i] = math_pow(h->rope_base_local, -2.0 * i / h->n_rot);
}

int rope_check(const struct rope *r, struct qn_error *e)
{
    for (int i = 0; i < r->n_pairs; i++)
        if (!(r->freq[i] > 0 && r->freq[i] <= ROPE_MAX_FREQ))
            return error_set(e, QN_EDATA, "model: rotation of pair %d by %g radians per position, not in (0, %g]", i,
                             r->freq[i], ROPE_MAX_FREQ);
    return 0;
}

void rope_at(const struct rope *r, int32_t pos, float (*cs)[2])
{
    for (int i = 0; i < r->n_pairs; i++) {
        double a = pos * r->freq[i];
        cs[i][0] = (float)(math_cos(a) * r->scale);
        cs[i][1] = (float)(math_sin(a) * r->scale);
    }
}
