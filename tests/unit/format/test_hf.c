/* SPDX-License-Identifier: MIT
 *
 * test_hf.c: Hugging Face folders: configurations to metadata, names to roles, shards and their index, and every
 * refusal.
 *
 * Whole models are compared with their GGUF files in tests/golden; here the parts are fed one by one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "format/hf/hf_config.h"
#include "format/hf/hf_json.h"
#include "format/hf/hf_packed.h"
#include "format/hf/hf_shards.h"
#include "format/file/meta.h"
#include "format/weights.h"

/* ---- config.json ---- */

#define REST_OF_QWEN3                                                                                                  \
    "\"num_hidden_layers\":2,\"hidden_size\":64,\"intermediate_size\":96,\"num_attention_heads\":4,"                   \
    "\"num_key_value_heads\":2,\"vocab_size\":512,\"max_position_embeddings\":128"
#define QWEN3 "\"model_type\":\"qwen3\"," REST_OF_QWEN3
#define LLAMA                                                                                                          \
    "\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":64,\"intermediate_size\":96,"                    \
    "\"num_attention_heads\":4,\"vocab_size\":512,\"max_position_embeddings\":128,\"rms_norm_eps\":1e-5"

static int read_config(const char *text, struct hf_config *c, struct meta_list *l, struct qn_error *e)
{
    struct meta_build b = {0};
    json_t *j;
    int rc = hf_json_parse(&j, "config.json", text, strlen(text), e);
    if (rc) return rc;
    if (!(rc = hf_config_read(c, j, e)) && !(rc = hf_config_meta(c, &b, false, e)) &&
        !(rc = hf_config_tokens(c, &b, e)))
        rc = meta_build_finish(&b, l, e);
    meta_build_deinit(&b);
    json_decref(j);
    return rc;
}

static void bad(const char *text, int code, const char *message)
{
    struct hf_config c;
    struct meta_list l;
    struct qn_error e = {0};
    int rc = read_config(text, &c, &l, &e);
    if (rc != code || !strstr(e.msg, message)) fail_msg("%d %s\nis not: %d %s", rc, e.msg, code, message);
}

static const struct meta *find(const struct meta_list *l, const char *key)
{
    uint32_t i;
    return names_find(&l->keys, (struct str){key, strlen(key)}, &i) ? &l->meta[i] : NULL;
}

static double number(const struct meta_list *l, const char *key)
{
    const struct meta *m = find(l, key);
    int64_t n;
    double v;
    if (!m) fail_msg("no %s", key);
    if (!meta_elem_i64(m, 0, &n, NULL)) return (double)n;
    assert_int_equal(meta_elem_f64(m, 0, &v, NULL), 0);
    return v;
}

static void is_text(const struct meta_list *l, const char *key, const char *wanted)
{
    uint64_t cursor = 0;
    struct str s;
    assert_true(find(l, key) && meta_next_str(find(l, key), &cursor, &s));
    if (s.n != strlen(wanted) || memcmp(s.p, wanted, s.n)) fail_msg("%s: %.*s", key, (int)s.n, s.p);
}

static void good(const char *text, struct hf_config *c, struct meta_list *l)
{
    struct qn_error e = {0};
    int rc = read_config(text, c, l, &e);
    if (rc) fail_msg("%s", e.msg);
}

