/* SPDX-License-Identifier: MIT
 *
 * block.h: the blocks that family pages are made of, and the tensors that each block uses.
 *
 * A block reads and updates the residual stream. Every member of the team calls it.
 */
#ifndef QUERN_MODEL_BLOCK_H
#define QUERN_MODEL_BLOCK_H

#include "kernel/kernel.h"
#include "model/bind.h"

/* The rules of each block (struct bind_rule) name its tensors. A family lists the rules of its blocks. */
#define RULE(kind, name, field, in, out, when)                                                                         \
    {                                                                                                                  \
        name, BIND_##kind, false, offsetof(struct layer, field), in, out, when                                         \
    }
#define RULE_OPTIONAL(kind, name, field, in, out, when)                                                                \
    {                                                                                                                  \
        name, BIND_##kind, true, offsetof(struct layer, field), in, out, when                                          \
    }

#define BLOCK_ATTN_RULES RULE(VECTOR, "attn_norm", attn_norm, DIM_EMBD, DIM_NONE, IN_ALL), BLOCK_ATTN_MATRICES
/* q, k and v in matrices of their own or in one: converters can fuse them in files of every family. */
#define BLOCK_ATTN_MATRICES                                                                                            \
    RULE_OPTIONAL(MATRIX, "attn_qkv", wqkv, DIM_EMBD, DIM_QKV, IN_ATTN),                                               \
        RULE_OPTIONAL(MATRIX, "attn_q", wq, DIM_EMBD, DIM_Q, IN_ATTN),                                                 \
        RULE_OPTIONAL(MATRIX, "attn_k", wk, DIM_EMBD, DIM_K, IN_ATTN),                                                 \
        RULE_OPTIONAL(MATRIX, "attn_v", wv, DIM_EMBD, DIM_V, IN_ATTN),                                                 \
        RULE(MATRIX, "attn_output", wo, DIM_ATT, DIM_EMBD, IN_ATTN)
#define BLOCK_SINK_RULES RULE(VECTOR, "attn_sinks", sinks, DIM_N_HEAD, DIM_NONE, IN_ATTN)
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
#define BLOCK_ROW_NORM_RULES                                                                                           \
    RULE(VECTOR, "attn_q_norm", q_row_norm, DIM_Q, DIM_NONE, IN_ATTN),                                                 \
        RULE(VECTOR, "attn_k_norm", k_row_norm, DIM_K, DIM_NONE, IN_ATTN)
#define BLOCK_FFN_RULES RULE(VECTOR, "ffn_norm", ffn_norm, DIM_EMBD, DIM_NONE, IN_ALL), BLOCK_FFN_MATRICES
#define BLOCK_FFN_MATRICES                                                                                             \
    RULE(MATRIX, "ffn_gate", gate, DIM_EMBD, DIM_FF, IN_DENSE),                                                        \
        RULE(MATRIX, "ffn_up", up, DIM_EMBD, DIM_FF, IN_DENSE),                                                        \
        RULE(MATRIX, "ffn_down", down, DIM_FF, DIM_EMBD, IN_DENSE)
/* Gate and up in one matrix. */
#define BLOCK_FFN_FUSED_RULES                                                                                          \
    RULE(VECTOR, "ffn_norm", ffn_norm, DIM_EMBD, DIM_NONE, IN_ALL),                                                    \
        RULE(MATRIX, "ffn_up", gate_up, DIM_EMBD, DIM_2FF, IN_DENSE),                                                  \
        RULE(MATRIX, "ffn_down", down, DIM_FF, DIM_EMBD, IN_DENSE)
#define BLOCK_POST_NORM_RULES                                                                                          \
    RULE(VECTOR, "post_attention_norm", attn_post_norm, DIM_EMBD, DIM_NONE, IN_ALL),                                   \
        RULE(VECTOR, "post_ffw_norm", ffn_post_norm, DIM_EMBD, DIM_NONE, IN_ALL)
#define BLOCK_SUB_NORM_RULES                                                                                           \
    RULE(VECTOR, "attn_sub_norm", attn_sub_norm, DIM_ATT, DIM_NONE, IN_ALL),                                           \
        RULE(VECTOR, "ffn_sub_norm", ffn_sub_norm, DIM_FF, DIM_NONE, IN_ALL)

#define BLOCK_DELTA_RULES                                                                                              \
    RULE(VECTOR, "ssm_conv1d", conv, DIM_CONV_KERNEL, DIM_CONV, IN_RECURRENT),                                         \
        RULE(BARE, "ssm_a", decay, DIM_DELTA_HEADS, DIM_NONE, IN_RECURRENT),                                           \
        RULE(BARE, "ssm_dt.bias", dt, DIM_DELTA_HEADS, DIM_NONE, IN_RECURRENT),                                        \
        RULE(VECTOR, "ssm_norm", delta_norm, DIM_DELTA_HEAD_V, DIM_NONE, IN_RECURRENT),                                \
        RULE(MATRIX, "ssm_out", delta_out, DIM_DELTA_V, DIM_EMBD, IN_RECURRENT)
