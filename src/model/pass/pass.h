/* SPDX-License-Identifier: MIT
 *
 * pass.h: the state that the operations of a forward pass share: model, kernels, team, buffers, batch.
 *
 *   x     [rows][n_embd]           residual stream
 *   h, att, gate                   right-hand sides of matrices: normalised rows, results of attention, gated rows; as
 *                                  f32 and in the integer formats that the next matrices multiply with (q32, q256).
 *                                  att shares h's integer buffers.
 *   bare                           x as a right-hand side; shares h's integer buffers, too
 *   q, k, v, up                    one row each for each batch row
 */
#ifndef QUERN_MODEL_PASS_H
#define QUERN_MODEL_PASS_H

#include "base/pool.h"
#include "cache/kv.h"
#include "model/pass/ops_attn.h"
#include "model/pass/ops_delta.h"
#include "model/pass/ops_latent.h"
#include "model/pass/ops_moe.h"
#include "model/rope.h"
#include "model/pass/states.h"
#include "model/pass/trace.h"

struct pass {
    const struct model *model;
    struct kernels kt;
    struct pool *pool;
    struct rope rope, rope_local; /* the second where a layer is ROPE_LOCAL */
    struct trace *trace;          /* NULL: none */
    /* Asked by the calling thread before each piece of its work, a few milliseconds long: true abandons the pass. NULL:
     * never. */
    bool (*is_cancelled)(void *arg);
    /* Called as often by that thread, also in passes that cannot be abandoned. NULL: nothing else has to be done. */
    void (*tend)(void *arg);
    void *cancel_arg;        /* of both */
    bool is_streaming;       /* the weights do not fit in memory: experts are read ahead as soon as they are chosen */
    uint64_t n_experts_read; /* the sum of trace_op.n_experts over all operations of all passes */

    struct rows x, q, k, v, up;
    struct acts h, att, gate, bare;
    struct rows heads; /* attention's results of all heads: att; with absorbed latents the input of Wv_b */
    struct delta_rows delta;
    struct latent_rows latent;
    struct moe moe;
    struct attn_calls calls;
    struct states states;
    float (*cs)[2];       /* [rows][n_pairs] rotations */
    float (*cs_local)[2]; /* the same of ROPE_LOCAL, where a layer has it */
    uint8_t *scratch;     /* [n_threads][KERNEL_SCRATCH_BYTES] */
    int32_t *out_rows;    /* [rows] rows that want logits */

    /* the pass in progress */
    const struct batch *batch;
    struct kv_seq *const *mem; /* by the batch's sequence numbers */
    const float *rows_in;      /* [rows][n_embd], the residual rows of the stage before this one; unused in the first */
    float *logits;
    int n_out;                /* out_rows */
    bool can_stop;            /* whether is_cancelled() is asked */
    uint64_t head_ns;         /* when the last pass with logits began with the output matrix */
    atomic_bool is_abandoned; /* nobody begins another piece of work */
};

/* Cuts the buffers for n rows out of base; NULL: only measures. Returns their bytes. */
size_t pass_cut(struct pass *p, const struct model *m, int n, int n_threads, uint8_t *base);

#endif
