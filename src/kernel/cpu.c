/* SPDX-License-Identifier: MIT
 *
 * cpu.c: what this processor and its operating system can run.
 *
 * CPUID says which instructions exist; XGETBV says which registers the system saves when it
 * switches threads. Without the second, an AVX instruction faults or, worse, loses its registers.
 * Source: Intel SDM volume 1, sections 14.3 and 15.2, volume 2A, CPUID. Knows only x86-64;
 * elsewhere the reference is all there is.
 */
#include "kernel/cpu.h"

#include <string.h>

static const char *const names[CPU_N] = {"ref", "avx2", "avxvnni", "avx512", "avx512vbmi", "amx"};

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t saved_registers(void)
{
    uint32_t lo, hi;
    __asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

static bool all(uint64_t have, uint64_t need) { return (have & need) == need; }

/* Tile registers are 8 KiB a thread: Linux saves them only for processes that have asked to use them. It refuses when
 * it is older than that (5.16), or when a signal stack is too small for them. Source: Linux,
 * Documentation/arch/x86/xstate.rst. */
static bool ask_for_tiles(void)
{
    const long arch_req_xcomp_perm = 0x1023, xfeature_xtiledata = 18;
    return syscall(SYS_arch_prctl, arch_req_xcomp_perm, xfeature_xtiledata) == 0;
}

bool cpu_has(enum cpu_level l)
{
    const uint32_t fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28, f16c = 1u << 29; /* 1: ecx */
    const uint32_t avx2 = 1u << 5, bmi2 = 1u << 8;                                      /* 7: ebx */
    const uint32_t f = 1u << 16, dq = 1u << 17, bw = 1u << 30, vl = 1u << 31;           /* 7: ebx */
    const uint32_t vbmi = 1u << 1, vnni = 1u << 11;                                     /* 7: ecx */
    const uint32_t avx_vnni = 1u << 4;                                                  /* 7, subleaf 1: eax */
    const uint32_t amx_bf16 = 1u << 22, amx_tile = 1u << 24, amx_int8 = 1u << 25;       /* 7: edx */
    const uint64_t ymm = 1u << 1 | 1u << 2, zmm = 1u << 5 | 1u << 6 | 1u << 7;          /* XCR0 */
    const uint64_t tiles = 1u << 17 | 1u << 18;
    uint32_t a, b, c, d;
    if (l == CPU_REF) return true;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !all(c, fma | osxsave | avx | f16c)) return false;
    uint64_t saved = saved_registers();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !all(b, avx2 | bmi2) || !all(saved, ymm)) return false;
    bool has_512 = all(b, f | dq | bw | vl) && all(c, vnni) && all(saved, zmm);
    if (l == CPU_AVX512) return has_512;
    has_512 = has_512 && all(c, vbmi);
    if (l == CPU_AVX512VBMI) return has_512;
    if (l == CPU_AMX) return has_512 && all(d, amx_bf16 | amx_tile | amx_int8) && all(saved, tiles) && ask_for_tiles();
    /* eax counts the subleaves; one that is not there reads as zeros or as another leaf */
    if (l == CPU_AVXVNNI) return a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && all(a, avx_vnni);
    return true;
}
#else
bool cpu_has(enum cpu_level l) { return l == CPU_REF; }
#endif

enum cpu_level cpu_best(void)
{
    int l = CPU_N - 1;
    while (!cpu_has((enum cpu_level)l)) l--;
    return (enum cpu_level)l;
}

int cpu_level_parse(const char *name)
{
    for (int l = 0; l < CPU_N; l++)
        if (strcmp(name, names[l]) == 0) return l;
    return -1;
}

const char *cpu_level_name(enum cpu_level l) { return names[l]; }

const char *cpu_level_list(char *buf)
{
    char *at = buf;
    for (int l = 0; l < CPU_N; l++)
        if (cpu_has((enum cpu_level)l)) at = stpcpy(stpcpy(at, l ? ", " : ""), names[l]);
    return buf;
}
