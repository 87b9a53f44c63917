/* SPDX-License-Identifier: MIT
 *
 * init.c: the AVX2 level of the kernel table.
 *
 * Needs AVX2, FMA, F16C and BMI2; cpu.c has checked for them.
 */
#include "kernel/avx2/avx2.h"

void kernels_init_avx2(struct kernels *k)
{
    k->name = "avx2";
    k->row_unit = 32; /* the panel of few columns: two tiles (gemm_b32.c, gemm_k256.c) */
    k->strip = 256;
    avx2_init_quant(k);
    avx2_init_gemm_float(k);
    avx2_init_gemm_b32(k);
    avx2_init_gemm_k256(k);
    avx2_init_attn(k);
    avx2_init_kv(k);
    avx2_init_delta(k);
    avx2_init_norm(k);
    avx2_init_act(k);
    avx2_init_rope(k);
    avx2_init_topk(k);
}
