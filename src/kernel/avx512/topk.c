/* SPDX-License-Identifier: MIT
 *
 * topk.c: argmax (docs/KERNELS.md section 4).
 *
 * Top-k stays the reference's: it is one pass with almost no work per element.
 */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/math.h"

/* Two passes: the value, then the first place that has it (+0 and -0 are equal, as in the reference). */
static int argmax(const float *x, int n, void *scratch)
{
    (void)scratch;
    const __m512 best = _mm512_set1_ps(largest_512(x, n));
    EACH_16(i, m, n)
    {
        __m512 v = _mm512_maskz_loadu_ps((__mmask16)m, x + i);
        __mmask16 hit = _mm512_mask_cmp_ps_mask((__mmask16)m, v, best, _CMP_EQ_OQ);
        if (hit) return i + __builtin_ctz(hit);
    }
    return -1;
}

void avx512_init_topk(struct kernels *k) { k->argmax = argmax; }
