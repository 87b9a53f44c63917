/* SPDX-License-Identifier: MIT
 *
 * init.h: the AVX-512 folder's own pieces of kernels_init_avx512, one per file.
 */
#ifndef QUERN_KERNEL_AVX512_INIT_H
#define QUERN_KERNEL_AVX512_INIT_H

#include "kernel/kernel.h"

void avx512_init_quant(struct kernels *k);
void avx512_init_gemm_float(struct kernels *k);
void avx512_init_gemm_b32(struct kernels *k);
void avx512_init_gemm_k256(struct kernels *k);
/* This folder's function for a type of each; NULL for others. */
gemm_fn *avx512_gemm_b32(enum dtype t);
gemm_fn *avx512_gemm_k256(enum dtype t);
void avx512_init_attn(struct kernels *k);
void avx512_init_delta(struct kernels *k);
void avx512_init_small(struct kernels *k);

#endif
