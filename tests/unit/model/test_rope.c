/* SPDX-License-Identifier: MIT
 *
 * test_rope.c: rotation angles, compared with the C library's functions in double precision.
 *
 * The formulas are written out again from the papers (Su et al. 2021; Peng et al. 2023 for YaRN, with the attention
 * factor 1 + 0.1 ln s; Ding et al. 2024 for LongRoPE), so that a slip in either copy shows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "model/rope.h"

static const int32_t positions[] = {0, 1, 2, 31, 100, 4095, 4096, 131071, 1000003, HP_MAX_CTX - 1};

static struct hparams base(void)
{
    return (struct hparams){.n_rot = 128,
                            .head_dim = 128,
                            .n_ctx_train = 4096,
                            .rope_base = 10000,
                            .rope_factor = 1,
                            .rope_attn_factor = 1,
                            .yarn_ext_factor = 1,
                            .yarn_beta_fast = 32,
                            .yarn_beta_slow = 1,
                            .rope_ctx_orig = 4096};
}

static void near(double got, double want, double tolerance, const char *what, int pair, int pos)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s, pair %d, position %d: %.17g, expected %.17g", what, pair, pos, got, want);
}

/* freq[i] to 1e-14 of its value; the angle at the last position is then right to 3e-6 at worst, f32 rounding and
 * argument reduction included. */
static void check(const char *what, const struct hparams *h, const float *factors, const double *freq, double scale)
{
    struct rope r;
    rope_init(&r, h, factors);
    assert_int_equal(r.n_pairs, h->n_rot / 2);
    near(r.scale, scale, 1e-14 * scale, what, -1, 0);
    for (int i = 0; i < r.n_pairs; i++) near(r.freq[i], freq[i], 1e-14 * freq[i], what, i, -1);
    for (size_t p = 0; p < sizeof positions / sizeof *positions; p++) {
        float cs[ROPE_MAX_PAIRS][2];
        rope_at(&r, positions[p], cs);
        for (int i = 0; i < r.n_pairs; i++) {
            double a = positions[p] * freq[i], tolerance = scale * (1.2e-7 + a * 1.2e-14);
            near(cs[i][0], cos(a) * scale, tolerance, what, i, positions[p]);
            near(cs[i][1], sin(a) * scale, tolerance, what, i, positions[p]);
        }
    }
}

static double plain(const struct hparams *h, int i) { return pow(h->rope_base, -2.0 * i / h->n_rot); }

static void plain_angles(void **state)
{
    (void)state;
    static const double bases[] = {1, 10000, 500000, 1e6, 1e7};
    static const int dims[] = {2, 24, 64, 96, 128, 512};
    for (int b = 0; b < 5; b++)
        for (int d = 0; d < 6; d++) {
            double freq[ROPE_MAX_PAIRS];
            struct hparams h = base();
            h.rope_base = bases[b];
            h.n_rot = dims[d];
            for (int i = 0; i < dims[d] / 2; i++) freq[i] = plain(&h, i);
            check("plain", &h, NULL, freq, 1);
        }
}

static void linear_scaling_divides_the_position(void **state)
{
    (void)state;
    double freq[64];
    struct hparams h = base();
    h.rope_scaling = ROPE_LINEAR;
    h.rope_factor = 8;
    for (int i = 0; i < 64; i++) freq[i] = plain(&h, i) / 8;
    check("linear", &h, NULL, freq, 1);
    h.rope_scaling = ROPE_NONE; /* a factor without a type does nothing */
    for (int i = 0; i < 64; i++) freq[i] = plain(&h, i);
    check("none", &h, NULL, freq, 1);
}

