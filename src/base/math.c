/* SPDX-License-Identifier: MIT
 *
 * math.c: sin, cos, exp, log, pow in double.
 *
 * Each reduces its argument exactly enough (Cody and Waite, "Software Manual for the Elementary Functions", 1980) and
 * then sums the Taylor series, whose coefficients need no source. No call leaves this file but fma.
 *
 * Does not handle arguments that cannot occur: the ranges are asserted.
 */
#include "base/math.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

/* Adding and taking away 1.5 * 2^52 leaves the nearest integer, ties to even, for arguments far smaller than that. */
static double round_even(double x) { return (x + 0x1.8p52) - 0x1.8p52; }

/* sum of c[i] * x^i, n coefficients */
static double horner(const double *c, int n, double x)
{
    double s = c[n - 1];
    for (int i = n - 2; i >= 0; i--) s = s * x + c[i];
    return s;
}

/* sin (quadrant 0) or cos (quadrant 1) of x, by quarter turns. pi / 2 is taken in two doubles:
 * k times the first, subtracted with one rounding, is exact, because both are multiples of 2^-52
 * and the difference is below 1; what the two leave of pi / 2 is 1e-33. */
static double sin_quadrant(double x, int quadrant)
{
    static const double sin_c[] = {1.0,
                                   -1.0 / 6,
                                   1.0 / 120,
                                   -1.0 / 5040,
                                   1.0 / 362880,
                                   -1.0 / 39916800,
                                   1.0 / 6227020800,
                                   -1.0 / 1307674368000,
                                   1.0 / 355687428096000};
    static const double cos_c[] = {1.0,
                                   -1.0 / 2,
                                   1.0 / 24,
                                   -1.0 / 720,
                                   1.0 / 40320,
                                   -1.0 / 3628800,
                                   1.0 / 479001600,
                                   -1.0 / 87178291200,
                                   1.0 / 20922789888000,
                                   -1.0 / 6402373705728000};
    assert(x >= -1e9 && x <= 1e9);
    double k = round_even(x * 0x1.45f306dc9c883p-1); /* 2 / pi */
    double r = __builtin_fma(-k, 0x1.921fb54442d18p+0, x);
    r = __builtin_fma(-k, 0x1.1a62633145c07p-54, r);
    int q = (int)((int64_t)k + quadrant) & 3;
    double z = r * r;
    double y = q & 1 ? horner(cos_c, 10, z) : r + r * (z * horner(sin_c + 1, 8, z));
    return q & 2 ? -y : y;
}

double math_sin(double x) { return sin_quadrant(x, 0); }
double math_cos(double x) { return sin_quadrant(x, 1); }

/* ln 2 in two parts; the first has 32 bits, so that an exponent times it is exact. */
#define LN2_HI 0x1.62e42fee00000p-1
#define LN2_LO 0x1.a39ef35793c76p-33

static double pow2(int n)
{
    uint64_t u = (uint64_t)(n + 1023) << 52;
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

double math_exp(double x)
{
    static const double c[] = {1.0 / 2,       1.0 / 6,        1.0 / 24,        1.0 / 120,
                               1.0 / 720,     1.0 / 5040,     1.0 / 40320,     1.0 / 362880,
                               1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
    assert(x >= -700 && x <= 700);
    double n = round_even(x * 0x1.71547652b82fep+0); /* 1 / ln 2 */
    double hi = x - n * LN2_HI, lo = n * LN2_LO;
    double r = hi - lo;
    double tail = (hi - r) - lo; /* what r lost */
    double y = 1.0 + (r + (tail + r * r * horner(c, 12, r)));
    return y * pow2((int)n);
}

/* log x = hi + lo, lo below half a unit in the last place of hi. With x = m * 2^e, sqrt(1/2) <= m < sqrt(2):
 * log m = 2 atanh(s) with s = (m - 1) / (m + 1), |s| < 0.172. */
static double log_parts(double x, double *lo)
{
    static const double c[] = {1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13,
                               1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23};
    assert(x >= 0x1p-1022 && x < __builtin_inf());
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    int e = (int)(u >> 52) - 1023;
    u = (u & 0x000fffffffffffffu) | 0x3ff0000000000000u;
    double m;
    memcpy(&m, &u, sizeof m);
    if (m >= 0x1.6a09e667f3bcdp+0) {
        m *= 0.5;
        e++;
    }
    /* f - h + s * (h + ...) with h = f^2 / 2 is 2 atanh(s) without the rounding of s in its largest term. */
    double f = m - 1.0, s = f / (2.0 + f), z = s * s, h = 0.5 * f * f;
    double small = s * (h + 2.0 * z * horner(c, 11, z)) + (double)e * LN2_LO;
    double big = (double)e * LN2_HI;
    double sum = big + f;
    double lost = (big - sum) + f; /* |big| > |f| or big is 0: either way exact */
    if (e == 0) lost = 0;
    small += lost - h;
    double hi = sum + small;
    *lo = (sum - hi) + small;
    return hi;
}

double math_log(double x)
{
    double lo;
    return log_parts(x, &lo);
}

double math_pow(double x, double y)
{
    double lo, hi = log_parts(x, &lo);
    double p = y * hi;
    double rest = __builtin_fma(y, hi, -p) + y * lo; /* what p lost */
    double v = math_exp(p);
    return v + v * rest;
}
