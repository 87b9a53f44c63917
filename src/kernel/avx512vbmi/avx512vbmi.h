/* SPDX-License-Identifier: MIT
 *
 * avx512vbmi.h: the AVX-512 VBMI folder's own pieces of kernels_init_avx512vbmi.
 */
#ifndef QUERN_KERNEL_AVX512VBMI_AVX512VBMI_H
#define QUERN_KERNEL_AVX512VBMI_AVX512VBMI_H

#include "kernel/kernel.h"

void avx512vbmi_init_gemm_iq(struct kernels *k);
/* This level's function for a type with blocks of 256 elements; NULL for others. */
gemm_fn *avx512vbmi_gemm_k256(enum dtype t);

#endif
