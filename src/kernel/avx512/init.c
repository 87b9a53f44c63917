/* SPDX-License-Identifier: MIT
 *
 * init.c: the AVX-512 level of the cascade: what this folder has, over what is already in the table.
 *
 * Top-k stays the level's below: it is one pass with almost no work per element.
 */
#include "kernel/avx512/init.h"

void kernels_init_avx512(struct kernels *k)
{
    k->name = "avx512";
    avx512_init_quant(k);
    avx512_init_gemm_float(k);
    avx512_init_gemm_b32(k);
    avx512_init_gemm_k256(k);
    avx512_init_attn(k);
    avx512_init_delta(k);
    avx512_init_small(k);
}
