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
 *   bare                           x as it is, as what is multiplied; shares h's integer buffers too
 *   q, k, v, up                    one row each per batch row
 *   delta_*                        the projections of gated DeltaNet, likewise; a and b become decays and rates
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

/* All consecutive batch rows of one sequence, for layers with a state. */
struct span {
    int row, n, seq;
    int saved;   /* the copy of the sequence's state before the pass; -1: there is none, or an earlier span has it */
    int kept;    /* the first row's place among the rows that are held; -1: they are not */
    int n_again; /* rows that are run again from the copy */
};

#define STEP_MAX_HELD 32 /* rows of a pass that can be taken back, where there is a recurrent state */

/* Which rows of the batch go to which experts. An entry is one row at one expert; entries are sorted by expert, then by
 * row: those of expert e are first[e] .. first[e + 1]. */
struct moe {
    struct rows score;    /* [rows][n_expert] what the router says */
    int32_t *chosen;      /* [rows][n_expert_used], ascending */
    float *weight;        /* [rows][n_expert_used] how much of them */
    float *shared_weight; /* [rows] how much of the expert of all tokens */
    int32_t *first;       /* [n_expert + 1] */
    int32_t *row;         /* [entries] */
    float *entry_weight;  /* [entries] */
    int32_t *busy;        /* [n_expert] experts with entries, ascending */
    int n_busy;
    struct acts gate; /* [entries][n_ff_exp] gated */
    struct rows up;   /* [entries][n_ff_exp] */
    atomic_int next;  /* piece of work of op_experts_gate_up() to be dealt */
};

struct step {
    const struct model *model;
    struct kernels kt;
    struct pool *pool;
    struct rope rope, rope_local; /* the second where some layer is ROPE_LOCAL */
    struct ledger *ledger;
    int max_rows, max_seqs;
    struct trace *trace; /* NULL: none */
    /* Asked by the calling thread before each piece of its work, a few milliseconds long: true abandons the pass. NULL:
     * never. */
    bool (*is_cancelled)(void *arg);
    void *cancel_arg;

    struct region region; /* all buffers below */
    struct rows x, q, k, v, up;
    struct acts h, att, gate, bare;
    struct rows heads; /* what attention gives, of all heads: att, but with absorbed latents what att is made of */
    struct rows delta_in, delta_qkv, delta_z, delta_ba, delta_a, delta_b;
    struct moe moe;
    struct latent_rows latent;
    float (*cs)[2];       /* [rows][n_pairs] */
    float (*cs_local)[2]; /* the same of ROPE_LOCAL, where a layer has it */
    uint8_t *scratch;     /* [n_threads][KERNEL_SCRATCH_BYTES] */
    struct run *runs;     /* [rows] */
    struct span *spans;
    int32_t *out_rows; /* [rows] rows that want logits */

    struct region undo; /* of models with a state, the two below */
    uint8_t *saved;     /* [max_seqs] states */
    struct rows kept;   /* [recurrent layers][STEP_MAX_HELD] the recurrence's inputs */

    /* the pass in progress */
    const struct batch *batch;
    struct memory *const *mem;
    float *logits;
    int n_runs, n_out, n_spans, n_saved, n_kept;
    int n_parts;              /* of a KV head's query heads: attention calls for each of a run's KV heads */
    bool can_stop;            /* whether is_cancelled() is asked */
    atomic_bool is_abandoned; /* it said so: nobody begins another piece of work */
    atomic_int next_attend;   /* attention calls that were dealt out, since the last op_rope_store() */
};

/* What the model keeps of its sequences. */
struct kv_shape step_kv_shape(const struct model *m, enum kv_type type);
/* Bytes step_init() will take from the ledger. */
size_t step_bytes(const struct model *m, int max_rows, int max_seqs, int n_threads);
/* max_seqs: of which a batch may hold rows. */
int step_init(struct step *s, const struct model *m, const struct kernels *kt, struct pool *pool, int max_rows,
              int max_seqs, int n_ctx, struct ledger *l, struct qn_error *e);
void step_deinit(struct step *s);

