/* SPDX-License-Identifier: MIT
 *
 * test_families.c: the keys that single dense families read: windows, rotations, scales and caps.
 *
 * A value out of range, or a key that only another family honours, is refused by name. test_hparams.c tests the numbers
 * that all families have.
 *
 *     test_families FUSED.gguf I2_S.gguf     a phi3 and a bitnet model, which are changed here
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "kernel/kernel.h"
#include "model/load.h"
#include "model/model.h"
#include "model/rope.h"
#include "../tiny_vocab.h"

#define N_VOCAB 1000

static const char *fused_path, *i2_s_path;

/* ---- files ---- */

/* The keys of a small sound model. */
static const char sound[] = "block_count=8 embedding_length=64 context_length=512 feed_forward_length=128 "
                            "attention.head_count=4 attention.head_count_kv=2 attention.layer_norm_rms_epsilon=1e-5 ";

/* One "NAME=VALUE": a whole number, a number with a point or an exponent, yes or no, [0110] of truth values, or a word.
 * A name that begins with `quern.` is whole. */
static void put_key(struct vfile *f, const char *arch, const char *item, size_t n)
{
    char name[100], value[64];
    size_t at = (size_t)((const char *)memchr(item, '=', n) - item);
    bool is_whole = !strncmp(item, "quern.", 6);
    snprintf(name, sizeof name, "%s%s%.*s", is_whole ? "" : arch, is_whole ? "" : ".", (int)at, item);
    snprintf(value, sizeof value, "%.*s", (int)(n - at - 1), item + at + 1);
    if (value[0] == '[') {
        uint8_t elems[16];
        uint64_t n_elems = 0;
        for (const char *p = value + 1; *p != ']'; p++) elems[n_elems++] = *p == '1';
        vf_key(f, name, MT_ARRAY);
        vf_u32_raw(f, MT_BOOL);
        vf_raw(f, &n_elems, 8);
        vf_raw(f, elems, n_elems);
    } else if (!strcmp(value, "yes") || !strcmp(value, "no")) {
        uint8_t b = value[0] == 'y';
        vf_key(f, name, MT_BOOL);
        vf_raw(f, &b, 1);
    } else if (strpbrk(value, ".e") || !strcmp(value, "nan") || !strcmp(value, "inf")) {
        float x = strtof(value, NULL);
        vf_key(f, name, MT_F32);
        vf_raw(f, &x, 4);
    } else if (value[0] == '-' || (value[0] >= '0' && value[0] <= '9')) {
        int32_t v = atoi(value);
        vf_key(f, name, MT_I32);
        vf_raw(f, &v, 4);
    } else {
        vf_str(f, name, value);
    }
}

/* Puts the items of `all` except those whose names are in `but`. */
static void put_keys(struct vfile *f, const char *arch, const char *all, const char *but)
{
    for (const char *p = all; *p;) {
        size_t n = strcspn(p, " "), name = strcspn(p, "=");
        bool replaced = false;
        for (const char *q = but; *q; q += strcspn(q, " "), q += *q == ' ')
            replaced |= strcspn(q, "=") == name && !strncmp(p, q, name);
        if (!replaced) put_key(f, arch, p, n);
        p += n + (p[n] == ' ');
    }
}

static int read_with(const char *arch, const char *keys, struct hparams *h, struct qn_error *e)
{
    struct vfile f = {0};
    put_keys(&f, arch, sound, keys);
    put_keys(&f, arch, keys, "");
    struct weights *w = vf_open(&f);
    const struct arch *a = arch_find(arch, strlen(arch));
    assert_non_null(a);
    *e = (struct qn_error){0};
    int rc = hparams_read(h, w, a, N_VOCAB, e);
    weights_close(w);
    return rc;
}

static struct hparams accepted(const char *arch, const char *keys)
{
    static struct hparams h;
    struct qn_error e;
    if (read_with(arch, keys, &h, &e)) fail_msg("%s %s: %s", arch, keys, e.msg);
    return h;
}

