/* SPDX-License-Identifier: MIT
 *
 * rows.c: cutting buffers of rows out of one region.
 */
#include "model/pass/rows.h"

void *cut_bytes(struct cutter *c, size_t bytes)
{
    void *p = c->base ? c->base + c->used : NULL;
    c->used += act_round64(bytes);
    return p;
}

struct rows cut_rows(struct cutter *c, int n_rows, int k)
{
    size_t ld = act_row_bytes(ACT_F32, k) / sizeof(float);
    return (struct rows){cut_bytes(c, (size_t)n_rows * ld * sizeof(float)), ld};
}

struct rows cut_rows_apart(struct cutter *c, int n_rows, int k) { return cut_rows(c, n_rows, k + 16); }

void cut_acts(struct cutter *c, int n_rows, int k, struct acts *x)
{
    for (enum act a = ACT_Q32; a < ACT_N; a++) {
        /* A width that is no multiple of the block never uses the format; it is rounded up for the size only. */
        x->ld[a] = act_row_bytes(a, (k + 255) / 256 * 256);
        x->q[a] = cut_bytes(c, (size_t)n_rows * x->ld[a]);
    }
}
