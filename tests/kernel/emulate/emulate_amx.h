/* SPDX-License-Identifier: MIT
 *
 * emulate_amx.h: included before the first line of the AMX kernels (-include), so that they use emulated tiles.
 */
#ifndef QUERN_TESTS_KERNEL_EMULATE_EMULATE_AMX_H
#define QUERN_TESTS_KERNEL_EMULATE_EMULATE_AMX_H

#include <immintrin.h>

#include "emulated_tiles.h"

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbssd
#undef _tile_dpbsud
#undef _tile_dpbusd
#undef _tile_dpbuud
#undef _tile_dpbf16ps
#define _tile_loadconfig emulated_tile_loadconfig
#define _tile_release    emulated_tile_release
#define _tile_zero       emulated_tile_zero
#define _tile_loadd      emulated_tile_loadd
#define _tile_stored     emulated_tile_stored
#define _tile_dpbssd     emulated_tile_dpbssd
#define _tile_dpbsud     emulated_tile_dpbsud
#define _tile_dpbusd     emulated_tile_dpbusd
#define _tile_dpbuud     emulated_tile_dpbuud
#define _tile_dpbf16ps   emulated_tile_dpbf16ps

#endif
