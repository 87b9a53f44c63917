/* SPDX-License-Identifier: MIT
 *
 * test_hparams.c: every bound on a model's hyper-parameters, key by key, with files that differ from a sound one in
 * one key.
 *
 * A refusal must name the key and the value and leave the output alone. The rules are in docs/FORMATS.md.
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

/* ---- files ---- */

enum hparams_how { ABSENT, U32, I32, F32, STR, ARRAY };

struct hparams_key {
    const char *name; /* without "llama.", or what `arch` is */
    enum hparams_how how;
    double v;        /* U32, I32, F32 */
    const char *str; /* STR */
    int elems[4];    /* ARRAY of i32, until -1 */
};

static const struct hparams_key sound[] = {
    {"block_count", U32, 2, NULL, {0}},
    {"embedding_length", U32, 64, NULL, {0}},
    {"context_length", U32, 512, NULL, {0}},
    {"feed_forward_length", U32, 128, NULL, {0}},
    {"attention.head_count", U32, 4, NULL, {0}},
    {"attention.head_count_kv", U32, 2, NULL, {0}},
    {"attention.layer_norm_rms_epsilon", F32, 1e-5, NULL, {0}},
};

#define N_SOUND (sizeof sound / sizeof *sound)

static const char *arch = "llama";

static void put_key(struct vfile *f, const struct hparams_key *k)
{
    char name[100];
    float real = (float)k->v;
    int32_t integer = k->how == I32 ? (int32_t)k->v : 0;
    uint64_t n = 0;
    snprintf(name, sizeof name, "%s.%s", arch, k->name);
    switch (k->how) {
    case ABSENT: return;
    case U32: vf_u32(f, name, (uint32_t)k->v); return;
    case STR: vf_str(f, name, k->str); return;
    case I32:
    case F32:
        vf_key(f, name, k->how == F32 ? MT_F32 : MT_I32);
        vf_raw(f, k->how == F32 ? (void *)&real : (void *)&integer, 4);
        return;
    case ARRAY:
        while (n < 4 && k->elems[n] != -1) n++;
        vf_array4(f, name, MT_I32, k->elems, n);
    }
}

/* The sound file with some keys replaced or added. */
static int read_with(const struct hparams_key *other, size_t n_other, struct hparams *h, struct qn_error *e)
{
    struct vfile f = {0};
    for (size_t i = 0; i < N_SOUND; i++) {
        bool replaced = false;
        for (size_t j = 0; j < n_other; j++) replaced |= !strcmp(sound[i].name, other[j].name);
        if (!replaced) put_key(&f, &sound[i]);
    }
    for (size_t j = 0; j < n_other; j++) put_key(&f, &other[j]);
    struct weights *w = vf_open(&f);
    *e = (struct qn_error){0};
    int rc = hparams_read(h, w, arch_find(arch, strlen(arch)), N_VOCAB, e);
    weights_close(w);
    return rc;
}

static struct hparams accepted_all(const struct hparams_key *k, size_t n)
{
    struct hparams h = {0};
    struct qn_error e;
    if (read_with(k, n, &h, &e)) fail_msg("%s: %s", n ? k[0].name : "", e.msg);
    return h;
}

static struct hparams accepted(struct hparams_key k) { return accepted_all(&k, 1); }

static void refused_all(const struct hparams_key *k, size_t n, int code, const char *text)
{
    struct hparams h, before;
    struct qn_error e;
    memset(&h, 0x5a, sizeof h);
    before = h;
    int rc = read_with(k, n, &h, &e);
    if (rc != code || !strstr(e.msg, text))
        fail_msg("%s: got %d '%s', expected %d '%s'", k[0].name, rc, e.msg, code, text);
    assert_memory_equal(&h, &before, sizeof h);
}

static void refused(struct hparams_key k, int code, const char *text)
{
    refused_all(&k, 1, code, text);
    assert_true(k.how == ABSENT || strlen(text) > 0);
}

static struct hparams_key number(const char *name, double v) { return (struct hparams_key){name, U32, v, NULL, {0}}; }
static struct hparams_key real(const char *name, double v) { return (struct hparams_key){name, F32, v, NULL, {0}}; }
static struct hparams_key text(const char *name, const char *s) { return (struct hparams_key){name, STR, 0, s, {0}}; }

/* ---- the shape ---- */

