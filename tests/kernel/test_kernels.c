/* SPDX-License-Identifier: MIT
 *
 * test_kernels.c: every kernel of every instruction set against the reference, bit for bit.
 *
 *   test_kernels [--filter NAME] [--seed N] [--rounds N] [--level LEVEL] [--bench [--json]]
 *
 * NAME is a part of "gemm Q4_K", "quant", "attn", "put", "silu" ... Exit 0 when no bit differs, 1
 * when one does, 77 when this machine has nothing to compare with the reference. A fault in a
 * guard page prints the case it happened in. --bench measures instead (bench.c), with --json
 * one object a line.
 * The idea is that of checkasm (x264, dav1d).
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../levels.h"
#include "harness.h"

struct kernels table[CPU_N];
int first_level = CPU_REF + 1, last_level;
static const char *filter = "";

bool wanted(const char *name) { return strstr(name, filter) != NULL; }

bool is_own(int level, size_t offset)
{
    const char *entry = (const char *)&table[level] + offset;
    for (int l = 0; l < level; l++)
        if (memcmp(entry, (const char *)&table[l] + offset, sizeof(add_fn *)) == 0) return false;
    return true;
}

static void on_fault(int sig)
{
    static const char text[] = "FAULT in ";
    (void)sig;
    (void)!write(1, text, sizeof text - 1);
    (void)!write(1, description, strlen(description));
    (void)!write(1, "\n", 1);
    _exit(1);
}

/* How many entries a level has of its own; the rest it inherits. */
static void print_coverage(void)
{
    for (int l = first_level; l <= last_level; l++) {
        if (!cpu_has((enum cpu_level)l)) continue;
        int n = 0, n_all = 0;
        for (int t = 0; t < DT_N; t++) {
            n_all += table[CPU_REF].gemm[t] != NULL;
            n += is_own(l, offsetof(struct kernels, gemm) + (size_t)t * sizeof(gemm_fn *));
        }
        if (cpu_has((enum cpu_level)l))
            printf("%s: %d of %d products of its own\n", cpu_level_name((enum cpu_level)l), n, n_all);
    }
}

static void usage(void)
{
    puts("usage: test_kernels [--filter NAME] [--seed N] [--rounds N] [--level ref|avx2|...] [--bench [--json]]");
    exit(2);
}

int main(int argc, char **argv)
{
    unsigned long long seed = 1;
    int rounds = 1, level = -1;
    bool bench = false, json = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--bench") == 0)
            bench = true;
        else if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (i + 1 == argc)
            usage();
        else if (strcmp(argv[i], "--filter") == 0)
            filter = argv[++i];
        else if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[++i], NULL, 0);
        else if (strcmp(argv[i], "--rounds") == 0)
            rounds = atoi(argv[++i]);
        else if (strcmp(argv[i], "--level") == 0 && (level = cpu_level_parse(argv[++i])) >= 0)
            continue;
        else
            usage();
    }
    for (int l = 0; l < CPU_N; l++) {
        if (!cpu_has((enum cpu_level)l)) {
            table[l] = table[l - 1];
            continue;
        }
        kernels_init(&table[l], (enum cpu_level)l);
        last_level = l;
    }
    if (level >= 0 && !cpu_has((enum cpu_level)level)) {
        printf("this machine has no %s\n", cpu_level_name((enum cpu_level)level));
        return 77;
    }
    if (level >= 0) first_level = last_level = level;
    if (bench) {
        bench_all(json);
        return 0;
    }
    signal(SIGSEGV, on_fault);
    signal(SIGBUS, on_fault);
    rnd_seed(seed);
    check_self();
    if (last_level == CPU_REF) {
        printf("only the reference runs here: %d self-tests, %d failed\n", n_checked, n_failed);
        return n_failed ? 1 : 77;
    }
    int n_self = n_checked;
    check_quant(rounds);
    check_small(rounds);
    check_attn(rounds);
    check_delta(rounds);
    check_gemm(rounds);
    if (n_checked == n_self) {
        puts("nothing was compared: no kernel matches");
        return 2;
    }
    print_coverage();
    printf("%s .. %s: %d comparisons, %d failed, seed %llu\n", cpu_level_name((enum cpu_level)first_level),
           cpu_level_name((enum cpu_level)last_level), n_checked, n_failed, seed);
    if (level < 0) {
        levels_print_skipped();
        levels_print_result(n_failed == 0);
    }
    return n_failed != 0;
}
