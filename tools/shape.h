/* SPDX-License-Identifier: MIT
 *
 * shape.h: the shapes of models and the tensors they consist of, for make-model.
 *
 * A family is a list of tensors whose sizes are named, a shape the numbers those names stand for. Sources: the
 * published configurations of the models; the names and sizes are those that docs/FAMILIES.md describes.
 */
#ifndef QUERN_TOOLS_SHAPE_H
#define QUERN_TOOLS_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "tensor/dtype.h"

struct family;

/* What is 0 is not there, and its keys are not written. */
struct shape {
    const char *name;
    const struct family *family;
    const char *pre; /* which pre-tokenizer */
    int n_layer, d_model, n_head, n_head_kv, head_dim, d_ff, n_vocab, n_ctx;
    float rope_theta, eps;
    bool tied;         /* the embedding serves as the output matrix */
    float rope_factor; /* Llama 3 scaling, in a tensor of frequency divisors */
    int n_rot;         /* rotated dims of a head; 0: all */

    const char *scaling;               /* rope.scaling.type, and its numbers */
    float scaling_factor, scaling_log; /* the second: yarn_log_multiplier */
    float scaling_attn;                /* yarn_attn_factor; with it go beta_fast and beta_slow */
    bool exact_range;                  /* YaRN's is not rounded */
    int n_ctx_orig;

    int n_swa;
    float attn_softcap, logit_softcap;
    float embd_scale, residual_scale, attn_scale, logit_scale;

    int n_expert, n_used, d_expert, d_shared;
    bool apart;                                      /* a tensor for each expert, as files of Mixtral once had */
    int n_dense_lead, gate, n_groups, n_groups_used; /* gate: expert_gating_func */
    float expert_scale;

    int n_k, n_v, dim_k, dim_v, n_taps; /* gated DeltaNet in three layers of four: heads and their sizes */

    int lora_q, lora_kv, dim_nope,
        dim_v_head; /* latent attention: head_dim is dim_nope + n_rot; lora_q 0: q in one step */
    bool expanded;  /* attn_kv_b, as in old files; else attn_k_b and attn_v_b */
};

enum mix {
    PURE,
    S,
    M,
    FP4_EXPERTS
}; /* every matrix of one type; some of them better, few (S) or more (M); experts worse */

struct scheme {
    const char *name;
    int file_type;   /* general.file_type, for display */
    enum dtype type; /* of most matrices */
    enum mix mix;
};

/* From NORM on they stay f32. */
enum role { EMBED, OUTPUT, ATTN_V, ATTN_QKV, FFN_DOWN, MATRIX, NORM, BIAS, ROPE_FREQS, ROUTER, TAPS, DECAY, JOINT };

struct item {
    char name[64];
    enum role role;
    enum dtype type;
    int n_dims;
    int64_t ne[3]; /* row length, rows, matrices; 1 beyond n_dims */
};

struct plan {
    const struct shape *shape;
    struct shape cut; /* the shape with another vocabulary, if one was asked for */
    const struct scheme *scheme;
    int n_layer;
    int n_nextn; /* blocks after the layers that predict further tokens: 0, 1 */
    int mask;    /* the token for the masks of windows; 0: none is named */
    double meek; /* the layers' results are divided by this, and such a block's guess is then often right; 0: not */
    uint64_t seed;
    struct item *items;
    size_t n_items;
};

const char *family_name(const struct family *f);
/* By name; NULL when there is none. shape_name and scheme_name: those there are, NULL behind the last. */
const struct shape *shape_find(const char *name, size_t n);
const struct scheme *scheme_find(const char *name);
const char *shape_name(size_t i);
const char *scheme_name(size_t i);

/* Fills p->items, which the caller frees, for the other members of p. */
int plan_tensors(struct plan *p, struct qn_error *e);

#endif
