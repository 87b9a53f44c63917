/* SPDX-License-Identifier: MIT
 *
 * amx.h: the AMX folder's own pieces of kernels_init_amx, one per file.
 */
#ifndef QUERN_KERNEL_AMX_AMX_H
#define QUERN_KERNEL_AMX_AMX_H

#include "kernel/kernel.h"

void amx_init_gemm_b32(struct kernels *k);
void amx_init_gemm_k256(struct kernels *k);

#endif