static void refused(const char *arch, const char *keys, int code, const char *text)
{
    static struct hparams h;
    struct qn_error e;
    int rc = read_with(arch, keys, &h, &e);
    if (rc != code || !strstr(e.msg, text) || strchr(e.msg, '\n'))
        fail_msg("%s %s: got %d '%s', expected %d '%s'", arch, keys, rc, e.msg, code, text);
}

/* ---- windows ---- */

static void windows_are(const struct hparams *h, const char *pattern, int n)
{
    for (int i = 0; i < h->n_layer; i++) assert_int_equal(h->layer[i].n_swa, pattern[i] == '1' ? n : 0);
}

static void families_have_their_windows(void **state)
{
    (void)state;
    struct hparams h = accepted("gemma2", "");
    windows_are(&h, "10101010", 4096); /* files from before the key */
    h = accepted("gemma2", "attention.sliding_window=16");
    windows_are(&h, "10101010", 16);
    h = accepted("gemma2", "attention.sliding_window=0");
    windows_are(&h, "00000000", 0);
    h = accepted("gemma3", "attention.sliding_window=16");
    windows_are(&h, "11111011", 16);
    h = accepted("gemma3", "");
    windows_are(&h, "00000000", 0);
    h = accepted("olmo2", "attention.sliding_window=16");
    windows_are(&h, "11101110", 16);
    h = accepted("olmo2", "");
    windows_are(&h, "00000000", 0);
    h = accepted("phi3", "attention.sliding_window=16"); /* not obeyed */
    windows_are(&h, "00000000", 0);
    h = accepted("llama", "attention.sliding_window=16");
    windows_are(&h, "11111111", 16);
}

static void a_file_may_name_the_windows(void **state)
{
    (void)state;
    struct hparams h = accepted("gemma3", "attention.sliding_window=16 attention.sliding_window_pattern=2");
    windows_are(&h, "10101010", 16);
    h = accepted("gemma3", "attention.sliding_window=16 attention.sliding_window_pattern=1");
    windows_are(&h, "00000000", 16);
    h = accepted("gemma3", "attention.sliding_window=16 attention.sliding_window_pattern=0");
    windows_are(&h, "11111111", 16);
    h = accepted("olmo2", "attention.sliding_window=16 attention.sliding_window_pattern=[00110011]");
    windows_are(&h, "00110011", 16);
    refused("olmo2", "attention.sliding_window_pattern=[001]", QN_EDATA, "has 3 elements for 8 layers");
    refused("gemma3", "attention.sliding_window_pattern=-1", QN_EDATA, "sliding_window_pattern' is -1");
    refused("gemma3", "attention.sliding_window_pattern=513", QN_EDATA, "sliding_window_pattern' is 513");
    refused("gemma3", "attention.sliding_window_pattern=many", QN_EDATA, "sliding_window_pattern");
    refused("gemma2", "attention.sliding_window=-1", QN_EDATA, "'gemma2.attention.sliding_window' is -1");
    refused("qwen3", "attention.sliding_window_pattern=6", QN_EUNSUP, "is 6: not supported for architecture 'qwen3'");
}

/* ---- rotation ---- */

static void rotations_are(const struct hparams *h, const char *pattern)
{
    static const char letters[] = {[ROPE_MAIN] = 'm', [ROPE_LOCAL] = 'l', [ROPE_OFF] = '-'};
    for (int i = 0; i < h->n_layer; i++) assert_int_equal(letters[h->layer[i].rope], pattern[i]);
    assert_int_equal(h->has_local_rope, strchr(pattern, 'l') != NULL);
}

