/* SPDX-License-Identifier: MIT
 *
 * rope.c: rotary position embedding of one head (docs/KERNELS.md section 4).
 */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/vec.h"

/* Pairs (2i, 2i + 1): four of them in one register, their four {cos, sin} in another. */
static int rope_adjacent(float *x, const float (*cs)[2], int n_pairs)
{
    int i = 0;
    for (; i + 4 <= n_pairs; i += 4) {
        __m256 v = _mm256_loadu_ps(x + 2 * i), t = _mm256_loadu_ps(cs[i]);
        __m256 x1 = _mm256_mul_ps(_mm256_movehdup_ps(v), _mm256_permute_ps(t, 0xb1)); /* x1 * sin, x1 * cos */
        _mm256_storeu_ps(x + 2 * i, _mm256_fmaddsub_ps(_mm256_moveldup_ps(v), t, x1));
    }
    return i;
}

/* Pairs (i, i + n_pairs) */
static int rope_halves(float *x, const float (*cs)[2], int n_pairs)
{
    int i = 0;
    for (; i + 8 <= n_pairs; i += 8) {
        __m256 a = _mm256_loadu_ps(cs[i]), b = _mm256_loadu_ps(cs[i + 4]);
        __m256 c = _mm256_shuffle_ps(a, b, 0x88), s = _mm256_shuffle_ps(a, b, 0xdd); /* pairs 0 1 4 5 2 3 6 7 */
        c = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(c), 0xd8));
        s = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(s), 0xd8));
        __m256 x0 = _mm256_loadu_ps(x + i), x1 = _mm256_loadu_ps(x + n_pairs + i);
        _mm256_storeu_ps(x + i, _mm256_fmsub_ps(x0, c, _mm256_mul_ps(x1, s)));
        _mm256_storeu_ps(x + n_pairs + i, _mm256_fmadd_ps(x0, s, _mm256_mul_ps(x1, c)));
    }
    return i;
}

static void rope_avx2(float *x, const float (*cs)[2], int n_pairs, bool adjacent, void *scratch)
{
    (void)scratch;
    int i = adjacent ? rope_adjacent(x, cs, n_pairs) : rope_halves(x, cs, n_pairs);
    for (; i < n_pairs; i++) {
        float *p0 = adjacent ? &x[2 * i] : &x[i], *p1 = adjacent ? p0 + 1 : p0 + n_pairs;
        float x0 = *p0, x1 = *p1, c = cs[i][0], s = cs[i][1];
        *p0 = __builtin_fmaf(x0, c, -(x1 * s));
        *p1 = __builtin_fmaf(x0, s, x1 * c);
    }
}

void avx2_init_rope(struct kernels *k) { k->rope = rope_avx2; }
