/* SPDX-License-Identifier: MIT
 *
 * emulated_tiles.h: the AMX tile registers in plain C, for machines without them.
 *
 * Each function has the meaning of the instruction it is named after, also for tiles that are not full. Where the
 * processor would raise an exception (tiles that are not configured, shapes that do not match) the program ends with a
 * message. Every thread has its own tiles.
 *
 * Source: Intel SDM volume 2 (LDTILECFG, TDPBSSD, TDPBF16PS, TILELOADD, TILESTORED).
 */
#ifndef QUERN_TESTS_KERNEL_EMULATE_EMULATED_TILES_H
#define QUERN_TESTS_KERNEL_EMULATE_EMULATED_TILES_H

#include <stddef.h>

void emulated_tile_loadconfig(const void *config); /* 64 bytes */
void emulated_tile_release(void);
void emulated_tile_zero(int tile);
/* Rows are `stride` bytes apart. */
void emulated_tile_loadd(int tile, const void *base, ptrdiff_t stride);
void emulated_tile_stored(int tile, void *base, ptrdiff_t stride);
/* sums += a times b: bytes to int32. The letters say which of a and b are signed (s) and unsigned (u). */
void emulated_tile_dpbssd(int sums, int a, int b);
void emulated_tile_dpbsud(int sums, int a, int b);
void emulated_tile_dpbusd(int sums, int a, int b);
void emulated_tile_dpbuud(int sums, int a, int b);
/* sums += a times b: pairs of bf16 to f32; denormal numbers count as zero. */
void emulated_tile_dpbf16ps(int sums, int a, int b);

#endif