static void a_sound_file_is_read(void **state)
{
    (void)state;
    struct hparams h = accepted_all(NULL, 0);
    assert_int_equal(h.n_layer, 2);
    assert_int_equal(h.n_embd, 64);
    assert_int_equal(h.n_vocab, N_VOCAB);
    assert_int_equal(h.n_ff, 128);
    assert_int_equal(h.n_ctx_train, 512);
    assert_int_equal(h.n_head, 4);
    assert_int_equal(h.n_head_kv, 2);
    assert_int_equal(h.head_dim, 16);
    assert_true(h.norm_eps == 1e-5f);
    assert_true(h.attn_scale == 0.25f);
    assert_int_equal(h.n_swa, 0);
    assert_int_equal(h.n_rot, 16);
    assert_int_equal(h.rope_scaling, ROPE_NONE);
    assert_true(h.rope_base == 10000 && h.rope_factor == 1 && h.rope_attn_factor == 1);
    assert_true(h.yarn_ext_factor == 1 && h.yarn_beta_fast == 32 && h.yarn_beta_slow == 1);
    assert_int_equal(h.rope_ctx_orig, 512);
}

static void whole_numbers_have_bounds(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double lo, hi;
    } keys[] = {{"block_count", 1, HP_MAX_LAYERS},           {"embedding_length", 4, HP_MAX_DIM},
                {"context_length", 1, HP_MAX_CTX},           {"feed_forward_length", 1, HP_MAX_DIM},
                {"attention.sliding_window", 0, HP_MAX_CTX}, {"rope.scaling.original_context_length", 1, HP_MAX_CTX}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct hparams_key k[2] = {number(keys[i].name, keys[i].hi), number("attention.key_length", 16)};
        char value[32];
        accepted_all(k, 2);
        k[0].v = keys[i].lo;
        accepted_all(k, 2);
        snprintf(value, sizeof value, "is %.0f", keys[i].hi + 1);
        k[0].v = keys[i].hi + 1;
        refused_all(k, 2, QN_EDATA, value);
        refused_all(k, 2, QN_EDATA, keys[i].name);
        refused((struct hparams_key){keys[i].name, I32, -1, NULL, {0}}, QN_EDATA, "is -1");
        refused(text(keys[i].name, "many"), QN_EDATA, keys[i].name);
        refused(real(keys[i].name, 16), QN_EDATA, keys[i].name);
        if (keys[i].lo < 1) continue;
        refused(number(keys[i].name, 0), QN_EDATA, "is 0");
    }
}

static void keys_that_must_be_there(void **state)
{
    (void)state;
    static const char *const names[] = {"block_count",          "embedding_length",
                                        "context_length",       "feed_forward_length",
                                        "attention.head_count", "attention.layer_norm_rms_epsilon"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char want[100];
        snprintf(want, sizeof want, "key 'llama.%s' is missing", names[i]);
        refused((struct hparams_key){names[i], ABSENT, 0, NULL, {0}}, QN_EDATA, want);
    }
    struct hparams h = accepted((struct hparams_key){"attention.head_count_kv", ABSENT, 0, NULL, {0}});
    assert_int_equal(h.n_head_kv, 4); /* each head has its own */
}

static void heads_divide(void **state)
{
    (void)state;
    refused(number("attention.head_count", 0), QN_EDATA, "'llama.attention.head_count' is 0");
    refused(number("attention.head_count", HP_MAX_HEADS + 1), QN_EDATA, "is 4097");
    refused(number("attention.head_count", 3), QN_EDATA, "3 attention heads cannot be shared by 2 KV heads");
    refused(number("attention.head_count", 6), QN_EDATA, "embedding length 64 is not a multiple of 6 heads");
    refused(number("attention.head_count", 64), QN_EDATA, "embedding length 64 is not a multiple of 64 heads");
    refused(number("attention.head_count_kv", 0), QN_EDATA, "'llama.attention.head_count_kv' is 0");
    refused(number("attention.head_count_kv", 5), QN_EDATA, "is 5");
    refused(number("attention.head_count_kv", 3), QN_EDATA, "4 attention heads cannot be shared by 3 KV heads");
    const struct hparams_key odd[] = {number("embedding_length", 36), number("attention.head_count", 4)};
    refused_all(odd, 2, QN_EDATA, "head dimension 9 is odd");
    const struct hparams_key wide[] = {number("embedding_length", 4096), number("attention.head_count", 4)};
    refused_all(wide, 2, QN_EDATA, "head dimension 1024");
}

