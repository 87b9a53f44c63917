/* SPDX-License-Identifier: MIT
 *
 * rows.h: buffers of rows, and how they are cut out of one region.
 */
#ifndef QUERN_MODEL_PASS_ROWS_H
#define QUERN_MODEL_PASS_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "kernel/kernel.h"

/* Rows of f32: row r starts at p + r * ld; ld * 4 is a multiple of 64 bytes. */
struct rows {
    float *p;
    size_t ld;
};

static inline float *rows_at(struct rows r, int i) { return r.p + (size_t)i * r.ld; }

/* Rows as the right-hand side of matrices: as f32, and in the formats that the next matrices multiply with. */
struct acts {
    struct rows f32;
    uint8_t *q[ACT_N]; /* [rows][ld]; ACT_F32 is unused: the f32 rows are in that format already */
    size_t ld[ACT_N];
};

/* Cuts one region into aligned pieces. With base NULL it only adds up their sizes. */
struct cutter {
    uint8_t *base;
    size_t used;
};

void *cut_bytes(struct cutter *c, size_t bytes);
/* n_rows rows of k values. */
struct rows cut_rows(struct cutter *c, int n_rows, int k);
/* The same for rows whose width is a large power of two: with one more cache line each, the rows of a head do not
 * share a few sets of the cache. */
struct rows cut_rows_apart(struct cutter *c, int n_rows, int k);
/* The integer formats of n_rows rows of k values; the f32 rows of x stay as they are. */
void cut_acts(struct cutter *c, int n_rows, int k, struct acts *x);

#endif