static void test_config(void **state)
{
    (void)state;
    struct hf_config c;
    struct meta_list l;
    good("{" QWEN3 ",\"rope_theta\":1e6}", &c, &l);
    is_text(&l, "general.architecture", "qwen3");
    assert_true(number(&l, "qwen3.block_count") == 2 && number(&l, "qwen3.attention.key_length") == 128);
    assert_true(number(&l, "qwen3.rope.freq_base") == 1e6 && number(&l, "qwen3.rope.dimension_count") == 128);
    assert_null(find(&l, "quern.wedlm"));
    assert_true(!c.is_tied && !c.n_freqs && !find(&l, "quern.rope_half_split"));
    assert_null(find(&l, "qwen3.attention.sliding_window"));
    meta_list_deinit(&l);

    good("{" LLAMA ",\"tie_word_embeddings\":true,\"head_dim\":null,\"sliding_window\":8}", &c, &l);
    assert_true(c.is_tied && number(&l, "quern.rope_half_split") == 1);
    assert_true(number(&l, "llama.rope.dimension_count") == 16 && number(&l, "llama.rope.freq_base") == 1e4);
    assert_true((float)number(&l, "llama.attention.layer_norm_rms_epsilon") == 1e-5f);
    assert_null(find(&l, "llama.attention.key_length"));
    assert_null(find(&l, "llama.attention.sliding_window")); /* the class has none */
    meta_list_deinit(&l);

    good("{\"model_type\":\"mistral\",\"sliding_window\":8," REST_OF_QWEN3 "}", &c, &l);
    assert_true(number(&l, "llama.attention.sliding_window") == 8);
    meta_list_deinit(&l);

    good("{\"model_type\":\"wedlm\",\"qk_norm\":false,\"mask_token_id\":7," REST_OF_QWEN3 "}", &c, &l);
    is_text(&l, "general.architecture", "qwen2");
    assert_non_null(find(&l, "quern.wedlm"));
    assert_int_equal(c.bias, -1);
    assert_true(number(&l, "tokenizer.ggml.mask_token_id") == 7 && number(&l, "qwen2.block_count") == 2);
    meta_list_deinit(&l);
    good("{\"model_type\":\"wedlm\"," REST_OF_QWEN3 "}", &c, &l);
    is_text(&l, "general.architecture", "qwen3");
    assert_null(find(&l, "tokenizer.ggml.mask_token_id"));
    meta_list_deinit(&l);
}

/* What other models' configurations have does no harm where it changes nothing. */
static void test_config_neutral(void **state)
{
    (void)state;
    struct hf_config c;
    struct meta_list l;
    good("{" QWEN3
         ",\"is_causal\":true,\"embedding_multiplier\":1.0,\"clip_qkv\":null,\"num_experts\":0,\"alibi\":false}",
         &c, &l);
    meta_list_deinit(&l);
}

