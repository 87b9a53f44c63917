/* SPDX-License-Identifier: MIT
 *
 * math.h: elementary functions in double, for tables that are made once (rotations, frequencies) and for sampling.
 *
 * They exist because the C library's differ between its versions, and results here must not.
 */
#ifndef QUERN_BASE_MATH_H
#define QUERN_BASE_MATH_H

/* To about 1e-15 of the result. sin and cos: |x| <= 1e9 radians; exp: |x| <= 700; log: x a normal
 * positive number; pow: x likewise, and y * log x within exp's range. */
double math_sin(double x);
double math_cos(double x);
double math_exp(double x);
double math_log(double x);
double math_pow(double x, double y);

#endif
