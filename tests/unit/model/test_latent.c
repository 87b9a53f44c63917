/* SPDX-License-Identifier: MIT
 *
 * test_latent.c: the numbers of deepseek2 models: both layouts of latent attention, the scale of scores with YaRN, the
 * layers with experts, and numbers that contradict each other.
 *
 * Files differ from a sound one in a few keys. A refusal names the key and the number and leaves the output alone. The
 * rules are in docs/FORMATS.md. test_hparams.c tests the numbers that all families have.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "model/model.h"
#include "../tiny_vocab.h"

#define N_VOCAB 1000
#define N_OF(a) (sizeof(a) / sizeof *(a))

enum latent_how { ABSENT, U32, F32, BOOL, STR };

struct latent_key {
    const char *name; /* without "deepseek2." */
    enum latent_how how;
    double v;
    const char *str; /* STR */
};

/* Heads of 12 + 8, values of 10; latents of 16. */
static const struct latent_key absorbed[] = {
    {"block_count", U32, 4, NULL},
    {"embedding_length", U32, 64, NULL},
    {"context_length", U32, 512, NULL},
    {"feed_forward_length", U32, 128, NULL},
    {"attention.head_count", U32, 4, NULL},
    {"attention.head_count_kv", U32, 1, NULL},
    {"attention.layer_norm_rms_epsilon", F32, 1e-6, NULL},
    {"attention.key_length", U32, 24, NULL},
    {"attention.value_length", U32, 16, NULL},
    {"attention.key_length_mla", U32, 20, NULL},
    {"attention.value_length_mla", U32, 10, NULL},
    {"attention.kv_lora_rank", U32, 16, NULL},
    {"attention.q_lora_rank", U32, 14, NULL},
    {"rope.dimension_count", U32, 8, NULL},
};

/* The keys that make it a file of the older layout. */
static const struct latent_key expanded[] = {
    {"attention.head_count_kv", U32, 4, NULL},       {"attention.key_length", U32, 20, NULL},
    {"attention.value_length", U32, 10, NULL},       {"attention.key_length_mla", ABSENT, 0, NULL},
    {"attention.value_length_mla", ABSENT, 0, NULL},
};

static void put_key(struct vfile *f, const struct latent_key *k)
{
    char name[100];
    float real = (float)k->v;
    snprintf(name, sizeof name, "deepseek2.%s", k->name);
    switch (k->how) {
    case ABSENT: return;
    case U32: vf_u32(f, name, (uint32_t)k->v); return;
    case STR: vf_str(f, name, k->str); return;
    case BOOL: vf_bool(f, name, k->v != 0); return;
    case F32: vf_key(f, name, MT_F32); vf_raw(f, &real, 4);
    }
}

static bool has(const struct latent_key *k, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(k[i].name, name)) return true;
    return false;
}

/* The absorbed file, or the expanded one made from it, with some keys replaced or added. */
static const char *tensor; /* the only one of the files, or NULL */

static int read_with(bool old, const struct latent_key *other, size_t n_other, struct hparams *h, struct qn_error *e)
{
    struct vfile f = {.tensor = tensor};
    for (size_t i = 0; i < N_OF(absorbed); i++)
        if (!has(other, n_other, absorbed[i].name) && !(old && has(expanded, N_OF(expanded), absorbed[i].name)))
            put_key(&f, &absorbed[i]);
    for (size_t i = 0; old && i < N_OF(expanded); i++)
        if (!has(other, n_other, expanded[i].name)) put_key(&f, &expanded[i]);
    for (size_t i = 0; i < n_other; i++) put_key(&f, &other[i]);
    struct weights *w = vf_open(&f);
    *e = (struct qn_error){0};
    int rc = hparams_read(h, w, arch_find("deepseek2", 9), N_VOCAB, e);
    weights_close(w);
    return rc;
}

static struct hparams accepted(bool old, const struct latent_key *k, size_t n)
{
    struct hparams h = {0};
    struct qn_error e;
    if (read_with(old, k, n, &h, &e)) fail_msg("%s: %s", n ? k[0].name : "", e.msg);
    return h;
}

static void refused_all(bool old, const struct latent_key *k, size_t n, int code, const char *text)
{
    struct hparams h, before;
    struct qn_error e;
    memset(&h, 0x5a, sizeof h);
    before = h;
    int rc = read_with(old, k, n, &h, &e);
    if (rc != code || !strstr(e.msg, text))
        fail_msg("%s: got %d '%s', expected %d '%s'", k[0].name, rc, e.msg, code, text);
    assert_memory_equal(&h, &before, sizeof h);
}

