/* SPDX-License-Identifier: MIT
 *
 * bind.h: finds the tensor for each role of a model, and checks its shape and type.
 */
#ifndef QUERN_MODEL_BIND_H
#define QUERN_MODEL_BIND_H

#include "model/model.h"

/* Dimensions are named, and looked up in the hyper-parameters. */
enum bind_dim {
    DIM_NONE, /* 1 */
    DIM_EMBD,
    DIM_2EMBD, /* an embedding and a hidden row */
    DIM_VOCAB,
    DIM_FF,
    DIM_2FF, /* gate and up in one */
    DIM_Q,   /* of all heads, with their gates where they have them */
    DIM_LORA_Q,
    DIM_LORA_KV,
    DIM_LATENT,   /* a latent and its rotated key */
    DIM_KV_B,     /* k without its rotated part, and v, of all heads */
    DIM_NOPE,     /* k without its rotated part */
    DIM_LATENT_V, /* v */
    DIM_K,
    DIM_V,
    DIM_QKV,
    DIM_ATT, /* attention's result, of all heads */
    DIM_HEAD,
    DIM_N_HEAD,
    DIM_PAIRS,
    DIM_CONV, /* DeltaNet's q, k and v of all heads */
    DIM_CONV_KERNEL,
    DIM_DELTA_V, /* its values of all heads */
    DIM_DELTA_IN,
    DIM_DELTA_BA,
    DIM_DELTA_HEADS,
    DIM_DELTA_HEAD_V,
    DIM_EXPERTS,
    DIM_FF_EXP,
    DIM_2FF_EXP,
    DIM_FF_SHEXP,
};

/* The layers that have a tensor. */
enum bind_when {
    IN_ALL,
    IN_ATTN,
    IN_RECURRENT,
    IN_DENSE,
    IN_EXPERTS,
    IN_Q_DIRECT, /* q in one step, in two */
    IN_Q_LORA,
    IN_ABSORBED, /* the two forms of latent attention */
    IN_EXPANDED
};

enum bind_kind {
    BIND_MATRIX,  /* struct linear: NAME.weight {in, out} and, when the file has them, NAME.bias {out} and NAME.scale
                     {1};  NAME.input_scale {1} is accepted and not used */
    BIND_VECTOR,  /* const float *: NAME.weight {in} or {in, out}, as floats */
    BIND_BARE,    /* the same, but NAME is the whole name */
    BIND_EXPERTS, /* struct experts: NAME.weight {in, out, n_expert}, or NAME.I.weight {in, out} for each expert I;
                     and, when the file has them, NAME.bias {out, n_expert} and NAME.scale {n_expert}; NAME.input_scale
                     {n_expert} as above */
    BIND_HEADS    /* struct experts, a matrix a head: NAME.weight {in, out, n_head} */
};

struct bind_rule {
    const char *name; /* without "blk.N." and ".weight"; NULL ends the table */
    enum bind_kind kind;
    bool optional;
    size_t offset; /* in struct layer */
    enum bind_dim in, out;
    enum bind_when when;
};

/* Binds every tensor of m->weights that the family names; m->hp and m->arch are set.
 * Errors that name the tensor: it is missing, its shape is wrong, no kernel multiplies its type, or no rule asks for it
 * (ignoring it would change the result). */
int bind_model(struct model *m, struct qn_error *e);

#endif
