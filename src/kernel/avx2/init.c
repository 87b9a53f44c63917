/* SPDX-License-Identifier: MIT
 *
 * init.c: the AVX2 level of the kernel table.
 *
 * Needs AVX2, FMA, F16C and BMI2; cpu.c has checked for them. What no file here has (top-k,
 * storing keys and values) stays the reference's.
 */
#include "kernel/avx2/avx2.h"

void kernels_init_avx2(struct kernels *k)
{
    k->name = "avx2";
    avx2_init_quant(k);
    avx2_init_gemm_float(k);
    avx2_init_gemm_b32(k);
    avx2_init_gemm_k256(k);
    avx2_init_attn(k);
    avx2_init_delta(k);
    avx2_init_small(k);
}
