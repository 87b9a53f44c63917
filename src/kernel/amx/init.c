/* SPDX-License-Identifier: MIT
 *
 * init.c: the AMX level of the cascade: integer matrix products of several columns.
 *
 * Everything else, one column included, stays the AVX-512 level's: a tile has nothing to share when
 * there is one column, and tiles have no f32.
 */
#include "kernel/amx/init.h"

void kernels_init_amx(struct kernels *k)
{
    amx_init_gemm_b32(k);
    amx_init_gemm_k256(k);
}
