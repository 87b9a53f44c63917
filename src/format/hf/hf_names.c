/* SPDX-License-Identifier: MIT
 *
 * hf_names.c: the tables of families and tensor names.
 *
 * A name is [prefix.]layers.N.REST or [prefix.]REST, and REST is looked up in the family's lists. Most entries stand
 * for a name with `.weight` or `.bias` after it. A `#` in an entry stands for the number of an expert, which is kept.
 *
 * Sources: the models' code in huggingface/transformers (names of parameters), the tensor names of GGUF
 * (docs/FORMATS.md).
 */
#include "format/hf/hf_names.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hf_row {
    const char *hf; /* NULL ends a list */
    const char *gguf;
    enum hf_change change;
    bool whole; /* both names are complete: no .weight or .bias follows */
};

/* clang-format off: one row a line */
static const struct hf_row outside[] = {
    {"embed_tokens", "token_embd", HF_KEEP, false},
    {"norm", "output_norm", HF_NORM, false},
    {"lm_head", "output", HF_KEEP, false},
    {0},
};
static const struct hf_row attention[] = {
    {"input_layernorm", "attn_norm", HF_NORM, false},    {"self_attn.q_proj", "attn_q", HF_KEEP, false},
    {"self_attn.k_proj", "attn_k", HF_KEEP, false},      {"self_attn.v_proj", "attn_v", HF_KEEP, false},
    {"self_attn.o_proj", "attn_output", HF_KEEP, false}, {"self_attn.q_norm", "attn_q_norm", HF_NORM, false},
    {"self_attn.k_norm", "attn_k_norm", HF_NORM, false}, {0},
};
static const struct hf_row dense[] = {
    {"mlp.gate_proj", "ffn_gate", HF_KEEP, false},
    {"mlp.up_proj", "ffn_up", HF_KEEP, false},
    {"mlp.down_proj", "ffn_down", HF_KEEP, false},
    {0},
};
static const struct hf_row plain_norms[] = {{"post_attention_layernorm", "ffn_norm", HF_NORM, false}, {0}};
static const struct hf_row hybrid_norms[] = {
    {"post_attention_layernorm", "post_attention_norm", HF_NORM, false},
    {0},
};
static const struct hf_row sandwich_norms[] = {
    {"post_attention_layernorm", "post_attention_norm", HF_NORM, false},
    {"pre_feedforward_layernorm", "ffn_norm", HF_NORM, false},
    {"post_feedforward_layernorm", "post_ffw_norm", HF_NORM, false},
    {0},
};
/* gate_up_proj [expert][gate rows, up rows][in] is what GGUF calls ffn_gate_up_exps. */
static const struct hf_row experts[] = {
    {"mlp.gate", "ffn_gate_inp", HF_KEEP, false},
    {"mlp.experts.#.gate_proj", "ffn_gate.#", HF_KEEP, false},
    {"mlp.experts.#.up_proj", "ffn_up.#", HF_KEEP, false},
    {"mlp.experts.#.down_proj", "ffn_down.#", HF_KEEP, false},
    {"mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight", HF_KEEP, true},
    {"mlp.experts.down_proj", "ffn_down_exps.weight", HF_KEEP, true},
    {"mlp.switch_mlp.gate_proj", "ffn_gate_exps", HF_KEEP, false}, /* as MLX writes them */
    {"mlp.switch_mlp.up_proj", "ffn_up_exps", HF_KEEP, false},
    {"mlp.switch_mlp.down_proj", "ffn_down_exps", HF_KEEP, false},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp", HF_KEEP, false},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp", HF_KEEP, false},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp", HF_KEEP, false},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp", HF_FLOAT, false},
    {0},
};
static const struct hf_row delta[] = {
    {"linear_attn.in_proj_qkvz", "ssm_in", HF_KEEP, false},
    {"linear_attn.in_proj_ba", "ssm_ba", HF_KEEP, false},
    {"linear_attn.in_proj_qkv", "attn_qkv", HF_KEEP, false},
    {"linear_attn.in_proj_z", "attn_gate", HF_KEEP, false},
    {"linear_attn.in_proj_b", "ssm_beta", HF_KEEP, false},
    {"linear_attn.in_proj_a", "ssm_alpha", HF_KEEP, false},
    {"linear_attn.conv1d", "ssm_conv1d", HF_FLOAT, false},
    {"linear_attn.A_log", "ssm_a", HF_DECAY, true},
    {"linear_attn.dt_bias", "ssm_dt.bias", HF_FLOAT, true},
    {"linear_attn.norm", "ssm_norm", HF_FLOAT, false}, /* not centred on 0 */
    {"linear_attn.out_proj", "ssm_out", HF_KEEP, false},
    {0},
};
/* The block that predicts a second token. The layer inside it is looked up in the other lists. */
static const struct hf_row mtp[] = {
    {"fc", "nextn.eh_proj", HF_KEEP, false},
    {"pre_fc_norm_embedding", "nextn.enorm", HF_NORM, false},
    {"pre_fc_norm_hidden", "nextn.hnorm", HF_NORM, false},
    {"norm", "nextn.shared_head_norm", HF_NORM, false},
    {0},
};

static const struct hf_row *const llama_rows[] = {attention, plain_norms, dense, NULL};
static const struct hf_row *const moe_rows[] = {attention, plain_norms, experts, NULL};
static const struct hf_row *const gemma_rows[] = {attention, sandwich_norms, dense, NULL};
static const struct hf_row *const hybrid_rows[] = {attention, hybrid_norms, dense, delta, NULL};
static const struct hf_row *const hybrid_moe_rows[] = {attention, hybrid_norms, experts, delta, NULL};

