/* SPDX-License-Identifier: MIT
 *
 * table.c: fills a kernel table level by level; the activation format of each weight type.
 *
 * Each level overwrites only the entries that it has a faster function for. A kernel that a level does not have is that
 * of the level below and, in the end, the reference's, with the same bits.
 */
#include <assert.h>

#include "kernel/cpu.h"

enum act kernel_act_of(enum dtype t)
{
#define CASE(ID, ...) case DT_##ID:
    switch (t) {
        DTYPES_FLOAT(CASE) return ACT_F32;
        DTYPES_Q32(CASE) return ACT_Q32;
        DTYPES_K256(CASE) return ACT_Q256;
    default: return ACT_N; /* integers, F64, and the formats that only ever hold activations */
    }
#undef CASE
}

void kernels_init(struct kernels *k, enum cpu_level level)
{
    assert(cpu_has(level));
    kernels_init_ref(k);
#ifdef __x86_64__
    if (level >= CPU_AVX2) kernels_init_avx2(k);
    if (level == CPU_AVXVNNI) kernels_init_avxvnni(k);
    if (level >= CPU_AVX512) kernels_init_avx512(k);
    if (level >= CPU_AVX512VBMI) kernels_init_avx512vbmi(k);
    if (level >= CPU_AMX) kernels_init_amx(k);
#endif
    k->name = cpu_level_name(level);
}

const struct probe *cpu_probe(enum cpu_level level)
{
#ifdef __x86_64__
    static const struct probe *const probes[CPU_N] = {&probe_ref,    &probe_avx2,   &probe_avxvnni,
                                                      &probe_avx512, &probe_avx512, &probe_amx};
    return probes[level];
#else
    (void)level;
    return &probe_ref;
#endif
}