static void test_config_refusals(void **state)
{
    (void)state;
    bad("", QN_EDATA, "config.json: line 1: ");
    bad("[]", QN_EDATA, "config.json: not a JSON object");
    bad("{}", QN_EDATA, "no model_type");
    bad("{\"model_type\":7}", QN_EDATA, "no model_type");
    bad("{\"model_type\":\"bert\"}", QN_EUNSUP, "model_type 'bert' is not supported, these are: llama, ");
    bad("{\"model_type\":\"qwen3\"," QWEN3 "}", QN_EDATA, "duplicate object key");
    bad("{\"model_type\":\"qwen3\"}", QN_EDATA, "'num_hidden_layers' is missing");
    bad("{\"model_type\":\"qwen3\",\"num_hidden_layers\":2}", QN_EDATA, "'max_position_embeddings' is missing");
    bad("{\"model_type\":\"qwen3\",\"num_hidden_layers\":-2}", QN_EDATA, "'num_hidden_layers' is -2, not 1 to 512");
    bad("{\"model_type\":\"qwen3\",\"num_hidden_layers\":4611686018427387904}", QN_EDATA,
        "'num_hidden_layers' is 4611686018427387904, not 1 to 512");
    bad("{\"model_type\":\"qwen3\",\"num_hidden_layers\":99999999999999999999}", QN_EDATA, "is not an integer");
    bad("{\"model_type\":\"qwen3\",\"num_hidden_layers\":\"2\"}", QN_EDATA, "'num_hidden_layers' is not an integer");
    bad("{" QWEN3 ",\"rope_theta\":-1}", QN_EDATA, "'rope_theta' is -1, not in (1, 1e+30]");
    bad("{" QWEN3 ",\"rope_theta\":\"x\"}", QN_EDATA, "'rope_theta' is not a number");
    bad("{" QWEN3 ",\"rms_norm_eps\":0}", QN_EDATA, "'rms_norm_eps' is 0, not in (0, 1]");
    bad("{" QWEN3 ",\"head_dim\":1000000}", QN_EDATA, "'head_dim' is 1000000, not 2 to 512");
    bad("{" QWEN3 ",\"tie_word_embeddings\":1}", QN_EDATA, "'tie_word_embeddings' is not true or false");
    bad("{" QWEN3 ",\"hidden_act\":\"gelu\"}", QN_EUNSUP, "activation 'gelu' is not supported for 'qwen3', silu is");
    bad("{" QWEN3 ",\"use_sliding_window\":true}", QN_EUNSUP, "'use_sliding_window' is true");
    bad("{" QWEN3 ",\"is_causal\":false}", QN_EUNSUP, "'is_causal' is false, which is not supported for 'qwen3'");
    bad("{" QWEN3 ",\"embedding_multiplier\":12.0}", QN_EUNSUP, "'embedding_multiplier' is 12, which is not supported");
    bad("{" QWEN3 ",\"final_logit_softcapping\":30}", QN_EUNSUP, "'final_logit_softcapping' is 30");
    bad("{" QWEN3 ",\"num_experts\":8}", QN_EUNSUP, "'num_experts' is 8");
    bad("{" QWEN3 ",\"clip_qkv\":[8]}", QN_EUNSUP, "'clip_qkv' is 0, which is not supported");
    bad("{" QWEN3 ",\"alibi\":true}", QN_EUNSUP, "'alibi' is 1");
    bad("{" QWEN3 ",\"rope_scaling\":7}", QN_EDATA, "the rotation's parameters are not an object");
    bad("{" QWEN3 ",\"rope_scaling\":{\"type\":\"dynamic\"}}", QN_EUNSUP,
        "rotation of type 'dynamic' is not supported");
    bad("{" QWEN3 ",\"rope_scaling\":{\"type\":\"linear\"}}", QN_EDATA, "the rotation's scaling has no 'factor'");
    bad("{" QWEN3 ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"truncate\":0}}", QN_EDATA,
        "'truncate' is not true or false");
    bad("{" QWEN3 ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"attn_factor\":1.2}}", QN_EUNSUP,
        "yarn with 'attn_factor' 1.2 is not supported");
    bad("{" QWEN3 ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"extrapolation_factor\":0.5}}", QN_EUNSUP,
        "yarn with 'extrapolation_factor' 0.5 is not supported");
    bad("{" QWEN3 ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"apply_yarn_scaling\":false}}", QN_EUNSUP,
        "yarn with 'apply_yarn_scaling' false is not supported");
    bad("{" QWEN3 ",\"rope_scaling\":{\"type\":\"longrope\",\"long_factor\":[1]}}", QN_EDATA,
        "'long_factor' has 1 factors for 64 pairs");
    bad("{" QWEN3 ",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4}}", QN_EDATA,
        "'high_freq_factor' is 4, not above 'low_freq_factor' 4");
    bad("{\"model_type\":\"qwen3_moe\",\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":"
        "32," REST_OF_QWEN3 "}",
        QN_EUNSUP, "'norm_topk_prob' is false");
    bad("{\"model_type\":\"qwen3_moe\",\"norm_topk_prob\":true,\"num_experts\":8,\"num_experts_per_tok\":2,"
        "\"moe_intermediate_size\":32,\"mlp_only_layers\":[1]," REST_OF_QWEN3 "}",
        QN_EUNSUP, "'mlp_only_layers'");
    bad("{\"model_type\":\"qwen3_5_text\",\"layer_types\":[\"full_attention\"]," REST_OF_QWEN3 "}", QN_EDATA,
        "layer_types has 1 entries for 2 layers");
    bad("{\"model_type\":\"gemma3_text\",\"layer_types\":[\"full_attention\",\"chunked\"]," REST_OF_QWEN3 "}",
        QN_EUNSUP, "layer 1 is 'chunked', not 'sliding_attention' or 'full_attention'");
}

/* ---- rotation ---- */

