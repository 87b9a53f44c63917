/* SPDX-License-Identifier: MIT
 *
 * shape.c: the shapes of models and the tensors they consist of. See shape.h.
 *
 * The mixtures of types are those of llama.cpp's quantiser.
 */
#include "shape.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define N_OF(a) (sizeof(a) / sizeof *(a))

/* ---- families ---- */

enum when { ALWAYS, ATTENTION, RECURRENT, DENSE, EXPERTS, SHARED, BALANCED, LORA_Q, NO_LORA_Q, EXPANDED, ABSORBED };

/* clang-format off */
enum size {
    ONE, EMBD, FF, FF2, Q, Q_GATES, KV, QKV, HEAD, HEADS, /* dims; FF2: gate and up in one; Q_GATES: q and gates */
    CONV, N_TAPS, DELTA, DELTA_BA, DELTA_HEADS, DELTA_HEAD,
    N_EXPERTS, FF_EXPERT, FF_SHARED, EMBD2,
    Q_RANK, KV_RANK, KV_IN, NOPE, V_HEAD, KV_B, OUT,
};

struct rule {
    const char *name; /* behind "blk.N." */
    enum when when;
    enum role role;
    enum size in, out, n; /* ONE, which is 0: no such dimension */
};

#define VEC(name, when, role, in)        {name, when, role, in, ONE, ONE}
#define MAT(name, when, role, in, out)     {name, when, role, in, out, ONE}
#define MATS(name, when, role, in, out, n) {name, when, role, in, out, n}

#define PRE_NORM   VEC("attn_norm.weight", ALWAYS, NORM, EMBD)
#define QKV_SPLIT  MAT("attn_q.weight", ATTENTION, MATRIX, EMBD, Q), \
                   MAT("attn_k.weight", ATTENTION, MATRIX, EMBD, KV), \
                   MAT("attn_v.weight", ATTENTION, ATTN_V, EMBD, KV)
#define QKV_GATED  MAT("attn_q.weight", ATTENTION, MATRIX, EMBD, Q_GATES), \
                   MAT("attn_k.weight", ATTENTION, MATRIX, EMBD, KV), \
                   MAT("attn_v.weight", ATTENTION, ATTN_V, EMBD, KV)
#define QKV_BIAS   VEC("attn_q.bias", ATTENTION, BIAS, Q), VEC("attn_k.bias", ATTENTION, BIAS, KV), \
                   VEC("attn_v.bias", ATTENTION, BIAS, KV)
#define QK_NORM    VEC("attn_q_norm.weight", ATTENTION, NORM, HEAD), VEC("attn_k_norm.weight", ATTENTION, NORM, HEAD)
#define ATTN_OUT   MAT("attn_output.weight", ATTENTION, MATRIX, Q, EMBD)
#define FFN_NORM   VEC("ffn_norm.weight", ALWAYS, NORM, EMBD)
#define MID_NORM   VEC("post_attention_norm.weight", ALWAYS, NORM, EMBD) /* of the network behind, whatever its name */
#define POST_NORMS VEC("post_attention_norm.weight", ALWAYS, NORM, EMBD), \
                   VEC("post_ffw_norm.weight", ALWAYS, NORM, EMBD)
#define FFN        MAT("ffn_gate.weight", DENSE, MATRIX, EMBD, FF), MAT("ffn_up.weight", DENSE, MATRIX, EMBD, FF), \
                   MAT("ffn_down.weight", DENSE, FFN_DOWN, FF, EMBD)
#define FFN_FUSED  MAT("ffn_up.weight", DENSE, MATRIX, EMBD, FF2), MAT("ffn_down.weight", DENSE, FFN_DOWN, FF, EMBD)
#define MOE        MAT("ffn_gate_inp.weight", EXPERTS, ROUTER, EMBD, N_EXPERTS), \
                   MATS("ffn_gate_exps.weight", EXPERTS, MATRIX, EMBD, FF_EXPERT, N_EXPERTS), \
                   MATS("ffn_up_exps.weight", EXPERTS, MATRIX, EMBD, FF_EXPERT, N_EXPERTS), \
                   MATS("ffn_down_exps.weight", EXPERTS, FFN_DOWN, FF_EXPERT, EMBD, N_EXPERTS)
#define MOE_BIAS   VEC("ffn_gate_inp.bias", EXPERTS, BIAS, N_EXPERTS), \
                   MAT("ffn_gate_exps.bias", EXPERTS, BIAS, FF_EXPERT, N_EXPERTS), \
                   MAT("ffn_up_exps.bias", EXPERTS, BIAS, FF_EXPERT, N_EXPERTS), \
                   MAT("ffn_down_exps.bias", EXPERTS, BIAS, EMBD, N_EXPERTS)
