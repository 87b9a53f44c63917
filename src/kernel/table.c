/* SPDX-License-Identifier: MIT
 *
 * table.c: the cascade that fills a kernel table, and what weights are multiplied with.
 *
 * Every level overwrites only the entries it has a faster function for, so a missing kernel falls
 * back to the level below and, in the end, to the reference, with the same bits.
 */
#include <assert.h>

#include "kernel/cpu.h"

enum act kernel_act_of(enum dtype t)
{
    switch (t) {
    case DT_F32:
    case DT_F16:
    case DT_BF16:
        return ACT_F32;
    case DT_Q4_0:
    case DT_Q4_1:
    case DT_Q5_0:
    case DT_Q5_1:
    case DT_Q8_0:
    case DT_IQ4_NL:
    case DT_MXFP4:
    case DT_NVFP4:
    case DT_Q1_0:
    case DT_Q2_0:
    case DT_MLX2:
    case DT_MLX3:
    case DT_MLX4:
    case DT_MLX5:
    case DT_MLX6:
    case DT_MLX8:
        return ACT_Q32;
    case DT_Q2_K:
    case DT_Q3_K:
    case DT_Q4_K:
    case DT_Q5_K:
    case DT_Q6_K:
    case DT_IQ1_S:
    case DT_IQ1_M:
    case DT_IQ2_XXS:
    case DT_IQ2_XS:
    case DT_IQ2_S:
    case DT_IQ3_XXS:
    case DT_IQ3_S:
    case DT_IQ4_XS:
    case DT_TQ1_0:
    case DT_TQ2_0:
    case DT_I2_S:
        return ACT_Q256;
    default:
        return ACT_N; /* integers, F64, and the formats that only ever hold activations */
    }
}

void kernels_init(struct kernels *k, enum cpu_level level)
{
    assert(cpu_has(level));
    kernels_init_ref(k);
#ifdef __x86_64__
    if (level >= CPU_AVX2) kernels_init_avx2(k);
    if (level == CPU_AVXVNNI) kernels_init_avxvnni(k);
    if (level >= CPU_AVX512) kernels_init_avx512(k);
    if (level >= CPU_AMX) kernels_init_amx(k);
#endif
    k->name = cpu_level_name(level);
}

const struct probe *cpu_probe(enum cpu_level level)
{
#ifdef __x86_64__
    static const struct probe *const probes[CPU_N] = {&probe_ref, &probe_avx2, &probe_avxvnni, &probe_avx512, &probe_amx};
    return probes[level];
#else
    (void)level;
    return &probe_ref;
#endif
}
