/* SPDX-License-Identifier: MIT
 *
 * ceilings.h: what this machine can do with these threads, right now.
 */
#ifndef QUERN_CLI_CEILINGS_H
#define QUERN_CLI_CEILINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "format/weights.h"
#include "kernel/cpu.h"

struct ceilings {
    double read_gbs;     /* streaming read of anonymous memory, 10^9 bytes/s */
    double mapped_gbs;   /* the same of the mapped model file; = read_gbs when the file is too small to tell */
    size_t mapped_bytes; /* of the file that were read; 0: too small */
    double int8_gmacs;   /* 10^9 multiply-adds/s with the level's byte instructions */
    double f32_gmacs;    /* and with its fused multiply-adds */
};

/* Fills in what is read (w: NULL for no file) and what is computed. Best of several short runs; the reads take
 * about a second. */
int ceilings_read(struct ceilings *c, struct pool *pool, enum cpu_level level, const struct weights *w,
                  struct qn_error *e);
void ceilings_compute(struct ceilings *c, struct pool *pool, enum cpu_level level);
/* Both. */
int ceilings_measure(struct ceilings *c, struct pool *pool, enum cpu_level level, const struct weights *w,
                     struct qn_error *e);
/* Seconds that an operation needs at least: the slower of reading and computing. */
double ceilings_floor(const struct ceilings *c, uint64_t bytes, uint64_t macs_int8, uint64_t macs_f32);

#endif