static void layers_rotate_each_their_way(void **state)
{
    (void)state;
    struct hparams h = accepted("gemma3", "attention.sliding_window=16 rope.freq_base=1e6");
    rotations_are(&h, "lllllmll");
    assert_true(h.rope_base == 1e6 && h.rope_base_local == 10000);
    h = accepted("gemma3", "attention.sliding_window=16 rope.freq_base_swa=5e3");
    assert_true(h.rope_base_local == 5000);
    h = accepted("gemma3",
                 "attention.sliding_window=16 rope.global.freq_base=1e6 rope.local.freq_base=5e3"); /* Ollama's */
    assert_true(h.rope_base == 1e6 && h.rope_base_local == 5000);
    refused("gemma2", "rope.global.freq_base=1e6", QN_EUNSUP, "'gemma2.rope.global.freq_base' is 1e+06");
    h = accepted("olmo2", "attention.sliding_window=16 rope.freq_base=5e5");
    rotations_are(&h, "lllmlllm");
    assert_true(h.rope_base_local == 5e5);
    h = accepted("gemma2", "attention.sliding_window=16");
    rotations_are(&h, "mmmmmmmm");
    h = accepted("smollm3", "");
    rotations_are(&h, "mmm-mmm-");
    h = accepted("granite", "rope.scaling.finetuned=no");
    rotations_are(&h, "--------");
    h = accepted("granite", "rope.scaling.finetuned=yes");
    rotations_are(&h, "mmmmmmmm");
    refused("granite", "rope.scaling.finetuned=1", QN_EDATA, "granite.rope.scaling.finetuned");
    refused("gemma3", "rope.freq_base_swa=0.0", QN_EDATA, "'gemma3.rope.freq_base_swa' is 0");
    refused("gemma3", "rope.freq_base_swa=-1e4", QN_EDATA, "'gemma3.rope.freq_base_swa' is -10000");
    refused("gemma3", "rope.freq_base_swa=nan", QN_EDATA, "rope.freq_base_swa");
    refused("llama", "rope.freq_base_swa=5e3", QN_EUNSUP, "is 5000: not supported for architecture 'llama'");
    accepted("llama", "rope.freq_base_swa=1e4"); /* the same as the other */
}

/* OLMo 3's keys, as converters write them; the table's formula is in test_rope.c. */
#define OLMO3                                                                                                          \
    "attention.sliding_window=4096 attention.sliding_window_pattern=[11101110] rope.freq_base=5e5 "                    \
    "rope.scaling.type=yarn rope.scaling.factor=8.0 rope.scaling.original_context_length=8192 "
#define OLMO3_BETAS "rope.scaling.yarn_beta_fast=32.0 rope.scaling.yarn_beta_slow=1.0 "

/* The multiplier of cos and sin in layers that see everything. Layers with a window are never scaled. */
static double multiplier(const struct hparams *h)
{
    struct rope r, local;
    rope_init(&r, h, NULL);
    rope_init_local(&local, h);
    assert_true(local.scale == 1 && fabs(local.freq[3] / pow(h->rope_base, -6.0 / 16) - 1) < 1e-14);
    double share = (3 - 2) / (5.0 - 2); /* of pair 3, from 16 ln(8192 / (beta 2 pi)) / 2 ln 5e5: 2.26 and 4.37 */
    assert_true(fabs(r.freq[3] / (pow(h->rope_base, -6.0 / 16) * (share / 8 + 1 - share)) - 1) < 1e-14);
    return r.scale;
}

