/* SPDX-License-Identifier: MIT
 *
 * block.h: the blocks that family pages are made of. Each reads and updates the residual
 * stream; every member of the team calls it.
 */
#ifndef QUERN_MODEL_BLOCK_H
#define QUERN_MODEL_BLOCK_H

#include "model/bind.h"
#include "model/step.h"

/* Each block says which tensors it uses (struct bind_rule); a family lists its blocks' rules. */
#define BLOCK_ATTN_RULES                                                                        \
    {"attn_norm", BIND_VECTOR, false, offsetof(struct layer, attn_norm), DIM_EMBD, DIM_NONE},   \
        {"attn_q", BIND_MATRIX, false, offsetof(struct layer, wq), DIM_EMBD, DIM_Q},            \
        {"attn_k", BIND_MATRIX, false, offsetof(struct layer, wk), DIM_EMBD, DIM_KV},           \
        {"attn_v", BIND_MATRIX, false, offsetof(struct layer, wv), DIM_EMBD, DIM_KV},           \
    {                                                                                           \
        "attn_output", BIND_MATRIX, false, offsetof(struct layer, wo), DIM_Q, DIM_EMBD          \
    }
#define BLOCK_HEAD_NORM_RULES                                                                   \
    {"attn_q_norm", BIND_VECTOR, false, offsetof(struct layer, q_norm), DIM_HEAD, DIM_NONE},    \
    {                                                                                           \
        "attn_k_norm", BIND_VECTOR, false, offsetof(struct layer, k_norm), DIM_HEAD, DIM_NONE   \
    }
#define BLOCK_FFN_RULES                                                                         \
    {"ffn_norm", BIND_VECTOR, false, offsetof(struct layer, ffn_norm), DIM_EMBD, DIM_NONE},     \
        {"ffn_gate", BIND_MATRIX, false, offsetof(struct layer, gate), DIM_EMBD, DIM_FF},       \
        {"ffn_up", BIND_MATRIX, false, offsetof(struct layer, up), DIM_EMBD, DIM_FF},           \
    {                                                                                           \
        "ffn_down", BIND_MATRIX, false, offsetof(struct layer, down), DIM_FF, DIM_EMBD          \
    }

/* x += Wo Attn(RoPE(norm(Wq n)), RoPE(norm(Wk n)), Wv n), n = RMS(x; attn_norm) */
void block_attn(const struct worker *w, int il);
/* x += Wdown (f(Wgate m) * (Wup m)), m = RMS(x; ffn_norm) */
void block_ffn(const struct worker *w, int il, enum act_kind f);

#endif
