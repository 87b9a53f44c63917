/* SPDX-License-Identifier: MIT
 *
 * topk.c: argmax (docs/KERNELS.md section 4).
 *
 * Top-k stays the reference's, which passes over the values once: no vector form is worth having.
 */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/vec.h"

/* Two passes, the second one until the value is found: cheaper than carrying indices along. */
static int argmax_avx2(const float *x, int n, void *scratch)
{
    (void)scratch;
    float m = vec_largest(x, n);
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        int hit = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(m), _CMP_EQ_OQ));
        if (hit) return i + __builtin_ctz((unsigned)hit);
    }
    for (; i < n; i++)
        if (x[i] == m) return i;
    return -1;
}

void avx2_init_topk(struct kernels *k) { k->argmax = argmax_avx2; }
