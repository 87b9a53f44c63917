/* SPDX-License-Identifier: MIT
 *
 * products.h: the instructions that are emulated, one at a time, for test_emulation.c.
 *
 * The files products_*.c are compiled twice, once with the real instructions and once with the emulated ones.
 */
#ifndef QUERN_TESTS_KERNEL_EMULATE_PRODUCTS_H
#define QUERN_TESTS_KERNEL_EMULATE_PRODUCTS_H

#include <stdint.h>

enum tile_product { TILE_SSD, TILE_SUD, TILE_USD, TILE_UUD, TILE_BF16, TILE_PRODUCT_N };

/* Configures the tiles by `config`, loads a (tile 1), b (tile 2) and sums (tile 0), multiplies once, stores the sums.
 * Rows of a and b are 64 bytes apart, and so are those of sums. */
typedef void tile_product_fn(enum tile_product kind, const void *config, const void *a, const void *b, void *sums);
tile_product_fn tile_product_real, tile_product_emulated;

enum dword_product { DWORD_BUSD, DWORD_WSSD, DWORD_PRODUCT_N };

/* sum[8] += products of the 32 bytes or 16 words of a and b. */
typedef void dword_product_fn(enum dword_product kind, const void *a, const void *b, int32_t *sum);
dword_product_fn dword_product_real, dword_product_emulated;

#endif