static void refused(bool old, struct latent_key k, int code, const char *text) { refused_all(old, &k, 1, code, text); }

static struct latent_key number(const char *name, double v) { return (struct latent_key){name, U32, v, NULL}; }
static struct latent_key real(const char *name, double v) { return (struct latent_key){name, F32, v, NULL}; }
static struct latent_key absent(const char *name) { return (struct latent_key){name, ABSENT, 0, NULL}; }

static void both_layouts_are_read(void **state)
{
    (void)state;
    for (int old = 0; old < 2; old++) {
        struct hparams h = accepted(old, NULL, 0);
        assert_true(h.rope_adjacent);
        assert_int_equal(h.latent_is_absorbed, !old);
        assert_int_equal(h.n_lora_q, 14);
        assert_int_equal(h.n_lora_kv, 16);
        assert_int_equal(h.latent_dim_nope, 12);
        assert_int_equal(h.latent_dim_v, 10);
        assert_int_equal(h.n_rot, 8);
        assert_int_equal(h.n_head_kv, old ? 4 : 1);
        assert_int_equal(h.head_dim, old ? 20 : 24);
        assert_int_equal(h.head_dim_v, old ? 10 : 16);
        assert_int_equal(hp_att_width(&h), 40);
        assert_true(h.attn_scale == (float)(1 / sqrt(20)));
        assert_int_equal(h.n_expert, 0);
        for (int i = 0; i < 4; i++) assert_false(h.layer[i].has_experts);
    }
    assert_int_equal(accepted(false, &(struct latent_key){"attention.q_lora_rank", ABSENT, 0, NULL}, 1).n_lora_q, 0);
    assert_int_equal(accepted(true, &(struct latent_key){"attention.q_lora_rank", U32, 0, NULL}, 1).n_lora_q, 0);
}

static void keys_that_must_be_there(void **state)
{
    (void)state;
    static const char *const names[] = {"attention.kv_lora_rank", "attention.key_length", "attention.value_length",
                                        "rope.dimension_count"};
    for (int old = 0; old < 2; old++)
        for (size_t i = 0; i < N_OF(names); i++) {
            char want[100];
            snprintf(want, sizeof want, "key 'deepseek2.%s' is missing", names[i]);
            refused(old, absent(names[i]), QN_EDATA, want);
        }
    refused(false, absent("attention.key_length_mla"), QN_EDATA, "key 'deepseek2.attention.key_length_mla' is missing");
    refused(false, absent("attention.value_length_mla"), QN_EDATA,
            "key 'deepseek2.attention.value_length_mla' is missing");
}

static void numbers_that_contradict_each_other(void **state)
{
    (void)state;
    refused(false, number("attention.head_count_kv", 4), QN_EDATA, "'deepseek2.attention.head_count_kv' is 4, not 1");
    refused(true, number("attention.head_count_kv", 1), QN_EDATA, "'deepseek2.attention.head_count_kv' is 1, not 4");
    refused(false, number("attention.key_length", 26), QN_EDATA, "'deepseek2.attention.key_length' is 26, not 24");
    refused(false, number("attention.value_length", 10), QN_EDATA, "'deepseek2.attention.value_length' is 10, not 16");
    refused(false, number("attention.kv_lora_rank", 18), QN_EDATA, "'deepseek2.attention.key_length' is 24, not 26");
    refused(false, number("attention.key_length_mla", 8), QN_EDATA,
            "'deepseek2.rope.dimension_count' is 8, not below the 8 of a head");
    refused(true, number("rope.dimension_count", 20), QN_EDATA,
            "'deepseek2.rope.dimension_count' is 20, not below the 20 of a head");
    refused(false, number("rope.dimension_count", 26), QN_EDATA, "'deepseek2.rope.dimension_count' is 26");
    refused(false, number("rope.dimension_count", 7), QN_EDATA, "is 7, an odd number");
}

static void latent_numbers_have_bounds(void **state)
{
    (void)state;
    refused(true, number("attention.kv_lora_rank", 1), QN_EDATA, "'deepseek2.attention.kv_lora_rank' is 1");
    refused(true, number("attention.kv_lora_rank", HP_MAX_DIM + 1), QN_EDATA, "kv_lora_rank' is 1048577");
    accepted(true, &(struct latent_key){"attention.kv_lora_rank", U32, HP_MAX_DIM, NULL}, 1);
    refused(false, number("attention.q_lora_rank", HP_MAX_DIM + 1), QN_EDATA, "q_lora_rank' is 1048577");
    refused(false, number("attention.key_length_mla", HP_MAX_HEAD_DIM + 1), QN_EDATA, "key_length_mla' is 577");
    refused(false, number("attention.value_length_mla", 1), QN_EDATA, "value_length_mla' is 1");
    const struct latent_key real_ones[] = {
        number("attention.key_length", 576),     number("attention.value_length", 512),
        number("attention.kv_lora_rank", 512),   number("rope.dimension_count", 64),
        number("attention.key_length_mla", 192), number("attention.value_length_mla", 128)};
    struct hparams h = accepted(false, real_ones, N_OF(real_ones));
    assert_int_equal(h.latent_dim_nope, 128);
}