static void head_lengths_agree(void **state)
{
    (void)state;
    const struct hparams_key both[] = {number("attention.key_length", 32), number("attention.value_length", 32)};
    struct hparams h = accepted_all(both, 2);
    assert_int_equal(h.head_dim, 32);
    assert_int_equal(h.n_rot, 32);
    assert_int_equal(accepted(number("attention.key_length", HP_MAX_HEAD_DIM)).head_dim, HP_MAX_HEAD_DIM);
    refused(number("attention.key_length", 1), QN_EDATA, "is 1");
    refused(number("attention.key_length", 15), QN_EDATA, "head dimension 15 is odd");
    refused(number("attention.key_length", HP_MAX_HEAD_DIM + 2), QN_EDATA, "is 578");
    refused(number("attention.value_length", 32), QN_EUNSUP, "key length 16 and value length 32 differ");
    /* with the head's length given, the embedding need not be a multiple of the heads */
    const struct hparams_key free_width[] = {number("embedding_length", 70), number("attention.key_length", 16)};
    accepted_all(free_width, 2);
}

static void the_vocabulary_is_the_tokenizers(void **state)
{
    (void)state;
    accepted(number("vocab_size", N_VOCAB));
    /* converters have written the number without added tokens, and one that was rounded up: the list decides */
    assert_int_equal(accepted(number("vocab_size", N_VOCAB + 1)).n_vocab, N_VOCAB);
    assert_int_equal(accepted(number("vocab_size", 32)).n_vocab, N_VOCAB);
    refused(number("vocab_size", 0), QN_EDATA, "is 0");
}

static void values_by_layer_must_be_equal(void **state)
{
    (void)state;
    static const char *const names[] = {"feed_forward_length", "attention.head_count", "attention.head_count_kv"};
    for (int i = 0; i < 3; i++) {
        struct hparams_key k = {names[i], ARRAY, 0, NULL, {2, 2, -1}};
        struct hparams h = accepted(k);
        assert_int_equal(i == 0 ? h.n_ff : i == 1 ? h.n_head : h.n_head_kv, 2);
        k.elems[1] = 4;
        refused(k, QN_EUNSUP, "differs between layers (2, then 4 at layer 1)");
        k.elems[1] = 0;
        refused(k, QN_EDATA, "element 1 is 0, not in 1..");
        k.elems[1] = -1;
        refused(k, QN_EDATA, "has 1 elements for 2 layers");
        k.elems[1] = k.elems[2] = 2;
        k.elems[3] = -1;
        refused(k, QN_EDATA, "has 3 elements for 2 layers");
    }
}

/* ---- floats and rotations ---- */

static void real_numbers_have_bounds(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double hi;
    } keys[] = {{"attention.layer_norm_rms_epsilon", 1},
                {"rope.freq_base", 1e30},
                {"rope.scaling.factor", 1e6},
                {"rope.scale_linear", 1e6},
                {"rope.scaling.attn_factor", 1e6},
                {"rope.scaling.yarn_beta_fast", 1e6},
                {"rope.scaling.yarn_beta_slow", 1e6}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        accepted(real(keys[i].name, keys[i].hi * 0.999));
        accepted(real(keys[i].name, 1e-6));
        bool may_be_unset =
            strcmp(keys[i].name, "rope.scaling.factor") == 0 || strcmp(keys[i].name, "rope.scale_linear") == 0;
        if (!may_be_unset) refused(real(keys[i].name, 0), QN_EDATA, keys[i].name);
        refused(real(keys[i].name, -1), QN_EDATA, may_be_unset ? "is -1, not in [0, " : "is -1, not in (0, ");
        refused(real(keys[i].name, keys[i].hi * 1.001), QN_EDATA, keys[i].name);
        refused(real(keys[i].name, NAN), QN_EDATA, keys[i].name);
        refused(real(keys[i].name, INFINITY), QN_EDATA, keys[i].name);
        refused(number(keys[i].name, 1), QN_EDATA, "a float");
    }
    assert_true(accepted(real("rope.scaling.yarn_ext_factor", 0)).yarn_ext_factor == 0);
    refused(real("rope.scaling.yarn_ext_factor", 1.5), QN_EDATA, "yarn_ext_factor' is 1.5");
}

