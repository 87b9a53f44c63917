/* SPDX-License-Identifier: MIT
 *
 * cpu.h: which kernel tables this machine can run.
 */
#ifndef QUERN_KERNEL_CPU_H
#define QUERN_KERNEL_CPU_H

#include "kernel/kernel.h"
#include "kernel/probe.h"

enum cpu_level { CPU_REF, CPU_AVX2, CPU_AVX512, CPU_N };

/* AVX2 needs AVX2, FMA, F16C, BMI2; AVX512 needs F, BW, VL, DQ, VNNI on top. Both need the
 * operating system to save the registers (XGETBV), not just the processor to have them. */
enum cpu_level cpu_best(void);
/* "ref", "avx2", "avx512"; -1 for any other name. */
int cpu_level_parse(const char *name);
const char *cpu_level_name(enum cpu_level l);

/* The table of a level, filled by the cascade ref -> avx2 -> avx512; level <= cpu_best(). */
void kernels_init(struct kernels *k, enum cpu_level level);
/* The ceilings of a level. */
const struct probe *cpu_probe(enum cpu_level level);

#endif
