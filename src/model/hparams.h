/* SPDX-License-Identifier: MIT
 *
 * hparams.h: the numbers that fix a model's shape, read from its metadata and bounded.
 *
 * Every number that later code uses as a size, an index or a divisor is checked here. The message of a failure names
 * the key and the value. docs/FORMATS.md lists the keys.
 */
#ifndef QUERN_MODEL_HPARAMS_H
#define QUERN_MODEL_HPARAMS_H

#include "base/error.h"
#include "format/weights.h"

struct arch;

#define HP_MAX_LAYERS       512
#define HP_MAX_DIM          (1 << 20) /* any single dimension */
#define HP_MAX_HEADS        4096
#define HP_MAX_HEAD_DIM     576 /* a latent of 512 and a rotated key of 64 */
#define HP_MAX_CTX          (1 << 28)
#define HP_MAX_EXPERTS      4096
#define HP_MAX_EXPERTS_USED 64
#define HP_MAX_ASKED        128 /* keys that one family knows */

#define HP_YARN_TRUNCATE "quern.rope_yarn_truncate" /* false: YaRN's range is not rounded */

enum rope_scaling { ROPE_NONE, ROPE_LINEAR, ROPE_YARN, ROPE_LONG };
enum rope_use { ROPE_MAIN, ROPE_LOCAL, ROPE_OFF }; /* the model's rotation, that of its windowed layers, none */
enum pooling { POOL_UNSAID, POOL_MEAN, POOL_LAST, POOL_RANK }; /* of embeddings; RANK: rank_head.h */
enum expert_gate { GATE_SOFTMAX, GATE_SIGMOID, GATE_SOFTMAX_OF_CHOSEN };

/* The numbers that may differ between layers. */
struct hp_layer {
    bool is_recurrent; /* gated DeltaNet instead of attention */
    bool has_experts;  /* instead of a dense network */
    enum rope_use rope;
    int n_swa;           /* a query at position p sees positions > p - n_swa; 0: all of them */
    int kv;              /* its number among the layers with attention, in the KV cache; -1: it has none */
    bool is_windowed;    /* the KV cache may keep the window only; never set for all layers with attention */
    int kv_of_kind;      /* its number among those layers with attention that agree in is_windowed */
    size_t state_offset; /* bytes from the start of a sequence's state to this layer's; recurrent ones only */
};

struct hparams {
    const char *arch;       /* static string, from the registry */
    int n_layer;            /* layers of a pass, without those that only predict further tokens (nextn.h) */
    int layer_lo, layer_hi; /* the layers that this process runs: 0 and n_layer, unless hp_cut() was called */
    int n_nextn;            /* layers that only predict further tokens; they follow the others in the file */
    int n_embd, n_vocab;
    int n_ff; /* of the dense network; 0: no layer has one */
    int n_ctx_train;
    int n_head, n_head_kv;
    int head_dim, head_dim_v; /* of q and k; of v */
    float norm_eps;
    float attn_scale;                              /* 1 / sqrt(head_dim), or the file's number */
    float attn_softcap, logit_softcap;             /* 0: none */
    float embd_scale, residual_scale, logit_scale; /* factors of the embedding, of each branch, of the logits */
    int n_swa;                                     /* as the file says; layer[].n_swa is used */

    int n_rot;          /* rotated dims of a head, even, <= head_dim */
    bool rope_adjacent; /* pairs (2i, 2i+1); else (i, i + n_rot/2) */
    enum rope_scaling rope_scaling;
    double rope_base, rope_factor;
    double rope_attn_factor; /* multiplies cos and sin */
    double yarn_ext_factor, yarn_beta_fast, yarn_beta_slow;
    double yarn_attn_factor; /* multiplies cos and sin instead of 1 + 0.1 ln factor; 0: unset */
    bool yarn_exact_range;   /* the ends of the ramp are not rounded to whole pairs */
    int rope_ctx_orig;       /* context before scaling */
    double yarn_log_mul;     /* as the file says; deepseek2 */
    double rope_base_local;  /* of ROPE_LOCAL, which is never scaled */
    bool has_local_rope;     /* at least one layer that is run is ROPE_LOCAL */

    int n_expert, n_expert_used; /* 0: none */
    int n_ff_exp, n_ff_shexp;    /* width of an expert; width of the expert of all tokens, 0: there is none */
    enum expert_gate expert_gate;
    bool expert_norm; /* the weights of the chosen experts are divided by their sum */
    float expert_scale;
    int n_expert_groups, n_expert_groups_used; /* 1, 1: no groups */
    int n_dense_lead;                          /* first layers with a dense network */

