/* SPDX-License-Identifier: MIT
 *
 * pace.c: measures step times and estimates those to come. See pace.h.
 *
 * A measured time limits the estimates for other sizes: a larger step takes no less time in total, and no more time per
 * row. So if a busy machine once made a point too slow, faster steps of other sizes correct it. Otherwise that size
 * might never be tried again.
 */
#include "engine/pace.h"

#include <assert.h>
#include <stddef.h>

#define WEIGHT 0.25   /* weight of the newest step in the mean */
#define SLOWER 0.0625 /* its weight if it took longer than the mean: the machine may have been busy */

static int size_of(int rows)
{
    int i = 31 - __builtin_clz((unsigned)rows);
    return i < PACE_SIZES ? i : PACE_SIZES - 1;
}

void pace_learn(struct pace *p, int rows, double s)
{
    assert(rows >= 1);
    if (!(s > 0)) return;
    struct pace_point *q = &p->points[size_of(rows)];
    double w = q->s > 0 ? s > q->s ? SLOWER : WEIGHT : 1;
    q->rows += w * (rows - q->rows);
    q->s += w * (s - q->s);
    for (struct pace_point *o = p->points; o < p->points + PACE_SIZES; o++) {
        if (!(o->s > 0) || o == q) continue;
        double most = o->rows > rows ? s * o->rows / rows : s;
        if (o->s > most) o->s = most;
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

int pace_prefill_rows(const struct pace *p, int n_decode, double stretch, int most)
{
    double limit = pace_of(p, n_decode) * stretch;
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
