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

/* Pairs (i, i + n_pairs): cosines and sines, stored side by side, are taken apart by two permutations. x0 c -
 * x1 s is vfmsub with the second product rounded first, as the contract has it. */
static void rope(float *x, const float (*cs)[2], int n_pairs, bool adjacent, void *scratch)
{
    (void)scratch;
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    if (adjacent) {
        rope_adjacent(x, cs, n_pairs);
        return;
    }
    EACH_16(i, m, n_pairs)
    {
        int n = 2 * (n_pairs - i);
        __m512 a = _mm512_maskz_loadu_ps(first_lanes(n < 16 ? n : 16), &cs[i][0]);
        __m512 b = _mm512_maskz_loadu_ps(n <= 16 ? 0 : first_lanes(n < 32 ? n - 16 : 16), &cs[i][0] + 16);
        __m512 c = _mm512_permutex2var_ps(a, even, b);
        __m512 s = _mm512_permutex2var_ps(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);
        __m512 x0 = _mm512_maskz_loadu_ps((__mmask16)m, x + i);
        __m512 x1 = _mm512_maskz_loadu_ps((__mmask16)m, x + n_pairs + i);
        _mm512_mask_storeu_ps(x + i, (__mmask16)m, _mm512_fmsub_ps(x0, c, _mm512_mul_ps(x1, s)));
        _mm512_mask_storeu_ps(x + n_pairs + i, (__mmask16)m, _mm512_fmadd_ps(x0, s, _mm512_mul_ps(x1, c)));
    }
}

void avx512_init_rope(struct kernels *k) { k->rope = rope; }