static void test_rope(void **state)
{
    (void)state;
    struct hf_config c;
    struct meta_list l;
    /* Beside the definition in plain double arithmetic: 16 dimensions, base 10000; waves 2 pi 10^(i/2). */
    good("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
         "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":512}}",
         &c, &l);
    assert_int_equal(c.n_freqs, 8);
    assert_true(c.freqs[0] == 1 && c.freqs[2] == 1); /* waves up to 62.8 are below 512 / 4 */
    double wave = 6.283185307179586 * 31.622776601683793, smooth = (512 / wave - 1) / 3;
    assert_true(c.freqs[3] == (float)(1 / ((1 - smooth) / 8 + smooth)));
    assert_true(c.freqs[4] == 8 && c.freqs[7] == 8); /* 628 is above 512 */
    meta_list_deinit(&l);

    good("{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":4,\"rope_theta\":5e5,"
         "\"attention_factor\":1.0,\"partial_rotary_factor\":0.5,\"original_max_position_embeddings\":32}}",
         &c, &l);
    is_text(&l, "llama.rope.scaling.type", "yarn");
    assert_true(number(&l, "llama.rope.scaling.factor") == 4 && number(&l, "llama.rope.freq_base") == 5e5);
    assert_true(number(&l, "llama.rope.dimension_count") == 8);
    assert_true(number(&l, "llama.rope.scaling.original_context_length") == 32);
    assert_true(number(&l, "llama.rope.scaling.yarn_attn_factor") == 1);
    assert_null(find(&l, "llama.rope.scaling.attn_factor"));
    assert_null(find(&l, "quern.rope_yarn_truncate"));
    meta_list_deinit(&l);

    /* gpt-oss's range; DeepSeek's way to say what cos and sin are multiplied with. */
    good("{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":32,\"truncate\":false,\"attn_factor\":1,"
         "\"beta_fast\":32.0,\"beta_slow\":1.0,\"original_max_position_embeddings\":4096}}",
         &c, &l);
    const struct meta *truncate = find(&l, "quern.rope_yarn_truncate");
    assert_true(truncate && truncate->type == MT_BOOL && truncate->data[0] == 0);
    assert_null(find(&l, "llama.rope.scaling.yarn_attn_factor"));
    meta_list_deinit(&l);
    good("{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":40,\"truncate\":true,\"mscale\":1.0,"
         "\"mscale_all_dim\":0.707}}",
         &c, &l);
    double ln40 = 3.6888794541139363;
    assert_true((float)number(&l, "llama.rope.scaling.yarn_attn_factor") ==
                (float)((1 + 0.1 * ln40) / (1 + 0.0707 * ln40)));
    assert_null(find(&l, "quern.rope_yarn_truncate"));
    meta_list_deinit(&l);

    /* Gemma 3, its parts left out, below text_config, and with two rotations. */
    good("{\"model_type\":\"gemma3\",\"text_config\":{\"model_type\":\"gemma3_text\",\"num_hidden_layers\":7,"
         "\"vocab_size\":99,\"hidden_size\":64,\"intermediate_size\":96,\"query_pre_attn_scalar\":144,"
         "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8,\"rope_theta\":2e6},"
         "\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":2e4}}}}",
         &c, &l);
    assert_true(number(&l, "gemma3.rope.freq_base") == 2e6 && number(&l, "gemma3.rope.freq_base_swa") == 2e4);
    assert_true(number(&l, "gemma3.rope.scaling.factor") == 8 && number(&l, "gemma3.attention.head_count") == 8);
    assert_true((float)number(&l, "gemma3.attention.scale") == (float)(1.0 / 12) && c.is_tied);
    assert_int_equal(find(&l, "gemma3.attention.sliding_window_pattern")->n, 7);
    for (uint64_t i = 0; i < 7; i++) {
        int64_t is_local;
        meta_elem_i64(find(&l, "gemma3.attention.sliding_window_pattern"), i, &is_local, NULL);
        assert_int_equal(is_local, i != 5);
    }
    meta_list_deinit(&l);
}

/* ---- names ---- */

static void role(const char *type, const char *name, const char *wanted, enum hf_change change)
{
    struct hf_role r;
    bool found = hf_role_of(hf_family_find(type), 4, name, &r);
    if (!wanted) {
        if (found) fail_msg("%s is %s", name, r.name);
        return;
    }
    if (!found || strcmp(r.name, wanted)) fail_msg("%s is %s, not %s", name, found ? r.name : "unknown", wanted);
    assert_int_equal(r.change, change);
}