#define SHEXP      MAT("ffn_gate_shexp.weight", SHARED, MATRIX, EMBD, FF_SHARED), \
                   MAT("ffn_up_shexp.weight", SHARED, MATRIX, EMBD, FF_SHARED), \
                   MAT("ffn_down_shexp.weight", SHARED, FFN_DOWN, FF_SHARED, EMBD)
#define SHEXP_GATE VEC("ffn_gate_inp_shexp.weight", SHARED, ROUTER, EMBD)
#define DELTANET   MAT("attn_qkv.weight", RECURRENT, ATTN_QKV, EMBD, CONV), \
                   MAT("attn_gate.weight", RECURRENT, MATRIX, EMBD, DELTA), \
                   MAT("ssm_conv1d.weight", RECURRENT, TAPS, N_TAPS, CONV), \
                   VEC("ssm_dt.bias", RECURRENT, BIAS, DELTA_HEADS), \
                   VEC("ssm_a", RECURRENT, DECAY, DELTA_HEADS), VEC("ssm_norm.weight", RECURRENT, NORM, DELTA_HEAD), \
                   MAT("ssm_out.weight", RECURRENT, MATRIX, DELTA, EMBD)
#define ALPHA_BETA MAT("ssm_beta.weight", RECURRENT, MATRIX, EMBD, DELTA_HEADS), \
                   MAT("ssm_alpha.weight", RECURRENT, MATRIX, EMBD, DELTA_HEADS)
#define SUB_NORMS  VEC("attn_sub_norm.weight", ALWAYS, NORM, Q), VEC("ffn_sub_norm.weight", ALWAYS, NORM, FF)
#define SCALED(m)  VEC(m ".scale", ALWAYS, NORM, ONE)

static const struct family {
    const char *name;
    struct rule rules[32]; /* the rest has no names */
}
llama     = {"llama",     {PRE_NORM, QKV_SPLIT, ATTN_OUT, FFN_NORM, FFN, MOE}},
qwen2     = {"qwen2",     {PRE_NORM, QKV_SPLIT, QKV_BIAS, ATTN_OUT, FFN_NORM, FFN}},
qwen2moe  = {"qwen2moe",  {PRE_NORM, QKV_SPLIT, QKV_BIAS, ATTN_OUT, FFN_NORM, MOE, SHEXP, SHEXP_GATE}},
qwen3     = {"qwen3",     {PRE_NORM, QKV_SPLIT, QK_NORM, ATTN_OUT, FFN_NORM, FFN}},
qwen3moe  = {"qwen3moe",  {PRE_NORM, QKV_SPLIT, QK_NORM, ATTN_OUT, FFN_NORM, MOE}},
qwen3next = {"qwen3next", {PRE_NORM, DELTANET, MAT("ssm_ba.weight", RECURRENT, MATRIX, EMBD, DELTA_BA),
                           QKV_GATED, QK_NORM,
                           ATTN_OUT, MID_NORM, MOE, SHEXP, SHEXP_GATE}},
qwen35    = {"qwen35",    {PRE_NORM, DELTANET, ALPHA_BETA, QKV_GATED, QK_NORM, ATTN_OUT, MID_NORM, FFN}},
qwen35moe = {"qwen35moe", {PRE_NORM, DELTANET, ALPHA_BETA, QKV_GATED, QK_NORM, ATTN_OUT, MID_NORM, MOE, SHEXP,
                           SHEXP_GATE}},
gpt_oss   = {"gpt-oss",   {PRE_NORM, QKV_SPLIT, QKV_BIAS, ATTN_OUT, VEC("attn_output.bias", ALWAYS, BIAS, EMBD),
                           VEC("attn_sinks.weight", ALWAYS, BIAS, HEADS), MID_NORM, MOE, MOE_BIAS}},
gemma     = {"gemma",     {PRE_NORM, QKV_SPLIT, ATTN_OUT, FFN_NORM, FFN}},
gemma2    = {"gemma2",    {PRE_NORM, QKV_SPLIT, ATTN_OUT, FFN_NORM, FFN, POST_NORMS}},
gemma3    = {"gemma3",    {PRE_NORM, QKV_SPLIT, QK_NORM, ATTN_OUT, FFN_NORM, FFN, POST_NORMS}},
phi3      = {"phi3",      {PRE_NORM, MAT("attn_qkv.weight", ALWAYS, ATTN_QKV, EMBD, QKV),
                           ATTN_OUT, FFN_NORM, FFN_FUSED}},