static void rotated_dims(void **state)
{
    (void)state;
    assert_int_equal(accepted(number("rope.dimension_count", 8)).n_rot, 8);
    refused(number("rope.dimension_count", 0), QN_EDATA, "is 0");
    refused(number("rope.dimension_count", 7), QN_EDATA, "'llama.rope.dimension_count' is 7, an odd number");
    refused(number("rope.dimension_count", 18), QN_EDATA, "is 18");
}

static void kinds_of_scaling(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum rope_scaling v;
    } kinds[] = {{"none", ROPE_NONE}, {"linear", ROPE_LINEAR}, {"yarn", ROPE_YARN}, {"longrope", ROPE_LONG}};
    for (int i = 0; i < 4; i++)
        assert_int_equal(accepted(text("rope.scaling.type", kinds[i].name)).rope_scaling, kinds[i].v);
    refused(text("rope.scaling.type", "lin"), QN_EUNSUP, "'llama.rope.scaling.type' is 'lin', not none, linear");
    refused(text("rope.scaling.type", "linear2"), QN_EUNSUP, "'linear2'");
    refused(text("rope.scaling.type", ""), QN_EUNSUP, "''");
    refused(number("rope.scaling.type", 1), QN_EDATA, "a string");

    struct hparams h = accepted(real("rope.scaling.factor", 0)); /* the old way to say that there is none */
    assert_true(h.rope_scaling == ROPE_NONE && h.rope_factor == 1);
    h = accepted(real("rope.scale_linear", 0));
    assert_true(h.rope_scaling == ROPE_NONE && h.rope_factor == 1);
    const struct hparams_key unset[] = {real("rope.scaling.factor", 0), text("rope.scaling.type", "linear")};
    h = accepted_all(unset, 2);
    assert_true(h.rope_scaling == ROPE_LINEAR && h.rope_factor == 1);
    h = accepted(real("rope.scale_linear", 4)); /* the old way to say it */
    assert_int_equal(h.rope_scaling, ROPE_LINEAR);
    assert_true(h.rope_factor == 4);
    const struct hparams_key both[] = {real("rope.scale_linear", 4), text("rope.scaling.type", "yarn"),
                                       real("rope.scaling.factor", 2)};
    h = accepted_all(both, 3);
    assert_int_equal(h.rope_scaling, ROPE_YARN);
    assert_true(h.rope_factor == 2);
}

/* ---- keys that would change the function ---- */

static void keys_that_no_family_here_obeys(void **state)
{
    (void)state;
    static const char *const names[] = {
        "logit_scale",    "residual_scale", "embedding_scale", "attn_logit_softcapping", "final_logit_softcapping",
        "attention.scale"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        accepted(real(names[i], i < 3));
        refused(real(names[i], 12), QN_EUNSUP, "is 12: not supported for architecture 'llama'");
        refused(real(names[i], 12), QN_EUNSUP, names[i]);
        refused(text(names[i], "1"), QN_EDATA, names[i]);
    }
    accepted(number("expert_count", 0)); /* a dense model may say so */
    accepted((struct hparams_key){"expert_count", I32, 0, NULL, {0}});
    refused(number("expert_count", 8), QN_EDATA, "'llama.expert_used_count' is missing");
    refused(number("expert_count", HP_MAX_EXPERTS + 1), QN_EDATA, "'llama.expert_count'");
}

/* Keys that nothing reads are refused if they change the computation, and ignored otherwise. */
static void keys_that_nothing_reads(void **state)
{
    (void)state;
    static const char *const names[] = {"attention.key_length_swa",
                                        "attention.value_length_swa",
                                        "rope.dimension_count_swa",
                                        "rope.scaling.alpha",
                                        "attention.indexer.top_k",
                                        "rope.dimension_sections",
                                        "attention.shared_kv_layers",
                                        "expert_group_count",
                                        "ssm.conv_kernel",
                                        "expert_shared_count",
                                        "moe_latent_size",
                                        "swiglu_clamp_exp",
                                        "embedding_length_out",
                                        "interleave_moe_layer_step",
                                        "rope.something_new",
                                        "attention.something_new",
                                        "expert_something_new"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char want[100];
        snprintf(want, sizeof want, "'llama.%s' is 5: not supported for architecture 'llama'", names[i]);
        refused(number(names[i], 5), QN_EUNSUP, want);
    }
    refused(text("rope.something_new", "twice"), QN_EUNSUP, "'llama.rope.something_new' is 'twice'");
    refused((struct hparams_key){"rope.dimension_sections", ARRAY, 0, NULL, {0, 0, 3, 0}}, QN_EUNSUP, "is 3 (of 4)");
    refused((struct hparams_key){"rope.something_new", ARRAY, 0, NULL, {7, -1}}, QN_EUNSUP, "is 7 (of 1)");

    /* values that change nothing */
    accepted(number("attention.key_length_swa", 16));
    accepted(number("attention.value_length_swa", 16));
    accepted(number("rope.dimension_count_swa", 16));
    accepted(real("rope.scaling.alpha", 1));
    accepted(real("rope.freq_base_swa", 10000));
    refused(real("rope.freq_base_swa", 20000), QN_EUNSUP, "'llama.rope.freq_base_swa' is 20000");
    accepted(real("attention.layer_norm_epsilon", 1e-5));
    accepted((struct hparams_key){"rope.dimension_sections", ARRAY, 0, NULL, {0, 0, 0, 0}});
    accepted(number("expert_group_count", 1));
    refused(number("attention.causal", 0), QN_EUNSUP, "'llama.attention.causal' is 0");

    /* keys that do not describe the network */
    accepted(text("tensor_data_layout", "Meta AI original pth"));
    accepted(number("vision.block_count", 27));
    accepted(text("a_note", "of somebody"));
}