static void test_names(void **state)
{
    (void)state;
    role("llama", "model.embed_tokens.weight", "token_embd.weight", HF_KEEP);
    role("llama", "model.layers.3.self_attn.q_proj.bias", "blk.3.attn_q.bias", HF_KEEP);
    role("llama", "model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight", HF_NORM);
    role("llama", "model.layers.0.self_attn.rotary_emb.inv_freq", "", HF_KEEP);
    role("llama", "lm_head.weight", "output.weight", HF_KEEP);
    role("llama", "model.layers.4.self_attn.q_proj.weight", NULL, 0);
    role("llama", "model.layers.00.self_attn.q_proj.weight", NULL, 0);
    role("llama", "model.layers.99999999999.self_attn.q_proj.weight", NULL, 0);
    role("llama", "model.layers.0.self_attn.q_proj.qweight", NULL, 0);
    role("llama", "model.layers.0.self_attn.q_proj", NULL, 0);
    role("llama", "model.layers.0.mlp.experts.1.gate_proj.weight", NULL, 0);
    role("llama", "mtp.fc.weight", NULL, 0);
    role("qwen3_moe", "model.layers.1.mlp.experts.127.down_proj.weight", "blk.1.ffn_down.127.weight", HF_KEEP);
    role("qwen3_moe", "model.layers.1.mlp.experts..down_proj.weight", NULL, 0);
    role("qwen3_moe", "model.layers.1.mlp.experts.gate_up_proj", "blk.1.ffn_gate_up_exps.weight", HF_KEEP);
    role("qwen3_moe", "model.layers.1.mlp.gate.weight", "blk.1.ffn_gate_inp.weight", HF_KEEP);
    role("gemma2", "model.layers.0.post_attention_layernorm.weight", "blk.0.post_attention_norm.weight", HF_NORM);
    role("gemma2", "model.layers.0.pre_feedforward_layernorm.weight", "blk.0.ffn_norm.weight", HF_NORM);
    role("gemma3", "language_model.model.layers.0.mlp.up_proj.weight", "blk.0.ffn_up.weight", HF_KEEP);
    role("gemma3", "vision_tower.vision_model.post_layernorm.weight", "", HF_KEEP);
    role("qwen3_5", "model.language_model.layers.0.linear_attn.A_log", "blk.0.ssm_a", HF_DECAY);
    role("qwen3_5", "model.language_model.layers.0.linear_attn.dt_bias", "blk.0.ssm_dt.bias", HF_FLOAT);
    role("qwen3_5", "model.language_model.layers.0.linear_attn.norm.weight", "blk.0.ssm_norm.weight", HF_FLOAT);
    role("qwen3_5", "mtp.layers.0.self_attn.k_norm.weight", "blk.4.attn_k_norm.weight", HF_NORM);
    role("qwen3_5", "mtp.pre_fc_norm_hidden.weight", "blk.4.nextn.hnorm.weight", HF_NORM);
    role("qwen3_5", "mtp.layers.1.self_attn.k_norm.weight", NULL, 0);
    role("qwen3_5", "model.visual.blocks.0.attn.qkv.weight", "", HF_KEEP);
}

/* ---- packed weights ---- */

#define U32_TENSOR(n, rows, words)                                                                                     \
    {                                                                                                                  \
        .name = n, .type_name = "U32", .type = -1, .is_u32 = true, .n_dims = 2, .dim = { rows, words }                 \
    }
#define SIDE_TENSOR(n, t, rows, groups)                                                                                \
    {                                                                                                                  \
        .name = n, .type_name = "F", .type = t, .n_dims = 2, .dim = { rows, groups }                                   \
    }

/* The first of some tensors as packed under this configuration. */
static int view(const char *quantization, const struct st_tensor *const *t, size_t n, enum dtype *type, int64_t *k,
                struct side *side, struct qn_error *e)
{
    json_t *top = json_object();
    struct hf_config c = {.main = top, .top = top};
    struct hf_packed p;
    if (quantization) json_object_set_new(top, "quantization", json_loads(quantization, JSON_DECODE_ANY, NULL));
    int rc = hf_packed_read(&p, &c, t, n, e);
    if (!rc) {
        rc = hf_packed_view(&p, t[0], type, k, side, e);
        for (size_t i = 0; i < n; i++)
            if (hf_packed_is_part(&p, t[i]->name) != (quantization && i > 0))
                fail_msg("%s: %s", quantization, t[i]->name);
        hf_packed_deinit(&p);
    }
    json_decref(top);
    return rc;
}

