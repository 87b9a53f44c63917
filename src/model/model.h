/* SPDX-License-Identifier: MIT
 *
 * model.h: a loaded model: its numbers, its vocabulary, and its tensors by their roles.
 *
 * It is immutable after loading and can be shared between engines. Matrices stay in the mapped file. Small vectors
 * (norms, biases, frequency factors) are copied once, so that kernels find them aligned and as f32, whatever type the
 * file has.
 */
#ifndef QUERN_MODEL_MODEL_H
#define QUERN_MODEL_MODEL_H

#include "base/mem.h"
#include "model/hparams.h"
#include "text/token/vocab.h"

/* y = s W x + b; w->ne = {in, out}; b is NULL when there is none, s (one number) when it is 1. */
struct linear {
    const struct tensor *w;
    const float *b;
    const float *s;
};

/* The same matrix of every expert: one tensor {in, out, n_expert}, or one for each expert. */
struct experts {
    enum dtype type;
    int in, out;
    size_t row_bytes;
    const struct tensor *w;     /* all of them; NULL: in tensors of their own */
    const struct tensor **each; /* [n_expert] or NULL */
    const float *b;             /* [n_expert][out], NULL when there is none */
    const float *s;             /* [n_expert], factors of the experts' products; NULL: 1 */
};

/* One layer: the tensors that its family uses are set, the others are NULL. */
struct layer {
    const float *attn_norm; /* [n_embd] */
    struct linear wqkv;     /* rows q, k, v of one matrix; wq, wk and wv are then views of it */
    struct linear wq, wk, wv, wo;
    const float *q_norm, *k_norm;         /* [head_dim] */
    const float *q_row_norm, *k_row_norm; /* [n_head * head_dim], [n_head_kv * head_dim]: of all heads together */
    const float *sinks;                   /* [n_head] */
    const float *attn_sub_norm;           /* [n_head * head_dim_v] */
    const float *attn_post_norm;          /* [n_embd], after attention */

    /* gated DeltaNet */
    struct linear delta_in; /* rows [q, k, v, z] of each key head; or the two below */
    struct linear delta_qkv, delta_z;
    struct linear delta_ba; /* rows [b, a] of each key head; or the two below */
    struct linear delta_b, delta_a;
    const float *conv;       /* [conv_dim][conv_kernel] */
    const float *decay, *dt; /* [delta_n_head_v] */
    const float *delta_norm; /* [delta_dim_v] */
    struct linear delta_out;

    const float *ffn_norm; /* [n_embd] */
    struct linear gate_up; /* rows gate, up of one matrix; gate and up are then views of it */
    struct linear gate, up, down;
    const float *ffn_sub_norm;  /* [n_ff] */
    const float *ffn_post_norm; /* [n_embd], after the network */

    struct linear router;     /* {n_embd, n_expert} */
    const float *router_bias; /* [n_expert], for choosing only */
    struct experts gate_exps, up_exps, gate_up_exps, down_exps;
    struct linear shared_gate, shared_up, shared_down; /* the expert of all tokens */
    const float *shared_router;                        /* [n_embd]: how much of it; NULL: all */

    /* multi-head latent attention */
    struct linear wq_a, wq_b, wkv_a, wkv_b;
    const float *q_a_norm, *kv_a_norm; /* [n_lora_q], [n_lora_kv] */
    struct experts wk_b, wv_b;         /* one matrix a head */

    /* only in the block that predicts the token after the next one (nextn.h) */
    struct linear joint;                              /* {2 n_embd, n_embd}: of [embedding | hidden row] */
    const float *embd_norm, *hidden_norm, *head_norm; /* [n_embd]; head_norm NULL: output_norm */
    struct linear own_embd, own_head;                 /* {n_embd, n_vocab}; w NULL: those of the model */
};

struct model {
    struct weights *weights; /* owned; in model_check() the caller's */
    struct vocab *vocab;     /* owned */
    struct hparams hp;
    const struct arch *arch;
    const struct tensor *token_embd, *output; /* {n_embd, n_vocab}; the same when tied */
    const float *output_norm;                 /* [n_embd] */
    const struct tensor *rank_head;           /* has the two rows by which the model ranks; NULL: it does not */
    int64_t rank_row[2];                      /* those of "yes" and "no" */
    const float *rope_freqs;                  /* [n_rot/2] or NULL */
    const float *rope_long, *rope_short;      /* [n_rot/2] or NULL */
    bool has_nextn;                           /* the file has the block that predicts the token after the next one */
    int file_lo, file_hi; /* the file has the weights of the layers [file_lo, file_hi), usually of all */
    struct layer *layers; /* [n_layer], and that block; owned */
    struct arena vectors; /* the copied small vectors, and views */
};

/* Whether this process embeds the tokens, and whether it computes the logits: the whole model does both. See
 * model_cut(). */
static inline bool model_is_first(const struct model *m) { return m->hp.layer_lo == 0; }
static inline bool model_is_last(const struct model *m) { return m->hp.layer_hi == m->hp.n_layer; }

struct member; /* of the team that runs a pass: model/pass/op.h */

/* One model family: one file in arch/. */
struct arch {
    const char *name; /* general.architecture */
    /* Reads and checks the numbers that differ between families: the layers' pattern, the family's own keys. */
    int (*hparams)(struct hparams *h, struct hp_reader *r);
    const struct bind_rule *rules; /* of a layer, by struct bind_rule */
    /* One layer, run by every member of the team. */
    void (*layer)(const struct member *me, int il);
    /* The keys that the family honours of those that hparams.c reads for some families only, NULL at the end; or NULL.
     */
    const char *const *keys;
    /* Files may have a block that predicts the token after the next one (nextn.h): the family's last kind of layer,
     * with attention. In files of other families such layers are passed over. */
    bool has_nextn;
};

const struct arch *arch_find(const char *name, size_t n); /* NULL when not supported */
/* "llama, qwen2, ..." for messages, written to buf. */
const char *arch_names(char *buf, size_t bytes);

#endif