static void pooling_is_the_files(void **state)
{
    (void)state;
    assert_int_equal(accepted_all(NULL, 0).pooling, POOL_UNSAID);
    assert_int_equal(accepted(number("pooling_type", 0)).pooling, POOL_UNSAID);
    assert_int_equal(accepted(number("pooling_type", 1)).pooling, POOL_MEAN);
    assert_int_equal(accepted(number("pooling_type", 3)).pooling, POOL_LAST);
    refused(number("pooling_type", 2), QN_EUNSUP, "'llama.pooling_type' is 2 (cls)");
    refused(number("pooling_type", 4), QN_EUNSUP, "'llama.pooling_type' is 4 (rank)");
    refused(number("pooling_type", 5), QN_EDATA, "'llama.pooling_type' is 5");
}

/* ---- hybrids ---- */

enum { N_HYBRID = 5 };
static const struct hparams_key hybrid[N_HYBRID] = {
    {"ssm.conv_kernel", U32, 4, NULL, {0}},     {"ssm.state_size", U32, 32, NULL, {0}},
    {"ssm.group_count", U32, 2, NULL, {0}},     {"ssm.time_step_rank", U32, 6, NULL, {0}},
    {"ssm.inner_size", U32, 6 * 48, NULL, {0}},
};

/* The hybrid keys with one replaced or added. */
static size_t hybrid_with(struct hparams_key k, struct hparams_key out[N_HYBRID + 1])
{
    size_t n = 0;
    for (int i = 0; i < N_HYBRID; i++)
        if (strcmp(hybrid[i].name, k.name) != 0) out[n++] = hybrid[i];
    out[n++] = k;
    return n;
}

static void refused_hybrid_with(struct hparams_key k, int code, const char *text)
{
    struct hparams_key keys[N_HYBRID + 1];
    size_t n = hybrid_with(k, keys);
    refused_all(keys, n, code, text);
}

static void refused_hybrid(struct hparams_key k, const char *text) { refused_hybrid_with(k, QN_EDATA, text); }

static struct hparams accepted_hybrid(struct hparams_key k)
{
    struct hparams_key keys[N_HYBRID + 1];
    size_t n = hybrid_with(k, keys);
    return accepted_all(keys, n);
}