static void test_packed(void **state)
{
    (void)state;
    static const uint8_t data[2];
    struct st_tensor w = U32_TENSOR("m.weight", 3, 24), s = SIDE_TENSOR("m.scales", DT_BF16, 3, 4),
                     b = SIDE_TENSOR("m.biases", DT_BF16, 3, 4);
    const struct st_tensor *const all[] = {&w, &s, &b};
    struct side side = {0};
    struct qn_error e = {0};
    enum dtype type = DT_F32;
    int64_t k = 24;
    s.data = data, b.data = data + 1;
    assert_int_equal(view(NULL, all, 3, &type, &k, &side, &e), 0);
    assert_true(type == DT_F32 && k == 24 && !side.scale);
    assert_int_equal(view("{\"group_size\":64,\"bits\":3}", all, 3, &type, &k, &side, &e), 1);
    assert_true(type == DT_MLX3 && k == 256 && side.group == 64 && side.type == DT_BF16);
    assert_true(side.scale == data && side.bias == data + 1);
    s.dim[1] = b.dim[1] = 3; /* an own entry; 24 words are 96 codes of 8 bits */
    assert_int_equal(
        view("{\"group_size\":64,\"bits\":3,\"m\":{\"group_size\":32,\"bits\":8}}", all, 3, &type, &k, &side, &e), 1);
    assert_true(type == DT_MLX8 && k == 96 && side.group == 32);

    static const struct {
        const char *config, *message;
        int n, code;
    } bad_ones[] = {
        {"{\"bits\":8}", "'group_size' is missing", 3, QN_EDATA},
        {"{\"group_size\":32,\"bits\":7}", "packed 7 bits in groups of 32", 3, QN_EUNSUP},
        {"{\"group_size\":33,\"bits\":8}", "packed 8 bits in groups of 33", 3, QN_EUNSUP},
        {"{\"group_size\":32,\"bits\":8,\"m\":{\"bits\":\"8\"}}", "'bits' is not an integer", 3, QN_EDATA},
        {"{\"group_size\":32,\"bits\":5}", "rows of 24 words are not whole groups of 32 of 5 bits", 3, QN_EDATA},
        {"{\"group_size\":64,\"bits\":8}", "rows of 24 words are not whole groups of 64 of 8 bits", 3, QN_EDATA},
        {"{\"group_size\":32,\"bits\":4}", "'m.scales' has not the shape of 'm.weight' with 6 in a row", 3, QN_EDATA},
        {"{\"group_size\":32,\"bits\":8}", "is packed, and its biases are missing", 2, QN_EDATA},
        {"{\"group_size\":32,\"bits\":8,\"mode\":\"mxfp4\"}", "'quantization' of mode 'mxfp4'", 3, QN_EUNSUP},
        {"7", "'quantization' of mode '(no object)'", 3, QN_EUNSUP},
    };
    for (size_t i = 0; i < sizeof bad_ones / sizeof bad_ones[0]; i++) {
        int rc = view(bad_ones[i].config, all, (size_t)bad_ones[i].n, &type, &k, &side, &e);
        if (rc != bad_ones[i].code || !strstr(e.msg, bad_ones[i].message))
            fail_msg("%d %s\nis not: %d %s", rc, e.msg, bad_ones[i].code, bad_ones[i].message);
    }
    b.type = DT_F16;
    assert_int_equal(view("{\"group_size\":32,\"bits\":8}", all, 3, &type, &k, &side, &e), QN_EUNSUP);
}

/* ---- files ---- */

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/quern-hf-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static void put(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_true(f && fwrite(text, 1, strlen(text), f) == strlen(text) && fclose(f) == 0);
}

/* A file with one F32 of 7 for each name, space-separated. */
static void put_shard(const char *name, const char *names)
{
    char path[128], header[1024] = "{", list[256], *save;
    size_t n = 0;
    strcpy(list, names);
    for (char *p = strtok_r(list, " ", &save); p; p = strtok_r(NULL, " ", &save), n++) {
        size_t at = strlen(header);
        snprintf(header + at, sizeof header - at,
                 "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}", n ? "," : "", p, 4 * n,
                 4 * n + 4);
    }
    strcat(header, "}");
    uint64_t length = strlen(header);
    float seven = 7;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_true(f && fwrite(&length, 1, 8, f) == 8 && fwrite(header, 1, length, f) == length);
    while (n--) assert_true(fwrite(&seven, 1, 4, f) == 4);
    assert_true(fclose(f) == 0);
}

