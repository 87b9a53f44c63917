/* SPDX-License-Identifier: MIT
 *
 * hf_names.h: the model families of Hugging Face folders, and what their tensors are called in a GGUF file.
 */
#ifndef QUERN_FORMAT_HF_NAMES_H
#define QUERN_FORMAT_HF_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "format/gguf.h"

/* What becomes of a tensor. */
enum hf_change {
    HF_KEEP,  /* a view of the file */
    HF_NORM,  /* a norm's weight: as it is, or 1 added where the family's are centred on 0 */
    HF_FLOAT, /* small: as F32, with dimensions of 1 left out */
    HF_DECAY, /* -exp(x), as F32 */
};

enum hf_trait {
    HF_CENTRED = 1,   /* norms multiply with 1 + w */
    HF_GELU = 2,      /* gated by GELU(tanh), not SiLU */
    HF_TIED = 4,      /* output matrix = embeddings unless the configuration says otherwise */
    HF_EXPERTS = 8,   /* every layer's feed-forward block is a mixture */
    HF_DELTA = 16,    /* gated delta-net layers between those with attention */
    HF_GEMMA2 = 32,   /* windows on every second layer, soft caps */
    HF_GEMMA3 = 64,   /* windows on five of six layers, two rotation bases */
    HF_DIFFUSION = 128, /* WeDLM: qwen3 or qwen2 by its switches, with a mask token */
    HF_SWITCHED = 256,  /* a window only where use_sliding_window says so */
    HF_WINDOW = 512,    /* one window on every layer */
};

struct hf_row; /* hf_names.c */

struct hf_family {
    const char *model_type; /* of config.json */
    const char *arch;       /* general.architecture */
    unsigned traits;        /* of enum hf_trait */
    const struct hf_row *const *rows; /* lists of names, NULL ends */
};

/* NULL when there is none of this name. */
const struct hf_family *hf_family_find(const char *model_type);
/* "llama, mistral, ..." for messages, written to buf. */
const char *hf_family_names(char *buf, size_t bytes);

struct hf_role {
    char name[GGUF_NAME_BYTES]; /* "blk.3.attn_q.weight"; "" for what plays no role when text is computed */
    enum hf_change change;
};

/* The role of a tensor of a model with n_layer layers; false when the family has none for it. What belongs to vision
 * or sound, and buffers that can be computed, are without a role, and that is fine. */
bool hf_role_of(const struct hf_family *f, int n_layer, const char *name, struct hf_role *out);

#endif
