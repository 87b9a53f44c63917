/* SPDX-License-Identifier: MIT
 *
 * gemm_fused.h: products of Q4_K, Q5_K and Q6_K with a few columns.
 */
#ifndef QUERN_KERNEL_AVX512_GEMM_FUSED_H
#define QUERN_KERNEL_AVX512_GEMM_FUSED_H

#include <stdbool.h>

#include "kernel/kernel.h"

/* Whether avx512_gemm_fused() can do this product: weights of type t, and as many rows and columns as it is made for.
 */
bool avx512_fused_can(enum dtype t, const struct gemm *g);
/* Whether it can, and is the fastest way on this processor. */
bool avx512_fused_takes(enum dtype t, const struct gemm *g);

void avx512_gemm_fused(enum dtype t, const struct gemm *g, void *scratch);

#endif
