/* SPDX-License-Identifier: MIT
 *
 * init.c: the AVX-512 level of the kernel table: replaces the entries that this folder has functions for.
 *
 * Top-k stays the reference's: it is one pass with almost no work per element.
 */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/tile.h"

void kernels_init_avx512(struct kernels *k)
{
    k->name = "avx512";
    k->row_unit = TILE_ROWS;
    k->strip = 256;
    avx512_init_quant(k);
    avx512_init_gemm_float(k);
    avx512_init_gemm_b32(k);
    avx512_init_gemm_k256(k);
    avx512_init_attn(k);
    avx512_init_delta(k);
    avx512_init_kv(k);
    avx512_init_norm(k);
    avx512_init_act(k);
    avx512_init_rope(k);
    avx512_init_topk(k);
}
