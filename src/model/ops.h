/* SPDX-License-Identifier: MIT
 *
 * ops.h: what operations (ops.c, ops_*.c) are made of: shares of work, accounting, products.
 */
#ifndef QUERN_MODEL_OPS_H
#define QUERN_MODEL_OPS_H

#include "model/step.h"

/* ---- buffers ---- */

/* One region cut into aligned pieces. With base NULL it only measures. */
struct cutter {
    uint8_t *base;
    size_t used;
};

void *cut(struct cutter *c, size_t bytes);
struct rows cut_rows(struct cutter *c, int n_rows, int k);
/* The integer formats of rows of k. */
void cut_acts(struct cutter *c, int n_rows, int k, struct acts *x);

/* What ops_moe.c needs for n rows. */
void moe_cut(struct cutter *c, const struct hparams *h, int n, struct moe *m);
/* What ops_latent.c needs for n rows; s->q is there. */
void latent_cut(struct cutter *c, const struct hparams *h, int n, struct step *s);

/* ---- shares of work ---- */

#define OP_ROW_UNIT 32 /* matrix rows a member's share is a multiple of: the tile kernels' height */

static inline float *rows_at(struct rows r, int i) { return r.p + (size_t)i * r.ld; }

/* This member's [*lo, *hi) of n items: nothing of a pass that is abandoned. */
void op_share(const struct worker *w, int n, int unit, int *lo, int *hi);

/* A traced operation begins: member 0 opens its record. */
void op_begin(const struct worker *w, int il, const char *name, int dtype, int64_t n, int64_t k, int64_t cols);
/* It ends: the team lines up so that the time is everybody's, and the record is closed. */
void op_end(const struct worker *w);

/* Brings row i of x, of k values, into every format that the users (NULL-terminated) multiply with. */
void op_quant_row(const struct worker *w, const struct acts *x, int k, int i, const struct linear *const *users);

/* A matrix, or one of several in a tensor. */
struct op_matrix {
    enum dtype type;
    const uint8_t *data;
    size_t row_bytes;
    int k;
    const float *b, *s; /* NULL: none; see struct linear */
    struct side side;
};

/* Outputs [lo, hi) of s m times n_cols rows of src (those that `cols` lists; NULL: the first), plus b, into y, in pieces:
 * output lo of column 0 is y[0]. false: the pass was abandoned, and y is not whole. */
bool op_product(const struct worker *w, const struct op_matrix *m, const struct acts *src, const int32_t *cols,
                int n_cols, int lo, int hi, float *y, size_t ld_y);

/* How many of a member's outputs [lo, hi) for n_cols columns are made before the next operation takes them: with many
 * columns few enough to be still in the second-level cache then. */
int op_strip(int n_cols, int lo, int hi);

/* Outputs [lo, hi) of s W times the first n_cols rows of src, plus b, into y, in pieces: output lo of row 0 is y[0].
 * false: the pass was abandoned, and y is not whole. */
bool op_matmul_part(const struct worker *w, const struct linear *l, const struct acts *src, int n_cols, int lo, int hi,
                    float *y, size_t ld_y);

/* Row r's key and value (either may be NULL) of one KV head into their slot. */
void op_store(const struct worker *w, int il, int r, int head, const float *k, const float *v);
/* Copies the states of the spans that have a copy to it, or back: this member's share. */
void delta_copy_states(const struct worker *w, bool back);
/* Runs the held rows that stay, n_again of each span, through the recurrence of all layers. */
void delta_replay(const struct worker *w);

#endif