static void yarn_ramps_between_the_two(void **state)
{
    (void)state;
    static const struct {
        double theta, factor, attn;
        int orig, n_rot;
    } cases[] = {{1e6, 4, 1, 32768, 128}, {10000, 4, 1, 32, 64}, {150000, 32, 1, 4096, 64}, {10000, 40, 0.8, 4096, 64}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double freq[64];
        struct hparams h = base();
        h.rope_scaling = ROPE_YARN;
        h.rope_base = cases[c].theta;
        h.rope_factor = cases[c].factor;
        h.rope_attn_factor = cases[c].attn;
        h.rope_ctx_orig = cases[c].orig;
        h.n_rot = cases[c].n_rot;
        int d = h.n_rot, n_kept = 0, n_interpolated = 0;
        /* find_correction_range of the paper: the pair that makes beta turns in the original context */
        double low = floor(d * log(h.rope_ctx_orig / (32 * 2 * M_PI)) / (2 * log(h.rope_base)));
        double high = ceil(d * log(h.rope_ctx_orig / (1 * 2 * M_PI)) / (2 * log(h.rope_base)));
        if (low < 0) low = 0;
        if (high > d - 1) high = d - 1;
        for (int i = 0; i < d / 2; i++) {
            double ramp = (i - low) / (high - low);
            double extrapolate = ramp < 0 ? 1 : ramp > 1 ? 0 : 1 - ramp;
            freq[i] = plain(&h, i) * extrapolate + plain(&h, i) / h.rope_factor * (1 - extrapolate);
            n_kept += extrapolate == 1;
            n_interpolated += extrapolate == 0;
        }
        assert_true(n_kept > 0 && n_interpolated > 0); /* both ends of the ramp are in the test */
        check("yarn", &h, NULL, freq, h.rope_attn_factor * (1 + 0.1 * log(h.rope_factor)));
        h.yarn_ext_factor = 0; /* all of it interpolated */
        for (int i = 0; i < d / 2; i++) freq[i] = plain(&h, i) / h.rope_factor;
        check("yarn without extrapolation", &h, NULL, freq, h.rope_attn_factor * (1 + 0.1 * log(h.rope_factor)));
    }
}

/* gpt-oss-20b: the correction range of its config.json (`truncate` false) as published for it, 8.092779115512402 to
 * 17.39802450158856, and the pairs' shares written out from the model's definition, not from YaRN's. */
static void yarn_may_ramp_between_parts_of_pairs(void **state)
{
    (void)state;
    double freq[32];
    struct hparams h = base();
    h.rope_scaling = ROPE_YARN;
    h.rope_base = 150000;
    h.rope_factor = 32;
    h.rope_ctx_orig = 4096;
    h.n_rot = 64;
    h.yarn_exact_range = true;
    for (int i = 0; i < 32; i++) {
        const double low = 8.092779115512402, high = 17.39802450158856, period = pow(150000, 2.0 * i / 64);
        double share = (i - low) / (high - low);
        share = share < 0 ? 0 : share > 1 ? 1 : share;
        freq[i] = share / (32 * period) + (1 - share) / period;
    }
    check("yarn, exact", &h, NULL, freq, 1 + 0.1 * log(32));
    struct rope r; /* with whole pairs, 8 to 18, all between differ; pair 8 is left alone either way */
    h.yarn_exact_range = false;
    rope_init(&r, &h, NULL);
    near(r.freq[8], freq[8], 1e-14 * freq[8], "rounded", 8, -1);
    for (int i = 9; i < 18; i++) assert_true(fabs(r.freq[i] / freq[i] - 1) > 1e-3);
    double rounded = plain(&h, 17) * (1 / 10.0 + 9 / 320.0);
    near(r.freq[17], rounded, 1e-14 * rounded, "rounded", 17, -1);
}

/* A range of less than a pair is as steep as it is narrow. */
static void yarn_may_ramp_within_one_pair(void **state)
{
    (void)state;
    double freq[64];
    struct hparams h = base();
    h.rope_scaling = ROPE_YARN;
    h.rope_factor = 4;
    h.yarn_beta_fast = 1.1;
    h.yarn_exact_range = true;
    const double low = 128 * log(4096 / (1.1 * 2 * M_PI)) / (2 * log(10000)); /* 44.36 */
    const double high = 128 * log(4096 / (2 * M_PI)) / (2 * log(10000));      /* 45.02 */
    for (int i = 0; i < 64; i++) {
        const double share = i < 45 ? 0 : i > 45 ? 1 : (45 - low) / (high - low);
        freq[i] = plain(&h, i) * (share / 4 + 1 - share);
    }
    check("yarn, narrow", &h, NULL, freq, 1 + 0.1 * log(4));
}

/* OLMo 3: the file's multiplier replaces the one that follows from the factor, also if they differ. */
static void yarn_attention_factor_is_all_of_it(void **state)
{
    (void)state;
    static const double said[] = {1.2079441541679836, 1, 0.75};
    for (int c = 0; c < 3; c++) {
        double freq[64];
        struct hparams h = base();
        h.rope_scaling = ROPE_YARN;
        h.rope_base = 500000;
        h.rope_factor = 8;
        h.rope_ctx_orig = 8192;
        h.yarn_attn_factor = said[c];
        /* 64 ln(8192 / (beta 2 pi)) / ln 500000 is 18.08 for 32 turns and 34.98 for one */
        for (int i = 0; i < 64; i++) {
            double share = i < 18 ? 0 : i > 35 ? 1 : (i - 18) / 17.0;
            freq[i] = plain(&h, i) * (share / 8 + 1 - share);
        }
        check("olmo 3", &h, NULL, freq, said[c]);
    }
    struct hparams h = base();
    struct rope r;
    h.rope_scaling = ROPE_YARN;
    h.rope_factor = 0.5; /* a factor that does not extend the context does not change the multiplier */
    rope_init(&r, &h, NULL);
    assert_true(r.scale == 1);
}

