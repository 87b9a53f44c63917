/* SPDX-License-Identifier: MIT
 *
 * init_vnni.c: the AVX-VNNI level of the kernel table.
 *
 * It is the AVX2 level with other integer products: the same files, compiled with vpdpbusd (dot.h).
 */
#include "kernel/avx2/avx2.h"

void kernels_init_avxvnni(struct kernels *k)
{
    k->name = "avxvnni";
    avxvnni_init_gemm_b32(k);
    avxvnni_init_gemm_k256(k);
}
