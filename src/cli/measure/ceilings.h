/* SPDX-License-Identifier: MIT
 *
 * ceilings.h: what this machine can do at most, measured now and with these threads.
 */
#ifndef QUERN_CLI_CEILINGS_H
#define QUERN_CLI_CEILINGS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "format/weights.h"
#include "kernel/cpu.h"

struct ceilings {
    double read_gbs;     /* streaming read of anonymous memory, 10^9 bytes/s */
    double mapped_gbs;   /* the same for the mapped model file; = read_gbs if the file is too small to tell */
    size_t mapped_bytes; /* bytes of the file that were read; 0: it is too small */
    double int8_gmacs;   /* 10^9 multiply-adds/s with the level's byte instructions */
    double f32_gmacs;    /* the same with its fused multiply-adds */
    struct ceilings_low {
        double read_gbs, mapped_gbs, int8_gmacs, f32_gmacs;
    } low; /* the same, as the slowest pass had them: how much other programs took meanwhile */
};

/* ceilings_read() measures reading (w: NULL for no file), ceilings_compute() arithmetic. c is zero before the first
 * call; another call keeps the best and the lowest of both. Each takes some 100 ms. */
int ceilings_read(struct ceilings *c, struct pool *pool, enum cpu_level level, const struct weights *w,
                  struct qn_error *e);
void ceilings_compute(struct ceilings *c, struct pool *pool, enum cpu_level level);
/* Measures both. */
int ceilings_measure(struct ceilings *c, struct pool *pool, enum cpu_level level, const struct weights *w,
                     struct qn_error *e);
/* The least time of an operation in seconds: that of reading or that of computing, whichever is longer. */
double ceilings_floor(const struct ceilings *c, uint64_t bytes, uint64_t macs_int8, uint64_t macs_f32);
/* Prints two lines with the ceilings and what the slowest pass had. */
void ceilings_print(const struct ceilings *c);
/* The same as an object, which the caller owns. */
json_t *ceilings_json(const struct ceilings *c);

#endif