/* Llama 3.1's divisors as its reference code makes them. */
static void llama3_factors_divide_the_frequencies(void **state)
{
    (void)state;
    float factors[64];
    double freq[64];
    struct hparams h = base();
    h.rope_base = 500000;
    for (int i = 0; i < 64; i++) {
        double wave = 2 * M_PI / plain(&h, i), smooth = (8192 / wave - 1) / (4 - 1);
        double f = wave < 8192.0 / 4 ? 1 : wave > 8192.0 / 1 ? 8 : 1 / ((1 - smooth) / 8 + smooth);
        factors[i] = (float)f;
        freq[i] = plain(&h, i) / factors[i];
    }
    check("llama 3", &h, factors, freq, 1);
}

static void longrope_factors_and_attention_factor(void **state)
{
    (void)state;
    float factors[48];
    double freq[48];
    struct hparams h = base();
    h.n_rot = 96;
    h.rope_scaling = ROPE_LONG;
    h.rope_factor = 32; /* says how long the context is; the angles come from the table alone */
    h.rope_attn_factor = sqrt(1 + log(131072.0 / 4096) / log(4096));
    for (int i = 0; i < 48; i++) {
        factors[i] = 1 + 1.3f * (float)i;
        freq[i] = plain(&h, i) / factors[i];
    }
    check("longrope", &h, factors, freq, h.rope_attn_factor);
}

static void local_angles_are_never_scaled(void **state)
{
    (void)state;
    struct hparams h = base();
    struct rope r;
    h.rope_scaling = ROPE_LINEAR;
    h.rope_factor = 8;
    h.rope_attn_factor = 2;
    h.rope_base_local = 5000;
    rope_init_local(&r, &h);
    assert_int_equal(r.n_pairs, h.n_rot / 2);
    assert_true(r.scale == 1);
    for (int i = 0; i < r.n_pairs; i++) {
        double want = pow(5000, -2.0 * i / h.n_rot);
        assert_true(fabs(r.freq[i] - want) <= 1e-14 * want);
    }
}

static int checked(const struct hparams *h, const float *factors, struct qn_error *e)
{
    struct rope r;
    rope_init(&r, h, factors);
    return rope_check(&r, e);
}

static void angles_beyond_all_bounds_are_refused(void **state)
{
    (void)state;
    struct qn_error e = {0};
    struct hparams h = base();
    float factors[64];
    for (int i = 0; i < 64; i++) factors[i] = 1;
    assert_int_equal(checked(&h, NULL, &e), 0);
    assert_int_equal(checked(&h, factors, &e), 0);
    static const float bad[] = {0, -1, 1e-30f, NAN, INFINITY, -INFINITY, 0.1f};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        factors[0] = bad[i];
        assert_int_equal(checked(&h, factors, &e), QN_EDATA);
        assert_non_null(strstr(e.msg, "rotation of pair 0"));
    }
    h.rope_base = 1e-30;
    assert_int_equal(checked(&h, NULL, &e), QN_EDATA);
    h = base();
    h.rope_scaling = ROPE_LINEAR;
    h.rope_factor = 1e-6;
    assert_int_equal(checked(&h, NULL, &e), QN_EDATA);
    assert_non_null(strstr(e.msg, "1e+06 radians"));
    h = base();
    h.rope_base_local = 1e-30;
    struct rope r;
    rope_init_local(&r, &h);
    assert_int_equal(rope_check(&r, &e), QN_EDATA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_angles),
        cmocka_unit_test(linear_scaling_divides_the_position),
        cmocka_unit_test(yarn_ramps_between_the_two),
        cmocka_unit_test(yarn_may_ramp_between_parts_of_pairs),
        cmocka_unit_test(yarn_may_ramp_within_one_pair),
        cmocka_unit_test(yarn_attention_factor_is_all_of_it),
        cmocka_unit_test(llama3_factors_divide_the_frequencies),
        cmocka_unit_test(longrope_factors_and_attention_factor),
        cmocka_unit_test(local_angles_are_never_scaled),
        cmocka_unit_test(angles_beyond_all_bounds_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
