/* SPDX-License-Identifier: MIT
 *
 * bind.h: from tensor names to roles, with the shape and type that each must have.
 */
#ifndef QUERN_MODEL_BIND_H
#define QUERN_MODEL_BIND_H

#include "model/model.h"

/* Dimensions are named, and looked up in the hyper-parameters. */
enum bind_dim { DIM_NONE, DIM_EMBD, DIM_VOCAB, DIM_FF, DIM_Q, DIM_KV, DIM_HEAD, DIM_PAIRS };

enum bind_kind {
    BIND_MATRIX, /* struct linear: NAME.weight {in, out} and, when the file has it, NAME.bias {out} */
    BIND_VECTOR, /* const float *: NAME.weight {in} */
};

struct bind_rule {
    const char *name; /* without "blk.N." and ".weight"; NULL ends the table */
    enum bind_kind kind;
    bool optional;
    size_t offset; /* in struct layer */
    enum bind_dim in, out;
};

/* Binds every tensor of m->weights that the family names; m->hp and m->arch are set.
 * A missing tensor, a wrong shape, a type no kernel multiplies and a tensor nobody asked for
 * (it would have changed the result) are errors that name the tensor. */
int bind_model(struct model *m, struct qn_error *e);

#endif
