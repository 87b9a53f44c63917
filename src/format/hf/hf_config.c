/* SPDX-License-Identifier: MIT
 *
 * hf_config.c: reads the numbers of config.json, and writes them as GGUF keys.
 *
 * The type and range of every number are checked where it is read, under its name in config.json. Whether the numbers
 * fit together is checked where the metadata is read, as for any file. A configuration that asks for something that no
 * key of the metadata can say is refused, because the model would run and compute something else.
 *
 * Sources: the models' configuration classes in huggingface/transformers (names, defaults); the GGUF keys in
 * docs/FORMATS.md.
 */
#include "format/hf/hf_config.h"

#include <stdio.h>
#include <string.h>

#include "format/hf/hf_rope.h"
#include "format/hf/hf_value.h"

/* The object of config.json that describes the language model. A model that also sees or hears has one of its own. */
static const json_t *main_object(const json_t *config)
{
    const json_t *text = json_object_get(config, "text_config");
    return json_is_object(text) ? text : config;
}

static int find_family(struct hf_config *c, struct qn_error *e)
{
    char names[512];
    const char *type = json_string_value(json_object_get(c->main, "model_type"));
    if (!type) type = json_string_value(json_object_get(c->top, "model_type"));
    if (!type) return error_set(e, QN_EDATA, "config.json: no model_type");
    c->family = hf_family_find(type);
    if (!c->family)
        return error_set(e, QN_EUNSUP, "config.json: model_type '%.60s' is not supported, these are: %s", type,
                         hf_family_names(names, sizeof names));
    return 0;
}

/* WeDLM's network is Qwen3's or, without norms of the heads, Qwen2's. */
static int choose_arch(struct hf_config *c, struct hf_value *v)
{
    bool has_norm = true, has_bias = true, says = false;
    c->arch = c->family->arch;
    c->bias = -1;
    if (!(c->family->traits & HF_DIFFUSION)) return 0;
    int rc = hf_bool(v, "qk_norm", true, &has_norm);
    if (!rc && !has_norm) c->arch = "qwen2";
    if (!rc) rc = hf_bool(v, "attention_bias", true, &has_bias);
    if (!rc) rc = hf_bool(v, "attention_bias", false, &says);
    if (!rc && has_bias == says) c->bias = says;
    return rc;
}

int hf_config_read(struct hf_config *out, const json_t *config, struct qn_error *e)
{
    struct hf_config c = {.main = main_object(config), .top = config};
    struct hf_value v = {.object = c.main, .e = e};
    bool above = false;
    int rc = find_family(&c, e);
    if (rc || (rc = choose_arch(&c, &v))) return rc;
    if ((rc = hf_int(&v, "num_hidden_layers", 1, 512, HF_REQUIRED, &c.n_layer))) return rc;
    if ((c.family->traits & HF_DELTA) && (rc = hf_int(&v, "mtp_num_hidden_layers", 0, 1, 1, &c.n_mtp))) return rc;
    if ((rc = hf_bool(&v, "tie_word_embeddings", (c.family->traits & HF_TIED) != 0, &c.is_tied))) return rc;
    v.object = c.top; /* where they are nested, either object may say it */
    if (c.top != c.main && (rc = hf_bool(&v, "tie_word_embeddings", false, &above))) return rc;
    c.is_tied |= above;
    *out = c;
    return 0;
}

/* ---- keys ---- */

/* The source and the destination of the keys. */
struct writer {
    struct hf_config *c;
    struct hf_value v;
    struct meta_build *b;
    struct qn_error *e;
    char key[96];
};

static const char *key_of(struct writer *w, const char *name)
{
    snprintf(w->key, sizeof w->key, "%s.%s", w->c->arch, name);
    return w->key;
}

static int put_int(struct writer *w, const char *name, int v)
{
    return meta_build_u32(w->b, key_of(w, name), (uint32_t)v, w->e);
}

static int put_real(struct writer *w, const char *name, double v)
{
    return meta_build_f32(w->b, key_of(w, name), (float)v, w->e);
}

/* A number of config.json and its GGUF name. def: the default; HF_REQUIRED; or HF_ABSENT: no key when it is absent. */
struct int_row {
    const char *hf, *gguf;
    int lo, hi, def;
    unsigned traits; /* only for families with one of these traits; 0: for all */
};

static int put_ints(struct writer *w, const struct int_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int v, rc;
        if (rows[i].traits && !(w->c->family->traits & rows[i].traits)) continue;
        if ((rc = hf_int(&w->v, rows[i].hf, rows[i].lo, rows[i].hi, rows[i].def, &v))) return rc;
        if (v != HF_ABSENT && (rc = put_int(w, rows[i].gguf, v))) return rc;
    }
    return 0;
}