glm4      = {"glm4",      {PRE_NORM, QKV_SPLIT, QKV_BIAS, ATTN_OUT, FFN_NORM, FFN_FUSED, POST_NORMS}},
granite   = {"granite",   {PRE_NORM, QKV_SPLIT, ATTN_OUT, FFN_NORM, FFN}},
smollm3   = {"smollm3",   {PRE_NORM, QKV_SPLIT, ATTN_OUT, FFN_NORM, FFN}},
olmo2     = {"olmo2",     {QKV_SPLIT, VEC("attn_q_norm.weight", ALWAYS, NORM, Q),
                           VEC("attn_k_norm.weight", ALWAYS, NORM, KV), ATTN_OUT,
                           FFN, POST_NORMS}},
bitnet    = {"bitnet",    {PRE_NORM, SUB_NORMS, FFN_NORM, QKV_SPLIT, SCALED("attn_q"), SCALED("attn_k"),
                           SCALED("attn_v"), ATTN_OUT,
                           SCALED("attn_output"), FFN, SCALED("ffn_gate"), SCALED("ffn_up"), SCALED("ffn_down")}},
bitnet158 = {"bitnet-b1.58", {PRE_NORM, SUB_NORMS, FFN_NORM, QKV_SPLIT, ATTN_OUT, FFN}},
deepseek2 = {"deepseek2", {PRE_NORM, MAT("attn_q.weight", NO_LORA_Q, MATRIX, EMBD, Q),
                           MAT("attn_q_a.weight", LORA_Q, MATRIX, EMBD, Q_RANK),
                           VEC("attn_q_a_norm.weight", LORA_Q, NORM, Q_RANK),
                           MAT("attn_q_b.weight", LORA_Q, MATRIX, Q_RANK, Q),
                           MAT("attn_kv_a_mqa.weight", ALWAYS, MATRIX, EMBD, KV_IN),
                           VEC("attn_kv_a_norm.weight", ALWAYS, NORM, KV_RANK),
                           MAT("attn_kv_b.weight", EXPANDED, MATRIX, KV_RANK, KV_B),
                           MATS("attn_k_b.weight", ABSORBED, MATRIX, NOPE, KV_RANK, HEADS),
                           MATS("attn_v_b.weight", ABSORBED, MATRIX, KV_RANK, V_HEAD, HEADS),
                           MAT("attn_output.weight", ALWAYS, MATRIX, OUT, EMBD), FFN_NORM, FFN, MOE,
                           VEC("exp_probs_b.bias", BALANCED, BIAS, N_EXPERTS), SHEXP}};

/* What a block that predicts the token after the next one has besides a layer. */
static const struct rule nextn_rules[] = {
    MAT("nextn.eh_proj.weight", ALWAYS, JOINT, EMBD2, EMBD), VEC("nextn.enorm.weight", ALWAYS, NORM, EMBD),
    VEC("nextn.hnorm.weight", ALWAYS, NORM, EMBD), VEC("nextn.shared_head_norm.weight", ALWAYS, NORM, EMBD), {0}};

/* ---- shapes ---- */

#define BASE(family_, pre_, layers, d, heads, kv, dim, ff, vocab, ctx, theta, eps_, tied_) \
    .family = &(family_), .pre = (pre_), .n_layer = (layers), .d_model = (d), .n_head = (heads), .n_head_kv = (kv), \
    .head_dim = (dim), .d_ff = (ff), .n_vocab = (vocab), .n_ctx = (ctx), .rope_theta = (theta), .eps = (eps_), \
    .tied = (tied_)
#define MIX(n, used, d) .n_expert = (n), .n_used = (used), .d_expert = (d)
#define LINEAR(k, v, dk, dv) .n_k = (k), .n_v = (v), .dim_k = (dk), .dim_v = (dv), .n_taps = 4

#define V2_YARN(ctx) .scaling = "yarn", .scaling_factor = 40, .scaling_log = 0.0707f, .n_ctx_orig = (ctx)