static void yarn_has_one_attention_factor(void **state)
{
    (void)state;
    const double computed = 1 + 0.1 * log(8), said = (double)1.2079442F;
    struct hparams h = accepted("olmo2", OLMO3 OLMO3_BETAS "rope.scaling.yarn_attn_factor=1.2079442");
    rotations_are(&h, "lllmlllm");
    assert_true(multiplier(&h) == said && fabs(said - computed) < 1e-7);
    h = accepted("olmo2", OLMO3 OLMO3_BETAS); /* none: it follows from the factor */
    assert_true(fabs(multiplier(&h) - computed) < 1e-15);
    h = accepted("olmo2", OLMO3 "rope.scaling.attn_factor=1.2079442"); /* files of 2025 */
    assert_true(multiplier(&h) == said);
    h = accepted("qwen3", "rope.scaling.type=yarn rope.scaling.factor=8.0 rope.scaling.yarn_attn_factor=0.5");
    assert_true(h.yarn_attn_factor == 0.5 && h.rope_attn_factor == 1);
    h = accepted("qwen3",
                 "rope.scaling.type=yarn rope.scaling.factor=8.0 rope.scaling.attn_factor=0.5"); /* a multiplier */
    assert_true(h.yarn_attn_factor == 0 && h.rope_attn_factor == 0.5);
    accepted("llama", "rope.scaling.yarn_attn_factor=1.0"); /* of no consequence */
    refused("llama", "rope.scaling.yarn_attn_factor=1.25", QN_EUNSUP,
            "'llama.rope.scaling.yarn_attn_factor' is 1.25 without yarn scaling");
    refused("olmo2", OLMO3 "rope.scaling.yarn_attn_factor=1.25 rope.scaling.attn_factor=1.5", QN_EDATA,
            "'olmo2.rope.scaling.yarn_attn_factor' is 1.25, which is all of it, and attn_factor is 1.5");
    refused("olmo2", OLMO3 "rope.scaling.yarn_attn_factor=nan", QN_EDATA, "yarn_attn_factor' is nan");
    refused("olmo2", OLMO3 "rope.scaling.yarn_attn_factor=-1.0", QN_EDATA, "yarn_attn_factor' is -1");
}

static void yarn_range_is_rounded_but_for_gpt_oss(void **state)
{
    (void)state;
    static const char *const others[] = {"llama", "qwen2",   "qwen3", "glm4",  "granite",
                                         "olmo2", "smollm3", "phi3",  "gemma3"};
    static const char oss[] = "rope.scaling.type=yarn rope.scaling.factor=32.0 expert_count=8 expert_used_count=2 "
                              "attention.sliding_window=128 ";
    char keys[300];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_false(accepted(others[i], "rope.scaling.type=yarn rope.scaling.factor=4.0").yarn_exact_range);
        assert_true(accepted(others[i], "quern.rope_yarn_truncate=no").yarn_exact_range);
    }
    assert_true(accepted("gpt-oss", oss).yarn_exact_range);
    snprintf(keys, sizeof keys, "%squern.rope_yarn_truncate=yes", oss);
    assert_false(accepted("gpt-oss", keys).yarn_exact_range);
    refused("llama", "quern.rope_yarn_truncate=1", QN_EDATA, "quern.rope_yarn_truncate");
}

static void pairs_are_adjacent_where_rows_are_permuted(void **state)
{
    (void)state;
    static const char *const adjacent[] = {"llama", "glm4", "granite", "smollm3"};
    static const char *const halves[] = {"gemma", "gemma2", "gemma3",       "phi3",
                                         "olmo2", "bitnet", "bitnet-b1.58", "bitnet-25"};
    for (size_t i = 0; i < sizeof adjacent / sizeof *adjacent; i++)
        assert_true(accepted(adjacent[i], "").rope_adjacent);
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++) assert_false(accepted(halves[i], "").rope_adjacent);
    /* files of models that also see have other rows */
    assert_false(accepted("glm4", "rope.dimension_sections=4").rope_adjacent);
    assert_true(accepted("glm4", "rope.dimension_sections=0").rope_adjacent);
    refused("glm4", "rope.dimension_sections=many", QN_EDATA, "glm4.rope.dimension_sections");
    refused("llama", "rope.dimension_sections=4", QN_EUNSUP, "'llama.rope.dimension_sections' is 4: not supported");
}

/* ---- parts that are not run, and missing keys ---- */

