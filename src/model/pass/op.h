/* SPDX-License-Identifier: MIT
 *
 * op.h: the parts that operations are made of: members of the team, shares of work, accounting, products.
 */
#ifndef QUERN_MODEL_PASS_OP_H
#define QUERN_MODEL_PASS_OP_H

#include "model/pass/pass.h"

/* One member of the team that runs the pass. Every member calls every operation, in the same order, to the end. */
struct member {
    struct pass *pass;
    int ith, nth;
    void *scratch; /* this member's, for kernels */
};

/* Member ith of the nth that run the pass. */
struct member op_member(struct pass *p, int ith, int nth);

/* ---- the team ---- */

/* Whether the pass is abandoned. Members then skip their work, but still line up wherever they would have. So they need
 * not agree on the operation at which the pass ends, and all of them meet at the same barriers. */
bool op_is_abandoned(const struct member *me);
/* Lines the team up: all writes before it are visible after it. */
void op_sync(const struct member *me);

/* This member's [*lo, *hi) of n items; nothing if the pass is abandoned. */
void op_share(const struct member *me, int n, int unit, int *lo, int *hi);

/* ---- accounting ---- */

/* A traced operation begins: member 0 opens its record. */
void op_begin(const struct member *me, int il, enum op_class class, const char *name, int dtype, int64_t n, int64_t k,
              int64_t cols);
/* It ends: the team lines up, so that the time is everybody's, and the record is closed. */
void op_end(const struct member *me);

/* ---- products ---- */

/* Converts row i of x, of k values, to every format that the users (NULL-terminated) multiply with. */
void op_quant_row(const struct member *me, const struct acts *x, int k, int i, const struct linear *const *users);

/* A matrix, or one of several in a tensor. */
struct op_matrix {
    enum dtype type;
    const uint8_t *data;
    size_t row_bytes;
    int k;
    const float *b, *s; /* NULL: none; see struct linear */
    struct side side;
};

/* Outputs [lo, hi) of s m times n_cols rows of src (those that `cols` lists; NULL: the first), plus b, into y, in
 * pieces: output lo of column 0 is y[0]. false: the pass was abandoned, and y is incomplete. */
bool op_product(const struct member *me, const struct op_matrix *m, const struct acts *src, const int32_t *cols,
                int n_cols, int lo, int hi, float *y, size_t ld_y);

/* The number of a member's outputs [lo, hi) for n_cols columns that are computed before the next operation takes them.
 * With many columns they are few enough to be in the second-level cache then. */
int op_strip(const struct member *me, int n_cols, int lo, int hi);

/* Outputs [lo, hi) of s W times the first n_cols rows of src, plus b, into y, in pieces: output lo of row 0 is y[0].
 * false: the pass was abandoned, and y is incomplete. */
bool op_matmul_part(const struct member *me, const struct linear *l, const struct acts *src, int n_cols, int lo, int hi,
                    float *y, size_t ld_y);

#endif
