/* SPDX-License-Identifier: MIT
 *
 * pace.h: decides how many prompt rows a step may include, from the measured times of earlier steps.
 *
 * A step of one row reads all weights. A few more rows cost almost nothing, until computing takes longer than reading.
 * That number of rows depends on the machine, the model and the context, so it is measured: for each power of two, the
 * mean rows and time of recent steps of about that size. Between two of these points, times are interpolated on a
 * straight line. Beyond the last point, each row is taken to cost as much as the mean row there, which is an upper
 * limit.
 */
#ifndef QUERN_ENGINE_PACE_H
#define QUERN_ENGINE_PACE_H

#define PACE_SIZES 17 /* steps of [2^i, 2^(i+1)) rows */

struct pace {
    struct pace_point {
        double rows, s;
        unsigned n_mixed;                    /* of struct pace when the point was last measured */
    } points[PACE_SIZES], alone[PACE_SIZES]; /* of all steps, of those without prompt rows; s: seconds, 0: not known */
    unsigned n_mixed;                        /* steps with prompt rows so far */
};

/* Adds a measurement: a step of so many rows, n_prefill of them of prompts, took s seconds. */
void pace_learn(struct pace *p, int rows, int n_prefill, double s);
/* Returns the estimated seconds of a step; 0 if nothing is known of steps as small as that. */
double pace_of(const struct pace *p, int rows);
/* Returns how many prompt rows a step may have in addition to n_decode >= 1 rows of running answers; 1 .. most. It may
 * take `stretch` times as long as a step of n_soon >= n_decode rows without prompts, which is what steps will be when
 * the prompts that are read now have answers, too. Otherwise few answers would keep many prompts waiting, and most of
 * each step would be reading the weights. It never takes more than twice `stretch` times as long as a step of n_decode
 * rows. */
int pace_prefill_rows(const struct pace *p, int n_decode, int n_soon, double stretch, int most);

/* A moving mean: goes from `old` towards `now` by the part `weight` of the distance. old 0: nothing is known yet. */
static inline double pace_mean(double old, double now, double weight)
{
    return old > 0 ? old + weight * (now - old) : now;
}

#endif