#define MAX_DIM (1 << 20)
#define MAX_CTX (1 << 28)

/* Puts the widths that every family has. Gemma 3's folders leave out numbers that are defaults of its class. */
static int put_shape(struct writer *w)
{
    bool gemma3 = w->c->family->traits & HF_GEMMA3, moe = w->c->family->traits & HF_EXPERTS;
    int heads, dim, rc;
    double eps;
    const struct int_row rows[] = {
        {"max_position_embeddings", "context_length", 1, MAX_CTX, gemma3 ? 131072 : HF_REQUIRED, 0},
        {"hidden_size", "embedding_length", 1, MAX_DIM, HF_REQUIRED, 0},
        {"intermediate_size", "feed_forward_length", 1, MAX_DIM, moe ? HF_ABSENT : HF_REQUIRED, 0},
        {"num_key_value_heads", "attention.head_count_kv", 1, 4096, gemma3 ? 4 : HF_ABSENT, 0},
        {"vocab_size", "vocab_size", 1, MAX_CTX, HF_REQUIRED, 0},
    };
    if ((rc = put_ints(w, rows, sizeof rows / sizeof rows[0]))) return rc;
    if ((rc = hf_int(&w->v, "num_attention_heads", 1, 4096, gemma3 ? 8 : HF_REQUIRED, &heads)) ||
        (rc = put_int(w, "attention.head_count", heads)))
        return rc;
    if ((rc = hf_real(&w->v, "rms_norm_eps", 0, 1, 1e-6, &eps)) ||
        (rc = put_real(w, "attention.layer_norm_rms_epsilon", eps)))
        return rc;
    int without = gemma3 || w->c->family->traits & (HF_GEMMA2 | HF_DELTA) ? 256 : HF_ABSENT;
    if (!strcmp(w->c->arch, "qwen3") || !strcmp(w->c->arch, "qwen3moe")) without = 128;
    if ((rc = hf_int(&w->v, "head_dim", 2, 512, without, &dim)) || dim == HF_ABSENT) return rc;
    if ((rc = put_int(w, "attention.key_length", dim))) return rc;
    return put_int(w, "attention.value_length", dim);
}

/* Checks that the activation is the one that the family's code computes. */
static int check_activation(struct writer *w)
{
    const char *wanted = w->c->family->traits & HF_GELU ? "gelu_pytorch_tanh" : "silu", *got = wanted;
    int rc = hf_text(&w->v, "hidden_act", &got);
    if (!rc && (w->c->family->traits & HF_GELU)) rc = hf_text(&w->v, "hidden_activation", &got);
    if (rc || !strcmp(got, wanted)) return rc;
    return error_set(w->e, QN_EUNSUP, "config.json: activation '%.40s' is not supported for '%s', %s is", got,
                     w->c->family->model_type, wanted);
}

/* Checks a switch that must have one value, or be absent. */
static int check_switch(struct writer *w, const char *name, bool wanted)
{
    bool v = wanted;
    int rc = hf_bool(&w->v, name, wanted, &v);
    if (rc || v == wanted) return rc;
    return error_set(w->e, QN_EUNSUP, "config.json: '%s' is %s, which is not supported for '%s'", name,
                     v ? "true" : "false", w->c->family->model_type);
}

/* Members of other models' configurations that change what is computed, each with the value that changes nothing. null,
 * 0 and false change nothing either. Families with one of the traits in read_by read the member themselves. */
static const struct {
    const char *name;
    double neutral;
    unsigned read_by;
} others[] = {
    {"attention_multiplier", 0, 0}, /* Granite */
    {"embedding_multiplier", 1, 0},
    {"residual_multiplier", 1, 0},
    {"logits_scaling", 1, 0},
    {"logit_scale", 1, 0}, /* Cohere */
    {"clip_qkv", 0, 0},    /* OLMo */
    {"attn_logit_softcapping", 0, HF_GEMMA2 | HF_GEMMA3},
    {"final_logit_softcapping", 0, HF_GEMMA2 | HF_GEMMA3},
    {"num_experts", 0, HF_EXPERTS},
    {"num_local_experts", 0, HF_EXPERTS},
    {"n_routed_experts", 0, HF_EXPERTS},
    {"attention_chunk_size", 0, 0}, /* Llama 4 */
    {"attn_temperature_tuning", 0, 0},
    {"no_rope_layer_interval", 0, 0}, /* SmolLM3 */
    {"alibi", 0, 0},
    {"use_bidirectional_attention", 0, HF_GEMMA2 | HF_GEMMA3},
};