    /* gated DeltaNet; 0: none */
    int conv_kernel;                    /* taps */
    int delta_n_head_k, delta_n_head_v; /* the second is a multiple of the first */
    int delta_dim_k, delta_dim_v;       /* of a head */
    bool delta_is_grouped;              /* value head h reads key head h / r, else h % n_head_k */
    size_t state_bytes;                 /* of a sequence, all layers that are run; 0: none */
    bool has_attn_gate;                 /* q's rows are [q | gate] of each head */

    /* multi-head latent attention; 0: none */
    int n_lora_q, n_lora_kv;           /* n_lora_q 0: q is not compressed */
    int latent_dim_nope, latent_dim_v; /* of a head: of q and k without the n_rot rotated ones; of v */
    bool latent_is_absorbed;           /* heads attend to the latents, not to keys and values computed from them */

    enum pooling pooling; /* as the file says */

    /* The following, and the numbers of layers in cache and state, are about the layers that are run. */
    int n_layer_kv;                       /* layers with attention */
    int n_layer_win;                      /* those that are windowed; they all have the same window */
    struct hp_layer layer[HP_MAX_LAYERS]; /* [n_layer], and the first of those that only predict further tokens */
};

/* Width of attention's result: the values of all heads. */
static inline int hp_att_width(const struct hparams *h)
{
    return h->n_head * (h->n_lora_kv ? h->latent_dim_v : h->head_dim_v);
}

/* Channels of DeltaNet's convolution: q, k and v of all heads. */
static inline int hp_conv_dim(const struct hparams *h)
{
    return 2 * h->delta_n_head_k * h->delta_dim_k + h->delta_n_head_v * h->delta_dim_v;
}

/* A recurrent layer's state has two parts: the convolution's last inputs, f32 [conv_kernel - 1][conv_dim], and at this
 * offset in bytes the rule's matrices, f32 [delta_n_head_v][delta_dim_v][delta_dim_k]. */
static inline size_t hp_rule_offset(const struct hparams *h)
{
    return ((size_t)(h->conv_kernel - 1) * (size_t)hp_conv_dim(h) * sizeof(float) + 63) & ~(size_t)63;
}

/* Reads the model's numbers: first those that all families share, then those of family a. A key that nothing has asked
 * for and that may change the network is refused, unless it has its neutral value (keys.c). n_vocab is the number of
 * the tokenizer's tokens. */
int hparams_read(struct hparams *h, const struct weights *w, const struct arch *a, int n_vocab, struct qn_error *e);

/* The layers that are run become [lo, hi), of which there is at least one; none need have attention. */
void hp_cut(struct hparams *h, int lo, int hi);

/* ---- for the families' pages ---- */

struct hp_reader {
    const struct weights *w;
    const struct arch *arch;
    struct qn_error *e;
    char key[128]; /* the last one that was asked for, whole */
    const char *asked[HP_MAX_ASKED];
    int n_asked;
};

/* "ARCH.NAME", in r->key. A key that was asked for counts as known, so a family asks only for keys that it honours. */
const char *hp_key(struct hp_reader *r, const char *name);
bool hp_has(struct hp_reader *r, const char *name);
/* A required (def < 0) or optional integer in [lo, hi]. */
int hp_int(struct hp_reader *r, const char *name, int64_t lo, int64_t hi, int64_t def, int *out);
/* An optional float in (lo, hi]. */
int hp_float(struct hp_reader *r, const char *name, double lo, double hi, double def, double *out);
int hp_flag(struct hp_reader *r, const char *name, bool def, bool *out);
/* The same for a value that may also be an array with an element for each layer: out[n_layer]. */
int hp_each(struct hp_reader *r, const char *name, int n_layer, int64_t lo, int64_t hi, int64_t def, int *out);
/* Sets which layers have the window h->n_swa (attention.sliding_window_pattern): all but the last of each `period`,
 * unless the file gives another period or a value for each layer. The other layers see everything. */
int hp_windows(struct hp_reader *r, struct hparams *h, int period);
/* Reads how experts are chosen and weighted; the arguments are the family's defaults. */
int hp_routing(struct hp_reader *r, struct hparams *h, enum expert_gate gate, bool norm);
/* In old files, which have no key for it, an expert's width is its share of the network's width. */
int hp_shared_width(struct hp_reader *r, struct hparams *h);
/* Checks the file's other keys, after everything has been asked for. */
int hp_refuse_unknown(struct hp_reader *r, const struct hparams *h);

#endif
