/* SPDX-License-Identifier: MIT
 *
 * pace.h: how many prompt rows a step may take along, learnt from how long steps take.
 *
 * A step of one row reads all weights; a few more rows cost next to nothing until computing takes longer than
 * reading. Where that is depends on the machine, the model and the context, so it is measured: for each power of two
 * the rows and the time of the steps of that size, of late. Between two of these points the time is a straight
 * line; beyond the last one a row costs what it costs there on average, which it never exceeds.
 */
#ifndef QUERN_ENGINE_PACE_H
#define QUERN_ENGINE_PACE_H

#define PACE_SIZES 17 /* steps of [2^i, 2^(i+1)) rows */

struct pace {
    struct pace_point { double rows, s; } points[PACE_SIZES]; /* s 0: nothing known */
};

/* A step of so many rows took s seconds. */
void pace_learn(struct pace *p, int rows, double s);
/* Seconds for a step; 0 when nothing is known of steps as small as that. */
double pace_of(const struct pace *p, int rows);
/* The most prompt rows beside n_decode >= 1 rows of running answers such that the step takes no more than `stretch`
 * times what it takes without; 1 .. most. */
int pace_prefill_rows(const struct pace *p, int n_decode, double stretch, int most);

#endif