static void bad_shards(const char *index, int code, const char *message)
{
    struct hf_shards s = {0};
    struct qn_error e = {0};
    if (index) put("model.safetensors.index.json", index);
    int rc = hf_shards_open(&s, NULL, dir, &e);
    if (rc != code || !strstr(e.msg, message)) fail_msg("%d %s\nis not: %d %s", rc, e.msg, code, message);
    assert_null(s.map);
}

static void test_shards(void **state)
{
    (void)state;
    struct hf_shards s;
    bad_shards(NULL, QN_ENOINPUT, "the folder has neither model.safetensors nor model.safetensors.index.json");
    bad_shards("{}", QN_EDATA, "no weight_map");
    bad_shards("{\"weight_map\":{}}", QN_EDATA, "names 0 files, accepted are 1 to 1000");
    bad_shards("{\"weight_map\":{\"a\":\"../1.safetensors\"}}", QN_EDATA,
               "which is no NAME.safetensors of this folder");
    bad_shards("{\"weight_map\":{\"a\":\".1.safetensors\"}}", QN_EDATA, "which is no NAME.safetensors of this folder");
    bad_shards("{\"weight_map\":{\"a\":7}}", QN_EDATA, "tensor 'a' is in '(no text)'");
    bad_shards("{\"weight_map\":{\"a\":\"1.safetensors\"}}", QN_ENOINPUT, "1.safetensors: cannot open ");
    put("1.safetensors", "short");
    bad_shards(NULL, QN_EDATA, "1.safetensors: safetensors: the file has 5 bytes, no header");
    put_shard("1.safetensors", "a b");
    put_shard("2.safetensors", "c");
    bad_shards("{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"1.safetensors\",\"d\":\"2.safetensors\"}}", QN_EDATA,
               "tensor 'd' is not in 2.safetensors");
    bad_shards("{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\",\"c\":\"2.safetensors\"}}", QN_EDATA,
               "tensor 'b' is in 1.safetensors, not in 2.safetensors");
    put_shard("2.safetensors", "c a");
    bad_shards("{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"1.safetensors\",\"c\":\"2.safetensors\"}}", QN_EDATA,
               "tensor 'a' is in 1.safetensors and in 2.safetensors");
    put("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"1.safetensors\",\"c\":\"2.safetensors\"}}");
    put_shard("2.safetensors", "c e");
    assert_int_equal(hf_shards_open(&s, NULL, dir, NULL), 0);
    assert_true(s.n == 2 && s.n_tensors == 2 && !strcmp(s.tensor[1]->name, "c")); /* b and e are in no index */
    hf_shards_close(&s);
    put_shard("model.safetensors", "z"); /* comes first */
    assert_int_equal(hf_shards_open(&s, NULL, dir, NULL), 0);
    assert_true(s.n == 1 && s.n_tensors == 1 && !strcmp(s.tensor[0]->name, "z"));
    hf_shards_close(&s);
}

/* A folder up to the point where its tokenizer is asked for; what is wrong before is said first. */
static void bad_folder(const char *config, const char *names, int code, const char *message)
{
    struct weights *w = NULL;
    struct qn_error e = {0};
    if (config) put("config.json", config);
    if (names) put_shard("model.safetensors", names);
    int rc = weights_open(&w, dir, &e);
    if (rc != code || !strstr(e.msg, message)) fail_msg("%d %s\nis not: %d %s", rc, e.msg, code, message);
    assert_true(!strncmp(e.msg, dir, strlen(dir)));
    assert_null(w);
}

static void test_folder(void **state)
{
    (void)state;
    bad_folder(NULL, NULL, QN_ENOINPUT, "the folder has no config.json");
    bad_folder("{" QWEN3 "}", NULL, QN_ENOINPUT, "the folder has neither model.safetensors nor");
    bad_folder(NULL, "model.norm.weight", QN_EDATA,
               "no lm_head.weight, and config.json does not say tie_word_embeddings");
    bad_folder(NULL, "lm_head.weight nonsense", QN_EUNSUP, "tensor 'nonsense' has no role in a 'qwen3' of 2 layers");
    bad_folder(NULL, "lm_head.weight model.layers.2.mlp.up_proj.weight", QN_EUNSUP,
               "has no role in a 'qwen3' of 2 layers");
    bad_folder(NULL, "lm_head.weight", QN_ENOINPUT, "tokenizer.json");
    bad_folder("{" QWEN3 ",\"quantization_config\":{\"quant_method\":\"gptq\"}}", NULL, QN_EUNSUP,
               "quantised weights (gptq) are not supported");
}