#define BLOCK_DELTA_QKV_RULES(kind)                                                                                    \
    kind(MATRIX, "attn_qkv", delta_qkv, DIM_EMBD, DIM_CONV, IN_RECURRENT),                                             \
        kind(MATRIX, "attn_gate", delta_z, DIM_EMBD, DIM_DELTA_V, IN_RECURRENT)
/* The feed-forward network in families whose norm before it has this name. */
#define BLOCK_FFN_POST_RULES                                                                                           \
    RULE(VECTOR, "post_attention_norm", ffn_norm, DIM_EMBD, DIM_NONE, IN_ALL), BLOCK_FFN_MATRICES
#define BLOCK_MOE_RULES RULE(VECTOR, "ffn_norm", ffn_norm, DIM_EMBD, DIM_NONE, IN_ALL), BLOCK_EXPERT_RULES
/* The mixture in families whose norm before it has this name. */
#define BLOCK_MOE_POST_RULES                                                                                           \
    RULE(VECTOR, "post_attention_norm", ffn_norm, DIM_EMBD, DIM_NONE, IN_ALL), BLOCK_EXPERT_RULES
#define BLOCK_EXPERT_RULES                                                                                             \
    RULE(MATRIX, "ffn_gate_inp", router, DIM_EMBD, DIM_EXPERTS, IN_EXPERTS),                                           \
        RULE_OPTIONAL(BARE, "exp_probs_b.bias", router_bias, DIM_EXPERTS, DIM_NONE, IN_EXPERTS),                       \
        RULE_OPTIONAL(EXPERTS, "ffn_gate_exps", gate_exps, DIM_EMBD, DIM_FF_EXP, IN_EXPERTS),                          \
        RULE_OPTIONAL(EXPERTS, "ffn_up_exps", up_exps, DIM_EMBD, DIM_FF_EXP, IN_EXPERTS),                              \
        RULE_OPTIONAL(EXPERTS, "ffn_gate_up_exps", gate_up_exps, DIM_EMBD, DIM_2FF_EXP, IN_EXPERTS),                   \
        RULE(EXPERTS, "ffn_down_exps", down_exps, DIM_FF_EXP, DIM_EMBD, IN_EXPERTS)
/* The expert of all tokens, and its router in families that weigh it. */
#define BLOCK_SHARED_EXPERT_RULES                                                                                      \
    RULE(MATRIX, "ffn_gate_shexp", shared_gate, DIM_EMBD, DIM_FF_SHEXP, IN_EXPERTS),                                   \
        RULE(MATRIX, "ffn_up_shexp", shared_up, DIM_EMBD, DIM_FF_SHEXP, IN_EXPERTS),                                   \
        RULE(MATRIX, "ffn_down_shexp", shared_down, DIM_FF_SHEXP, DIM_EMBD, IN_EXPERTS)
#define BLOCK_SHARED_ROUTER_RULES RULE(VECTOR, "ffn_gate_inp_shexp", shared_router, DIM_EMBD, DIM_NONE, IN_EXPERTS)

/* x += c A(RMS(x; attn_norm)), A(n) = Wo Attn(RoPE(norm(Wq n)), RoPE(norm(Wk n)), Wv n), c = residual_scale;
 * the norms of q's and k's heads and the rotation where the layer has them */
void block_attn(const struct member *me, int il);
/* x += Wo LatentAttention(n), n = RMS(x; attn_norm); block_latent.c has the formulas */
void block_latent(const struct member *me, int il);
/* x += Wout (silu(Wz n) * RMS(DeltaNet(Wqkv n, Wb n, Wa n))), n = RMS(x; attn_norm) */
void block_delta(const struct member *me, int il);
/* block_delta() in recurrent layers, block_attn() in the others. */
void block_hybrid(const struct member *me, int il);
/* Reads the numbers of gated DeltaNet, and sets which layers are recurrent. Called by the families' pages. */
int delta_hparams(struct hparams *h, struct hp_reader *r);
/* x += c F(RMS(x; ffn_norm)), F(m) = Wdown (f(Wgate m) * (Wup m)) */
void block_ffn(const struct member *me, int il, enum act_kind f);
/* x += the sum of weight * expert(m) over the chosen experts, + weight * the shared one's(m); each expert is
 * block_ffn's network, m = RMS(x; ffn_norm) */
void block_moe(const struct member *me, int il, enum act_kind f);

/* The same with a second norm, after the block: x += RMS(A(RMS(x; attn_norm)); attn_post_norm). */
void block_attn_post(const struct member *me, int il);
void block_ffn_post(const struct member *me, int il, enum act_kind f);

/* The same with the second norm only: x += RMS(A(x); attn_post_norm). q and k are normalised as rows, all heads
 * together. */
void block_attn_bare(const struct member *me, int il);
void block_ffn_bare(const struct member *me, int il, enum act_kind f);

/* As block_attn() and block_ffn() with a norm before the last matrix: Wo RMS(Attn(...); attn_sub_norm) and
 * Wdown RMS(f(...) * (...); ffn_sub_norm). */
void block_attn_sub(const struct member *me, int il);
void block_ffn_sub(const struct member *me, int il, enum act_kind f);

#endif
