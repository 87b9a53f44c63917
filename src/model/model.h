/* SPDX-License-Identifier: MIT
 *
 * model.h: what a loaded model is: shape, vocabulary and tensors bound to their roles.
 *
 * Immutable after loading and shareable between engines. Matrices stay in the mapped file;
 * the small vectors (norms, biases, frequency factors) are copied once, so that kernels find
 * them aligned and as f32 whatever the file holds.
 */
#ifndef QUERN_MODEL_MODEL_H
#define QUERN_MODEL_MODEL_H

#include "base/mem.h"
#include "model/hparams.h"
#include "text/vocab.h"

/* y = W x + b; w->ne = {in, out}; b is NULL when there is none. */
struct linear {
    const struct tensor *w;
    const float *b;
};

struct layer {
    const float *attn_norm; /* [n_embd] */
    struct linear wq, wk, wv, wo;
    const float *q_norm, *k_norm; /* [head_dim] or NULL */
    const float *ffn_norm;        /* [n_embd] */
    struct linear gate, up, down;
};

struct model {
    struct weights *weights; /* owned; in model_check() the caller's */
    struct vocab *vocab;     /* owned */
    struct hparams hp;
    const struct arch *arch;
    const struct tensor *token_embd, *output; /* {n_embd, n_vocab}; the same when tied */
    const float *output_norm;                 /* [n_embd] */
    const float *rope_freqs;                  /* [n_rot/2] or NULL */
    const float *rope_long, *rope_short;      /* [n_rot/2] or NULL */
    struct layer *layers;                     /* [n_layer], owned */
    struct arena vectors;                     /* the copied small vectors */
};

struct worker; /* model/step.h */

/* One model family: one file in arch/. */
struct arch {
    const char *name; /* general.architecture */
    /* Adjusts what hparams_read() could not know. */
    int (*hparams)(struct hparams *h, const struct weights *w, struct qn_error *e);
    const struct bind_rule *rules; /* of a layer; see bind.h */
    /* One layer, run by every member of the team. */
    void (*layer)(const struct worker *w, int il);
};

const struct arch *arch_find(const char *name, size_t n); /* NULL when not supported */
/* "llama, qwen2, ..." for messages, written to buf. */
const char *arch_names(char *buf, size_t bytes);

#endif