static const struct shape shapes[] = {
    /*                            family     pre     layer d_model heads  dim   d_ff  n_vocab   n_ctx  theta   eps   tied */
    {"qwen3-8b",            BASE(qwen3,     "qwen2",     36, 4096, 32,  8, 128, 12288, 151936,  40960, 1e6f, 1e-6f, false)},
    {"qwen3-4b",            BASE(qwen3,     "qwen2",     36, 2560, 32,  8, 128,  9728, 151936,  40960, 1e6f, 1e-6f, true)},
    {"qwen3-1.7b",          BASE(qwen3,     "qwen2",     28, 2048, 16,  8, 128,  6144, 151936,  40960, 1e6f, 1e-6f, true)},
    {"qwen3-0.6b",          BASE(qwen3,     "qwen2",     28, 1024, 16,  8, 128,  3072, 151936,  40960, 1e6f, 1e-6f, true)},
    {"qwen2-0.5b",          BASE(qwen2,     "qwen2",     24,  896, 14,  2,  64,  4864, 151936,  32768, 1e6f, 1e-6f, true)},
    {"llama-3.1-8b",        BASE(llama,     "llama-bpe", 32, 4096, 32,  8, 128, 14336, 128256, 131072, 5e5f, 1e-5f, false),
     .rope_factor = 8},
    {"llama-3.2-1b",        BASE(llama,     "llama-bpe", 16, 2048, 32,  8,  64,  8192, 128256, 131072, 5e5f, 1e-5f, true),
     .rope_factor = 32},
    {"smollm2-135m",        BASE(llama,     "smollm",    30,  576,  9,  3,  64,  1536,  49152,   8192, 1e5f, 1e-5f, true)},
    {"qwen3-30b-a3b",       BASE(qwen3moe,  "qwen2",     48, 2048, 32,  4, 128,  6144, 151936,  40960, 1e6f, 1e-6f, false),
     MIX(128, 8, 768)},
    {"qwen3-next",          BASE(qwen3next, "qwen2",     48, 2048, 16,  2, 256,  5120, 151936, 262144, 1e7f, 1e-6f, false),
     .n_rot = 64, MIX(512, 10, 512), .d_shared = 512, LINEAR(16, 32, 128, 128)},
    {"qwen3-next-half",     BASE(qwen3next, "qwen2",     48, 2048, 16,  2, 256,  5120, 151936, 262144, 1e7f, 1e-6f, false),
     .n_rot = 64, MIX(256, 10, 512), .d_shared = 512, LINEAR(16, 32, 128, 128)},
    {"qwen3.5-9b",          BASE(qwen35,    "qwen2",     32, 4096, 16,  4, 256, 12288, 248320, 262144, 1e7f, 1e-6f, false),
     .n_rot = 64, LINEAR(16, 32, 128, 128)},
    {"qwen3.5-4b",          BASE(qwen35,    "qwen2",     32, 2560, 16,  4, 256,  9216, 248320, 262144, 1e7f, 1e-6f, true),
     .n_rot = 64, LINEAR(16, 32, 128, 128)},
    {"qwen3.5-0.8b",        BASE(qwen35,    "qwen2",     24, 1024,  8,  2, 256,  3584, 248320, 262144, 1e7f, 1e-6f, true),
     .n_rot = 64, LINEAR(16, 16, 128, 128)},
    {"qwen3.5-35b-a3b",     BASE(qwen35moe, "qwen2",     40, 2048, 16,  2, 256,  5120, 248320, 262144, 1e7f, 1e-6f, false),
     .n_rot = 64, MIX(256, 8, 512), .d_shared = 512, LINEAR(16, 32, 128, 128)},
    {"deepseek-v2-lite",    BASE(deepseek2, "deepseek-llm", 27, 2048, 16, 16, 192, 10944, 102400, 163840, 1e4f, 1e-6f, false),
     .n_rot = 64, .lora_kv = 512, .dim_nope = 128, .dim_v_head = 128, MIX(64, 6, 1408), .d_shared = 2816, .n_dense_lead = 1,
     .gate = 1, V2_YARN(4096)},
    {"gpt-oss-20b",         BASE(gpt_oss,   "gpt-4o",    24, 2880, 64,  8,  64,  2880, 201088, 131072, 15e4f, 1e-5f, false),
     .n_swa = 128, MIX(32, 4, 2880), .scaling = "yarn", .scaling_factor = 32, .n_ctx_orig = 4096},
    {"gemma3-4b",           BASE(gemma3,    "default",   34, 2560,  8,  4, 256, 10240, 262144, 131072, 1e6f, 1e-6f, true),
     .n_swa = 1024, .scaling = "linear", .scaling_factor = 8},

    {"llama-tiny",          BASE(llama,     "llama-bpe",  2,  256,  4,  2,  64,   512,    512,   2048, 1e4f, 1e-5f, false)},
    {"qwen2-tiny",          BASE(qwen2,     "qwen2",      2,  256,  4,  2,  64,   512,    512,   2048, 1e6f, 1e-6f, true)},
    {"qwen3-tiny",          BASE(qwen3,     "qwen2",      2,  256,  4,  2, 128,   512,    512,   2048, 1e6f, 1e-6f, true)},
    {"qwen3-yarn-tiny",     BASE(qwen3,     "qwen2",      2,  256,  4,  2, 128,   512,    512,   2048, 1e6f, 1e-6f, true),
     .scaling = "yarn", .scaling_factor = 8, .scaling_attn = 1.1f, .exact_range = true, .n_ctx_orig = 256},
    /* of each other family: sizes that no other size equals, where they may differ */
    {"mixtral-tiny",        BASE(llama,     "llama-bpe",  2,  256,  4,  2,  64,   512,    512,   2048, 1e6f, 1e-5f, false),
     MIX(6, 2, 512)},
    {"mixtral-apart-tiny",  BASE(llama,     "llama-bpe",  2,  256,  4,  2,  64,   288,    512,   2048, 1e6f, 1e-5f, false),
     MIX(5, 2, 288), .apart = true},
    {"qwen2moe-tiny",       BASE(qwen2moe,  "qwen2",      2,  256,  4,  4,  64,   512,    512,   2048, 1e6f, 1e-6f, false),
     MIX(10, 4, 256), .d_shared = 768},
    {"qwen3moe-tiny",       BASE(qwen3moe,  "qwen2",      2,  256,  6,  2,  64,   512,    512,   2048, 1e6f, 1e-6f, false),
     MIX(12, 4, 256)},
    {"qwen3next-tiny",      BASE(qwen3next, "qwen2",      4,  256,  4,  2,  64,   512,    512,   2048, 1e7f, 1e-6f, false),
     .n_rot = 16, MIX(8, 3, 256), .d_shared = 512, LINEAR(2, 8, 32, 32)},
    {"qwen35-tiny",         BASE(qwen35,    "qwen2",      5,  256,  4,  2,  64,   512,    512,   2048, 1e7f, 1e-6f, false),
     .n_rot = 16, LINEAR(2, 6, 32, 48)},
    {"qwen35moe-tiny",      BASE(qwen35moe, "qwen2",      4,  256,  4,  1,  64,   512,    512,   2048, 1e7f, 1e-6f, false),
     .n_rot = 16, MIX(8, 3, 256), .d_shared = 256, LINEAR(4, 8, 32, 32)},
    {"gpt-oss-tiny",        BASE(gpt_oss,   "gpt-4o",     4,  256,  6,  2,  64,   256,    512,   2048, 15e4f, 1e-5f, false),
     .n_swa = 24, MIX(6, 3, 256), .scaling = "yarn", .scaling_factor = 8, .n_ctx_orig = 256},
    {"gemma-tiny",          BASE(gemma,     "default",    2,  256,  4,  1,  96,   512,    512,   2048, 1e4f, 1e-5f, true)},
    {"gemma2-tiny",         BASE(gemma2,    "default",    3,  256,  4,  2,  96,   512,    512,   2048, 1e4f, 1e-5f, true),
     .n_swa = 24, .attn_softcap = 5, .logit_softcap = 6},
    {"gemma3-tiny",         BASE(gemma3,    "default",    7,  256,  4,  1,  64,   512,    512,   2048, 1e6f, 1e-6f, true),
     .n_swa = 24, .scaling = "linear", .scaling_factor = 8},
    {"phi3-tiny",           BASE(phi3,      "default",    2,  256,  4,  2,  64,   512,    512,   2048, 1e4f, 1e-5f, false)},
    {"glm4-tiny",           BASE(glm4,      "glm4",       2,  256,  4,  2,  64,   512,    512,   2048, 1e4f, 1e-5f, false),
     .n_rot = 32},
    {"granite-tiny",        BASE(granite,   "refact",     2,  256,  4,  2,  64,   512,    512,   2048, 1e4f, 1e-5f, true),
     .embd_scale = 6, .residual_scale = 0.22f, .attn_scale = 0.25f,
     .logit_scale = 0.25f}, /* real ones are 4 and more: here the logits stay of some size */
    {"smollm3-tiny",        BASE(smollm3,   "llama-bpe",  5,  256,  4,  2,  64,   512,    512,   2048, 5e6f, 1e-6f, true)},
    {"olmo2-tiny",          BASE(olmo2,     "dbrx",       2,  256,  4,  4,  64,   512,    512,   2048, 5e5f, 1e-6f, false)},
    {"olmo3-tiny",          BASE(olmo2,     "dbrx",       5,  256,  4,  2,  64,   512,    512,   2048, 5e5f, 1e-6f, false),
     .n_swa = 24, .scaling_factor = 8},
    /* 1.1 is not what follows from the factor, 1.208, so that it shows which of the two is used */
    {"olmo3-yarn-tiny",     BASE(olmo2,     "dbrx",       5,  256,  4,  2,  64,   512,    512,   2048, 5e5f, 1e-6f, false),
     .n_swa = 24, .scaling = "yarn", .scaling_factor = 8, .scaling_attn = 1.1f, .n_ctx_orig = 64},
    {"bitnet-tiny",         BASE(bitnet158, "llama-bpe",  2,  256,  4,  2,  64,   512,    512,   2048, 5e5f, 1e-5f, true)},
    {"bitnet-scales-tiny",  BASE(bitnet,    "llama-bpe",  2,  256,  4,  2,  64,   512,    512,   2048, 5e5f, 1e-5f, true)},
    /* latent attention, in both layouts of its files; without and with experts */
    {"latent-tiny",         BASE(deepseek2, "deepseek-v3", 2, 256,  4,  4,  96,   512,    512,   2048, 1e4f, 1e-6f, false),
     .n_rot = 32, .lora_q = 256, .lora_kv = 256, .dim_nope = 64, .dim_v_head = 64},
    {"latent-tiny-old",     BASE(deepseek2, "deepseek-v3", 2, 256,  4,  4,  96,   512,    512,   2048, 1e4f, 1e-6f, false),
     .n_rot = 32, .lora_q = 256, .lora_kv = 256, .dim_nope = 64, .dim_v_head = 64, .expanded = true, V2_YARN(64)},
    {"latent-lite",         BASE(deepseek2, "deepseek-v3", 1, 256, 20, 20, 192,   512,    512,   2048, 1e4f, 1e-6f, false),
     .n_rot = 64, .lora_kv = 512, .dim_nope = 128, .dim_v_head = 128},
    {"latent-lite-old",     BASE(deepseek2, "deepseek-v3", 1, 256, 20, 20, 192,   512,    512,   2048, 1e4f, 1e-6f, false),
     .n_rot = 64, .lora_kv = 512, .dim_nope = 128, .dim_v_head = 128, .expanded = true},
    {"deepseek2-tiny",      BASE(deepseek2, "deepseek-v3", 3, 256,  4,  4,  96,   512,    512,   2048, 1e4f, 1e-6f, false),
     .n_rot = 32, .lora_q = 96, .lora_kv = 128, .dim_nope = 64, .dim_v_head = 48, MIX(8, 3, 256), .d_shared = 256,
     .n_dense_lead = 1, .gate = 2, .n_groups = 4, .n_groups_used = 2, .expert_scale = 2.5f},
    {"deepseek2-lite-tiny", BASE(deepseek2, "deepseek-v3", 2, 256,  4,  4,  96,   512,    512,   2048, 1e4f, 1e-6f, false),
     .n_rot = 32, .lora_kv = 128, .dim_nope = 64, .dim_v_head = 64, MIX(8, 2, 256), .d_shared = 512, .n_dense_lead = 1,
     .gate = 1, V2_YARN(64)},
    {"deepseek2-groups-tiny", BASE(deepseek2, "deepseek-v3", 2, 256, 4,  4,  96,   512,    512,   2048, 1e4f, 1e-6f, false),
     .n_rot = 32, .lora_q = 96, .lora_kv = 128, .dim_nope = 64, .dim_v_head = 64, MIX(12, 3, 256), .d_shared = 512,
     .n_dense_lead = 1, .gate = 1, .n_groups = 4, .n_groups_used = 2, .expert_scale = 16, V2_YARN(64)},
    /* small, but with the head counts, head sizes and inner sizes of models that are not; 13696, 1000, 1504, 864, 896
     * and 560 are no whole numbers of 256s, so that K types fall back to others there */
    {"odd-1",               BASE(llama,     "llama-bpe",  1,  256,  8,  1, 256,  6912,    512,   2048, 1e4f, 1e-5f, true)},
    {"odd-2",               BASE(qwen2,     "qwen2",      1,  256, 14,  2,  64, 11008,    512,   2048, 1e6f, 1e-6f, true)},
    {"odd-3",               BASE(llama,     "llama-bpe",  1,  256,  9,  3,  96, 13696,    512,   2048, 1e4f, 1e-5f, true)},
    {"odd-4",               BASE(qwen3,     "qwen2",      1,  256, 16,  4,  80, 17408,    512,   2048, 1e6f, 1e-6f, true)},
    {"odd-5",               BASE(llama,     "llama-bpe",  2,  288,  5,  5, 128,  1000,    512,   2048, 1e4f, 1e-5f, true)},
    {"odd-6",               BASE(qwen3,     "qwen2",      2,  256, 24,  6,  64,   768,    512,   2048, 1e6f, 1e-6f, true)},
    {"odd-7",               BASE(llama,     "llama-bpe",  2,  256,  7,  7,  80,  1504,    512,   2048, 1e4f, 1e-5f, true)},
    {"odd-8",               BASE(qwen2,     "qwen2",      2,  256, 32,  8,  96,  2816,    512,   2048, 1e6f, 1e-6f, true)},
};
/* clang-format on */

