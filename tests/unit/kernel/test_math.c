/* SPDX-License-Identifier: MIT
 *
 * test_math.c: how accurate our own elementary functions and 16-bit floats are.
 *
 * The f32 functions are compared with the C library's double ones, the double functions with its
 * long double ones. The bounds are what was measured, rounded up: they document the accuracy and
 * notice a lost digit. That all instruction sets give the same bits is tested elsewhere.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/math.h"
#include "kernel/ref/half.h"
#include "base/exact_math.h"

/* |got - want| in units of the last place of want as an f32. */
static double ulps(float got, double want)
{
    float w = (float)fabs(want);
    return fabs((double)got - want) / (double)(nextafterf(w, INFINITY) - w);
}

static uint64_t random64(void)
{
    static uint64_t s = 88172645463325252u; /* xorshift64 */
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return s;
}

/* Uniform in [lo, hi). */
static double uniform(double lo, double hi) { return lo + (hi - lo) * (double)(random64() >> 11) * 0x1p-53; }

static void test_f32(void **state)
{
    (void)state;
    double exp_worst = 0, tanh_worst = 0, softplus_worst = 0;
    for (uint64_t u = 0; u < UINT64_C(1) << 32; u += 1021) {
        float x = f32_from_bits((uint32_t)u);
        if (x >= MATH_EXP_MIN && x <= MATH_EXP_MAX) exp_worst = fmax(exp_worst, ulps(math_expf(x), exp((double)x)));
        if (!isnan(x)) tanh_worst = fmax(tanh_worst, ulps(math_tanhf(x), tanh((double)x)));
        if (x >= MATH_EXP_MIN && x < 80)
            softplus_worst = fmax(softplus_worst, ulps(math_softplusf(x), log1p(exp((double)x))));
    }
    assert_true(exp_worst < 1.0);
    assert_true(tanh_worst < 2.3);
    assert_true(softplus_worst < 1.8);
}

static void test_f32_edges(void **state)
{
    (void)state;
    assert_true(math_expf(0) == 1.0f && math_expf(-0.0f) == 1.0f);
    assert_true(math_expf(INFINITY) == INFINITY && math_expf(89.0f) == INFINITY);
    assert_true(isfinite(math_expf(MATH_EXP_MAX)));
    assert_true(math_expf(-INFINITY) == 0 && math_expf(-88.0f) == 0);
    assert_true(isnormal(math_expf(MATH_EXP_MIN)));
    assert_true(isnan(math_expf(NAN)) && isnan(math_tanhf(NAN)));
    assert_true(isnan(math_softplusf(NAN)) && math_softplusf(-INFINITY) == 0 && math_softplusf(INFINITY) == INFINITY);
    assert_true(math_softplusf(20.5f) == 20.5f && isnan(math_sigmoidf(NAN)));
    assert_true(math_sigmoidf(0) == 0.5f && math_sigmoidf(INFINITY) == 1.0f && math_sigmoidf(-INFINITY) == 0);
    assert_true(math_tanhf(INFINITY) == 1.0f && math_tanhf(-11.0f) == -1.0f);
    assert_true(signbit(math_tanhf(-0.0f)) && !signbit(math_tanhf(0)));
    assert_true(math_relu2f(-2) == 0 && math_relu2f(3) == 9 && isnan(math_relu2f(NAN)));
    assert_true(fabs((double)math_siluf(1) - 0.731058578630) < 1e-7);
    assert_true(fabs((double)math_geluf(1) - 0.841191990608) < 1e-6); /* the tanh form */
}

/* The larger of worst and the relative error of got. */
static double worse(double worst, double got, long double want)
{
    return fmax(worst, (double)fabsl(((long double)got - want) / want));
}

static void test_double(void **state)
{
    (void)state;
    double s = 0, c = 0, e = 0, l = 0, p = 0;
    for (int i = 0; i < 300000; i++) {
        double x = uniform(-1, 1) * pow(10, uniform(-3, 7));
        s = worse(s, math_sin(x), sinl(x));
        c = worse(c, math_cos(x), cosl(x));
        double y = uniform(-700, 700), z = exp(uniform(-1, 1) * (i & 1 ? 700 : 1));
        e = worse(e, math_exp(y), expl(y));
        l = worse(l, math_log(z), logl(z));
        double base = exp(uniform(0.5, 18)), power = uniform(-1.5, 0.5);
        p = worse(p, math_pow(base, power), powl(base, power));
    }
    assert_true(s < 3e-16 && c < 3e-16 && e < 3e-16 && l < 3e-16 && p < 4e-16);
    assert_true(math_sin(0) == 0 && math_cos(0) == 1 && math_exp(0) == 1 && math_log(1) == 0 &&
                math_pow(10000, 0) == 1);
    /* the doubles nearest to pi / 2 and pi: next to nothing is left */
    assert_true(fabs(math_cos(0x1.921fb54442d18p+0) - 6.123233995736766e-17) < 1e-32);
    assert_true(fabs(math_sin(0x1.921fb54442d18p+1) - 1.2246467991473532e-16) < 1e-31);
}

/* Between neighbouring f16 values everything goes to the nearer one, the middle to the even one. */
static void test_half(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7bff; h++) {
        float a = f16_to_f32((uint16_t)h), b = f16_to_f32((uint16_t)(h + 1)), mid = 0.5f * (a + b);
        assert_true(a < b);
        assert_int_equal(f32_to_f16(a), h);
        assert_int_equal(f32_to_f16(mid), h + (h & 1));
        assert_int_equal(f32_to_f16(nextafterf(mid, a)), h);
        assert_int_equal(f32_to_f16(nextafterf(mid, b)), h + 1);
        assert_int_equal(f32_to_f16(-mid), (h + (h & 1)) | 0x8000);
    }
    assert_true(f16_to_f32(0x0001) == 0x1p-24f && f16_to_f32(0x0400) == 0x1p-14f && f16_to_f32(0x3c00) == 1.0f);
    assert_true(f16_to_f32(0x7bff) == 65504.0f && f16_to_f32(0x7c00) == INFINITY && f16_to_f32(0xfc00) == -INFINITY);
    assert_true(signbit(f16_to_f32(0x8000)));
    assert_int_equal(f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(f32_to_f16(-INFINITY), 0xfc00);
    for (uint32_t h = 0x7c01; h < 0x8000; h++) { /* NaN: quiet, the payload kept */
        assert_true(isnan(f16_to_f32((uint16_t)h)));
        assert_int_equal(f32_to_f16(f16_to_f32((uint16_t)h)), h | 0x0200);
    }
    assert_int_equal(f32_to_f16(f32_from_bits(0x7f800001)), 0x7e00);
    assert_true(bf16_to_f32(0x3f80) == 1.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32), cmocka_unit_test(test_f32_edges),
                                       cmocka_unit_test(test_double), cmocka_unit_test(test_half)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