static int check_others(struct writer *w)
{
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const json_t *j = json_object_get(w->c->main, others[i].name);
        double v = json_is_boolean(j) ? json_is_true(j) : json_number_value(j);
        if (others[i].read_by & w->c->family->traits || !j || json_is_null(j)) continue;
        if ((json_is_number(j) || json_is_boolean(j)) && (v == 0 || v == others[i].neutral)) continue;
        return error_set(w->e, QN_EUNSUP, "config.json: '%s' is %g, which is not supported for '%s'", others[i].name, v,
                         w->c->family->model_type);
    }
    return check_switch(w, "is_causal", true);
}

/* ---- windows ---- */

static const json_t *list_of(struct writer *w, const char *name)
{
    const json_t *list = json_object_get(w->c->main, name);
    return json_is_array(list) ? list : NULL;
}

/* *is: whether layer_types calls layer il `wanted`. Fails when it calls it neither that nor `other`. */
static int layer_is(struct writer *w, const json_t *types, int il, const char *wanted, const char *other, bool *is)
{
    const char *s = json_string_value(json_array_get(types, (size_t)il));
    *is = s && !strcmp(s, wanted);
    if (*is || (s && !strcmp(s, other))) return 0;
    return error_set(w->e, s ? QN_EUNSUP : QN_EDATA, "config.json: layer_types: layer %d is '%.40s', not '%s' or '%s'",
                     il, s ? s : "", wanted, other);
}

/* Puts a list of truth values under `name`: which layers are of the kind `wanted`. types must have one entry a layer.
 */
static int put_pattern(struct writer *w, const json_t *types, const char *name, const char *wanted, const char *other)
{
    bool is;
    if (json_array_size(types) != (size_t)w->c->n_layer)
        return error_set(w->e, QN_EDATA, "config.json: layer_types has %zu entries for %d layers",
                         json_array_size(types), w->c->n_layer);
    int rc = meta_build_array(w->b, key_of(w, name), MT_BOOL, w->e);
    for (int il = 0; !rc && il < w->c->n_layer; il++)
        if (!(rc = layer_is(w, types, il, wanted, other, &is))) rc = meta_build_add_bool(w->b, is, w->e);
    return rc;
}

/* Puts the window, and the layers that have it: Gemma has a pattern, other families have it everywhere or nowhere. */
static int put_window(struct writer *w)
{
    unsigned traits = w->c->family->traits;
    bool gemma = traits & (HF_GEMMA2 | HF_GEMMA3);
    int rc, n, period = traits & HF_GEMMA2 ? 2 : 6;
    const json_t *types = list_of(w, "layer_types");
    if (traits & HF_SWITCHED) return check_switch(w, "use_sliding_window", false);
    if (!gemma && !(traits & HF_WINDOW)) return 0;
    if ((rc = hf_int(&w->v, "sliding_window", 1, MAX_CTX, gemma ? 4096 : HF_ABSENT, &n)) || n == HF_ABSENT) return rc;
    if ((rc = put_int(w, "attention.sliding_window", n)) || !gemma) return rc;
    if (types) return put_pattern(w, types, "attention.sliding_window_pattern", "sliding_attention", "full_attention");
    if ((rc = hf_int(&w->v, "sliding_window_pattern", 1, 512, period, &period))) return rc;
    rc = meta_build_array(w->b, key_of(w, "attention.sliding_window_pattern"), MT_BOOL, w->e);
    for (int il = 0; !rc && il < w->c->n_layer; il++) rc = meta_build_add_bool(w->b, (il + 1) % period != 0, w->e);
    return rc;
}

/* ---- families ---- */

static int put_gemma(struct writer *w)
{
    double cap, scalar;
    int rc, dim;
    if ((rc = hf_int(&w->v, "head_dim", 2, 512, 256, &dim)) ||
        (rc = hf_real(&w->v, "query_pre_attn_scalar", 0, MAX_DIM, 256, &scalar)))
        return rc;
    if (scalar != dim && (rc = put_real(w, "attention.scale", 1 / __builtin_sqrt(scalar)))) return rc;
    /* Gemma 2 has both caps unless they are null, for which the metadata has 0. Gemma 3 has none. */
    static const struct {
        const char *name;
        double def;
    } caps[] = {{"attn_logit_softcapping", 50}, {"final_logit_softcapping", 30}};
    bool gemma2 = w->c->family->traits & HF_GEMMA2;
    for (size_t i = 0; i < 2; i++) {
        bool unset = json_is_null(json_object_get(w->c->main, caps[i].name));
        if ((rc = hf_real(&w->v, caps[i].name, 0, 1e6, gemma2 && !unset ? caps[i].def : 0, &cap))) return rc;
        if ((gemma2 || cap > 0) && (rc = put_real(w, caps[i].name, cap))) return rc;
    }
    return check_switch(w, "use_bidirectional_attention", false);
}

