/* SPDX-License-Identifier: MIT
 *
 * cpu.h: which kernel tables this machine can run.
 */
#ifndef QUERN_KERNEL_CPU_H
#define QUERN_KERNEL_CPU_H

#include "kernel/kernel.h"
#include "kernel/probe.h"

enum cpu_level { CPU_REF, CPU_AVX2, CPU_AVXVNNI, CPU_AVX512, CPU_AMX, CPU_N };

/* AVX2 needs AVX2, FMA, F16C, BMI2; AVXVNNI needs AVX-VNNI on top, and AVX512 F, BW, VL, DQ, VNNI: a
 * machine may have the higher of these two without the lower. AMX needs the tiles and their int8 and bf16 products on
 * top of AVX512. All need the operating system to save the registers (XGETBV), not just the processor to have
 * them; for the tiles the process must also ask, which this does: once for all threads, and again is no harm. */
bool cpu_has(enum cpu_level l);
/* The highest level that this machine has. */
enum cpu_level cpu_best(void);
/* "ref", "avx2", "avxvnni", "avx512", "amx"; -1 for any other name. */
int cpu_level_parse(const char *name);
const char *cpu_level_name(enum cpu_level l);
/* The names of the levels that this machine has, with commas between them; buf of CPU_LIST_BYTES is returned. */
#define CPU_LIST_BYTES 64
const char *cpu_level_list(char *buf);

/* The table of a level that the machine has, filled by a cascade from the reference up. */
void kernels_init(struct kernels *k, enum cpu_level level);
/* The ceilings of a level. */
const struct probe *cpu_probe(enum cpu_level level);

#endif
