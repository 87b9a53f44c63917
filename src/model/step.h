/* SPDX-License-Identifier: MIT
 *
 * step.h: the forward pass: its buffers, and the operations that blocks are written in.
 *
 * Every member of the thread team runs the same layer code at the same time (one parallel
 * region a pass). An operation gives each member its contiguous share of the work; op_sync()
 * lines the team up where the next operation reads what others wrote. No share ever splits
 * a sum, so the result does not depend on the number of threads.
 *
 *   x     [rows][n_embd]           residual stream
 *   h, att, gate                   what is multiplied with matrices: normalised rows, attention's
 *                                  results, gated rows; f32 and in the integer formats that the
 *                                  next matrices want (q32, q256). att shares h's integer buffers.
 *   q, k, v, up                    one row each per batch row
 */
#ifndef QUERN_MODEL_STEP_H
#define QUERN_MODEL_STEP_H

#include <stdatomic.h>

#include "base/pool.h"
#include "base/region.h"
#include "cache/kv.h"
#include "kernel/kernel.h"
#include "model/batch.h"
#include "model/model.h"
#include "model/rope.h"

/* Rows of f32: row r starts at p + r * ld; ld * 4 is a multiple of 64 bytes. */
struct rows {
    float *p;
    size_t ld;
};

/* Rows as the right-hand side of matrices: f32, and what they were brought into for the matrices to come. */
struct acts {
    struct rows f32;
    uint8_t *q[ACT_N]; /* [rows][ld]; ACT_F32 unused: the f32 rows are their own format */
    size_t ld[ACT_N];
};

/* What latent attention has besides; without it nothing. */
struct latent_rows {
    struct rows q;      /* [n_head][nope + n_rot]; expanded: is step.q */
    struct rows kv;     /* [n_lora_kv + n_rot] */
    struct rows kv_b;   /* expanded: [n_head][nope + v] */
    struct acts low_q;  /* [n_lora_q] */
    struct acts low_kv; /* expanded: [n_lora_kv] */
    struct acts heads;  /* absorbed: a row for each head, in the format of act_row_bytes(), one after the other */
};

/* What an operation cost: filled when a trace is attached. */
struct trace_op {
    const char *name; /* static: "attn_q" */
    int layer;        /* -1 outside the layers */
    int dtype;        /* of the weights, -1 when there are none */
    int64_t n, k, cols;
    uint64_t bytes, macs_int8, macs_f32; /* by the costing table */
    uint64_t ns;                         /* measured */
};

struct trace {
    struct trace_op *ops; /* caller's */
    int n, cap;
    uint64_t started_ns;
};

/* A run of consecutive batch rows of one sequence, for attention. */
struct run {
    int row, n;
};

struct step {
    const struct model *model;
    struct kernels kt;
    struct pool *pool;
    struct rope rope;
    struct ledger *ledger;
    int max_rows;
    struct trace *trace; /* NULL: none */
    /* Asked by the calling thread before each piece of its work, a few milliseconds long: true abandons the pass. NULL:
     * never. */
    bool (*is_cancelled)(void *arg);
    void *cancel_arg;

    struct region region; /* all buffers below */
    struct rows x, q, k, v, up;
    struct acts h, att, gate;
    struct rows heads; /* what attention gives, of all heads: att, but with absorbed latents what att is made of */
    struct latent_rows latent;
    float (*cs)[2];    /* [rows][n_pairs] */
    uint8_t *scratch;  /* [n_threads][KERNEL_SCRATCH_BYTES] */
    struct run *runs;  /* [rows] */
    int32_t *out_rows; /* [rows] rows that want logits */

    /* the pass in progress */
    const struct batch *batch;
    struct memory *const *mem;
    float *logits;
    int n_runs, n_out;
    int n_parts;              /* of a KV head's query heads: attention calls for each of a run's KV heads */
    atomic_bool is_abandoned; /* is_cancelled() said so: nobody begins another piece of work */
    atomic_int next_attend;   /* attention calls that were dealt out, since the last op_rope_store() */
};

