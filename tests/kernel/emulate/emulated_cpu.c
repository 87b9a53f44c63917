/* SPDX-License-Identifier: MIT
 *
 * emulated_cpu.c: a processor that has AVX-VNNI where this one has AVX2, and AMX where it has AVX-512 with VBMI.
 *
 * Everything else is the real cpu.c. Only its cpu_has() is renamed, and what calls it is written again.
 */
#define cpu_has        machine_has
#define cpu_best       machine_best
#define cpu_level_list machine_level_list
#include "../../../src/kernel/cpu.c"
#undef cpu_has
#undef cpu_best
#undef cpu_level_list

bool cpu_has(enum cpu_level l);
enum cpu_level cpu_best(void);
const char *cpu_level_list(char *buf);

bool cpu_has(enum cpu_level l)
{
    if (l == CPU_AVXVNNI) return machine_has(CPU_AVX2);
    if (l == CPU_AMX) return machine_has(CPU_AVX512VBMI);
    return machine_has(l);
}

enum cpu_level cpu_best(void)
{
    int l = CPU_N - 1;
    while (!cpu_has((enum cpu_level)l)) l--;
    return (enum cpu_level)l;
}

const char *cpu_level_list(char *buf)
{
    char *at = buf;
    for (int l = 0; l < CPU_N; l++)
        if (cpu_has((enum cpu_level)l)) at = stpcpy(stpcpy(at, l ? ", " : ""), names[l]);
    return buf;
}
