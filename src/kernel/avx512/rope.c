/* SPDX-License-Identifier: MIT
 *
 * rope.c: rotary position embedding of one head (docs/KERNELS.md section 4).
 */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/lanes.h"

/* Pairs (2i, 2i + 1), left where they lie: even lanes x0 c - x1 s, odd lanes x0 s + x1 c. */
static void rope_adjacent(float *x, const float (*cs)[2], int n_pairs)
{
    EACH_16(i, m, 2 * n_pairs)
    {
        __m512 v = _mm512_maskz_loadu_ps((__mmask16)m, x + i), t = _mm512_maskz_loadu_ps((__mmask16)m, &cs[0][0] + i);
        __m512 x0 = _mm512_moveldup_ps(v), x1 = _mm512_movehdup_ps(v);
        __m512 y = _mm512_fmaddsub_ps(x0, t, _mm512_mul_ps(x1, _mm512_permute_ps(t, 0xb1)));
        _mm512_mask_storeu_ps(x + i, (__mmask16)m, y);
    }
}

/* Up to 16 pairs (i, i + n_pairs) from pair i = 0 on, those of the lanes m; low and high: which of their cosines and
 * sines exist. These, stored side by side, are taken apart by two permutations. x0 c - x1 s is vfmsub with the second
 * product rounded first, as the contract has it. */
ALWAYS_INLINE void rope_16(float *x, const float *cs, int n_pairs, __mmask16 m, __mmask16 low, __mmask16 high)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    __m512 a = _mm512_maskz_loadu_ps(low, cs), b = _mm512_maskz_loadu_ps(high, cs + 16);
    __m512 c = _mm512_permutex2var_ps(a, even, b);
    __m512 s = _mm512_permutex2var_ps(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);
    __m512 x0 = _mm512_maskz_loadu_ps(m, x), x1 = _mm512_maskz_loadu_ps(m, x + n_pairs);
    _mm512_mask_storeu_ps(x, m, _mm512_fmsub_ps(x0, c, _mm512_mul_ps(x1, s)));
    _mm512_mask_storeu_ps(x + n_pairs, m, _mm512_fmadd_ps(x0, s, _mm512_mul_ps(x1, c)));
}

static void rope(float *x, const float (*cs)[2], int n_pairs, bool adjacent, void *scratch)
{
    (void)scratch;
    int i = 0, n;
    if (adjacent) {
        rope_adjacent(x, cs, n_pairs);
        return;
    }
    for (; i + 16 <= n_pairs; i += 16) rope_16(x + i, cs[i], n_pairs, 0xffff, 0xffff, 0xffff);
    if ((n = n_pairs - i) > 0)
        rope_16(x + i, cs[i], n_pairs, first_lanes(n), first_lanes(n < 8 ? 2 * n : 16),
                n < 8 ? 0 : first_lanes(2 * n - 16));
}

void avx512_init_rope(struct kernels *k) { k->rope = rope; }