/* Layers at the end that predict further tokens are counted and not run. */
static void layers_for_further_tokens(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "qwen2", "qwen3", "glm4", "granite", "smollm3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct hparams h = accepted(names[i], "nextn_predict_layers=1");
        assert_true(h.n_layer == 7 && h.n_nextn == 1 && h.n_layer_kv == 7);
    }
    refused("glm4", "nextn_predict_layers=8", QN_EDATA, "'glm4.nextn_predict_layers' is 8");
}

/* Files from before expert_feed_forward_length. */
static void experts_of_an_unsaid_width(void **state)
{
    (void)state;
    struct hparams h = accepted("qwen2moe", "expert_count=8 expert_used_count=4");
    assert_true(h.n_ff_exp == 32 && h.n_ff_shexp == 128);
    assert_int_equal(accepted("qwen3moe", "expert_count=8 expert_used_count=2").n_ff_exp, 64);
    assert_int_equal(accepted("llama", "expert_count=8 expert_used_count=2").n_ff_exp, 128);
    refused("qwen2moe", "expert_count=256 expert_used_count=64 feed_forward_length=32", QN_EDATA,
            "feed_forward_length");
}

/* ---- scales and caps ---- */

static void gemmas_scale_by_their_size(void **state)
{
    (void)state;
    static const char *const names[] = {"gemma", "gemma2", "gemma3"};
    for (int i = 0; i < 3; i++) {
        struct hparams h = accepted(names[i], "attention.key_length=32 attention.value_length=32");
        assert_true(h.embd_scale == 8);
        assert_true(h.attn_scale == 1 / sqrtf(32));
        h = accepted(names[i], "attention.key_length=32 attention.value_length=32 block_count=46");
        assert_true(h.attn_scale == 1 / sqrtf(i == 1 ? 16 : 32));
        h = accepted(names[i], "attention.key_length=32 attention.value_length=32 block_count=62");
        assert_true(h.attn_scale == 1 / sqrtf(i == 2 ? 16 : 32));
    }
}

static void caps_are_read(void **state)
{
    (void)state;
    struct hparams h = accepted("gemma2", "");
    assert_true(h.attn_softcap == 50 && h.logit_softcap == 30); /* files from before the keys */
    h = accepted("gemma2", "attn_logit_softcapping=5.0 final_logit_softcapping=6.0");
    assert_true(h.attn_softcap == 5 && h.logit_softcap == 6);
    h = accepted("gemma2", "attn_logit_softcapping=0.0 final_logit_softcapping=0.0");
    assert_true(h.attn_softcap == 0 && h.logit_softcap == 0);
    h = accepted("gemma3", "");
    assert_true(h.attn_softcap == 0 && h.logit_softcap == 0);
    assert_true(accepted("gemma3", "final_logit_softcapping=6.0").logit_softcap == 6);
    refused("gemma3", "attn_logit_softcapping=5.0", QN_EUNSUP, "'gemma3.attn_logit_softcapping' is 5: not supported");
    refused("gemma2", "attn_logit_softcapping=-5.0", QN_EDATA, "'gemma2.attn_logit_softcapping' is -5");
    refused("gemma2", "attn_logit_softcapping=1e-7", QN_EDATA, "'gemma2.attn_logit_softcapping' is 1e-07");
    refused("gemma2", "final_logit_softcapping=1e7", QN_EDATA, "'gemma2.final_logit_softcapping' is 1e+07");
    refused("gemma2", "final_logit_softcapping=inf", QN_EDATA, "gemma2.final_logit_softcapping");
    refused("gemma2", "final_logit_softcapping=30", QN_EDATA, "a float");
}