static const struct scheme schemes[] = {
    {"q4_k_m", 15, DT_Q4_K, M},      {"q4_k_s", 14, DT_Q4_K, S},      {"q5_k_m", 17, DT_Q5_K, M},
    {"f32", 0, DT_F32, PURE},        {"f16", 1, DT_F16, PURE},        {"bf16", 32, DT_BF16, PURE},
    {"q4_0", 2, DT_Q4_0, PURE},      {"q4_1", 3, DT_Q4_1, PURE},      {"q5_0", 8, DT_Q5_0, PURE},
    {"q5_1", 9, DT_Q5_1, PURE},      {"q8_0", 7, DT_Q8_0, PURE},      {"q1_0", 40, DT_Q1_0, PURE},
    {"q2_0", 41, DT_Q2_0, PURE},     {"q2_k", 10, DT_Q2_K, PURE},     {"q3_k", 12, DT_Q3_K, PURE},
    {"q4_k", 14, DT_Q4_K, PURE},     {"q5_k", 16, DT_Q5_K, PURE},     {"q6_k", 18, DT_Q6_K, PURE},
    {"iq1_s", 24, DT_IQ1_S, PURE},   {"iq1_m", 31, DT_IQ1_M, PURE},   {"iq2_xxs", 19, DT_IQ2_XXS, PURE},
    {"iq2_xs", 20, DT_IQ2_XS, PURE}, {"iq2_s", 28, DT_IQ2_S, PURE},   {"iq3_xxs", 23, DT_IQ3_XXS, PURE},
    {"iq3_s", 26, DT_IQ3_S, PURE},   {"iq4_nl", 25, DT_IQ4_NL, PURE}, {"iq4_xs", 30, DT_IQ4_XS, PURE},
    {"i2_s", 40, DT_I2_S, PURE},     {"tq1_0", 36, DT_TQ1_0, PURE},   {"tq2_0", 37, DT_TQ2_0, PURE},
    {"mxfp4", 38, DT_MXFP4, PURE},   {"nvfp4", 39, DT_NVFP4, PURE},   {"mxfp4_moe", 38, DT_Q8_0, FP4_EXPERTS},
};

