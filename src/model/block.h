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
#define RULE(kind, name, field, in, out, when)                                                                         \
    {                                                                                                                  \
        name, BIND_##kind, false, offsetof(struct layer, field), in, out, when                                         \
    }
#define RULE_OPTIONAL(kind, name, field, in, out, when)                                                                \
    {                                                                                                                  \
        name, BIND_##kind, true, offsetof(struct layer, field), in, out, when                                          \
    }

#define BLOCK_ATTN_RULES                                                                                               \
    RULE(VECTOR, "attn_norm", attn_norm, DIM_EMBD, DIM_NONE, IN_ALL),                                                  \
        RULE(MATRIX, "attn_q", wq, DIM_EMBD, DIM_Q, IN_ATTN), RULE(MATRIX, "attn_k", wk, DIM_EMBD, DIM_K, IN_ATTN),    \
        RULE(MATRIX, "attn_v", wv, DIM_EMBD, DIM_V, IN_ATTN),                                                          \
        RULE(MATRIX, "attn_output", wo, DIM_ATT, DIM_EMBD, IN_ATTN)
#define BLOCK_HEAD_NORM_RULES                                                                                          \
    RULE(VECTOR, "attn_q_norm", q_norm, DIM_HEAD, DIM_NONE, IN_ATTN),                                                  \
        RULE(VECTOR, "attn_k_norm", k_norm, DIM_HEAD, DIM_NONE, IN_ATTN)
#define BLOCK_LATENT_RULES                                                                                             \
    RULE(VECTOR, "attn_norm", attn_norm, DIM_EMBD, DIM_NONE, IN_ALL),                                                  \
        RULE(MATRIX, "attn_q", wq, DIM_EMBD, DIM_Q, IN_Q_DIRECT),                                                      \
        RULE(MATRIX, "attn_q_a", wq_a, DIM_EMBD, DIM_LORA_Q, IN_Q_LORA),                                               \
        RULE(VECTOR, "attn_q_a_norm", q_a_norm, DIM_LORA_Q, DIM_NONE, IN_Q_LORA),                                      \
        RULE(MATRIX, "attn_q_b", wq_b, DIM_LORA_Q, DIM_Q, IN_Q_LORA),                                                  \
        RULE(MATRIX, "attn_kv_a_mqa", wkv_a, DIM_EMBD, DIM_LATENT, IN_ALL),                                            \
        RULE(VECTOR, "attn_kv_a_norm", kv_a_norm, DIM_LORA_KV, DIM_NONE, IN_ALL),                                      \
        RULE(MATRIX, "attn_kv_b", wkv_b, DIM_LORA_KV, DIM_KV_B, IN_EXPANDED),                                          \
        RULE(HEADS, "attn_k_b", wk_b, DIM_NOPE, DIM_LORA_KV, IN_ABSORBED),                                             \
        RULE(HEADS, "attn_v_b", wv_b, DIM_LORA_KV, DIM_LATENT_V, IN_ABSORBED),                                         \
        RULE(MATRIX, "attn_output", wo, DIM_ATT, DIM_EMBD, IN_ALL)
#define BLOCK_FFN_RULES                                                                                                \
    RULE(VECTOR, "ffn_norm", ffn_norm, DIM_EMBD, DIM_NONE, IN_ALL),                                                    \
        RULE(MATRIX, "ffn_gate", gate, DIM_EMBD, DIM_FF, IN_DENSE),                                                    \
        RULE(MATRIX, "ffn_up", up, DIM_EMBD, DIM_FF, IN_DENSE),                                                        \
        RULE(MATRIX, "ffn_down", down, DIM_FF, DIM_EMBD, IN_DENSE)

/* x += Wo Attn(RoPE(norm(Wq n)), RoPE(norm(Wk n)), Wv n), n = RMS(x; attn_norm) */
void block_attn(const struct worker *w, int il);
/* x += Wo LatentAttention(n), n = RMS(x; attn_norm): see block_latent.c */
void block_latent(const struct worker *w, int il);
/* x += Wdown (f(Wgate m) * (Wup m)), m = RMS(x; ffn_norm) */
void block_ffn(const struct worker *w, int il, enum act_kind f);

#endif