static void granite_has_four_scales(void **state)
{
    (void)state;
    struct hparams h =
        accepted("granite", "embedding_scale=12.0 residual_scale=0.25 attention.scale=0.5 logit_scale=8.0");
    assert_true(h.embd_scale == 12 && h.residual_scale == 0.25f && h.attn_scale == 0.5f && h.logit_scale == 0.125f);
    h = accepted("granite", "embedding_scale=0.0 residual_scale=0.0 attention.scale=0.0 logit_scale=0.0");
    assert_true(h.embd_scale == 1 && h.residual_scale == 1 && h.attn_scale == 0.25f && h.logit_scale == 1);
    static const char *const names[] = {"embedding_scale", "residual_scale", "attention.scale", "logit_scale"};
    static const char *const bad[] = {"-1.0", "1e-40", "1e7", "nan", "inf", "yes", "8"};
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < sizeof bad / sizeof *bad; j++) {
            char keys[64];
            snprintf(keys, sizeof keys, "%s=%s", names[i], bad[j]);
            refused("granite", keys, QN_EDATA, names[i]);
        }
    refused("olmo2", "logit_scale=8.0", QN_EUNSUP, "not supported for architecture 'olmo2'");
    refused("gemma", "embedding_scale=8.0", QN_EUNSUP, "not supported for architecture 'gemma'");
    assert_true(accepted("smollm3", "attention.scale=0.5").attn_scale == 0.5f);
}

static void experts_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"gemma",   "gemma2", "gemma3",  "phi3",  "glm4",
                                        "granite", "olmo2",  "smollm3", "bitnet"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        refused(names[i], "expert_count=8", QN_EUNSUP, "expert_count' is 8: not supported");
}

/* ---- tensors ---- */

/* The whole file with every `from` replaced by `to`, len bytes each. */
static int load_changed(const char *file, const void *from, const void *to, size_t len, struct qn_error *e)
{
    char path[] = "/tmp/quern-changed-XXXXXX";
    FILE *in = fopen(file, "rb");
    assert_non_null(in);
    fseek(in, 0, SEEK_END);
    size_t n = (size_t)ftell(in);
    rewind(in);
    char *data = malloc(n);
    assert_true(data && fread(data, 1, n, in) == n);
    fclose(in);
    for (char *p = data; (p = memmem(p, n - (size_t)(p - data), from, len));) memcpy(p, to, len);
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, data, n) == (ssize_t)n);
    close(fd);
    free(data);
    struct model *m = NULL;
    int rc = model_load(&m, path, e);
    if (!rc) model_free(m);
    unlink(path);
    return rc;
}

static int load_misnamed(const char *file, const char *from, const char *to, struct qn_error *e)
{
    assert_int_equal(strlen(from), strlen(to));
    return load_changed(file, from, to, strlen(from), e);
}

static void views_share_the_bytes_of_their_matrix(void **state)
{
    (void)state;
    struct model *m;
    struct qn_error e;
    assert_int_equal(model_load(&m, fused_path, &e), 0);
    for (int i = 0; i < m->hp.n_layer; i++) {
        const struct layer *l = &m->layers[i];
        const struct hparams *h = &m->hp;
        const uint8_t *p = l->wqkv.w->data;
        int q = h->n_head * h->head_dim, kv = h->n_head_kv * h->head_dim;
        assert_ptr_equal(l->wq.w->data, p);
        assert_ptr_equal(l->wk.w->data, p + (size_t)q * l->wqkv.w->row_bytes);
        assert_ptr_equal(l->wv.w->data, p + (size_t)(q + kv) * l->wqkv.w->row_bytes);
        assert_int_equal(l->wq.w->ne[1], q);
        assert_int_equal(l->wv.w->ne[1], kv);
        assert_ptr_equal(l->wv.w->data + l->wv.w->bytes, p + l->wqkv.w->bytes);
        assert_ptr_equal(l->gate.w->data, l->gate_up.w->data);
        assert_ptr_equal(l->up.w->data + l->up.w->bytes, l->gate_up.w->data + l->gate_up.w->bytes);
        assert_int_equal(l->gate.w->ne[1], h->n_ff);
    }
    model_free(m);
}