static int put_experts(struct writer *w)
{
    static const struct int_row rows[] = {
        {"num_experts", "expert_count", 1, 65536, HF_REQUIRED, 0},
        {"num_experts_per_tok", "expert_used_count", 1, 65536, HF_REQUIRED, 0},
        {"moe_intermediate_size", "expert_feed_forward_length", 1, MAX_DIM, HF_REQUIRED, 0},
        {"shared_expert_intermediate_size", "expert_shared_feed_forward_length", 1, MAX_DIM, HF_REQUIRED, HF_DELTA},
    };
    int rc, step;
    bool norm, delta = w->c->family->traits & HF_DELTA;
    if ((rc = put_ints(w, rows, sizeof rows / sizeof rows[0]))) return rc;
    if ((rc = hf_bool(&w->v, "norm_topk_prob", delta, &norm))) return rc;
    if (!norm) return error_set(w->e, QN_EUNSUP, "config.json: 'norm_topk_prob' is false, which is not supported");
    if ((rc = hf_int(&w->v, "decoder_sparse_step", 0, 512, 1, &step))) return rc;
    if (step != 1)
        return error_set(w->e, QN_EUNSUP, "config.json: 'decoder_sparse_step' is %d, only 1 is supported", step);
    if (json_array_size(json_object_get(w->c->main, "mlp_only_layers")))
        return error_set(w->e, QN_EUNSUP, "config.json: 'mlp_only_layers' names layers, which is not supported");
    return 0;
}

static int put_delta(struct writer *w, bool has_mtp)
{
    static const struct int_row rows[] = {
        {"linear_conv_kernel_dim", "ssm.conv_kernel", 1, 64, 4, 0},
        {"linear_key_head_dim", "ssm.state_size", 1, 4096, 128, 0},
        {"linear_num_key_heads", "ssm.group_count", 1, 4096, 16, 0},
        {"linear_num_value_heads", "ssm.time_step_rank", 1, 4096, 32, 0},
        {"full_attention_interval", "full_attention_interval", 1, 512, 4, 0},
    };
    int rc, n_heads, dim;
    const json_t *types = list_of(w, "layer_types");
    if ((rc = put_ints(w, rows, sizeof rows / sizeof rows[0]))) return rc;
    if ((rc = hf_int(&w->v, "linear_num_value_heads", 1, 4096, 32, &n_heads)) ||
        (rc = hf_int(&w->v, "linear_value_head_dim", 1, 4096, 128, &dim)) ||
        (rc = put_int(w, "ssm.inner_size", n_heads * dim)))
        return rc;
    if (types && (rc = put_pattern(w, types, "attention.recurrent_layers", "linear_attention", "full_attention")))
        return rc;
    if ((rc = check_switch(w, "attn_output_gate", true))) return rc;
    if (has_mtp && (rc = put_int(w, "nextn_predict_layers", w->c->n_mtp))) return rc;
    /* The checkpoint groups value heads: value head h reads key head h / (value heads of each key head). */
    return meta_build_bool(w->b, "quern.value_heads_grouped", true, w->e);
}

int hf_config_tokens(const struct hf_config *c, struct meta_build *b, struct qn_error *e)
{
    static const char key[] = "tokenizer.ggml.mask_token_id";
    struct hf_value v = {.object = c->main, .e = e};
    int rc, id;
    if (!(c->family->traits & HF_DIFFUSION)) return 0;
    if ((rc = hf_int(&v, "mask_token_id", 0, MAX_CTX, HF_ABSENT, &id))) return rc;
    if ((rc = meta_build_bool(b, "quern.wedlm", true, e))) return rc;
    if (id == HF_ABSENT || meta_build_has(b, key)) return 0;
    return meta_build_u32(b, key, (uint32_t)id, e);
}

int hf_config_meta(struct hf_config *c, struct meta_build *b, bool has_mtp, struct qn_error *e)
{
    struct writer w = {.c = c, .v = {.object = c->main, .e = e}, .b = b, .e = e};
    unsigned traits = c->family->traits;
    int rc;
    if ((rc = meta_build_str(b, "general.architecture", c->arch, strlen(c->arch), e)) ||
        (rc = put_int(&w, "block_count", c->n_layer + (has_mtp ? c->n_mtp : 0))) || (rc = put_shape(&w)) ||
        (rc = check_activation(&w)) || (rc = check_others(&w)) || (rc = put_window(&w)) || (rc = hf_rope_meta(c, b, e)))
        return rc;
    if ((traits & (HF_GEMMA2 | HF_GEMMA3)) && (rc = put_gemma(&w))) return rc;
    if ((traits & HF_EXPERTS) && (rc = put_experts(&w))) return rc;
    return traits & HF_DELTA ? put_delta(&w, has_mtp) : 0;
}