#define HYBRID (HF_CENTRED | HF_DELTA)
#define GEMMA  (HF_CENTRED | HF_GELU | HF_TIED)
static const struct hf_family families[] = {
    {"llama", "llama", 0, llama_rows},
    {"mistral", "llama", HF_WINDOW, llama_rows},
    {"qwen2", "qwen2", HF_SWITCHED, llama_rows},
    {"qwen3", "qwen3", HF_SWITCHED, llama_rows},
    {"wedlm", "qwen3", HF_SWITCHED | HF_DIFFUSION, llama_rows},
    {"qwen3_moe", "qwen3moe", HF_SWITCHED | HF_EXPERTS, moe_rows},
    {"qwen3_next", "qwen3next", HYBRID | HF_EXPERTS, hybrid_moe_rows},
    {"qwen3_5", "qwen35", HYBRID, hybrid_rows},
    {"qwen3_5_text", "qwen35", HYBRID, hybrid_rows},
    {"qwen3_5_moe", "qwen35moe", HYBRID | HF_EXPERTS, hybrid_moe_rows},
    {"qwen3_5_moe_text", "qwen35moe", HYBRID | HF_EXPERTS, hybrid_moe_rows},
    {"gemma2", "gemma2", GEMMA | HF_GEMMA2, gemma_rows},
    {"gemma3", "gemma3", GEMMA | HF_GEMMA3, gemma_rows},
    {"gemma3_text", "gemma3", GEMMA | HF_GEMMA3, gemma_rows},
};
/* clang-format on */

const struct hf_family *hf_family_find(const char *model_type)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (!strcmp(families[i].model_type, model_type)) return &families[i];
    return NULL;
}

const char *hf_family_names(char *buf, size_t bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        n += (size_t)snprintf(buf + n, bytes - n, "%s%s", i ? ", " : "", families[i].model_type);
        assert(n < bytes);
    }
    return buf;
}

/* ---- one name ---- */

/* Whether s begins with prefix. If so, *rest is the text after it. */
static bool after(const char *s, const char *prefix, const char **rest)
{
    size_t n = strlen(prefix);
    if (strncmp(s, prefix, n)) return false;
    *rest = s + n;
    return true;
}

/* Reads a number below 10^5 without leading zeros, which must end at a dot. */
static bool number(const char *s, int *v, const char **rest)
{
    size_t n = strspn(s, "0123456789");
    if (n < 1 || n > 5 || s[n] != '.' || (*s == '0' && n > 1)) return false;
    *v = atoi(s);
    *rest = s + n;
    return true;
}

/* Whether `rest` is the row's name. *end: what follows it: "" when the row is whole, else ".weight" or ".bias".
 * *expert: the number that the `#` stands for. */
static bool matches(const struct hf_row *row, const char *rest, int *expert, const char **end)
{
    const char *p = row->hf;
    for (; *p; p++) {
        if (*p == '#') {
            if (!number(rest, expert, &rest)) return false;
        } else if (*rest++ != *p) {
            return false;
        }
    }
    *end = rest;
    return row->whole ? !*rest : !strcmp(rest, ".weight") || !strcmp(rest, ".bias");
}

/* Looks `rest` up in one list; il: the block that it is in, -1 outside. */
static bool look_up(const struct hf_row *rows, int il, const char *rest, struct hf_role *out)
{
    for (const struct hf_row *r = rows; r->hf; r++) {
        int expert = 0;
        const char *end, *mark = strchr(r->gguf, '#');
        char block[16] = "", number[16] = "";
        if (!matches(r, rest, &expert, &end)) continue;
        if (il >= 0) snprintf(block, sizeof block, "blk.%d.", il);
        if (mark) snprintf(number, sizeof number, "%d", expert);
        int stem = mark ? (int)(mark - r->gguf) : (int)strlen(r->gguf);
        int n = snprintf(out->name, sizeof out->name, "%s%.*s%s%s", block, stem, r->gguf, number, end);
        if (n >= (int)sizeof out->name) return false;
        out->change = r->change;
        return true;
    }
    return false;
}

static bool in_layer(const struct hf_family *f, int il, const char *rest, struct hf_role *out)
{
    const char *tail;
    if (after(rest, "self_attn.rotary_emb.", &tail)) return true; /* computed */
    for (const struct hf_row *const *rows = f->rows; *rows; rows++)
        if (look_up(*rows, il, rest, out)) return true;
    return false;
}

/* Whether a tensor is for images or sound. Models that see or hear have everything in one folder. */
static bool is_other_sense(const char *name)
{
    static const char *const prefixes[] = {"visual.",       "model.visual.",       "vision_tower.",
                                           "vision_model.", "model.vision_tower.", "multi_modal_projector.",
                                           "audio_tower.",  "model.audio_tower.",  "model.multi_modal_projector."};
    const char *rest;
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (after(name, prefixes[i], &rest)) return true;
    return false;
}

bool hf_role_of(const struct hf_family *f, int n_layer, const char *name, struct hf_role *out)
{
    const char *rest;
    int il;
    *out = (struct hf_role){0};
    if (is_other_sense(name)) return true;
    if ((f->traits & HF_DELTA) && after(name, "mtp.", &rest)) {
        if (after(rest, "layers.0.", &rest)) return in_layer(f, n_layer, rest, out);
        return look_up(mtp, n_layer, rest, out);
    }
    /* A model that also sees has one of these prefixes before the tensors of its language model. */
    if (!after(name, "model.language_model.", &rest) && !after(name, "language_model.model.", &rest) &&
        !after(name, "language_model.", &rest) && !after(name, "model.", &rest))
        rest = name;
    if (!after(rest, "layers.", &rest)) return look_up(outside, -1, rest, out);
    if (!number(rest, &il, &rest) || il >= n_layer) return false;
    return in_layer(f, il, rest + 1, out);
}
