/* SPDX-License-Identifier: MIT
 *
 * hparams.h: the numbers that fix a model's shape, read from its metadata and bounded.
 *
 * Everything a later layer uses as a size, an index or a divisor has passed a check here;
 * the message of a failure names the key and the value. Keys: docs/FORMATS.md.
 */
#ifndef QUERN_MODEL_HPARAMS_H
#define QUERN_MODEL_HPARAMS_H

#include "base/error.h"
#include "format/weights.h"

#define HP_MAX_LAYERS 512
#define HP_MAX_DIM (1 << 20)   /* any single dimension */
#define HP_MAX_HEADS 4096
#define HP_MAX_HEAD_DIM 512
#define HP_MAX_CTX (1 << 28)

enum rope_scaling { ROPE_NONE, ROPE_LINEAR, ROPE_YARN, ROPE_LONG };

struct hparams {
    const char *arch; /* static string, from the registry */
    int n_layer, n_embd, n_vocab, n_ff;
    int n_ctx_train;
    int n_head, n_head_kv, head_dim; /* head_dim of q, k and v */
    float norm_eps;
    float attn_scale; /* 1 / sqrt(head_dim) */
    int n_swa;        /* a query at position p sees positions > p - n_swa; 0: all of them */

    int n_rot;          /* rotated dims of a head, even, <= head_dim */
    bool rope_adjacent; /* pairs (2i, 2i+1); else (i, i + n_rot/2) */
    enum rope_scaling rope_scaling;
    double rope_base, rope_factor;
    double rope_attn_factor; /* multiplies cos and sin */
    double yarn_ext_factor, yarn_beta_fast, yarn_beta_slow;
    int rope_ctx_orig; /* context before scaling */
};

/* Reads what every family shares; n_vocab is the number of tokens the tokenizer has. */
int hparams_read(struct hparams *h, const struct weights *w, const char *arch, int n_vocab, struct qn_error *e);

#endif