/* yarn_log_multiplier holds 0.1 L: 0.1 for V3, 0.0707 for V2. */
static void yarn_scales_the_scores(void **state)
{
    (void)state;
    struct latent_key k[] = {{"rope.scaling.type", STR, 0, "yarn"},
                             real("rope.scaling.factor", 40),
                             real("rope.scaling.yarn_log_multiplier", 0.1),
                             number("rope.scaling.original_context_length", 64)};
    const double plain = 1 / sqrt(20);
    double m = 1 + 0.1 * log(40);
    assert_float_equal(accepted(false, k, 4).attn_scale, m * m * plain, 1e-7);
    assert_float_equal(accepted(true, k, 4).attn_scale, m * m * plain, 1e-7);
    k[2].v = 0.0707;
    m = 1 + 0.0707 * log(40);
    assert_float_equal(accepted(false, k, 4).attn_scale, m * m * plain, 1e-7);
    k[2] = absent("rope.scaling.yarn_log_multiplier"); /* cos and sin are scaled then */
    assert_true(accepted(false, k, 4).attn_scale == (float)plain);
    k[2] = real("rope.scaling.yarn_log_multiplier", 0.1);
    k[1] = real("rope.scaling.factor", 0.5);
    assert_true(accepted(false, k, 4).attn_scale == (float)plain);
    k[0].str = "linear";
    refused_all(false, k, 4, QN_EUNSUP, "'deepseek2.rope.scaling.yarn_log_multiplier' is 0.1 without yarn");
    k[0].str = "none";
    assert_true(accepted(false, k, 4).attn_scale == (float)plain);
    refused(false, real("rope.scaling.attn_factor", 2), QN_EUNSUP, "'deepseek2.rope.scaling.attn_factor' is 2");
    refused(false, real("rope.scaling.yarn_log_multiplier", -0.1), QN_EDATA, "yarn_log_multiplier' is -0.1");
}

/* Two dense layers of four; 12 experts of 32 in 3 groups. */
static const struct latent_key experts[] = {
    {"expert_count", U32, 12, NULL},        {"expert_used_count", U32, 4, NULL},
    {"expert_shared_count", U32, 2, NULL},  {"expert_feed_forward_length", U32, 32, NULL},
    {"expert_gating_func", U32, 2, NULL},   {"leading_dense_block_count", U32, 2, NULL},
    {"expert_group_count", U32, 3, NULL},   {"expert_group_used_count", U32, 2, NULL},
    {"expert_weights_norm", BOOL, 1, NULL}, {"expert_weights_scale", F32, 2.5, NULL},
};

/* The same with one key replaced or added. */
static size_t experts_with(struct latent_key other, struct latent_key *out)
{
    size_t n = 0;
    out[n++] = other; /* the first, so that it is named where a test fails */
    for (size_t i = 0; i < N_OF(experts); i++)
        if (strcmp(experts[i].name, other.name)) out[n++] = experts[i];
    return n;
}

static struct hparams accepted_experts(struct latent_key other)
{
    struct latent_key k[N_OF(experts) + 1];
    return accepted(false, k, experts_with(other, k));
}

static void refused_experts(struct latent_key other, const char *text)
{
    struct latent_key k[N_OF(experts) + 1];
    refused_all(false, k, experts_with(other, k), QN_EDATA, text);
}

static void experts_follow_dense_layers(void **state)
{
    (void)state;
    struct hparams h = accepted(false, experts, N_OF(experts));
    assert_int_equal(h.n_expert, 12);
    assert_int_equal(h.n_expert_used, 4);
    assert_int_equal(h.n_ff_exp, 32);
    assert_int_equal(h.n_ff_shexp, 64);
    assert_int_equal(h.expert_gate, GATE_SIGMOID);
    assert_true(h.expert_norm && h.expert_scale == 2.5f);
    assert_int_equal(h.n_expert_groups, 3);
    assert_int_equal(h.n_expert_groups_used, 2);
    for (int i = 0; i < 4; i++) assert_int_equal(h.layer[i].has_experts, i >= 2);
    assert_true(accepted_experts(absent("leading_dense_block_count")).layer[0].has_experts);
    assert_false(accepted_experts(number("leading_dense_block_count", 4)).layer[3].has_experts);
    h = accepted_experts(absent("expert_gating_func")); /* V2 */
    assert_int_equal(h.expert_gate, GATE_SOFTMAX);
    assert_false(accepted_experts(absent("expert_weights_norm")).expert_norm);
    assert_true(accepted_experts(absent("expert_weights_scale")).expert_scale == 1);
    for (int i = 0; i < 2; i++) assert_int_equal(accepted_experts(number("expert_group_count", i)).n_expert_groups, 1);
    accepted_experts((struct latent_key){"leading_dense_block_count", U32, 0, NULL});
}

