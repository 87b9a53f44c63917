/* SPDX-License-Identifier: MIT
 *
 * trace.h: the record of a forward pass, operation by operation.
 */
#ifndef QUERN_MODEL_PASS_TRACE_H
#define QUERN_MODEL_PASS_TRACE_H

#include <stdint.h>

/* The part of the network that an operation belongs to. */
enum op_class {
    OP_EMBEDDING,
    OP_ELEMENTWISE,      /* norms, rotations, conversions, of blocks that have no class of their own */
    OP_ATTENTION_MATRIX, /* of softmax attention: q, k, v, output */
    OP_ATTENTION,        /* queries over the KV cache, of either attention */
    OP_LATENT,           /* latent attention, except for OP_ATTENTION */
    OP_DELTA,            /* gated DeltaNet */
    OP_FFN,              /* the matrices of the dense feed-forward network */
    OP_EXPERTS,          /* router, experts, and the expert of all tokens */
    OP_OUTPUT,           /* output norm and output matrix */
    OP_N_CLASSES,
};

/* The cost of one operation. */
struct trace_op {
    const char *name; /* static: "attn_q" */
    enum op_class class;
    int layer; /* -1 outside the layers */
    int dtype; /* of the weights, -1 if there are none */
    int64_t n, k, cols;
    int n_experts; /* experts whose matrices were read: n is the outputs of one, cols the rows of all. 0: no experts */
    uint64_t bytes, macs_int8, macs_f32; /* by the costing table */
    uint64_t ns;                         /* measured */
};

/* Attached to a pass, it receives the pass's operations in order. */
struct trace {
    struct trace_op *ops; /* [cap], owned by the caller */
    int n, cap;
    uint64_t started_ns; /* of the operation that is in progress */
};

#endif
