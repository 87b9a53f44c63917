/* SPDX-License-Identifier: MIT
 *
 * cpu.h: which kernel tables this machine can run.
 */
#ifndef QUERN_KERNEL_CPU_H
#define QUERN_KERNEL_CPU_H

#include "kernel/kernel.h"
#include "kernel/probe.h"

enum cpu_level { CPU_REF, CPU_AVX2, CPU_AVXVNNI, CPU_AVX512, CPU_AVX512VBMI, CPU_AMX, CPU_N };

/* Whether this machine can run a level. AVX2 needs AVX2, FMA, F16C and BMI2. AVXVNNI needs AVX-VNNI on top; AVX512
 * needs F, BW, VL, DQ and VNNI: a machine may have AVX512 without AVXVNNI. AVX512VBMI needs VBMI on top. AMX needs the
 * tiles and their int8 and bf16 products on top of AVX512VBMI, which no processor with tiles lacks. The processor must
 * have the registers, and the operating system must save them (XGETBV). For the tiles the process must also ask the
 * system. This function asks, once for all threads; a second call does no harm. */
bool cpu_has(enum cpu_level l);
/* The highest level that this machine has. */
enum cpu_level cpu_best(void);
/* "ref", "avx2", "avxvnni", "avx512", "avx512vbmi", "amx"; -1 for any other name. */
int cpu_level_parse(const char *name);
const char *cpu_level_name(enum cpu_level l);
/* Writes the names of the levels that this machine has, with commas between them, to buf[CPU_LIST_BYTES]; returns buf.
 */
#define CPU_LIST_BYTES 64
const char *cpu_level_list(char *buf);

/* Fills k with the functions of a level, which this machine must have (asserted): first the reference's, then those of
 * each level up to it. */
void kernels_init(struct kernels *k, enum cpu_level level);
/* The probes of a level; they run only on a machine that has it. */
const struct probe *cpu_probe(enum cpu_level level);

#endif