static void matrices_in_no_form_are_missed(void **state)
{
    (void)state;
    struct qn_error e;
    assert_int_equal(load_misnamed(fused_path, "blk.1.attn_qkv.", "blk.1.attn_qkx.", &e), QN_EDATA);
    assert_non_null(strstr(e.msg, "'blk.1.attn_q.weight' is missing, and so is 'blk.1.attn_qkv.weight'"));
    assert_int_equal(load_misnamed(fused_path, "blk.1.ffn_up.", "blk.1.ffn_ux.", &e), QN_EDATA);
    assert_non_null(strstr(e.msg, "'blk.1.ffn_up.weight' is missing"));
}

static void i2_s_has_one_scale_behind_its_rows(void **state)
{
    (void)state;
    struct model *m;
    struct qn_error e;
    float scale, values[256];
    uint8_t block[64];
    assert_int_equal(model_load(&m, i2_s_path, &e), 0);
    const struct linear *q = &m->layers[0].wq;
    assert_int_equal(q->w->type, DT_I2_S);
    memcpy(&scale, q->w->data + q->w->bytes, sizeof scale);
    assert_true(scale > 0 && *q->s == scale);
    assert_null(m->layers[0].wq.b);
    model_free(m);
    const float bad = NAN;
    assert_int_equal(load_changed(i2_s_path, &scale, &bad, sizeof bad, &e), QN_EDATA);
    assert_non_null(strstr(e.msg, "'blk.0.attn_q.weight' has a scale that is not finite"));

    for (int i = 0; i < 64; i++) block[i] = i % 2 ? 0x1a : 0xa4; /* 0, 1, 2, 2 and 2, 2, 1, 0 from the top */
    dequant_row(DT_I2_S, block, NULL, 256, values);
    static const float want[2][4] = {{1, 1, 0, -1}, {-1, 0, 1, 1}};
    for (int i = 0; i < 256; i++) assert_true(values[i] == want[i % 2][i / 32 % 4]);
}

/* The type's number meant something else in other families' files. */
static void i2_s_is_bitnets(void **state)
{
    (void)state;
    struct qn_error e;
    const uint32_t q4_k = DT_Q4_K, i2_s = DT_I2_S;
    char from[64] = "blk.1.attn_output.weight", to[64];
    size_t n = strlen(from);
    const struct {
        uint32_t n_dims, lo_in, hi_in, lo_out, hi_out, type;
    } shape = {2, 256, 0, 256, 0, q4_k};
    memcpy(from + n, &shape, sizeof shape);
    memcpy(to, from, sizeof to);
    memcpy(to + n + sizeof shape - sizeof i2_s, &i2_s, sizeof i2_s);
    assert_int_equal(load_changed(fused_path, from, to, n + sizeof shape, &e), QN_EUNSUP);
    assert_non_null(strstr(e.msg, "'blk.1.attn_output.weight' has type I2_S, which only bitnet files may"));
}

int main(int argc, char **argv)
{
    assert(argc == 3);
    fused_path = argv[1];
    i2_s_path = argv[2];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_have_their_windows),
        cmocka_unit_test(a_file_may_name_the_windows),
        cmocka_unit_test(yarn_has_one_attention_factor),
        cmocka_unit_test(yarn_range_is_rounded_but_for_gpt_oss),
        cmocka_unit_test(layers_rotate_each_their_way),
        cmocka_unit_test(pairs_are_adjacent_where_rows_are_permuted),
        cmocka_unit_test(layers_for_further_tokens),
        cmocka_unit_test(experts_of_an_unsaid_width),
        cmocka_unit_test(gemmas_scale_by_their_size),
        cmocka_unit_test(caps_are_read),
        cmocka_unit_test(granite_has_four_scales),
        cmocka_unit_test(experts_are_refused),
        cmocka_unit_test(views_share_the_bytes_of_their_matrix),
        cmocka_unit_test(matrices_in_no_form_are_missed),
        cmocka_unit_test(i2_s_has_one_scale_behind_its_rows),
        cmocka_unit_test(i2_s_is_bitnets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