static void hybrids(void **state)
{
    (void)state;
    arch = "qwen35";
    struct hparams h = accepted_hybrid(number("block_count", 6));
    assert_true(h.conv_kernel == 4 && h.delta_dim_k == 32 && h.delta_dim_v == 48);
    assert_true(h.delta_n_head_k == 2 && h.delta_n_head_v == 6 && !h.delta_is_grouped && h.has_attn_gate);
    assert_int_equal(h.n_layer_kv, 1);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(h.layer[i].is_recurrent, i != 3);
        assert_int_equal(h.layer[i].kv, i == 3 ? 0 : -1);
    }
    size_t conv = 3 * (2 * 2 * 32 + 6 * 48) * 4, rule = 6 * 48 * 32 * 4; /* bytes of a layer: both are whole lines */
    assert_int_equal(hp_rule_offset(&h), conv);
    assert_int_equal(h.layer[4].state_offset, 3 * (conv + rule));
    assert_int_equal(h.state_bytes, 5 * (conv + rule));

    h = accepted_hybrid(number("full_attention_interval", 1));
    assert_true(h.state_bytes == 0 && h.n_layer_kv == 2);
    h = accepted_hybrid((struct hparams_key){"attention.recurrent_layers", ARRAY, 0, NULL, {0, 1, -1}});
    assert_true(!h.layer[0].is_recurrent && h.layer[1].is_recurrent);
    refused_all(hybrid, N_HYBRID, QN_EUNSUP, "none of the 2 layers has attention");
    refused_hybrid_with(number("nextn_predict_layers", 1), QN_EUNSUP, "none of the 1 layers has attention");
    struct hparams_key block[N_HYBRID + 2] = {number("block_count", 5), number("nextn_predict_layers", 1)};
    memcpy(block + 2, hybrid, sizeof hybrid);
    h = accepted_all(block, N_HYBRID + 2);
    assert_true(h.n_layer == 4 && h.n_nextn == 1 && h.n_layer_kv == 1 && h.layer[0].is_recurrent);

    /* as Ollama's converter writes it */
    struct hparams_key ollama[N_HYBRID + 2] = {number("block_count", 4),
                                               {"rope.mrope_section", ARRAY, 0, NULL, {11, 11, 10, -1}}};
    memcpy(ollama + 2, hybrid, sizeof hybrid);
    h = accepted_all(ollama, N_HYBRID + 2);
    assert_int_equal(h.n_rot, 16);
    refused_hybrid(number("ssm.v_head_reordered", 1), "'qwen35.ssm.v_head_reordered'");

    for (int i = 0; i < N_HYBRID; i++)
        refused_hybrid((struct hparams_key){hybrid[i].name, ABSENT, 0, NULL, {0}}, hybrid[i].name);
    refused_hybrid(number("ssm.conv_kernel", 1), "'qwen35.ssm.conv_kernel'");
    refused_hybrid(number("ssm.conv_kernel", 9), "'qwen35.ssm.conv_kernel'");
    refused_hybrid(number("ssm.state_size", HP_MAX_HEAD_DIM + 1), "'qwen35.ssm.state_size'");
    refused_hybrid(number("ssm.group_count", 4), "6 value heads of DeltaNet cannot share 4 key heads");
    refused_hybrid(number("ssm.inner_size", 6 * 48 + 1), "'qwen35.ssm.inner_size' is 289: not 6 heads");
    refused_hybrid(number("ssm.inner_size", 6 * (HP_MAX_HEAD_DIM + 1)), "not 6 heads of 1..576 dims");
    refused_hybrid(number("full_attention_interval", 0), "'qwen35.full_attention_interval'");
    refused_hybrid((struct hparams_key){"attention.recurrent_layers", ARRAY, 0, NULL, {1, -1}},
                   "1 elements for 2 layers");
    refused_hybrid((struct hparams_key){"attention.recurrent_layers", ARRAY, 0, NULL, {2, 0, -1}}, "recurrent_layers");
    refused_hybrid(number("nextn_predict_layers", 2), "'qwen35.nextn_predict_layers'");

    arch = "qwen3next";
    refused_hybrid(number("nextn_predict_layers", 1), "'qwen3next.expert_count' is missing or 0");
    struct hparams_key moe[N_HYBRID + 4] = {number("expert_count", 8), number("expert_used_count", 2),
                                            number("expert_feed_forward_length", 32),
                                            number("expert_shared_feed_forward_length", 32)};
    memcpy(moe + 4, hybrid, sizeof hybrid);
    refused_all(moe, N_HYBRID + 4, QN_EDATA, "tensor 'blk.0.attn_qkv.weight' is missing"); /* nor is there an ssm_in */
    arch = "llama";
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_file_is_read),
        cmocka_unit_test(whole_numbers_have_bounds),
        cmocka_unit_test(keys_that_must_be_there),
        cmocka_unit_test(heads_divide),
        cmocka_unit_test(head_lengths_agree),
        cmocka_unit_test(the_vocabulary_is_the_tokenizers),
        cmocka_unit_test(values_by_layer_must_be_equal),
        cmocka_unit_test(real_numbers_have_bounds),
        cmocka_unit_test(rotated_dims),
        cmocka_unit_test(kinds_of_scaling),
        cmocka_unit_test(keys_that_no_family_here_obeys),
        cmocka_unit_test(keys_that_nothing_reads),
        cmocka_unit_test(pooling_is_the_files),
        cmocka_unit_test(hybrids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
