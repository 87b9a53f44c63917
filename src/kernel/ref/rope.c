/* SPDX-License-Identifier: MIT
 *
 * rope.c: rotary position embedding of one head (Su et al., 2021, arXiv:2104.09864).
 *
 * The angles come as a table of cosines and sines, which the caller makes once per position. This file only turns
 * pairs.
 */
#include "kernel/ref/ref.h"

void rope_ref(float *x, const float (*cs)[2], int n_pairs, bool adjacent, void *scratch)
{
    (void)scratch;
    for (int i = 0; i < n_pairs; i++) {
        float *p0 = adjacent ? &x[2 * i] : &x[i], *p1 = adjacent ? p0 + 1 : p0 + n_pairs;
        float x0 = *p0, x1 = *p1, c = cs[i][0], s = cs[i][1];
        *p0 = __builtin_fmaf(x0, c, -(x1 * s));
        *p1 = __builtin_fmaf(x0, s, x1 * c);
    }
}
