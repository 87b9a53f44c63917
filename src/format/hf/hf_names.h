/* SPDX-License-Identifier: MIT
 *
 * hf_names.h: the model families of Hugging Face folders, and what their tensors are called in a GGUF file.
 */
#ifndef QUERN_FORMAT_HF_NAMES_H
#define QUERN_FORMAT_HF_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "format/gguf/gguf.h"

/* How a tensor of the folder becomes one of a GGUF file. */
enum hf_change {
    HF_KEEP,  /* it stays as it is in the file */
    HF_NORM,  /* a norm's weight: as it is, or with 1 added where the family's norms are centred on 0 */
    HF_FLOAT, /* a small tensor: as F32, without its dimensions of 1 */
    HF_DECAY, /* -exp(x), as F32 */
};

enum hf_trait {
    HF_CENTRED = 1,     /* norms multiply with 1 + w */
    HF_GELU = 2,        /* gated by GELU(tanh), not SiLU */
    HF_TIED = 4,        /* the embeddings are the output matrix unless the configuration says otherwise */
    HF_EXPERTS = 8,     /* every layer's feed-forward block is a mixture */
    HF_DELTA = 16,      /* layers of gated DeltaNet between those with attention */
    HF_GEMMA2 = 32,     /* windows on every second layer, soft caps */
    HF_GEMMA3 = 64,     /* windows on five of six layers, two rotation bases */
    HF_DIFFUSION = 128, /* WeDLM: the network of qwen3 or qwen2, with a mask token */
    HF_SWITCHED = 256,  /* a window only if use_sliding_window is true */
    HF_WINDOW = 512,    /* one window on every layer */
};

struct hf_row; /* hf_names.c */

struct hf_family {
    const char *model_type;           /* of config.json */
    const char *arch;                 /* general.architecture */
    unsigned traits;                  /* of enum hf_trait */
    const struct hf_row *const *rows; /* lists of names; NULL ends them */
};

/* The family of a model_type; NULL when it is not supported. */
const struct hf_family *hf_family_find(const char *model_type);
/* Writes "llama, mistral, ..." to buf, for messages. Returns buf. */
const char *hf_family_names(char *buf, size_t bytes);

struct hf_role {
    char name[GGUF_NAME_BYTES]; /* "blk.3.attn_q.weight"; "": the tensor is not needed to compute text */
    enum hf_change change;
};

/* Finds the role of a tensor in a model with n_layer layers. False: the family does not know the tensor. Tensors for
 * images and sound, and buffers that can be computed, are known and not needed. */
bool hf_role_of(const struct hf_family *f, int n_layer, const char *name, struct hf_role *out);

#endif
