/* SPDX-License-Identifier: MIT
 *
 * topk.c: the largest values, lower index first among equals, NaN after everything.
 */
#include <assert.h>
#include <stdbool.h>

#include "kernel/ref/ref.h"

int argmax_ref(const float *x, int n, void *scratch)
{
    (void)scratch;
    int best = -1;
    for (int i = 0; i < n; i++)
        if (x[i] == x[i] && (best < 0 || x[i] > x[best])) best = i;
    return best;
}

/* Whether the value a at a higher index goes before b. */
static bool before(float a, float b) { return a > b || (a == a && b != b); }

/* Insertion into a list of k. After the first few values almost none is good enough to enter it,
 * so this is one pass over x for the small k that samplers ask for. */
void topk_ref(const float *x, int n, int k, int32_t *idx, void *scratch)
{
    (void)scratch;
    assert(k <= n);
    int len = 0;
    for (int i = 0; i < n; i++) {
        if (len == k && (k == 0 || !before(x[i], x[idx[k - 1]]))) continue;
        int at = len < k ? len++ : k - 1;
        while (at > 0 && before(x[i], x[idx[at - 1]])) {
            idx[at] = idx[at - 1];
            at--;
        }
        idx[at] = i;
    }
}