/* What the model keeps of its sequences. */
struct kv_shape step_kv_shape(const struct model *m, enum kv_type type);
/* Bytes step_init() will take from the ledger. */
size_t step_bytes(const struct model *m, int max_rows, int n_threads);
int step_init(struct step *s, const struct model *m, const struct kernels *kt, struct pool *pool, int max_rows,
              int n_ctx, struct ledger *l, struct qn_error *e);
void step_deinit(struct step *s);

/* Runs the batch (1..max_rows rows; tokens < n_vocab; slots reserved in their memories) through all
 * layers: keys and values are stored, and the logits of the rows that want them are written to
 * logits [n_wanted][n_vocab] in row order. Does not allocate. false: it was cancelled, which leaves every sequence as
 * it was: reserved slots hold anything. */
bool step_run(struct step *s, const struct batch *b, struct memory *const *mem, float *logits);
/* out [n_embd] = row r of the last pass, which must have been completed, behind the last layer and the output norm. */
void step_hidden(const struct step *s, int r, float *out);

/* ---- for blocks ---- */

/* One member of the team that runs the pass; every member calls every operation, in the same order, to the end. */
struct worker {
    struct step *s;
    int ith, nth;
    void *scratch; /* this member's, for kernels */
};

/* Whether the pass is abandoned. Members then skip their work, but still line up wherever they would have: so they need
 * not agree on where it ends, and all pass the same barriers. */
bool step_is_abandoned(const struct worker *w);
/* Lines the team up: what was written before is visible after. */
void op_sync(const struct worker *w);
/* x = the embedding rows of the batch's tokens, and the rotations of its positions. Syncs. */
void op_embed(const struct worker *w);
/* The logits of the rows that want them: output norm and output matrix. */
void op_logits(const struct worker *w);
/* h = RMS(x; norm), and h in the formats of the given matrices (NULL-terminated). Syncs. */
void op_norm(const struct worker *w, int il, const char *name, const float *norm, const struct linear *const *users);
/* att in the formats of the given matrices. Syncs. */
void op_quant_att(const struct worker *w, int il, const struct linear *const *users);
/* y = W src + b, src being in W's format. Does not sync. */
void op_matmul(const struct worker *w, int il, const char *name, const struct linear *l, const struct acts *src,
               struct rows y);
/* x += W src + b, src being in W's format, and not h, which is overwritten. Syncs. */
void op_matmul_add(const struct worker *w, int il, const char *name, const struct linear *l, const struct acts *src);
/* gate = f(Wgate h) * (Wup h), in the format of `down` and perhaps in no other. Syncs. */
void op_gate_up(const struct worker *w, int il, enum act_kind f, const struct linear *gate, const struct linear *up,
                const struct linear *down);
/* Head norms (if any) and rotation of q and k; k and v into their slots. Comes before op_attend(). Syncs. */
void op_rope_store(const struct worker *w, int il);
/* heads = attention(q, memory). Syncs. */
void op_attend(const struct worker *w, int il);

/* Latent attention (block_latent.c). latent.low_q = RMS(low_q), latent.kv = [RMS(c) | RoPE(k_pe)], both in the formats
 * of what they are multiplied with; absorbed ones are stored. Syncs. */
void op_latent_norm(const struct worker *w, int il);
/* From latent.q: the rotated part of q's heads, the other as latent.heads; expanded: q, and keys and values stored.
 * Syncs. */
void op_latent_heads(const struct worker *w, int il);
/* latent.heads = heads. Syncs. */
void op_latent_context(const struct worker *w, int il);
/* y + i * ld_head = W_i latent.heads of each head i. Syncs. */
void op_matmul_heads(const struct worker *w, int il, const char *name, const struct experts *m, struct rows y,
                     int ld_head);

#endif