#define TOKENIZER                                                                                                      \
    "{\"added_tokens\":[],\"normalizer\":null,\"post_processor\":null,"                                                \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":true}," \
    "\"decoder\":{\"type\":\"ByteLevel\"},"                                                                            \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}"

/* Data need not be aligned. */
static float first_of(const struct tensor *t)
{
    float v;
    memcpy(&v, t->data, sizeof v);
    return v;
}

/* What WeDLM's configuration says of biases is what its tensors have. */
static void test_biases(void **state)
{
    (void)state;
    static const struct {
        const char *said, *tensor, *message; /* NULL: fine */
    } rows[] = {
        {"", "", NULL},
        {",\"attention_bias\":null", " model.layers.0.self_attn.q_proj.bias", NULL},
        {",\"attention_bias\":true", " model.layers.0.self_attn.q_proj.bias", NULL},
        {",\"attention_bias\":true", "", "'attention_bias' is true, but self_attn.q_proj.bias is missing"},
        {",\"attention_bias\":false", " model.layers.0.self_attn.q_proj.bias",
         "is false, but self_attn.q_proj.bias is "},
        {",\"attention_bias\":1", "", "'attention_bias' is not true or false"},
    };
    put("tokenizer.json", TOKENIZER);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct weights *w;
        struct qn_error e = {0};
        char text[512], names[256];
        snprintf(text, sizeof text, "{\"model_type\":\"wedlm\",\"qk_norm\":false%s," REST_OF_QWEN3 "}", rows[i].said);
        snprintf(names, sizeof names, "model.embed_tokens.weight model.norm.weight lm_head.weight%s", rows[i].tensor);
        put("config.json", text);
        put_shard("model.safetensors", names);
        int rc = weights_open(&w, dir, &e);
        if (rc != (rows[i].message ? QN_EDATA : 0) || (rc && !strstr(e.msg, rows[i].message)))
            fail_msg("%zu: %d %s", i, rc, e.msg);
        if (!rc) weights_close(w);
    }
}

/* A whole folder, of a family whose norms are made; and with every allocation of ours failing in turn. */
static void test_whole(void **state)
{
    (void)state;
    struct weights *w;
    struct qn_error e;
    size_t part;
    put("tokenizer.json", TOKENIZER);
    put("config.json",
        "{\"model_type\":\"gemma2\"," REST_OF_QWEN3 ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}");
    put_shard("model.safetensors", "model.embed_tokens.weight model.norm.weight lm_head.weight");
    if (weights_open(&w, dir, &e)) fail_msg("%s", e.msg);
    assert_int_equal(weights_version(w), 0);
    assert_int_equal(weights_n_parts(w), 1);
    assert_int_equal(weights_n_tensors(w), 3); /* tied: no lm_head, but the rotation's factors */
    assert_int_equal(weights_tensor_bytes(w), 4 + 4 + 4 * 128);
    const struct tensor *norm = weights_tensor(w, "output_norm.weight");
    assert_true(norm && first_of(norm) == 8); /* 7 + 1 */
    weights_tensor_place(w, (size_t)(norm - weights_tensor_at(w, 0)), &part);
    assert_int_equal(part, 1); /* in no file */
    const struct tensor *embd = weights_tensor(w, "token_embd.weight");
    weights_tensor_place(w, (size_t)(embd - weights_tensor_at(w, 0)), &part);
    assert_true(part == 0 && first_of(embd) == 7);
    assert_non_null(weights_tensor(w, "rope_freqs.weight"));
    assert_int_equal(weights_check_finite(w, NULL, NULL, &e), 0);
    weights_close(w);
    for (uint64_t i = 1;; i++) {
        mem_fault_set(i);
        int rc = weights_open(&w, dir, &e);
        bool hit = mem_fault_hit();
        mem_fault_set(0);
        assert_int_equal(rc, hit ? QN_ENOMEM : 0);
        if (hit) continue;
        weights_close(w);
        break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_config_neutral),
        cmocka_unit_test(test_config_refusals),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_packed),
        cmocka_unit_test_setup_teardown(test_shards, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_folder, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_biases, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_whole, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
