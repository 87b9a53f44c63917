/* SPDX-License-Identifier: MIT
 *
 * avx2.h: the parts of the AVX2 table, one function per file; init.c calls them in turn.
 *
 * Each fills in the entries its file has a faster function for and leaves the others alone.
 */
#ifndef QUERN_KERNEL_AVX2_AVX2_H
#define QUERN_KERNEL_AVX2_AVX2_H

#include "kernel/kernel.h"

/* A name in a file that is compiled twice (dot.h). */
#ifdef __AVXVNNI__
#define AVX2_LEVEL(name) avxvnni_##name
#else
#define AVX2_LEVEL(name) avx2_##name
#endif

void avx2_init_quant(struct kernels *k);
void avx2_init_gemm_float(struct kernels *k);
void AVX2_LEVEL(init_gemm_b32)(struct kernels *k);
void AVX2_LEVEL(init_gemm_k256)(struct kernels *k);
void avx2_init_attn(struct kernels *k);
void avx2_init_kv(struct kernels *k);
void avx2_init_delta(struct kernels *k);
void avx2_init_norm(struct kernels *k);
void avx2_init_act(struct kernels *k);
void avx2_init_rope(struct kernels *k);
void avx2_init_topk(struct kernels *k);

/* Products with one column by type, the same at the level with AVX-VNNI; NULL for other types. */
extern gemm_fn *const avx2_rows32[DT_N], *const avx2_rows256[DT_N];

/* 32 values to 32 bytes by the rule of the Q32 format; returns the scale. */
float avx2_quant32(const float *x, int8_t *q);

#endif
