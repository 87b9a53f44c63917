/* SPDX-License-Identifier: MIT
 *
 * products_avxvnni.c: one product of bytes or words. See products.h. PRODUCT is the function's name.
 */
#include <immintrin.h>

#include "products.h"

void PRODUCT(enum dword_product kind, const void *a, const void *b, int32_t *sum)
{
    const __m256i x = _mm256_loadu_si256(a), y = _mm256_loadu_si256(b), s = _mm256_loadu_si256((__m256i *)sum);
    _mm256_storeu_si256((__m256i *)sum,
                        kind == DWORD_BUSD ? _mm256_dpbusd_avx_epi32(s, x, y) : _mm256_dpwssd_avx_epi32(s, x, y));
}
