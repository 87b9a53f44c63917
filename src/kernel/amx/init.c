/* SPDX-License-Identifier: MIT
 *
 * init.c: the AMX level of the kernel table: integer matrix products with several columns.
 *
 * Everything else stays the AVX-512 level's, also products with one column: a tile would have nothing to share there,
 * and tiles have no f32.
 */
#include "kernel/amx/amx.h"
#include "kernel/avx512/tile.h"

void kernels_init_amx(struct kernels *k)
{
    k->name = "amx";
    k->row_unit = TILE_ROWS;
    k->strip = 256;
    amx_init_gemm_b32(k);
    amx_init_gemm_k256(k);
}
