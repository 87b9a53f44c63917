/* SPDX-License-Identifier: MIT
 *
 * pace.c: measures step times and estimates those to come. See pace.h.
 *
 * A measured time limits the estimates for other sizes: a larger step takes no less time in total, and no more time per
 * row. So if a busy machine once made a point too slow, faster steps of other sizes correct it. Otherwise that size
 * might never be tried again.
 *
 * Rows of a prompt take longer the more of it was read, so times grow while it is read. A size that was not measured
 * for a while is then forgotten, if it is larger than those that were: its time would be too short. Steps without
 * prompt rows have points of their own, because there are none of them while a prompt is read, and steps of about their
 * size with prompt rows take longer.
 */
#include "engine/core/pace.h"

#include <assert.h>
#include <stddef.h>

#define WEIGHT  0.25   /* weight of the newest step in the mean */
#define FORGET  16     /* steps with prompt rows after which a larger size is forgotten */
#define MOST_OF 0.75   /* part of a step with one prompt row that its other rows take at least */
#define SOONER  2      /* a step to come counts for at most so many times the step of now */
#define SLOWER  0.0625 /* its weight if it took longer than the mean: the machine may have been busy */

static int size_of(int rows)
{
    int i = 31 - __builtin_clz((unsigned)rows);
    return i < PACE_SIZES ? i : PACE_SIZES - 1;
}

static void note(struct pace_point *q, int rows, double s)
{
    double w = q->s > 0 ? s > q->s ? SLOWER : WEIGHT : 1;
    q->rows += w * (rows - q->rows);
    q->s += w * (s - q->s);
}

/* What a step with prompt rows says about steps of its n_decode other rows alone: they take no more time. If it had a
 * single prompt row, they take most of its time; otherwise a prompt would get one row at a time on a machine that
 * became slower meanwhile. */
static void limit_alone(struct pace *p, int n_decode, int n_prefill, double s)
{
    struct pace_point *q = &p->alone[size_of(n_decode)];
    double least = n_prefill == 1 ? MOST_OF * s : 0;
    if (!(q->s > 0)) return;
    if (q->s > s) q->s = s;
    if (q->s < least) q->s += SLOWER * (least - q->s);
}

void pace_learn(struct pace *p, int rows, int n_prefill, double s)
{
    assert(rows >= 1 && n_prefill <= rows);
    if (!(s > 0)) return;
    struct pace_point *q = &p->points[size_of(rows)];
    note(q, rows, s);
    if (n_prefill == 0) note(&p->alone[size_of(rows)], rows, s);
    if (n_prefill > 0 && n_prefill < rows) limit_alone(p, rows - n_prefill, n_prefill, s);
    p->n_mixed += n_prefill > 0;
    q->n_mixed = p->n_mixed;
    for (struct pace_point *o = p->points; o < p->points + PACE_SIZES; o++) {
        if (!(o->s > 0) || o == q) continue;
        double most = o->rows > rows ? s * o->rows / rows : s;
        if (o->s > most) o->s = most;
        if (o->rows > rows && p->n_mixed - o->n_mixed > FORGET) o->s = 0;
    }
}

double pace_of(const struct pace *p, int rows)
{
    const struct pace_point *below = NULL, *above = NULL;
    for (const struct pace_point *q = p->points; q < p->points + PACE_SIZES; q++) {
        if (!(q->s > 0)) continue;
        if (q->rows <= rows)
            below = q;
        else if (!above)
            above = q;
    }
    if (!below) return above && above->rows <= 2 * rows ? above->s : 0;
    if (!above) return below->s * rows / below->rows;
    return below->s + (above->s - below->s) * (rows - below->rows) / (above->rows - below->rows);
}

/* The estimated seconds of a step without prompt rows. */
static double alone_of(const struct pace *p, int n_decode)
{
    const struct pace_point *q = &p->alone[size_of(n_decode)];
    if (!(q->s > 0)) return pace_of(p, n_decode);
    return n_decode > q->rows ? q->s * n_decode / q->rows : q->s;
}

/* The same for more answers than there are, which must not be too much: no time is added for those beyond the mean. */
static double soon_of(const struct pace *p, int n_soon)
{
    const struct pace_point *q = &p->alone[size_of(n_soon)];
    return q->s > 0 ? q->s : pace_of(p, n_soon);
}

int pace_prefill_rows(const struct pace *p, int n_decode, int n_soon, double stretch, int most)
{
    assert(n_soon >= n_decode);
    double now = alone_of(p, n_decode), soon = soon_of(p, n_soon);
    if (soon < now) soon = now;
    if (soon > SOONER * now) soon = SOONER * now;
    double limit = stretch * soon;
    int lo = 1, hi = limit > 0 ? most : 1;
    while (lo < hi) { /* the time grows with the rows: lo rows are allowed, more than hi are not */
        int mid = lo + (hi - lo + 1) / 2;
        if (pace_of(p, n_decode + mid) <= limit)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}