const char *family_name(const struct family *f) { return f->name; }
const char *shape_name(size_t i) { return i < N_OF(shapes) ? shapes[i].name : NULL; }
const char *scheme_name(size_t i) { return i < N_OF(schemes) ? schemes[i].name : NULL; }

const struct shape *shape_find(const char *name, size_t n)
{
    for (size_t i = 0; i < N_OF(shapes); i++)
        if (strlen(shapes[i].name) == n && !strncmp(shapes[i].name, name, n)) return &shapes[i];
    return NULL;
}

const struct scheme *scheme_find(const char *name)
{
    for (size_t i = 0; i < N_OF(schemes); i++)
        if (!strcmp(schemes[i].name, name)) return &schemes[i];
    return NULL;
}

/* ---- tensors ---- */

static int64_t size_of(const struct shape *s, enum size z)
{
    int64_t q = (int64_t)s->n_head * s->head_dim, kv = (int64_t)s->n_head_kv * s->head_dim;
    int64_t delta = (int64_t)s->n_v * s->dim_v;

    switch (z) {
    case ONE: return 1;
    case EMBD: return s->d_model;
    case EMBD2: return 2 * (int64_t)s->d_model;
    case FF: return s->d_ff;
    case FF2: return 2 * (int64_t)s->d_ff;
    case Q: return q;
    case Q_GATES: return 2 * q;
    case KV: return kv;
    case QKV: return q + 2 * kv;
    case HEAD: return s->head_dim;
    case HEADS: return s->n_head;
    case CONV: return 2 * (int64_t)s->n_k * s->dim_k + delta;
    case N_TAPS: return s->n_taps;
    case DELTA: return delta;
    case DELTA_BA: return 2 * (int64_t)s->n_v;
    case DELTA_HEADS: return s->n_v;
    case DELTA_HEAD: return s->dim_v;
    case N_EXPERTS: return s->n_expert;
    case FF_EXPERT: return s->d_expert;
    case FF_SHARED: return s->d_shared;
    case Q_RANK: return s->lora_q;
    case KV_RANK: return s->lora_kv;
    case KV_IN: return s->lora_kv + s->n_rot;
    case NOPE: return s->dim_nope;
    case V_HEAD: return s->dim_v_head;
    case KV_B: return (int64_t)s->n_head * (s->dim_nope + s->dim_v_head);
    case OUT: return (int64_t)s->n_head * s->dim_v_head;
    }
    return 0;
}

