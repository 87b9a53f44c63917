/* SPDX-License-Identifier: MIT
 *
 * init.c: the AVX-512 VBMI level of the kernel table: products of the codebook types with one column.
 *
 * Everything else stays the AVX-512 level's.
 */
#include "kernel/avx512vbmi/avx512vbmi.h"

void kernels_init_avx512vbmi(struct kernels *k)
{
    k->name = "avx512vbmi";
    avx512vbmi_init_gemm_iq(k);
}
