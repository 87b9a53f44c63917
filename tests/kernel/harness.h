/* SPDX-License-Identifier: MIT
 *
 * harness.h: what the kernel checks share: the tables under test, buffers between guard pages,
 * random data with the corners of every format in it, and the comparison of bits.
 *
 * Everything random comes from one generator with a printed seed, so a failure can be repeated
 * with --seed and --filter. Memory is taken from mmap directly: that is what guards it.
 */
#ifndef QUERN_TESTS_KERNEL_HARNESS_H
#define QUERN_TESTS_KERNEL_HARNESS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/cpu.h"

#define LEN(a) ((int)(sizeof(a) / sizeof *(a)))

/* ---- tables ---- */

/* table[CPU_REF] is the definition; levels first_level .. last_level are compared with it. A level that this machine
 * cannot run is a copy of the one below. */
extern struct kernels table[CPU_N];
extern int first_level, last_level;
/* Whether the kernel of this name was asked for (--filter is a substring). */
bool wanted(const char *name);
/* Whether the function at this offset in struct kernels is one that no lower level has: others need no second check. */
bool is_own(int level, size_t offset);
/* Levels with an `entry` (a member of struct kernels) of their own. */
#define FOR_LEVELS(l, entry)                                                                                           \
    for (int l = first_level; l <= last_level; l++)                                                                    \
        if (is_own(l, (size_t)((const char *)&table[0].entry - (const char *)&table[0])))

/* ---- results ---- */

/* Describes the case being run; printed when it fails or faults. */
extern char description[300];
void describe(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Counts a failed comparison and prints it with the description. */
void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
extern int n_failed, n_checked;

/* The index of the first difference, or -1. Two NaN are equal whatever their bits. */
ptrdiff_t first_difference(const float *want, const float *got, size_t n);
/* Counts one check; fails when bits differ. */
void check_floats(enum cpu_level l, const char *what, const float *want, const float *got, size_t n);
void check_bytes(enum cpu_level l, const char *what, const void *want, const void *got, size_t n);

/* ---- guarded buffers ---- */

struct guarded {
    uint8_t *p; /* `bytes` bytes that end `slack` bytes before a page that faults (or begin after one) */
    size_t bytes;
    uint8_t *map;
    size_t map_bytes;
};

enum place { AT_END, AT_START };
/* The contents are 0xff: as floats NaN, as integers all bits. */
struct guarded guarded_new(size_t bytes, size_t slack, enum place where);
/* Frees it, after failing when bytes of the same pages around it were written. */
void guarded_free(struct guarded *g);
/* KERNEL_SCRATCH_BYTES that end before a guard page, with garbage in them. */
void *scratch_dirty(void);

/* ---- random data ---- */

void rnd_seed(uint64_t seed);
uint64_t rnd(void);
int rnd_below(int n);
int rnd_of(const int *list, int n);
float rnd_normal(void);

#define MAX_K 33536 /* elements in the longest row: 131 blocks of 256, more than AVX-512 takes at once */

enum wpat { W_RANDOM, W_ZEROS, W_ONES, W_TOP_BITS, W_EXTREMES, W_FIELDS, W_BIG_SCALES, W_SPECIAL, W_N };
/* One stored row of k elements of a weight type. W_EXTREMES takes the largest and smallest codes and scales byte by
 * byte, W_FIELDS for a whole field of a block at once: with activations of matching signs the sums are as large as they
 * can be. Scales are finite but for W_SPECIAL. */
void fill_weights(enum dtype t, uint8_t *row, int k, enum wpat pat);

enum xpat {
    X_NORMAL,
    X_CONST,
    X_ALTERNATE,
    X_SIGNS,
    X_OUTLIER,
    X_WIDE,
    X_ZERO,
    X_TINY,
    X_HUGE,
    X_TIES,
    X_INF,
    X_NAN,
    X_N
};
/* n floats. X_CONST (either sign) and X_SIGNS quantise to +-127 throughout, X_TINY are around the threshold of the
 * format and denormal, X_TIES are half-way between two integers of a quantised block or two f16, X_INF and X_NAN hold
 * one of those. */
void fill_floats(float *x, int n, enum xpat pat);

/* ---- the parts ---- */

void check_self(void); /* that the checks can fail */
void check_gemm(int rounds);
void check_quant(int rounds);
void check_attn(int rounds);
void check_small(int rounds);
void check_delta(int rounds);
void bench_all(bool as_json);

#endif