static void experts_have_bounds(void **state)
{
    (void)state;
    refused_experts(number("leading_dense_block_count", 5), "'deepseek2.leading_dense_block_count' is 5");
    refused_experts(number("expert_shared_count", 0), "'deepseek2.expert_shared_count' is 0");
    refused_experts(number("expert_shared_count", HP_MAX_DIM / 32 + 1), "expert_shared_count' is 32769");
    refused_experts(absent("expert_shared_count"), "key 'deepseek2.expert_shared_count' is missing");
    refused_experts(absent("feed_forward_length"), "key 'deepseek2.feed_forward_length' is missing");
    refused_experts(number("expert_group_count", 5),
                    "'deepseek2.expert_group_count' is 5: 12 experts are no whole number");
    refused_experts(number("expert_group_count", 13), "'deepseek2.expert_group_count' is 13");
    refused_experts(number("expert_group_used_count", 4), "'deepseek2.expert_group_used_count' is 4");
    refused_experts(absent("expert_group_used_count"), "key 'deepseek2.expert_group_used_count' is missing");
    refused_experts(number("expert_used_count", 9), "'deepseek2.expert_group_used_count' is 2: with 8 experts");
    refused_experts(number("expert_gating_func", 4), "'deepseek2.expert_gating_func' is 4");
}

/* Files of GLM-4.7-Flash do not say how experts are gated; those of DeepSeek-V2 do not either, and have no bias. */
static void a_bias_for_choosing_means_sigmoids(void **state)
{
    (void)state;
    const struct latent_key unsaid = {"expert_gating_func", ABSENT, 0, NULL};
    assert_int_equal(accepted_experts(unsaid).expert_gate, GATE_SOFTMAX);
    tensor = "blk.3.exp_probs_b.bias";
    assert_int_equal(accepted_experts(unsaid).expert_gate, GATE_SIGMOID);
    assert_int_equal(accepted_experts(number("expert_gating_func", 0)).expert_gate, GATE_SIGMOID);
    assert_int_equal(accepted_experts(number("expert_gating_func", 1)).expert_gate, GATE_SOFTMAX);
    tensor = "blk.1.exp_probs_b.bias"; /* of a dense layer: no expert is chosen there */
    assert_int_equal(accepted_experts(unsaid).expert_gate, GATE_SOFTMAX);
    tensor = NULL;
}

static void layers_that_predict_further_are_not_run(void **state)
{
    (void)state;
    struct latent_key k = number("nextn_predict_layers", 1);
    struct hparams h = accepted(false, &k, 1);
    assert_int_equal(h.n_layer, 3);
    assert_int_equal(h.n_nextn, 1);
    refused(false, number("nextn_predict_layers", 4), QN_EDATA, "'deepseek2.nextn_predict_layers' is 4");
}

static void what_is_not_computed_is_refused(void **state)
{
    (void)state;
    refused(false, real("attention.temperature_scale", 0.1), QN_EUNSUP,
            "'deepseek2.attention.temperature_scale' is 0.1: not supported");
    refused(false, number("attention.indexer.top_k", 2048), QN_EUNSUP, "'deepseek2.attention.indexer.top_k' is 2048");
    refused(false, real("attention.scale", 0.1), QN_EUNSUP, "'deepseek2.attention.scale' is 0.1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_layouts_are_read),
        cmocka_unit_test(keys_that_must_be_there),
        cmocka_unit_test(numbers_that_contradict_each_other),
        cmocka_unit_test(latent_numbers_have_bounds),
        cmocka_unit_test(yarn_scales_the_scores),
        cmocka_unit_test(experts_follow_dense_layers),
        cmocka_unit_test(experts_have_bounds),
        cmocka_unit_test(a_bias_for_choosing_means_sigmoids),
        cmocka_unit_test(layers_that_predict_further_are_not_run),
        cmocka_unit_test(what_is_not_computed_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
