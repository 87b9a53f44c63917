/* SPDX-License-Identifier: MIT
 *
 * products_amx.c: one product of tiles. See products.h. PRODUCT is the function's name.
 */
#include <immintrin.h>

#include "products.h"

void PRODUCT(enum tile_product kind, const void *config, const void *a, const void *b, void *sums)
{
    _tile_loadconfig(config);
    __asm__ volatile("" ::: "memory"); /* the loads do not say that they read */
    _tile_loadd(0, sums, 64);
    _tile_loadd(1, a, 64);
    _tile_loadd(2, b, 64);
    switch (kind) {
    case TILE_SSD: _tile_dpbssd(0, 1, 2); break;
    case TILE_SUD: _tile_dpbsud(0, 1, 2); break;
    case TILE_USD: _tile_dpbusd(0, 1, 2); break;
    case TILE_UUD: _tile_dpbuud(0, 1, 2); break;
    case TILE_BF16: _tile_dpbf16ps(0, 1, 2); break;
    case TILE_PRODUCT_N: break;
    }
    _tile_stored(0, sums, 64);
    _tile_release();
}
