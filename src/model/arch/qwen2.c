/* SPDX-License-Identifier: MIT
 *
 * qwen2.c: Qwen2 and Qwen2.5 (dense).
 *
 * The llama layer with biases on q, k and v and rotation pairs that are half a head apart.
 * Yang et al., "Qwen2 technical report", 2024.
 */
#include "model/arch/arch.h"
#include "model/bind.h"
#include "model/block.h"

static int qwen2_hparams(struct hparams *h, const struct weights *w, struct qn_error *e)
{
    (void)w, (void)e;
    h->rope_adjacent = false;
    return 0;
}

static const struct bind_rule rules[] = {
    {"attn_norm", BIND_VECTOR, false, offsetof(struct layer, attn_norm), DIM_EMBD, DIM_NONE},
    {"attn_q", BIND_MATRIX, false, offsetof(struct layer, wq), DIM_EMBD, DIM_Q},
    {"attn_k", BIND_MATRIX, false, offsetof(struct layer, wk), DIM_EMBD, DIM_KV},
    {"attn_v", BIND_MATRIX, false, offsetof(struct layer, wv), DIM_EMBD, DIM_KV},
    {"attn_output", BIND_MATRIX, false, offsetof(struct layer, wo), DIM_Q, DIM_EMBD},
    {"ffn_norm", BIND_VECTOR, false, offsetof(struct layer, ffn_norm), DIM_EMBD, DIM_NONE},
    {"ffn_gate", BIND_MATRIX, false, offsetof(struct layer, gate), DIM_EMBD, DIM_FF},
    {"ffn_up", BIND_MATRIX, false, offsetof(struct layer, up), DIM_EMBD, DIM_FF},
    {"ffn_down", BIND_MATRIX, false, offsetof(struct layer, down), DIM_FF, DIM_EMBD},
    {0},
};

static void qwen2_layer(const struct worker *w, int il)
{
    block_attn(w, il);
    block_ffn(w, il, ACTIV_SILU);
}

const struct arch arch_qwen2 = {"qwen2", qwen2_hparams, rules, qwen2_layer};