static bool is_in(const struct plan *p, int layer, enum when when)
{
    const struct shape *s = p->shape;
    bool recurrent = s->n_v && layer % 4 != 3 && layer < p->n_layer;
    bool experts = s->n_expert && layer >= s->n_dense_lead;

    switch (when) {
    case ALWAYS: return true;
    case ATTENTION: return !recurrent;
    case RECURRENT: return recurrent;
    case DENSE: return !experts;
    case EXPERTS: return experts;
    case SHARED: return experts && s->d_shared;
    case BALANCED: return experts && s->gate == 2;
    case LORA_Q: return s->lora_q;
    case NO_LORA_Q: return !s->lora_q;
    case EXPANDED: return s->expanded;
    case ABSORBED: return !s->expanded;
    }
    return false;
}

/* What a quantiser falls back to when a row is not a whole number of the wanted blocks. */
static enum dtype fitting(enum dtype t, int64_t k)
{
    if (k % dtype_get(t)->block == 0) return t;
    if (k % 32 != 0) return DT_F16;
    switch (t) {
    case DT_Q4_K: return DT_Q5_0;
    case DT_Q5_K: return DT_Q5_1;
    case DT_Q6_K: return DT_Q8_0;
    case DT_Q2_K:
    case DT_Q3_K:
    case DT_TQ1_0:
    case DT_TQ2_0:
    case DT_Q1_0:
    case DT_Q2_0: return DT_Q4_0;
    default: return DT_IQ4_NL;
    }
}

