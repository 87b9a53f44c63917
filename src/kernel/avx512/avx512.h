/* SPDX-License-Identifier: MIT
 *
 * avx512.h: the AVX-512 folder's own pieces of kernels_init_avx512, one per file.
 */
#ifndef QUERN_KERNEL_AVX512_AVX512_H
#define QUERN_KERNEL_AVX512_AVX512_H

#include "kernel/kernel.h"

void avx512_init_quant(struct kernels *k);
void avx512_init_gemm_float(struct kernels *k);
void avx512_init_gemm_b32(struct kernels *k);
void avx512_init_gemm_k256(struct kernels *k);
/* This folder's function for a type of each; NULL for others. */
gemm_fn *avx512_gemm_b32(enum dtype t);
gemm_fn *avx512_gemm_k256(enum dtype t);
/* The products of the codebook types with one column, by type. */
extern gemm_fn *const avx512_gemm_iq_one[DT_N];

/* The product with one type, by the number of columns: one_column() and many_columns() are the file's. */
#define AVX512_GEMM(ID, name, ...)                                                                                     \
    static void gemm_##name##_1(const struct gemm *g, void *scratch) { one_column(DT_##ID, g, scratch); }              \
    static void gemm_##name##_n(const struct gemm *g, void *scratch) { many_columns(DT_##ID, g, scratch); }            \
    static void gemm_##name(const struct gemm *g, void *scratch)                                                       \
    {                                                                                                                  \
        if (g->n_cols == 1)                                                                                            \
            gemm_##name##_1(g, scratch);                                                                               \
        else                                                                                                           \
            gemm_##name##_n(g, scratch);                                                                               \
    }
/* Its place in a table by type. */
#define AVX512_GEMM_ENTRY(ID, name, ...) [DT_##ID] = gemm_##name,

void avx512_init_attn(struct kernels *k);
void avx512_init_delta(struct kernels *k);
void avx512_init_kv(struct kernels *k);
void avx512_init_norm(struct kernels *k);
void avx512_init_act(struct kernels *k);
void avx512_init_rope(struct kernels *k);
void avx512_init_topk(struct kernels *k);

#endif