/* Runs the batch (1..max_rows rows; tokens < n_vocab; slots reserved in their memories) through all
 * layers: keys and values are stored, and the logits of the rows that want them are written to
 * logits [n_wanted][n_vocab] in row order. Does not allocate. false: it was cancelled, which leaves every sequence as
 * it was: reserved slots hold anything. Where sequences have a recurrent state it stands behind the rows afterwards,
 * and a pass of one row each is not cancelled: a copy of the states would cost every token more than one is worth. Nor
 * is one of more than max_seqs sequences. */
bool step_run(struct step *s, const struct batch *b, struct memory *const *mem, float *logits);
/* After a pass, and before the next one, with its batch and memories as they were: of sequence seq's held rows the
 * first n_accepted[seq] stay, and its recurrent state becomes what it is behind them, to the bit. */
void step_accept(struct step *s, const int32_t *n_accepted);
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
/* x = the embedding rows of the batch's tokens, scaled, and the rotations of its positions. Syncs. */
void op_embed(const struct worker *w);
/* The logits of the rows that want them: output norm and output matrix, scale and soft cap. */
void op_logits(const struct worker *w);
/* h = RMS(x; norm), and h in the formats of the given matrices (NULL-terminated). Syncs. */
void op_norm(const struct worker *w, int il, const char *name, const float *norm, const struct linear *const *users);
/* x in the formats of the given matrices, in `bare`. Syncs. */
void op_quant_x(const struct worker *w, int il, const struct linear *const *users);
/* x += residual_scale * RMS(h; norm); h is overwritten. Syncs. */
void op_norm_add(const struct worker *w, int il, const char *name, const float *norm);
/* Each row of q and of k is normalised, all heads together. Syncs. */
void op_norm_qk(const struct worker *w, int il);
/* att = RMS(att; norm), and in the formats of the given matrices. Syncs. */
void op_norm_att(const struct worker *w, int il, const float *norm, const struct linear *const *users);
/* att in the formats of the given matrices. Syncs. */
void op_quant_att(const struct worker *w, int il, const struct linear *const *users);
/* y = s W src + b, src being in W's format. Does not sync. */
void op_matmul(const struct worker *w, int il, const char *name, const struct linear *l, const struct acts *src,
               struct rows y);
/* x += residual_scale * (s W src + b), src being in W's format, and not h, which is overwritten. Syncs. */
void op_matmul_add(const struct worker *w, int il, const char *name, const struct linear *l, const struct acts *src);
/* gate = f(Wgate h) * (Wup h), in the format of `down` and perhaps in no other. Syncs. */
void op_gate_up(const struct worker *w, int il, enum act_kind f, const struct linear *gate, const struct linear *up,
                const struct linear *down);
/* The same of src in the place of h; then, unless norm is NULL, gate = RMS(gate; norm). */
void op_gate_up_of(const struct worker *w, int il, enum act_kind f, const struct acts *src, const struct linear *gate,
                   const struct linear *up, const float *norm, const struct linear *down);
/* Each row's experts and how much of each, from the router's product with h; and all rows' by expert. Syncs. */
void op_route(const struct worker *w, int il);
/* The experts' gate = f(Wgate h) * (Wup h), in the format of their `down`. Does not sync. */
void op_experts_gate_up(const struct worker *w, int il, enum act_kind f);
/* x += the sum of weight * (Wdown gate + b) over each row's experts, ascending. Members then have their own part of x
 * only. Does not sync. */
void op_experts_down(const struct worker *w, int il);
/* The same with the one expert of all tokens, whose gate is in s->gate. Does not sync. */
void op_shared_down(const struct worker *w, int il);
/* Head norms (if any) and rotation (if any) of q and k; k and v into their slots. Comes before op_attend(). Syncs. */
void op_rope_store(const struct worker *w, int il);
/* heads = attention(q, memory), times sigmoid(gate) where queries have gates. Syncs. */
void op_attend(const struct worker *w, int il);
/* The projections to b and a. Does not sync. */
void op_delta_ba(const struct worker *w, int il);
/* The convolution of q, k and v, the lengths of q and k, the decays and rates. Syncs. */
void op_delta_conv(const struct worker *w, int il);
/* att = the gated delta rule's outputs; the states go on. Syncs. */
void op_delta_rule(const struct worker *w, int il);
/* att normed, gated, and in the format of the output matrix. Syncs. */
void op_delta_out(const struct worker *w, int il);

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