/* The type of a matrix, or of n_matrices of them. `layer` is its own; the first and last eighth of the layers and every
 * third one between have the weights that matter most in more bits. */
static enum dtype choose(const struct plan *p, enum role role, int layer, int64_t k, int64_t n_matrices)
{
    int n = p->n_layer;
    enum dtype t = p->scheme->type;
    enum mix mix = p->scheme->mix;
    bool more = layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;

    if (role == JOINT && !p->meek) role = MATRIX;
    if (role >= NORM) return DT_F32;
    if (mix == FP4_EXPERTS && n_matrices > 1) t = DT_MXFP4;
    if (t == DT_I2_S && role <= OUTPUT) t = DT_F16; /* only a layer's matrices may have it */
    if (mix == S || mix == M) {
        if (role == OUTPUT || (role == EMBED && p->shape->tied)) t = DT_Q6_K;
        if (role == ATTN_V || role == FFN_DOWN) {
            if (mix == M && more) t = DT_Q6_K;
            if (mix == S && layer < (role == ATTN_V ? 4 : n / 8)) t = DT_Q5_K;
        }
        if (role == ATTN_QKV && mix == M) t = t == DT_Q4_K ? DT_Q5_K : DT_Q6_K;
    }
    return fitting(t, k);
}

/* layer -1: a tensor of the whole model. rows, n: 1 where there are not so many dimensions. */
static void add(struct plan *p, int layer, const char *name, enum role role, int n_dims, int64_t k, int64_t rows,
                int64_t n)
{
    struct item *t = &p->items[p->n_items++];
    *t = (struct item){.role = role, .type = choose(p, role, layer, k, n), .n_dims = n_dims, .ne = {k, rows, n}};
    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s", name);
    else
        snprintf(t->name, sizeof t->name, "blk.%d.%s", layer, name);
}

/* A tensor that a rule asks for, or one for each expert: NAME_exps.weight becomes NAME.I.weight. */
static void add_ruled(struct plan *p, int layer, const struct rule *r)
{
    const struct shape *s = p->shape;
    const int64_t k = size_of(s, r->in), rows = size_of(s, r->out), n = size_of(s, r->n);
    char name[48];
    if (r->n != N_EXPERTS || !s->apart) {
        add(p, layer, r->name, r->role, r->n ? 3 : r->out ? 2 : 1, k, rows, n);
        return;
    }
    for (int i = 0; i < s->n_expert; i++) {
        int stem = (int)(strlen(r->name) - strlen("_exps.weight"));
        snprintf(name, sizeof name, "%.*s.%d.weight", stem, r->name, i);
        add(p, layer, name, r->role, 2, k, rows, 1);
    }
}

int plan_tensors(struct plan *p, struct qn_error *e)
{
    const struct shape *s = p->shape;
    /* four of the whole model; where experts are apart, three for each */
    size_t most = 4 + (N_OF(s->family->rules) + N_OF(nextn_rules) + (s->apart ? 3 * (size_t)s->n_expert : 0)) *
                          (size_t)(p->n_layer + p->n_nextn);
    int64_t n_pairs = (s->n_rot ? s->n_rot : s->head_dim) / 2;

    p->items = mem_calloc(most, sizeof *p->items);
    if (!p->items) return error_nomem(e, "the list of tensors", most * sizeof *p->items);
    add(p, -1, "token_embd.weight", EMBED, 2, s->d_model, s->n_vocab, 1);
    if (s->rope_factor > 0) add(p, -1, "rope_freqs.weight", ROPE_FREQS, 1, n_pairs, 1, 1);
    for (int i = 0; i < p->n_layer + p->n_nextn; i++)
        for (const struct rule *r = s->family->rules; r->name; r++)
            if (is_in(p, i, r->when)) add_ruled(p, i, r);
    for (const struct rule *r = nextn_rules; r->name && p->n_nextn; r++) add_ruled(p, p->n_layer, r);
    add(p, -1, "output_norm.weight", NORM, 1, s->d_model, 1, 1);
    if (!s->tied) add(p, -1, "output.weight", OUTPUT, 2, s->d_model, s->n_vocab, 1);
    return 0;
}
